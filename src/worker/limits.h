// What this machine can do at best, from which the floor of every cell follows.
#pragma once

#include "cell.h"
#include "cell_runner.h"
#include "ranks.h"

namespace arb::worker {

// Measures it all in about a second: empty nodes, a flag between the ranks of each pair, and bytes a second
// by SM stores, SM loads and the copy engines with all ranks at once. Throws what Ranks::wait throws.
MachineLimits measure_limits(Ranks& ranks, CellRunner& runner);

}  // namespace arb::worker
