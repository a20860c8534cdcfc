// What the command line asked for, as plain values; main.cpp fills it, the verbs read it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "types.h"

namespace arb {

enum class Format : std::uint8_t { console, json, csv };

struct RunOptions {
  std::optional<std::uint64_t> min_bytes;
  std::optional<std::uint64_t> max_bytes;
  std::optional<std::uint64_t> factor;
  std::optional<std::uint64_t> step_bytes;
  std::optional<std::uint32_t> samples;
  std::optional<std::uint32_t> warmups;
  bool check = true;
  std::vector<std::string> dtypes;
  std::optional<std::uint32_t> gpus;
  std::vector<std::string> contenders;
  std::filesystem::path tuning;  // what `auto` chooses by; empty: its own rule
  std::vector<std::string> toolkits;
  std::vector<std::string> places;
  std::vector<std::string> modes;
  std::vector<std::string> caches;
  std::uint32_t launches = 1;
  std::vector<std::string> nccl_paths;
  std::vector<std::string> peers;                       // "torch" or "torch=/path/to/python"
  std::filesystem::path bundles;                        // empty: bundles/ beside the program
  std::filesystem::path support_bundles;                // where the support bundle is; empty: with the others
  std::map<std::string, std::string> worker_variables;  // set in every worker's environment
  std::filesystem::path results = "results";
  std::optional<World> world;  // threads where not said
  bool emulate = false;
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint32_t> island_ranks;  // of one island; empty: from the topology
  std::uint32_t deadline_s = 30;              // of one wait on a device
  std::optional<Format> format;
  std::uint64_t seed = 1;
  std::vector<std::string> benchmark_flags;  // --benchmark_...=..., for Google Benchmark

  bool contenders_take_part = true;     // false: only what measures the machine itself; no bundles, no NCCL
  std::uint32_t cell_allowance_s = 20;  // tests shorten it; see WorkerSetup
  std::string command;                  // the command line as typed, for command.txt
  std::filesystem::path worker_program = "/proc/self/exe";  // tests put a fake worker here
  std::filesystem::path
      probe_program;  // arbench, which environment.json's probe asks; empty: nobody is asked
};

enum class CompareFormat : std::uint8_t { table, markdown, json, csv, smaller_is_better };

struct CompareOptions {
  RunOptions run;  // cells, GPUs, folders, deadlines
  std::vector<std::string> a;
  std::vector<std::string> b;
  std::uint32_t blocks = 12;
  bool extend = false;
  bool attribute = false;
  bool strict = false;
  bool static_only = false;
  CompareFormat format = CompareFormat::table;
  std::filesystem::path resume;        // an interrupted comparison's folder
  std::filesystem::path history;       // of nightly runs, for drift
  std::vector<std::string> sides;      // two results folders, or with static_only two bundles
  std::vector<std::string> arguments;  // of the verb, as typed, without --resume; for plan.json
};

struct VerifyOptions {
  RunOptions run;                            // what the two verbs have in common
  std::optional<std::uint64_t> for_s;        // how long to verify; empty: until every contender has its calls
  std::optional<std::uint64_t> case_number;  // that case alone
  std::string gate_case;                     // that run of the emulated gate alone (gate::replay)
};

struct TuneOptions {
  RunOptions run;                // sizes, GPUs, folders, deadlines
  std::uint32_t launches = 3;    // fresh ones that decide between the best few
  std::filesystem::path output;  // where the tuning goes beside the results folder; empty: nowhere
};

struct ListOptions {
  bool json = false;
  std::filesystem::path bundles;
  std::vector<std::string> nccl_paths;
  std::filesystem::path worker_program = "/proc/self/exe";
};

}  // namespace arb
