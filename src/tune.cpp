#include "tune.h"

#include <arb/abi.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <random>
#include <system_error>

#include "plan.h"
#include "stats.h"
#include "text.h"

namespace arb {
namespace {

// Few samples tell candidates apart that differ by more than some percent; the others meet again.
constexpr std::uint32_t search_samples = 7;
constexpr std::uint32_t search_warmups = 1;

template <class T>
void shuffle(std::vector<T>& list, std::mt19937_64& random) {
  // Not std::shuffle: a seed gives the same order with every standard library.
  for (std::size_t left = list.size(); left > 1; --left) std::swap(list[left - 1], list[random() % left]);
}

double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  return quantile_of_sorted(values, 0.5);
}

struct Candidate {
  const CatalogRow* row;
  LaunchShape shape;
  double us = 0;         // in the launch that searches
  std::string ran = {};  // there
};

// The launch shape in what a backend says ran ("264x512", "emulated 1x128"): it cuts grids to what is resident.
std::optional<LaunchShape> shape_in(const std::string& ran) {
  const std::size_t begin = ran.rfind(' ') == std::string::npos ? 0 : ran.rfind(' ') + 1;
  const std::size_t cross = ran.find('x', begin);
  LaunchShape shape{};
  if (cross == std::string::npos) return std::nullopt;
  const auto read = [](const char* first, const char* last, std::uint32_t& number) {
    const auto [end, error] = std::from_chars(first, last, number);
    return error == std::errc() && end == last;
  };
  const char* const text = ran.data();
  if (!read(text + begin, text + cross, shape.blocks) ||
      !read(text + cross + 1, text + ran.size(), shape.threads))
    return std::nullopt;
  return shape;
}

class Search {
 public:
  Search(const TuneAsk& ask, const TuneHooks& hooks) : ask_(ask), hooks_(hooks), random_(ask.seed) {}
  std::vector<SizeResult> go();

 private:
  [[nodiscard]] Cell cell_of(const CatalogRow& row, LaunchShape shape, std::uint64_t bytes,
                             bool decides) const;
  struct Measured {
    double us;
    std::string ran;
  };
  std::optional<Measured> measure(Backend& backend, const Cell& cell, std::uint32_t launch);
  std::vector<Candidate> best_of(Backend& backend, std::uint64_t bytes);
  void decide(std::vector<SizeResult>& results);

  const TuneAsk& ask_;
  const TuneHooks& hooks_;
  std::mt19937_64 random_;
  std::vector<const CatalogRow*> rows_;
  // Contender and calls a graph -> failures in a row, in this launch: what cannot run 20 calls may run 3.
  std::map<std::pair<std::string, std::uint32_t>, int> failures_;
  double done_us_ = 0;
  double total_us_ = 0;
};

Cell Search::cell_of(const CatalogRow& row, LaunchShape shape, std::uint64_t bytes, bool decides) const {
  Cell cell;
  cell.contender = row.contender;
  const bool is_nccl = row.source == Source::nccl;
  cell.bundle = is_nccl ? "" : ask_.bundle;
  cell.nccl = is_nccl ? ask_.nccl : "";
  cell.dtype = ask_.dtype;
  cell.ranks = ask_.ranks;
  cell.island_ranks = row.needs_islands ? ask_.island_ranks : 0;
  cell.bytes = bytes;
  cell.calls_per_graph = calls_per_graph(bytes, Evidence::measured);
  cell.samples = decides ? default_samples(bytes, Mode::pipelined, Evidence::measured) : search_samples;
  cell.warmups = decides ? default_warmups(bytes, Mode::pipelined, Evidence::measured) : search_warmups;
  cell.seed = ask_.seed;
  cell.blocks = shape.blocks;
  cell.threads = shape.threads;
  return cell;
}

// Empty where the cell did not run right; its contender is left alone in such graphs once that was often.
std::optional<Search::Measured> Search::measure(Backend& backend, const Cell& cell, std::uint32_t launch) {
  done_us_ += expected_us(cell);
  int& failures = failures_[{cell.contender, cell.calls_per_graph}];
  if (failures >= most_tune_failures) return std::nullopt;
  hooks_.progress(
      done_us_, std::max(total_us_, done_us_),
      fmt::format("{} {}x{} at {}", cell.contender, cell.blocks, cell.threads, size_name(cell.bytes)));
  const Outcome outcome = hooks_.run(backend, cell);
  hooks_.heard(backend, cell, outcome, launch);
  if (!outcome.failure.empty() || !outcome.correct || outcome.samples_us.empty()) {
    ++failures;
    return std::nullopt;
  }
  failures = 0;
  return Measured{percentiles_of(outcome.samples_us).p50_us, outcome.ran};
}

// The fastest few of a size in the launch that searches.
std::vector<Candidate> Search::best_of(Backend& backend, std::uint64_t bytes) {
  const Team team{ask_.ranks, ask_.island_ranks};
  std::vector<Candidate> tried;
  const auto try_all = [&](std::vector<Candidate> candidates) {
    shuffle(candidates, random_);
    for (Candidate& candidate : candidates) {
      const auto measured = measure(backend, cell_of(*candidate.row, candidate.shape, bytes, false), 0);
      if (!measured) continue;
      // Two shapes that were cut to the same one are one candidate.
      const bool known = std::ranges::any_of(tried, [&](const Candidate& other) {
        return other.row == candidate.row && other.ran == measured->ran;
      });
      if (known) continue;
      candidate.us = measured->us;
      candidate.ran = measured->ran;
      candidate.shape = shape_in(measured->ran).value_or(candidate.shape);
      tried.push_back(candidate);
    }
  };
  std::vector<Candidate> first;
  for (const CatalogRow* row : rows_) first.push_back({row, row->shape(team, bytes)});
  try_all(first);
  if (tried.empty()) return {};
  const double least_us = std::ranges::min(tried, {}, &Candidate::us).us;
  std::vector<Candidate> further;
  for (const Candidate& screened : std::vector<Candidate>(tried)) {
    const std::vector<LaunchShape> grid = shape_grid(*screened.row, team, bytes);
    for (std::size_t i = 1; i < grid.size(); ++i) {  // [0] is the catalog's, measured already
      if (screened.us <= least_us * can_win_factor) {
        further.push_back({screened.row, grid[i]});
      } else {
        done_us_ += expected_us(cell_of(*screened.row, grid[i], bytes, false));
      }
    }
  }
  try_all(further);
  std::ranges::sort(tried, [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
  if (tried.size() <= finalists_of_each) return tried;
  const auto other =
      std::ranges::find_if(tried, [&](const Candidate& candidate) { return candidate.row != tried[0].row; });
  const auto last = tried.begin() + (finalists_of_each - 1);
  if (other != tried.end() && other > last) *last = *other;
  tried.resize(finalists_of_each);
  return tried;
}

// Fresh launches, of which the search saw none: what was only lucky there is not lucky again.
void Search::decide(std::vector<SizeResult>& results) {
  const auto nccl = std::ranges::find(catalog(), Source::nccl, &CatalogRow::source);
  std::map<std::uint64_t, std::vector<double>> nccl_us;
  for (std::uint32_t launch = 1; launch <= ask_.launches; ++launch) {
    const std::unique_ptr<Backend> backend = hooks_.launch();
    failures_.clear();
    for (SizeResult& result : results) {
      std::vector<Finalist*> order;
      for (Finalist& finalist : result.finalists) order.push_back(&finalist);
      if (!ask_.nccl.empty() && nccl != catalog().end()) order.push_back(nullptr);
      shuffle(order, random_);
      for (Finalist* const finalist : order) {
        const Cell cell = finalist == nullptr ? cell_of(*nccl, {0, 0}, result.bytes, true)
                                              : cell_of(*find_contender(finalist->contender), finalist->shape,
                                                        result.bytes, true);
        const auto measured = measure(*backend, cell, launch);
        if (!measured) continue;
        (finalist == nullptr ? nccl_us[result.bytes] : finalist->launches_us).push_back(measured->us);
      }
    }
  }
  for (SizeResult& result : results) {
    // Whoever was not right in every launch is not chosen.
    std::erase_if(result.finalists,
                  [&](const Finalist& finalist) { return finalist.launches_us.size() != ask_.launches; });
    for (Finalist& finalist : result.finalists) finalist.p50_us = middle_of(finalist.launches_us);
    std::ranges::stable_sort(result.finalists, {}, &Finalist::p50_us);
    if (const auto& all = nccl_us[result.bytes]; !all.empty()) result.nccl_us = middle_of(all);
  }
}

std::vector<SizeResult> Search::go() {
  for (const CatalogRow& row : catalog()) {
    const bool wanted =
        ask_.contenders.empty() || std::ranges::find(ask_.contenders, row.contender) != ask_.contenders.end();
    if (wanted && can_be_chosen(row, ask_.island_ranks)) rows_.push_back(&row);
  }
  const Team team{ask_.ranks, ask_.island_ranks};
  for (const std::uint64_t bytes : ask_.sizes) {
    for (const CatalogRow* row : rows_) {
      for (const LaunchShape shape : shape_grid(*row, team, bytes))
        total_us_ += expected_us(cell_of(*row, shape, bytes, false));
      total_us_ += ask_.launches * expected_us(cell_of(*row, {1, 32}, bytes, true));
    }
  }
  std::vector<SizeResult> results;
  {
    const std::unique_ptr<Backend> backend = hooks_.launch();
    for (const std::uint64_t bytes : ask_.sizes) {
      SizeResult result{.bytes = bytes, .finalists = {}};
      for (const Candidate& candidate : best_of(*backend, bytes))
        result.finalists.push_back({std::string(candidate.row->contender), candidate.shape, {}, 0});
      results.push_back(std::move(result));
    }
  }
  decide(results);
  return results;
}

}  // namespace

std::vector<LaunchShape> shape_grid(const CatalogRow& row, const Team& team, std::uint64_t bytes) {
  const std::uint64_t vectors = std::max<std::uint64_t>((bytes + vector_bytes - 1) / vector_bytes, 1);
  std::vector<LaunchShape> grid = {row.shape(team, bytes)};
  const auto add = [&](std::uint64_t blocks, std::uint32_t threads) {
    const LaunchShape shape{static_cast<std::uint32_t>(
                                std::clamp<std::uint64_t>(blocks, 1, static_cast<std::uint64_t>(max_blocks))),
                            threads};
    const bool known = std::ranges::any_of(grid, [&](const LaunchShape& other) {
      return other.blocks == shape.blocks && other.threads == shape.threads;
    });
    if (!known) grid.push_back(shape);
  };
  const std::uint64_t ranks = team.ranks;
  for (const std::uint32_t threads : {32u, 64u, 128u, 256u, 512u}) {
    for (const std::uint64_t vectors_a_thread :
         {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{4}, ranks, 2 * ranks}) {
      const std::uint64_t blocks = (vectors + threads * vectors_a_thread - 1) / (threads * vectors_a_thread);
      // Small blocks in grids that are cut to the most blocks: too few threads to be worth a try.
      if (blocks > 2 * std::uint64_t{max_blocks}) continue;
      add(blocks, threads);
    }
    // Once and twice the multiprocessors of a large GPU.
    if (threads >= 256 && vectors > 64 * std::uint64_t{max_threads}) {
      add(132, threads);
      add(264, threads);
    }
  }
  return grid;
}

std::vector<SizeResult> search(const TuneAsk& ask, const TuneHooks& hooks) {
  return Search(ask, hooks).go();
}

std::vector<TunedSize> winners(const std::vector<SizeResult>& results, Evidence evidence) {
  std::vector<TunedSize> tuned;
  for (const SizeResult& result : results) {
    if (result.finalists.empty()) continue;
    const Finalist& best = result.finalists.front();
    tuned.push_back({.bytes = result.bytes,
                     .contender = best.contender,
                     .shape = best.shape,
                     .p50_us = best.p50_us,
                     .evidence = evidence,
                     .launches = static_cast<std::uint32_t>(best.launches_us.size())});
  }
  return tuned;
}

std::string crossover_table(const std::vector<SizeResult>& results) {
  std::string text = fmt::format("#{:>7}  {:<24} {:>9} {:>9}  {:<24} {:>9} {:>9}\n", "size", "fastest",
                                 "shape", "us", "best other contender", "us", "nccl us");
  std::string crossovers;
  std::string last;
  for (const SizeResult& result : results) {
    const auto shown = [](const std::optional<double>& us) {
      return us ? fmt::format("{:.3f}", *us) : std::string("-");
    };
    if (result.finalists.empty()) {
      text += fmt::format(" {:>7}  {:<24} {:>9} {:>9}  {:<24} {:>9} {:>9}\n", size_name(result.bytes),
                          "none ran right", "-", "-", "-", "-", shown(result.nccl_us));
      continue;
    }
    const Finalist& best = result.finalists.front();
    const auto other = std::ranges::find_if(
        result.finalists, [&](const Finalist& finalist) { return finalist.contender != best.contender; });
    const bool has_other = other != result.finalists.end();
    text += fmt::format(" {:>7}  {:<24} {:>9} {:>9}  {:<24} {:>9} {:>9}\n", size_name(result.bytes),
                        best.contender, fmt::format("{}x{}", best.shape.blocks, best.shape.threads),
                        shown(best.p50_us), has_other ? other->contender : "- (none among the finalists)",
                        has_other ? shown(other->p50_us) : "-", shown(result.nccl_us));
    if (best.contender == last) continue;
    crossovers +=
        fmt::format("{}{} from {}", last.empty() ? "" : ", ", best.contender, size_name(result.bytes));
    last = best.contender;
  }
  return text + fmt::format("# crossovers: {}\n", crossovers.empty() ? "none" : crossovers);
}

}  // namespace arb
