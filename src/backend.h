// What runs cells: GPUs behind workers, or the emulated box. The coordinator sees nothing else of either.
#pragma once

#include <optional>
#include <span>

#include "cell.h"
#include "types.h"

namespace arb {

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  Backend(Backend&&) = delete;
  Backend& operator=(Backend&&) = delete;
  virtual ~Backend() = default;

  // The kind of every figure that this backend gives; fixed for its lifetime.
  [[nodiscard]] virtual Evidence evidence() const = 0;
  // Name for the `world` column: "threads", "emulated".
  [[nodiscard]] virtual std::string world() const = 0;
  // Starts what these cells need, all at once, so that nothing starts between two of them. What cannot start says so
  // when its first cell runs.
  virtual void get_ready(std::span<const Cell> /*cells*/) {}
  // Runs one cell to its end. Throws WorkerLost (coordinator/worker_process.h) when the run cannot go on.
  virtual Outcome run(const Cell& cell) = 0;
  // The machine's limits, measured once; empty where time means nothing.
  virtual std::optional<MachineLimits> limits() = 0;
};

}  // namespace arb
