#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <ostream>

#include "benchmarks.h"
#include "catalog.h"
#include "compare.h"
#include "comparison.h"
#include "comparison_report.h"
#include "coordinator/worker_process.h"
#include "measure.h"
#include "publishing.h"
#include "report_csv.h"
#include "results_folder.h"
#include "text.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

// A cell gave wrong data.
class WrongData final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

constexpr std::uint32_t most_blocks = 1000;
constexpr std::uint32_t pilot_blocks = 5;
constexpr const char* plan_file = "plan.json";
constexpr const char* blocks_file = "blocks.jsonl";

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw EnvironmentError(fmt::format("cannot read {}", path.string()));
  return {std::istreambuf_iterator<char>(file), {}};
}

// A folder that an interrupt left behind: its plan, its whole blocks and their rows.
struct Unfinished {
  ComparisonPlan plan;
  std::vector<Block> blocks;
  std::vector<Row> rows;
};

Unfinished read_interrupted(const fs::path& folder) {
  try {
    const PublishedRun run = read_results(folder);
    std::error_code error;
    if (!fs::is_regular_file(folder / plan_file, error)) {
      throw EnvironmentError(fmt::format("--resume {}: it is a run and no comparison", folder.string()));
    }
    if (!run.interrupted) {
      throw EnvironmentError(fmt::format(
          "--resume {}: that comparison is complete; there is nothing to go on with", folder.string()));
    }
    Unfinished result;
    result.plan = plan_from_json(text_of_file(folder / plan_file));
    result.blocks = blocks_from_json_lines(text_of_file(folder / blocks_file), result.plan);
    result.rows = run.rows;
    return result;
  } catch (const ForeignResults& error) {
    throw EnvironmentError(fmt::format("--resume: {}", error.what()));
  } catch (const RecordError& error) {
    throw EnvironmentError(fmt::format("--resume {}: {}", folder.string(), error.what()));
  }
}

// One comparison of two arms from its options to its exit status.
class ArmComparison {
 public:
  ArmComparison(const CompareOptions& options, const Terminal& terminal, const Interrupt& interrupt, Log& log)
      : options_(options), terminal_(terminal), interrupt_(interrupt), log_(log) {}

  ExitCode go(const HostMaker& make_host);

 private:
  void check();
  void leave_out_one_sided_windows();
  void prepare();
  void take_over(Unfinished from);
  void measure_blocks(std::uint32_t until);
  Block measure_block(std::uint32_t index, const std::vector<Role>& order, std::vector<Row>& rows);
  LaunchRecord measure_launch(std::uint32_t block, std::uint32_t launch, Role role, std::vector<Row>& rows);
  void say_what_the_pilot_shows();
  void settle();
  [[nodiscard]] Rules rules() const;
  [[nodiscard]] std::string benchmark_document(Role role) const;
  void print() const;
  ExitCode publish(ExitCode code);

  const CompareOptions& options_;
  const Terminal& terminal_;
  const Interrupt& interrupt_;
  Log& log_;
  const Started started_;

  ArmSpec a_;
  ArmSpec b_;
  std::unique_ptr<ResultsFolder> folder_;
  std::unique_ptr<ArmHost> host_;
  ComparisonPlan plan_;
  std::vector<std::vector<Role>> orders_;
  std::map<Role, std::vector<Cell>> cells_;
  std::vector<CellFacts> facts_;
  ArmsDiffer differ_;
  Environment environment_;
  std::vector<Block> blocks_;
  std::vector<std::string> failures_;  // by cell: why it is not tried again
  double done_us_ = 0;
  double total_us_ = 0;
  std::optional<Comparison> comparison_;
  bool interrupted_ = false;
};

Rules ArmComparison::rules() const {
  Rules rules;
  if (options_.extend) rules.alpha = alpha_of_two_looks;
  rules.seed = options_.run.seed;
  return rules;
}

void ArmComparison::check() {
  a_ = arm_from(options_.a);
  b_ = arm_from(options_.b);
  check_arms(a_, b_);
  const RunOptions& run = options_.run;
  if (run.emulate)
    throw EnvironmentError(
        "a comparison needs GPUs, because emulated rows have no time; leave out --emulate");
  const std::uint32_t fewest = fewest_blocks(rules().alpha);
  if (options_.blocks < fewest || options_.blocks > most_blocks) {
    throw UsageError(
        fmt::format("--blocks {}: with fewer than {} no sign-flip test can be significant, and more than "
                    "{} have no use",
                    options_.blocks, fewest, most_blocks));
  }
  if (run.launches != 1)
    throw UsageError("--launches is not for compare; --blocks says how often each arm is launched");
  if (run.places.size() > 1 || run.caches.size() > 1) {
    throw UsageError("a comparison has one --place and one --cache; make two comparisons");
  }
  if (!run.check)
    throw UsageError("-c 0 is not for compare: a verdict on unchecked data would be worth nothing");
  if (run.toolkits.size() > 1)
    throw UsageError("--toolkit takes one toolkit here, the one of arms that name none");
  if (run.nccl_paths.size() > 1)
    throw UsageError("--nccl takes one library here, the one of arms that name none");
  if (options_.attribute && a_.toolkit == b_.toolkit && a_.bundle_folder == b_.bundle_folder &&
      a_.nccl == b_.nccl) {
    throw UsageError(
        "--attribute asks whether the compiler or NCCL did it, and these arms differ in neither");
  }
  for (const ArmSpec* arm : {&a_, &b_}) {
    Sweep sweep = sweep_of(run, Evidence::measured);
    if (!arm->contender.empty()) sweep.contenders = {arm->contender};
    check_sweep(sweep);
  }
  if (!a_.contender.empty() && !run.contenders.empty()) {
    throw UsageError("--contender and an arm's contender= contradict each other; give one of them");
  }
}

// NCCLs of which only some have windows: nobody asked for what needs them, so no arm gets it.
void ArmComparison::leave_out_one_sided_windows() {
  if (!options_.run.contenders.empty()) return;
  for (const CatalogRow& row : catalog()) {
    if (!needs_windows(row)) continue;
    const auto has_it = [&](const auto& arm) {
      return std::ranges::find(arm.second, row.contender, &Cell::contender) != arm.second.end();
    };
    if (std::ranges::none_of(cells_, has_it) || std::ranges::all_of(cells_, has_it)) continue;
    for (auto& [role, cells] : cells_)
      std::erase_if(cells, [&](const Cell& cell) { return cell.contender == row.contender; });
    log_.sentence(fmt::format("{} is left out: one arm's NCCL has no symmetric windows", row.contender));
  }
}

void ArmComparison::prepare() {
  plan_ = {.arm_a = a_.text,
           .arm_b = b_.text,
           .arguments = options_.arguments,
           .blocks = options_.blocks,
           .extend = options_.extend,
           .attribute = options_.attribute,
           .seed = options_.run.seed,
           .roles = {Role::a, Role::b, Role::placebo},
           .driver = {},
           .gpus = {},
           .found = {},
           .cells = {}};
  std::map<Role, PreparedArm> arms;
  for (const Role role : {Role::a, Role::b, Role::placebo})
    arms[role] = host_->prepare(role, arm_of(role, a_, b_));
  const ArmFound& found_a = arms[Role::a].found;
  const ArmFound& found_b = arms[Role::b].found;
  differ_ = {
      .compiler = found_a.bundle_digest != found_b.bundle_digest,
      .nccl = found_a.nccl_path != found_b.nccl_path || found_a.nccl != found_b.nccl,
      .other = a_.variables != b_.variables || a_.contender != b_.contender || a_.program != b_.program};
  const auto kind = [](const ArmFound& found) { return split_bundle_name(found.bundle).compiler; };
  // An arm of NCCL alone loads no bundle, so no compiler of its kernels can differ.
  const bool both_compiled = !found_a.bundle.empty() && !found_b.bundle.empty();
  const bool spelled = a_.toolkit.ends_with(kind(found_a)) && b_.toolkit.ends_with(kind(found_b));
  if (both_compiled && kind(found_a) != kind(found_b) && !spelled && a_.bundle_folder.empty() &&
      b_.bundle_folder.empty()) {
    throw UsageError(
        fmt::format("{} and {} come from different kinds of compiler; name both in full if that is the "
                    "question",
                    found_a.bundle, found_b.bundle));
  }
  if (plan_.attribute && differ_.compiler && differ_.nccl) {
    for (const Role role : {Role::compiler_of_b, Role::nccl_of_b}) {
      arms[role] = host_->prepare(role, arm_of(role, a_, b_));
      plan_.roles.push_back(role);
    }
  }

  bool modes_given = !options_.run.modes.empty();
  for (const Role role : plan_.roles) {
    const ArmSpec arm = arm_of(role, a_, b_);
    Sweep sweep = sweep_of(options_.run, Evidence::measured);
    // Twelve blocks are 36 launches: what serving engines feel, and no more unless it was asked for.
    if (!modes_given) sweep.modes = {Mode::pipelined};
    if (!options_.run.max_bytes && !options_.run.min_bytes) sweep.max_bytes = 64 << 20;
    sweep.toolkits = {};
    if (!arm.contender.empty()) sweep.contenders = {arm.contender};
    Plan cells = make_plan(sweep, arms[role].machine);
    if (role == Role::a) {
      for (const std::string& remark : cells.remarks) log_.sentence(remark);
    }
    cells_[role] = std::move(cells.cells);
    ArmFound found = arms[role].found;
    for (const Cell& cell : cells_[role]) {
      if (cell.alias.empty()) continue;
      found.choices += fmt::format("{}{} {} {}x{}", found.choices.empty() ? "" : ", ", size_name(cell.bytes),
                                   cell.contender, cell.blocks, cell.threads);
    }
    plan_.found.push_back(std::move(found));
  }
  leave_out_one_sided_windows();
  const std::vector<Cell>& cells_a = cells_[Role::a];
  const std::vector<Cell>& cells_b = cells_[Role::b];
  for (const Role role : plan_.roles) {
    const std::vector<Cell>& cells = cells_[role];
    bool same = cells.size() == cells_a.size();
    for (std::size_t i = 0; same && i < cells.size(); ++i) {
      same = cells[i].bytes == cells_a[i].bytes && cells[i].dtype == cells_a[i].dtype &&
             cells[i].mode == cells_a[i].mode &&
             (contender_name(cells[i]) == contender_name(cells_a[i]) || !a_.contender.empty());
    }
    if (!same) {
      throw EnvironmentError(
          "the arms do not have the same cells: a contender (NCCL, say) is there in one arm only; name the "
          "contenders that both have with --contender");
    }
  }
  for (std::size_t i = 0; i < cells_a.size(); ++i) {
    const Cell& cell = cells_a[i];
    plan_.cells.push_back({.contender = contender_name(cell),
                           .contender_b = contender_name(cells_b[i]),
                           .dtype = cell.dtype,
                           .ranks = cell.ranks,
                           .bytes = cell.bytes,
                           .place = cell.place,
                           .mode = cell.mode,
                           .cache = cell.cache});
  }
  environment_ = host_->environment();
  plan_.driver = environment_.driver;
  for (const DeviceInfo& gpu : environment_.gpus) plan_.gpus.push_back(gpu.uuid);
  orders_ = block_orders(plan_.roles, plan_.blocks * (plan_.extend ? 2 : 1), plan_.seed);
  failures_.resize(plan_.cells.size());
  for (const Cell& cell : cells_a) total_us_ += expected_us(cell);
  total_us_ *= static_cast<double>(plan_.roles.size()) * plan_.blocks;
}

void ArmComparison::take_over(Unfinished from) {
  ComparisonPlan there = from.plan;
  there.arguments = plan_.arguments;
  const auto refuse = [&](const std::string& what) {
    throw EnvironmentError(
        fmt::format("--resume {}: {}; make a new comparison", options_.resume.string(), what));
  };
  if (there.gpus != plan_.gpus) refuse("it was made on other GPUs than these");
  if (there.driver != plan_.driver) {
    refuse(fmt::format("it was made with driver {} and this is {}", there.driver, plan_.driver));
  }
  if (there.found != plan_.found) refuse("a bundle, NCCL or what auto chooses is no longer what it was");
  if (there != plan_) refuse("its plan is not what its command gives now");
  blocks_ = std::move(from.blocks);
  // Rows of the whole blocks, as they were.
  for (const Row& row : from.rows) folder_->add(row);
  done_us_ = total_us_ * static_cast<double>(blocks_.size()) / plan_.blocks;
  log_.sentence(fmt::format("going on after {} whole blocks", blocks_.size()));
}

LaunchRecord ArmComparison::measure_launch(std::uint32_t block, std::uint32_t launch, Role role,
                                           std::vector<Row>& rows) {
  const std::string where = fmt::format("block {} of {}, {}", block + 1, orders_.size(), name_of(role));
  log_.progress(done_us_, total_us_, where + ": starting workers");
  const Launched launched = host_->launch(role);
  Backend& backend = *launched.backend;
  // Who the workers themselves say they run on: the plan's word would prove nothing.
  LaunchRecord record{.role = role, .driver = launched.driver, .gpus = {}, .times_us = {}, .ran = {}};
  backend.get_ready(cells_[role]);
  const RowContext context{.gpus = static_cast<std::uint32_t>(environment_.gpus.size()),
                           .launch = launch,
                           .limits = environment_.limits};
  host_->begin_watch(launched.gpus);
  const std::vector<Cell>& cells = cells_[role];
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (interrupt_.arrived()) throw Interrupted();
    const Cell& cell = cells[i];
    log_.progress(done_us_, total_us_, fmt::format("{}: {}", where, plan_.cells[i].name()));
    done_us_ += expected_us(cell);
    record.times_us.emplace_back();
    record.ran.emplace_back();
    if (!failures_[i].empty()) continue;
    const Outcome outcome = backend.run(cell);
    host_->look();
    rows.push_back(measure(backend, cell, outcome, context));
    if (!outcome.failure.empty()) {
      failures_[i] = outcome.failure;
      log_.sentence(fmt::format("{} does not run in arm {} and is not tried again: {}", plan_.cells[i].name(),
                                name_of(role), outcome.failure));
      continue;
    }
    if (rows.back()->correct == false) {
      throw WrongData(fmt::format("{} is WRONG in arm {}, so there is no verdict: {}", plan_.cells[i].name(),
                                  name_of(role), outcome.wrong));
    }
    record.times_us.back() = launch_summary_us(cell.bytes, outcome.samples_us);
    record.ran.back() = outcome.ran;
  }
  record.gpus = host_->end_watch();
  return record;
}

Block ArmComparison::measure_block(std::uint32_t index, const std::vector<Role>& order,
                                   std::vector<Row>& rows) {
  Block block{.index = index, .launches = {}};
  std::uint32_t launch = index * static_cast<std::uint32_t>(order.size());
  for (const Role role : order) block.launches.push_back(measure_launch(index, launch++, role, rows));
  return block;
}

void ArmComparison::measure_blocks(std::uint32_t until) {
  while (blocks_.size() < until && !interrupted_) {
    const auto index = static_cast<std::uint32_t>(blocks_.size());
    std::vector<Row> rows;
    try {
      Block block = measure_block(index, orders_[index], rows);
      // Only whole blocks are kept, in all files.
      for (const Row& row : rows) folder_->add(row);
      folder_->append(blocks_file, to_json_line(block) + "\n");
      blocks_.push_back(std::move(block));
    } catch (const Interrupted&) {
      interrupted_ = true;
    }
    if (blocks_.size() == pilot_blocks && plan_.blocks > pilot_blocks && !interrupted_)
      say_what_the_pilot_shows();
  }
}

// Five placebos give the spread, and with it what the planned blocks can find.
void ArmComparison::say_what_the_pilot_shows() {
  std::vector<double> spreads;
  for (std::size_t cell = 0; cell < plan_.cells.size(); ++cell) {
    std::vector<double> differences;
    for (const Block& block : blocks_) {
      const auto& a = block.find(Role::a)->times_us[cell];
      const auto& placebo = block.find(Role::placebo)->times_us[cell];
      if (a && placebo) differences.push_back(std::log(*placebo / *a));
    }
    if (differences.size() < pilot_blocks) continue;
    spreads.push_back(paired_estimate(differences).standard_error * std::sqrt(pilot_blocks));
  }
  if (spreads.empty()) return;
  std::ranges::nth_element(spreads, spreads.begin() + static_cast<std::ptrdiff_t>(spreads.size() / 2));
  const double spread = spreads[spreads.size() / 2];
  const Rules there = rules();
  // With fewer no sign-flip test can agree.
  const std::uint64_t needed = std::max<std::uint64_t>(blocks_for(spread, there.latency_margin, there.alpha),
                                                       fewest_blocks(there.alpha));
  log_.sentence(
      fmt::format("after {} blocks: half of the cells vary by {:.2g}% or less between launches of A; {} "
                  "blocks find a difference of {:g}% there",
                  // A difference varies as two launches do.
                  pilot_blocks, spread / std::numbers::sqrt2 * 100, needed, there.latency_margin * 100));
}

void ArmComparison::settle() {
  facts_.clear();
  const std::vector<Cell>& cells_a = cells_[Role::a];
  for (std::size_t i = 0; i < cells_a.size(); ++i) {
    const Cell& a = cells_a[i];
    const Cell& b = cells_[Role::b][i];
    CellFacts facts;
    const CatalogRow* row = find_contender(a.contender);
    facts.is_nccl = row != nullptr && row->source == Source::nccl;
    const std::string& ran_a = blocks_.front().find(Role::a)->ran[i];
    const std::string& ran_b = blocks_.front().find(Role::b)->ran[i];
    const std::string other_ran = ran_a == ran_b ? "" : fmt::format("{} -> {}", ran_a, ran_b);
    if (differ_.other) {
      facts.phrase = other_ran.empty() ? "the same launch shape ran" : other_ran;
      if (facts.is_nccl && other_ran.empty()) facts.phrase = "NCCL chose the same";
    } else if (row != nullptr && row->source == Source::peer) {
      facts.same_code = true;
      facts.phrase = other_ran.empty() ? "the same peer" : other_ran;
    } else if (facts.is_nccl) {
      facts.same_code = !differ_.nccl;
      facts.phrase = nccl_difference(a.nccl, b.nccl, !differ_.nccl, ran_a, ran_b);
    } else {
      const auto function_a = host_->function(Role::a, a);
      const auto function_b = host_->function(Role::b, b);
      if (function_a && function_b) {
        facts.same_code = function_a->sass_sha256 == function_b->sass_sha256;
        facts.phrase = compiled_difference(*function_a, *function_b);
      } else {
        facts.phrase = "the bundles do not both list this function";
      }
    }
    facts_.push_back(std::move(facts));
  }
  comparison_ = compare_blocks(plan_, blocks_, rules(), facts_, differ_);
}

std::string ArmComparison::benchmark_document(Role role) const {
  BenchmarkContext context = host_benchmark_context();
  context.extra = environment_pairs(environment_);
  context.extra["arm"] = name_of(role);
  context.extra["arm_options"] = role == Role::b ? plan_.arm_b : plan_.arm_a;
  std::vector<BenchmarkRecord> records;
  for (std::size_t cell = 0; cell < plan_.cells.size(); ++cell) {
    for (const Block& block : blocks_) {
      const LaunchRecord* launch = block.find(role);
      if (launch == nullptr || !launch->times_us[cell]) continue;
      // A launch is one wall-clock figure; compare.py asks for a CPU time and gets the same.
      records.push_back({.name = plan_.cells[cell].name(),
                         .family_index = static_cast<std::int64_t>(cell),
                         .repetition_index = block.index,
                         .repetitions = static_cast<std::int64_t>(blocks_.size()),
                         .error = {},
                         .real_time_us = *launch->times_us[cell],
                         .cpu_time_us = *launch->times_us[cell],
                         .counters = {}});
    }
  }
  return benchmark_json(context, records);
}

void ArmComparison::print() const {
  log_.clear();
  terminal_.out << document_of(*comparison_, options_.format) << std::flush;
}

ExitCode ArmComparison::publish(ExitCode code) {
  folder_->write("benchmark.json", benchmark_document(Role::a));
  folder_->write("benchmark-a.json", benchmark_document(Role::a));
  folder_->write("benchmark-b.json", benchmark_document(Role::b));
  if (comparison_) {
    folder_->write("comparison.json", comparison_json(*comparison_));
    folder_->write("comparison.md", comparison_markdown(*comparison_));
    if (comparison_->failed.empty()) {
      folder_->write("verdicts.csv", verdicts_csv(*comparison_));
      folder_->write("smaller-is-better.json", smaller_is_better_json(*comparison_));
    }
  }
  const bool whole = comparison_.has_value();
  const auto path =
      publish_results(*folder_, environment_, options_.run, started_, host_->hardware_name() + "-compare",
                      {.interrupted = !whole, .exit_code = code, .remarks = log_.sentences()});
  if (whole) {
    log_.sentence(fmt::format("results in {}", path.string()));
  } else {
    log_.sentence(fmt::format("{} whole blocks are kept; `arbench compare --resume {}` goes on",
                              blocks_.size(), path.string()));
  }
  return code;
}

ExitCode ArmComparison::go(const HostMaker& make_host) {
  check();
  std::optional<Unfinished> before;
  if (!options_.resume.empty()) before = read_interrupted(options_.resume);
  folder_ = std::make_unique<ResultsFolder>(options_.run.results);
  host_ =
      make_host(folder_->folder().string(), [this](const std::string& sentence) { log_.sentence(sentence); });
  prepare();
  folder_->write(plan_file, to_json(plan_));
  folder_->write(blocks_file, "");
  if (before) {
    take_over(std::move(*before));
    for (const Block& block : blocks_) folder_->append(blocks_file, to_json_line(block) + "\n");
  }
  log_.sentence(fmt::format("{} cells, {} blocks of {} launches each", plan_.cells.size(), plan_.blocks,
                            plan_.roles.size()));
  try {
    measure_blocks(plan_.blocks);
    if (!interrupted_) settle();
    if (comparison_ && plan_.extend && comparison_->failed.empty() &&
        comparison_->count(Verdict::inconclusive) > 0) {
      log_.sentence(fmt::format("{} cells are open after {} blocks, so the planned extension to {} runs",
                                comparison_->count(Verdict::inconclusive), plan_.blocks, 2 * plan_.blocks));
      total_us_ *= 2;
      comparison_.reset();
      measure_blocks(2 * plan_.blocks);
      if (!interrupted_) settle();
    }
  } catch (const std::exception& error) {
    // What is whole stays, and the sentence says why there is no more.
    if (blocks_.empty()) throw;
    comparison_.reset();
    log_.sentence(error.what());
    const bool wrong = dynamic_cast<const WorkerLost*>(&error) != nullptr ||
                       dynamic_cast<const WrongData*>(&error) != nullptr;
    return publish(wrong ? ExitCode::wrong_data : ExitCode::invalid_environment);
  }
  if (!comparison_) {
    if (blocks_.empty()) throw Interrupted();
    log_.sentence("interrupted");
    return publish(ExitCode::invalid_environment);
  }
  for (std::size_t i = 0; i < failures_.size(); ++i) {
    if (failures_[i].empty()) continue;
    comparison_->remarks.push_back(fmt::format("{} is left out: {}", plan_.cells[i].name(), failures_[i]));
    comparison_->incomplete = true;
  }
  print();
  return publish(exit_code_of(*comparison_, options_.strict));
}

}  // namespace

std::string document_of(const Comparison& comparison, CompareFormat format) {
  switch (format) {
    case CompareFormat::markdown:
      return comparison_markdown(comparison);
    case CompareFormat::json:
      return comparison_json(comparison);
    case CompareFormat::csv:
      return verdicts_csv(comparison);
    case CompareFormat::smaller_is_better:
      return smaller_is_better_json(comparison);
    case CompareFormat::table:
      break;
  }
  return comparison_table(comparison);
}

std::vector<std::string> arguments_to_resume(const fs::path& folder) {
  return read_interrupted(folder).plan.arguments;
}

ExitCode compare_arms(const CompareOptions& options, const Terminal& terminal, const Interrupt& interrupt,
                      Log& log, const HostMaker& make_host) {
  return ArmComparison(options, terminal, interrupt, log).go(make_host);
}

int compare_verb_on(const CompareOptions& options, const Terminal& terminal, const Interrupt& interrupt,
                    const HostMaker& make_host) {
  Log log(terminal.err, terminal.err_is_live);
  const auto end = [&](const std::string& sentence, ExitCode code) {
    log.sentence(sentence);
    return status_of(code);
  };
  try {
    const bool arms = !options.a.empty() || !options.b.empty();
    if (arms && !options.sides.empty()) {
      throw UsageError("give either two arms (--a, --b) or two results folders, not both");
    }
    if (options.static_only) return status_of(compare_bundles(options, terminal, log));
    if (!options.sides.empty()) return status_of(compare_two_runs(options, terminal, log));
    if (!arms) {
      throw UsageError(
          "nothing to compare: give two arms (--a toolkit=12.8 --b toolkit=13.0), two results folders, or "
          "--static "
          "and two bundles");
    }
    return status_of(compare_arms(options, terminal, interrupt, log, make_host));
  } catch (const UsageError& error) {
    return end(error.what(), ExitCode::usage);
  } catch (const WorkerLost& error) {
    return end(error.what(), ExitCode::wrong_data);
  } catch (const WrongData& error) {
    return end(error.what(), ExitCode::wrong_data);
  } catch (const Interrupted&) {
    return end("interrupted before the first whole block; nothing is kept", ExitCode::invalid_environment);
  } catch (const std::exception& error) {
    return end(error.what(), ExitCode::invalid_environment);
  }
}

int compare_verb(const CompareOptions& options, const Terminal& terminal, const Interrupt& interrupt) {
  return compare_verb_on(options, terminal, interrupt, [&](const std::string& log_folder, const Say& say) {
    return std::make_unique<GpuHost>(options.run, log_folder, interrupt, say);
  });
}

}  // namespace arb
