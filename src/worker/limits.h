// What this machine can do at best: single tests, and the limits from which the floor of every cell follows.
#pragma once

#include <optional>

#include "cell.h"
#include "cell_runner.h"
#include "limit_measurement.h"
#include "ranks.h"

namespace arb::worker {

// Makes tests, one after the other; buffers stay from one to the next.
class LimitBench {
 public:
  explicit LimitBench(Ranks& ranks) : ranks_(&ranks) {}

  // The figure of a test in the unit of its kind. Throws what Ranks::wait throws, and BundleError for a test that these
  // ranks cannot make.
  double measure(const LimitTest& test);

 private:
  double nodes_us(cuda::Edge edge, std::uint32_t count);
  double local_copy_us(std::uint64_t bytes);
  double flag_us(Rank& first, Rank& second);
  double barrier_us();
  double move_gbps(const LimitTest& test);
  double median_replay_us(const std::vector<cuda::ExecutableGraph>& graphs, const char* doing);
  void need_move_buffers();

  Ranks* ranks_;
  std::optional<cuda::SymmetricBuffer> flags_;
  std::uint32_t first_flag_ = 0;  // flags grow, so that tests can follow one another
  std::optional<Workspace> barrier_;
  cuda::SymmetricBuffer source_;
  cuda::SymmetricBuffer target_;
};

// Measures it all in about a second: empty nodes, a flag between the ranks of each pair, and bytes a second
// by SM stores, SM loads and the copy engines with all ranks at once. Throws what Ranks::wait throws.
MachineLimits measure_limits(Ranks& ranks, CellRunner& runner);

}  // namespace arb::worker
