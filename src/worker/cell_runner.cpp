#include "cell_runner.h"

#include <arb/abi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "call_deadline.h"
#include "cuda_api/error.h"
#include "nccl_api/error.h"
#include "reference.h"
#include "stats.h"

namespace arb::worker {
namespace {

constexpr unsigned char poison_value = 0xFF;  // NaN in every dtype
// Calls in one graph of isolated ones: each behind a barrier and between stamps of its own.
constexpr std::uint32_t isolated_calls_per_graph = 20;
constexpr cuda::GridShape check_shape{528, 256};

// Random inputs, others in every replay and for every buffer.
InputParams random_inputs(const Cell& cell, std::uint64_t seed, std::uint32_t copy) {
  InputParams inputs{};
  inputs.seed = seed * isolated_calls_per_graph + copy;
  inputs.count_elements = cell.bytes / size_of_bytes(cell.dtype);
  inputs.ranks = cell.ranks;
  inputs.dtype = static_cast<DtypeCode>(cell.dtype);
  return inputs;
}

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t to) {
  return (bytes + to - 1) / to * to;
}

// Of a library's call that meets other ranks: well before the coordinator gives this worker up, so that there is a
// sentence.
std::chrono::milliseconds library_deadline(const Ranks& ranks) {
  constexpr std::chrono::seconds longer_than_a_device{10};
  return std::chrono::milliseconds(ranks.deadline_ns() / 1'000'000) + longer_than_a_device;
}

}  // namespace

// A cell's tensors: `copies` of them, which the calls of a graph take in turn, with guards around each.
struct CellRunner::Tensors {
  std::uint64_t bytes;
  std::uint64_t pitch_bytes;
  std::uint32_t copies;
  bool in_place;
  bool refilled;                            // calls overwrite inputs, so every replay needs new ones
  cuda::SymmetricBuffer inputs;             // none in a window or in a peer's memory
  std::vector<cuda::DeviceBuffer> outputs;  // by slot; none in place or in a window
  std::vector<std::byte*> input_starts;     // by slot, wherever they are
  std::vector<std::byte*> output_starts;    // likewise; in place the same
  std::vector<cuda::DeviceBuffer> records;  // CheckRecord a copy, by slot
  std::vector<cuda::DeviceBuffer> flush;    // for cold cells, by slot

  [[nodiscard]] std::uint64_t all_bytes() const { return copies * pitch_bytes; }
  [[nodiscard]] std::uint64_t offset_bytes(std::uint32_t copy) const {
    return copy * pitch_bytes + guard_bytes;
  }
  [[nodiscard]] std::byte* input(const Rank& rank, std::uint32_t copy) const {
    return input_starts[rank.slot] + offset_bytes(copy);
  }
  [[nodiscard]] std::byte* output(const Rank& rank, std::uint32_t copy) const {
    return output_starts[rank.slot] + offset_bytes(copy);
  }
};

// What the checks of all replays so far found.
struct CellRunner::Judged {
  std::string wrong;
  double max_error = 0;
  std::string hash;
};

Outcome CellRunner::run(const Cell& cell) {
  Outcome outcome;
  const CatalogRow* const row = find_contender(cell.contender);
  try {
    if (row == nullptr) throw BundleError(fmt::format("there is no contender {}", cell.contender));
    if (row->source == Source::chosen)
      throw BundleError(
          fmt::format("{} chooses a contender when a plan is made, and runs none itself", cell.contender));
    return run_checked(cell, *row);
  } catch (const DeviceDeadline& error) {
    // Generations are out of step now.
    workspaces_.clear();
    barrier_ = {};
    outcome.wrong = error.what();
    outcome.flags = {hang_flag};
  } catch (const BundleError& error) {
    outcome.failure = error.what();
  } catch (const cuda::CudaError& error) {
    outcome.failure = error.what();
  } catch (const nccl::Error& error) {
    outcome.failure = error.what();
  } catch (const PeerError& error) {
    outcome.failure = error.what();
  } catch (const RendezvousError& error) {
    outcome.failure = error.what();
  }
  // Others may wait for this process at a step that it will not take.
  ranks_->abandon((outcome.wrong.empty() ? outcome.failure : outcome.wrong).c_str());
  return outcome;
}

Workspace& CellRunner::workspace_for(const CatalogRow& row, std::uint64_t bytes) {
  // Where messages lie depends on the islands too.
  const std::string key = fmt::format("{} {}", row.contender, row.needs_islands ? team_.island_ranks : 0);
  const auto found = workspaces_.find(key);
  if (found != workspaces_.end() && found->second.capacity_bytes >= bytes) return found->second;
  if (found != workspaces_.end()) workspaces_.erase(found);  // first free, then take more
  const std::uint64_t capacity_bytes = std::max<std::uint64_t>(std::bit_ceil(bytes), 256);
  return workspaces_
      .emplace(key,
               ranks_->make_workspace(row.scratch_bytes(team_, capacity_bytes), capacity_bytes, row.sentinel))
      .first->second;
}

std::string CellRunner::peer_problem(const Cell& cell, const CatalogRow& row) const {
  if (peer_ == nullptr) return fmt::format("this worker does not bring {}", row.peer);
  if (ranks_->rendezvous() == nullptr) return std::string(peer_needs_processes);
  return std::string(refusal_of(row, {cell.dtype, cell.ranks, cell.bytes, cell.place}));
}

void CellRunner::call_peer_once(const Cell& cell, const Tensors& tensors) {
  Rank& rank = (*ranks_)[0];
  ranks_->wait("filling a peer's memory");
  ranks_->meet("a peer's first call");
  rank.context->make_current();
  peer_->enqueue(cell, tensors.input(rank, 0), tensors.output(rank, 0), rank.stream.handle());
  rank.context->make_current();
  ranks_->wait("a peer's first call");
}

void CellRunner::reserve_window(std::uint64_t bytes) {
  nccl_->windows.reserve(
      *nccl_->communicators, bytes,
      {.make_current = [this](std::size_t slot) { ranks_->all()[slot].context->make_current(); },
       .agree =
           [this](const std::string& problem) {
             Rendezvous* const rendezvous = ranks_->rendezvous();
             const auto others = rendezvous == nullptr ? std::vector<std::uint32_t>{}
                                                       : rendezvous->gather("making room for a window",
                                                                            problem.empty() ? 0u : 1u);
             if (!problem.empty()) throw nccl::Error(problem);
             const auto failed = std::ranges::find(others, 1u);
             if (failed != others.end())
               throw RendezvousError(
                   fmt::format("rank {} could not make room for NCCL's window", failed - others.begin()));
           },
       .deadline = library_deadline(*ranks_)});
}

void CellRunner::start_nccl(const Cell& cell, const CatalogRow& row) {
  if (nccl_ == nullptr) throw nccl::Error("this worker has no NCCL library");
  if (needs_windows(row) && !nccl_->library.window_problem().empty())
    throw nccl::Error(nccl_->library.window_problem());
  const std::string problem = nccl::configuration_here(row).problem;
  if (!problem.empty()) throw nccl::Error(problem);
  if (nccl_->communicators != nullptr) return;
  if (ranks_->oversubscribed())
    throw nccl::Error("NCCL runs one rank a GPU: it cannot take part with virtual ranks");
  std::vector<std::uint32_t> devices;
  for (const Rank& rank : ranks_->all()) devices.push_back(rank.context->ordinal());
  if (Rendezvous* const rendezvous = ranks_->rendezvous()) {
    nccl::UniqueId id{};
    if (rendezvous->rank() == 0) id = nccl::make_unique_id(nccl_->library);
    id = rendezvous->gather("setting NCCL up", id).front();
    (*ranks_)[0].context->make_current();
    const CallDeadline deadline(library_deadline(*ranks_), "NCCL", "setting communicators up");
    nccl_->communicators =
        std::make_unique<nccl::Communicators>(nccl_->library, rendezvous->rank(), rendezvous->ranks(), id);
  } else {
    const CallDeadline deadline(library_deadline(*ranks_), "NCCL", "setting communicators up");
    nccl_->communicators = std::make_unique<nccl::Communicators>(nccl_->library, devices);
  }
  // One collective alone: it loads NCCL's kernels before any of them can wait behind another.
  cuda::SymmetricBuffer buffer = ranks_->make_symmetric(4096);
  const auto reduce_once = [&](const auto& place_of) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    std::vector<void*> streams;
    for (const Rank& rank : ranks_->all()) {
      inputs.push_back(place_of(rank));
      outputs.push_back(place_of(rank));
      streams.push_back(rank.stream.handle());
    }
    nccl_->communicators->all_reduce(inputs, outputs, 4096 / size_of_bytes(cell.dtype), cell.dtype, streams);
    ranks_->wait("NCCL's first collective");
  };
  reduce_once([&](const Rank& rank) { return buffer.data(rank.number); });
  if (!needs_windows(row)) return;
  // And one in a window, whose kernels are others.
  reserve_window(4096);
  for (Rank& rank : ranks_->all()) rank.stream.set_bytes(nccl_->windows.data(rank.slot), 0, 4096);
  ranks_->wait("filling a window");
  ranks_->meet("NCCL's first collective in a window");
  reduce_once([&](const Rank& rank) { return nccl_->windows.data(rank.slot); });
}

void CellRunner::need_isolated_parts() {
  if (!barrier_.local.empty()) return;
  barrier_ = ranks_->make_workspace(0, 256);
  stamps_.clear();
  for (const Rank& rank : ranks_->all()) {
    stamps_.emplace_back(*rank.context, 2 * isolated_calls_per_graph * sizeof(u64));
  }
}

void CellRunner::stamp(Recorder& recorder, Rank& rank, std::uint32_t index) const {
  const StampParams params{reinterpret_cast<u64*>(stamps_[rank.slot].data()) + index};
  recorder.add(rank, ranks_->support().stamp, {1, 1}, params);
}

// Stamp to stamp of each call of the last replay, the slowest rank's.
std::vector<double> CellRunner::isolated_us(std::uint32_t calls) const {
  std::vector<double> slowest(calls, 0);
  for (const Rank& rank : ranks_->all()) {
    std::vector<u64> stamps(2 * calls);
    cuda::copy_to_host(*rank.context, std::as_writable_bytes(std::span(stamps)), stamps_[rank.slot].data());
    for (std::uint32_t call = 0; call < calls; ++call) {
      slowest[call] =
          std::max(slowest[call], static_cast<double>(stamps[2 * call + 1] - stamps[2 * call]) / 1000.0);
    }
  }
  return slowest;
}

double CellRunner::between_stamps_us(bool empty_node) {
  need_isolated_parts();
  Recorder recorder(*ranks_, Recorder::Kind::nodes);
  for (std::uint32_t call = 0; call < isolated_calls_per_graph; ++call) {
    for (Rank& rank : ranks_->all()) {
      recorder.add(rank, ranks_->support().rank_barrier, {1, 32},
                   barrier_.params(rank, ranks_->count(), ranks_->deadline_ns()));
      stamp(recorder, rank, 2 * call);
      if (empty_node) recorder.add(rank, ranks_->support().empty, {1, 32}, StampParams{nullptr});
      stamp(recorder, rank, 2 * call + 1);
    }
  }
  const auto graphs = recorder.finish();
  std::vector<double> all;
  for (int replay = 0; replay < 20; ++replay) {
    ranks_->replay_us(graphs, "stamps without a call");
    if (replay == 0) continue;
    const auto some = isolated_us(isolated_calls_per_graph);
    all.insert(all.end(), some.begin(), some.end());
  }
  return percentiles_of(ranks_->slowest("measuring stamps", std::move(all))).p50_us;
}

double CellRunner::stamp_us() {
  if (!stamp_us_) stamp_us_ = between_stamps_us(false);
  return *stamp_us_;
}

double CellRunner::isolated_empty_us() {
  return between_stamps_us(true);
}

std::vector<cuda::ExecutableGraph> CellRunner::record(const Cell& cell, const CatalogRow& row,
                                                      const Tensors& tensors, std::uint32_t calls,
                                                      LaunchShape shape) {
  const bool isolated = cell.mode == Mode::isolated;
  const std::uint64_t count = cell.bytes / size_of_bytes(cell.dtype);
  const cuda::Kernel kernel =
      row.source == Source::kernel
          ? code_->kernel(cell.bundle, function_name(row, cell.dtype, ranks_->count()))
          : cuda::Kernel();
  Workspace* const workspace = row.source == Source::kernel ? &workspace_for(row, cell.bytes) : nullptr;
  // Isolated calls stand between stamps, which must not overlap them; ranks that share a GPU must not pile
  // up.
  const cuda::Edge edge = row.programmatic && !isolated && !ranks_->oversubscribed()
                              ? cuda::Edge::programmatic
                              : cuda::Edge::plain;
  Recorder recorder(*ranks_, row.source == Source::kernel ? Recorder::Kind::nodes : Recorder::Kind::capture);
  for (std::uint32_t call = 0; call < calls; ++call) {
    const std::uint32_t copy = call % tensors.copies;
    for (Rank& rank : ranks_->all()) {
      if (!isolated) break;
      recorder.add(rank, ranks_->support().rank_barrier, {1, 32},
                   barrier_.params(rank, ranks_->count(), ranks_->deadline_ns()));
      stamp(recorder, rank, 2 * call);
    }
    if (row.source == Source::nccl) {
      std::vector<const void*> inputs;
      std::vector<void*> outputs;
      std::vector<void*> streams;
      for (const Rank& rank : ranks_->all()) {
        inputs.push_back(tensors.input(rank, copy));
        outputs.push_back(tensors.output(rank, copy));
        streams.push_back(rank.stream.handle());
      }
      nccl_->communicators->all_reduce(inputs, outputs, count, cell.dtype, streams);
    } else if (row.source == Source::peer) {
      for (Rank& rank : ranks_->all())
        peer_->enqueue(cell, tensors.input(rank, copy), tensors.output(rank, copy), rank.stream.handle());
    } else {
      for (Rank& rank : ranks_->all()) {
        KernelParams params = workspace->params(rank, ranks_->count(), ranks_->deadline_ns());
        params.input = tensors.input(rank, copy);
        params.output = tensors.output(rank, copy);
        if (row.style == Style::symmetric) {
          params.inputs = {reinterpret_cast<char*>(tensors.inputs.data(0) + tensors.offset_bytes(copy)),
                           tensors.inputs.stride_bytes()};
        }
        params.count_elements = count;
        params.island_ranks = team_.island_ranks;
        add_call(recorder, rank, row, kernel, *workspace, params, cell.bytes, shape, edge);
      }
    }
    for (Rank& rank : ranks_->all()) {
      if (isolated) stamp(recorder, rank, 2 * call + 1);
    }
  }
  return recorder.finish();
}

// New inputs, poisoned outputs: nothing that a replay leaves behind can come from the one before.
void CellRunner::prepare(const Cell& cell, const Tensors& tensors, std::uint64_t seed) {
  ranks_->meet("refilling the inputs");  // nobody reads the old ones any more
  for (Rank& rank : ranks_->all()) {
    for (std::uint32_t copy = 0; copy < tensors.copies; ++copy) {
      if (!tensors.in_place) rank.stream.set_bytes(tensors.output(rank, copy), poison_value, cell.bytes);
      const FillParams fill{tensors.input(rank, copy), nullptr, random_inputs(cell, seed, copy), rank.number,
                            0};
      rank.stream.launch(ranks_->support().fill, check_shape, fill);
    }
    if (!tensors.flush.empty()) {
      rank.stream.set_bytes(tensors.flush[rank.slot].data(), 0, tensors.flush[rank.slot].size_bytes());
    }
  }
  ranks_->wait("filling the inputs");
}

void CellRunner::judge(const Cell& cell, const CatalogRow& row, const Tensors& tensors, std::uint64_t seed,
                       Judged& judged) {
  const std::uint64_t count = cell.bytes / size_of_bytes(cell.dtype);
  for (Rank& rank : ranks_->all()) {
    const cuda::DeviceBuffer& records = tensors.records[rank.slot];
    rank.stream.set_bytes(records.data(), 0, records.size_bytes());
    for (std::uint32_t copy = 0; copy < tensors.copies; ++copy) {
      const std::uint32_t roundings = row.roundings(cell.ranks);
      const CheckParams check{tensors.output(rank, copy),
                              reinterpret_cast<CheckRecord*>(records.data()) + copy,
                              random_inputs(cell, seed, copy),
                              relative_bound(cell.dtype, roundings, cell.ranks),
                              absolute_bound(cell.dtype, roundings),
                              row.rank_order ? 1u : 0u,
                              0};
      rank.stream.launch(ranks_->support().check, check_shape, check);
    }
  }
  ranks_->wait("checking the results");
  std::vector<std::vector<CheckRecord>> own;
  for (const Rank& rank : ranks_->all()) {
    own.emplace_back(tensors.copies);
    cuda::copy_to_host(*rank.context, std::as_writable_bytes(std::span(own.back())),
                       tensors.records[rank.slot].data());
  }
  const auto records = ranks_->from_all("checking the results", std::move(own));
  for (std::uint32_t copy = 0; copy < tensors.copies; ++copy) {
    for (std::uint32_t rank = 0; rank < records.size(); ++rank) {
      const CheckRecord& record = records[rank][copy];
      judged.max_error = std::max(
          judged.max_error,
          static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(record.max_error_bits))));
      if (rank == 0 && copy == 0) judged.hash = fmt::format("{:016x}", record.hash);
      if (!judged.wrong.empty()) continue;
      if (record.wrong_elements != 0) {
        judged.wrong =
            fmt::format("rank {} has {} wrong elements of {}, the first at {} (seed {}, buffer {})", rank,
                        record.wrong_elements, count, element_of_wrong_place(record.first_wrong), seed, copy);
      } else if (record.hash != records[0][copy].hash) {
        judged.wrong =
            fmt::format("ranks 0 and {} have different bits (seed {}, buffer {})", rank, seed, copy);
      }
    }
  }
}

// A sentence about a byte around a tensor that somebody wrote; empty when all guards are whole.
std::string CellRunner::broken_guard(const Tensors& tensors, const Rank& rank) {
  const auto broken = [&](const std::byte* tensor) {
    std::vector<std::byte> bytes(2 * guard_bytes);
    const std::span around(bytes);
    cuda::copy_to_host(*rank.context, around.first(guard_bytes), tensor - guard_bytes);
    cuda::copy_to_host(*rank.context, around.last(guard_bytes), tensor + tensors.bytes);
    return std::ranges::any_of(bytes, [](std::byte b) { return b != std::byte{guard_value}; });
  };
  for (std::uint32_t copy = 0; copy < tensors.copies; ++copy) {
    for (const std::byte* tensor : {tensors.input(rank, copy), tensors.output(rank, copy)}) {
      if (broken(tensor))
        return fmt::format("bytes beside a tensor of rank {} were overwritten", rank.number);
    }
  }
  return "";
}

Outcome CellRunner::run_checked(const Cell& cell, const CatalogRow& row) {
  Outcome outcome;
  if (cell.place == Place::in && !row.in_place) {
    outcome.failure = fmt::format("{}: {}", cell.contender, row.in_place_refusal);
    return outcome;
  }
  if (row.source == Source::peer) {
    outcome.failure = peer_problem(cell, row);
    if (!outcome.failure.empty()) return outcome;
  }
  if (cell.ranks != ranks_->count()) {
    outcome.failure =
        fmt::format("a cell of {} ranks cannot run on a worker of {}", cell.ranks, ranks_->count());
    return outcome;
  }
  team_ = {ranks_->count(), cell.island_ranks};
  if (row.needs_islands && (cell.island_ranks < 2 || ranks_->count() % cell.island_ranks != 0 ||
                            ranks_->count() / cell.island_ranks < 2)) {
    outcome.failure = fmt::format(
        "{} needs at least 2 islands of at least 2 ranks each, and {} ranks are in islands of {}; give "
        "--islands",
        cell.contender, ranks_->count(), cell.island_ranks);
    return outcome;
  }
  const bool isolated = cell.mode == Mode::isolated;
  if (row.source == Source::nccl) start_nccl(cell, row);
  if (cell.verify_calls != 0 && ranks_->rendezvous() != nullptr) {
    outcome.failure = "a verification needs all ranks in one process; run it with --world threads";
    return outcome;
  }
  if (cell.verify_calls != 0) return verify(cell, row);
  if (isolated) stamp_us();  // before the first isolated cell, so that its own stamps are ready
  if (isolated) need_isolated_parts();

  const std::uint32_t calls =
      isolated ? std::min(std::max(cell.samples, 1u), isolated_calls_per_graph) : cell.calls_per_graph;
  const auto replays_for = [&](std::uint32_t count) {
    return isolated ? (count + calls - 1) / calls : count;
  };
  const std::uint32_t warmups =
      std::max(replays_for(cell.warmups), 1u);  // the first replay pays for first touches
  const bool cold = cell.cache == Cache::cold;

  Tensors tensors;
  tensors.bytes = cell.bytes;
  tensors.pitch_bytes = rounded_up(cell.bytes, 256) + 2 * guard_bytes;
  tensors.in_place = cell.place == Place::in;
  // A call that consumes its input needs one of its own in the graph.
  tensors.refilled = tensors.in_place || row.consumes_input;
  tensors.copies = cold || tensors.refilled ? calls : 1;
  const bool in_window = needs_windows(row);
  std::byte* peers_memory = nullptr;
  if (row.source == Source::peer) {
    (*ranks_)[0].context->make_current();
    peers_memory = peer_->reserve(tensors.all_bytes(), *ranks_->rendezvous(), library_deadline(*ranks_));
    (*ranks_)[0].context->make_current();
  } else if (in_window) {
    reserve_window((tensors.in_place ? 1 : 2) * tensors.all_bytes());
  } else {
    tensors.inputs = ranks_->make_symmetric(tensors.all_bytes());
  }
  for (const Rank& rank : ranks_->all()) {
    if (!in_window && !tensors.in_place) tensors.outputs.emplace_back(*rank.context, tensors.all_bytes());
    std::byte* const inputs = peers_memory != nullptr ? peers_memory
                              : in_window             ? nccl_->windows.data(rank.slot)
                                                      : tensors.inputs.data(rank.number);
    std::byte* const outputs = tensors.in_place ? inputs
                               : in_window      ? inputs + tensors.all_bytes()
                                                : tensors.outputs.back().data();
    tensors.input_starts.push_back(inputs);
    tensors.output_starts.push_back(outputs);
    rank.stream.set_bytes(inputs, guard_value, tensors.all_bytes());
    if (!tensors.in_place) rank.stream.set_bytes(outputs, guard_value, tensors.all_bytes());
    tensors.records.emplace_back(*rank.context, tensors.copies * sizeof(CheckRecord));
    if (cold) tensors.flush.emplace_back(*rank.context, 2 * l2_bytes_);
  }
  if (tensors.refilled && !cold && tensors.copies > 1) outcome.flags.emplace_back("rotating_buffers");

  LaunchShape shape = row.shape(team_, cell.bytes);
  if (cell.blocks != 0) shape = {cell.blocks, cell.threads};
  if (row.source == Source::kernel) {
    const cuda::Kernel kernel = code_->kernel(cell.bundle, function_name(row, cell.dtype, ranks_->count()));
    const std::uint32_t most = ranks_->most_blocks(kernel, shape.threads);
    if (most == 0) {
      outcome.failure =
          fmt::format("{} cannot run here: {} ranks share a GPU that holds no block of {} threads for each",
                      cell.contender, ranks_->count(), shape.threads);
      return outcome;
    }
    shape.blocks = std::min(shape.blocks, most);
  }
  if (row.source == Source::peer) call_peer_once(cell, tensors);
  const auto graphs = record(cell, row, tensors, calls, shape);
  Judged judged;
  for (std::uint32_t replay = 0; replay < warmups + replays_for(cell.samples); ++replay) {
    const std::uint64_t seed = cell.seed + replay;
    if (replay == 0 || cell.check || tensors.refilled) prepare(cell, tensors, seed);
    const double elapsed_us = ranks_->replay_us(graphs, cell.contender.c_str());
    if (replay >= warmups) {
      if (isolated) {
        for (const double sample_us : isolated_us(calls)) {
          outcome.samples_us.push_back(sample_us - stamp_us());
        }
      } else {
        outcome.samples_us.push_back(elapsed_us / calls);
      }
    }
    if (cell.check) judge(cell, row, tensors, seed, judged);
    if (!judged.wrong.empty()) break;
  }
  if (nccl_ != nullptr && nccl_->communicators != nullptr) nccl_->communicators->check();

  for (const Rank& rank : ranks_->all()) {
    if (judged.wrong.empty()) judged.wrong = broken_guard(tensors, rank);
  }
  // What a wrong call left in its areas must not reach the next cell.
  if (!judged.wrong.empty()) workspaces_.clear();
  outcome.correct = judged.wrong.empty();
  outcome.wrong = judged.wrong;
  outcome.max_error = judged.max_error;
  outcome.output_hash = judged.hash;
  if (!outcome.correct) outcome.samples_us.clear();
  if (!cell.check) outcome.flags.emplace_back("unchecked");
  if (ranks_->oversubscribed()) outcome.flags.emplace_back("oversubscribed");
  if (row.source == Source::kernel) {
    outcome.ran = fmt::format("{}x{}", shape.blocks, shape.threads);
    return outcome;
  }
  if (row.source == Source::peer) {
    // "torch 2.11.0+cu130 one_shot"
    outcome.ran = fmt::format("{} {}", peer_->version(), row.contender.substr(row.peer.size() + 1));
    return outcome;
  }
  const nccl::Window window = !in_window                    ? nccl::Window::none
                              : nccl_->windows.registered() ? nccl::Window::registered
                                                            : nccl::Window::unregistered;
  const auto choice = nccl_->log.choice_for(cell.bytes);
  const nccl::Configuration here = nccl::configuration_here(row);
  outcome.ran = nccl::what_ran(choice, window, here);
  if (!nccl_->log.why_not().empty()) outcome.flags.emplace_back("choice_not_recorded");
  if (nccl::fell_back(choice, window)) outcome.flags.emplace_back("fell_back");
  if (!here.users.empty()) outcome.flags.emplace_back("user_settings");
  return outcome;
}

}  // namespace arb::worker
