// What must hold before two arms may be told apart: same machine, same clocks, nothing broke on the way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comparison_record.h"
#include "verdict.h"

namespace arb {

enum class GateState : std::uint8_t { passed, failed, unchecked };
constexpr std::string_view name_of(GateState state) {
  return state == GateState::passed ? "passed" : state == GateState::failed ? "failed" : "unchecked";
}

struct Gate {
  std::string name;
  GateState state = GateState::passed;
  std::string sentence;  // what was found; empty where a gate passed and found nothing
  friend bool operator==(const Gate&, const Gate&) = default;
};

inline constexpr double most_clock_difference = 0.01;
// Chance that a gate fails on arms that are alike, for the gates that are tests themselves.
inline constexpr double gate_alpha = 0.01;

// The gates of the blocks: GPUs, driver, clocks, clock event reasons, hardware errors, and the placebo, whose
// judgements come from judge_placebo(). (Wrong data never gets this far: it ends a comparison.)
std::vector<Gate> check_gates(const ComparisonPlan& plan, std::span<const Block> blocks,
                              std::span<const Judgement> placebo);

// What a finished run knows of its machine.
struct RunMachine {
  std::string driver;
  std::vector<std::string> gpus;  // UUIDs by rank
  std::vector<GpuDuring> during;  // by rank, over the whole run; empty where nobody looked
  unsigned rows = 0;              // with a time
  unsigned throttled_rows = 0;    // of those, flagged so
};
// The gates of two finished runs: GPUs, driver (of which a change is told: it may be the question), clocks, what held
// them back, hardware errors.
std::vector<Gate> check_gates(const RunMachine& a, const RunMachine& b);

// The sentences of all failed gates, joined; empty where none failed.
std::string failed_gates(std::span<const Gate> gates);
// Names of the gates that nobody could check.
std::vector<std::string> unchecked_gates(std::span<const Gate> gates);

}  // namespace arb
