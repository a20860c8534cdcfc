// arbench probe: what this machine is, which allreduces it can run, and what an upgrade would change.
#pragma once

#include <string>
#include <vector>

#include "probe/probe.h"
#include "verbs.h"

namespace arb {

// What the command line of `probe` asked for.
struct ProbeVerbOptions {
  probe::ProbeOptions probe;
  std::string what_if;
  bool json = false;
  bool markdown = false;
  bool with_names = false;
};

// Prints the report. Exit status: 0; 1 for a command line that asks for what does not exist; 5 when a
// recorded box cannot be read. Verdicts and experiments that fail are answers, not failures.
int probe_verb(const ProbeVerbOptions& options, const Terminal& terminal);
// A child process of the probe: asks NVML or the driver, or makes one experiment.
int probe_child_verb(const std::vector<std::string>& task);

}  // namespace arb
