#include "tuning.h"

#include <arb/abi.h>
#include <fmt/format.h>

#include <algorithm>

namespace arb {
namespace {

// "2x NVIDIA H200", or all names where they differ.
std::string gpus_text(const std::vector<std::string>& gpus) {
  if (gpus.empty()) return "an emulated machine";
  const bool equal = std::ranges::all_of(gpus, [&](const std::string& name) { return name == gpus.front(); });
  return equal ? fmt::format("{}x {}", gpus.size(), gpus.front()) : fmt::format("{}", fmt::join(gpus, ", "));
}

}  // namespace

Choice choice_of(const CatalogRow& chooser, const Tuning* tuning, const Team& team, std::uint64_t bytes,
                 Place place) {
  if (tuning != nullptr) {
    const auto above = std::ranges::upper_bound(tuning->sizes, bytes, {}, &TunedSize::bytes);
    const TunedSize& chosen = above == tuning->sizes.begin() ? tuning->sizes.front() : *std::prev(above);
    const CatalogRow* const row = find_contender(chosen.contender);
    if (place == Place::out || (row != nullptr && row->in_place)) return {chosen.contender, chosen.shape};
  }
  return {chooser.choose(team, bytes, place), {0, 0}};
}

bool can_be_chosen(const CatalogRow& row, std::uint32_t island_ranks) {
  return row.source == Source::kernel && row.style == Style::staged &&
         (!row.needs_islands || island_ranks != 0);
}

bool may_choose(const CatalogRow& chooser, const Tuning* tuning, const CatalogRow& row) {
  if (chooser.source != Source::chosen) return false;
  const auto in_tuning = [&](auto condition) {
    return tuning != nullptr && std::ranges::any_of(tuning->sizes, condition);
  };
  if (in_tuning([&](const TunedSize& tuned) { return tuned.contender == row.contender; })) return true;
  // The rule applies without a tuning, and in place where a tuned contender does not run.
  const auto needs_rule = [](const TunedSize& tuned) {
    const CatalogRow* const chosen = find_contender(tuned.contender);
    return chosen != nullptr && !chosen->in_place;
  };
  if (tuning != nullptr && !in_tuning(needs_rule)) return false;
  const auto most_ranks = static_cast<std::uint32_t>(max_ranks);
  for (std::uint32_t ranks = tuning == nullptr ? 2 : tuning->ranks;
       ranks <= (tuning == nullptr ? most_ranks : tuning->ranks); ++ranks) {
    for (std::uint64_t bytes = 1; bytes <= 1ull << 40; bytes *= 2) {
      for (const Place place : {Place::out, Place::in}) {
        if (chooser.choose({ranks, 0}, bytes, place) == row.contender) return true;
      }
    }
  }
  return false;
}

void check_tuning(const std::string& name, const Tuning& tuning, const MachineFingerprint& machine,
                  std::uint32_t ranks, std::uint32_t island_ranks) {
  const auto refuse = [&](const std::string& why) {
    return EnvironmentError(
        fmt::format("{} does not fit: {}; `arbench tune` makes one for this machine", name, why));
  };
  if (tuning.machine.gpus != machine.gpus) {
    throw refuse(fmt::format("it was tuned on {}, and this is {}", gpus_text(tuning.machine.gpus),
                             gpus_text(machine.gpus)));
  }
  if (tuning.ranks != ranks)
    throw refuse(fmt::format("it is for {} ranks, and here are {}", tuning.ranks, ranks));
  if (tuning.machine.peers != machine.peers || tuning.machine.numa_nodes != machine.numa_nodes)
    throw refuse("the GPUs of the machine that it was tuned on reach each other in another way");
  if (tuning.island_ranks != island_ranks) {
    throw refuse(fmt::format("it was tuned with islands of {} ranks, and here they have {}",
                             tuning.island_ranks, island_ranks));
  }
}

}  // namespace arb
