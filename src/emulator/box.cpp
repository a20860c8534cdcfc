#include "box.h"

#include <arb/abi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "catalog.h"
#include "copy_engine.h"
#include "counting.h"
#include "kernel_table.h"
#include "reference.h"

namespace arb {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t most_bytes = std::uint64_t{4} << 20;  // of a tensor: beyond it the box is slow
constexpr std::uint32_t calls = 3;                            // back to back, each on new inputs
constexpr std::uint64_t gap_bytes = 256;                      // of guard around every buffer
constexpr std::byte guard{0xa5};
constexpr std::byte poison{0xd7};  // of outputs before a call, and of scratch before the first

// Every rank's buffers in one block of memory, with guard bytes between them.
class Memory {
 public:
  explicit Memory(std::uint64_t bytes) : bytes_(bytes + 256, guard) {
    used_ = 256 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 256;
  }
  // The next `bytes`, on a multiple of 256; a gap follows.
  std::byte* take(std::uint64_t bytes) {
    std::byte* result = bytes_.data() + used_;
    taken_.push_back({used_, bytes});
    used_ += padded(bytes);
    return result;
  }
  static std::uint64_t padded(std::uint64_t bytes) { return (bytes + 255) / 256 * 256 + gap_bytes; }
  // All bytes outside the taken ones still are guards.
  [[nodiscard]] bool guards_are_whole() const {
    std::uint64_t at = 0;
    const auto whole = [&](std::uint64_t end) {
      return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(at),
                         bytes_.begin() + static_cast<std::ptrdiff_t>(end),
                         [](std::byte b) { return b == guard; });
    };
    for (const auto& [begin, bytes] : taken_) {
      if (!whole(begin)) return false;
      at = begin + bytes;
    }
    return whole(bytes_.size());
  }

 private:
  struct Taken {
    std::uint64_t begin;
    std::uint64_t bytes;
  };
  Bytes bytes_;
  std::uint64_t used_ = 0;
  std::vector<Taken> taken_;
};

class EmulatedBox final : public Backend {
 public:
  explicit EmulatedBox(std::uint32_t ranks) : ranks_(ranks) {}

  [[nodiscard]] Evidence evidence() const override { return Evidence::emulated; }
  [[nodiscard]] std::string world() const override { return "emulated"; }
  std::optional<MachineLimits> limits() override { return std::nullopt; }
  Outcome run(const Cell& cell) override;

 private:
  // Why a cell cannot run here, and what would work; empty if it can.
  [[nodiscard]] std::string refusal(const Cell& cell, const CatalogRow* row) const;

  std::uint32_t ranks_;
};

std::string EmulatedBox::refusal(const Cell& cell, const CatalogRow* row) const {
  if (row == nullptr) return "there is no contender " + cell.contender + "; `arbench list` shows them";
  if (row->source != Source::kernel)
    return cell.contender + " needs GPUs: the emulated box runs only the kernels under kernels/";
  if (cell.place == Place::in && !row->in_place)
    return cell.contender + ": " + std::string(row->in_place_refusal);
  if (cell.ranks < 2 || cell.ranks > ranks_)
    return "the emulated box has 2 to " + std::to_string(ranks_) + " ranks, not " +
           std::to_string(cell.ranks);
  if (row->needs_islands &&
      (cell.island_ranks < 2 || cell.ranks % cell.island_ranks != 0 || cell.ranks / cell.island_ranks < 2))
    return cell.contender + " needs at least 2 islands of at least 2 ranks each, and " +
           std::to_string(cell.ranks) + " ranks are in islands of " + std::to_string(cell.island_ranks) +
           "; give --islands";
  if (cell.bytes % size_of_bytes(cell.dtype) != 0)
    return std::to_string(cell.bytes) + " bytes are no whole number of " + std::string(name_of(cell.dtype)) +
           " elements";
  if (cell.bytes > most_bytes)
    return "the emulated box takes tensors up to " + std::to_string(most_bytes >> 20) +
           " MiB; larger ones need GPUs";
  if (emulator::find_kernel(function_name(*row, cell.dtype, cell.ranks)) == nullptr)
    return function_name(*row, cell.dtype, cell.ranks) + " is in the catalog but not in this program";
  return "";
}

Outcome EmulatedBox::run(const Cell& cell) {
  Outcome outcome;
  const CatalogRow* row = find_contender(cell.contender);
  outcome.failure = refusal(cell, row);
  if (!outcome.failure.empty()) return outcome;

  const emulator::KernelFunction kernel = emulator::find_kernel(function_name(*row, cell.dtype, cell.ranks));
  const Team team{cell.ranks, cell.island_ranks};
  const LaunchShape shape =
      cell.blocks != 0 ? LaunchShape{cell.blocks, cell.threads} : row->shape(team, cell.bytes);
  const std::uint32_t ranks = cell.ranks;
  const std::uint64_t count = cell.bytes / size_of_bytes(cell.dtype);
  const bool in_place = cell.place == Place::in;
  const bool symmetric = row->style == Style::symmetric;
  const std::uint64_t capacity_bytes = (cell.bytes + 255) / 256 * 256 + (cell.bytes == 0 ? 256 : 0);
  const std::uint64_t scratch_bytes = flags_bytes + row->scratch_bytes(team, capacity_bytes);
  const std::uint64_t tensor_stride = Memory::padded(cell.bytes);
  const std::uint64_t scratch_stride = Memory::padded(scratch_bytes);

  Memory memory(ranks * (2 * tensor_stride + scratch_stride + 2 * Memory::padded(256)));
  emulator::CountingMachine machine(ranks);
  std::vector<KernelParams> params(ranks);
  std::vector<std::byte*> inputs;
  std::vector<std::byte*> outputs;
  // Equal takes one after the other lie at equal distances: that is what makes a buffer symmetric.
  const auto take = [&](std::uint32_t rank, const char* area, std::uint64_t bytes) {
    std::byte* buffer = memory.take(bytes);
    machine.add_buffer(rank, area, buffer, bytes);
    return buffer;
  };
  std::vector<std::byte*> scratch;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) inputs.push_back(take(rank, "input", cell.bytes));
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    scratch.push_back(take(rank, "scratch", scratch_bytes));
    std::fill_n(scratch[rank], flags_bytes, std::byte{0});
    std::fill_n(scratch[rank] + flags_bytes, scratch_bytes - flags_bytes,
                row->sentinel ? std::byte{0xff} : poison);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    outputs.push_back(in_place ? inputs[rank] : take(rank, "output", cell.bytes));
    KernelParams& p = params[rank];
    p = {};
    p.input = inputs[rank];
    p.output = outputs[rank];
    p.scratch = {reinterpret_cast<char*>(scratch[0]), scratch_stride};
    if (symmetric) p.inputs = {reinterpret_cast<char*>(inputs[0]), tensor_stride};
    p.local = reinterpret_cast<LocalState*>(take(rank, "local state", sizeof(LocalState)));
    p.failure = reinterpret_cast<FailureRecord*>(take(rank, "failure record", sizeof(FailureRecord)));
    std::memset(static_cast<void*>(p.local), 0, sizeof(LocalState));
    std::memset(static_cast<void*>(p.failure), 0, sizeof(FailureRecord));
    p.count_elements = count;
    p.capacity_bytes = capacity_bytes;
    p.deadline_ns = 1'000'000'000;
    p.rank = rank;
    p.ranks = ranks;
    p.island_ranks = cell.island_ranks;
  }

  std::array<std::vector<Bytes>, calls> values;
  for (std::uint32_t call = 0; call < calls; ++call)
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      values[call].push_back(make_input(cell.dtype, count, cell.seed + call, rank));

  // Rank 0's result is held against the reference, and every other rank's against rank 0's bits.
  std::array<Bytes, calls> first;
  std::array<std::uint32_t, calls> first_rank{};
  const auto check = [&](std::uint32_t rank, std::uint32_t call) {
    if (!cell.check || !outcome.wrong.empty()) return;
    const std::span<const std::byte> result(outputs[rank], cell.bytes);
    const auto where = "call " + std::to_string(call + 1) + " on rank " + std::to_string(rank);
    if (first[call].empty() && cell.bytes != 0) {
      first[call].assign(result.begin(), result.end());
      first_rank[call] = rank;
      const CheckResult checked = check_sum(result, values[call], cell.dtype, row->roundings(ranks));
      outcome.max_error = std::max(outcome.max_error, checked.max_error);
      if (!checked.correct) outcome.wrong = where + ": " + checked.sentence;
    } else if (!std::equal(result.begin(), result.end(), first[call].begin(), first[call].end())) {
      outcome.wrong = where + ": the bits differ from rank " + std::to_string(first_rank[call]) + "'s";
    }
    if (call + 1 == calls) outcome.output_hash = hash_hex(result);
  };

  emulator::TrafficCounter counter(ranks);
  machine.observe(&counter);
  std::vector<std::vector<emulator::Node>> chains(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    for (const Step& step : schedule_of(*row, {team, rank, cell.bytes, capacity_bytes}, shape)) {
      if (step.kind == Step::Kind::copy) {
        chains[rank].push_back({1, [&, rank, step] { emulator::perform_copy(params[rank], step, 1); }});
        continue;
      }
      KernelParams p = params[rank];
      p.step = step.number;
      chains[rank].push_back({step.shape.blocks, [kernel, p] { kernel(p); }});
    }
  const std::optional<std::string> failure =
      machine.run(chains, calls, [&](std::uint32_t rank, std::uint32_t call) {
        if (call > 0) check(rank, call - 1);
        if (call == calls) return;
        std::copy(values[call][rank].begin(), values[call][rank].end(), inputs[rank]);
        if (!in_place) std::fill_n(outputs[rank], cell.bytes, poison);
      });
  if (failure) {
    outcome = {};
    outcome.wrong = cell.contender + " on the emulated box: " + *failure;
    return outcome;
  }
  if (outcome.wrong.empty() && !memory.guards_are_whole())
    outcome.wrong = "bytes beside a buffer were overwritten";
  outcome.correct = outcome.wrong.empty();
  if (!cell.check) outcome.flags.emplace_back("unchecked");
  outcome.ran = "emulated " + std::to_string(shape.blocks) + "x" + std::to_string(shape.threads);
  std::uint64_t messages = 0;
  std::uint64_t wire_bytes = 0;
  for (const emulator::Traffic& traffic : counter.traffic()) {
    messages = std::max(messages, traffic.messages);
    wire_bytes = std::max(wire_bytes, traffic.wire_bytes);
  }
  outcome.messages = messages / calls;
  outcome.wire_bytes = wire_bytes / calls;
  return outcome;
}

}  // namespace

std::unique_ptr<Backend> make_emulated_box(std::uint32_t ranks) {
  return std::make_unique<EmulatedBox>(ranks);
}

}  // namespace arb
