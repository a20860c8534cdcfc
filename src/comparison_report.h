// A comparison as people and programs read it.
#pragma once

#include <string>

#include "comparison.h"

namespace arb {

// One line a cell, below a headline, with gates and remarks after it. Columns for mode and dtype come when
// the cells differ in them.
std::string comparison_table(const Comparison& comparison);
// For a pull request: what changed first, everything in a fold.
std::string comparison_markdown(const Comparison& comparison);
// {"schema": "arbench comparison", "version": 1, ...}: strict JSON, finite numbers only, a final newline.
std::string comparison_json(const Comparison& comparison);
// github-action-benchmark's customSmallerIsBetter: B's times, named by cell, with the verdict beside them.
std::string smaller_is_better_json(const Comparison& comparison);
// verdicts.csv with its header.
std::string verdicts_csv(const Comparison& comparison);
// "3 FASTER, 0 SLOWER, 12 EQUIVALENT, 1 INCONCLUSIVE".
std::string verdict_counts(const Comparison& comparison);

}  // namespace arb
