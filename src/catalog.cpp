#include "catalog.h"

#include <arb/abi.h>

#include <algorithm>
#include <array>

namespace arb {
namespace {

constexpr std::string_view in_place_refused_pull =
    "in place would overwrite inputs that peers still read; run it out of place (--place out) or take "
    "one_shot_pull";

constexpr std::string_view in_place_refused_copies =
    "in place would overwrite what copy engines still read; run it out of place (--place out) or take ring";

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
LaunchShape one_shot_shape(const Team& /*team*/, std::uint64_t bytes) {
  return pull_shape(bytes);
}
LaunchShape two_shot_shape(const Team& team, std::uint64_t bytes) {
  return pull_shape(bytes / team.ranks);
}

// A vector a thread, in many small blocks while a block's own start counts: for one_shot_push on 2x H200 no other shape was
// faster by more than 3% (results/2026-11-30T221304-2xH200-tune), and from 4 MiB on as many threads as fit are up to 11%
// faster than half as many. A GPU that cannot hold so many blocks of a kernel at a time gets fewer, and threads of
// several vectors.
LaunchShape push_shape(std::uint64_t bytes_of_part) {
  struct UpTo {
    std::uint64_t bytes;
    LaunchShape shape;
  };
  constexpr std::uint64_t kib = 1024;
  constexpr std::array shapes{
      UpTo{kib, {1, 128}},        UpTo{4 * kib, {8, 32}},       UpTo{16 * kib, {16, 64}},
      UpTo{64 * kib, {64, 64}},   UpTo{128 * kib, {64, 128}},   UpTo{256 * kib, {256, 64}},
      UpTo{512 * kib, {512, 64}}, UpTo{1024 * kib, {256, 256}}, UpTo{2048 * kib, {1024, 128}}};
  const auto* const found =
      std::ranges::find_if(shapes, [&](const UpTo& entry) { return bytes_of_part <= entry.bytes; });
  return found == shapes.end() ? LaunchShape{512, max_threads} : found->shape;
}
LaunchShape one_shot_push_shape(const Team& /*team*/, std::uint64_t bytes) {
  return push_shape(bytes);
}
LaunchShape two_shot_push_shape(const Team& team, std::uint64_t bytes) {
  return push_shape((bytes + team.ranks - 1) / team.ranks);
}
LaunchShape hierarchical_shape(const Team& team, std::uint64_t bytes) {
  const std::uint32_t members = std::max(1u, team.island_ranks);
  return push_shape((bytes + members - 1) / members);
}
// Not tuned yet.
LaunchShape copy_push_shape(const Team& /*team*/, std::uint64_t /*bytes*/) {
  return {128, max_threads};
}
LaunchShape no_shape(const Team& /*team*/, std::uint64_t /*bytes*/) {
  return {0, 0};
}

std::optional<std::uint64_t> one_shot_wire_bytes(const Team& team, std::uint64_t bytes) {
  return (team.ranks - 1) * bytes;
}

// The busiest of `members` ranks that share a message: it moves every other share once, and its own to or
// from every other member and to `partners` more.
std::uint64_t most_shared_bytes(std::uint64_t members, std::uint64_t partners, std::uint64_t bytes) {
  const std::uint64_t vectors = (bytes + vector_bytes - 1) / vector_bytes;
  std::uint64_t most = 0;
  for (std::uint64_t member = 0; member < members; ++member) {
    const std::uint64_t begin = std::min(bytes, vectors * member / members * vector_bytes);
    const std::uint64_t end = std::min(bytes, vectors * (member + 1) / members * vector_bytes);
    most = std::max(most, (members - 1 + partners) * (end - begin) + bytes - (end - begin));
  }
  return most;
}
std::optional<std::uint64_t> two_shot_wire_bytes(const Team& team, std::uint64_t bytes) {
  return most_shared_bytes(team.ranks, 0, bytes);
}
// A message of fewer vectors than ranks goes whole to every peer.
std::optional<std::uint64_t> two_shot_push_wire_bytes(const Team& team, std::uint64_t bytes) {
  const bool too_short = (bytes + vector_bytes - 1) / vector_bytes < team.ranks;
  return too_short ? one_shot_wire_bytes(team, bytes) : two_shot_wire_bytes(team, bytes);
}
std::optional<std::uint64_t> hierarchical_wire_bytes(const Team& team, std::uint64_t bytes) {
  if (team.island_ranks == 0) return std::nullopt;
  const std::uint64_t partners = team.ranks / team.island_ranks - 1;
  // A message of fewer vectors than an island has ranks goes whole to all of them, and its sum to the
  // partners.
  if ((bytes + vector_bytes - 1) / vector_bytes < team.island_ranks)
    return (team.island_ranks - 1 + partners) * bytes;
  return most_shared_bytes(team.island_ranks, partners, bytes);
}
std::optional<std::uint64_t> unknown_wire_bytes(const Team& /*team*/, std::uint64_t /*bytes*/) {
  return std::nullopt;
}
// A ring sends every shard but one in each of its two rounds; the smallest shard may be the one that is left
// out.
std::optional<std::uint64_t> ring_wire_bytes(const Team& team, std::uint64_t bytes) {
  const std::uint64_t vectors = (bytes + vector_bytes - 1) / vector_bytes;
  const auto shard_bytes = [&](std::uint64_t shard) {
    shard %= team.ranks;
    return std::min(bytes, vectors * (shard + 1) / team.ranks * vector_bytes) -
           std::min(bytes, vectors * shard / team.ranks * vector_bytes);
  };
  std::uint64_t most = 0;
  for (std::uint64_t rank = 0; rank < team.ranks; ++rank)
    most = std::max(most, 2 * bytes - shard_bytes(rank + 1) - shard_bytes(rank + 2));
  return most;
}

std::uint64_t no_scratch(const Team& /*team*/, std::uint64_t /*capacity_bytes*/) {
  return 0;
}
std::uint64_t two_messages(const Team& /*team*/, std::uint64_t capacity_bytes) {
  return 2 * capacity_bytes;
}
std::uint64_t one_shot_push_scratch(const Team& team, std::uint64_t capacity_bytes) {
  return 2 * team.ranks * capacity_bytes;
}
std::uint64_t two_shot_push_scratch(const Team& team, std::uint64_t capacity_bytes) {
  return 4 * team.ranks * share_area_bytes(capacity_bytes, team.ranks);
}
std::uint64_t two_shot_chunked_scratch(const Team& team, std::uint64_t capacity_bytes) {
  return team.ranks * share_area_bytes(capacity_bytes, team.ranks) + capacity_bytes;
}
std::uint64_t hierarchical_scratch(const Team& team, std::uint64_t capacity_bytes) {
  const std::uint64_t islands = team.ranks / team.island_ranks;
  return 2 * (2 * team.island_ranks + islands) * share_area_bytes(capacity_bytes, team.island_ranks) +
         capacity_bytes;
}

std::uint64_t message_a_rank(const Team& team, std::uint64_t capacity_bytes) {
  return team.ranks * capacity_bytes;
}
std::uint64_t three_messages(const Team& /*team*/, std::uint64_t capacity_bytes) {
  return 3 * capacity_bytes;
}

// kernels/copy_ring.cu says what each node is for.
Schedule copy_ring_schedule(const Call& call, LaunchShape shape) {
  const std::uint32_t n = call.team.ranks;
  const std::uint32_t next = (call.rank + 1) % n;
  const std::uint64_t vectors = (call.bytes + vector_bytes - 1) / vector_bytes;
  enum Area : std::uint64_t { sums, results, outbox };
  using Buffer = Location::Buffer;
  const auto shard_begin = [&](std::uint32_t shard) {
    return std::min(call.bytes, vectors * shard / n * vector_bytes);
  };
  const auto in_scratch = [&](std::uint32_t rank, Area area, std::uint64_t offset_bytes) {
    return Location{Buffer::scratch, rank, flags_bytes + area * call.capacity_bytes + offset_bytes};
  };
  const auto flag = [&](std::uint32_t rank, Phase phase, std::uint32_t step) {
    return Location{Buffer::scratch, rank,
                    (static_cast<std::uint64_t>(phase) * max_blocks * max_ranks + step) * sizeof(u32)};
  };
  Schedule chain;
  const auto launch = [&](std::uint32_t number, LaunchShape launch_shape) {
    chain.push_back({.kind = Step::Kind::launch, .shape = launch_shape, .number = number});
  };
  // The shard, then the flag that says so.
  const auto send = [&](Location::Buffer buffer, Area own, std::uint32_t shard, Area of_next, Phase phase,
                        std::uint32_t step) {
    shard %= n;
    const std::uint64_t begin = shard_begin(shard);
    const std::uint64_t bytes = shard_begin(shard + 1) - begin;
    const Location from =
        buffer == Buffer::scratch ? in_scratch(call.rank, own, begin) : Location{buffer, call.rank, begin};
    if (bytes != 0) {
      chain.push_back(
          {.kind = Step::Kind::copy, .from = from, .to = in_scratch(next, of_next, begin), .bytes = bytes});
    }
    chain.push_back({.kind = Step::Kind::copy,
                     .from = flag(call.rank, Phase::none, 0),
                     .to = flag(next, phase, step),
                     .bytes = sizeof(u32)});
  };

  launch(0, {1, 32});
  send(Buffer::input, sums, call.rank, sums, Phase::reduce, 0);
  for (std::uint32_t step = 1; step < n; ++step) {
    launch(step, shape);
    if (step < n - 1) send(Buffer::scratch, outbox, call.rank + n - step, sums, Phase::reduce, step);
  }
  send(Buffer::output, sums, call.rank + 1, results, Phase::gather, 0);
  for (std::uint32_t step = 0; step < n - 1; ++step) {
    launch(n + step, shape);
    if (step < n - 2) send(Buffer::scratch, results, call.rank + n - step, results, Phase::gather, step + 1);
  }
  return chain;
}

// kernels/copy_push.cu says what each node is for.
Schedule copy_push_schedule(const Call& call, LaunchShape shape) {
  using Buffer = Location::Buffer;
  const std::uint32_t n = call.team.ranks;
  const EnginePart part = engine_part(call.bytes);
  const std::uint64_t begin_bytes = part.begin * vector_bytes;
  const std::uint64_t engine_bytes = (part.end - part.begin) * vector_bytes;
  const auto flag = [&](std::uint32_t rank, Phase phase, std::uint32_t writer) {
    return Location{Buffer::scratch, rank,
                    (static_cast<std::uint64_t>(phase) * max_blocks * max_ranks + writer) * sizeof(u32)};
  };
  Schedule chain{{.kind = Step::Kind::launch, .shape = {1, 32}, .number = 0}};
  for (std::uint32_t k = 1; k < n && call.input_is_aligned && engine_bytes != 0; ++k) {
    const std::uint32_t peer = (call.rank + k) % n;
    chain.push_back(
        {.kind = Step::Kind::copy,
         .from = {Buffer::input, call.rank, begin_bytes},
         .to = {Buffer::scratch, peer, flags_bytes + call.rank * call.capacity_bytes + begin_bytes},
         .bytes = engine_bytes,
         .beside = true});
    chain.push_back({.kind = Step::Kind::copy,
                     .from = flag(call.rank, Phase::none, 0),
                     .to = flag(peer, Phase::exchange, call.rank),
                     .bytes = sizeof(u32),
                     .beside = true});
  }
  chain.push_back({.kind = Step::Kind::launch, .shape = shape, .number = 1});
  return chain;
}

// What to run where nothing was tuned.
//
// Measured on 2 ranks (results/2026-11-30T221304-2xH200-tune): one_shot_push is fastest of the kernels from 1K to 16M,
// ring at 32M (101 us against 111) and above; that was ring before it had chunks.
//
// Derived, not measured, for n > 2: a rank sends (n-1) S in one shot and 2 (n-1)/n S in two, and the second hop costs
// what it costs on 2 ranks, where both send the same: 1.37 us at 1K (3.16 - 1.79 in
// results/2026-11-30T151145-2xH200-run; both have become quicker since), in which that machine sends 480 KB at its
// 350 GB/s a rank. So two shots win from (n-1) S - 2 (n-1)/n S = 480 KB on: 320 KB on 4 ranks, 91 KB on 8. A machine with
// slower links crosses over earlier: that is what a tuning is for. Ring and two shots send the same bytes on any number of
// ranks, so the ring takes over where it does on 2. All of them run in place too.
std::string_view default_choice(const Team& team, std::uint64_t bytes, Place /*place*/) {
  constexpr std::uint64_t ring_from_bytes = 32ull << 20;
  constexpr std::uint64_t bytes_worth_a_hop = 480ull << 10;
  if (bytes >= ring_from_bytes) return "ring";
  const std::uint64_t n = team.ranks;
  const std::uint64_t saved_bytes = (n - 1) * (n - 2) * bytes / n;
  return saved_bytes >= bytes_worth_a_hop ? "two_shot_push" : "one_shot_push";
}

std::uint32_t two_roundings(std::uint32_t /*ranks*/) {
  return 2;
}

// torch's kernels (CUDASymmetricMemoryOps.cu) are made for two types and move at least 4 bytes at a time.
std::string_view torch_one_shot_refusal(const Message& message) {
  if (message.dtype == Dtype::fp16) return "torch's symmetric-memory kernels add bf16 and fp32 only";
  if (message.bytes % 4 != 0) return "torch's symmetric-memory kernels take multiples of 4 bytes only";
  return "";
}
std::string_view torch_two_shot_refusal(const Message& message) {
  const bool made_for = message.ranks == 2 || message.ranks == 4 || message.ranks == 8;
  if (message.place == Place::out && !made_for)
    return "torch's two-shot is made for 2, 4 or 8 ranks out of place";
  return torch_one_shot_refusal(message);
}

constexpr std::string_view rank_order = "rank order, fp32, one rounding";

// What most rows have; each row below says where it differs.
constexpr CatalogRow usual{.contender = "",
                           .kernel = "",
                           .source = Source::kernel,
                           .nccl_variables = {},
                           .peer = "",
                           .peer_script = "",
                           .peer_refusal = nullptr,
                           .consumes_input = false,
                           .style = Style::staged,
                           .in_place = true,
                           .in_place_refusal = "",
                           .scratch_bytes = two_messages,
                           .sentinel = false,
                           .kernel_fences = false,
                           .programmatic = false,
                           .needs_islands = false,
                           .rank_order = true,
                           .sum_order = rank_order,
                           .roundings = one_rounding,
                           .shape = one_shot_shape,
                           .schedule = nullptr,
                           .wire_bytes_theory = one_shot_wire_bytes,
                           .choose = nullptr};

// A copy of the usual row, changed by `change`.
template <class Change>
constexpr CatalogRow row(std::string_view contender, std::string_view kernel, Change change) {
  CatalogRow made = usual;
  made.contender = contender;
  made.kernel = kernel;
  change(made);
  return made;
}

// Somebody else's operation, of which we know what it gives and not how.
constexpr void as_foreign(CatalogRow& r) {
  r.scratch_bytes = no_scratch;
  r.rank_order = false;
  r.roundings = rounding_per_addition;
  r.shape = no_shape;
  r.wire_bytes_theory = unknown_wire_bytes;
}
// NCCL as it is.
constexpr void as_nccl(CatalogRow& r) {
  as_foreign(r);
  r.source = Source::nccl;
  r.sum_order = "NCCL's choice";
}
// For PCIe boxes: left alone, NCCL goes through host memory between GPUs that meet only at a host bridge, and
// takes too few channels.
constexpr std::array tuned{NcclVariable{"NCCL_P2P_LEVEL", "SYS"}, NcclVariable{"NCCL_MIN_NCHANNELS", "8"}};

// torch's symmetric memory. Its kernels load all ranks' values and add them in rank order, bf16 with __hadd2, which
// rounds each sum; so all ranks have the same bits, and they are not those of our rows.
constexpr void as_torch(CatalogRow& r) {
  as_foreign(r);
  r.source = Source::peer;
  r.peer = "torch";
  r.peer_script = "torch_symm_mem.py";
  r.peer_refusal = torch_one_shot_refusal;
  r.style = Style::symmetric;
  r.sum_order = "rank order, rounded at every addition";
}

constexpr std::array rows{
    row("one_shot_pull", "one_shot_pull", [](CatalogRow&) {}),
    row("one_shot_pull/symmetric", "one_shot_pull",
        [](CatalogRow& r) {
          r.style = Style::symmetric;
          r.in_place = false;
          r.in_place_refusal = in_place_refused_pull;
          r.scratch_bytes = no_scratch;
        }),
    row("two_shot_pull", "two_shot_pull",
        [](CatalogRow& r) {
          r.shape = two_shot_shape;
          r.wire_bytes_theory = two_shot_wire_bytes;
        }),
    row("two_shot_pull/symmetric", "two_shot_pull",
        [](CatalogRow& r) {
          r.style = Style::symmetric;
          r.shape = two_shot_shape;
          r.wire_bytes_theory = two_shot_wire_bytes;
        }),
    row("one_shot_push", "one_shot_push",
        [](CatalogRow& r) {
          r.scratch_bytes = one_shot_push_scratch;
          r.sentinel = true;
          r.kernel_fences = true;
          r.programmatic = true;
          r.shape = one_shot_push_shape;
        }),
    row("two_shot_push", "two_shot_push",
        [](CatalogRow& r) {
          r.scratch_bytes = two_shot_push_scratch;
          r.sentinel = true;
          r.kernel_fences = true;
          r.programmatic = true;
          r.shape = two_shot_push_shape;
          r.wire_bytes_theory = two_shot_push_wire_bytes;
        }),
    row("two_shot_chunked", "two_shot_chunked",
        [](CatalogRow& r) {
          r.scratch_bytes = two_shot_chunked_scratch;
          r.programmatic = true;
          r.shape = two_shot_shape;
          r.wire_bytes_theory = two_shot_wire_bytes;
        }),
    row("ring", "ring",
        [](CatalogRow& r) {
          r.programmatic = true;
          r.rank_order = false;
          r.sum_order = "ring order from the shard's rank, fp32, rounded at every hop";
          r.roundings = rounding_per_addition;
          r.shape = two_shot_shape;
          r.wire_bytes_theory = ring_wire_bytes;
        }),
    row("copy_ring", "copy_ring",
        [](CatalogRow& r) {
          r.scratch_bytes = three_messages;
          r.rank_order = false;
          r.sum_order = "ring order from the shard's rank, fp32, rounded at every hop";
          r.roundings = rounding_per_addition;
          r.shape = two_shot_shape;
          r.schedule = copy_ring_schedule;
          r.kernel_fences = true;
          r.wire_bytes_theory = ring_wire_bytes;
        }),
    row("copy_push", "copy_push",
        [](CatalogRow& r) {
          r.scratch_bytes = message_a_rank;
          r.sentinel = true;
          r.in_place = false;
          r.in_place_refusal = in_place_refused_copies;
          r.schedule = copy_push_schedule;
          r.shape = copy_push_shape;
        }),
    row("hierarchical", "hierarchical",
        [](CatalogRow& r) {
          r.scratch_bytes = hierarchical_scratch;
          r.sentinel = true;
          r.kernel_fences = true;
          r.programmatic = true;
          r.needs_islands = true;
          r.rank_order = false;
          r.sum_order = "in the island, then over islands, fp32, a rounding each";
          r.roundings = two_roundings;
          r.shape = hierarchical_shape;
          r.wire_bytes_theory = hierarchical_wire_bytes;
        }),
    row("auto", "",
        [](CatalogRow& r) {
          r.source = Source::chosen;
          r.scratch_bytes = no_scratch;
          r.rank_order = false;
          r.sum_order = "that of the contender that it chooses by size";
          r.roundings = rounding_per_addition;
          r.shape = no_shape;
          r.wire_bytes_theory = unknown_wire_bytes;
          r.choose = default_choice;
        }),
    row("nccl", "", as_nccl),
    row("nccl_tuned", "",
        [](CatalogRow& r) {
          as_nccl(r);
          r.nccl_variables = tuned;
        }),
    row("nccl_symmetric", "",
        [](CatalogRow& r) {
          as_nccl(r);
          r.style = Style::symmetric;
        }),
    row("torch_one_shot", "",
        [](CatalogRow& r) {
          as_torch(r);
          r.in_place = false;
          r.in_place_refusal =
              "in place would overwrite inputs that peers still read; run it out of place (--place out)";
        }),
    row("torch_two_shot", "",
        [](CatalogRow& r) {
          as_torch(r);
          r.peer_refusal = torch_two_shot_refusal;
          r.consumes_input = true;
        }),
};

}  // namespace

std::span<const CatalogRow> catalog() {
  return rows;
}

const CatalogRow* find_contender(std::string_view contender) {
  const auto* const row = std::ranges::find(rows, contender, &CatalogRow::contender);
  return row == rows.end() ? nullptr : row;
}

bool needs_windows(const CatalogRow& row) {
  return row.source == Source::nccl && row.style == Style::symmetric;
}

bool runs_kernels(const CatalogRow& row) {
  return row.source == Source::kernel || row.source == Source::chosen;
}

std::string_view refusal_of(const CatalogRow& row, const Message& message) {
  if (message.place == Place::in && !row.in_place) return row.in_place_refusal;
  return row.peer_refusal == nullptr ? "" : row.peer_refusal(message);
}

Schedule schedule_of(const CatalogRow& row, const Call& call, LaunchShape shape) {
  if (row.schedule != nullptr) return row.schedule(call, shape);
  return {{.kind = Step::Kind::launch, .shape = shape}};
}

std::string function_name(const CatalogRow& row, Dtype dtype, std::uint32_t ranks) {
  const bool specialised = ranks == 2 || ranks == 4 || ranks == 8;
  return std::string(row.kernel) + "__" + std::string(name_of(dtype)) + "_n" +
         (specialised ? std::to_string(ranks) : "x");
}

}  // namespace arb
