#include <functional>
#include <nlohmann/json.hpp>

#include "report_survey.h"

namespace arb {
namespace {

using Json = nlohmann::ordered_json;

Json matrix(std::uint32_t ranks,
            const std::function<std::optional<double>(std::uint32_t from, std::uint32_t to)>& value) {
  Json rows = Json::array();
  for (std::uint32_t from = 0; from < ranks; ++from) {
    Json row = Json::array();
    for (std::uint32_t to = 0; to < ranks; ++to) {
      const auto figure = from == to ? std::nullopt : value(from, to);
      row.push_back(figure ? Json(*figure) : Json(nullptr));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void put(Json& object, const char* key, std::optional<double> value) {
  if (value) object[key] = *value;
}

Json bandwidth_of(const Survey& survey, Engine engine, std::uint32_t blocks) {
  Json object = {{"engine", name_of(engine)}};
  if (blocks != 0) object["blocks"] = blocks;
  object["pairs_gbps"] = matrix(survey.ranks, [&](std::uint32_t from, std::uint32_t to) {
    return survey.value(move_test(engine, Traffic::pair, blocks, from, to));
  });
  put(object, "next_gbps", survey.value(move_test(engine, Traffic::next, blocks)));
  put(object, "all_pairs_gbps", survey.value(move_test(engine, Traffic::all_pairs, blocks)));
  return object;
}

}  // namespace

std::string survey_json(const Survey& survey, std::size_t tests_left_out) {
  Json document = {
      {"schema", "arbench limits"}, {"version", 1}, {"evidence", "measured"}, {"ranks", survey.ranks}};
  if (!survey.numa_nodes.empty()) document["numa_nodes"] = survey.numa_nodes;
  document["nodes"] = Json::array();
  for (const GraphEdge edge : {GraphEdge::plain, GraphEdge::programmatic}) {
    const auto cost = node_cost(survey, edge);
    if (!cost) continue;
    document["nodes"].push_back({{"edge", name_of(edge)},
                                 {"node_us_k20", cost->us_k20},
                                 {"node_us", cost->us},
                                 {"graph_start_us", cost->start_us}});
  }
  document["local_copies"] = Json::array();
  for (const std::uint64_t bytes : survey_copy_bytes) {
    if (const auto us = survey.value(local_copy_test(bytes)))
      document["local_copies"].push_back({{"bytes", bytes}, {"us", *us}});
  }
  put(document, "barrier_us", survey.value(barrier_test()));
  document["flags_us"] = matrix(
      survey.ranks, [&](std::uint32_t from, std::uint32_t to) { return survey.value(flag_test(from, to)); });
  document["bandwidth"] = Json::array();
  for (const Engine engine : {Engine::sm_store, Engine::sm_load}) {
    for (const std::uint32_t blocks : survey_blocks)
      document["bandwidth"].push_back(bandwidth_of(survey, engine, blocks));
  }
  document["bandwidth"].push_back(bandwidth_of(survey, Engine::copy_engine, 0));
  document["warnings"] = Json::array();
  for (const Warning& warning : warnings_of(survey))
    document["warnings"].push_back({{"illness", name_of(warning.illness)}, {"sentence", warning.sentence}});
  document["tests_left_out"] = tests_left_out;
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace arb
