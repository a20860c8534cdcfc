// Google Benchmark's part: one benchmark a cell, its flags, and its file format.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmark_json.h"
#include "cell.h"

namespace arb {

// This machine as Google Benchmark describes it, for documents of our own.
BenchmarkContext host_benchmark_context();

// What a visit of one cell hands to Google Benchmark.
struct Visit {
  std::optional<double> p50_us;            // empty: there is no time, and `no_time` says why
  std::string no_time;                     // one sentence
  bool leave_out = false;                  // not in the JSON document: no time by nature (emulated)
  bool silent = false;                     // nowhere at all: the cell was not run (interrupted)
  std::map<std::string, double> counters;  // finite numbers
};

// Google Benchmark 1.7 over the cells of a plan. It measures nothing: one iteration of a benchmark is one
// batch of the cell's plan, and its manual time is the p50 that the backend found. A cell without a time
// becomes an error row or is left out; no time is ever made up.
class Benchmarks {
 public:
  // Takes Google Benchmark's own flags. Throws UsageError on one that would change how often a cell runs
  // (that is -n's and --launches' business) or that it does not know.
  explicit Benchmarks(const std::vector<std::string>& flags);
  Benchmarks(const Benchmarks&) = delete;
  Benchmarks& operator=(const Benchmarks&) = delete;
  Benchmarks(Benchmarks&&) = delete;
  Benchmarks& operator=(Benchmarks&&) = delete;
  ~Benchmarks();

  // True with --benchmark_format: standard output is Google Benchmark's.
  [[nodiscard]] bool owns_stdout() const;
  // True with --benchmark_list_tests: list() is all that is wanted.
  [[nodiscard]] bool only_lists() const;

  // Takes the cells that the filter leaves; call once, before list() and run(). Throws UsageError where none
  // is left.
  void add(const std::vector<Cell>& cells);
  // Prints the names that the filter leaves, one a line.
  void list(std::ostream& out);
  // The cells that the filter leaves, in order.
  [[nodiscard]] std::vector<Cell> selected() const;
  // Visits every selected cell once, each as one registered benchmark, and stops after a silent visit; the
  // rows of launch k have repetition_index k. Where owns_stdout(), prints to `out`.
  void run(std::uint32_t launch, std::uint32_t launches, std::ostream& out,
           const std::function<Visit(const Cell&)>& visit);
  // Extra pairs for the context of the JSON document.
  void set_context(std::map<std::string, std::string> context);
  // Everything so far as a document of Google Benchmark's current JSON schema (json_schema_version 1): strict
  // JSON, no host name, `caches` present, finite numbers only.
  [[nodiscard]] std::string json() const;
  // Ends the output of --benchmark_format and writes --benchmark_out. Throws EnvironmentError when it cannot.
  void finish(std::ostream& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace arb
