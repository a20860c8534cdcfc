// Which part of an upgrade changed a row: the compiler, NCCL, or neither.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bundle.h"
#include "comparison_record.h"
#include "verdict.h"

namespace arb {

// What is known of a cell's code without timing it.
struct CellFacts {
  bool is_nccl = false;
  bool same_code = false;  // kernels: equal SASS; NCCL: the same library file
  std::string phrase;      // "same SASS"; "SASS differs, regs 40->48, 16 B spilled"; "NCCL 2.28.3 -> 2.28.9"
};

// "same SASS", or "SASS differs" with what else the compiler says: registers, spills, instructions.
std::string compiled_difference(const BundleFunction& a, const BundleFunction& b);
// "same NCCL", "NCCL 2.28.3 -> 2.28.9", with ": Ring/LL -> Tree/LL" where another thing ran.
std::string nccl_difference(const std::string& version_a, const std::string& version_b, bool same_file,
                            const std::string& ran_a, const std::string& ran_b);

// In what the arms differ.
struct ArmsDiffer {
  bool compiler = false;
  bool nccl = false;
  bool other = false;  // variables, contenders, another program
};

// The effect of one factor on each cell, crossed with the other where both differ: the mean of B's factor
// over A's under either value of the other. Cells without a time in some launch have no values.
enum class Factor : std::uint8_t { compiler, nccl };
std::vector<std::vector<double>> factor_effects(const ComparisonPlan& plan, std::span<const Block> blocks,
                                                Factor factor);

struct Attribution {
  bool controls_held = true;  // where not, the causes mean nothing and must not be named
  std::string controls;       // one sentence on the negative controls
  // By cell: "compiler", "NCCL", "what else differs between the arms", "neither compiler nor NCCL alone", "undecided
  // between compiler and NCCL"; empty: no change.
  std::vector<std::string> causes;
};
// Causes of the cells that `judgements` calls FASTER or SLOWER. Negative controls: NCCL's rows must not react
// to the compiler, kernels' rows must not react to NCCL, equal SASS must not move at all. `cells`, `facts` and `judgements` belong together, place by place.
Attribution attribute(const ComparisonPlan& plan, std::span<const Block> blocks,
                      std::span<const CellFacts> facts, std::span<const std::optional<Judgement>> judgements,
                      const ArmsDiffer& differ, const Rules& rules);

}  // namespace arb
