// A machine that can only be looked at: its files, environment, and what NVML and the driver answered.
//
// The live machine is the root "/"; a recorded one is a folder with a root/ and a box.json. Nothing is
// written, run or loaded through a Box.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace arb::probe {

// One GPU as NVML and the driver describe it. What neither says is absent.
struct GpuAnswer {
  std::uint32_t index = 0;               // NVML's
  std::optional<std::uint32_t> ordinal;  // the driver's, where CUDA_VISIBLE_DEVICES shows it
  std::optional<std::string> name;
  std::optional<std::string> uuid;
  std::optional<std::string> pci_address;         // "0000:17:00.0"
  std::optional<std::string> compute_capability;  // "12.0"
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> bar1_bytes;
  std::optional<std::uint32_t> pcie_generation;
  std::optional<std::uint32_t> pcie_width_lanes;
  std::optional<std::uint32_t> pcie_generation_max;
  std::optional<std::uint32_t> pcie_width_max_lanes;
  std::optional<std::uint32_t> nvlinks_active;
  std::optional<bool> multicast;  // the driver's attributes
  std::optional<bool> vmm_file_descriptor;
  std::optional<bool> cluster_launch;
};

// One ordered pair of GPUs, by GpuAnswer::index. NVML's statuses are "ok" or the reason why not.
struct PairAnswer {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::optional<std::string> common_ancestor;  // "PIX", "PXB", "PHB", "NODE", "SYS"
  std::optional<std::string> p2p_read;
  std::optional<std::string> p2p_write;
  std::optional<std::string> p2p_nvlink;
  std::optional<std::string> p2p_atomics;
  std::optional<bool> driver_access;  // cuDeviceCanAccessPeer
};

struct Answers {
  std::string nvml_why;                    // why NVML was not asked; empty: it was
  std::string driver_why;                  // why the driver was not asked; empty: it was
  std::optional<std::string> driver;       // "590.44.01"
  std::optional<std::string> cuda_driver;  // "13.1"
  std::vector<GpuAnswer> gpus;
  std::vector<PairAnswer> pairs;
};

struct Space {
  std::uint64_t size_bytes = 0;
  std::uint64_t free_bytes = 0;
};

// A file's text, or why there is none in a few words ("there is no such file", "needs root").
struct Text {
  std::optional<std::string> text;
  std::string why;
};

class Box {
 public:
  Box(std::filesystem::path root, std::map<std::string, std::string> environment, Answers answers,
      std::map<std::string, Space> spaces);

  // The machine this runs on, with these answers.
  static Box live(Answers answers);
  // A recorded one: `folder`/root and `folder`/box.json. Throws EnvironmentError when box.json is no box.
  static Box recorded(const std::filesystem::path& folder);

  // All paths are the box's own, absolute: "/proc/cpuinfo".
  // At most `limit_bytes` of a regular file.
  [[nodiscard]] Text read(std::string_view path, std::size_t limit_bytes = 1 << 20) const;
  // The same, without blanks around it; absent where it cannot be read.
  [[nodiscard]] std::optional<std::string> line(std::string_view path) const;
  [[nodiscard]] bool is_file(std::string_view path) const;
  [[nodiscard]] bool is_folder(std::string_view path) const;
  [[nodiscard]] bool can_run(std::string_view path) const;
  // Names in a folder, sorted; none where it cannot be read.
  [[nodiscard]] std::vector<std::string> list(std::string_view folder) const;
  // The path with all links resolved inside the box; absent where there is nothing.
  [[nodiscard]] std::optional<std::string> resolve(std::string_view path) const;
  // The path on the machine that this runs on, links resolved; for readers of binary files.
  [[nodiscard]] std::optional<std::filesystem::path> host_path(std::string_view path) const;
  [[nodiscard]] std::optional<std::string> variable(const std::string& name) const;
  [[nodiscard]] const std::map<std::string, std::string>& environment() const { return environment_; }
  // Size of the file system at `path`; absent where it is not known.
  [[nodiscard]] std::optional<Space> space(const std::string& path) const;
  [[nodiscard]] const Answers& answers() const { return answers_; }
  [[nodiscard]] bool is_live() const { return root_ == "/"; }

 private:
  std::filesystem::path root_;
  std::map<std::string, std::string> environment_;
  Answers answers_;
  std::map<std::string, Space> spaces_;
};

}  // namespace arb::probe
