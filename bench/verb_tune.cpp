#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "coordinator/machine.h"
#include "coordinator/worker_process.h"
#include "descriptor.h"
#include "ending.h"
#include "environment.h"
#include "log.h"
#include "measure.h"
#include "publishing.h"
#include "results_folder.h"
#include "session.h"
#include "text.h"
#include "tune.h"
#include "verbs.h"

namespace arb {
namespace {

constexpr std::uint64_t default_max_bytes = 64ull << 20;

// The whole text or nothing: written beside the target and renamed.
void write_whole(const std::filesystem::path& target, const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    return EnvironmentError(fmt::format("cannot write {}: {}", target.string(), why));
  };
  std::string name = target.string() + ".XXXXXX";
  const Descriptor file(::mkstemp(name.data()));
  if (file.get() < 0) throw refuse(std::strerror(errno));
  std::string why;
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(file.get(), text.data() + written, text.size() - written);
    if (count <= 0) {
      why = std::strerror(errno);
      break;
    }
    written += static_cast<std::size_t>(count);
  }
  if (why.empty() && (::fchmod(file.get(), 0644) != 0 || ::rename(name.c_str(), target.c_str()) != 0))
    why = std::strerror(errno);
  if (why.empty()) return;
  ::unlink(name.c_str());
  throw refuse(why);
}

class Tune {
 public:
  Tune(const TuneOptions& options, const Terminal& terminal, const Interrupt& interrupt)
      : options_(options),
        terminal_(terminal),
        interrupt_(interrupt),
        log_(terminal.err, terminal.err_is_live) {}

  ExitCode go();
  Log& log() { return log_; }

 private:
  [[nodiscard]] TuneAsk ask() const;
  void check() const;
  Outcome run(Backend& backend, const Cell& cell);
  void heard(const Backend& backend, const Cell& cell, const Outcome& outcome, std::uint32_t launch);
  [[nodiscard]] ExitCode exit_code() const;

  TuneOptions options_;
  const Terminal& terminal_;
  const Interrupt& interrupt_;
  Log log_;
  const Started started_;
  std::unique_ptr<ResultsFolder> folder_;
  std::unique_ptr<Session> session_;
  bool wrong_or_lost_ = false;
  bool failed_ = false;
};

void Tune::check() const {
  const RunOptions& run = options_.run;
  if (run.deadline_s == 0) throw UsageError("--deadline 0 lets nothing finish; give seconds, such as 30");
  if (options_.launches == 0)
    throw UsageError("--launches 0 would choose by the luck of the search; give 1 or more");
  if (run.dtypes.size() > 1 || run.dtypes == std::vector<std::string>{"all"})
    throw UsageError("-d takes one type here: choices go by bytes and serve all types");
  if (run.toolkits.size() > 1) throw UsageError("--toolkit takes one toolkit here, the one that is tuned");
  if (run.nccl_paths.size() > 1) throw UsageError("--nccl takes one library here, which is measured beside");
  const Sweep sweep = sweep_of(run, Evidence::measured);
  check_sweep(sweep);
  for (const std::string& name : run.contenders) {
    const CatalogRow* row = find_contender(name);
    if (row->source == Source::nccl || can_be_chosen(*row, 1)) continue;
    throw UsageError(fmt::format(
        "{} cannot be chosen: it is no kernel of ours that needs no tensors in symmetric memory", name));
  }
}

TuneAsk Tune::ask() const {
  const Sweep sweep = sweep_of(options_.run, Evidence::measured);
  const Machine& machine = session_->machine();
  if (machine.bundles.empty())
    throw UsageError("--contender leaves nothing to choose from; name a kernel of ours");
  return {.sizes = sizes_of(sweep),
          .dtype = sweep.dtypes.front(),
          .ranks = machine.ranks,
          .island_ranks = machine.island_ranks,
          .bundle = machine.bundles.back(),
          .nccl = machine.nccls.empty() ? "" : machine.nccls.front(),
          .contenders = options_.run.contenders,
          .launches = options_.launches,
          .seed = options_.run.seed};
}

Outcome Tune::run(Backend& backend, const Cell& cell) {
  if (interrupt_.arrived()) throw Interrupted();
  try {
    return backend.run(cell);
  } catch (const WorkerLost& lost) {
    wrong_or_lost_ = true;
    Outcome outcome;
    outcome.failure = lost.what();
    outcome.flags = {"lost"};
    return outcome;
  }
}

void Tune::heard(const Backend& backend, const Cell& cell, const Outcome& outcome, std::uint32_t launch) {
  const std::string who = fmt::format("{} as {}x{}", cell_name(cell), cell.blocks, cell.threads);
  if (!outcome.failure.empty()) {
    failed_ = true;
    log_.sentence(fmt::format("{} did not run: {}", who, outcome.failure));
  } else if (!outcome.correct) {
    wrong_or_lost_ = true;
    log_.sentence(fmt::format("{} is WRONG: {}", who, outcome.wrong));
  }
  try {
    folder_->add(measure(backend, cell, outcome, {.gpus = session_->gpus(), .launch = launch, .limits = {}}));
  } catch (const InvalidRow& invalid) {
    failed_ = true;
    log_.sentence(invalid.what());
  }
}

ExitCode Tune::exit_code() const {
  if (wrong_or_lost_) return ExitCode::wrong_data;
  return failed_ ? ExitCode::invalid_environment : ExitCode::good;
}

ExitCode Tune::go() {
  RunOptions& run_options = options_.run;
  if (!run_options.max_bytes)
    run_options.max_bytes = std::max(default_max_bytes, run_options.min_bytes.value_or(0));
  check();
  // Before minutes of search, not after them.
  const std::filesystem::path target_folder =
      options_.output.has_parent_path() ? options_.output.parent_path() : ".";
  if (!options_.output.empty() && ::access(target_folder.c_str(), W_OK | X_OK) != 0)
    throw EnvironmentError(
        fmt::format("cannot write {}: {}", options_.output.string(), std::strerror(errno)));
  folder_ = std::make_unique<ResultsFolder>(run_options.results);
  const auto say = [this](const std::string& sentence) { log_.sentence(sentence); };
  std::vector<std::string> said;
  session_ = std::make_unique<Session>(run_options, folder_->folder().string(), interrupt_,
                                       [&](const std::string& sentence) { said.push_back(sentence); });
  if (session_->machine().evidence != Evidence::measured) {
    throw EnvironmentError(
        fmt::format("tuning needs 2 GPUs or more that reach each other, because emulated cells have "
                    "no time: {}",
                    session_->environment().why_emulated));
  }
  for (const std::string& sentence : said) say(sentence);
  if (session_->machine().bundles.size() > 1)
    say(fmt::format("tuned with bundle {}; --toolkit takes another", session_->machine().bundles.back()));

  // NCCL's name is known once a launch has greeted it.
  std::unique_ptr<Backend> first = session_->launch(say, false);
  const TuneAsk asked = ask();
  const TuneHooks hooks{
      .launch =
          [&] { return first != nullptr ? std::exchange(first, nullptr) : session_->launch(say, false); },
      .run = [this](Backend& backend, const Cell& cell) { return run(backend, cell); },
      .heard = [this](const Backend& backend, const Cell& cell, const Outcome& outcome,
                      std::uint32_t launch) { heard(backend, cell, outcome, launch); },
      .progress = [this](double done, double total,
                         const std::string& next) { log_.progress(done, total, next); }};
  const std::vector<SizeResult> results = search(asked, hooks);
  log_.clear();

  terminal_.out << headline(session_->environment()) << crossover_table(results) << std::flush;
  const Tuning tuning{.machine = fingerprint_of(session_->environment().gpus),
                      .ranks = asked.ranks,
                      .island_ranks = asked.island_ranks,
                      .dtype = asked.dtype,
                      .bundle = asked.bundle,
                      .sizes = winners(results, Evidence::measured)};
  for (const SizeResult& result : results) {
    if (!result.finalists.empty()) continue;
    failed_ = true;
    log_.sentence(
        fmt::format("no contender ran right at {}; the tuning leaves it out", size_name(result.bytes)));
  }
  if (tuning.sizes.empty()) log_.sentence("there is no tuning: nothing ran right");
  if (!tuning.sizes.empty()) folder_->write("tuning.json", to_json(tuning));
  const auto path = publish_results(
      *folder_, session_->environment(), run_options, started_, session_->hardware_name() + "-tune",
      {.interrupted = false, .exit_code = exit_code(), .remarks = log_.sentences()});
  if (!tuning.sizes.empty() && !options_.output.empty()) write_whole(options_.output, to_json(tuning));
  log_.sentence(fmt::format("results in {}", path.string()));
  if (!tuning.sizes.empty()) {
    log_.sentence(fmt::format("use it: arbench run --tuning {}", options_.output.empty()
                                                                     ? (path / "tuning.json").string()
                                                                     : options_.output.string()));
  }
  return exit_code();
}

}  // namespace

int tune_verb(const TuneOptions& options, const Terminal& terminal, const Interrupt& interrupt) {
  Tune tune(options, terminal, interrupt);
  return run_to_end(tune, "interrupted before the tuning was whole; nothing is kept");
}

}  // namespace arb
