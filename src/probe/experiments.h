// Experiments of `probe --deep`: each in a child process with a deadline, so that none can hang or end the
// probe.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "probe/facts.h"

namespace arb::probe {

// What a child found.
struct Outcome {
  bool worked = false;
  std::string detail;  // figures or the reason, one sentence
};

struct Experiment {
  std::string id;     // "compile sm_120f 13.0-nvcc", "p2p 0>1"
  std::string fact;   // the fact that it decides together with others of the same name; empty: none
  std::string state;  // "worked", "failed", "not run"
  std::string detail;
  double seconds = 0;
};

struct DeepOptions {
  std::filesystem::path program = "/proc/self/exe";  // runs the children; tests put another one here
  std::chrono::milliseconds pair_deadline{10'000};   // of the pairs that one process tries
  // Of one compilation; a compiler that misses it is not tried again.
  std::chrono::milliseconds compile_deadline{15'000};
  std::chrono::milliseconds budget{60'000};  // of all together: what is left over is not run, and says so
};

// Makes all experiments that this box allows, says of each other one why it was not run, and sets the facts
// "deep.*".
std::vector<Experiment> run_experiments(const Box& box, Facts& facts, const DeepOptions& options);

}  // namespace arb::probe
