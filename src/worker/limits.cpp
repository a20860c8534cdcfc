#include "limits.h"

#include <arb/abi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plan.h"
#include "stats.h"
#include "survey.h"

namespace arb::worker {
namespace {

constexpr int replays = 21;
constexpr std::uint32_t rounds = 1000;  // of a flag there and back, and of barriers
// Where a flag lies decides how far it is from the link (0.66 or 0.78 us on 2x H200): the best of so many places.
constexpr std::uint32_t flag_places = 7;
constexpr std::uint64_t flag_place_bytes = max_ranks * 256;

// Work of one directed pair while others may work too.
struct Lane {
  Rank* from;
  Rank* to;
  std::byte* target;
  const std::byte* source;
  std::uint64_t bytes;
  Rank* holder;         // whose device does the work
  cuda::Stream stream;  // of that device
  cuda::Event start;
  cuda::Event stop;
};

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

double elapsed_us(const Rank& rank, const cuda::DeviceBuffer& elapsed) {
  u64 elapsed_ns = 0;
  cuda::copy_to_host(*rank.context, std::as_writable_bytes(std::span(&elapsed_ns, 1)), elapsed.data());
  return static_cast<double>(elapsed_ns) / 1000.0;
}

}  // namespace

double LimitBench::median_replay_us(const std::vector<cuda::ExecutableGraph>& graphs, const char* doing) {
  std::vector<double> samples_us;
  ranks_->replay_us(graphs, doing);
  for (int replay = 0; replay < replays; ++replay) samples_us.push_back(ranks_->replay_us(graphs, doing));
  return percentiles_of(samples_us).p50_us;
}

// Event to event over a chain of empty nodes.
double LimitBench::nodes_us(cuda::Edge edge, std::uint32_t count) {
  Recorder recorder(*ranks_, Recorder::Kind::nodes);
  for (Rank& rank : ranks_->all()) {
    for (std::uint32_t node = 0; node < count; ++node) {
      recorder.add(rank, ranks_->support().empty, {1, 32}, StampParams{nullptr}, edge);
    }
  }
  return median_replay_us(recorder.finish(), "empty nodes");
}

// In a chain as long as that of a cell of this size.
double LimitBench::local_copy_us(std::uint64_t bytes) {
  need_move_buffers();
  if (bytes > source_.size_bytes())
    throw BundleError(fmt::format("there is no memory to copy {} bytes", bytes));
  const std::uint32_t nodes = calls_per_graph(bytes, Evidence::measured);
  const auto blocks = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(bytes / vector_bytes / max_threads, 1, 2 * many_blocks));
  Recorder recorder(*ranks_, Recorder::Kind::nodes);
  for (Rank& rank : ranks_->all()) {
    const MoveParams params{target_.data(rank.number), source_.data(rank.number), bytes};
    for (std::uint32_t node = 0; node < nodes; ++node)
      recorder.add(rank, ranks_->support().move, {blocks, max_threads}, params);
  }
  return median_replay_us(recorder.finish(), "copying locally") / nodes;
}

double LimitBench::flag_us(Rank& first, Rank& second) {
  if (!flags_) flags_ = ranks_->make_symmetric(flag_places * flag_place_bytes);
  const cuda::DeviceBuffer elapsed(*first.context, sizeof(u64));
  std::array<std::vector<double>, flag_places> samples_us;
  for (std::uint32_t replay = 0; replay < replays; ++replay) {
    const std::uint32_t place = replay % flag_places;
    for (Rank* const rank : {&first, &second}) {
      const bool starts = rank == &first;
      const Rank& peer = starts ? second : first;
      // One flag for each direction of each pair, so that pairs do not disturb one another.
      const auto flag = [&](const Rank& owner, const Rank& writer) {
        return reinterpret_cast<u32*>(flags_->data(owner.number) + place * flag_place_bytes +
                                      writer.number * 256);
      };
      PingPongParams params{};
      params.own_flag = flag(*rank, peer);
      params.peer_flag = flag(peer, *rank);
      params.elapsed_ns = reinterpret_cast<u64*>(elapsed.data());
      params.local = reinterpret_cast<LocalState*>(rank->gate_state.data());
      params.failure = reinterpret_cast<FailureRecord*>(rank->failure.data());
      params.deadline_ns = ranks_->deadline_ns();
      params.first_value = first_flag_;
      params.rounds = rounds;
      params.starts = starts ? 1 : 0;
      params.rank = rank->number;
      params.peer = peer.number;
      ranks_->hold(*rank, rank->stream);
      rank->stream.launch(ranks_->support().ping_pong, {1, 1}, params);
    }
    first_flag_ += rounds;
    ranks_->open_gate();
    ranks_->wait("bouncing a flag");
    samples_us[place].push_back(elapsed_us(first, elapsed) / (2.0 * rounds));
  }
  double least_us = percentiles_of(samples_us[0]).p50_us;
  for (const std::vector<double>& samples : samples_us)
    least_us = std::min(least_us, percentiles_of(samples).p50_us);
  return least_us;
}

double LimitBench::barrier_us() {
  if (!barrier_) barrier_ = ranks_->make_workspace(0, 256);
  std::vector<cuda::DeviceBuffer> elapsed;
  for (const Rank& rank : ranks_->all()) elapsed.emplace_back(*rank.context, sizeof(u64));
  std::vector<double> samples_us;
  for (int replay = 0; replay < replays; ++replay) {
    for (Rank& rank : ranks_->all()) {
      KernelParams params = barrier_->params(rank, ranks_->count(), ranks_->deadline_ns());
      params.output = elapsed[rank.slot].data();
      params.step = rounds;
      ranks_->hold(rank, rank.stream);
      rank.stream.launch(ranks_->support().barriers, {1, 32}, params);
    }
    ranks_->open_gate();
    ranks_->wait("barriers of all ranks");
    double slowest_us = 0;
    for (const Rank& rank : ranks_->all())
      slowest_us = std::max(slowest_us, elapsed_us(rank, elapsed[rank.slot]));
    samples_us.push_back(slowest_us / rounds);
  }
  return percentiles_of(samples_us).p50_us;
}

void LimitBench::need_move_buffers() {
  if (source_.size_bytes() != 0) return;
  std::uint64_t bytes_a_rank = team_move_bytes;
  for (const Rank& rank : ranks_->all()) {
    bytes_a_rank = std::min(bytes_a_rank, cuda::free_bytes(*rank.context) / 8);
  }
  source_ = ranks_->make_symmetric(bytes_a_rank / 4096 * 4096);
  target_ = ranks_->make_symmetric(bytes_a_rank / 4096 * 4096);
}

// Bytes a second that each rank sends, in decimal GB/s.
double LimitBench::move_gbps(const LimitTest& test) {
  constexpr int moves = 3;
  constexpr std::size_t most_samples = 7;
  // One pair is one of many tests. A first move that takes so long needs no warming up: it is the figure.
  const double most_us = test.traffic == Traffic::pair ? 30'000 : 300'000;
  need_move_buffers();
  const std::uint64_t buffer_bytes = std::min(test.bytes, source_.size_bytes());
  const std::uint32_t count = ranks_->count();
  const bool all_pairs = test.traffic == Traffic::all_pairs;
  const std::uint64_t lane_bytes = (all_pairs ? buffer_bytes / count : buffer_bytes) / 4096 * 4096;
  const std::uint32_t lanes_a_rank = all_pairs ? count - 1 : 1;
  std::vector<Lane> lanes;
  for (Rank& from : ranks_->all()) {
    for (Rank& to : ranks_->all()) {
      if (from.number == to.number) continue;
      if (test.traffic == Traffic::pair && (from.number != test.from || to.number != test.to)) continue;
      if (test.traffic == Traffic::next && to.number != (from.number + 1) % count) continue;
      Rank& holder = test.engine == Engine::sm_load ? to : from;
      lanes.push_back({.from = &from,
                       .to = &to,
                       .target = target_.data(to.number) + (all_pairs ? from.number * lane_bytes : 0),
                       .source = source_.data(from.number) + (all_pairs ? to.number * lane_bytes : 0),
                       .bytes = lane_bytes,
                       .holder = &holder,
                       .stream = cuda::Stream(*holder.context),
                       .start = cuda::Event(*holder.context),
                       .stop = cuda::Event(*holder.context)});
    }
  }
  if (lanes.empty()) throw BundleError(fmt::format("these ranks cannot make this test: {}", text_of(test)));
  const std::uint32_t blocks = std::max(1u, test.blocks / lanes_a_rank);
  // The slowest lane's time, all released together.
  const auto move_us = [&](int times) {
    for (const Lane& lane : lanes) {
      ranks_->hold(*lane.holder, lane.stream);
      lane.start.record(lane.stream);
      for (int move = 0; move < times; ++move) {
        if (test.engine == Engine::copy_engine) {
          lane.stream.copy(lane.target, lane.source, lane.bytes);
        } else {
          lane.stream.launch(ranks_->support().move, {blocks, max_threads},
                             MoveParams{lane.target, lane.source, lane.bytes});
        }
      }
      lane.stop.record(lane.stream);
    }
    ranks_->open_gate();
    double slowest_us = 0;
    for (const Lane& lane : lanes) {
      ranks_->wait(lane.stream, "moving bytes between ranks");
      slowest_us = std::max(slowest_us, lane.stop.microseconds_since(lane.start));
    }
    ranks_->wait("moving bytes between ranks");
    return slowest_us;
  };
  const auto gbps_of = [&](double us, int times) {
    return static_cast<double>(times) * static_cast<double>(lanes_a_rank * lane_bytes) / (us * 1000.0);
  };
  const double first_us = move_us(1);
  if (first_us > most_us) return gbps_of(first_us, 1);
  std::vector<double> samples_gbps;
  for (double spent_us = 0; samples_gbps.size() < most_samples && spent_us < most_us;) {
    const double us = move_us(moves);
    spent_us += us;
    samples_gbps.push_back(gbps_of(us, moves));
  }
  return percentiles_of(samples_gbps).p50_us;
}

double LimitBench::measure(const LimitTest& test) {
  const auto rank = [&](std::uint32_t number) -> Rank& {
    if (number >= ranks_->count() || test.from == test.to)
      throw BundleError(fmt::format("these ranks cannot make this test: {}", text_of(test)));
    return (*ranks_)[number];
  };
  switch (test.kind) {
    case LimitKind::nodes:
      return nodes_us(test.edge == GraphEdge::plain ? cuda::Edge::plain : cuda::Edge::programmatic,
                      std::max(test.count, 1u));
    case LimitKind::local_copy:
      return local_copy_us(test.bytes);
    case LimitKind::flag:
      return flag_us(rank(test.from), rank(test.to));
    case LimitKind::barrier:
      return barrier_us();
    case LimitKind::move:
      break;
  }
  return move_gbps(test);
}

MachineLimits measure_limits(Ranks& ranks, CellRunner& runner) {
  MachineLimits limits;
  limits.clock_tick_ns = clock_tick_ns(ranks);
  LimitBench bench(ranks);
  // The cheaper of the two edges; the other one's long chain is not needed for that.
  double least_us = 0;
  for (const GraphEdge edge : {GraphEdge::plain, GraphEdge::programmatic}) {
    const double few_us = bench.measure(nodes_test(edge, few_nodes));
    if (least_us != 0 && few_us >= least_us) continue;
    least_us = few_us;
    const NodeCost cost = node_cost(few_us, bench.measure(nodes_test(edge, many_nodes)));
    limits.node_us_k20 = cost.us_k20;
    limits.node_us = cost.us;
    limits.graph_start_us = cost.start_us;
  }
  limits.stamp_us = runner.stamp_us();
  limits.isolated_node_us = runner.isolated_empty_us() - limits.stamp_us;
  for (const Rank& first : ranks.all()) {
    for (const Rank& second : ranks.all()) {
      if (second.number <= first.number) continue;
      limits.flag_us = std::max(limits.flag_us, bench.measure(flag_test(first.number, second.number)));
    }
  }
  for (const LimitTest& test : {move_test(Engine::sm_store, Traffic::all_pairs, many_blocks),
                                move_test(Engine::sm_store, Traffic::all_pairs, some_blocks),
                                move_test(Engine::sm_load, Traffic::all_pairs, many_blocks),
                                move_test(Engine::sm_load, Traffic::all_pairs, some_blocks),
                                move_test(Engine::copy_engine, Traffic::all_pairs, 0)}) {
    const double gbps = bench.measure(test);
    if (gbps <= limits.bandwidth_gbps) continue;
    limits.bandwidth_gbps = gbps;
    limits.bandwidth_engine = name_of(test.engine);
  }
  return limits;
}

}  // namespace arb::worker
