#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>

#include "benchmarks.h"
#include "coordinator/machine.h"
#include "coordinator/worker_process.h"
#include "ending.h"
#include "environment.h"
#include "gpu_watch.h"
#include "log.h"
#include "measure.h"
#include "publishing.h"
#include "report_console.h"
#include "report_csv.h"
#include "report_json.h"
#include "results_folder.h"
#include "session.h"
#include "verbs.h"

namespace arb {
namespace {

// A contender that lost so many workers in a row, or failed in so many cells, runs no more of them: each may
// cost a whole deadline, or a fresh worker.
constexpr int most_losses = 2;
constexpr int most_failures = 4;

// One run from its options to its exit status.
class Run {
 public:
  Run(const RunOptions& options, const Terminal& terminal, const Interrupt& interrupt)
      : options_(options),
        terminal_(terminal),
        interrupt_(interrupt),
        log_(terminal.err, terminal.err_is_live) {}

  ExitCode go();
  Log& log() { return log_; }

 private:
  void all_launches(Session& session, Benchmarks& benchmarks);
  bool next_launch(Session& session, const Say& say, std::span<const Cell> cells);
  Visit visit(const Cell& cell);
  Outcome outcome_of(const Cell& cell);
  void show(const Row& row);
  void finish_output(Benchmarks& benchmarks);
  void publish(const Session& session, Benchmarks& benchmarks);
  [[nodiscard]] ExitCode exit_code() const;
  [[nodiscard]] Format format() const { return options_.format.value_or(Format::console); }

  const RunOptions& options_;
  const Terminal& terminal_;
  const Interrupt& interrupt_;
  Log log_;
  const Started started_;
  bool stdout_is_googles_ = false;

  std::unique_ptr<ResultsFolder> folder_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<GpuWatch> watch_;  // measured runs only
  std::vector<GpuDuring> during_;
  RowContext context_;
  std::unique_ptr<ConsoleTable> table_;
  std::vector<Row> rows_;
  struct Streak {
    int losses = 0;
    int failures = 0;
  };
  std::map<std::string, Streak>
      streaks_;  // contender and variant -> what went wrong in its last cells in a row
  double done_us_ = 0;
  double total_us_ = 0;
  bool interrupted_ = false;
  bool wrong_or_lost_ = false;
  bool failed_ = false;
  std::exception_ptr broken_;  // an error after which no further cell makes sense
};

Outcome Run::outcome_of(const Cell& cell) {
  Outcome outcome;
  const std::string column = contender_name(cell) + " " + variant_name(cell);
  Streak& streak = streaks_[column];
  if (streak.losses >= most_losses || streak.failures >= most_failures) {
    outcome.failure =
        streak.losses >= most_losses
            ? fmt::format("not tried, because {} hung or lost its worker {} times in a row", column,
                          most_losses)
            : fmt::format("not tried, because {} of {} cells in a row did not run", most_failures, column);
    return outcome;
  }
  try {
    outcome = backend_->run(cell);
    // A hang costs a whole deadline, as a lost worker does.
    const bool hung = std::ranges::count(outcome.flags, hang_flag) > 0;
    streak.losses = hung ? streak.losses + 1 : 0;
    streak.failures = outcome.failure.empty() ? 0 : streak.failures + 1;
  } catch (const WorkerLost& lost) {
    ++streak.losses;
    wrong_or_lost_ = true;
    outcome.failure = lost.what();
    outcome.flags = {"lost"};
  }
  return outcome;
}

Visit Run::visit(const Cell& cell) {
  Visit visit;
  if (interrupted_ || broken_ || interrupt_.arrived()) {
    interrupted_ = interrupted_ || !broken_;
    visit.silent = true;
    visit.no_time = "interrupted";
    return visit;
  }
  log_.progress(done_us_, total_us_, cell_name(cell));
  done_us_ += expected_us(cell);
  try {
    Outcome outcome = outcome_of(cell);
    if (watch_) watch_->look();
    if (watch_ && watch_->throttled()) outcome.flags.emplace_back("throttled");
    std::optional<Row> row;
    try {
      row = measure(*backend_, cell, outcome, context_);
    } catch (const InvalidRow& invalid) {
      outcome = Outcome{};
      outcome.failure = invalid.what();
      row = measure(*backend_, cell, outcome, context_);
    }
    folder_->add(*row);
    rows_.push_back(*row);
    show(*row);
    if (!outcome.failure.empty()) {
      failed_ = true;
      visit.no_time = outcome.failure;
      log_.sentence(fmt::format("{} did not run: {}", cell_name(cell), outcome.failure));
    } else if ((*row)->correct == false) {
      wrong_or_lost_ = true;
      visit.no_time = outcome.wrong.empty() ? "wrong data" : "wrong data: " + outcome.wrong;
      log_.sentence(fmt::format("{} is WRONG: {}", cell_name(cell), outcome.wrong));
    } else if (row->timed()) {
      const RowFields& figures = row->get();
      visit.p50_us = figures.p50_us;
      visit.counters = {
          {"p95_us", *figures.p95_us},         {"p99_us", *figures.p99_us},
          {"min_us", *figures.min_us},         {"samples", static_cast<double>(*figures.samples)},
          {"algbw_gbps", *figures.algbw_gbps}, {"busbw_gbps", *figures.busbw_gbps}};
      if (figures.floor_ratio) visit.counters["floor_ratio"] = *figures.floor_ratio;
    } else {
      visit.leave_out = true;
      visit.no_time = fmt::format("{}: data and traffic only, no time", name_of((*row)->evidence));
    }
  } catch (const Interrupted&) {
    interrupted_ = true;
    visit.silent = true;
    visit.no_time = "interrupted";
  } catch (const std::exception&) {
    broken_ = std::current_exception();
    visit.silent = true;
    visit.no_time = "the run broke off";
  }
  return visit;
}

void Run::show(const Row& row) {
  if (stdout_is_googles_) return;
  log_.clear();
  if (format() == Format::csv) {
    terminal_.out << csv_line(row) << '\n' << std::flush;
  } else if (table_) {
    table_->add(row);
  }
}

void Run::all_launches(Session& session, Benchmarks& benchmarks) {
  const auto say = [this](const std::string& sentence) { log_.sentence(sentence); };
  backend_ = session.launch(say);
  const Plan plan = make_plan(sweep_of(options_, session.machine().evidence), session.machine());
  for (const std::string& remark : plan.remarks) log_.sentence(remark);
  benchmarks.add(plan.cells);
  if (benchmarks.only_lists()) {
    benchmarks.list(terminal_.out);
    return;
  }
  const std::vector<Cell> cells = benchmarks.selected();
  for (const Cell& cell : cells) total_us_ += expected_us(cell) * options_.launches;
  benchmarks.set_context(environment_pairs(session.environment()));
  context_.gpus = session.gpus();

  if (stdout_is_googles_ || format() == Format::json) {
    // Printed at the end, or by Google Benchmark.
  } else if (format() == Format::csv) {
    terminal_.out << csv_header() << '\n' << std::flush;
  } else {
    TableShape shape{.evidence = session.machine().evidence,
                     .places = {},
                     .modes = {},
                     .several_caches = false,
                     .several_launches = options_.launches > 1};
    for (const Place place : {Place::out, Place::in}) {
      if (std::ranges::find(cells, place, &Cell::place) != cells.end()) shape.places.push_back(place);
    }
    for (const Mode mode : {Mode::pipelined, Mode::isolated}) {
      if (std::ranges::find(cells, mode, &Cell::mode) != cells.end()) shape.modes.push_back(mode);
    }
    shape.several_caches =
        std::ranges::adjacent_find(cells, std::ranges::not_equal_to{}, &Cell::cache) != cells.end();
    terminal_.out << headline(session.environment()) << std::flush;
    table_ = std::make_unique<ConsoleTable>(terminal_.out, shape);
  }

  for (std::uint32_t launch = 0; launch < options_.launches; ++launch) {
    if (interrupted_ || broken_) break;
    context_.launch = launch;
    if (launch == 0) {
      context_.limits = backend_->limits();
      watch_ = watch_of(session.environment());
      backend_->get_ready(cells);
    } else if (!next_launch(session, say, cells)) {
      break;
    }
    benchmarks.run(launch, options_.launches, terminal_.out,
                   [this](const Cell& cell) { return visit(cell); });
    // While the workers live: without them clocks fall.
    if (watch_) during_ = watch_->end();
  }
  backend_.reset();
}

// False where there is none: the launches before it are whole and kept.
bool Run::next_launch(Session& session, const Say& say, std::span<const Cell> cells) {
  backend_.reset();
  streaks_.clear();
  try {
    backend_ = session.launch(say);
    context_.limits = backend_->limits();
    backend_->get_ready(cells);
    return true;
  } catch (const Interrupted&) {
    interrupted_ = true;
  } catch (const std::exception&) {
    broken_ = std::current_exception();
  }
  return false;
}

void Run::finish_output(Benchmarks& benchmarks) {
  log_.clear();
  if (table_) table_->finish();
  if (!stdout_is_googles_ && format() == Format::json) terminal_.out << json_document(rows_) << std::flush;
  benchmarks.finish(terminal_.out);
}

void Run::publish(const Session& session, Benchmarks& benchmarks) {
  folder_->write("benchmark.json", benchmarks.json());
  Environment environment = session.environment();
  environment.during = during_;
  for (const std::string& remark : remarks_on(environment.during)) log_.sentence(remark);
  const auto path =
      publish_results(*folder_, environment, options_, started_, session.hardware_name() + "-run",
                      {.interrupted = interrupted_ || broken_ != nullptr,
                       .exit_code = exit_code(),
                       .remarks = log_.sentences()});
  log_.sentence(fmt::format("{}results in {}",
                            interrupted_ ? "interrupted; the complete rows are kept: " : "", path.string()));
}

ExitCode Run::exit_code() const {
  if (wrong_or_lost_) return ExitCode::wrong_data;
  return interrupted_ || failed_ || broken_ ? ExitCode::invalid_environment : ExitCode::good;
}

ExitCode Run::go() {
  // Cheap refusals first, then what starts processes; the results folder is tried before anything runs.
  Benchmarks benchmarks(options_.benchmark_flags);
  stdout_is_googles_ = benchmarks.owns_stdout();
  if (stdout_is_googles_ && options_.format) {
    throw UsageError(
        "--format and --benchmark_format both choose what standard output gets; give one of them");
  }
  if (options_.launches == 0) throw UsageError("--launches 0 runs nothing; give 1 or more");
  if (options_.deadline_s == 0)
    throw UsageError("--deadline 0 lets nothing finish; give seconds, such as 30");
  check_sweep(sweep_of(options_, Evidence::emulated));
  check_sweep(sweep_of(options_, Evidence::measured));
  if (!benchmarks.only_lists()) folder_ = std::make_unique<ResultsFolder>(options_.results);

  const auto say = [this](const std::string& sentence) { log_.sentence(sentence); };
  Session session(options_, folder_ ? folder_->folder().string() : "", interrupt_, say);
  all_launches(session, benchmarks);
  if (benchmarks.only_lists()) return ExitCode::good;
  finish_output(benchmarks);
  publish(session, benchmarks);
  if (broken_) std::rethrow_exception(broken_);
  return exit_code();
}

}  // namespace

int run_verb(const RunOptions& options, const Terminal& terminal, const Interrupt& interrupt) {
  Run run(options, terminal, interrupt);
  return run_to_end(run, "interrupted before the first cell; nothing is kept");
}

}  // namespace arb
