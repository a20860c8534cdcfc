// What a box is: facts found in its files and answers, each known, not there, or not seen with the reason
// why.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "probe/box.h"

namespace arb::probe {

// Something that could not be looked at.
struct Unseen {
  std::string what;
  std::string why;
};

// A CUDA compiler, or what a package brings of one.
struct Nvcc {
  std::string path;     // as found
  std::string toolkit;  // its toolkit's folder, links resolved
  std::string version;  // "12.8"; empty: nothing beside it says
  std::string found;    // "PATH", "CUDA_HOME", "/usr/local", "conda", "Python"
  bool runs = false;    // has the run bit
};

// A shared library of CUDA's.
struct Library {
  std::string kind;     // "libcudart", "libnccl", "libcudnn", "libnvrtc"
  std::string path;     // as found
  std::string version;  // decoded; empty: neither name nor package says
  std::string cuda;     // what it was built for; empty: unknown
  std::string source;   // "system", "toolkit", "Python", "LD_LIBRARY_PATH"
};

// A forward-compatibility libcuda.so.
struct Compat {
  std::string folder;
  std::string driver;   // "590.44.01", from the library's name
  bool in_use = false;  // LD_LIBRARY_PATH names the folder
};

struct Package {
  std::string name;      // "torch"
  std::string version;   // "2.10.0+cu128"
  std::string cuda;      // what it was built for; empty: unknown
  std::string evidence;  // where that is from: "torch/version.py"
};

struct Python {
  std::string program;  // empty: none was found
  std::string prefix;
  std::string version;  // "3.12"
  std::string chosen;   // "--python", "VIRTUAL_ENV", "CONDA_PREFIX", "PATH"
  std::vector<std::string> packages_folders;
  std::vector<Package> packages;  // those of interest, in a fixed order
};

// A further environment that holds some of these packages.
struct OtherPython {
  std::string prefix;
  std::string found;  // "CONDA_PREFIX", "PATH", "conda"
  std::vector<Package> packages;
};

// A GPU, joined from NVML, the driver and /sys.
struct Gpu {
  GpuAnswer answer;
  std::string pci_path;  // "/sys/devices/pci0000:00/..."; empty: /sys does not show it
  std::optional<int> numa_node;
  std::string slowest_hop;  // "16.0 GT/s x16 at 0000:16:00.0": a port above it that can do less; empty: none
  std::optional<bool> iommu_translates;
  std::optional<bool> acs_redirects;  // some port above it sends peer traffic up to the root
  std::string driver_module;          // "nvidia", "vfio-pci"
};

struct Host {
  std::string kernel;
  std::string processor;
  std::optional<int> sockets;
  std::optional<int> numa_nodes;
  std::string virtual_machine;  // "KVM (QEMU)"; empty: none
  std::optional<bool> is_virtual;
  std::string container;  // "Docker"; empty: none
  std::optional<bool> iommu_on;
  std::string iommu_options;  // of the kernel's command line
  std::optional<Space> shared_memory;
  std::string module_kind;  // "open", "proprietary"
  std::string module_version;
  std::map<std::string, std::string> module_parameters;  // those that are not at rest and matter here
};

// One fact by name, for rules: known values, known to be absent, or unknown.
struct Fact {
  enum class State : std::uint8_t { known, absent, unknown };
  State state = State::unknown;
  std::string value;  // "true", "12.8", "8", text
  std::string why;    // where it is absent or unknown: a clause
};
using FactMap = std::map<std::string, Fact>;

struct Facts {
  std::vector<Nvcc> nvccs;
  std::optional<Nvcc> shell_nvcc;  // what `nvcc` means in a shell
  std::optional<Nvcc> jit_nvcc;    // what PyTorch's and FlashInfer's just-in-time builds take
  std::string jit_why;             // why that one, or why none
  std::vector<Library> libraries;
  std::vector<Compat> compats;
  Python python;
  std::vector<OtherPython> other_pythons;
  std::string driver;       // empty: unknown
  std::string driver_cuda;  // empty: unknown
  std::string driver_cuda_from;
  std::vector<Gpu> gpus;
  std::vector<PairAnswer> pairs;
  Host host;
  std::vector<Unseen> unseen;
  FactMap map;  // all that rules ask for
};

struct FactOptions {
  std::string python;  // --python: a program or an environment's folder; empty: chosen
  std::map<std::string, std::string> driver_cuda;  // "590" -> "13.1", from the rules' file
};

// Looks at everything. Runs nothing and loads nothing; well under a second on a usual machine.
Facts find_facts(const Box& box, const FactOptions& options);

// The parts, each adding to `facts`; find_facts calls them in this order.
void find_toolkits(const Box& box, Facts& facts);
void find_python(const Box& box, const std::string& wanted, Facts& facts);
void find_libraries(const Box& box, Facts& facts);
void find_gpus(const Box& box, const FactOptions& options, Facts& facts);
void find_host(const Box& box, Facts& facts);
void name_facts(const Box& box, Facts& facts);

// The package of that name, or nullptr.
const Package* find_package(const Facts& facts, std::string_view name);
// Where two GPUs meet in the PCIe tree: "PIX", "PXB", "PHB", "NODE", "SYS"; empty where /sys does not say.
std::string meeting_point(const Gpu& a, const Gpu& b);
// Sets fact `name`.
void set_known(FactMap& map, const std::string& name, std::string value);
void set_absent(FactMap& map, const std::string& name, std::string why);
void set_unknown(FactMap& map, const std::string& name, std::string why);

}  // namespace arb::probe
