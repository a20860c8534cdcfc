#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/machine.h"
#include "coordinator/worker_process.h"
#include "ending.h"
#include "environment.h"
#include "gpu_watch.h"
#include "log.h"
#include "publishing.h"
#include "report_survey.h"
#include "results_folder.h"
#include "session.h"
#include "survey.h"
#include "verbs.h"

namespace arb {
namespace {

using Clock = std::chrono::steady_clock;

// A survey of 8 healthy GPUs takes some 20 s. On a sick box each test is slow, and whoever waits wants to know it.
constexpr std::chrono::seconds survey_budget{55};
// A machine on which so many tests in a row end with an error will not make the others either, and each may cost a
// whole deadline.
constexpr int most_failed_tests = 3;

class Limits {
 public:
  Limits(const RunOptions& options, const Terminal& terminal, const Interrupt& interrupt)
      : options_(options),
        terminal_(terminal),
        interrupt_(interrupt),
        log_(terminal.err, terminal.err_is_live) {
    options_.contenders_take_part = false;
  }

  ExitCode go();
  Log& log() { return log_; }

 private:
  template <class Measure>
  void attempt(Measure measure);
  void make_tests(WorkerBackend& backend);
  [[nodiscard]] bool stopped() const { return interrupted_ || failures_ >= most_failed_tests; }
  [[nodiscard]] ExitCode exit_code() const;

  RunOptions options_;
  const Terminal& terminal_;
  const Interrupt& interrupt_;
  Log log_;
  const Started started_;
  Survey survey_;
  std::optional<MachineLimits> limits_;
  std::unique_ptr<GpuWatch> watch_;
  std::vector<GpuDuring> during_;
  std::size_t left_out_ = 0;
  int failures_ = 0;  // in a row
  bool lost_ = false;
  bool failed_ = false;
  bool interrupted_ = false;
};

// Runs measure(); what goes wrong is a sentence, and the survey goes on without the figure.
template <class Measure>
void Limits::attempt(Measure measure) {
  try {
    measure();
    failures_ = 0;
    return;
  } catch (const Interrupted&) {
    interrupted_ = true;
    return;
  } catch (const WorkerLost& lost) {
    lost_ = true;
    log_.sentence(lost.what());
  } catch (const EnvironmentError& error) {
    failed_ = true;
    log_.sentence(error.what());
  }
  ++failures_;
}

void Limits::make_tests(WorkerBackend& backend) {
  const Clock::time_point begin = Clock::now();
  const std::vector<LimitTest> plan = survey_plan(survey_.ranks);
  attempt([&] { limits_ = backend.limits(); });
  std::size_t done = 0;
  for (const LimitTest& test : plan) {
    if (interrupt_.arrived()) interrupted_ = true;
    if (stopped() || Clock::now() - begin > survey_budget) break;
    log_.progress(static_cast<double>(done), static_cast<double>(plan.size()), text_of(test));
    ++done;
    attempt([&] { survey_.figures.push_back({test, backend.measure(test)}); });
    watch_->look();
  }
  log_.clear();
  left_out_ = plan.size() - survey_.figures.size();
  if (done == plan.size() || interrupted_) return;
  log_.sentence(
      failures_ >= most_failed_tests
          ? fmt::format("the other {} tests are not tried, because {} in a row failed", plan.size() - done,
                        most_failed_tests)
          : fmt::format("the other {} tests are left out, because {} s have gone: something here is slow",
                        plan.size() - done, survey_budget.count()));
}

ExitCode Limits::exit_code() const {
  if (lost_) return ExitCode::wrong_data;
  return failed_ || interrupted_ ? ExitCode::invalid_environment : ExitCode::good;
}

ExitCode Limits::go() {
  if (options_.deadline_s == 0)
    throw UsageError("--deadline 0 lets nothing finish; give seconds, such as 30");
  if (options_.format == Format::csv) throw UsageError("limits are console or json: matrices are no rows");
  ResultsFolder folder(options_.results, false);
  std::vector<std::string> said;
  Session session(options_, folder.folder().string(), interrupt_,
                  [&](const std::string& sentence) { said.push_back(sentence); });
  if (session.machine().evidence != Evidence::measured) {
    throw EnvironmentError(fmt::format("limits are measured on 2 GPUs or more that reach each other: {}",
                                       session.environment().why_emulated));
  }
  const auto say = [this](const std::string& sentence) { log_.sentence(sentence); };
  for (const std::string& sentence : said) say(sentence);
  survey_.ranks = session.machine().ranks;
  for (const DeviceInfo& gpu : session.environment().gpus) survey_.numa_nodes.push_back(numa_node_of(gpu));
  {
    const std::unique_ptr<WorkerBackend> backend = session.launch_workers(say);
    watch_ = watch_of(session.environment());
    make_tests(*backend);
    // While the workers live: without them clocks fall.
    during_ = watch_->end();
    backend->quit();
  }
  if (survey_.figures.empty() && interrupted_) throw Interrupted();

  Environment environment = session.environment();
  environment.limits = limits_;
  environment.during = during_;
  for (const std::string& remark : remarks_on(environment.during)) log_.sentence(remark);
  const std::string json = survey_json(survey_, left_out_);
  if (options_.format == Format::json) {
    terminal_.out << json << std::flush;
  } else {
    terminal_.out << headline(environment) << survey_text(survey_) << std::flush;
  }
  // The console's text has them already.
  std::vector<std::string> remarks = log_.sentences();
  for (const Warning& warning : warnings_of(survey_)) {
    if (options_.format == Format::json) log_.sentence(warning.sentence);
    remarks.push_back(warning.sentence);
  }
  folder.write("limits.json", json);
  const auto path =
      publish_results(folder, environment, options_, started_, session.hardware_name() + "-limits",
                      {.interrupted = interrupted_, .exit_code = exit_code(), .remarks = std::move(remarks)});
  log_.sentence(fmt::format("{}results in {}", interrupted_ ? "interrupted; what was measured is kept: " : "",
                            path.string()));
  return exit_code();
}

}  // namespace

int limits_verb(const RunOptions& options, const Terminal& terminal, const Interrupt& interrupt) {
  Limits limits(options, terminal, interrupt);
  return run_to_end(limits, "interrupted before the first figure; nothing is kept");
}

}  // namespace arb
