// What a comparison keeps while it runs: its plan, and every whole block. Enough to go on after an interrupt
// and to compute every verdict again.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "comparison_arm.h"
#include "types.h"

namespace arb {

// One cell as both arms have it. `contender_b` differs from `contender` only where contenders are compared.
struct ComparedKey {
  std::string contender;
  std::string contender_b;
  Dtype dtype = Dtype::bf16;
  std::uint32_t ranks = 0;
  std::uint64_t bytes = 0;
  Place place = Place::out;
  Mode mode = Mode::pipelined;
  Cache cache = Cache::warm;

  // "two_shot_pull", or "two_shot_pull:two_shot_push" where contenders are compared.
  [[nodiscard]] std::string contender_name() const;
  // The name that joins it in both arms' files: "two_shot_pull/bf16/n2/1024/out/pipelined/warm".
  [[nodiscard]] std::string name() const;
  friend bool operator==(const ComparedKey&, const ComparedKey&) = default;
};

// What an arm turned out to be.
struct ArmFound {
  std::string bundle;         // "13.0-nvrtc"; empty without kernels
  std::string bundle_digest;  // of its cubins' hashes: another one means other code
  std::string nccl;           // "2.28.9+cuda13.0"; empty without NCCL
  std::string nccl_path;
  // What contenders that choose (auto) run: "1K one_shot_push 1x128, ..."; empty without any.
  std::string choices = {};
  friend bool operator==(const ArmFound&, const ArmFound&) = default;
};

// What is fixed before the first block; a resumed comparison must find the same.
struct ComparisonPlan {
  std::string arm_a;  // as typed
  std::string arm_b;
  std::vector<std::string> arguments;  // the other options of the command, to run it again
  std::uint32_t blocks = 12;
  bool extend = false;  // one more look at twice the blocks, if something stayed open
  bool attribute = false;
  std::uint64_t seed = 1;
  std::vector<Role> roles;
  std::string driver;
  std::vector<std::string> gpus;  // UUIDs by rank
  std::vector<ArmFound> found;    // by role
  std::vector<ComparedKey> cells;
  friend bool operator==(const ComparisonPlan&, const ComparisonPlan&) = default;
};

// One GPU during one launch. What could not be read is absent.
struct GpuDuring {
  std::string uuid;
  std::optional<double> sm_clock_mhz;  // mean of the readings
  std::optional<double> least_sm_clock_mhz = {};
  std::optional<double> most_sm_clock_mhz = {};
  std::optional<double> memory_clock_mhz;          // likewise
  std::optional<std::vector<std::string>> events;  // clock event reasons seen, idleness left out
  std::optional<std::uint64_t> new_errors;         // of the links, between the launch's start and end
  std::optional<double> temperature_c;             // the highest
  friend bool operator==(const GpuDuring&, const GpuDuring&) = default;
};

struct LaunchRecord {
  Role role = Role::a;
  std::string driver;
  std::vector<GpuDuring> gpus;                  // by rank
  std::vector<std::optional<double>> times_us;  // by cell of the plan (verdict.h, launch_summary_us)
  std::vector<std::string> ran;                 // by cell: what really ran
  friend bool operator==(const LaunchRecord&, const LaunchRecord&) = default;
};

struct Block {
  std::uint32_t index = 0;
  std::vector<LaunchRecord> launches;  // in the order in which they ran
  // The launch of a role, or nullptr.
  [[nodiscard]] const LaunchRecord* find(Role role) const;
  friend bool operator==(const Block&, const Block&) = default;
};

// A record that is cut, foreign or contradicts itself; what() is one sentence.
class RecordError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// {"uuid": ..., "sm_clock_mhz": ...}: what could not be read has no key.
std::string to_json(const GpuDuring& gpu);
// Reads the same. Throws RecordError.
GpuDuring gpu_during_from_json(std::string_view text);
// plan.json, and one line of blocks.jsonl (without its newline). The readers throw RecordError.
std::string to_json(const ComparisonPlan& plan);
ComparisonPlan plan_from_json(std::string_view text);
std::string to_json_line(const Block& block);
// All lines, as many values a launch as the plan has cells, the roles of the plan, indices from 0.
std::vector<Block> blocks_from_json_lines(std::string_view text, const ComparisonPlan& plan);

}  // namespace arb
