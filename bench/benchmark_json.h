// Google Benchmark's JSON schema (version 1), written by us: strict, finite, without the host's name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace arb {

struct CacheRecord {
  std::string type;  // "Data"
  int level = 0;
  int size_bytes = 0;
  int num_sharing = 0;
};

// The machine as Google Benchmark sees it, and pairs of ours.
struct BenchmarkContext {
  std::string date;  // "2026-11-30T12:59:42+00:00"
  std::string executable;
  int num_cpus = 0;
  int mhz_per_cpu = 0;
  bool cpu_scaling_enabled = false;
  std::vector<CacheRecord> caches;
  std::vector<double> load_avg;
  std::string library_version;
  bool library_is_debug = false;
  std::map<std::string, std::string> extra;
};

// One iteration row.
struct BenchmarkRecord {
  std::string name;
  std::int64_t family_index = 0;
  std::int64_t repetition_index = 0;  // the launch
  std::int64_t repetitions = 1;       // launches
  std::string error;                  // why there is no time; real_time_us is then not used
  double real_time_us = 0;
  double cpu_time_us = 0;  // of the coordinator's thread, as Google Benchmark found it
  std::map<std::string, double> counters;
};

// The document, indented by two, with a final newline. A record with an error, or with a time or counter that
// is not finite, has no such number in it.
std::string benchmark_json(const BenchmarkContext& context, const std::vector<BenchmarkRecord>& records);

}  // namespace arb
