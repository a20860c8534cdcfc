// One case of a verification: some thousand calls of a contender under graph replay. Everything about it
// follows from its number, the contender and the team, so that a number replays it.
#pragma once

#include <arb/abi.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog.h"
#include "cell.h"
#include "schedule.h"
#include "types.h"

namespace arb {

struct VerifyCase {
  Dtype dtype = Dtype::bf16;
  std::uint64_t count_elements = 0;
  Place place = Place::out;
  Pattern pattern = Pattern::random;
  // Of the tensors, from a boundary of 16 bytes; in place only the first is used.
  std::uint32_t input_offset_elements = 0;
  std::uint32_t output_offset_elements = 0;
  // One rank whose input is aligned otherwise; none where peers find inputs at the same place.
  std::optional<std::uint32_t> stranger = {};
  std::uint32_t island_ranks = 0;  // 0 where the contender needs none
  // Calls directly after each other, on tensors of their own; otherwise each between a fill and a check.
  bool adjacent = false;
  std::uint32_t most_delay_us = 0;   // of a rank before a call, drawn for each
  bool traffic = false;              // copies between the GPUs beside it
  std::vector<LaunchShape> shapes;   // of the calls of a graph
  std::uint32_t graphs_at_once = 1;  // replays of a rank that follow one another without the host
  std::uint64_t calls = 0;           // a multiple of shapes.size() * graphs_at_once

  [[nodiscard]] std::uint32_t input_offset_elements_of(std::uint32_t rank) const {
    return rank == stranger ? (input_offset_elements == 0 ? 1 : 0) : input_offset_elements;
  }
  [[nodiscard]] std::uint64_t bytes() const { return count_elements * size_of_bytes(dtype); }
  [[nodiscard]] std::uint32_t calls_per_graph() const { return static_cast<std::uint32_t>(shapes.size()); }
};

// How many case numbers it takes to visit every class of sizes; one of them has the largest size.
inline constexpr std::uint64_t case_cycle = 64;

// Whether `row` can run on a team of `ranks` at all; it cannot without islands if it needs them.
bool can_verify(const CatalogRow& row, std::uint32_t ranks);
// The case `number` of a contender on `ranks` ranks that live on `gpus` GPUs: 64 MB are the most, and less
// where ranks share GPUs.
VerifyCase verify_case(const CatalogRow& row, std::uint32_t ranks, std::uint32_t gpus, std::uint64_t number);
// The same as a cell, for a worker that holds the team; bundle or NCCL are the caller's.
Cell verify_cell(const CatalogRow& row, std::uint32_t ranks, std::uint32_t gpus, std::uint64_t number);
// The first case from `number` on in which a planted fault must come to light: a short message of which every
// element counts.
std::uint64_t plantable_case(const CatalogRow& row, std::uint32_t ranks, std::uint32_t gpus,
                             std::uint64_t number);
// "bf16, 360 elements, in place, special values, 8 calls a graph directly after each other, ..."
std::string describe(const VerifyCase& verify_case);

}  // namespace arb
