// A backend that answers what a test tells it to. Its evidence is fixed at birth, as every backend's is.
#pragma once

#include <functional>
#include <utility>

#include "backend.h"

namespace arb::test {

class DoubleBackend final : public Backend {
 public:
  explicit DoubleBackend(Evidence evidence, std::function<Outcome(const Cell&)> answer = {})
      : evidence_(evidence), answer_(std::move(answer)) {}
  [[nodiscard]] Evidence evidence() const override { return evidence_; }
  [[nodiscard]] std::string world() const override {
    return evidence_ == Evidence::emulated   ? "emulated"
           : evidence_ == Evidence::modelled ? "pcie5"
                                             : "threads";
  }
  Outcome run(const Cell& cell) override { return answer_(cell); }
  std::optional<MachineLimits> limits() override { return std::nullopt; }

 private:
  Evidence evidence_;
  std::function<Outcome(const Cell&)> answer_;
};

inline Outcome right_outcome(std::vector<double> samples_us) {
  Outcome outcome;
  outcome.samples_us = std::move(samples_us);
  outcome.correct = true;
  outcome.max_error = 0.00390625;
  outcome.output_hash = "0123456789abcdef";
  outcome.ran = "8x256";
  return outcome;
}

// A machine whose floors come out as round numbers.
inline MachineLimits round_limits() {
  MachineLimits limits;
  limits.node_us_k20 = 0.75;
  limits.graph_start_us = 5;
  limits.node_us = 0.5;
  limits.isolated_node_us = 2;
  limits.flag_us = 0.25;
  limits.bandwidth_gbps = 100;
  limits.bandwidth_engine = "sm_store";
  limits.stamp_us = 1.5;
  limits.clock_tick_ns = 32;
  return limits;
}

}  // namespace arb::test
