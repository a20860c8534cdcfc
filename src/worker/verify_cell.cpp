// One case of a verification: calls in graphs whose own nodes make new inputs before each call and check the
// result after it, replayed back to back beside copy traffic.
#include <arb/abi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "cell_runner.h"
#include "reference.h"
#include "verify_case.h"

namespace arb::worker {
namespace {

constexpr std::uint32_t data_threads = 256;  // of fill and check kernels
constexpr std::uint64_t most_data_blocks = 528;
// A workspace that is so much larger than a message needs is made anew: what lies behind a small message
// should be its neighbour's area.
constexpr std::uint64_t generous_factor = 256;

std::uint32_t gpus_of(Ranks& ranks) {
  std::set<std::uint32_t> ordinals;
  for (const Rank& rank : ranks.all()) ordinals.insert(rank.context->ordinal());
  return static_cast<std::uint32_t>(ordinals.size());
}

std::uint32_t copies_of(const VerifyCase& drawn) {
  return drawn.adjacent ? drawn.calls_per_graph() : 1;
}
// From one copy of a tensor with its guards to the next.
std::uint64_t pitch_bytes_of(const VerifyCase& drawn) {
  return (drawn.bytes() + 255) / 256 * 256 + 3 * guard_bytes;
}
// All tensors of a rank in one piece of memory.
std::uint64_t piece_bytes_of(const VerifyCase& drawn) {
  return (drawn.place == Place::in ? 1 : 2) * copies_of(drawn) * pitch_bytes_of(drawn);
}

// Tensors with guards around them, and what the support kernels keep; vectors are in the order of the ranks.
struct Buffers {
  std::uint64_t bytes;
  std::uint64_t pitch_bytes;
  std::vector<std::uint64_t> input_offsets_bytes;
  std::uint64_t output_offset_bytes;
  std::uint32_t copies;
  bool in_place;
  cuda::SymmetricBuffer inputs;             // none in a window
  std::vector<cuda::DeviceBuffer> outputs;  // none in place or in a window
  std::vector<std::byte*> input_starts;     // wherever they are
  std::vector<std::byte*> output_starts;
  std::vector<cuda::DeviceBuffer> records;   // a CheckRecord
  std::vector<cuda::DeviceBuffer> counters;  // finished calls, a u64

  // `window`, if there is one, holds piece_bytes_of(drawn) of each rank.
  Buffers(Ranks& ranks, const VerifyCase& drawn, const nccl::Windows* window)
      : bytes(drawn.bytes()),
        pitch_bytes(pitch_bytes_of(drawn)),
        output_offset_bytes(guard_bytes + drawn.output_offset_elements * size_of_bytes(drawn.dtype)),
        copies(copies_of(drawn)),
        in_place(drawn.place == Place::in) {
    const std::uint64_t all_bytes = copies * pitch_bytes;
    if (window == nullptr) inputs = ranks.make_symmetric(all_bytes);
    for (std::uint32_t rank = 0; rank < ranks.count(); ++rank)
      input_offsets_bytes.push_back(guard_bytes +
                                    drawn.input_offset_elements_of(rank) * size_of_bytes(drawn.dtype));
    for (const Rank& rank : ranks.all()) {
      if (window == nullptr && !in_place) outputs.emplace_back(*rank.context, all_bytes);
      input_starts.push_back(window != nullptr ? window->data(rank.slot) : inputs.data(rank.number));
      output_starts.push_back(in_place            ? input_starts.back()
                              : window != nullptr ? input_starts.back() + all_bytes
                                                  : outputs.back().data());
      rank.stream.set_bytes(input_starts.back(), guard_value, all_bytes);
      if (!in_place) rank.stream.set_bytes(output_starts.back(), guard_value, all_bytes);
      records.emplace_back(*rank.context, sizeof(CheckRecord));
      rank.stream.set_bytes(records.back().data(), 0, sizeof(CheckRecord));
      counters.emplace_back(*rank.context, sizeof(u64));
      rank.stream.set_bytes(counters.back().data(), 0, sizeof(u64));
    }
    ranks.wait("preparing a verification");
  }

  [[nodiscard]] std::byte* input(std::uint32_t rank, std::uint32_t copy) const {
    return input_starts[rank] + copy * pitch_bytes + input_offsets_bytes[rank];
  }
  [[nodiscard]] std::byte* output(std::uint32_t rank, std::uint32_t copy) const {
    return in_place ? input(rank, copy) : output_starts[rank] + copy * pitch_bytes + output_offset_bytes;
  }
  [[nodiscard]] u64* counter(std::uint32_t rank) const {
    return reinterpret_cast<u64*>(counters[rank].data());
  }
  // A sentence when a byte that belongs to no tensor was written.
  [[nodiscard]] std::string broken_guard(const Rank& rank) const {
    const auto broken = [&](const std::byte* buffer, std::uint64_t offset_bytes) {
      for (std::uint32_t copy = 0; copy < copies; ++copy) {
        const std::byte* const begin = buffer + copy * pitch_bytes;
        std::vector<std::byte> before(offset_bytes);
        std::vector<std::byte> after(pitch_bytes - offset_bytes - bytes);
        cuda::copy_to_host(*rank.context, before, begin);
        cuda::copy_to_host(*rank.context, after, begin + offset_bytes + bytes);
        for (const auto& guard : {before, after}) {
          if (std::ranges::any_of(guard, [](std::byte b) { return b != std::byte{guard_value}; }))
            return true;
        }
      }
      return false;
    };
    if (broken(input_starts[rank.number], input_offsets_bytes[rank.number]))
      return fmt::format("bytes beside the input of rank {} were overwritten", rank.number);
    if (!in_place && broken(output_starts[rank.number], output_offset_bytes))
      return fmt::format("bytes beside the result of rank {} were overwritten", rank.number);
    return "";
  }
};

// Engine copies from every GPU to the next (to itself where there is one) on streams of their own.
class Traffic {
 public:
  explicit Traffic(Ranks& ranks) : buffer_(ranks.make_symmetric(2 * copy_bytes)) {
    const std::uint32_t gpus = gpus_of(ranks);
    for (std::uint32_t from = 0; from < gpus; ++from) {
      const std::uint32_t to = (from + 1) % gpus;
      const cuda::Context& context = *ranks[from].context;
      streams_.emplace_back(context);
      cuda::GraphBuilder builder(context);
      for (int copy = 0; copy < copies_a_graph; ++copy)
        builder.add_copy(buffer_.data(to) + copy_bytes, buffer_.data(from), copy_bytes);
      graphs_.push_back(builder.instantiate());
      graphs_.back().upload(streams_.back());
    }
  }
  // To be called once the gate is open: a full queue behind a closed one would hold the host, and the gate
  // with it.
  void start() {
    for (std::uint32_t gpu = 0; gpu < streams_.size(); ++gpu) {
      for (std::uint32_t round = 0; round < rounds_; ++round) graphs_[gpu].launch(streams_[gpu]);
    }
  }
  // After the ranks are done: about as much traffic next time as the calls took.
  void finish(Ranks& ranks) {
    constexpr std::uint32_t most_rounds = 64;
    const bool short_of_work =
        std::ranges::all_of(streams_, [](const auto& stream) { return stream.done(); });
    rounds_ = short_of_work ? std::min(2 * rounds_, most_rounds) : std::max(rounds_ / 2, 1u);
    for (const cuda::Stream& stream : streams_) ranks.wait(stream, "copy traffic");
  }

 private:
  static constexpr std::uint64_t copy_bytes = 1 << 20;
  static constexpr int copies_a_graph = 16;

  cuda::SymmetricBuffer buffer_;
  std::vector<cuda::Stream> streams_;
  std::vector<cuda::ExecutableGraph> graphs_;
  std::uint32_t rounds_ = 1;
};

// Adds the nodes of a graph for all ranks; the contender's call is the caller's.
class Nodes {
 public:
  Nodes(Recorder& recorder, Ranks& ranks, const Buffers& buffers, const VerifyCase& drawn,
        std::uint64_t number)
      : recorder_(&recorder), ranks_(&ranks), buffers_(&buffers), drawn_(&drawn), number_(number) {}

  void fill(std::uint32_t call, std::uint32_t copy) {
    for (Rank& rank : ranks_->all()) {
      const FillParams params{buffers_->input(rank.number, copy),
                              buffers_->in_place ? nullptr : buffers_->output(rank.number, copy),
                              inputs(rank.number, call), rank.number, 0};
      recorder_->add(rank, ranks_->support().fill, data_shape(), params);
    }
  }
  void delay(std::uint32_t call) {
    if (drawn_->most_delay_us == 0) return;
    for (Rank& rank : ranks_->all()) {
      const DelayParams params{buffers_->counter(rank.number),  call,        number_,
                               drawn_->most_delay_us * 1000ull, rank.number, 0};
      recorder_->add(rank, ranks_->support().delay, {1, 1}, params);
    }
  }
  void check(std::uint32_t call, std::uint32_t copy, const CatalogRow& row) {
    const std::uint32_t roundings = row.roundings(ranks_->count());
    for (Rank& rank : ranks_->all()) {
      const CheckParams params{buffers_->output(rank.number, copy),
                               reinterpret_cast<CheckRecord*>(buffers_->records[rank.number].data()),
                               inputs(rank.number, call),
                               relative_bound(drawn_->dtype, roundings, ranks_->count()),
                               absolute_bound(drawn_->dtype, roundings),
                               row.rank_order ? 1u : 0u,
                               0};
      recorder_->add(rank, ranks_->support().check, data_shape(), params);
    }
  }
  void advance() {
    for (Rank& rank : ranks_->all()) {
      const AdvanceParams params{buffers_->counter(rank.number), drawn_->calls_per_graph()};
      recorder_->add(rank, ranks_->support().advance, {1, 1}, params);
    }
  }
  // Puts another value into the middle element of the last rank's tensor.
  void spoil(const std::byte* tensor) {
    Rank& rank = ranks_->all().back();
    InputParams other = inputs(rank.number, 0);
    other.seed += 1ull << 62;
    other.pattern = Pattern::random;
    other.count_elements = 1;
    const std::uint64_t offset_bytes = drawn_->count_elements / 2 * size_of_bytes(drawn_->dtype);
    recorder_->add(rank, ranks_->support().fill, {1, 32},
                   FillParams{const_cast<std::byte*>(tensor) + offset_bytes, nullptr, other, rank.number, 0});
  }

 private:
  [[nodiscard]] InputParams inputs(std::uint32_t rank, std::uint32_t call) const {
    // Numbers that follow one another share no inputs: no case has so many calls.
    constexpr std::uint64_t most_calls = 1 << 20;
    return {number_ * most_calls,
            buffers_->counter(rank),
            call,
            drawn_->count_elements,
            ranks_->count(),
            static_cast<DtypeCode>(drawn_->dtype),
            drawn_->pattern,
            0};
  }
  [[nodiscard]] cuda::GridShape data_shape() const {
    const std::uint64_t blocks = (drawn_->count_elements + data_threads - 1) / data_threads;
    return {static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, most_data_blocks)), data_threads};
  }

  Recorder* recorder_;
  Ranks* ranks_;
  const Buffers* buffers_;
  const VerifyCase* drawn_;
  std::uint64_t number_;
};

// What the records of all ranks say together; a sentence when something is wrong.
std::string findings(Ranks& ranks, const Buffers& buffers, const VerifyCase& drawn,
                     std::uint64_t finished_calls, Outcome& outcome) {
  std::string wrong;
  std::string differ;
  u64 hash_of_first = 0;
  for (const Rank& rank : ranks.all()) {
    CheckRecord record{};
    cuda::copy_to_host(*rank.context, std::as_writable_bytes(std::span(&record, 1)),
                       buffers.records[rank.number].data());
    outcome.max_error = std::max(
        outcome.max_error,
        static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(record.max_error_bits))));
    if (&rank == &ranks.all().front()) {
      hash_of_first = record.hash;
      outcome.output_hash = fmt::format("{:016x}", record.hash);
    } else if (record.hash != hash_of_first && differ.empty()) {
      differ = fmt::format("ranks {} and {} have different bits in one of the first {} calls",
                           ranks.all().front().number, rank.number, finished_calls);
    }
    if (record.wrong_elements != 0 && wrong.empty()) {
      wrong = fmt::format(
          "rank {} has {} wrong elements in the first {} calls, the first in call {} at {} of {}",
          rank.number, record.wrong_elements, finished_calls, call_of_wrong_place(record.first_wrong),
          element_of_wrong_place(record.first_wrong), drawn.count_elements);
    }
  }
  return wrong.empty() ? differ : wrong;
}

}  // namespace

Outcome CellRunner::verify(const Cell& cell, const CatalogRow& row) {
  Outcome outcome;
  const std::uint32_t n = ranks_->count();
  const VerifyCase drawn = verify_case(row, n, gpus_of(*ranks_), cell.seed);
  if (drawn.dtype != cell.dtype || drawn.bytes() != cell.bytes || drawn.place != cell.place ||
      drawn.island_ranks != cell.island_ranks) {
    outcome.failure =
        fmt::format("case {} is another one here: coordinator and worker are not of one build", cell.seed);
    return outcome;
  }
  outcome.ran = describe(drawn);
  if (ranks_->oversubscribed()) outcome.flags.emplace_back("oversubscribed");

  const bool ours = row.source == Source::kernel;
  const cuda::Kernel kernel =
      ours ? code_->kernel(cell.bundle, function_name(row, cell.dtype, n)) : cuda::Kernel();
  std::vector<LaunchShape> shapes = drawn.shapes;
  for (LaunchShape& shape : shapes) {
    if (!ours) break;
    const std::uint32_t most = ranks_->most_blocks(kernel, shape.threads);
    if (most == 0) {
      outcome.failure =
          fmt::format("{} cannot run here: {} ranks share a GPU that holds no block of {} threads for each",
                      cell.contender, n, shape.threads);
      return outcome;
    }
    // Where ranks share a GPU, fill, check and delay kernels want room beside blocks that wait.
    shape.blocks = std::min(shape.blocks, ranks_->oversubscribed() ? std::max(most / 2, 1u) : most);
  }
  const auto generous = [&](const auto& entry) {
    return entry.second.capacity_bytes > generous_factor * std::max<std::uint64_t>(cell.bytes, 256);
  };
  std::erase_if(workspaces_, generous);
  Workspace* const workspace = ours ? &workspace_for(row, cell.bytes) : nullptr;
  if (needs_windows(row)) reserve_window(piece_bytes_of(drawn));
  const Buffers buffers(*ranks_, drawn, needs_windows(row) ? &nccl_->windows : nullptr);

  Recorder recorder(*ranks_, ours ? Recorder::Kind::nodes : Recorder::Kind::capture);
  Nodes nodes(recorder, *ranks_, buffers, drawn, cell.seed);
  const std::uint32_t planted_call = drawn.calls_per_graph() / 2;
  const auto add_contender = [&](std::uint32_t call, std::uint32_t copy, cuda::Edge edge) {
    const bool planted = call == planted_call && cell.bytes != 0;
    const std::uint32_t last = n - 1;
    if (planted && cell.plant == Plant::input) nodes.spoil(buffers.input(last, copy));
    if (ours) {
      for (Rank& rank : ranks_->all()) {
        if (call == planted_call && cell.plant == Plant::absent && rank.number == last) continue;
        KernelParams params = workspace->params(rank, n, ranks_->deadline_ns());
        params.input = buffers.input(rank.number, copy);
        params.output = buffers.output(rank.number, copy);
        if (row.style == Style::symmetric) {
          params.inputs = {reinterpret_cast<char*>(buffers.input(0, copy)), buffers.inputs.stride_bytes()};
        }
        params.count_elements = drawn.count_elements;
        params.island_ranks = team_.island_ranks;
        add_call(recorder, rank, row, kernel, *workspace, params, cell.bytes, shapes[call], edge);
      }
    } else {
      std::vector<const void*> inputs;
      std::vector<void*> outputs;
      std::vector<void*> streams;
      for (const Rank& rank : ranks_->all()) {
        inputs.push_back(buffers.input(rank.number, copy));
        outputs.push_back(buffers.output(rank.number, copy));
        streams.push_back(rank.stream.handle());
      }
      nccl_->communicators->all_reduce(inputs, outputs, drawn.count_elements, cell.dtype, streams);
    }
    if (planted && cell.plant == Plant::output) nodes.spoil(buffers.output(last, copy));
  };
  if (drawn.adjacent) {
    // Calls that start early pile up. Where ranks share a GPU they must not keep out those that they wait for, so all
    // of a graph must have room at once, and fill and check kernels beside them.
    const auto have_room = [&] {
      std::uint64_t blocks = 0;
      std::uint32_t room = max_blocks;
      for (const LaunchShape& shape : shapes) {
        blocks += shape.blocks;
        room = std::min(room, ranks_->most_blocks(kernel, shape.threads));
      }
      return 2 * blocks <= room;
    };
    const bool early =
        row.programmatic && cell.plant == Plant::none && (!ranks_->oversubscribed() || have_room());
    if (early) outcome.ran += ", programmatic edges";
    for (std::uint32_t call = 0; call < drawn.calls_per_graph(); ++call) nodes.fill(call, call);
    for (std::uint32_t call = 0; call < drawn.calls_per_graph(); ++call)
      add_contender(call, call, early && call != 0 ? cuda::Edge::programmatic : cuda::Edge::plain);
    for (std::uint32_t call = 0; call < drawn.calls_per_graph(); ++call) nodes.check(call, call, row);
  } else {
    for (std::uint32_t call = 0; call < drawn.calls_per_graph(); ++call) {
      nodes.fill(call, 0);
      nodes.delay(call);
      add_contender(call, 0, cuda::Edge::plain);
      nodes.check(call, 0, row);
    }
  }
  nodes.advance();
  const std::vector<cuda::ExecutableGraph> graphs = recorder.finish();
  std::optional<Traffic> traffic;
  if (drawn.traffic) traffic.emplace(*ranks_);

  std::uint64_t finished_calls = 0;
  while (finished_calls < cell.verify_calls && outcome.wrong.empty()) {
    const auto launch_everywhere = [&] {
      for (Rank& rank : ranks_->all()) graphs[rank.number].launch(rank.stream);
    };
    for (Rank& rank : ranks_->all()) ranks_->hold(rank, rank.stream);
    launch_everywhere();
    ranks_->open_gate();
    if (traffic) traffic->start();
    for (std::uint32_t graph = 1; graph < drawn.graphs_at_once; ++graph) launch_everywhere();
    ranks_->wait(cell.contender.c_str());
    if (traffic) traffic->finish(*ranks_);
    finished_calls += std::uint64_t{drawn.calls_per_graph()} * drawn.graphs_at_once;
    outcome.wrong = findings(*ranks_, buffers, drawn, finished_calls, outcome);
  }
  if (!ours) nccl_->communicators->check();
  for (const Rank& rank : ranks_->all()) {
    u64 counted = 0;
    cuda::copy_to_host(*rank.context, std::as_writable_bytes(std::span(&counted, 1)),
                       buffers.counters[rank.number].data());
    if (outcome.wrong.empty() && counted != finished_calls)
      outcome.wrong =
          fmt::format("rank {} replayed {} calls instead of {}", rank.number, counted, finished_calls);
    if (outcome.wrong.empty()) outcome.wrong = buffers.broken_guard(rank);
    if (outcome.wrong.empty() && workspace != nullptr && !workspace->guard_is_whole(rank))
      outcome.wrong = fmt::format("bytes behind the scratch of rank {} were overwritten", rank.number);
  }
  outcome.correct = outcome.wrong.empty();
  // What a wrong call left in scratch is no ground for the next case.
  if (!outcome.correct) workspaces_.clear();
  return outcome;
}

}  // namespace arb::worker
