#include "gate.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <span>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace arb::gate {

extern const char* const argued_csv;  // argued.csv as it was when the program was built

namespace {

using emulator::Change;
using emulator::SiteKind;

constexpr std::uint64_t cover_seed = 1;  // which pairwise cover
// No verification goes through so many run seeds.
constexpr std::uint64_t run_seeds_of_a_seed = 1'000'000'000;

std::span<const Change> changes_of(SiteKind kind) {
  static constexpr std::array ordering{Change::drop, Change::relax, Change::narrow_device,
                                       Change::narrow_block};
  static constexpr std::array drop{Change::drop};
  static constexpr std::array zero{Change::zero};
  static constexpr std::array refill{Change::drop, Change::keep};
  switch (kind) {
    case SiteKind::release:
    case SiteKind::acquire:
      return ordering;
    case SiteKind::slot:
      return zero;
    case SiteKind::refill:
      return refill;
    case SiteKind::previous_kernel:
    case SiteKind::barrier:
    case SiteKind::generation:
      break;
  }
  return drop;
}

std::string_view name_of(SiteKind kind) {
  switch (kind) {
    case SiteKind::release:
      return "release";
    case SiteKind::acquire:
      return "acquire";
    case SiteKind::barrier:
      return "barrier";
    case SiteKind::slot:
      return "slot";
    case SiteKind::refill:
      return "refill";
    case SiteKind::previous_kernel:
      return "previous kernel";
    case SiteKind::generation:
      break;
  }
  return "generation step";
}

std::string replay_text(const std::string& key) {
  return "\n  replay it with arbench verify --emulate --case '" + key + "'";
}

// What replay() takes to run this again.
std::string replay_key(const CatalogRow& row, std::size_t index, std::uint64_t seed) {
  return std::string(row.contender) + "," + std::to_string(index) + "," + std::to_string(seed);
}

std::uint64_t number_from(const std::string& text) {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || text.empty())
    throw std::runtime_error("not a number: \"" + text + "\"");
  return value;
}

}  // namespace

std::uint32_t gate_seeds() {
  constexpr std::uint32_t usual = 20;
  const char* text = std::getenv("ARB_GATE_SEEDS");
  if (text == nullptr) return usual;
  const std::uint64_t value = number_from(text);
  if (value == 0 || value > 100'000) throw std::runtime_error("ARB_GATE_SEEDS is a number from 1 to 100000");
  return static_cast<std::uint32_t>(value);
}

void in_parallel(std::size_t count,
                 const std::function<void(emulator::ProofMachine& machine, std::size_t index)>& work) {
  constexpr unsigned most_threads = 2;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr problem;
  const auto worker = [&] {
    try {
      emulator::ProofMachine machine(2, 1);
      for (std::size_t index = next++; index < count; index = next++) work(machine, index);
    } catch (...) {
      const std::lock_guard lock(mutex);
      problem = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> threads;
  const unsigned extra = std::min(most_threads, std::max(1U, std::thread::hardware_concurrency())) - 1;
  for (unsigned i = 0; i < extra; ++i) threads.emplace_back(worker);
  worker();
  for (std::thread& thread : threads) thread.join();
  if (problem) std::rethrow_exception(problem);
}

std::uint64_t first_run_seed(std::uint64_t users_seed) {
  return 1 + (users_seed - 1) * run_seeds_of_a_seed;
}

GateResult run_gate(const CatalogRow& row, std::uint32_t covers, std::uint32_t first,
                    const Progress& progress, std::uint64_t first_seed) {
  constexpr std::size_t most_failures = 3;
  const std::vector<Scenario> cover = pairwise_cover(row, cover_seed);
  GateResult result;
  std::mutex mutex;
  in_parallel(cover.size(), [&](emulator::ProofMachine& machine, std::size_t index) {
    for (std::uint32_t round = first; round < first + covers; ++round) {
      const std::uint64_t seed = first_seed + index + std::uint64_t{round} * cover.size();
      const ScenarioResult run = run_scenario(machine, cover[index], seed);
      const std::lock_guard lock(mutex);
      ++result.runs;
      if (progress) progress(result.runs, covers * cover.size());
      result.operations += run.operations;
      if (run.failure && result.failures.size() < most_failures)
        result.failures.push_back(describe(cover[index]) + "\n  " + run.failure->text +
                                  replay_text(replay_key(row, index, seed)));
    }
  });
  return result;
}

std::string name_of(const PlantedBug& bug) {
  return bug.mutation.site.label + " (" + std::string(name_of(bug.mutation.site.kind)) +
         "): " + std::string(name_of(bug.mutation.change));
}

std::vector<PlantedBug> planted_bugs() {
  std::vector<PlantedBug> bugs;
  emulator::ProofMachine machine(2, 1);
  for (const CatalogRow& row : catalog()) {
    if (row.source != Source::kernel) continue;
    std::vector<emulator::SiteId> sites;
    for (const Scenario& scenario : pairwise_cover(row, cover_seed))
      for (const emulator::SiteId& site : run_scenario(machine, scenario, 1).sites)
        if (std::find(sites.begin(), sites.end(), site) == sites.end()) sites.push_back(site);
    for (const emulator::SiteId& site : sites)
      for (const Change change : changes_of(site.kind)) {
        const auto same = std::find_if(bugs.begin(), bugs.end(), [&](const PlantedBug& bug) {
          return bug.kernel == row.kernel && bug.mutation.site == site && bug.mutation.change == change;
        });
        if (same != bugs.end())
          same->contenders.push_back(&row);
        else
          bugs.push_back({std::string(row.kernel), {site, change}, {&row}});
      }
  }
  return bugs;
}

PlantedResult try_bug(emulator::ProofMachine& machine, const PlantedBug& bug, std::uint64_t least,
                      std::uint64_t most, std::uint64_t first_seed) {
  std::vector<std::vector<Scenario>> covers;
  covers.reserve(bug.contenders.size());
  for (const CatalogRow* row : bug.contenders) covers.push_back(pairwise_cover(*row, cover_seed));
  PlantedResult result;
  while (result.seeds_tried < least || (result.seeds_caught == 0 && result.seeds_tried < most)) {
    const std::uint64_t trial = result.seeds_tried++;
    const std::vector<Scenario>& cover = covers[trial % covers.size()];
    const std::uint64_t turn = trial / covers.size();
    const std::size_t index = turn % cover.size();
    const std::uint64_t seed = first_seed + turn;
    const ScenarioResult run = run_scenario(machine, cover[index], seed, bug.mutation);
    if (!run.failure) continue;
    if (result.seeds_caught++ == 0)
      result.example =
          run.failure->text +
          replay_text(replay_key(*bug.contenders[trial % covers.size()], index, seed) + "," + name_of(bug));
    ++result.how[std::string(emulator::name_of(run.failure->kind))];
  }
  return result;
}

PlantedTable try_planted_bugs(std::uint32_t seeds, const std::vector<const CatalogRow*>& wanted,
                              const Progress& progress, std::uint64_t first_seed) {
  constexpr std::uint64_t least_a_seed = 4;   // trials of a bug for each gate seed
  constexpr std::uint64_t most_a_seed = 100;  // the same while it is not caught
  PlantedTable table;
  for (PlantedBug& bug : planted_bugs()) {
    const bool takes_part = wanted.empty() || std::ranges::any_of(bug.contenders, [&](const CatalogRow* row) {
                              return std::ranges::find(wanted, row) != wanted.end();
                            });
    if (takes_part) table.lines.push_back({.bug = std::move(bug), .result = {}, .argued = false});
  }
  std::mutex mutex;
  std::size_t done = 0;
  in_parallel(table.lines.size(), [&](emulator::ProofMachine& machine, std::size_t index) {
    PlantedTable::Line& line = table.lines[index];
    line.result = try_bug(machine, line.bug, least_a_seed * seeds, most_a_seed * seeds, first_seed);
    const std::lock_guard lock(mutex);
    ++done;
    if (progress) progress(done, table.lines.size());
  });
  auto argued = argued_bugs();
  for (PlantedTable::Line& line : table.lines) {
    const std::string name = name_of(line.bug);
    line.argued = argued.erase({line.bug.kernel, name}) != 0;
    const bool caught = line.result.seeds_caught != 0;
    if (caught == line.argued) {
      table.problems.push_back(
          line.bug.kernel + ": " + name +
          (caught
               ? " is argued to be harmless, but was caught: " + line.result.example
               : " was never caught in " + std::to_string(line.result.seeds_tried) +
                     " runs: the emulator has a hole, or argued.csv needs the reason why the code is right "
                     "without it"));
    }
  }
  if (!wanted.empty()) return table;
  for (const auto& [bug, argument] : argued)
    table.problems.push_back("argued.csv speaks of " + bug.first + ": " + bug.second +
                             ", which does not exist");
  return table;
}

std::string how_text(const PlantedTable::Line& line) {
  std::string how;
  for (const auto& [kind, count] : line.result.how)
    how += (how.empty() ? "" : "; ") + kind + " " + std::to_string(count);
  return how.empty() && line.argued ? "argued" : how;
}

std::string PlantedTable::csv() const {
  std::string text = "kernel,planted_bug,seeds_tried,seeds_caught,how\n";
  for (const Line& line : lines) {
    text += line.bug.kernel + ',' + name_of(line.bug) + ',' + std::to_string(line.result.seeds_tried) + ',' +
            std::to_string(line.result.seeds_caught) + ',' + how_text(line) + '\n';
  }
  return text;
}

std::string replay(const std::string& what) {
  std::array<std::string, 4> field;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < field.size() && begin <= what.size(); ++i) {
    const std::size_t comma = i + 1 < field.size() ? what.find(',', begin) : std::string::npos;
    field[i] = what.substr(begin, comma - begin);
    begin = comma == std::string::npos ? what.size() + 1 : comma + 1;
  }
  const CatalogRow* row = find_contender(field[0]);
  if (row == nullptr || row->source != Source::kernel)
    throw std::runtime_error("no kernel contender \"" + field[0] + "\"");
  const std::vector<Scenario> cover = pairwise_cover(*row, cover_seed);
  const std::uint64_t index = number_from(field[1]);
  if (index >= cover.size())
    throw std::runtime_error("scenario " + field[1] + " does not exist; " + field[0] + " has 0 to " +
                             std::to_string(cover.size() - 1));
  const Scenario& scenario = cover[index];
  std::optional<emulator::Mutation> mutation;
  if (!field[3].empty()) {
    for (const PlantedBug& bug : planted_bugs())
      if (bug.kernel == row->kernel && name_of(bug) == field[3]) mutation = bug.mutation;
    if (!mutation) throw std::runtime_error("no planted bug \"" + field[3] + "\"");
  }
  emulator::ProofMachine machine(2, 1);
  const ScenarioResult run = run_scenario(machine, scenario, number_from(field[2]), mutation);
  return describe(scenario) + "\n  " + std::to_string(run.operations) + " machine calls, " +
         (run.failure ? run.failure->text : "no failure");
}

std::map<std::pair<std::string, std::string>, std::string> argued_bugs() {
  std::istringstream file(argued_csv);
  std::string line;
  std::getline(file, line);
  if (line != "kernel,planted_bug,argument") throw std::runtime_error("argued.csv has other columns");
  std::map<std::pair<std::string, std::string>, std::string> result;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(',');
    const std::size_t second = line.find(',', first + 1);
    if (first == std::string::npos || second == std::string::npos || line.size() - second < 20)
      throw std::runtime_error("argued.csv: a line is not kernel,planted_bug,argument: " + line);
    result[{line.substr(0, first), line.substr(first + 1, second - first - 1)}] = line.substr(second + 1);
  }
  return result;
}

}  // namespace arb::gate
