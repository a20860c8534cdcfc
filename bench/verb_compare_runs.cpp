#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "attribution.h"
#include "compare.h"
#include "measure.h"
#include "results_folder.h"
#include "text.h"

namespace arb {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t fewest_launches = 3;

// A finished run with what comparing needs of its environment.
struct Side {
  std::vector<Row> rows;
  RunMachine machine;
};

Side read_side(const fs::path& folder) {
  try {
    PublishedRun run = read_results(folder);
    std::error_code error;
    if (fs::is_regular_file(folder / "plan.json", error)) {
      throw EnvironmentError(fmt::format(
          "{} is itself a comparison: its launches belong to different arms; give folders of `arbench run`",
          folder.string()));
    }
    if (run.interrupted) {
      throw EnvironmentError(
          fmt::format("{} was interrupted, so its launches are not whole; run it again", folder.string()));
    }
    std::ifstream file(folder / "environment.json", std::ios::binary);
    const nlohmann::json environment = nlohmann::json::parse(file);
    Side side{.rows = std::move(run.rows), .machine = {}};
    RunMachine& machine = side.machine;
    if (environment.contains("driver")) machine.driver = environment.at("driver");
    for (const auto& gpu : environment.at("gpus")) machine.gpus.push_back(gpu.at("uuid"));
    if (environment.contains("gpus_during")) {
      for (const auto& gpu : environment.at("gpus_during"))
        machine.during.push_back(gpu_during_from_json(gpu.dump()));
    }
    for (const Row& row : side.rows) {
      if (!row.timed()) continue;
      ++machine.rows;
      if (std::ranges::count(split_list(row->flags, ' '), "throttled") > 0) ++machine.throttled_rows;
    }
    return side;
  } catch (const ForeignResults& error) {
    throw EnvironmentError(error.what());
  } catch (const RecordError& error) {
    throw EnvironmentError(fmt::format("{}/environment.json: {}", folder.string(), error.what()));
  } catch (const nlohmann::json::exception& error) {
    throw EnvironmentError(
        fmt::format("{}/environment.json is cut or corrupt ({})", folder.string(), error.what()));
  }
}

std::string variant_of(const RowFields& row) {
  if (!row.nccl.empty()) return row.nccl;
  return row.compiler.empty() ? row.toolkit : row.toolkit + "-" + row.compiler;
}

ComparedKey key_of(const RowFields& row) {
  return {.contender = row.contender,
          .contender_b = row.contender,
          .dtype = row.dtype,
          .ranks = row.ranks,
          .bytes = row.bytes,
          .place = row.place,
          .mode = row.mode,
          .cache = row.cache};
}

// The name of a cell across runs, with what its contender was built from (measure.h, cell_name).
std::string full_name(const RowFields& row) {
  return fmt::format("{}/{}/{}/n{}/{}/{}/{}/{}", row.contender, variant_of(row), name_of(row.dtype),
                     row.ranks, row.bytes, name_of(row.place), name_of(row.mode), name_of(row.cache));
}

// One cell of one run.
struct Launches {
  ComparedKey key;
  std::string name;
  std::string variant;
  std::string ran;
  std::vector<double> times_us;
};

// What makes a cell the same in two runs, whatever it was built from. Another world or another number of calls in a
// graph is another measurement.
std::string joining_name(const RowFields& row) {
  return fmt::format("{}/{}/k{}", key_of(row).name(), row.world, row.calls_per_graph);
}

// By the name that joins the cell, then by variant.
using Cells = std::map<std::string, std::map<std::string, Launches>>;

Cells cells_of(const Side& side, const std::string& folder) {
  Cells cells;
  for (const Row& row : side.rows) {
    if (row->evidence != Evidence::measured) {
      throw EnvironmentError(fmt::format("{} holds {} rows, which have no time that could be compared",
                                         folder, name_of(row->evidence)));
    }
    if (row->correct == false) {
      throw EnvironmentError(
          fmt::format("{} holds wrong data ({}), so it has no verdict", folder, full_name(row.get())));
    }
    if (!row.timed()) continue;
    if (!row->correct) {
      throw EnvironmentError(fmt::format(
          "{} holds data that nobody checked ({}), so it has no verdict; run it again without -c 0", folder,
          full_name(row.get())));
    }
    Launches& launches = cells[joining_name(row.get())][variant_of(row.get())];
    launches.key = key_of(row.get());
    launches.name = full_name(row.get());
    launches.variant = variant_of(row.get());
    launches.ran = row->ran;
    launches.times_us.push_back(*row->p50_us);
  }
  if (cells.empty()) throw EnvironmentError(fmt::format("{} holds no row with a time", folder));
  for (const auto& [name, variants] : cells) {
    for (const auto& [variant, launches] : variants) {
      if (launches.times_us.size() >= fewest_launches) continue;
      throw EnvironmentError(
          fmt::format("{} has {} launches of {}, and a comparison needs {} or more; make it with `arbench "
                      "run --launches {}`",
                      folder, launches.times_us.size(), launches.name, fewest_launches, fewest_launches));
    }
  }
  return cells;
}

// "threads"; empty where nothing was measured.
std::string world_of(const Side& side) {
  return side.rows.empty() ? "" : side.rows.front()->world;
}

// What nights of one machine differ by, as a standard deviation, while fewer than five of them show it.
constexpr double drift_before_five_nights = 0.01;

// Times of earlier nights on the same machine in the same world, by full name of the cell; one line a night
// (docs/nightly.md). A lone bad night that a good one followed was drift. Several in a row were a regression, or are one
// still, and with it in the estimate of drift the next one would pass for drift.
std::map<std::string, std::vector<double>> read_history(const fs::path& path, const RunMachine& machine,
                                                        const std::string& world) {
  std::map<std::string, std::vector<double>> times;
  std::vector<std::map<std::string, double>>
      doubtful;  // nights from the first bad one since the last good one
  if (fs::is_directory(path)) throw UsageError(fmt::format("--history {}: it is a folder", path.string()));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UsageError(fmt::format("--history {}: there is no such file", path.string()));
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    try {
      const nlohmann::json night = nlohmann::json::parse(line);
      if (night.at("driver") != machine.driver ||
          night.at("gpus").get<std::vector<std::string>>() != machine.gpus ||
          night.value("world", world) != world)
        continue;
      // A pinned night is what should be from then on, and what was before says nothing.
      const bool pinned = night.contains("pinned") && night.at("pinned") == true;
      if (pinned) times.clear();
      if (pinned) doubtful.clear();
      const bool good = pinned || night.at("good") == true;
      if (!good && night.at("good") != false) continue;  // not judged yet: the night that is compared
      std::map<std::string, double> cells;
      for (const auto& [name, time] : night.at("cells").items()) {
        const double us = time;
        if (!(us > 0))
          throw EnvironmentError(
              fmt::format("--history {}: line {} has a time that is not positive", path.string(), number));
        cells[name] = us;
      }
      doubtful.push_back(std::move(cells));
      if (!good) continue;
      if (doubtful.size() > 2) doubtful.erase(doubtful.begin(), doubtful.end() - 1);
      for (const auto& of_night : doubtful) {
        for (const auto& [name, us] : of_night) times[name].push_back(us);
      }
      doubtful.clear();
    } catch (const nlohmann::json::exception& error) {
      throw EnvironmentError(fmt::format("--history {}: line {} is no night of ours ({}); remove it to go on",
                                         path.string(), number, one_line(error.what(), 100)));
    }
  }
  return times;
}

}  // namespace

ExitCode compare_two_runs(const CompareOptions& options, const Terminal& terminal, Log& log) {
  if (options.sides.size() != 2) throw UsageError("give two results folders, or two arms with --a and --b");
  if (options.attribute) {
    throw UsageError("--attribute needs launches of crossed arms, so it goes with --a and --b");
  }
  const Side side_a = read_side(options.sides[0]);
  const Side side_b = read_side(options.sides[1]);
  const Cells cells_a = cells_of(side_a, options.sides[0]);
  const Cells cells_b = cells_of(side_b, options.sides[1]);
  std::map<std::string, std::vector<double>> history;
  if (!options.history.empty()) history = read_history(options.history, side_b.machine, world_of(side_b));

  std::vector<UnpairedCell> cells;
  std::size_t without = 0;
  std::set<std::string> variants_a;
  std::set<std::string> variants_b;
  bool with_drift = false;
  for (const auto& [name, of_a] : cells_a) {
    const auto found = cells_b.find(name);
    if (found == cells_b.end()) {
      ++without;
      continue;
    }
    const auto& of_b = found->second;
    const auto add = [&](const Launches& a, const Launches& b) {
      UnpairedCell cell{.key = a.key, .a_us = a.times_us, .b_us = b.times_us, .history_us = {}, .facts = {}};
      // Several toolkits in one run are several rows: the variant becomes part of the contender's name.
      if (of_a.size() > 1) cell.key.contender = cell.key.contender_b = a.key.contender + " " + a.variant;
      const auto earlier = history.find(b.name);
      if (earlier != history.end()) cell.history_us = earlier->second;
      with_drift = with_drift || cell.history_us.size() >= fewest_history_runs;
      cell.facts.phrase = a.variant == b.variant ? "same " + a.variant : a.variant + " -> " + b.variant;
      if (a.ran != b.ran) cell.facts.phrase += fmt::format(": {} -> {}", a.ran, b.ran);
      variants_a.insert(a.variant);
      variants_b.insert(b.variant);
      cells.push_back(std::move(cell));
    };
    bool any = false;
    for (const auto& [variant, a] : of_a) {
      const auto same = of_b.find(variant);
      if (same == of_b.end()) continue;
      add(a, same->second);
      any = true;
    }
    if (any) continue;
    if (of_a.size() > 1 || of_b.size() > 1) {
      throw UsageError(
          fmt::format("the runs share no toolkit or NCCL of {}, and one of them has several, so it is not "
                      "clear which to compare; "
                      "make runs of one toolkit each (--toolkit)",
                      name));
    }
    add(of_a.begin()->second, of_b.begin()->second);
  }
  if (cells.empty()) {
    throw EnvironmentError(fmt::format(
        "{} and {} have no cell in common: none agrees in contender, type, ranks, size, place, mode, "
        "cache, world and calls a graph",
        options.sides[0], options.sides[1]));
  }
  // Sizes in order, as in every table.
  std::ranges::stable_sort(
      cells, {}, [](const UnpairedCell& cell) { return std::pair(cell.key.contender, cell.key.bytes); });

  Rules rules;
  if (!options.history.empty()) rules.prior_drift = drift_before_five_nights;
  rules.seed = options.run.seed;
  Comparison comparison = compare_runs(cells, check_gates(side_a.machine, side_b.machine), rules);
  comparison.arm_a = options.sides[0];
  comparison.arm_b = options.sides[1];
  // What they were built from where that tells them apart, else their folders.
  const bool by_variant = variants_a != variants_b && variants_a.size() == 1 && variants_b.size() == 1;
  const auto label = [&](const std::set<std::string>& variants, const std::string& folder) {
    if (by_variant) return *variants.begin();
    const fs::path path = fs::absolute(folder).lexically_normal();
    return (path.has_filename() ? path : path.parent_path()).filename().string();
  };
  comparison.label_a = label(variants_a, options.sides[0]);
  comparison.label_b = label(variants_b, options.sides[1]);
  if (without > 0) comparison.remarks.push_back(fmt::format("{} cells of A are not in B", without));
  comparison.remarks.emplace_back(
      with_drift ? "intervals are widened to what nights of the history differ by"
      : options.history.empty()
          ? "there is no history, so nothing is known of drift between the runs"
          : fmt::format(
                "the history has fewer than {} nights, so they are taken to differ by {:g}% until it shows",
                fewest_history_runs, drift_before_five_nights * 100));
  comparison.remarks.emplace_back("unpaired runs have medians of launches at every size and no placebo");
  log.clear();
  terminal.out << document_of(comparison, options.format) << std::flush;
  return exit_code_of(comparison, options.strict);
}

}  // namespace arb
