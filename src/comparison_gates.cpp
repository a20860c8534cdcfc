#include "comparison_gates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/math/distributions/hypergeometric.hpp>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "text.h"

namespace arb {
namespace {

Gate passed(std::string name, std::string sentence = {}) {
  return {.name = std::move(name), .state = GateState::passed, .sentence = std::move(sentence)};
}
Gate failed(std::string name, std::string sentence) {
  return {.name = std::move(name), .state = GateState::failed, .sentence = std::move(sentence)};
}
Gate unchecked(std::string name, std::string sentence) {
  return {.name = std::move(name), .state = GateState::unchecked, .sentence = std::move(sentence)};
}

// Calls visit(block, launch) for every launch of the two arms and the placebo.
template <typename Visitor>
void for_each_launch(std::span<const Block> blocks, Visitor&& visit) {
  for (const Block& block : blocks) {
    for (const LaunchRecord& launch : block.launches) visit(block, launch);
  }
}

Gate gpus_gate(const ComparisonPlan& plan, std::span<const Block> blocks) {
  Gate gate = passed("gpus");
  bool known = !plan.gpus.empty();
  for_each_launch(blocks, [&](const Block& block, const LaunchRecord& launch) {
    std::vector<std::string> uuids;
    for (const GpuDuring& gpu : launch.gpus) uuids.push_back(gpu.uuid);
    if (uuids.empty() || std::ranges::count(uuids, std::string()) > 0) {
      known = false;
    } else if (uuids != plan.gpus && gate.state == GateState::passed) {
      gate = failed("gpus", fmt::format("block {} ran on other GPUs ({}) than the plan's ({})", block.index,
                                        enumerate(uuids), enumerate(plan.gpus)));
    }
  });
  if (gate.state == GateState::passed && !known) {
    return unchecked("gpus", "the GPUs did not say who they are");
  }
  return gate;
}

Gate driver_gate(const ComparisonPlan& plan, std::span<const Block> blocks) {
  Gate gate = passed("driver");
  bool known = !plan.driver.empty();
  for_each_launch(blocks, [&](const Block& block, const LaunchRecord& launch) {
    if (launch.driver.empty()) known = false;
    if (!launch.driver.empty() && known && launch.driver != plan.driver && gate.state == GateState::passed) {
      gate = failed("driver", fmt::format("block {} ran on driver {} and the plan on {}", block.index,
                                          launch.driver, plan.driver));
    }
  });
  if (gate.state == GateState::passed && !known)
    return unchecked("driver", "the driver's version is not known");
  return gate;
}

constexpr std::array clocks = {std::pair{&GpuDuring::sm_clock_mhz, "SM"},
                               std::pair{&GpuDuring::memory_clock_mhz, "memory"}};

// What is wrong with two mean clocks, one sentence; empty where they are near enough.
std::string clocks_apart(double mean_a, double mean_b, const char* name, std::size_t rank) {
  if (std::abs(mean_b / mean_a - 1) <= most_clock_difference) return {};
  return fmt::format(
      "the {} clock of rank {} was {:.0f} MHz under A and {:.0f} MHz under B, more than {:.0f}% apart", name,
      rank, mean_a, mean_b, most_clock_difference * 100);
}

// Mean clocks of A's launches (placebo included) against B's, GPU by GPU.
Gate clocks_gate(const ComparisonPlan& plan, std::span<const Block> blocks) {
  bool known = !plan.gpus.empty();
  for (std::size_t rank = 0; rank < plan.gpus.size(); ++rank) {
    for (const auto& [member, name] : clocks) {
      double sum_a = 0;
      double sum_b = 0;
      std::size_t count_a = 0;
      std::size_t count_b = 0;
      for_each_launch(blocks, [&](const Block&, const LaunchRecord& launch) {
        if (rank >= launch.gpus.size() || !(launch.gpus[rank].*member)) {
          known = false;
          return;
        }
        const double clock = *(launch.gpus[rank].*member);
        if (launch.role == Role::b) {
          sum_b += clock;
          ++count_b;
        } else if (launch.role == Role::a || launch.role == Role::placebo) {
          sum_a += clock;
          ++count_a;
        }
      });
      if (count_a == 0 || count_b == 0) continue;
      const double mean_a = sum_a / static_cast<double>(count_a);
      const double mean_b = sum_b / static_cast<double>(count_b);
      const std::string apart = clocks_apart(mean_a, mean_b, name, rank);
      if (!apart.empty()) return failed("clocks", apart);
    }
  }
  return known ? passed("clocks") : unchecked("clocks", "NVML gave no clocks in some launches");
}

// Two-sided p of Fisher's exact test for `hits_a` of `of_a` against `hits_b` of `of_b`.
double fisher_p(unsigned hits_a, unsigned of_a, unsigned hits_b, unsigned of_b) {
  const boost::math::hypergeometric_distribution<double> spread(hits_a + hits_b, of_a, of_a + of_b);
  const double here = boost::math::pdf(spread, hits_a);
  const auto [least, most] = boost::math::support(spread);
  double p = 0;
  for (unsigned hits = static_cast<unsigned>(least); hits <= static_cast<unsigned>(most); ++hits) {
    const double chance = boost::math::pdf(spread, hits);
    if (chance <= here * (1 + 1e-9)) p += chance;
  }
  return std::min(1.0, p);
}

// In how many launches of A (placebo included) and of B something was seen.
struct Hits {
  unsigned in_a = 0;
  unsigned of_a = 0;
  unsigned in_b = 0;
  unsigned of_b = 0;

  void count(Role role, bool hit) {
    if (role != Role::a && role != Role::b && role != Role::placebo) return;
    ++(role == Role::b ? of_b : of_a);
    if (hit) ++(role == Role::b ? in_b : in_a);
  }
  // What comes as often under both arms slows both.
  [[nodiscard]] bool keep_to_an_arm() const { return fisher_p(in_a, of_a, in_b, of_b) < gate_alpha; }
  [[nodiscard]] std::string text() const {
    return fmt::format("in {} of {} launches of A and in {} of {} of B", in_a, of_a, in_b, of_b);
  }
};

Gate events_gate(std::span<const Block> blocks) {
  bool known = true;
  std::set<std::string> events;
  for_each_launch(blocks, [&](const Block&, const LaunchRecord& launch) {
    if (launch.gpus.empty()) known = false;
    for (const GpuDuring& gpu : launch.gpus) {
      if (!gpu.events) known = false;
      if (gpu.events) events.insert(gpu.events->begin(), gpu.events->end());
    }
  });
  for (const std::string& event : events) {
    Hits hits;
    for_each_launch(blocks, [&](const Block&, const LaunchRecord& launch) {
      hits.count(launch.role, std::ranges::any_of(launch.gpus, [&](const GpuDuring& gpu) {
                   return gpu.events && std::ranges::count(*gpu.events, event) > 0;
                 }));
    });
    if (hits.keep_to_an_arm())
      return failed("clock_events", fmt::format("the clock event {} came {}", event, hits.text()));
  }
  return known ? passed("clock_events") : unchecked("clock_events", "NVML gave no clock event reasons");
}

// Links count what they have put right by sending again. Each such error delays one sample of many, so a few of them
// are told of but move no median; what keeps to an arm, or comes more than once a cell, is an illness.
Gate errors_gate(const ComparisonPlan& plan, std::span<const Block> blocks) {
  bool known = true;
  std::string many;
  Hits hits;
  std::uint64_t sum = 0;
  for_each_launch(blocks, [&](const Block& block, const LaunchRecord& launch) {
    if (launch.gpus.empty()) known = false;
    std::uint64_t errors = 0;
    for (std::size_t rank = 0; rank < launch.gpus.size(); ++rank) {
      const auto& counted = launch.gpus[rank].new_errors;
      if (!counted) known = false;
      errors += counted.value_or(0);
      if (counted.value_or(0) > plan.cells.size() && many.empty()) {
        many = fmt::format("the links of rank {} counted {} new errors in a launch of {} cells in block {}",
                           rank, *counted, plan.cells.size(), block.index);
      }
    }
    hits.count(launch.role, errors > 0);
    sum += errors;
  });
  if (!many.empty()) return failed("hardware_errors", many);
  if (hits.keep_to_an_arm())
    return failed("hardware_errors", fmt::format("the links counted new errors {}", hits.text()));
  if (!known) return unchecked("hardware_errors", "NVML gave no error counters of the links");
  Gate gate = passed("hardware_errors");
  if (sum > 0)
    gate.sentence = fmt::format("the links counted {} new errors that they put right, {}", sum, hits.text());
  return gate;
}

// A against itself must not fall, over all bands, more often than gate_alpha allows.
Gate placebo_gate(std::span<const Judgement> placebo) {
  if (placebo.empty()) return unchecked("placebo", "there was no placebo");
  std::size_t fallen = 0;
  for (const Judgement& judgement : placebo) {
    if (judgement.band_q < gate_alpha) ++fallen;
  }
  if (fallen == 0) return passed("placebo");
  return failed(
      "placebo",
      fmt::format("A differs from A itself in {} of {} cells, so this machine is not steady enough now",
                  fallen, placebo.size()));
}

// --- two finished runs

Gate clocks_gate(const RunMachine& a, const RunMachine& b) {
  bool known = !a.during.empty() && a.during.size() == b.during.size();
  for (std::size_t rank = 0; known && rank < a.during.size(); ++rank) {
    for (const auto& [member, name] : clocks) {
      const auto& mean_a = a.during[rank].*member;
      const auto& mean_b = b.during[rank].*member;
      if (!mean_a || !mean_b) {
        known = false;
        break;
      }
      const std::string apart = clocks_apart(*mean_a, *mean_b, name, rank);
      if (!apart.empty()) return failed("clocks", apart);
    }
  }
  return known ? passed("clocks") : unchecked("clocks", "a run does not say what its clocks were");
}

bool knows_events(const RunMachine& run) {
  return !run.during.empty() &&
         std::ranges::all_of(run.during, [](const GpuDuring& gpu) { return gpu.events.has_value(); });
}

// Rows of one launch are throttled together, so that Fisher's test of rows fails rather too soon than too late.
Gate events_gate(const RunMachine& a, const RunMachine& b) {
  std::string sentence;
  if (a.throttled_rows + b.throttled_rows > 0) {
    sentence = fmt::format("{} of {} rows of A and {} of {} of B were measured while a GPU was held back",
                           a.throttled_rows, a.rows, b.throttled_rows, b.rows);
    if (fisher_p(a.throttled_rows, a.rows, b.throttled_rows, b.rows) < gate_alpha)
      return failed("clock_events", sentence);
  }
  if (!knows_events(a) || !knows_events(b))
    return unchecked("clock_events", "a run does not say what held its clocks back");
  return passed("clock_events", sentence);
}

Gate errors_gate(const RunMachine& a, const RunMachine& b) {
  bool known = !a.during.empty() && !b.during.empty();
  std::vector<std::string> told;
  for (const auto& [run, name] : {std::pair{&a, "A"}, std::pair{&b, "B"}}) {
    for (std::size_t rank = 0; rank < run->during.size(); ++rank) {
      const auto& errors = run->during[rank].new_errors;
      if (!errors) known = false;
      if (errors.value_or(0) == 0) continue;
      told.push_back(fmt::format("the links of rank {} counted {} new errors in {} rows of {}", rank, *errors,
                                 run->rows, name));
      if (*errors > run->rows) return failed("hardware_errors", told.back());
    }
  }
  if (!known) return unchecked("hardware_errors", "a run does not say what errors its links counted");
  return passed("hardware_errors", fmt::format("{}", fmt::join(told, ", ")));
}

}  // namespace

std::vector<Gate> check_gates(const RunMachine& a, const RunMachine& b) {
  Gate gpus = passed("gpus");
  if (a.gpus.empty() || b.gpus.empty()) {
    gpus = unchecked("gpus", "a run does not say which GPUs it had");
  } else if (a.gpus != b.gpus) {
    gpus = failed(
        "gpus", fmt::format("A was measured on {} and B on {}, so a difference would be that of the machines",
                            enumerate(a.gpus), enumerate(b.gpus)));
  }
  Gate driver = passed("driver");
  if (a.driver.empty() || b.driver.empty()) {
    driver = unchecked("driver", "a run does not say which driver it had");
  } else if (a.driver != b.driver) {
    driver.sentence = fmt::format("it changed from {} to {} between the runs", a.driver, b.driver);
  }
  return {gpus, driver, clocks_gate(a, b), events_gate(a, b), errors_gate(a, b)};
}

std::vector<Gate> check_gates(const ComparisonPlan& plan, std::span<const Block> blocks,
                              std::span<const Judgement> placebo) {
  return {gpus_gate(plan, blocks), driver_gate(plan, blocks), clocks_gate(plan, blocks),
          events_gate(blocks),     errors_gate(plan, blocks), placebo_gate(placebo)};
}

std::string failed_gates(std::span<const Gate> gates) {
  std::vector<std::string> sentences;
  for (const Gate& gate : gates) {
    if (gate.state == GateState::failed) sentences.push_back(gate.sentence);
  }
  return fmt::format("{}", fmt::join(sentences, "; "));
}

std::vector<std::string> unchecked_gates(std::span<const Gate> gates) {
  std::vector<std::string> names;
  for (const Gate& gate : gates) {
    if (gate.state == GateState::unchecked) names.push_back(gate.name);
  }
  return names;
}

}  // namespace arb
