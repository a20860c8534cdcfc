// Rules as data: when does an approach work or fail, why, and what would help. The rows are in rules.json.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "probe/facts.h"

namespace arb::probe {

enum class Truth : std::uint8_t { no, yes, unknown };

// A condition on facts: names of facts (a bare name asks for "true"), versions, "quoted text", comparisons
// (< <= == != >= >), `in (a, b)`, `not`, `and`, `or`, parentheses, known(name), absent(name).
//
// What is absent compares as no; what is unknown makes a comparison unknown, and `and` and `or` are of three
// values.
class Condition {
 public:
  // Throws std::invalid_argument with the place of the mistake.
  explicit Condition(std::string_view text);
  ~Condition();
  Condition(Condition&&) noexcept;
  Condition& operator=(Condition&&) noexcept;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  // `missing` gets the names of the facts that made it unknown.
  Truth evaluate(const FactMap& map, std::vector<std::string>& missing) const;
  // All names that it asks for.
  [[nodiscard]] std::vector<std::string> names() const;

  struct Node;

 private:
  std::unique_ptr<Node> root_;
};

// A row. `verdict` is BLOCKED, WORKS, UNKNOWN or NOTE; `because`, `way_out` and `text` may name facts in
// braces.
struct Rule {
  std::string id;
  std::vector<std::string> approaches;
  std::string verdict;
  std::string kind;  // of BLOCKED: "toolkit gate", "a library's table", "hardware never", "configuration"
  Condition when;
  std::string because;
  std::string way_out;
  std::vector<std::string> sources;
};

struct Approach {
  std::string id;
  std::string title;
};

// What an upgrade of the toolkit asks of one link of the dependency chain; the first row of a link that holds
// speaks.
struct ChainRule {
  std::string id;
  std::string link;
  std::string action;  // "stay", "replace", "look"
  Condition when;
  std::string text;
  std::vector<std::string> breaks;  // what is known to break
  std::vector<std::string> sources;
};

struct RuleSet {
  std::vector<Approach> approaches;
  std::vector<Rule> rules;
  std::vector<std::string> links;  // of the chain, in the order of an upgrade
  std::vector<ChainRule> chain;
  std::map<std::string, std::string> driver_cuda;    // "590" -> "13.1"
  std::map<std::string, std::string> last_of_major;  // "12" -> "12.9"
  std::map<std::string, std::string> newest;  // libraries that an upgrade may bring: "flashinfer" -> "0.7.4"
};

// The rules that the program was built with.
const RuleSet& built_in_rules();

// A rule that holds for this box.
struct Finding {
  std::string rule;
  std::string kind;
  std::string because;
  std::string way_out;
  std::vector<std::string> sources;
};

struct Verdict {
  std::string approach;
  std::string title;
  std::string status;                 // "WORKS", "BLOCKED", "UNKNOWN"
  std::string kind;                   // of BLOCKED: the kind that is hardest to remove
  std::vector<Finding> findings;      // that decide
  std::vector<Finding> notes;         // that go with it
  std::vector<std::string> not_seen;  // of UNKNOWN: "the fact: why it is not known"
};

// One verdict an approach. BLOCKED when a blocking rule holds; else UNKNOWN when one might, or a rule says
// so; else WORKS when a rule says so; else UNKNOWN.
std::vector<Verdict> judge(const RuleSet& rules, const FactMap& map);

// Facts changed by assumptions such as {"toolkit": "13.1", "flashinfer": "0.7.4", "torch": "2.11.0+cu130"}.
// Throws UsageError for a name that cannot be assumed, naming those that can.
FactMap assume(const RuleSet& rules, FactMap map, const std::map<std::string, std::string>& assumptions);

// How one approach fares under an assumption.
struct Change {
  std::string approach;
  std::string title;
  std::string now;
  std::string then;
  std::string effect;   // "opens", "opens with newer libraries", "newer libraries alone open it", "stays
                        // shut", "unknown", "keeps working", "breaks"
  std::string because;  // of what stays shut or is unknown
  std::string kind;
  bool libraries_alone = false;  // newer libraries would do it without the assumption
};

struct ChainStep {
  std::string link;
  std::string rule;
  std::string now;
  std::string action;
  std::string text;
  std::vector<std::string> breaks;
  std::vector<std::string> sources;
};

struct WhatIf {
  std::map<std::string, std::string> assumptions;
  std::map<std::string, std::string> libraries;  // the newer libraries of "with newer libraries"
  std::vector<Change> changes;
  std::vector<ChainStep> chain;  // of a toolkit that is assumed
  std::string cheaper;           // a toolkit of PyTorch's own major version that opens the same; empty: none
};
WhatIf what_if(const RuleSet& rules, const FactMap& map,
               const std::map<std::string, std::string>& assumptions);

// `text` with each {name} replaced by the fact's value, or "none" or "unknown".
std::string filled(std::string_view text, const FactMap& map);

}  // namespace arb::probe
