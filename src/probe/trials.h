// What a child process of the probe does.
#pragma once

#include <string>
#include <vector>

namespace arb::probe {

// The source of the kernels that trials compile and launch.
const char* trial_kernels();

// Runs `task`, its command line after "probe-child": asks NVML or the driver, or makes one trial. Prints JSON
// (or a line a pair, for peer paths) to standard output and returns the exit status.
int child_main(const std::vector<std::string>& task);

}  // namespace arb::probe
