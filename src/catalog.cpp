#include "catalog.h"

#include <arb/abi.h>

#include <algorithm>
#include <array>

namespace arb {
namespace {

constexpr std::string_view in_place_refused_pull =
    "in place would overwrite inputs that peers still read; run it out of place (--place out) or take "
    "one_shot_pull";

std::uint32_t one_rounding(std::uint32_t /*ranks*/) {
  return 1;
}
// NCCL may round every partial sum, in an order of its own.
std::uint32_t rounding_per_addition(std::uint32_t ranks) {
  return ranks - 1;
}

// Enough blocks for a few vectors a thread: a thread that moves one vector pays all of the latency for it.
LaunchShape pull_shape(std::uint64_t bytes_of_part) {
  constexpr std::uint64_t most_blocks = 128;
  const std::uint64_t vectors = (bytes_of_part + vector_bytes - 1) / vector_bytes;
  const std::uint64_t threads = vectors <= 64      ? 64
                                : vectors <= 4096  ? 128
                                : vectors <= 65536 ? 256
                                                   : max_threads;
  const std::uint64_t blocks = std::clamp<std::uint64_t>((vectors + threads - 1) / threads, 1, most_blocks);
  return {static_cast<std::uint32_t>(blocks), static_cast<std::uint32_t>(threads)};
}
LaunchShape one_shot_shape(std::uint32_t /*ranks*/, std::uint64_t bytes) {
  return pull_shape(bytes);
}
LaunchShape two_shot_shape(std::uint32_t ranks, std::uint64_t bytes) {
  return pull_shape(bytes / ranks);
}
LaunchShape no_shape(std::uint32_t /*ranks*/, std::uint64_t /*bytes*/) {
  return {0, 0};
}

std::optional<std::uint64_t> one_shot_wire_bytes(std::uint32_t ranks, std::uint64_t bytes) {
  return (ranks - 1) * bytes;
}
// The busiest rank has the largest shard: it pulls that from every peer, and every other shard from its
// owner.
std::optional<std::uint64_t> two_shot_wire_bytes(std::uint32_t ranks, std::uint64_t bytes) {
  const std::uint64_t vectors = (bytes + vector_bytes - 1) / vector_bytes;
  std::uint64_t most = 0;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t begin = std::min(bytes, vectors * rank / ranks * vector_bytes);
    const std::uint64_t end = std::min(bytes, vectors * (rank + 1) / ranks * vector_bytes);
    most = std::max(most, (ranks - 1) * (end - begin) + bytes - (end - begin));
  }
  return most;
}
std::optional<std::uint64_t> unknown_wire_bytes(std::uint32_t /*ranks*/, std::uint64_t /*bytes*/) {
  return std::nullopt;
}

constexpr std::string_view rank_order = "rank order, fp32, one rounding";

constexpr std::array rows{
    CatalogRow{"one_shot_pull", "one_shot_pull", Source::kernel, Style::staged, true, "", 2, true, rank_order,
               one_rounding, one_shot_shape, one_shot_wire_bytes},
    CatalogRow{"one_shot_pull/symmetric", "one_shot_pull", Source::kernel, Style::symmetric, false,
               in_place_refused_pull, 0, true, rank_order, one_rounding, one_shot_shape, one_shot_wire_bytes},
    CatalogRow{"two_shot_pull", "two_shot_pull", Source::kernel, Style::staged, true, "", 2, true, rank_order,
               one_rounding, two_shot_shape, two_shot_wire_bytes},
    CatalogRow{"two_shot_pull/symmetric", "two_shot_pull", Source::kernel, Style::symmetric, true, "", 2,
               true, rank_order, one_rounding, two_shot_shape, two_shot_wire_bytes},
    CatalogRow{"nccl", "", Source::nccl, Style::staged, true, "", 0, false, "NCCL's choice",
               rounding_per_addition, no_shape, unknown_wire_bytes},
};

}  // namespace

std::span<const CatalogRow> catalog() {
  return rows;
}

const CatalogRow* find_contender(std::string_view contender) {
  const auto* const row = std::ranges::find(rows, contender, &CatalogRow::contender);
  return row == rows.end() ? nullptr : row;
}

std::string function_name(const CatalogRow& row, Dtype dtype, std::uint32_t ranks) {
  const bool specialised = ranks == 2 || ranks == 4 || ranks == 8;
  return std::string(row.kernel) + "__" + std::string(name_of(dtype)) + "_n" +
         (specialised ? std::to_string(ranks) : "x");
}

}  // namespace arb
