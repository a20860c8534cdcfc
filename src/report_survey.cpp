#include "report_survey.h"

#include <fmt/format.h>

#include <functional>

#include "stats.h"
#include "text.h"

namespace arb {
namespace {

constexpr int column_width = 8;

std::string cell_text(std::optional<double> value, int decimals) {
  if (!value) return fmt::format(" {:>{}}", "-", column_width);
  return fmt::format(" {:>{}.{}f}", *value, column_width, decimals);
}

// A figure a directed pair: a row a rank that sends.
std::string matrix(std::uint32_t ranks, int decimals,
                   const std::function<std::optional<double>(std::uint32_t from, std::uint32_t to)>& value) {
  std::string text = fmt::format("  {:>4}", "");
  for (std::uint32_t to = 0; to < ranks; ++to) text += fmt::format(" {:>{}}", to, column_width);
  text += '\n';
  for (std::uint32_t from = 0; from < ranks; ++from) {
    text += fmt::format("  {:>4}", from);
    for (std::uint32_t to = 0; to < ranks; ++to)
      text += cell_text(from == to ? std::nullopt : value(from, to), decimals);
    text += '\n';
  }
  return text;
}

std::string nodes_text(const Survey& survey) {
  std::string text =
      fmt::format("empty graph node (us)    {:>12} {:>8} {:>12}\n", "in 20 nodes", "alone", "graph start");
  for (const GraphEdge edge : {GraphEdge::plain, GraphEdge::programmatic}) {
    const auto cost = node_cost(survey, edge);
    const auto shown = [&](double NodeCost::*part) {
      return cost ? fmt::format("{:.3f}", (*cost).*part) : std::string("-");
    };
    text += fmt::format("  {:<22} {:>12} {:>8} {:>12}\n", fmt::format("{} edge", name_of(edge)),
                        shown(&NodeCost::us_k20), shown(&NodeCost::us), shown(&NodeCost::start_us));
  }
  return text;
}

std::string local_copies_text(const Survey& survey) {
  std::string sizes = "node that copies a tensor locally ";
  std::string times = fmt::format("{:<34}", "  us");
  for (const std::uint64_t bytes : survey_copy_bytes) {
    sizes += fmt::format(" {:>{}}", size_name(bytes), column_width);
    times += cell_text(survey.value(local_copy_test(bytes)), 2);
  }
  return sizes + '\n' + times + '\n';
}

std::string by_blocks_text(const Survey& survey) {
  std::string text = fmt::format("GB/s that a rank sends   {:>8} {:>12} {:>12} {:>8} {:>10}\n", "blocks",
                                 "pair median", "pair slowest", "next", "all pairs");
  const auto line = [&](Engine engine, std::uint32_t blocks) {
    const std::vector<double> pairs = survey.pairs_gbps(engine, blocks);
    const auto shown = [](std::optional<double> value) {
      return value ? fmt::format("{:.1f}", *value) : std::string("-");
    };
    text += fmt::format("  {:<22} {:>8} {:>12} {:>12} {:>8} {:>10}\n", name_of(engine),
                        blocks == 0 ? "-" : std::to_string(blocks),
                        shown(pairs.empty() ? std::nullopt : std::optional(quantile_of_sorted(pairs, 0.5))),
                        shown(pairs.empty() ? std::nullopt : std::optional(pairs.front())),
                        shown(survey.value(move_test(engine, Traffic::next, blocks))),
                        shown(survey.value(move_test(engine, Traffic::all_pairs, blocks))));
  };
  for (const Engine engine : {Engine::sm_store, Engine::sm_load}) {
    for (const std::uint32_t blocks : survey_blocks) line(engine, blocks);
  }
  line(Engine::copy_engine, 0);
  return text;
}

}  // namespace

std::string survey_text(const Survey& survey) {
  std::string text = nodes_text(survey) + local_copies_text(survey);
  const auto barrier_us = survey.value(barrier_test());
  text += fmt::format("barrier of all ranks by flags: {}\n",
                      barrier_us ? fmt::format("{:.2f} us", *barrier_us) : std::string("-"));
  text += "flag, half a round trip (us): a row the rank that starts, a column the rank that answers\n";
  text += matrix(survey.ranks, 2,
                 [&](std::uint32_t from, std::uint32_t to) { return survey.value(flag_test(from, to)); });
  for (const Engine engine : {Engine::sm_store, Engine::sm_load, Engine::copy_engine}) {
    const std::uint32_t blocks = survey.best_blocks(engine);
    text += fmt::format(
        "{}{}, one pair alone (GB/s): a row the rank that has the bytes, a column the rank that gets them\n",
        name_of(engine), blocks == 0 ? "" : fmt::format(" with {} blocks", blocks));
    text += matrix(survey.ranks, 1, [&](std::uint32_t from, std::uint32_t to) {
      return survey.value(move_test(engine, Traffic::pair, blocks, from, to));
    });
  }
  text += by_blocks_text(survey);
  for (const Warning& warning : warnings_of(survey)) text += fmt::format("! {}\n", warning.sentence);
  return text;
}

}  // namespace arb
