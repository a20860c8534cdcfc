// Which contender in which launch shape is fastest at which size, as measured on one machine: what `arbench tune` writes
// and `auto` chooses by. Pure but for the two functions that read and write text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "catalog.h"
#include "errors.h"
#include "types.h"

namespace arb {

// What must be the same for figures to carry over. The driver is no part: it has not been seen to change a choice, and
// a file that every driver update throws away would not be kept.
struct MachineFingerprint {
  std::vector<std::string> gpus;                  // names, by rank
  std::vector<std::vector<std::uint32_t>> peers;  // by rank: the ranks that it reaches directly
  std::vector<int> numa_nodes;                    // by rank; -1: not known

  friend bool operator==(const MachineFingerprint&, const MachineFingerprint&) = default;
};

struct TunedSize {
  std::uint64_t bytes = 0;
  std::string contender;
  LaunchShape shape{};
  double p50_us = 0;  // the median over `launches` fresh launches of the pipelined p50
  Evidence evidence = Evidence::measured;
  std::uint32_t launches = 0;
};

struct Tuning {
  MachineFingerprint machine;
  std::uint32_t ranks = 0;
  std::uint32_t island_ranks = 0;  // 0: no islands
  Dtype dtype = Dtype::bf16;       // what was timed; choices go by bytes and serve all types
  std::string bundle;              // what was timed, "13.0-nvrtc"
  std::vector<TunedSize> sizes;    // ascending, not empty
};

// What `auto` does with a message.
struct Choice {
  std::string_view contender;  // valid while the tuning lives
  LaunchShape shape;           // 0x0: the catalog's
};
// That of the largest tuned size that is not larger than `bytes`; below all, that of the smallest. By the rule of `chooser`
// where there is no tuning (null), and in place where its contender does not run in place: what is tuned is out of place.
// A pure function: the same on every rank.
Choice choice_of(const CatalogRow& chooser, const Tuning* tuning, const Team& team, std::uint64_t bytes,
                 Place place);
// Whether `auto` may choose a contender on a team: kernels of ours that need no tensors in symmetric memory.
bool can_be_chosen(const CatalogRow& row, std::uint32_t island_ranks);

// Whether `chooser` may choose `row` for some team and size; `tuning` may be null.
bool may_choose(const CatalogRow& chooser, const Tuning* tuning, const CatalogRow& row);

// Throws EnvironmentError, a sentence that begins with `name`, when the tuning is for another machine or team.
void check_tuning(const std::string& name, const Tuning& tuning, const MachineFingerprint& machine,
                  std::uint32_t ranks, std::uint32_t island_ranks);
// Strict JSON with a final newline, see docs/tuning.md.
std::string to_json(const Tuning& tuning);
// Throws EnvironmentError, a sentence that begins with `name`, on text that is cut short or no tuning, and on a tuning
// that names a contender that is not there or cannot be chosen, or a shape that cannot be launched.
Tuning tuning_from_json(const std::string& name, const std::string& text);

}  // namespace arb
