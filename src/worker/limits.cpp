#include "limits.h"

#include <arb/abi.h>

#include <algorithm>
#include <array>

#include "stats.h"

namespace arb::worker {
namespace {

constexpr int replays = 21;

double median_replay_us(Ranks& ranks, const std::vector<cuda::ExecutableGraph>& graphs, const char* doing) {
  std::vector<double> samples_us;
  ranks.replay_us(graphs, doing);
  for (int replay = 0; replay < replays; ++replay) samples_us.push_back(ranks.replay_us(graphs, doing));
  return percentiles_of(samples_us).p50_us;
}

// Event to event over a chain of empty nodes.
double empty_chain_us(Ranks& ranks, std::uint32_t nodes, cuda::Edge edge) {
  Recorder recorder(ranks, Recorder::Kind::nodes);
  for (Rank& rank : ranks.all()) {
    for (std::uint32_t node = 0; node < nodes; ++node) {
      recorder.add(rank, ranks.support().empty, {1, 32}, StampParams{nullptr}, edge);
    }
  }
  return median_replay_us(ranks, recorder.finish(), "empty nodes");
}

void measure_nodes(Ranks& ranks, MachineLimits& limits) {
  constexpr std::uint32_t few = 20;
  constexpr std::uint32_t many = 1000;
  double least_us = 0;
  for (const cuda::Edge edge : {cuda::Edge::plain, cuda::Edge::programmatic}) {
    const double few_us = empty_chain_us(ranks, few, edge);
    if (least_us != 0 && few_us >= least_us) continue;
    least_us = few_us;
    limits.node_us_k20 = few_us / few;
    limits.node_us = (empty_chain_us(ranks, many, edge) - few_us) / (many - few);
    limits.graph_start_us = few_us - few * limits.node_us;
  }
}

double flag_one_way_us(Ranks& ranks, Rank& first, Rank& second, const cuda::SymmetricBuffer& flags,
                       const cuda::DeviceBuffer& elapsed) {
  constexpr std::uint32_t rounds = 1000;
  std::array<u64, replays> elapsed_ns{};
  std::vector<double> samples_us;
  for (std::uint32_t replay = 0; replay < replays; ++replay) {
    for (Rank* const rank : {&first, &second}) {
      const bool starts = rank == &first;
      const Rank& peer = starts ? second : first;
      // One flag for each direction of each pair, so that pairs do not disturb one another.
      const auto flag = [&](const Rank& owner, const Rank& writer) {
        return reinterpret_cast<u32*>(flags.data(owner.number)) + writer.number * 64;
      };
      PingPongParams params{};
      params.own_flag = flag(*rank, peer);
      params.peer_flag = flag(peer, *rank);
      params.elapsed_ns = reinterpret_cast<u64*>(elapsed.data());
      params.local = reinterpret_cast<LocalState*>(rank->gate_state.data());
      params.failure = reinterpret_cast<FailureRecord*>(rank->failure.data());
      params.deadline_ns = ranks.deadline_ns();
      params.first_value = replay * rounds;
      params.rounds = rounds;
      params.starts = starts ? 1 : 0;
      params.rank = rank->number;
      params.peer = peer.number;
      ranks.hold(*rank, rank->stream);
      rank->stream.launch(ranks.support().ping_pong, {1, 1}, params);
    }
    ranks.open_gate();
    ranks.wait("bouncing a flag");
    cuda::copy_to_host(*first.context, std::as_writable_bytes(std::span(elapsed_ns).subspan(replay, 1)),
                       elapsed.data());
    samples_us.push_back(static_cast<double>(elapsed_ns[replay]) / (2.0 * rounds * 1000.0));
  }
  return percentiles_of(samples_us).p50_us;
}

void measure_flags(Ranks& ranks, MachineLimits& limits) {
  const cuda::SymmetricBuffer flags = ranks.make_symmetric(max_ranks * 256);
  for (Rank& first : ranks.all()) {
    const cuda::DeviceBuffer elapsed(*first.context, sizeof(u64));
    for (Rank& second : ranks.all()) {
      if (second.number <= first.number) continue;
      limits.flag_us = std::max(limits.flag_us, flag_one_way_us(ranks, first, second, flags, elapsed));
    }
  }
}

enum class Engine : std::uint8_t { sm_store, sm_load, copy_engine };
constexpr std::array engine_names{"sm_store", "sm_load", "copy_engine"};

// One directed pair's part of a test with all ranks at once.
struct Lane {
  Rank* from;
  Rank* to;
  cuda::Stream stream;  // of the device that does the work
  cuda::Event start;
  cuda::Event stop;
};

// Bytes a second that each rank sends when all send to all their peers, in decimal GB/s.
double all_pairs_gbps(Ranks& ranks, Engine engine, const cuda::SymmetricBuffer& source,
                      const cuda::SymmetricBuffer& target, std::uint64_t bytes_a_peer) {
  constexpr int moves = 3;
  const std::uint32_t peers = ranks.count() - 1;
  std::vector<Lane> lanes;
  for (Rank& from : ranks.all()) {
    for (Rank& to : ranks.all()) {
      if (from.number == to.number) continue;
      const cuda::Context& worker = engine == Engine::sm_load ? *to.context : *from.context;
      lanes.push_back({&from, &to, cuda::Stream(worker), cuda::Event(worker), cuda::Event(worker)});
    }
  }
  const std::uint32_t blocks = std::max(1u, 132 / peers);
  std::vector<double> samples_gbps;
  for (int repetition = 0; repetition < 8; ++repetition) {
    for (const Lane& lane : lanes) {
      Rank& holder = engine == Engine::sm_load ? *lane.to : *lane.from;
      std::byte* const to = target.data(lane.to->number) + lane.from->number * bytes_a_peer;
      const std::byte* const from = source.data(lane.from->number) + lane.to->number * bytes_a_peer;
      ranks.hold(holder, lane.stream);
      lane.start.record(lane.stream);
      for (int move = 0; move < moves; ++move) {
        if (engine == Engine::copy_engine) {
          lane.stream.copy(to, from, bytes_a_peer);
        } else {
          lane.stream.launch(ranks.support().move, {blocks, max_threads}, MoveParams{to, from, bytes_a_peer});
        }
      }
      lane.stop.record(lane.stream);
    }
    ranks.open_gate();
    double slowest_us = 0;
    for (const Lane& lane : lanes) {
      ranks.wait(lane.stream, "moving bytes between all pairs");
      slowest_us = std::max(slowest_us, lane.stop.microseconds_since(lane.start));
    }
    ranks.wait("moving bytes between all pairs");
    if (repetition == 0) continue;
    samples_gbps.push_back(static_cast<double>(moves * peers * bytes_a_peer) / (slowest_us * 1000.0));
  }
  return percentiles_of(samples_gbps).p50_us;
}

void measure_bandwidth(Ranks& ranks, MachineLimits& limits) {
  constexpr std::uint64_t most_bytes_a_rank = 256ull << 20;
  std::uint64_t bytes_a_rank = most_bytes_a_rank;
  for (const Rank& rank : ranks.all()) {
    bytes_a_rank = std::min(bytes_a_rank, cuda::free_bytes(*rank.context) / 8);
  }
  const std::uint64_t bytes_a_peer = bytes_a_rank / ranks.count() / 4096 * 4096;
  const cuda::SymmetricBuffer source = ranks.make_symmetric(bytes_a_peer * ranks.count());
  const cuda::SymmetricBuffer target = ranks.make_symmetric(bytes_a_peer * ranks.count());
  for (const Engine engine : {Engine::sm_store, Engine::sm_load, Engine::copy_engine}) {
    const double gbps = all_pairs_gbps(ranks, engine, source, target, bytes_a_peer);
    if (gbps <= limits.bandwidth_gbps) continue;
    limits.bandwidth_gbps = gbps;
    limits.bandwidth_engine = engine_names[static_cast<std::size_t>(engine)];
  }
}

double clock_tick_ns(Ranks& ranks) {
  Rank& rank = ranks[0];
  const cuda::DeviceBuffer tick(*rank.context, sizeof(u64));
  rank.stream.launch(ranks.support().clock_tick, {1, 1},
                     ClockTickParams{reinterpret_cast<u64*>(tick.data())});
  ranks.wait("reading the clock");
  u64 tick_ns = 0;
  cuda::copy_to_host(*rank.context, std::as_writable_bytes(std::span(&tick_ns, 1)), tick.data());
  return static_cast<double>(tick_ns);
}

}  // namespace

MachineLimits measure_limits(Ranks& ranks, CellRunner& runner) {
  MachineLimits limits;
  limits.clock_tick_ns = clock_tick_ns(ranks);
  measure_nodes(ranks, limits);
  limits.stamp_us = runner.stamp_us();
  limits.isolated_node_us = runner.isolated_empty_us() - limits.stamp_us;
  measure_flags(ranks, limits);
  measure_bandwidth(ranks, limits);
  return limits;
}

}  // namespace arb::worker
