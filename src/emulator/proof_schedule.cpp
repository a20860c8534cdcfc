// The seeded adversarial scheduler: who runs when, what starts after what, and what a launch knows at its start.
#include <array>
#include <exception>
#include <stdexcept>
#include <utility>

#include "proof_engine.h"

namespace arb::emulator {

constinit thread_local const Thread* running = nullptr;

// Before every machine call. False: the run has failed, and the call does nothing.
bool ProofEngine::switch_point() {
  if (failure_) {
    if (++calls_after_failure_ > most_calls_after_failure) throw Abandoned{};
    return false;
  }
  if (++operations > options_.most_operations) {
    fail(Failure::Kind::endless, "more than " + std::to_string(options_.most_operations) + " machine calls");
    return false;
  }
  if (burst_left_ == 0) {
    self().fibre.suspend();
    return !failure_;
  }
  --burst_left_;
  return true;
}

void ProofEngine::block_until_runnable(State state) {
  Worker& worker = self();
  worker.state = state;
  rank_[worker.thread.rank].runnable_weight -= worker.weight;
  worker.fibre.suspend();
}

void ProofEngine::make_runnable(Worker& worker) {
  worker.state = State::runnable;
  rank_[rank_of(worker.slot)].runnable_weight += worker.weight;
}

// Uneven speeds: a rank, a block and a thread each run at a drawn share of full speed. Uniform speeds would
// keep everyone within one call of each other and so miss buffer switches.
void ProofEngine::draw_speeds(u32 rank) {
  constexpr std::array<u32, 4> shares{64, 16, 4, 1};
  Rank& state = rank_[rank];
  state.weight = shares[random_.below(4)];
  std::array<u32, 64> block_share{};
  for (u32& share : block_share) share = shares[random_.below(4)];
  const bool even = random_.one_in(3);
  state.runnable_weight = 0;
  const u32 workers = threads_a_rank_ * lanes_;
  for (u32 i = 0; i < workers; ++i) {
    Worker& worker = worker_at(rank * workers + i);
    worker.weight = even ? 1 : block_share[worker.thread.block % 64] * shares[random_.below(4)];
    if (worker.state == State::runnable) state.runnable_weight += worker.weight;
  }
}

ProofEngine::Worker* ProofEngine::draw_worker() {
  u32 total = 0;
  for (const Rank& rank : rank_)
    if (rank.runnable_weight != 0) total += rank.weight;
  if (total == 0) return nullptr;
  u32 draw = random_.below(total);
  u32 chosen = 0;
  for (; chosen < ranks_; ++chosen) {
    if (rank_[chosen].runnable_weight == 0) continue;
    if (draw < rank_[chosen].weight) break;
    draw -= rank_[chosen].weight;
  }
  draw = random_.below(rank_[chosen].runnable_weight);
  const u32 workers = threads_a_rank_ * lanes_;
  for (u32 i = 0; i < workers; ++i) {
    Worker& worker = worker_at(chosen * workers + i);
    if (worker.state != State::runnable) continue;
    if (draw < worker.weight) return &worker;
    draw -= worker.weight;
  }
  return nullptr;
}

void ProofEngine::work(Worker& worker) {
  const Launch& launch = launch_of(worker);
  try {
    launch.body(worker.thread.rank);
  } catch (const Abandoned&) {  // the failure is recorded
  } catch (const std::exception& error) {
    fail(Failure::Kind::misuse, "an exception left " + launch.name + ": " + error.what());
  } catch (...) {
    fail(Failure::Kind::misuse, "an exception left " + launch.name);
  }
}

// Starts what may start on a rank. A plain launch follows the end of all before it; rule "early start": a
// programmatic one follows when every block of the launch before it has let it or has ended. One that the launch before
// it runs beside starts together with that, and knows what that knows.
void ProofEngine::start_ready(u32 rank) {
  Rank& state = rank_[rank];
  while (state.next < program_of(rank).size()) {
    if (state.lanes[state.next % lanes_].alive != 0) return;
    const bool with_previous = state.next > 0 && program_of(rank)[state.next - 1].beside;
    const bool early = program_of(rank)[state.next].programmatic && lanes_ > 1 && state.next > 0;
    if (!with_previous &&
        (early ? state.lanes[(state.next - 1) % lanes_].holding != 0 : state.ended != state.next))
      return;
    start(rank, state.next++);
  }
}

void ProofEngine::start(u32 rank, u32 number) {
  Rank& state = rank_[rank];
  const Launch& launch = program_of(rank)[number];
  const u32 threads = launch.blocks * launch.threads;
  Lane& lane = state.lanes[number % lanes_];
  lane.launch = number;
  lane.alive = threads;
  lane.holding = launch.blocks;
  lane.alive_in_block.assign(launch.blocks, launch.threads);
  lane.lets_next_start.assign(launch.blocks, false);
  for (u32 i = 0; i < threads; ++i) {
    Worker& worker = worker_at((rank * lanes_ + number % lanes_) * threads_a_rank_ + i);
    worker.launch = number;
    worker.last_site = nullptr;
    worker.thread = {this, rank, i / launch.threads, launch.blocks, i % launch.threads, launch.threads};
    std::fill(worker.pending, worker.pending + slots_, 0);
    worker.has_pending = false;
    worker.newest_pending.fill(-1);
    if (launch.programmatic && number > 0) {
      // It knows nothing that it does not wait for.
      const u32 own = worker.clock[worker.slot];
      std::fill(worker.clock, worker.clock + slots_, 0);
      worker.clock[worker.slot] = own;
      worker.fence = -1;
      worker.follows_previous = false;
    } else {
      // Rule "kernel boundary": everything that a rank's launches did is ordered before all that its next one
      // does.
      std::copy(state.known.begin(), state.known.end(), worker.clock);
      worker.fence = state.fence;
      worker.follows_previous = true;
    }
    worker.fibre.start([this, &worker] { work(worker); });
    make_runnable(worker);
  }
  if (number == 0 || random_.one_in(2)) draw_speeds(rank);
}

// A thread has ended.
void ProofEngine::end(Worker& worker) {
  const u32 number = rank_of(worker.slot);
  Rank& rank = rank_[number];
  Lane& lane = lane_of(worker);
  rank.runnable_weight -= worker.weight;
  worker.state = State::idle;
  join(rank.boundary.data(), worker.clock);
  if (worker.has_pending) join(rank.boundary.data(), worker.pending);
  const u32 block = worker.thread.block;
  if (--lane.alive_in_block[block] == 0 && !lane.lets_next_start[block]) {
    lane.lets_next_start[block] = true;
    --lane.holding;
  }
  if (--lane.alive == 0) {
    rank.has_ended[lane.launch] = true;
    const u32 before = rank.ended;
    while (rank.ended < rank.has_ended.size() && rank.has_ended[rank.ended]) ++rank.ended;
    if (rank.ended != before) {
      rank.known = rank.boundary;
      if (options_.boundaries_are_fences) rank.fence = keep_clock(rank.known.data());
      const u32 workers = threads_a_rank_ * lanes_;
      for (u32 i = 0; i < workers; ++i) {
        Worker& other = worker_at(number * workers + i);
        if (other.state == State::at_previous && rank.ended >= other.launch) make_runnable(other);
      }
    }
  }
  start_ready(number);
}

std::optional<Failure> ProofEngine::run(std::vector<const Program*> programs, const RunOptions& options) {
  bool several = false;
  for (const Program* program : programs)
    for (const Launch& launch : *program) {
      if (launch.blocks * launch.threads > threads_a_rank_ || launch.blocks * launch.threads == 0)
        throw std::invalid_argument("a launch has more threads than the proof machine, or none");
      several = several || launch.programmatic || launch.beside;
    }
  programs_ = std::move(programs);
  options_ = options;
  random_ = Random(options.seed);
  failure_.reset();
  calls_after_failure_ = 0;
  sites.clear();
  operations = 0;
  trace = 0;
  released_.clear();
  constexpr std::array<u32, 5> bursts{0, 1, 3, 15, 63};
  burst_mean_ = bursts[random_.below(5)];
  staleness_ = random_.below(5);
  lanes_ = several ? most_lanes : 1;
  slots_ = ranks_ * threads_a_rank_ * lanes_;
  while (workers_.size() < slots_) workers_.push_back(std::make_unique<Worker>());
  clocks_.assign(std::size_t{slots_} * slots_, 0);
  pending_.assign(std::size_t{slots_} * slots_, 0);
  for (u32 slot = 0; slot < slots_; ++slot) {
    Worker& worker = worker_at(slot);
    worker.slot = slot;
    worker.clock = clocks_.data() + std::size_t{slot} * slots_;
    worker.pending = pending_.data() + std::size_t{slot} * slots_;
    worker.state = State::idle;
    worker.thread = {};
  }
  rank_.assign(ranks_, Rank{});
  for (u32 number = 0; number < ranks_; ++number) {
    Rank& rank = rank_[number];
    rank.boundary.assign(slots_, 0);
    rank.known.assign(slots_, 0);
    rank.has_ended.assign(program_of(number).size(), false);
    rank.lanes.resize(lanes_);
    for (Lane& lane : rank.lanes) {
      lane.barriers.resize(threads_a_rank_);
      for (Barrier& barrier : lane.barriers) barrier.clock.assign(slots_, 0);
    }
    start_ready(number);
  }

  while (!failure_) {
    Worker* worker = draw_worker();
    if (worker == nullptr) {
      for (u32 number = 0; number < ranks_; ++number)
        if (rank_[number].ended != program_of(number).size()) {
          fail(Failure::Kind::deadlock, deadlock_text());
          break;
        }
      break;
    }
    burst_left_ = random_.below(2 * burst_mean_ + 1);
    trace = (trace ^ worker->slot) * 0x100000001b3u;
    current_ = worker;
    running = &worker->thread;
    worker->fibre.resume();
    if (worker->fibre.finished() && !failure_) end(*worker);
  }
  // After a failure machine calls return at once, so every fibre runs to its end.
  for (u32 slot = 0; slot < slots_; ++slot) {
    Worker& worker = worker_at(slot);
    while (!worker.fibre.finished()) {
      current_ = &worker;
      running = &worker.thread;
      worker.fibre.resume();
    }
  }
  current_ = nullptr;
  running = nullptr;
  return failure_;
}

}  // namespace arb::emulator
