// A comparison from its blocks to its verdicts, and what ends up in tables and files.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attribution.h"
#include "comparison_gates.h"
#include "comparison_record.h"
#include "errors.h"
#include "verdict.h"

namespace arb {

// One row of a comparison.
struct ComparedCell {
  ComparedKey key;
  double a_us = 0;  // geometric means over launches
  double b_us = 0;
  Judgement judgement;
  std::optional<Judgement> placebo;  // A' against A by the same rules
  std::string why;                   // one phrase
};

struct Comparison {
  bool paired = true;
  std::string label_a;  // for heads of tables
  std::string label_b;
  std::string arm_a;  // whole
  std::string arm_b;
  Rules rules;
  std::uint64_t blocks = 0;
  std::vector<ComparedCell> cells;
  std::vector<Gate> gates;
  std::vector<std::string> remarks;  // one sentence each
  bool incomplete = false;           // a cell did not run in some launch
  std::string failed;                // why there is no verdict; empty: there is one

  [[nodiscard]] std::size_t count(Verdict verdict) const;
};

// Verdicts on the blocks. With a failed gate `failed` says which, and rows keep their estimates only. Cells
// that lack a time in some launch are left out with a remark. `facts` are by cell of the plan. With
// `attribute` the rows that changed name their cause.
Comparison compare_blocks(const ComparisonPlan& plan, std::span<const Block> blocks, const Rules& rules,
                          std::span<const CellFacts> facts, const ArmsDiffer& differ);

// The same cell in two finished runs: p50 of every launch in microseconds.
struct UnpairedCell {
  ComparedKey key;
  std::vector<double> a_us;
  std::vector<double> b_us;
  std::vector<double> history_us;  // of earlier runs, one each
  CellFacts facts;
};
// `gates` as in compare_blocks.
Comparison compare_runs(std::span<const UnpairedCell> cells, std::vector<Gate> gates, const Rules& rules);

// 5 with a failed gate (or, strict, an unchecked one), else 3 where a row is SLOWER, else 5 where cells did
// not run, else 4 where one is INCONCLUSIVE and `strict`, else 0.
ExitCode exit_code_of(const Comparison& comparison, bool strict);

}  // namespace arb
