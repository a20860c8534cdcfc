#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <set>

#include "coordinator/machine.h"
#include "coordinator/worker_process.h"
#include "emulator/gate/gate.h"
#include "ending.h"
#include "environment.h"
#include "log.h"
#include "measure.h"
#include "publishing.h"
#include "report_csv.h"
#include "results_folder.h"
#include "session.h"
#include "text.h"
#include "tuning.h"
#include "verbs.h"
#include "verify_case.h"

namespace arb {
namespace {

using Clock = std::chrono::steady_clock;

// Without --for: calls of a contender on one rank a GPU, and on ranks that share them or leave some out.
constexpr std::uint64_t calls_of_first_team = 100'000;
constexpr std::uint64_t calls_of_other_teams = 5'000;
// Emulated, cases are counted: the box makes few calls of each, and long messages are left out.
constexpr std::uint64_t emulated_cases = 16;
constexpr std::uint64_t calls_of_emulated_case = 3;
constexpr std::uint64_t most_emulated_bytes = 32 << 10;
// The emulated gate without --for; with it the box gets a quarter of the time, planted bugs a seed for so
// many seconds, and the gate's scenarios the rest.
constexpr std::uint32_t usual_planted_seeds = 2;
constexpr std::uint32_t usual_covers = 5;
constexpr double box_share = 0.25;
constexpr std::uint64_t seconds_a_planted_seed = 20;
// Numbers of one seed's cases.
constexpr std::uint64_t cases_of_a_seed = 1'000'000;
constexpr std::uint32_t most_ranks = 8;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// So many ranks on the first GPUs; emulated: on none.
struct VerifyTeam {
  std::uint32_t ranks;
  std::uint32_t gpus;
  [[nodiscard]] bool oversubscribed() const { return gpus != 0 && ranks > gpus; }
};

// One contender from one bundle or NCCL, on one team: what has been found so far.
struct Arm {
  const CatalogRow* row;
  std::string bundle;
  std::string nccl;
  VerifyTeam team;
  std::uint64_t cases = 0;
  std::uint64_t calls = 0;
  std::uint64_t left_out = 0;  // case numbers that are no cases here
  std::set<Dtype> dtypes = {};
  double max_error = 0;
  double spent_s = 0;
  std::string wrong = {};    // data or a hang: the first
  std::string failure = {};  // why it did not run, or no further
  bool gate = false;         // the emulated gate, on all teams; cases are its runs

  [[nodiscard]] Cell cell(std::uint64_t number) const {
    // Emulated ranks are all on GPUs of their own.
    Cell cell = verify_cell(*row, team.ranks, team.gpus == 0 ? team.ranks : team.gpus, number);
    cell.bundle = bundle;
    cell.nccl = nccl;
    return cell;
  }
  [[nodiscard]] std::string result() const {
    return !wrong.empty() ? "WRONG" : !failure.empty() ? "did not run" : cases == 0 ? "no time" : "right";
  }
  [[nodiscard]] std::string flags() const {
    return gate ? "gate" : team.oversubscribed() ? "oversubscribed" : "";
  }
};

std::string dtypes_text(const Arm& arm) {
  std::string text;
  for (const Dtype dtype : arm.dtypes) text += (text.empty() ? "" : " ") + std::string(name_of(dtype));
  return text;
}

class Verify {
 public:
  Verify(const VerifyOptions& options, const Terminal& terminal, const Interrupt& interrupt)
      : options_(options),
        terminal_(terminal),
        interrupt_(interrupt),
        log_(terminal.err, terminal.err_is_live) {}

  ExitCode go();
  Log& log() { return log_; }

 private:
  [[nodiscard]] std::vector<VerifyTeam> teams(std::uint32_t gpus) const;
  [[nodiscard]] std::vector<Arm> arms_of(const Session& session, VerifyTeam team);
  void verify_team(Session& session, VerifyTeam team, double share_s);
  [[nodiscard]] bool wants(const CatalogRow& row) const;
  void pass_gate();
  ExitCode replay_gate_case();
  void look_for_planted(Backend& backend, const Arm& arm);
  void run_case(Backend& backend, Arm& arm);
  [[nodiscard]] std::uint64_t number_of(const Arm& arm) const;
  [[nodiscard]] std::string replay_command(const Arm& arm, std::uint64_t number) const;
  [[nodiscard]] std::string table() const;
  [[nodiscard]] std::string csv() const;
  [[nodiscard]] ExitCode exit_code() const;
  [[nodiscard]] bool stopped() const { return interrupted_ || broken_ != nullptr; }
  [[nodiscard]] bool emulated() const { return evidence_ == Evidence::emulated; }

  const VerifyOptions& options_;
  const Terminal& terminal_;
  const Interrupt& interrupt_;
  Log log_;
  Clock::time_point begin_ = Clock::now();
  const Started started_;
  Evidence evidence_ = Evidence::emulated;
  std::optional<Tuning> tuning_;
  std::unique_ptr<ResultsFolder> folder_;
  std::vector<Arm> arms_;  // of all teams, in the order of the table
  bool interrupted_ = false;
  bool check_is_blind_ = false;
  std::string planted_csv_;    // emulated
  std::exception_ptr broken_;  // an error after which no further case makes sense
};

std::vector<VerifyTeam> Verify::teams(std::uint32_t gpus) const {
  if (emulated()) {
    if (options_.run.ranks) return {{*options_.run.ranks, 0}};
    std::vector<VerifyTeam> all;
    for (std::uint32_t ranks = 2; ranks <= most_ranks; ++ranks) all.push_back({ranks, 0});
    return all;
  }
  if (options_.run.ranks) return {{*options_.run.ranks, std::min(*options_.run.ranks, gpus)}};
  std::vector<VerifyTeam> some;
  if (gpus >= 2) some.push_back({gpus, gpus});
  const auto add = [&](std::uint32_t ranks) {
    if (std::ranges::count(some, ranks, &VerifyTeam::ranks) == 0)
      some.push_back({ranks, std::min(ranks, gpus)});
  };
  for (const std::uint32_t ranks : {8u, 3u, 5u, 4u, 2u})
    add(ranks);                                                      // a variant for each, and two for others
  for (std::uint32_t ranks = gpus; ranks >= 2; --ranks) add(ranks);  // all that have GPUs of their own
  return some;
}

bool Verify::wants(const CatalogRow& row) const {
  if (options_.run.contenders.empty()) return true;
  // Whoever asks for a contender that chooses among others asks for those.
  return std::ranges::any_of(options_.run.contenders, [&](const std::string& name) {
    return name == row.contender || may_choose(*find_contender(name), tuning_ ? &*tuning_ : nullptr, row);
  });
}

std::vector<Arm> Verify::arms_of(const Session& session, VerifyTeam team) {
  std::vector<Arm> arms;
  for (const CatalogRow& row : catalog()) {
    if (!wants(row) || !can_verify(row, team.ranks)) continue;
    if (emulated()) {
      if (row.source == Source::kernel) arms.push_back({.row = &row, .bundle = "", .nccl = "", .team = team});
    } else if (row.source == Source::kernel) {
      for (const std::string& bundle : session.machine().bundles)
        arms.push_back({.row = &row, .bundle = bundle, .nccl = "", .team = team});
    } else if (row.source == Source::nccl && !team.oversubscribed()) {
      const auto& problems = session.machine().nccl_window_problems;
      for (const std::string& nccl : session.machine().nccls) {
        // By name it is tried, and refused.
        if (const auto found = problems.find(nccl);
            needs_windows(row) && found != problems.end() && options_.run.contenders.empty()) {
          log_.sentence(fmt::format("{} is left out: {}", row.contender, found->second));
          continue;
        }
        arms.push_back({.row = &row, .bundle = "", .nccl = nccl, .team = team});
      }
    }
  }
  return arms;
}

std::uint64_t Verify::number_of(const Arm& arm) const {
  if (options_.case_number) return *options_.case_number;
  return options_.run.seed * cases_of_a_seed + arm.cases + arm.left_out;
}

std::string Verify::replay_command(const Arm& arm, std::uint64_t number) const {
  std::string text = fmt::format("arbench verify --contender {}", arm.row->contender);
  if (!arm.bundle.empty()) text += fmt::format(" --toolkit {}", arm.bundle);
  for (const std::string& path : options_.run.nccl_paths) {
    if (!arm.nccl.empty()) text += fmt::format(" --nccl {}", path);
  }
  text += emulated() ? " --emulate" : fmt::format(" -g {}", arm.team.gpus);
  return text + fmt::format(" --ranks {} --case {}", arm.team.ranks, number);
}

// Two faults of our own must come to light before any silence counts.
void Verify::look_for_planted(Backend& backend, const Arm& arm) {
  const std::uint64_t number = plantable_case(*arm.row, arm.team.ranks, arm.team.gpus, options_.run.seed);
  for (const Plant plant : {Plant::input, Plant::output}) {
    Cell cell = arm.cell(number);
    cell.plant = plant;
    const Outcome outcome = backend.run(cell);
    if (!outcome.wrong.empty() || !outcome.failure.empty()) continue;
    check_is_blind_ = true;
    log_.sentence(fmt::format(
        "the check did not see a wrong {} that was planted in {} of {} on {} ranks: nothing that this "
        "verification finds right can be trusted",
        name_of(plant), arm.row->contender, variant_name(cell), arm.team.ranks));
  }
}

void Verify::run_case(Backend& backend, Arm& arm) {
  if (emulated() && !options_.case_number) {
    while (arm.cell(number_of(arm)).bytes > most_emulated_bytes) ++arm.left_out;
  }
  const std::uint64_t number = number_of(arm);
  const Cell cell = arm.cell(number);
  ++arm.cases;
  const Clock::time_point begin = Clock::now();
  Outcome outcome;
  try {
    outcome = backend.run(cell);
  } catch (const WorkerLost& lost) {
    outcome.wrong = lost.what();
  }
  arm.spent_s += seconds_since(begin);
  const std::string who =
      fmt::format("{} of {} on {} ranks{}", arm.row->contender, variant_name(cell), arm.team.ranks,
                  arm.team.oversubscribed() ? fmt::format(" of {} GPUs", arm.team.gpus) : "");
  if (!outcome.failure.empty()) {
    arm.failure = outcome.failure;
    log_.sentence(fmt::format("{} did not run case {}: {}", who, number, outcome.failure));
  } else if (!outcome.wrong.empty() || !outcome.correct) {
    arm.wrong = outcome.wrong.empty() ? "wrong data" : outcome.wrong;
    const std::string drawn = outcome.ran.empty() ? std::string(name_of(cell.dtype)) : outcome.ran;
    log_.sentence(fmt::format("{} is WRONG: {} (case {}: {}); replay it with {}", who, arm.wrong, number,
                              drawn, replay_command(arm, number)));
  } else {
    arm.calls += emulated() ? calls_of_emulated_case : cell.verify_calls;
    arm.dtypes.insert(cell.dtype);
    arm.max_error = std::max(arm.max_error, outcome.max_error);
  }
}

void Verify::verify_team(Session& session, VerifyTeam team, double share_s) {
  const auto say = [this](const std::string& sentence) { log_.sentence(sentence); };
  const Clock::time_point begin = Clock::now();
  std::vector<Arm> arms;
  const bool first = arms_.empty();
  const std::uint64_t target_calls = first ? calls_of_first_team : calls_of_other_teams;
  const auto finished = [&](const Arm& arm) {
    if (!arm.wrong.empty() || !arm.failure.empty()) return true;
    if (options_.case_number) return arm.cases == 1;
    if (options_.for_s) return false;
    return emulated() ? arm.cases >= emulated_cases : arm.calls >= target_calls;
  };
  try {
    const std::unique_ptr<Backend> backend = session.launch_team(say, team.ranks);
    arms = arms_of(session, team);
    if (!emulated() && !arms.empty()) look_for_planted(*backend, arms.front());
    // Whoever had the least time is next, so that all get equal shares of it.
    for (;;) {
      if (interrupt_.arrived()) throw Interrupted();
      if (options_.for_s && !options_.case_number && seconds_since(begin) >= share_s) break;
      Arm* next = nullptr;
      double done = 0;
      for (Arm& arm : arms) {
        const double part = emulated() ? static_cast<double>(arm.cases) / emulated_cases
                                       : static_cast<double>(arm.calls) / static_cast<double>(target_calls);
        done += finished(arm) ? 1 : std::min(part, 1.0);
        if (!finished(arm) && (next == nullptr || arm.spent_s < next->spent_s)) next = &arm;
      }
      if (next == nullptr) break;
      const std::string what = fmt::format("{} of {} on {} ranks, case {}", next->row->contender,
                                           variant_name(next->cell(0)), team.ranks, number_of(*next));
      if (options_.for_s)
        log_.progress(seconds_since(begin_), static_cast<double>(*options_.for_s), what);
      else
        log_.progress(done, static_cast<double>(arms.size()), what);
      run_case(*backend, *next);
    }
  } catch (const Interrupted&) {
    interrupted_ = true;
  } catch (const std::exception&) {
    broken_ = std::current_exception();
  }
  arms_.insert(arms_.end(), arms.begin(), arms.end());
}

// Emulated: scenarios under adversarial scheduling, and planted bugs that they must catch.
void Verify::pass_gate() {
  std::vector<Arm> arms;
  std::vector<const CatalogRow*> rows;
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel || !wants(row)) continue;
    rows.push_back(&row);
    arms.push_back({.row = &row, .bundle = "", .nccl = "", .team = {most_ranks, 0}, .gate = true});
    arms.back().dtypes = {all_dtypes.begin(), all_dtypes.end()};
  }
  const auto heed = [&](const std::string& what) {
    return [this, what](std::size_t done, std::size_t total) {
      if (interrupt_.arrived()) throw Interrupted();
      if (options_.for_s)
        log_.progress(seconds_since(begin_), static_cast<double>(*options_.for_s), what);
      else
        log_.progress(static_cast<double>(done), static_cast<double>(total), what);
    };
  };
  try {
    const auto seeds = options_.for_s ? static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
                                            *options_.for_s / seconds_a_planted_seed, 1, 1000))
                                      : usual_planted_seeds;
    const gate::PlantedTable planted = gate::try_planted_bugs(
        seeds, options_.run.contenders.empty() ? std::vector<const CatalogRow*>{} : rows,
        heed("planted bugs of the emulated gate"), gate::first_run_seed(options_.run.seed));
    planted_csv_ = planted.csv();
    log_.clear();
    terminal_.out
        << "# planted bugs: one ordering call broken on purpose in each; one seed that catches it is enough\n"
        << fmt::format("{:<16} {:<56} {:>6} {:>6}  {}\n", "kernel", "planted bug", "seeds", "caught", "how");
    std::size_t caught = 0;
    for (const gate::PlantedTable::Line& line : planted.lines) {
      terminal_.out << fmt::format("{:<16} {:<56} {:>6} {:>6}  {}\n", line.bug.kernel,
                                   gate::name_of(line.bug), line.result.seeds_tried, line.result.seeds_caught,
                                   gate::how_text(line));
      if (line.result.seeds_caught > 0) ++caught;
    }
    terminal_.out << fmt::format("# {} of {} planted bugs caught\n\n", caught, planted.lines.size())
                  << std::flush;
    for (const std::string& problem : planted.problems) {
      check_is_blind_ = true;
      log_.sentence(problem);
    }
    for (std::uint32_t round = 0;; ++round) {
      const bool enough = options_.for_s
                              ? round > 0 && seconds_since(begin_) >= static_cast<double>(*options_.for_s)
                              : round >= usual_covers;
      if (enough) break;
      for (Arm& arm : arms) {
        if (!arm.wrong.empty()) continue;
        const gate::GateResult found =
            gate::run_gate(*arm.row, 1, round, heed(fmt::format("gate of {}", arm.row->contender)),
                           gate::first_run_seed(options_.run.seed));
        arm.cases += found.runs;
        for (const std::string& failure : found.failures) {
          log_.sentence(fmt::format("{} is WRONG: {}", arm.row->contender, failure));
          if (arm.wrong.empty()) arm.wrong = failure;
        }
      }
    }
  } catch (const Interrupted&) {
    interrupted_ = true;
  } catch (const std::exception&) {
    broken_ = std::current_exception();
  }
  arms_.insert(arms_.end(), arms.begin(), arms.end());
}

ExitCode Verify::replay_gate_case() {
  std::string found;
  try {
    found = gate::replay(options_.gate_case);
  } catch (const std::exception& error) {
    throw UsageError(fmt::format("--case '{}': {}", options_.gate_case, error.what()));
  }
  terminal_.out << found << '\n' << std::flush;
  return found.ends_with("no failure") ? ExitCode::good : ExitCode::wrong_data;
}

std::string Verify::table() const {
  std::string text = fmt::format("{:<24} {:<18} {:<14} {:>5} {:>4} {:>6} {:>9} {:>9}  {}\n", "contender",
                                 "from", "dtypes", "ranks", "gpus", "cases", "calls", "max error", "result");
  for (const Arm& arm : arms_) {
    text += fmt::format("{:<24} {:<18} {:<14} {:>5} {:>4} {:>6} {:>9} {:>9}  {}{}\n", arm.row->contender,
                        variant_name(arm.cell(0)), dtypes_text(arm),
                        arm.gate ? "all" : std::to_string(arm.team.ranks),
                        emulated() ? "-" : std::to_string(arm.team.gpus), arm.cases,
                        arm.gate ? "-" : std::to_string(arm.calls),
                        arm.calls == 0 ? "-" : fmt::format("{:.1e}", arm.max_error), arm.result(),
                        arm.flags().empty() ? "" : fmt::format(" ({})", arm.flags()));
  }
  return text;
}

std::string Verify::csv() const {
  std::string text =
      "evidence,contender,toolkit,compiler,nccl,world,dtypes,ranks,gpus,cases,calls,max_error,correct,flags,"
      "why\n";
  for (const Arm& arm : arms_) {
    const BundleName made = split_bundle_name(arm.bundle);
    const bool known = !arm.wrong.empty() || (arm.failure.empty() && arm.cases != 0);
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", name_of(evidence_), arm.row->contender,
        made.toolkit, emulated() ? "g++" : made.compiler, arm.nccl, emulated() ? "emulated" : "threads",
        dtypes_text(arm), arm.gate ? "" : std::to_string(arm.team.ranks),
        emulated() ? "" : std::to_string(arm.team.gpus), arm.cases, arm.gate ? "" : std::to_string(arm.calls),
        arm.calls == 0 ? "" : shortest(arm.max_error),
        !known              ? ""
        : arm.wrong.empty() ? "yes"
                            : "no",
        arm.flags(), csv_field(arm.wrong.empty() ? arm.failure : arm.wrong));
  }
  return text;
}

ExitCode Verify::exit_code() const {
  const auto any = [&](auto Arm::*member) {
    return std::ranges::any_of(arms_, [&](const Arm& arm) { return !(arm.*member).empty(); });
  };
  if (check_is_blind_ || any(&Arm::wrong)) return ExitCode::wrong_data;
  return stopped() || any(&Arm::failure) ? ExitCode::invalid_environment : ExitCode::good;
}

ExitCode Verify::go() {
  if (options_.run.deadline_s == 0)
    throw UsageError("--deadline 0 lets nothing finish; give seconds, such as 30");
  if (options_.run.ranks && (*options_.run.ranks < 2 || *options_.run.ranks > most_ranks)) {
    throw UsageError(
        fmt::format("--ranks {}: kernels are made for 2 to {} ranks", *options_.run.ranks, most_ranks));
  }
  check_sweep(sweep_of(options_.run, Evidence::emulated));  // names of contenders
  for (const std::string& name : options_.run.contenders) {
    if (find_contender(name)->source != Source::peer) continue;
    throw UsageError(
        fmt::format("{} is a peer library's, and verify drives all ranks from one process; `arbench run "
                    "--peer` checks its results",
                    name));
  }
  if (!options_.gate_case.empty()) return replay_gate_case();
  folder_ = std::make_unique<ResultsFolder>(options_.run.results, false);
  const auto say = [this](const std::string& sentence) { log_.sentence(sentence); };
  RunOptions machine_options = options_.run;
  machine_options.ranks.reset();  // the team's, not the machine's
  Session session(machine_options, folder_->folder().string(), interrupt_, say, 1);
  evidence_ = session.machine().evidence;
  tuning_ = session.machine().tuning;

  const std::vector<VerifyTeam> all = teams(session.gpus().value_or(0));
  for (std::size_t i = 0; i < all.size() && !stopped(); ++i) {
    // The first team gets twice the time of each other one, and what a team leaves over goes to the next.
    const double all_s = static_cast<double>(options_.for_s.value_or(0)) * (emulated() ? box_share : 1);
    const double left_s = std::max(0.0, all_s - seconds_since(begin_));
    const double others = static_cast<double>(all.size() - i - 1);
    verify_team(session, all[i], i == 0 ? left_s * 2 / (2 + others) : left_s / (1 + others));
  }
  if (emulated() && !options_.case_number && !stopped() && !arms_.empty()) pass_gate();
  log_.clear();
  if (arms_.empty() && broken_) std::rethrow_exception(broken_);
  if (arms_.empty() && interrupted_) throw Interrupted();
  if (arms_.empty())
    throw UsageError("no contender that was asked for can run on such ranks; see arbench list");
  terminal_.out << table() << std::flush;
  folder_->write("verify.csv", csv());
  if (!planted_csv_.empty()) folder_->write("planted.csv", planted_csv_);
  const auto path =
      publish_results(*folder_, session.environment(), options_.run, started_,
                      (emulated() && options_.run.ranks ? fmt::format("emulated-{}ranks", *options_.run.ranks)
                                                        : session.hardware_name()) +
                          "-verify",
                      {.interrupted = stopped(), .exit_code = exit_code(), .remarks = log_.sentences()});
  log_.sentence(fmt::format("{}results in {}", interrupted_ ? "interrupted; what was found is kept: " : "",
                            path.string()));
  if (broken_) std::rethrow_exception(broken_);
  return exit_code();
}

}  // namespace

int verify_verb(const VerifyOptions& options, const Terminal& terminal, const Interrupt& interrupt) {
  Verify verify(options, terminal, interrupt);
  return run_to_end(verify, "interrupted before the first case; nothing is kept");
}

}  // namespace arb
