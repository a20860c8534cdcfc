#include "ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "cuda_api/error.h"

namespace arb::worker {
namespace {

using Clock = std::chrono::steady_clock;

// Beyond the device's own deadline the host waits this much longer before it gives a device up.
constexpr std::chrono::seconds grace{3};
constexpr int exit_status_of_a_hang = 2;
constexpr std::uint64_t scratch_guard_bytes = 4096;
constexpr unsigned char scratch_guard_value = 0xA5;

cuda::DeviceBuffer zeroed_state(const cuda::Context& context) {
  cuda::DeviceBuffer buffer(context, sizeof(LocalState));
  const LocalState zero{};
  cuda::copy_to_device(context, buffer.data(), std::as_bytes(std::span(&zero, 1)));
  return buffer;
}

FailureRecord read_failure(const Rank& rank) {
  FailureRecord record{};
  std::atomic_thread_fence(std::memory_order_acquire);
  std::memcpy(&record, rank.failure.data(), sizeof(record));
  return record;
}

}  // namespace

bool Workspace::guard_is_whole(const Rank& rank) const {
  std::vector<std::byte> guard(scratch_guard_bytes);
  cuda::copy_to_host(*rank.context, guard, scratch.data(rank.number) + flags_bytes + scratch_bytes);
  return std::ranges::all_of(guard, [](std::byte b) { return b == std::byte{scratch_guard_value}; });
}

KernelParams Workspace::params(const Rank& rank, std::uint32_t ranks, std::uint64_t deadline_ns) const {
  KernelParams params{};
  params.scratch = {reinterpret_cast<char*>(scratch.data(0)), scratch.stride_bytes()};
  params.local = reinterpret_cast<LocalState*>(local[rank.slot].data());
  params.failure = reinterpret_cast<FailureRecord*>(rank.failure.data());
  params.capacity_bytes = capacity_bytes;
  params.deadline_ns = deadline_ns;
  params.rank = rank.number;
  params.ranks = ranks;
  return params;
}

Ranks::Ranks(const std::vector<cuda::Context>& contexts, std::uint32_t count, const SupportKernels& support,
             std::uint64_t deadline_ms)
    : count_(count),
      support_(&support),
      gate_((contexts.front().make_current(), sizeof(std::uint32_t))),
      deadline_ns_(deadline_ms * 1'000'000),
      ranks_a_gpu_(static_cast<std::uint32_t>((count + contexts.size() - 1) / contexts.size())) {
  for (std::uint32_t rank = 0; rank < count; ++rank) add_rank(rank, contexts[rank % contexts.size()]);
}

Ranks::Ranks(const cuda::Context& context, Rendezvous& rendezvous, const SupportKernels& support,
             std::uint64_t deadline_ms, std::uint32_t ranks_a_gpu)
    : rendezvous_(&rendezvous),
      retired_(std::make_shared<cuda::RetiredMemory>()),
      count_(rendezvous.ranks()),
      support_(&support),
      gate_((context.make_current(), sizeof(std::uint32_t))),
      deadline_ns_(deadline_ms * 1'000'000),
      ranks_a_gpu_(ranks_a_gpu) {
  add_rank(rendezvous.rank(), context);
  start_ = make_workspace(0, 256);
}

Ranks::~Ranks() {
  if (rendezvous_ == nullptr) return;
  // All unmap before any frees; peers that are gone have unmapped.
  constexpr std::chrono::seconds patience{2};
  start_ = {};
  try {
    rendezvous_->barrier("ending", patience);
  } catch (const std::exception& error) {
    fmt::print(stderr, "freeing memory without waiting: {}\n", error.what());
  }
}

void Ranks::add_rank(std::uint32_t number, const cuda::Context& context) {
  context.make_current();
  ranks_.push_back({number, static_cast<std::uint32_t>(ranks_.size()), &context, cuda::Stream(context),
                    cuda::Event(context), cuda::Event(context), zeroed_state(context),
                    cuda::PinnedBuffer(sizeof(FailureRecord))});
}

std::vector<const cuda::Context*> Ranks::contexts() const {
  std::vector<const cuda::Context*> contexts;
  for (const Rank& rank : ranks_) contexts.push_back(rank.context);
  return contexts;
}

cuda::ShareParts share_over(Rendezvous& rendezvous) {
  struct Told {
    std::array<std::byte, 64> ipc_handle;
    std::uint64_t stride_bytes;
    std::uint64_t given;
  };
  return [&rendezvous](cuda::SharedPart own) {
    const Told told{own.ipc_handle, own.stride_bytes, own.given ? 1u : 0u};
    auto heard = rendezvous.exchange("sharing a symmetric buffer", std::as_bytes(std::span(&told, 1)),
                                     own.descriptor.get());
    std::vector<cuda::SharedPart> parts;
    for (Rendezvous::Part& part : heard) {
      Told theirs{};
      if (part.bytes.size() != sizeof(theirs)) throw RendezvousError("a rank shares memory in another way");
      std::memcpy(&theirs, part.bytes.data(), sizeof(theirs));
      parts.push_back(
          {std::move(part.descriptor), theirs.ipc_handle, theirs.stride_bytes, theirs.given != 0});
    }
    return parts;
  };
}

cuda::SymmetricBuffer Ranks::make_symmetric(std::uint64_t bytes_a_rank) const {
  if (rendezvous_ == nullptr) return {contexts(), bytes_a_rank};
  const auto asked_bytes = rendezvous_->gather("making a symmetric buffer", bytes_a_rank);
  // All are past the end of whatever buffer they no longer have.
  retired_->free();
  for (std::uint32_t rank = 0; rank < count_; ++rank) {
    if (asked_bytes[rank] == bytes_a_rank) continue;
    throw RendezvousError(
        fmt::format("the ranks are out of step: rank {} wants a buffer of {} bytes and rank {} of {}",
                    rendezvous_->rank(), bytes_a_rank, rank, asked_bytes[rank]));
  }
  const Rank& own = ranks_.front();
  return {*own.context, own.number, count_, bytes_a_rank, share_over(*rendezvous_), retired_};
}

void Ranks::meet(const char* doing) const {
  if (rendezvous_ != nullptr) rendezvous_->barrier(doing);
}

std::vector<double> Ranks::slowest(const char* doing, std::vector<double> own) const {
  if (rendezvous_ == nullptr) return own;
  for (const std::vector<double>& theirs : rendezvous_->gather_lists<double>(doing, own)) {
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = std::max(own[i], theirs[i]);
  }
  return own;
}

void Ranks::abandon(const char* why) const noexcept {
  if (rendezvous_ != nullptr) rendezvous_->abandon(why);
}

Workspace Ranks::make_workspace(std::uint64_t scratch_bytes, std::uint64_t capacity_bytes, bool sentinel) {
  Workspace workspace;
  workspace.capacity_bytes = capacity_bytes;
  workspace.scratch_bytes = scratch_bytes;
  workspace.scratch = make_symmetric(flags_bytes + scratch_bytes + scratch_guard_bytes);
  for (const Rank& rank : ranks_) {
    workspace.local.push_back(zeroed_state(*rank.context));
    std::byte* const messages = workspace.scratch.data(rank.number) + flags_bytes;
    if (sentinel) rank.stream.set_bytes(messages, 0xFF, scratch_bytes);
    rank.stream.set_bytes(messages + scratch_bytes, scratch_guard_value, scratch_guard_bytes);
  }
  wait("filling scratch");
  return workspace;
}

std::uint32_t Ranks::most_blocks(const cuda::Kernel& kernel, std::uint32_t threads) const {
  std::uint32_t most = max_blocks;
  for (const Rank& rank : ranks_) {
    std::uint32_t room = kernel.resident_blocks(*rank.context, threads);
    // An SM divides its memory into cache and shared memory anew only when it is empty. Blocks of one rank that wait on
    // every SM can so keep out another rank's fill or check kernel for ever: a place is an SM then.
    if (ranks_a_gpu_ > 1) room = std::min(room, rank.context->multiprocessors());
    most = std::min(most, room / ranks_a_gpu_);
  }
  if (rendezvous_ != nullptr) {
    for (const std::uint32_t theirs : rendezvous_->gather("choosing how many blocks", most))
      most = std::min(most, theirs);
  }
  return most;
}

void Ranks::hold(Rank& rank, const cuda::Stream& stream) {
  GateParams params{};
  params.gate = reinterpret_cast<const u32*>(gate_.data());
  params.local = reinterpret_cast<LocalState*>(rank.gate_state.data());
  params.failure = reinterpret_cast<FailureRecord*>(rank.failure.data());
  params.deadline_ns = deadline_ns_;
  params.opened = opened_ + 1;
  params.rank = rank.number;
  stream.launch(support_->gate, {1, 1}, params);
}

void Ranks::open_gate() {
  ++opened_;
  std::atomic_ref(*reinterpret_cast<std::uint32_t*>(gate_.data())).store(opened_, std::memory_order_release);
}

std::optional<std::string> Ranks::first_failure() const {
  for (const Rank& rank : ranks_) {
    const FailureRecord record = read_failure(rank);
    if (record.failed == 0) continue;
    const auto phase = static_cast<Phase>(record.phase);
    if (phase == Phase::gate)
      return fmt::format("rank {} waited at the gate for the host past its deadline", record.rank);
    // A word that says itself that it is there has no number.
    const bool sentinel = record.expected == 0 && record.seen == ~u32{0};
    return fmt::format("rank {} waited for rank {} in phase {} (block {}) for more than {} ms: {}",
                       record.rank, record.peer, phase_name(phase), record.block, deadline_ns_ / 1'000'000,
                       sentinel
                           ? "nothing had come"
                           : fmt::format("it saw number {} and expected {}", record.seen, record.expected));
  }
  return std::nullopt;
}

void Ranks::wait(const cuda::Stream& stream, const char* doing) {
  const auto deadline = Clock::now() + std::chrono::nanoseconds(deadline_ns_) + grace;
  // Short waits spin: a sleep costs more than most replays.
  constexpr int spins_before_sleep = 20000;
  for (int spin = 0; !stream.done(); ++spin) {
    if (spin < spins_before_sleep) continue;
    if (Clock::now() > deadline) {
      const auto failure = first_failure();
      fmt::print(stderr, "device {} did not finish ({}) within {} ms{}{}\n", stream.context().ordinal(),
                 doing, deadline_ns_ / 1'000'000, failure ? "; " : "", failure.value_or(""));
      std::fflush(stderr);
      _exit(exit_status_of_a_hang);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void Ranks::wait(const char* doing) {
  for (const Rank& rank : ranks_) wait(rank.stream, doing);
  if (const auto failure = first_failure()) {
    // The devices are idle again: later work may start from clean records (and from workspaces made anew).
    for (Rank& rank : ranks_) {
      std::memset(rank.failure.data(), 0, sizeof(FailureRecord));
      rank.gate_state = zeroed_state(*rank.context);
    }
    throw DeviceDeadline(*failure);
  }
}

double Ranks::replay_us(const std::vector<cuda::ExecutableGraph>& graphs, const char* doing) {
  // Before anything waits on a device: one that has given up by now leaves no device waiting.
  meet("starting a replay");
  for (Rank& rank : ranks_) {
    hold(rank, rank.stream);
    // Processes open their gates when each is ready, so their devices meet once more.
    if (rendezvous_ != nullptr)
      rank.stream.launch(support_->rank_barrier, {1, 32}, start_.params(rank, count_, deadline_ns_));
    rank.start.record(rank.stream);
    graphs[rank.slot].launch(rank.stream);
    rank.stop.record(rank.stream);
  }
  open_gate();
  wait(doing);
  double slowest = 0;
  for (const Rank& rank : ranks_) slowest = std::max(slowest, rank.stop.microseconds_since(rank.start));
  return slowest;
}

Recorder::Recorder(Ranks& ranks, Kind kind) : ranks_(&ranks), kind_(kind) {
  for (Rank& rank : ranks.all()) {
    if (kind == Kind::capture) {
      cuda::GraphBuilder::begin_capture(rank.stream);
    } else if (kind == Kind::nodes) {
      graphs_.emplace_back(*rank.context);
    }
  }
  capturing_ = kind == Kind::capture;
}

Recorder::~Recorder() {
  if (!capturing_) return;
  for (Rank& rank : ranks_->all()) {
    try {
      cuda::GraphBuilder::end_capture(rank.stream);
    } catch (const cuda::CudaError&) {
      // The error that led here is already on its way.
    }
  }
}

std::vector<cuda::ExecutableGraph> Recorder::finish() {
  if (capturing_) {
    capturing_ = false;
    for (Rank& rank : ranks_->all()) graphs_.push_back(cuda::GraphBuilder::end_capture(rank.stream));
  }
  std::vector<cuda::ExecutableGraph> executable;
  for (Rank& rank : ranks_->all()) {
    executable.push_back(graphs_[rank.slot].instantiate());
    executable.back().upload(rank.stream);
  }
  return executable;
}

void add_call(Recorder& recorder, Rank& rank, const CatalogRow& row, const cuda::Kernel& kernel,
              const Workspace& workspace, KernelParams params, std::uint64_t bytes, LaunchShape shape,
              cuda::Edge edge) {
  const auto address = [&](const Location& location) -> std::byte* {
    switch (location.buffer) {
      case Location::Buffer::input:
        return static_cast<std::byte*>(const_cast<void*>(params.input)) + location.offset_bytes;
      case Location::Buffer::output:
        return static_cast<std::byte*>(params.output) + location.offset_bytes;
      case Location::Buffer::scratch:
        break;
    }
    return workspace.scratch.data(location.rank) + location.offset_bytes;
  };
  const Call call{.team = {params.ranks, params.island_ranks},
                  .rank = rank.number,
                  .bytes = bytes,
                  .capacity_bytes = workspace.capacity_bytes,
                  .input_is_aligned = reinterpret_cast<std::uintptr_t>(params.input) % vector_bytes == 0};
  for (const Step& step : schedule_of(row, call, shape)) {
    if (step.kind == Step::Kind::copy) {
      recorder.add_copy(rank, address(step.to), address(step.from), step.bytes, step.beside);
    } else {
      params.step = step.number;
      recorder.add(rank, kernel, {step.shape.blocks, step.shape.threads}, params, edge);
    }
  }
}

}  // namespace arb::worker
