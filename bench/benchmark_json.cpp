#include "benchmark_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace arb {
namespace {

using Json = nlohmann::ordered_json;

void put_finite(Json& object, const std::string& key, double value) {
  if (std::isfinite(value)) object[key] = value;
}

}  // namespace

std::string benchmark_json(const BenchmarkContext& context, const std::vector<BenchmarkRecord>& records) {
  Json about = {{"date", context.date},
                {"executable", context.executable},
                {"num_cpus", context.num_cpus},
                {"mhz_per_cpu", context.mhz_per_cpu},
                {"cpu_scaling_enabled", context.cpu_scaling_enabled}};
  about["caches"] = Json::array();
  for (const CacheRecord& cache : context.caches) {
    about["caches"].push_back({{"type", cache.type},
                               {"level", cache.level},
                               {"size", cache.size_bytes},
                               {"num_sharing", cache.num_sharing}});
  }
  about["load_avg"] = Json::array();
  for (const double load : context.load_avg) {
    if (std::isfinite(load)) about["load_avg"].push_back(load);
  }
  about["library_version"] = context.library_version;
  about["library_build_type"] = context.library_is_debug ? "debug" : "release";
  about["json_schema_version"] = 1;
  for (const auto& [key, value] : context.extra) about[key] = value;

  Json rows = Json::array();
  for (const BenchmarkRecord& record : records) {
    Json row = {{"name", record.name},
                {"family_index", record.family_index},
                {"per_family_instance_index", 0},
                {"run_name", record.name},
                {"run_type", "iteration"},
                {"repetitions", record.repetitions},
                {"repetition_index", record.repetition_index},
                {"threads", 1}};
    if (!record.error.empty()) {
      row["error_occurred"] = true;
      row["error_message"] = record.error;
    } else {
      row["iterations"] = 1;
      put_finite(row, "real_time", record.real_time_us);
      put_finite(row, "cpu_time", record.cpu_time_us);
      row["time_unit"] = "us";
      for (const auto& [key, value] : record.counters) put_finite(row, key, value);
    }
    rows.push_back(std::move(row));
  }
  const Json document = {{"context", std::move(about)}, {"benchmarks", std::move(rows)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace arb
