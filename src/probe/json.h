// All JSON of the probe, read and written in one place.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "probe/box.h"
#include "probe/experiments.h"
#include "probe/facts.h"
#include "probe/names.h"
#include "probe/rules.h"

namespace arb::probe {

// box.json of a recorded box.
struct RecordedBox {
  std::map<std::string, std::string> environment;
  Answers answers;
  std::map<std::string, Space> spaces;
};
// Throws EnvironmentError, naming `file`, for what is no box.
RecordedBox recorded_box_from_json(const std::string& text, const std::string& file);

// What NVML or the driver answered, as a child process prints it and a recorded box keeps it.
std::string answers_to_json(const Answers& answers);
// Throws std::invalid_argument for what is none.
Answers answers_from_json(const std::string& text);

// Throws std::invalid_argument naming the row and the mistake.
RuleSet rules_from_json(const std::string& text);

// An experiment's outcome, as a child process prints it.
std::string outcome_to_json(const Outcome& outcome);
// Absent for what is none.
std::optional<Outcome> outcome_from_json(const std::string& text);

// Everything that a page shows.
struct Report {
  const Facts* facts = nullptr;
  std::vector<Verdict> verdicts;
  std::optional<WhatIf> what_if;
  std::vector<Experiment> experiments;  // of --deep
  bool with_sources = false;            // the page ends with each rule's sources
};
// The probe's report, strict JSON of schema 2 (docs/probe.md). `indent` < 0: one line. `left_out`: names that
// no value may hold; nullptr: all are kept.
std::string report_to_json(const Report& report, int indent, const Names* left_out = nullptr);

// Whether `text` is one that report_to_json made.
bool is_report(const std::string& text);
// A report that holds nothing but its schema and why it could not be made.
std::string error_report(const std::string& why);

}  // namespace arb::probe
