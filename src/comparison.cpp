#include "comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "text.h"

namespace arb {
namespace {

std::string percent(double fraction) {
  return fmt::format("{:.2g}%", fraction * 100);
}

std::string group_of(const ComparedKey& key) {
  return fmt::format("{}/{}/{}", key.contender_name(), name_of(key.dtype), name_of(key.mode));
}

double geometric_mean(std::span<const double> logs) {
  double sum = 0;
  for (const double value : logs) sum += value;
  return std::exp(sum / static_cast<double>(logs.size()));
}

std::string why_of(const Judgement& judgement, const std::string& phrase, const std::string& unit) {
  switch (judgement.verdict) {
    case Verdict::faster:
    case Verdict::slower:
      return phrase;
    case Verdict::equivalent:
      return "within " + percent(judgement.margin);
    case Verdict::inconclusive:
      break;
  }
  const std::string more =
      judgement.more_blocks
          ? fmt::format(", +{} {}", *judgement.more_blocks, unit)
          : fmt::format(", more {} cannot help: {} by as much", unit,
                        judgement.placebo_bound ? "A differs from its placebo" : "earlier runs differ");
  if (judgement.tests_disagree) {
    return fmt::format("t and sign flips disagree (p {:.2g}, {:.2g}){}", judgement.p, *judgement.sign_flip,
                       more);
  }
  return fmt::format("MDE {}{}", percent(judgement.mde), more);
}

// The logarithms of a role's times in a cell, or nothing where a launch has none.
std::vector<double> logs_of(std::span<const Block> blocks, Role role, std::size_t cell) {
  std::vector<double> logs;
  for (const Block& block : blocks) {
    const LaunchRecord* launch = block.find(role);
    if (launch == nullptr || !launch->times_us[cell]) return {};
    logs.push_back(std::log(*launch->times_us[cell]));
  }
  return logs;
}

// With a failed gate an estimate stays and its verdict does not.
void withhold(ComparedCell& cell) {
  cell.judgement.verdict = Verdict::inconclusive;
  cell.why = "no verdict: a gate failed";
}

std::vector<double> minus(std::vector<double> b, const std::vector<double>& a) {
  for (std::size_t i = 0; i < b.size(); ++i) b[i] -= a[i];
  return b;
}

}  // namespace

std::size_t Comparison::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      cells, [&](const ComparedCell& cell) { return cell.judgement.verdict == verdict; }));
}

Comparison compare_blocks(const ComparisonPlan& plan, std::span<const Block> blocks, const Rules& rules,
                          std::span<const CellFacts> facts, const ArmsDiffer& differ) {
  Comparison comparison;
  comparison.arm_a = plan.arm_a;
  comparison.arm_b = plan.arm_b;
  comparison.label_a =
      arm_from(plan.arm_a.empty() ? std::vector<std::string>{} : std::vector{plan.arm_a}).label();
  comparison.label_b =
      arm_from(plan.arm_b.empty() ? std::vector<std::string>{} : std::vector{plan.arm_b}).label();
  comparison.rules = rules;
  comparison.blocks = blocks.size();

  std::vector<PairedSeries> series;
  std::vector<std::size_t> places;
  std::vector<std::string> never;
  for (std::size_t i = 0; i < plan.cells.size(); ++i) {
    const ComparedKey& key = plan.cells[i];
    const std::vector<double> a = logs_of(blocks, Role::a, i);
    const std::vector<double> b = logs_of(blocks, Role::b, i);
    const std::vector<double> placebo = logs_of(blocks, Role::placebo, i);
    if (a.empty() || b.empty() || placebo.empty()) {
      never.push_back(key.name());
      continue;
    }
    series.push_back({.group = group_of(key),
                      .bytes = key.bytes,
                      .log_ratios = minus(b, a),
                      .placebo = minus(placebo, a)});
    places.push_back(i);
    comparison.cells.push_back({.key = key,
                                .a_us = geometric_mean(a),
                                .b_us = geometric_mean(b),
                                .judgement = {},
                                .placebo = {},
                                .why = {}});
  }
  if (!never.empty()) {
    comparison.incomplete = true;
    comparison.remarks.push_back(fmt::format(
        "{} cells have no time in some launch and are left out, {} first", never.size(), never.front()));
  }
  if (series.empty()) {
    comparison.failed = "no cell has a time in every launch, so there is nothing to compare";
    return comparison;
  }

  const std::vector<Judgement> judgements = judge(series, rules);
  const std::vector<Judgement> placebo = judge_placebo(series, rules);
  comparison.gates = check_gates(plan, blocks, placebo);
  comparison.failed = failed_gates(comparison.gates);
  std::vector<std::optional<Judgement>> by_cell(plan.cells.size());
  for (std::size_t i = 0; i < judgements.size(); ++i) {
    comparison.cells[i].judgement = judgements[i];
    comparison.cells[i].placebo = placebo[i];
    by_cell[places[i]] = judgements[i];
  }
  Attribution attribution;
  if (plan.attribute && comparison.failed.empty()) {
    attribution = attribute(plan, blocks, facts, by_cell, differ, rules);
    comparison.remarks.push_back(attribution.controls);
  }
  for (std::size_t i = 0; i < comparison.cells.size(); ++i) {
    ComparedCell& cell = comparison.cells[i];
    if (!comparison.failed.empty()) {
      withhold(cell);
      continue;
    }
    std::string phrase = facts[places[i]].phrase;
    if (plan.attribute) {
      const std::string& cause = attribution.causes[places[i]];
      phrase = attribution.controls_held ? fmt::format("{}: {}", cause, phrase)
                                         : "cause withheld: a negative control moved";
    }
    cell.why = why_of(cell.judgement, phrase, "blocks");
  }
  return comparison;
}

Comparison compare_runs(std::span<const UnpairedCell> cells, std::vector<Gate> gates, const Rules& rules) {
  Comparison comparison;
  comparison.paired = false;
  comparison.rules = rules;
  comparison.gates = std::move(gates);
  comparison.failed = failed_gates(comparison.gates);
  std::vector<UnpairedSeries> series;
  const auto logs = [](const std::vector<double>& times_us) {
    std::vector<double> result;
    for (const double time : times_us) result.push_back(std::log(time));
    return result;
  };
  for (const UnpairedCell& cell : cells) {
    series.push_back({.group = group_of(cell.key),
                      .bytes = cell.key.bytes,
                      .log_a = logs(cell.a_us),
                      .log_b = logs(cell.b_us),
                      .history = logs(cell.history_us)});
  }
  const std::vector<Judgement> judgements = judge(series, rules);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    comparison.cells.push_back({.key = cells[i].key,
                                .a_us = geometric_mean(series[i].log_a),
                                .b_us = geometric_mean(series[i].log_b),
                                .judgement = judgements[i],
                                .placebo = {},
                                .why = why_of(judgements[i], cells[i].facts.phrase, "launches")});
    comparison.blocks = i == 0 ? judgements[i].blocks : std::min(comparison.blocks, judgements[i].blocks);
    if (!comparison.failed.empty()) withhold(comparison.cells.back());
  }
  return comparison;
}

ExitCode exit_code_of(const Comparison& comparison, bool strict) {
  if (!comparison.failed.empty()) return ExitCode::invalid_environment;
  if (strict && !unchecked_gates(comparison.gates).empty()) return ExitCode::invalid_environment;
  if (comparison.count(Verdict::slower) > 0) return ExitCode::regression;
  if (comparison.incomplete) return ExitCode::invalid_environment;
  if (strict && comparison.count(Verdict::inconclusive) > 0) return ExitCode::inconclusive;
  return ExitCode::good;
}

}  // namespace arb
