#include "benchmark_json.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "scratch.h"

namespace arb {
namespace {

std::vector<BenchmarkRecord> records() {
  BenchmarkRecord good{.name = "alpha/13.0-nvrtc/bf16/n2/1024/out/pipelined/warm",
                       .family_index = 0,
                       .repetition_index = 0,
                       .repetitions = 2,
                       .error = {},
                       .real_time_us = 2.5,
                       .cpu_time_us = 41,
                       .counters = {{"p99_us", 3.5}, {"broken", std::numeric_limits<double>::quiet_NaN()}}};
  BenchmarkRecord again = good;
  again.repetition_index = 1;
  again.real_time_us = 2.75;
  BenchmarkRecord failed = good;
  failed.name = "beta/13.0-nvrtc/bf16/n2/1024/out/pipelined/warm";
  failed.family_index = 1;
  failed.error = "wrong data: \"rank 1\"";
  return {good, again, failed};
}

BenchmarkContext context() {
  return {.date = "2026-11-30T12:59:42+00:00",
          .executable = "arbench",
          .num_cpus = 2,
          .mhz_per_cpu = 2100,
          .cpu_scaling_enabled = false,
          .caches = {{"Data", 1, 32768, 1}},
          .load_avg = {0.5, std::numeric_limits<double>::infinity()},
          .library_version = "1.7.1",
          .library_is_debug = true,
          .extra = {{"driver", "580.82.07"}}};
}

TEST(BenchmarkJson, IsTheCurrentSchema) {
  const std::string text = benchmark_json(context(), records());
  const std::filesystem::path path = std::filesystem::path(ARB_GOLDEN_DIR) / "benchmark.json";
  if (std::getenv("ARB_UPDATE_GOLDEN") != nullptr) test::write_file(path, text);
  EXPECT_EQ(text, test::read_file(path));

  const auto json = nlohmann::json::parse(text);  // strict: NaN and Infinity would not parse
  EXPECT_EQ(json["context"]["json_schema_version"], 1);
  EXPECT_TRUE(json["context"]["caches"].is_array());
  EXPECT_FALSE(json["context"].contains("host_name"));
  EXPECT_EQ(json["benchmarks"][0]["name"], json["benchmarks"][1]["name"]) << "launches share a name";
  EXPECT_EQ(json["benchmarks"][1]["repetition_index"], 1);
  EXPECT_FALSE(json["benchmarks"][0].contains("broken"));
  EXPECT_FALSE(json["benchmarks"][2].contains("real_time")) << "no time is made up";
}

TEST(BenchmarkJson, AnEmptyRunIsAWholeDocument) {
  const auto json = nlohmann::json::parse(benchmark_json({}, {}));
  EXPECT_TRUE(json["benchmarks"].is_array());
  EXPECT_TRUE(json["context"]["caches"].is_array());
}

}  // namespace
}  // namespace arb
