#include "benchmarks.h"

#include <benchmark/benchmark.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <optional>
#include <regex>
#include <sstream>
#include <string_view>

#include "benchmark_json.h"
#include "errors.h"
#include "measure.h"

namespace arb {
namespace {

constexpr std::string_view prefix = "--benchmark_";

// The value of "--benchmark_<name>=value" ("true" where there is no "="), if `flag` is that flag.
std::optional<std::string> value_of(std::string_view flag, std::string_view name) {
  if (!flag.starts_with(prefix)) return std::nullopt;
  flag.remove_prefix(prefix.size());
  if (!flag.starts_with(name)) return std::nullopt;
  flag.remove_prefix(name.size());
  if (flag.empty()) return "true";
  if (flag.front() != '=') return std::nullopt;
  return std::string(flag.substr(1));
}

bool is_true(const std::string& text) {
  return text == "true" || text == "1" || text == "yes" || text == "on" || text == "t" || text == "y";
}

std::string checked_format(std::string_view flag, const std::string& value) {
  if (value == "console" || value == "json" || value == "csv") return value;
  throw UsageError(fmt::format("{}{}={}: formats are console, json and csv", prefix, flag, value));
}

// Google Benchmark's own reporter for a format; JSON is ours.
std::unique_ptr<benchmark::BenchmarkReporter> library_reporter(const std::string& format, bool tabular,
                                                               std::ostream& out) {
  std::unique_ptr<benchmark::BenchmarkReporter> reporter;
  if (format == "console") {
    reporter = std::make_unique<benchmark::ConsoleReporter>(tabular ? benchmark::ConsoleReporter::OO_Tabular
                                                                    : benchmark::ConsoleReporter::OO_None);
  } else if (format == "csv") {
    BENCHMARK_DISABLE_DEPRECATED_WARNING
    reporter = std::make_unique<benchmark::CSVReporter>();
    BENCHMARK_RESTORE_DEPRECATED_WARNING
  }
  if (reporter) {
    reporter->SetOutputStream(&out);
    reporter->SetErrorStream(&std::cerr);
  }
  return reporter;
}

// Google Benchmark's words about this machine.
BenchmarkContext described(const benchmark::BenchmarkReporter::Context& from) {
  BenchmarkContext context;
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  context.date = fmt::format("{:%Y-%m-%dT%H:%M:%S+00:00}", fmt::gmtime(now));
  context.executable = "arbench";
  context.num_cpus = from.cpu_info.num_cpus;
  context.mhz_per_cpu = static_cast<int>(std::lround(from.cpu_info.cycles_per_second / 1e6));
  context.cpu_scaling_enabled = from.cpu_info.scaling == benchmark::CPUInfo::ENABLED;
  for (const auto& cache : from.cpu_info.caches) {
    context.caches.push_back({cache.type, cache.level, cache.size, cache.num_sharing});
  }
  context.load_avg = from.cpu_info.load_avg;
  context.library_version = ARB_BENCHMARK_VERSION;
  // Only its own words tell how the library was built.
  std::ostringstream words;
  benchmark::BenchmarkReporter::PrintBasicContext(&words, from);
  context.library_is_debug = words.str().find("built as DEBUG") != std::string::npos;
  return context;
}

}  // namespace

BenchmarkContext host_benchmark_context() {
  return described({});
}

struct Benchmarks::State {
  std::optional<std::string> format;
  std::string out_path;
  std::string out_format = "json";
  bool lists = false;
  bool tabular = false;
  std::string filter;
  std::vector<std::string> arguments;  // Google Benchmark keeps pointers into these

  std::vector<Cell> cells;
  std::size_t index = 0;  // of the cell that runs
  std::uint32_t launch = 0;
  std::uint32_t launches = 1;
  std::function<Visit(const Cell&)> visit;
  Visit last;

  BenchmarkContext context;
  std::vector<BenchmarkRecord> records;
  std::unique_ptr<benchmark::BenchmarkReporter> display;
  std::ostringstream file_text;
  std::unique_ptr<benchmark::BenchmarkReporter> file;
  bool context_reported = false;

  // Runs the batch of one cell and hands its p50 over as manual time.
  void run_cell(benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) {
      last = visit(cells[index]);
      if (!last.p50_us) {
        state.SkipWithError(last.no_time.c_str());
        break;
      }
      state.SetIterationTime(*last.p50_us * 1e-6);
    }
    if (!last.p50_us) return;
    for (const auto& [name, value] : last.counters) state.counters[name] = value;
  }

  // Hands every run on to Google Benchmark's reporters and keeps it for JSON.
  class Collector final : public benchmark::BenchmarkReporter {
   public:
    explicit Collector(State& state) : state_(state) {}
    bool ReportContext(const Context& context) override {
      if (state_.context_reported) return true;
      state_.context_reported = true;
      state_.keep(context);
      Context whole;
      whole.name_field_width = 0;
      for (const Cell& cell : state_.cells)
        whole.name_field_width = std::max(whole.name_field_width, cell_name(cell).size());
      for (auto* reporter : {state_.display.get(), state_.file.get()}) {
        if (reporter != nullptr && !reporter->ReportContext(whole)) return false;
      }
      return true;
    }
    void ReportRuns(const std::vector<Run>& runs) override {
      if (state_.last.silent) return;
      std::vector<Run> named = runs;
      for (Run& run : named) {
        run.family_index = static_cast<std::int64_t>(state_.index);
        run.run_name.time_type.clear();  // every time here is manual; the name is the cell's
        run.repetition_index = state_.launch;
        run.repetitions = state_.launches;
        if (!state_.last.leave_out) state_.keep(run);
      }
      for (auto* reporter : {state_.display.get(), state_.file.get()}) {
        if (reporter != nullptr) reporter->ReportRuns(named);
      }
    }

   private:
    State& state_;
  };

  void keep(const benchmark::BenchmarkReporter::Context& from) {
    auto extra = std::move(context.extra);
    context = described(from);
    context.extra = std::move(extra);
  }

  void keep(const benchmark::BenchmarkReporter::Run& run) {
    BenchmarkRecord record{.name = run.benchmark_name(),
                           .family_index = static_cast<std::int64_t>(index),
                           .repetition_index = run.repetition_index,
                           .repetitions = run.repetitions,
                           .error = {},
                           .real_time_us = 0,
                           .cpu_time_us = 0,
                           .counters = {}};
    if (run.error_occurred) {
      record.error = run.error_message;
    } else {
      constexpr double us_per_s = 1e6;
      record.real_time_us =
          *last.p50_us;  // one iteration; not via seconds, so that it is the same double as in rows.csv
      record.cpu_time_us = run.cpu_accumulated_time / static_cast<double>(run.iterations) * us_per_s;
      for (const auto& [name, counter] : run.counters) record.counters[name] = counter.value;
    }
    records.push_back(std::move(record));
  }
};

Benchmarks::Benchmarks(const std::vector<std::string>& flags) : state_(std::make_unique<State>()) {
  // All that could make a cell run more than once is pinned, the environment's BENCHMARK_* included.
  state_->arguments = {"arbench",
                       "--benchmark_min_time=1e-9",
                       "--benchmark_repetitions=1",
                       "--benchmark_min_warmup_time=0",
                       "--benchmark_enable_random_interleaving=false",
                       "--benchmark_filter=all",
                       "--benchmark_list_tests=false",
                       "--benchmark_out=",
                       "--benchmark_format=console"};
  for (const std::string& flag : flags) {
    for (const char* refused : {"min_time", "min_warmup_time", "repetitions", "enable_random_interleaving"}) {
      if (!value_of(flag, refused)) continue;
      throw UsageError(fmt::format(
          "{} is not for here: the plan fixes how often a cell runs; -n sets samples, -w warm-ups, "
          "--launches repeats the whole run with fresh workers",
          flag));
    }
    if (const auto filter = value_of(flag, "filter")) {
      state_->filter = *filter;
    } else if (const auto lists = value_of(flag, "list_tests")) {
      state_->lists = is_true(*lists);
    } else if (const auto format = value_of(flag, "format")) {
      state_->format = checked_format("format", *format);
    } else if (const auto out_format = value_of(flag, "out_format")) {
      state_->out_format = checked_format("out_format", *out_format);
    } else if (const auto out = value_of(flag, "out")) {
      state_->out_path = *out;
    } else if (const auto pair = value_of(flag, "context")) {
      const std::size_t equal = pair->find('=');
      if (equal == std::string::npos)
        throw UsageError(fmt::format("{}: give --benchmark_context=KEY=VALUE", flag));
      state_->context.extra[pair->substr(0, equal)] = pair->substr(equal + 1);
    } else {
      if (const auto tabular = value_of(flag, "counters_tabular")) state_->tabular = is_true(*tabular);
      state_->arguments.push_back(flag);
    }
  }
  std::vector<char*> pointers;
  for (std::string& argument : state_->arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(state_->arguments.size());
  benchmark::Initialize(&count, pointers.data());
  if (count > 1) {
    throw UsageError(fmt::format(
        "{}: no flag of Google Benchmark, or not a value it takes; see arbench run --help", pointers[1]));
  }
  if (!state_->out_path.empty() && state_->out_format != "json") {
    state_->file = library_reporter(state_->out_format, state_->tabular, state_->file_text);
  }
}

Benchmarks::~Benchmarks() {
  benchmark::ClearRegisteredBenchmarks();
  benchmark::BenchmarkReporter::Context::executable_name = "arbench";
}

bool Benchmarks::owns_stdout() const {
  return state_->format.has_value();
}
bool Benchmarks::only_lists() const {
  return state_->lists;
}

void Benchmarks::add(const std::vector<Cell>& cells) {
  // Google Benchmark's own filter sees "/manual_time" behind each name, which no reader of these names
  // expects; so its rules (an extended regular expression, "all", a leading '-' for what does not match) are
  // applied here.
  std::string text = state_->filter.empty() || state_->filter == "all" ? "." : state_->filter;
  const bool inverted = text.starts_with('-');
  if (inverted) text.erase(0, 1);
  std::regex filter;
  try {
    filter.assign(text, std::regex::extended | std::regex::nosubs);
  } catch (const std::regex_error& error) {
    throw UsageError(
        fmt::format("--benchmark_filter={}: no regular expression ({})", state_->filter, error.what()));
  }
  for (const Cell& cell : cells) {
    if (std::regex_search(cell_name(cell), filter) != inverted) state_->cells.push_back(cell);
  }
  if (state_->cells.empty()) {
    throw UsageError(fmt::format("--benchmark_filter={}: none of the {} cells matches; names are such as {}",
                                 state_->filter, cells.size(),
                                 cells.empty() ? "none" : cell_name(cells.front())));
  }
}

void Benchmarks::list(std::ostream& out) {
  for (const Cell& cell : state_->cells) out << cell_name(cell) << '\n';
}

std::vector<Cell> Benchmarks::selected() const {
  return state_->cells;
}

void Benchmarks::run(std::uint32_t launch, std::uint32_t launches, std::ostream& out,
                     const std::function<Visit(const Cell&)>& visit) {
  state_->launch = launch;
  state_->launches = launches;
  state_->visit = visit;
  if (state_->format && !state_->display)
    state_->display = library_reporter(*state_->format, state_->tabular, out);
  State::Collector collector(*state_);
  // One benchmark at a time, so that an interrupt need not wait for the rest of the plan.
  State* const state = state_.get();
  for (state->index = 0; state->index < state->cells.size(); ++state->index) {
    const std::string name = cell_name(state->cells[state->index]);
    benchmark::ClearRegisteredBenchmarks();
    benchmark::RegisterBenchmark(name.c_str(),
                                 [state](benchmark::State& running) { state->run_cell(running); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
    benchmark::RunSpecifiedBenchmarks(&collector);
    if (state->last.silent) break;
  }
  state_->visit = nullptr;
}

void Benchmarks::set_context(std::map<std::string, std::string> context) {
  state_->context.extra.merge(context);
}

std::string Benchmarks::json() const {
  return benchmark_json(state_->context, state_->records);
}

void Benchmarks::finish(std::ostream& out) {
  if (state_->display) state_->display->Finalize();
  if (state_->format == "json") out << json();
  out.flush();
  if (state_->out_path.empty()) return;
  if (state_->file) state_->file->Finalize();
  std::ofstream file(state_->out_path, std::ios::binary);
  file << (state_->file ? state_->file_text.str() : json()) << std::flush;
  if (!file)
    throw EnvironmentError(
        fmt::format("cannot write --benchmark_out={}; give a path that can be written", state_->out_path));
}

}  // namespace arb
