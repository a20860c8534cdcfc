// One row a contender: what it needs, how it is launched, in which order it adds. The only place on the host
// that names a kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schedule.h"
#include "types.h"

namespace arb {

// A kernel of ours, NCCL in one configuration, a choice between kernels of ours that is made when a plan is (no cell
// that runs names such a row), or an operation of a peer library.
enum class Source : std::uint8_t { kernel, nccl, chosen, peer };

// A setting that makes an NCCL configuration: a variable of the environment of its process.
struct NcclVariable {
  std::string_view name;
  std::string_view value;
};

// The message that a peer is asked for.
struct Message {
  Dtype dtype;
  std::uint32_t ranks;
  std::uint64_t bytes;
  Place place;
};

struct CatalogRow {
  std::string_view
      contender;            // stable name, keys results: "two_shot_pull", "two_shot_pull/symmetric", "nccl"
  std::string_view kernel;  // the file kernels/<kernel>.cu; empty for others
  Source source;
  // NCCL's configuration together with `style`; a user's own value of a variable wins. None for kernels.
  std::span<const NcclVariable> nccl_variables;
  std::string_view peer;         // the library that --peer names; empty for others
  std::string_view peer_script;  // the worker's program for it, in scripts/peers
  // Why the peer cannot reduce a message, one sentence; empty: it can. Null for others.
  std::string_view (*peer_refusal)(const Message& message);
  bool
      consumes_input;  // also out of place a call overwrites its input, so each call of a graph needs its own
  Style style;         // staged or symmetric; NCCL symmetric: tensors in memory registered as a window
  bool in_place;       // false: refused, with `in_place_refusal` as the sentence
  std::string_view in_place_refusal;
  // Scratch behind the flags (abi.h) for messages of up to `capacity_bytes`.
  std::uint64_t (*scratch_bytes)(const Team& team, std::uint64_t capacity_bytes);
  bool sentinel;  // scratch starts full of the sentinel (all bits set), not of zeros
  bool
      kernel_fences;  // the protocol rests on kernel boundaries that order as fences of every thread do (docs/emulator.md)
  bool programmatic;   // waits for the kernel before it by itself, so a programmatic edge may start it early
  bool needs_islands;  // at least 2 islands of at least 2 ranks
  bool rank_order;     // adds in rank order, in fp32, and rounds once: the bits of a result are known
  std::string_view sum_order;  // "rank order, fp32, one rounding"
  // Roundings to the dtype on the way to a result, for `ranks`; the error bound follows (reference.h).
  std::uint32_t (*roundings)(std::uint32_t ranks);
  // Launch shape for a message; pure, so that every rank gets the same.
  LaunchShape (*shape)(const Team& team, std::uint64_t bytes);
  // The chain of one call; null: one launch of `shape`. The worker may lower the blocks of a shape.
  Schedule (*schedule)(const Call& call, LaunchShape shape);
  // Payload bytes that the busiest rank must move over links (what it pulls plus what it pushes); empty: not
  // known.
  std::optional<std::uint64_t> (*wire_bytes_theory)(const Team& team, std::uint64_t bytes);
  // Source::chosen: the contender for a message where no tuning says otherwise, one that runs in that place; pure. Else
  // null.
  std::string_view (*choose)(const Team& team, std::uint64_t bytes, Place place);
};

// All contenders, in the order of tables.
std::span<const CatalogRow> catalog();
// The row of a contender by its exact name, or nullptr.
const CatalogRow* find_contender(std::string_view contender);
// Whether the tensors of an NCCL contender lie in a symmetric window, which NCCL has from 2.27 on.
bool needs_windows(const CatalogRow& row);
// Why a peer's row does not run where one process holds all ranks.
inline constexpr std::string_view peer_needs_processes =
    "a peer runs one process a rank; add --world processes";
// Whether what runs for a row is a kernel of ours, from a bundle.
bool runs_kernels(const CatalogRow& row);
// Why a row cannot reduce such a message, one sentence; empty: nothing is known against it.
std::string_view refusal_of(const CatalogRow& row, const Message& message);
// One call of a contender on one rank.
Schedule schedule_of(const CatalogRow& row, const Call& call, LaunchShape shape);
// The function that a bundle exports for a row: "<kernel>__<dtype>_n<ranks>", ranks 2, 4, 8, else "x".
std::string function_name(const CatalogRow& row, Dtype dtype, std::uint32_t ranks);

}  // namespace arb
