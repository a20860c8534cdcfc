#include "verify_case.h"

#include <fmt/format.h>

#include <algorithm>

namespace arb {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators").
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  bool one_in(std::uint64_t bound) { return below(bound) == 0; }

 private:
  std::uint64_t next() {
    std::uint64_t value = state_ += 0x9E3779B97F4A7C15ull;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
    return value ^ (value >> 31);
  }
  std::uint64_t state_;
};

// Sixteen classes of sizes, in turn.
std::uint64_t draw_count(std::uint64_t number, std::uint64_t width_bytes, std::uint32_t ranks, bool shared,
                         Draws& draws) {
  switch (number % 16) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return 2 * draws.below(4096) + 1;
    case 3:  // shards of models: whole vectors, no whole cache lines
      return 720 * (1 + draws.below(4)) / width_bytes;
    case 4:
      return 5760 * (1 + draws.below(4)) / width_bytes;
    case 5:  // about as many vectors as ranks
      return 1 + draws.below(ranks * 2 * vector_bytes / width_bytes);
    case 6:
    case 11:
      return (kib << draws.below(8)) / width_bytes;
    case 7:
      if (number % case_cycle == 7) return (shared ? 4 * mib : 64 * mib) / width_bytes;
      return (mib << draws.below(shared ? 1 : 4)) / width_bytes + draws.below(16);
    case 8:
      return 2 * draws.below(32 * kib) + 1;
    case 9:
      return 720 / width_bytes + draws.below(16);
    case 10:
      return 5760 * (1 + draws.below(32)) / width_bytes;
    case 12:
      return (256 * kib + draws.below(768 * kib)) / width_bytes;
    case 13:
      return 2 + draws.below(63);
    case 14:
      return 4 * kib / width_bytes - 2 + draws.below(5);
    default:
      break;
  }
  return draws.below(32 * kib);
}

LaunchShape draw_shape(const CatalogRow& row, const Team& team, std::uint64_t bytes, bool narrow,
                       Draws& draws) {
  if (row.source != Source::kernel) return {0, 0};
  const auto threads = [&](std::uint64_t least_warps, std::uint64_t most_warps) {
    return static_cast<std::uint32_t>(32 * (least_warps + draws.below(most_warps - least_warps + 1)));
  };
  if (narrow) return {1, threads(1, 16)};
  if (draws.one_in(3)) return row.shape(team, bytes);
  if (bytes > mib) return {static_cast<std::uint32_t>(16 + draws.below(49)), threads(8, 16)};
  const std::uint64_t most_blocks = draws.one_in(4) ? 64 : 12;
  return {static_cast<std::uint32_t>(1 + draws.below(most_blocks)), threads(1, 16)};
}

}  // namespace

bool can_verify(const CatalogRow& row, std::uint32_t ranks) {
  // Who chooses runs nothing of its own.
  if (row.source == Source::chosen) return false;
  if (row.source == Source::peer) return false;  // one process a rank; every run checks what it leaves
  return !row.needs_islands || (ranks >= 4 && (ranks % 2 == 0 || ranks % 3 == 0));
}

VerifyCase verify_case(const CatalogRow& row, std::uint32_t ranks, std::uint32_t gpus, std::uint64_t number) {
  Draws draws(number * 0x2545F4914F6CDD1Dull + 1);
  const bool shared = ranks > gpus;
  VerifyCase drawn;
  drawn.dtype = all_dtypes[(number + number / 16) % all_dtypes.size()];
  drawn.count_elements = draw_count(number, size_of_bytes(drawn.dtype), ranks, shared, draws);
  drawn.place = row.in_place && draws.one_in(2) ? Place::in : Place::out;
  drawn.pattern = static_cast<Pattern>(draws.below(3));
  if (!draws.one_in(3)) {
    drawn.input_offset_elements = static_cast<std::uint32_t>(draws.below(8));
    drawn.output_offset_elements = static_cast<std::uint32_t>(draws.below(8));
  }
  if (row.needs_islands) {
    drawn.island_ranks = ranks == 8 && !draws.one_in(4) ? 4 : ranks % 2 == 0 ? 2 : 3;
    if (ranks == 6 && draws.one_in(2)) drawn.island_ranks = 3;
  }
  drawn.adjacent = draws.one_in(3);
  drawn.most_delay_us = drawn.adjacent || draws.one_in(4) ? 0 : 20;
  drawn.traffic = !draws.one_in(4);

  const std::uint64_t bytes = drawn.bytes();
  const std::uint64_t calls_per_graph = bytes <= mib ? 4 + draws.below(9) : bytes <= 16 * mib ? 4 : 2;
  const Team team{ranks, drawn.island_ranks};
  const bool changing = draws.one_in(2);
  // Where ranks share a GPU, only calls that have room all at once may start early.
  const bool narrow = shared && drawn.adjacent && bytes <= mib && draws.one_in(2);
  for (std::uint64_t call = 0; call < calls_per_graph; ++call) {
    drawn.shapes.push_back(call == 0 || changing ? draw_shape(row, team, bytes, narrow, draws)
                                                 : drawn.shapes[0]);
  }
  drawn.graphs_at_once = bytes <= 64 * kib && draws.one_in(4) ? 64 : bytes <= mib ? 8 : 2;
  const std::uint64_t calls = (bytes <= 64 * kib  ? 2400
                               : bytes <= mib     ? 600
                               : bytes <= 8 * mib ? 100
                                                  : 20) /
                              (shared ? 4 : 1);
  const std::uint64_t round = calls_per_graph * drawn.graphs_at_once;
  drawn.calls = (calls + round - 1) / round * round;
  if (row.style == Style::staged && draws.one_in(3))
    drawn.stranger = static_cast<std::uint32_t>(draws.below(ranks));
  return drawn;
}

Cell verify_cell(const CatalogRow& row, std::uint32_t ranks, std::uint32_t gpus, std::uint64_t number) {
  const VerifyCase drawn = verify_case(row, ranks, gpus, number);
  Cell cell;
  cell.contender = row.contender;
  cell.dtype = drawn.dtype;
  cell.ranks = ranks;
  cell.island_ranks = drawn.island_ranks;
  cell.bytes = drawn.bytes();
  cell.place = drawn.place;
  cell.calls_per_graph = drawn.calls_per_graph();
  cell.seed = number;
  cell.verify_calls = drawn.calls;
  return cell;
}

std::uint64_t plantable_case(const CatalogRow& row, std::uint32_t ranks, std::uint32_t gpus,
                             std::uint64_t number) {
  for (;; ++number) {
    const VerifyCase drawn = verify_case(row, ranks, gpus, number);
    if (drawn.count_elements != 0 && drawn.bytes() <= 64 * kib && drawn.pattern != Pattern::special)
      return number;
  }
}

std::string describe(const VerifyCase& verify_case) {
  constexpr std::string_view patterns[] = {"random values", "special values", "one element perturbed"};
  std::string text = fmt::format(
      "{}, {} elements, {} place, {}, offsets {} and {}, graphs of {} calls{}", name_of(verify_case.dtype),
      verify_case.count_elements, verify_case.place == Place::in ? "in" : "out of",
      patterns[static_cast<std::size_t>(verify_case.pattern)], verify_case.input_offset_elements,
      verify_case.output_offset_elements, verify_case.calls_per_graph(),
      verify_case.adjacent ? " directly after each other" : "");
  if (verify_case.island_ranks != 0) text += fmt::format(", islands of {}", verify_case.island_ranks);
  if (verify_case.most_delay_us != 0) text += fmt::format(", delays to {} us", verify_case.most_delay_us);
  if (verify_case.stranger) text += fmt::format(", rank {} aligned otherwise", *verify_case.stranger);
  if (verify_case.traffic) text += ", beside copies";
  return text;
}

}  // namespace arb
