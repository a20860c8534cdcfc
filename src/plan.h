// Which cells a run visits, and in which order. Pure: the same sweep on the same machine gives the same plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cell.h"
#include "errors.h"
#include "tuning.h"
#include "types.h"

namespace arb {

// What the user asked for.
struct Sweep {
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  std::uint64_t factor = 2;      // >= 2; each size is the one before times this
  std::uint64_t step_bytes = 0;  // not 0: each size is the one before plus this, and factor is not used
  std::vector<Dtype> dtypes = {Dtype::bf16};
  std::vector<std::string> contenders;  // catalog names; empty: all
  std::vector<std::string> toolkits;    // "12.8" or "12.8-nvrtc"; empty: all
  std::vector<Place> places = {Place::out};
  std::vector<Mode> modes = {Mode::pipelined, Mode::isolated};
  std::vector<Cache> caches = {Cache::warm};
  std::optional<std::uint32_t> samples;
  std::optional<std::uint32_t> warmups;
  std::uint64_t seed = 1;
  bool check = true;
};

// What there is to ask for.
struct Machine {
  Evidence evidence = Evidence::emulated;
  std::uint32_t ranks = 0;
  std::uint32_t island_ranks =
      0;  // ranks [k * island_ranks, (k + 1) * island_ranks) are close; 0: no islands
  std::vector<std::string> bundles;  // names, without support; none when emulated
  std::vector<std::string> nccls;    // versions; none when emulated
  std::map<std::string, std::string> nccl_window_problems =
      {};                               // why one has no symmetric windows; only those
  std::optional<Tuning> tuning = {};    // what Source::chosen chooses by; empty: the row's own rule
  std::vector<std::string> peers = {};  // libraries that --peer names
  std::string peer_problem = {};        // why none of them can take part in this run, one sentence
};

struct Plan {
  std::vector<Cell> cells;
  std::vector<std::string> remarks;  // one sentence each: what was asked for and is left out, and why
};

// Size bounds that a run takes when the user gives none.
struct SizeRange {
  std::uint64_t min_bytes;
  std::uint64_t max_bytes;
};
constexpr SizeRange default_sizes(Evidence evidence) {
  return {1u << 10, evidence == Evidence::emulated ? 1u << 20 : 256u << 20};
}

// K, the calls in one captured graph. Emulated cells make 3 calls: enough for every scratch slot to be used
// again.
std::uint32_t calls_per_graph(std::uint64_t message_bytes, Evidence evidence);
// How many samples a cell takes when the user gives no number: few where a call is long, so that a sweep from
// 1K to 256M over 14 contender columns stays below 4 minutes.
std::uint32_t default_samples(std::uint64_t message_bytes, Mode mode, Evidence evidence);
std::uint32_t default_warmups(std::uint64_t message_bytes, Mode mode, Evidence evidence);
// A rough guess of what a cell takes, for the time left and for deadlines, in microseconds.
double expected_us(const Cell& cell);

// The sizes of a sweep in ascending order, in bytes. Throws UsageError where min > max, factor < 2, min = 0,
// or a size is no multiple of an element of one of the dtypes.
std::vector<std::uint64_t> sizes_of(const Sweep& sweep);
// The bundles that `wanted` names ("12.8", "12.8-nvrtc"; empty: all toolkits). A toolkit by its bare version
// means its NVRTC bundle where there is one, because every toolkit can have that. Throws UsageError on a name
// that is not there.
std::vector<std::string> select_bundles(const std::vector<std::string>& wanted,
                                        const std::vector<std::string>& bundles);

// Throws UsageError where one of the contenders asked for is a peer library's, and that is not among `peers`.
void check_peers(const std::vector<std::string>& contenders, const std::vector<std::string>& peers);
// Throws UsageError where the sweep is wrong on any machine: its sizes, or a contender that does not exist.
void check_sweep(const Sweep& sweep);
// The cells, ordered dtype, size, contender, toolkit or NCCL, cache, place, mode. Size comes before contender
// for three reasons: the table's blocks (one a size, the best marked) fill one after the other, contenders
// that are compared run within seconds of each other, and buffers grow once a size. What an NCCL is too old for is
// left out unless the sweep names it: its cells are then refused one by one. A peer takes part only where it is
// there. Throws UsageError when a name is unknown (and suggests the nearest), or nothing is left to run.
Plan make_plan(const Sweep& sweep, const Machine& machine);

}  // namespace arb
