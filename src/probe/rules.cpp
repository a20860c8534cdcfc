#include "probe/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>
#include <utility>

#include "errors.h"
#include "probe/version.h"

namespace arb::probe {

struct Condition::Node {
  enum class Kind : std::uint8_t { all, any, negation, compare, is_true, is_known, is_absent, among };
  Kind kind = Kind::is_true;
  std::string name;
  std::string op;
  std::vector<std::string> values;
  std::vector<std::unique_ptr<Node>> parts;
};

namespace {

using Node = Condition::Node;

bool is_name_start(char letter) {
  return std::isalpha(static_cast<unsigned char>(letter)) != 0;
}
bool is_name_part(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '.';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::unique_ptr<Node> whole() {
    auto node = either();
    skip();
    if (at_ != text_.size()) fail("more than a condition");
    return node;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw std::invalid_argument(fmt::format("{} at '{}' of the condition '{}'", what,
                                            text_.substr(std::min(at_, text_.size())), text_));
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view word) {
    skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    const std::size_t end = at_ + word.size();
    if (is_name_start(word.front()) && end < text_.size() && is_name_part(text_[end])) return false;
    at_ = end;
    return true;
  }
  std::string name() {
    skip();
    if (at_ >= text_.size() || !is_name_start(text_[at_])) fail("no name");
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
    std::string found(text_.substr(begin, at_ - begin));
    if (found == "and" || found == "or" || found == "in") fail("no name");
    return found;
  }
  std::string value() {
    skip();
    if (at_ < text_.size() && text_[at_] == '"') {
      const std::size_t end = text_.find('"', at_ + 1);
      if (end == std::string_view::npos) fail("an unfinished quotation");
      std::string quoted(text_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      return quoted;
    }
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
    if (begin == at_) fail("no value");
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::unique_ptr<Node> either() {
    auto first = both();
    if (!take("or")) return first;
    auto node = std::make_unique<Node>();
    node->kind = Node::Kind::any;
    node->parts.push_back(std::move(first));
    do {
      node->parts.push_back(both());
    } while (take("or"));
    return node;
  }
  std::unique_ptr<Node> both() {
    auto first = one();
    if (!take("and")) return first;
    auto node = std::make_unique<Node>();
    node->kind = Node::Kind::all;
    node->parts.push_back(std::move(first));
    do {
      node->parts.push_back(one());
    } while (take("and"));
    return node;
  }
  std::unique_ptr<Node> one() {
    if (++depth_ > 64) fail("too many parentheses");
    auto node = std::make_unique<Node>();
    if (take("not")) {
      node->kind = Node::Kind::negation;
      node->parts.push_back(one());
    } else if (take("(")) {
      node = either();
      if (!take(")")) fail("no closing parenthesis");
    } else if (take("known") || take("absent")) {
      node->kind = text_[at_ - 1] == 'n' ? Node::Kind::is_known : Node::Kind::is_absent;
      if (!take("(")) fail("no parenthesis");
      node->name = name();
      if (!take(")")) fail("no closing parenthesis");
    } else {
      node->name = name();
      for (const std::string_view op : {"<=", ">=", "==", "!=", "<", ">"}) {
        if (!take(op)) continue;
        node->kind = Node::Kind::compare;
        node->op = op;
        node->values.push_back(value());
        break;
      }
      if (node->op.empty() && take("in")) {
        node->kind = Node::Kind::among;
        if (!take("(")) fail("no parenthesis");
        do {
          node->values.push_back(value());
        } while (take(","));
        if (!take(")")) fail("no closing parenthesis");
      }
    }
    --depth_;
    return node;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

bool compares(const std::string& left, std::string_view op, const std::string& right) {
  const auto a = Version::parse(left);
  const auto b = Version::parse(right);
  if (!a || !b) {
    if (op == "==") return left == right;
    if (op == "!=") return left != right;
    return false;
  }
  const auto order = *a <=> *b;
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  if (op == ">=") return order >= 0;
  if (op == "==") return order == 0;
  return order != 0;
}

Truth truth_of(bool value) {
  return value ? Truth::yes : Truth::no;
}

Truth evaluate_node(const Node& node, const FactMap& map, std::vector<std::string>& missing) {
  switch (node.kind) {
    case Node::Kind::all:
    case Node::Kind::any: {
      const bool all = node.kind == Node::Kind::all;
      Truth result = all ? Truth::yes : Truth::no;
      const Truth decisive = all ? Truth::no : Truth::yes;
      std::vector<std::string> lacking;
      for (const auto& part : node.parts) {
        const Truth one = evaluate_node(*part, map, lacking);
        if (one == decisive) return decisive;
        if (one == Truth::unknown) result = Truth::unknown;
      }
      missing.insert(missing.end(), lacking.begin(), lacking.end());
      return result;
    }
    case Node::Kind::negation: {
      const Truth one = evaluate_node(*node.parts.front(), map, missing);
      return one == Truth::unknown ? one : truth_of(one == Truth::no);
    }
    default:
      break;
  }
  const auto found = map.find(node.name);
  const Fact::State state = found == map.end() ? Fact::State::unknown : found->second.state;
  if (node.kind == Node::Kind::is_known) return truth_of(state == Fact::State::known);
  if (state == Fact::State::unknown) {
    missing.push_back(node.name);
    return Truth::unknown;
  }
  if (node.kind == Node::Kind::is_absent) return truth_of(state == Fact::State::absent);
  if (state == Fact::State::absent) return Truth::no;
  const std::string& value = found->second.value;
  if (node.kind == Node::Kind::is_true) return truth_of(value == "true");
  if (node.kind == Node::Kind::among)
    return truth_of(std::ranges::find(node.values, value) != node.values.end());
  return truth_of(compares(value, node.op, node.values.front()));
}

void collect_names(const Node& node, std::vector<std::string>& names) {
  if (!node.name.empty()) names.push_back(node.name);
  for (const auto& part : node.parts) collect_names(*part, names);
}

constexpr std::array kinds_by_hardness{"configuration", "toolkit gate", "a library's table",
                                       "hardware never"};

std::size_t hardness(const std::string& kind) {
  return static_cast<std::size_t>(std::ranges::find(kinds_by_hardness, kind) - kinds_by_hardness.begin());
}

Finding finding_of(const Rule& rule, const FactMap& map) {
  return {rule.id, rule.kind, filled(rule.because, map), filled(rule.way_out, map), rule.sources};
}

std::string why_missing(const std::string& name, const FactMap& map) {
  const auto found = map.find(name);
  return fmt::format(
      "{}: {}", name,
      found == map.end() || found->second.why.empty() ? "it was not looked for" : found->second.why);
}

Verdict judge_one(const RuleSet& rules, const Approach& approach, const FactMap& map) {
  Verdict verdict{.approach = approach.id,
                  .title = approach.title,
                  .status = "UNKNOWN",
                  .kind = {},
                  .findings = {},
                  .notes = {},
                  .not_seen = {}};
  std::vector<Finding> blocked;
  std::vector<Finding> unknown;
  std::vector<Finding> works;
  std::vector<std::string> missing;
  for (const Rule& rule : rules.rules) {
    if (std::ranges::find(rule.approaches, approach.id) == rule.approaches.end()) continue;
    std::vector<std::string> lacking;
    const Truth truth = rule.when.evaluate(map, lacking);
    if (truth == Truth::unknown && rule.verdict != "NOTE")
      missing.insert(missing.end(), lacking.begin(), lacking.end());
    if (truth != Truth::yes) continue;
    if (rule.verdict == "BLOCKED") blocked.push_back(finding_of(rule, map));
    if (rule.verdict == "UNKNOWN") unknown.push_back(finding_of(rule, map));
    if (rule.verdict == "WORKS") works.push_back(finding_of(rule, map));
    if (rule.verdict == "NOTE") verdict.notes.push_back(finding_of(rule, map));
  }
  if (!blocked.empty()) {
    verdict.status = "BLOCKED";
    std::ranges::stable_sort(
        blocked, [](const Finding& a, const Finding& b) { return hardness(a.kind) > hardness(b.kind); });
    verdict.kind = blocked.front().kind;
    verdict.findings = std::move(blocked);
  } else if (!unknown.empty()) {
    verdict.findings = std::move(unknown);
  } else if (missing.empty() && !works.empty()) {
    verdict.status = "WORKS";
    verdict.findings = {std::move(works.front())};
  } else {
    std::ranges::sort(missing);
    const auto repeated = std::ranges::unique(missing);
    missing.erase(repeated.begin(), repeated.end());
    for (const std::string& name : missing) verdict.not_seen.push_back(why_missing(name, map));
    if (verdict.not_seen.empty()) verdict.not_seen.emplace_back("no rule speaks of a box like this one");
  }
  return verdict;
}

std::string now_of(const std::string& link, const FactMap& map) {
  const std::string name = link == "driver"    ? "driver.version"
                           : link == "toolkit" ? "toolkit.jit"
                                               : link + ".version";
  std::string fact = name;
  std::ranges::replace(fact, '-', '_');
  return filled("{" + fact + "}", map);
}

// The last toolkit of the major version that PyTorch was built for, where it is newer than the one in use,
// older than the assumed one, and does for every approach what the assumed one does.
std::string cheaper_toolkit(const RuleSet& rules, const FactMap& map,
                            std::map<std::string, std::string> assumptions,
                            const std::vector<Verdict>& then) {
  const auto fact = [&](const char* name) {
    const auto found = map.find(name);
    return found == map.end() || found->second.state != Fact::State::known
               ? std::nullopt
               : Version::parse(found->second.value);
  };
  const auto torch = fact("torch.cuda");
  if (!torch) return {};
  const auto last = rules.last_of_major.find(std::to_string(torch->part(0)));
  if (last == rules.last_of_major.end()) return {};
  const Version version = Version::parse(last->second).value_or(Version{});
  if (version >= Version::parse(assumptions["toolkit"]).value_or(Version{})) return {};
  if (const auto used = fact("toolkit.jit"); used && *used >= version) return {};
  assumptions["toolkit"] = last->second;
  const auto cheaper = judge(rules, assume(rules, map, assumptions));
  const auto now = judge(rules, map);
  bool opens = false;
  for (std::size_t i = 0; i < then.size(); ++i) {
    if (cheaper[i].status != then[i].status) return {};
    opens = opens || (then[i].status == "WORKS" && now[i].status != "WORKS");
  }
  return opens ? last->second : std::string();
}

// The rule that explains a verdict best.
std::pair<std::string, std::string> reason_of(const Verdict& verdict) {
  if (!verdict.findings.empty()) return {verdict.findings.front().because, verdict.findings.front().kind};
  return {verdict.not_seen.empty() ? "" : "not seen: " + verdict.not_seen.front(), ""};
}

}  // namespace

Condition::Condition(std::string_view text) : root_(Parser(text).whole()) {}
Condition::~Condition() = default;
Condition::Condition(Condition&&) noexcept = default;
Condition& Condition::operator=(Condition&&) noexcept = default;

Truth Condition::evaluate(const FactMap& map, std::vector<std::string>& missing) const {
  return evaluate_node(*root_, map, missing);
}

std::vector<std::string> Condition::names() const {
  std::vector<std::string> names;
  collect_names(*root_, names);
  return names;
}

std::string filled(std::string_view text, const FactMap& map) {
  std::string out;
  while (true) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) return out.append(text);
    out.append(text.substr(0, open));
    const auto found = map.find(std::string(text.substr(open + 1, close - open - 1)));
    if (found == map.end() || found->second.state == Fact::State::unknown) {
      out += "unknown";
    } else {
      out += found->second.state == Fact::State::absent ? "none" : found->second.value;
    }
    text.remove_prefix(close + 1);
  }
}

std::vector<Verdict> judge(const RuleSet& rules, const FactMap& map) {
  std::vector<Verdict> verdicts;
  for (const Approach& approach : rules.approaches) verdicts.push_back(judge_one(rules, approach, map));
  return verdicts;
}

FactMap assume(const RuleSet& rules, FactMap map, const std::map<std::string, std::string>& assumptions) {
  for (const auto& [what, version] : assumptions) {
    const auto parsed = Version::parse(version);
    if (!parsed)
      throw UsageError(fmt::format("--what-if {}={}: '{}' is no version; write one such as toolkit=13.1",
                                   what, version, version));
    std::string name = what;
    std::ranges::replace(name, '-', '_');
    set_known(map, "want." + name, version);
    if (what == "toolkit") {
      set_known(map, "toolkit.jit", version);
      const Fact& newest = map["toolkit.newest"];
      if (newest.state != Fact::State::known || *parsed > Version::parse(newest.value).value_or(Version{}))
        set_known(map, "toolkit.newest", version);
    } else if (what == "driver") {
      set_known(map, "driver.version", version);
      const auto cuda = rules.driver_cuda.find(std::to_string(parsed->part(0)));
      if (cuda == rules.driver_cuda.end()) {
        set_unknown(map, "driver.cuda", "this driver's CUDA is not in the table");
      } else {
        set_known(map, "driver.cuda", cuda->second);
      }
    } else if (name == "torch" || name == "flashinfer" || name == "vllm" || name == "sglang" ||
               name == "sgl_kernel" || name == "nccl" || name == "cudnn" || name == "triton") {
      set_known(map, name + ".version", version);
      if (const auto cuda = cuda_of_tag(parsed->local)) set_known(map, name + ".cuda", *cuda);
    } else {
      throw UsageError(
          fmt::format("--what-if {}: nothing of that name can be assumed; driver, toolkit, torch, cudnn, "
                      "nccl, flashinfer, sgl-kernel, "
                      "vllm, sglang and triton can",
                      what));
    }
  }
  return map;
}

WhatIf what_if(const RuleSet& rules, const FactMap& map,
               const std::map<std::string, std::string>& assumptions) {
  WhatIf result{.assumptions = assumptions, .libraries = {}, .changes = {}, .chain = {}, .cheaper = {}};
  for (const auto& [library, version] : rules.newest) {
    // Only what is there can be made newer, and only what was not assumed already.
    const auto present = map.find(library + ".version");
    if (assumptions.contains(library) || present == map.end() || present->second.state != Fact::State::known)
      continue;
    if (Version::parse(present->second.value).value_or(Version{}) < *Version::parse(version))
      result.libraries.emplace(library, version);
  }
  std::map<std::string, std::string> both = assumptions;
  both.insert(result.libraries.begin(), result.libraries.end());
  const FactMap assumed = assume(rules, map, assumptions);
  const auto now = judge(rules, map);
  const auto then = judge(rules, assumed);
  const auto libraries = judge(rules, assume(rules, map, result.libraries));
  const auto together = judge(rules, assume(rules, map, both));
  for (std::size_t i = 0; i < now.size(); ++i) {
    Change change{.approach = now[i].approach,
                  .title = now[i].title,
                  .now = now[i].status,
                  .then = then[i].status,
                  .effect = {},
                  .because = {},
                  .kind = {},
                  .libraries_alone = false};
    const bool worked = now[i].status == "WORKS";
    change.libraries_alone = !worked && libraries[i].status == "WORKS";
    if (worked) {
      change.effect = then[i].status == "WORKS" ? "keeps working" : "breaks";
    } else if (then[i].status == "WORKS") {
      change.effect = "opens";
    } else if (change.libraries_alone) {
      change.effect = "newer libraries alone open it";
    } else if (together[i].status == "WORKS") {
      change.effect = "opens with newer libraries";
    } else {
      change.effect = then[i].status == "BLOCKED" ? "stays shut" : "unknown";
    }
    if (change.effect != "keeps working")
      std::tie(change.because, change.kind) = reason_of(change.effect == "opens" ? now[i] : then[i]);
    result.changes.push_back(std::move(change));
  }
  if (!assumptions.contains("toolkit")) return result;
  result.cheaper = cheaper_toolkit(rules, map, assumptions, then);
  FactMap wanted = map;
  for (const auto& [what, version] : assumptions) {
    std::string name = "want." + what;
    std::ranges::replace(name, '-', '_');
    set_known(wanted, name, version);
  }
  for (const std::string& link : rules.links) {
    for (const ChainRule& rule : rules.chain) {
      if (rule.link != link) continue;
      std::vector<std::string> lacking;
      if (rule.when.evaluate(wanted, lacking) != Truth::yes) continue;
      ChainStep step{.link = link,
                     .rule = rule.id,
                     .now = now_of(link, map),
                     .action = rule.action,
                     .text = filled(rule.text, wanted),
                     .breaks = {},
                     .sources = rule.sources};
      for (const std::string& text : rule.breaks) step.breaks.push_back(filled(text, wanted));
      result.chain.push_back(std::move(step));
      break;
    }
  }
  return result;
}

}  // namespace arb::probe
