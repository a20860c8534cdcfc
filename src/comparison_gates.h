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
// The first failed gate's sentences joined, or empty.
std::string failed_gates(std::span<const Gate> gates);
// Names of the gates that nobody could check.
std::vector<std::string> unchecked_gates(std::span<const Gate> gates);

}  // namespace arb
