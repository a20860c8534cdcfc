// The probe: what this machine and its software stack are, and what runs on them.
#pragma once

#include <chrono>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "probe/box.h"

namespace arb::probe {

// A record is JSON in one line without what names a person or a host: for results folders.
enum class Output : std::uint8_t { page, json, markdown, record };

struct ProbeOptions {
  std::string python;                          // --python
  std::map<std::string, std::string> what_if;  // --what-if toolkit=13.1,flashinfer=0.7.4
  bool deep = false;
  bool sources = false;  // on the page, too
  bool redact = true;    // of Markdown
  Output output = Output::page;
  std::filesystem::path box;                         // --box: a recorded box instead of this machine
  std::filesystem::path program = "/proc/self/exe";  // that runs the children
  // For NVML and the driver, both at once. A healthy machine takes some tenths of a second; without a
  // persistence daemon the driver wakes each GPU first.
  std::chrono::milliseconds patience{8'000};
};

// NVML's and the driver's answers about this machine, from child processes with deadlines: neither a hanging
// nor a crashing driver can take this process along.
Answers ask_machine(const std::filesystem::path& program, std::chrono::milliseconds patience);

// The whole report as text, as `options` want it. Throws UsageError or EnvironmentError.
std::string report(const ProbeOptions& options);
// The same of a box, without experiments unless it is live.
std::string report(const Box& box, const ProbeOptions& options);

// This machine's record, for environment.json's key "probe". A child process of `program`, which is arbench,
// makes it, so that neither the driver nor a dead file server can hold this process up: two seconds at most
// (half a second more where the child cannot be killed). Never throws: what fails becomes {"schema": 2,
// "error": "..."}.
std::string probe_json(const std::filesystem::path& program) noexcept;
// What that child prints.
std::string record();

// Reads "toolkit=13.1,flashinfer=0.7.4". Throws UsageError.
std::map<std::string, std::string> assumptions_from(const std::string& text);

}  // namespace arb::probe
