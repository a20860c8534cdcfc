#include "survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "stats.h"

namespace arb {
namespace {

constexpr Engine engines[] = {Engine::sm_store, Engine::sm_load, Engine::copy_engine};

std::string words_for(Engine engine) {
  switch (engine) {
    case Engine::sm_store:
      return "SM stores";
    case Engine::sm_load:
      return "SM loads";
    case Engine::copy_engine:
      break;
  }
  return "copies by the copy engines";
}

// Calls visit(from, to) for every directed pair.
template <class Visit>
void for_each_pair(std::uint32_t ranks, Visit visit) {
  for (std::uint32_t from = 0; from < ranks; ++from) {
    for (std::uint32_t to = 0; to < ranks; ++to) {
      if (from != to) visit(from, to);
    }
  }
}

std::optional<double> median_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  return quantile_of_sorted(values, 0.5);
}

// "0->1 (12.5 GB/s), 2->3 (11.9 GB/s) and 4 more".
std::string pairs_text(const std::vector<std::string>& pairs) {
  constexpr std::size_t most = 4;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(pairs.size(), most));
  std::string text = fmt::format("{}", fmt::join(pairs.begin(), pairs.begin() + shown, ", "));
  if (pairs.size() > most) text += fmt::format(" and {} more", pairs.size() - most);
  return text;
}

void find_staged_loads(const Survey& survey, std::vector<Warning>& warnings) {
  std::vector<std::string> pairs;
  for_each_pair(survey.ranks, [&](std::uint32_t from, std::uint32_t to) {
    const auto loads = survey.best_gbps(Engine::sm_load, Traffic::pair, from, to);
    const auto stores = survey.best_gbps(Engine::sm_store, Traffic::pair, from, to);
    const auto copies = survey.best_gbps(Engine::copy_engine, Traffic::pair, from, to);
    if (!loads || (!stores && !copies)) return;
    const double others = std::max(stores.value_or(0), copies.value_or(0));
    if (others < *loads * staged_load_ratio) return;
    pairs.push_back(fmt::format("{}->{} ({:.1f} GB/s, {:.1f} otherwise)", from, to, *loads, others));
  });
  if (pairs.empty()) return;
  warnings.push_back(
      {Illness::staged_loads,
       fmt::format(
           "peer loads look staged through system memory: they are more than {:.0f} times slower than stores "
           "or copies of the same pair on {}; contenders that push avoid them, and another driver may "
           "not stage",
           staged_load_ratio, pairs_text(pairs))});
}

void find_write_collapse(const Survey& survey, std::vector<Warning>& warnings) {
  const auto all_pairs = survey.best_gbps(Engine::sm_store, Traffic::all_pairs);
  const auto next = survey.best_gbps(Engine::sm_store, Traffic::next);
  const auto pair = median_of(survey.pairs_gbps(Engine::sm_store, survey.best_blocks(Engine::sm_store)));
  if (!all_pairs || (!next && !pair)) return;
  const double alone = std::max(next.value_or(0), pair.value_or(0));
  if (alone < *all_pairs * write_collapse_ratio) return;
  const auto loads = survey.best_gbps(Engine::sm_load, Traffic::all_pairs);
  const bool next_is_best = next.value_or(0) >= pair.value_or(0);
  warnings.push_back(
      {Illness::write_collapse,
       fmt::format(
           "posted writes collapse: with all pairs at once a rank stores {:.1f} GB/s, and {:.1f} {}{}; where "
           "loads keep up, contenders that pull do not collapse, and rings have one destination a rank",
           *all_pairs, alone, next_is_best ? "to the next" : "to one peer alone",
           loads ? fmt::format(" (loads of all pairs: {:.1f})", *loads) : "")});
}

void find_slow_pairs(const Survey& survey, std::vector<Warning>& warnings) {
  const auto node_of = [&](std::uint32_t rank) {
    return rank < survey.numa_nodes.size() ? survey.numa_nodes[rank] : -1;
  };
  for (const Engine engine : engines) {
    // Pairs on one NUMA node and pairs across are two kinds; where nodes are not known all are one.
    std::map<bool, std::vector<double>> kinds;
    const auto is_across = [&](std::uint32_t from, std::uint32_t to) {
      return node_of(from) >= 0 && node_of(to) >= 0 && node_of(from) != node_of(to);
    };
    for_each_pair(survey.ranks, [&](std::uint32_t from, std::uint32_t to) {
      if (const auto gbps = survey.best_gbps(engine, Traffic::pair, from, to))
        kinds[is_across(from, to)].push_back(*gbps);
    });
    for (const auto& [across, figures] : kinds) {
      const double median = *median_of(figures);
      std::vector<std::string> pairs;
      for_each_pair(survey.ranks, [&](std::uint32_t from, std::uint32_t to) {
        const auto gbps = survey.best_gbps(engine, Traffic::pair, from, to);
        if (!gbps || is_across(from, to) != across || *gbps >= median * slow_pair_fraction) return;
        pairs.push_back(fmt::format("{}->{} ({:.1f} GB/s)", from, to, *gbps));
      });
      if (pairs.empty()) continue;
      warnings.push_back(
          {Illness::slow_pair,
           fmt::format(
               "slow pair: {} reach {:.1f} GB/s in the median of pairs {}, and far less on {}; look at the "
               "width and generation of these GPUs' links",
               words_for(engine), median, across ? "across NUMA nodes" : "alike", pairs_text(pairs))});
    }
  }
}

}  // namespace

std::vector<LimitTest> survey_plan(std::uint32_t ranks) {
  std::vector<LimitTest> plan;
  for (const GraphEdge edge : {GraphEdge::plain, GraphEdge::programmatic}) {
    plan.push_back(nodes_test(edge, few_nodes));
    plan.push_back(nodes_test(edge, many_nodes));
  }
  for (const std::uint64_t bytes : survey_copy_bytes) plan.push_back(local_copy_test(bytes));
  plan.push_back(barrier_test());
  for_each_pair(ranks, [&](std::uint32_t from, std::uint32_t to) { plan.push_back(flag_test(from, to)); });
  // All that one block count gives, the most blocks first: warnings need no other.
  for (auto blocks = std::rbegin(survey_blocks); blocks != std::rend(survey_blocks); ++blocks) {
    const bool first = blocks == std::rbegin(survey_blocks);
    for (const Traffic traffic : {Traffic::next, Traffic::all_pairs, Traffic::pair}) {
      for (const Engine engine : engines) {
        if (engine == Engine::copy_engine && !first) continue;
        if (traffic != Traffic::pair) {
          plan.push_back(move_test(engine, traffic, *blocks));
          continue;
        }
        for_each_pair(ranks, [&](std::uint32_t from, std::uint32_t to) {
          plan.push_back(move_test(engine, traffic, *blocks, from, to));
        });
      }
    }
  }
  return plan;
}

std::optional<double> Survey::value(const LimitTest& test) const {
  const auto found = std::ranges::find(figures, test, &SurveyFigure::test);
  return found == figures.end() ? std::nullopt : std::optional(found->value);
}

std::optional<double> Survey::best_gbps(Engine engine, Traffic traffic, std::uint32_t from,
                                        std::uint32_t to) const {
  std::optional<double> best;
  for (const std::uint32_t blocks : survey_blocks) {
    const auto gbps = value(move_test(engine, traffic, blocks, from, to));
    if (gbps && gbps > best) best = gbps;
  }
  return best;
}

std::vector<double> Survey::pairs_gbps(Engine engine, std::uint32_t blocks) const {
  std::vector<double> all;
  for_each_pair(ranks, [&](std::uint32_t from, std::uint32_t to) {
    if (const auto gbps = value(move_test(engine, Traffic::pair, blocks, from, to))) all.push_back(*gbps);
  });
  std::ranges::sort(all);
  return all;
}

std::uint32_t Survey::best_blocks(Engine engine) const {
  if (engine == Engine::copy_engine) return 0;
  std::uint32_t best = many_blocks;
  double most_gbps = 0;
  for (const std::uint32_t blocks : survey_blocks) {
    const std::vector<double> pairs = pairs_gbps(engine, blocks);
    // A block count that a survey cut short has for a few pairs only is not comparable.
    if (pairs.size() != std::size_t{ranks} * (ranks - 1)) continue;
    if (quantile_of_sorted(pairs, 0.5) <= most_gbps) continue;
    most_gbps = quantile_of_sorted(pairs, 0.5);
    best = blocks;
  }
  return best;
}

NodeCost node_cost(double few_us, double many_us) {
  const double us = (many_us - few_us) / (many_nodes - few_nodes);
  return {.us_k20 = few_us / few_nodes, .us = us, .start_us = few_us - few_nodes * us};
}

std::optional<NodeCost> node_cost(const Survey& survey, GraphEdge edge) {
  const auto few_us = survey.value(nodes_test(edge, few_nodes));
  const auto many_us = survey.value(nodes_test(edge, many_nodes));
  if (!few_us || !many_us) return std::nullopt;
  return node_cost(*few_us, *many_us);
}

std::vector<Warning> warnings_of(const Survey& survey) {
  std::vector<Warning> warnings;
  find_staged_loads(survey, warnings);
  find_write_collapse(survey, warnings);
  find_slow_pairs(survey, warnings);
  return warnings;
}

}  // namespace arb
