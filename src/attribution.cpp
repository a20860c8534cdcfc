#include "attribution.h"

#include <fmt/format.h>

#include <cmath>

namespace arb {
namespace {

std::string change_of(std::uint64_t a, std::uint64_t b) {
  return a == b ? std::to_string(a) : fmt::format("{}->{}", a, b);
}

bool changed(const std::optional<Judgement>& judgement) {
  return judgement && (judgement->verdict == Verdict::faster || judgement->verdict == Verdict::slower);
}

bool equivalent(const std::optional<Judgement>& judgement) {
  return judgement && judgement->verdict == Verdict::equivalent;
}

// Which cells a factor changed, judged over all cells at once; cells without values did not.
std::vector<std::optional<Judgement>> judged_effects(const ComparisonPlan& plan,
                                                     std::span<const Block> blocks, Factor factor,
                                                     const Rules& rules) {
  const std::vector<std::vector<double>> effects = factor_effects(plan, blocks, factor);
  std::vector<PairedSeries> series;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < effects.size(); ++i) {
    if (effects[i].size() < 2) continue;
    places.push_back(i);
    series.push_back({.group = fmt::format("{}/{}/{}", plan.cells[i].contender_name(),
                                           name_of(plan.cells[i].dtype), name_of(plan.cells[i].mode)),
                      .bytes = plan.cells[i].bytes,
                      .log_ratios = effects[i],
                      .placebo = {}});
  }
  std::vector<std::optional<Judgement>> result(plan.cells.size());
  const std::vector<Judgement> judged = judge(series, rules);
  for (std::size_t i = 0; i < judged.size(); ++i) result[places[i]] = judged[i];
  return result;
}

}  // namespace

std::string compiled_difference(const BundleFunction& a, const BundleFunction& b) {
  if (a.sass_sha256 == b.sass_sha256) return "same SASS";
  std::string text = "SASS differs";
  if (a.registers != b.registers) text += ", regs " + change_of(a.registers, b.registers);
  const std::uint64_t spilled_a = a.spill_store_bytes + a.spill_load_bytes;
  const std::uint64_t spilled_b = b.spill_store_bytes + b.spill_load_bytes;
  if (spilled_b != 0 && spilled_a == 0) {
    text += fmt::format(", {} B spilled", spilled_b);
  } else if (spilled_a != spilled_b) {
    text += fmt::format(", {} B spilled", change_of(spilled_a, spilled_b));
  }
  if (a.registers == b.registers && spilled_a == spilled_b) {
    text += a.instructions == b.instructions
                ? fmt::format(", regs {}, {} instructions both", a.registers, a.instructions)
                : fmt::format(", instructions {}", change_of(a.instructions, b.instructions));
  }
  return text;
}

std::string nccl_difference(const std::string& version_a, const std::string& version_b, bool same_file,
                            const std::string& ran_a, const std::string& ran_b) {
  std::string text = same_file                ? "same NCCL"
                     : version_a == version_b ? fmt::format("two files of NCCL {}", version_a)
                                              : fmt::format("NCCL {} -> {}", version_a, version_b);
  if (ran_a != ran_b) text += fmt::format(": {} -> {}", ran_a, ran_b);
  return text;
}

std::vector<std::vector<double>> factor_effects(const ComparisonPlan& plan, std::span<const Block> blocks,
                                                Factor factor) {
  std::vector<std::vector<double>> effects(plan.cells.size());
  for (std::size_t cell = 0; cell < plan.cells.size(); ++cell) {
    for (const Block& block : blocks) {
      const auto log_time = [&](Role role) -> std::optional<double> {
        const LaunchRecord* launch = block.find(role);
        if (launch == nullptr || !launch->times_us[cell]) return std::nullopt;
        return std::log(*launch->times_us[cell]);
      };
      const auto a = log_time(Role::a);
      const auto b = log_time(Role::b);
      if (!a || !b) break;
      const bool crossed = block.find(Role::compiler_of_b) != nullptr;
      if (!crossed) {
        effects[cell].push_back(*b - *a);
        continue;
      }
      const auto compiler_b = log_time(Role::compiler_of_b);
      const auto nccl_b = log_time(Role::nccl_of_b);
      if (!compiler_b || !nccl_b) break;
      // Both ways round the square.
      effects[cell].push_back(factor == Factor::compiler ? ((*compiler_b - *a) + (*b - *nccl_b)) / 2
                                                         : ((*nccl_b - *a) + (*b - *compiler_b)) / 2);
    }
    if (effects[cell].size() != blocks.size()) effects[cell].clear();
  }
  return effects;
}

Attribution attribute(const ComparisonPlan& plan, std::span<const Block> blocks,
                      std::span<const CellFacts> facts, std::span<const std::optional<Judgement>> judgements,
                      const ArmsDiffer& differ, const Rules& rules) {
  Attribution result;
  result.causes.resize(plan.cells.size());
  std::vector<std::optional<Judgement>> by_compiler(plan.cells.size());
  std::vector<std::optional<Judgement>> by_nccl(plan.cells.size());
  if (differ.compiler) by_compiler = judged_effects(plan, blocks, Factor::compiler, rules);
  if (differ.nccl) by_nccl = judged_effects(plan, blocks, Factor::nccl, rules);

  // What can not have been moved by a factor, and was.
  std::size_t controls = 0;
  std::vector<std::string> moved;
  for (std::size_t cell = 0; cell < plan.cells.size(); ++cell) {
    const CellFacts& fact = facts[cell];
    if (differ.compiler && (fact.is_nccl || fact.same_code) && by_compiler[cell]) {
      ++controls;
      if (changed(by_compiler[cell])) {
        moved.push_back(fmt::format("{} reacts to the compiler{}", plan.cells[cell].name(),
                                    fact.is_nccl ? "" : " with the same SASS"));
      }
    }
    if (differ.nccl && (!fact.is_nccl || fact.same_code) && by_nccl[cell]) {
      ++controls;
      if (changed(by_nccl[cell])) {
        moved.push_back(fmt::format("{} reacts to NCCL", plan.cells[cell].name()));
      }
    }
  }
  result.controls_held = moved.empty();
  if (controls == 0) {
    result.controls = "no row could serve as a negative control, so causes rest on the arms alone";
  } else if (moved.empty()) {
    result.controls = fmt::format("all {} negative controls held", controls);
  } else {
    result.controls = fmt::format("{} of {} negative controls moved ({}), so no cause is named", moved.size(),
                                  controls, moved.front());
  }

  for (std::size_t cell = 0; cell < plan.cells.size(); ++cell) {
    if (!changed(judgements[cell])) continue;
    const CellFacts& fact = facts[cell];
    if (differ.other) {
      result.causes[cell] = "what else differs between the arms";
      continue;
    }
    const bool compiler = !fact.is_nccl && !fact.same_code && changed(by_compiler[cell]);
    const bool nccl = fact.is_nccl && !fact.same_code && changed(by_nccl[cell]);
    // That nothing was found is no proof of nothing: each factor has to be EQUIVALENT by its own test.
    const bool no_compiler = !differ.compiler || equivalent(by_compiler[cell]);
    const bool no_nccl = !differ.nccl || equivalent(by_nccl[cell]);
    result.causes[cell] = compiler                 ? "compiler"
                          : nccl                   ? "NCCL"
                          : no_compiler && no_nccl ? "neither compiler nor NCCL alone"
                                                   : "undecided between compiler and NCCL";
  }
  return result;
}

}  // namespace arb
