// The probe: what this machine and its software stack are, and what runs on them.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "probe/box.h"

namespace arb::probe {

enum class Output : std::uint8_t { page, json, markdown };

struct ProbeOptions {
  std::string python;                          // --python
  std::map<std::string, std::string> what_if;  // --what-if toolkit=13.1,flashinfer=0.7.4
  bool deep = false;
  bool sources = false;  // on the page, too
  bool redact = true;    // of Markdown
  Output output = Output::page;
  std::filesystem::path box;                         // --box: a recorded box instead of this machine
  std::filesystem::path program = "/proc/self/exe";  // that runs the children
};

// NVML's and the driver's answers about this machine, from child processes with deadlines: neither a hanging
// nor a crashing driver can take this process along.
Answers ask_machine(const std::filesystem::path& program);

// The whole report as text, as `options` want it. Throws UsageError or EnvironmentError.
std::string report(const ProbeOptions& options);
// The same of a box, without experiments unless it is live.
std::string report(const Box& box, const ProbeOptions& options);

// This machine's report as one JSON object, for environment.json's key "probe"; never throws: what fails
// becomes
// {"schema": 1, "error": "..."}. Takes up to two seconds, no experiments.
std::string probe_json(const std::filesystem::path& program = "/proc/self/exe") noexcept;

// Reads "toolkit=13.1,flashinfer=0.7.4". Throws UsageError.
std::map<std::string, std::string> assumptions_from(const std::string& text);

}  // namespace arb::probe
