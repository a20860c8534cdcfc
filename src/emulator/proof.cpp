#include "proof.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <stdexcept>
#include <utility>

#include "fibre.h"
#include "random.h"

namespace arb::emulator {
namespace {

constexpr std::size_t arena_bytes = std::size_t{64} << 20;
constexpr std::size_t stack_bytes = std::size_t{128} << 10;
constexpr u32 most_calls_after_failure = 100'000;  // then loops are taken for endless and left
constexpr u32 gap_bytes = 256;                     // between buffers: a stray access hits none
constexpr u32 nobody = 0xffff;                     // slot of what was there before the run
constexpr u32 half_bytes = 2;                      // unit of overlap: the smallest access
constexpr u32 most_lanes = 2;                      // launches of a rank that run at once

// The reserved addresses. Not readable: a kernel that bypasses the machine calls crashes at once.
class Arena {
 public:
  Arena()
      : base_(static_cast<char*>(
            mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (base_ == MAP_FAILED) throw std::bad_alloc();
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&&) = delete;
  Arena& operator=(Arena&&) = delete;
  ~Arena() { munmap(base_, arena_bytes); }
  [[nodiscard]] char* base() const { return base_; }

 private:
  char* base_;
};

// Leaves a kernel that goes on for ever after the run has failed; never leaves its fibre.
struct Abandoned {};

constexpr bool is_strong(Order order) {
  return order != Order::weak;
}

}  // namespace

constinit thread_local const Thread* running = nullptr;

class ProofMachine::Implementation final : public Engine {
 public:
  Implementation()
      : index_(static_cast<u32*>(std::calloc(arena_bytes / sizeof(u32), sizeof(u32))), &std::free) {
    if (!index_) throw std::bad_alloc();
  }
  ~Implementation() override = default;

  void reset(u32 ranks, u32 threads_a_rank);
  char* reserve(u32 first_rank, u32 rank_count, const std::string& area, u64 bytes, u64 offset_bytes,
                u64 stride_bytes, const BufferTraits& traits);
  void preset(void* address, u32 bytes, u64 value);
  std::optional<Failure> run(std::vector<const Program*> programs, const RunOptions& options);

  u64 load(const void* address, u32 bytes, Access access, const char* site) override;
  void store(void* address, u32 bytes, u64 value, Access access, const char* site) override;
  u64 update(void* address, u32 bytes, Update update, u64 operand, Access access, const char* site) override;
  void wait_reached(const u32* flag, u32 expected, Access access, Phase phase, u32 peer,
                    const char* site) override;
  u32 wait_arrived(const u32* word, u32 absent, Access access, Phase phase, u32 peer) override;
  void refill(u32* word, u32 absent, Access access, const char* site) override;
  void block_barrier(const char* site) override;
  void wait_for_previous_kernel(const char* site) override;
  void let_next_kernel_start() override;
  u32 choose_slot(u32 slot, const char* site) override;
  const void* whole_source(const void*, u64) override { return nullptr; }
  void* whole_target(void*, u64) override { return nullptr; }
  void wait_whole_arrived(const void*, u64, u32, Phase, u32) override {}
  bool ranges_are_whole() const override { return false; }

  struct PassedSite {
    const char* label;
    SiteKind kind;
    std::optional<Change> change;
  };
  u32 rank_count() const { return ranks_; }
  std::vector<PassedSite> sites;
  std::uint64_t operations = 0;
  std::uint64_t trace = 0;
  Observer* observer = nullptr;

 private:
  struct Buffer {
    u64 begin;
    u64 end;
    u32 rank;
    std::string area;
    BufferTraits traits;
  };

  // One side of an access, with all that decides whether it is ordered with another.
  struct Party {
    u32 slot;    // whose
    u32 epoch;   // the thread's clock
    u32 launch;  // in which launch
    u32 block;
    u32 mask;  // which halves of the word
    bool strong;
    Scope scope;
  };
  struct Write {
    Party party;
    u64 value;
    long released;    // index of the clock that an acquire joins, or -1
    Party releasing;  // who released (an update passes on what it read)
    bool unwritten;
  };
  // For coherence: thread `slot` has returned write `write` to a load at `epoch`.
  struct Seen {
    u32 slot;
    u32 epoch;
    u32 mask;
    u32 write;
  };
  struct Location {
    u64 address = 0;
    u32 buffer = 0;
    u32 mask = 0;   // the halves that lie in the buffer
    u32 bytes = 0;  // 4 or 8
    bool partial = false;
    bool waited = false;
    std::vector<Write> writes;  // in coherence order
    std::vector<Party> readings;
    std::vector<Seen> seen;
  };

  enum class State : std::uint8_t { idle, runnable, waiting, at_barrier, at_previous };
  struct Worker {
    explicit Worker() : fibre(stack_bytes) {}
    Fibre fibre;
    Thread thread{};
    u32 slot = 0;
    u32 launch = 0;
    u32* clock = nullptr;
    State state = State::idle;
    u32 weight = 1;
    const char* last_site = nullptr;
    // Rule "kernel fence": what relaxed loads have read and the next fence acquires, and the clock (an index
    // like Write::released) that relaxed stores release since the last fence.
    u32* pending = nullptr;
    bool has_pending = false;
    std::array<long, max_ranks> newest_pending{};  // of each releasing rank, to join it once
    long fence = -1;
    bool follows_previous = true;  // the kernels before it have ended and are known
    // While waiting or at a barrier:
    const Location* waits_at = nullptr;
    bool waits_for_payload = false;
    u32 expected = 0;
    u32 seen = 0;
    Phase phase = Phase::none;
    u32 peer = 0;
  };
  struct Barrier {
    u32 arrived = 0;
    const char* site = nullptr;
    std::vector<u32> clock;
  };
  // A launch that runs.
  struct Lane {
    u32 launch = 0;
    u32 alive = 0;                    // threads
    u32 holding = 0;                  // blocks that have neither ended nor let the next launch start
    std::vector<u32> alive_in_block;  // threads
    std::vector<bool> lets_next_start;
    std::vector<Barrier> barriers;
  };
  struct Rank {
    u32 weight = 1;
    u32 runnable_weight = 0;  // sum over runnable workers
    u32 next = 0;             // launch to start
    u32 ended = 0;            // that many launches from the first have ended
    std::vector<bool> has_ended;
    std::vector<u32> boundary;  // what ended threads knew
    std::vector<u32> known;     // the boundary when launch `ended` - 1 had ended, with all before it
    long fence = -1;            // the same as a clock to be released
    std::vector<Lane> lanes;
  };

  // Scheduling.
  Worker& self() { return *current_; }
  const Program& program_of(u32 rank) const { return *programs_[rank]; }
  const Launch& launch_of(const Worker& worker) const {
    return program_of(rank_of(worker.slot))[worker.launch];
  }
  Lane& lane_of(const Worker& worker) {
    return rank_[rank_of(worker.slot)].lanes[worker.slot / threads_a_rank_ % lanes_];
  }
  void work(Worker& worker);
  void start_ready(u32 rank);
  void start(u32 rank, u32 launch);
  void end(Worker& worker);
  bool switch_point();
  void block_until_runnable(State state);
  void make_runnable(Worker& worker);
  Worker* draw_worker();
  void draw_speeds(u32 rank);
  std::string deadlock_text() const;
  Worker& worker_at(u32 slot) { return *workers_[slot]; }
  u32 rank_of(u32 slot) const { return slot / (threads_a_rank_ * lanes_); }

  // Memory.
  Location* locate(const void* address, u32 bytes, bool is_store, u32* mask);
  Location* make_location(u64 address, u32 bytes, u32 buffer);
  const Buffer* buffer_at(u64 address) const;
  bool knows(const Worker& worker, u32 slot, u32 epoch) const {
    return slot == nobody || worker.clock[slot] >= epoch;
  }
  bool includes(const Party& a, const Party& b) const;
  bool mutual(const Party& a, const Party& b) const { return includes(a, b) && includes(b, a); }
  bool morally_strong(const Party& a, const Party& b) const {
    return a.strong && b.strong && a.mask == b.mask && mutual(a, b);
  }
  Party party_of(const Worker& worker, u32 mask, Access access) const;
  bool check_writes(const Location& location, const Party& party, bool is_store);
  bool check_readings(const Location& location, const Party& party);
  u32 newest_of(const Location& location, u32 half) const;
  u32 floor_of(const Worker& worker, const Location& location, u32 half) const;
  bool check_order(const Location& location, const Party& party);
  long keep_clock(const u32* clock);
  void read_release(const Write& write, const Party& party, Order order);
  template <class Reached>
  u32 wait_until(const u32* word, Access access, Reached reached, u32 expected, bool for_payload, Phase phase,
                 u32 peer);
  u64 load_word(Location& location, u32 mask, Access access, bool* newest);
  void store_word(Location& location, u32 mask, u64 value, Access access, const Write* passes_on);
  void join(u32* into, const u32* clock) const {
    for (u32 i = 0; i < slots_; ++i) into[i] = std::max(into[i], clock[i]);
  }

  // Sites and reports.
  std::optional<Change> pass_site(const char* label, SiteKind kind);
  void notify(Operation::Kind kind, const void* address, u32 bytes);
  void fail(Failure::Kind kind, const std::string& text);
  std::string name_party(u32 slot, u32 launch, u32 block) const;
  std::string name_self() const;
  std::string name_address(u64 address) const;

  Arena arena_;
  u64 used_bytes_ = 0;
  std::unique_ptr<u32[], decltype(&std::free)> index_;  // of the location of each 4-byte granule; 0: none yet
  std::vector<u64> touched_;                            // granules with an index
  std::vector<Buffer> buffers_;                         // by address
  std::deque<Location> locations_;
  std::size_t location_count_ = 0;

  u32 ranks_ = 0;
  u32 threads_a_rank_ = 0;
  u32 lanes_ = 1;
  u32 slots_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Rank> rank_;
  std::vector<u32> clocks_;    // of workers, slots_ each
  std::vector<u32> pending_;   // of workers, slots_ each
  std::vector<u32> released_;  // of release stores, slots_ each

  std::vector<const Program*> programs_;  // of ranks
  RunOptions options_;
  Random random_{0};
  u32 burst_mean_ = 1;
  u32 burst_left_ = 0;
  u32 staleness_ = 0;
  Worker* current_ = nullptr;
  std::optional<Failure> failure_;
  u32 calls_after_failure_ = 0;
};

// ---------------------------------------------------------------- shape and buffers

void ProofMachine::Implementation::reset(u32 ranks, u32 threads_a_rank) {
  if (ranks == 0 || ranks > max_ranks || threads_a_rank == 0 || threads_a_rank > 64)
    throw std::invalid_argument("a proof machine has 1 to 8 ranks of 1 to 64 threads");
  for (const u64 granule : touched_) index_[granule] = 0;
  touched_.clear();
  buffers_.clear();
  location_count_ = 0;
  used_bytes_ = gap_bytes;
  ranks_ = ranks;
  threads_a_rank_ = threads_a_rank;
}

char* ProofMachine::Implementation::reserve(u32 first_rank, u32 rank_count, const std::string& area,
                                            u64 bytes, u64 offset_bytes, u64 stride_bytes,
                                            const BufferTraits& traits) {
  if (rank_count > 1 && (stride_bytes % 256 != 0 || stride_bytes < bytes))
    throw std::invalid_argument("a stride is a multiple of 256 and holds the buffer");
  const u64 begin = reinterpret_cast<u64>(arena_.base()) + used_bytes_ + offset_bytes;
  for (u32 i = 0; i < rank_count; ++i) {
    const u64 at = begin + i * stride_bytes;
    buffers_.push_back({at, at + bytes, first_rank + i, area, traits});
  }
  const u64 length = offset_bytes + (rank_count - 1) * stride_bytes + bytes;
  used_bytes_ += (length + 255) / 256 * 256 + gap_bytes;
  if (used_bytes_ > arena_bytes) throw std::length_error("the proof machine's arena is full");
  return reinterpret_cast<char*>(begin);
}

const ProofMachine::Implementation::Buffer* ProofMachine::Implementation::buffer_at(u64 address) const {
  const auto after = std::upper_bound(buffers_.begin(), buffers_.end(), address,
                                      [](u64 a, const Buffer& buffer) { return a < buffer.begin; });
  if (after == buffers_.begin()) return nullptr;
  const Buffer& buffer = *(after - 1);
  return address < buffer.end ? &buffer : nullptr;
}

ProofMachine::Implementation::Location* ProofMachine::Implementation::make_location(u64 address, u32 bytes,
                                                                                    u32 buffer) {
  if (location_count_ == locations_.size()) locations_.emplace_back();
  Location& location = locations_[location_count_++];
  location.address = address;
  location.buffer = buffer;
  location.bytes = bytes;
  location.partial = false;
  location.waited = false;
  location.writes.clear();
  location.readings.clear();
  location.seen.clear();
  location.mask = 0;
  const Buffer& home = buffers_[buffer];
  for (u32 half = 0; half < bytes / half_bytes; ++half) {
    const u64 at = address + u64{half} * half_bytes;
    if (at >= home.begin && at < home.end) location.mask |= 1u << half;
  }
  const u32 all = (1u << bytes / half_bytes) - 1;
  u64 word = home.traits.initial;
  const Party host{nobody, 0, 0, 0, all, true, Scope::system};
  const u64 offset = address < home.begin ? 0 : address - home.begin;
  bool unwritten = false;
  if (offset >= home.traits.initial_bytes) {
    unwritten = !home.traits.rest.has_value();
    word = home.traits.rest.value_or(word);
  }
  location.writes.push_back({host, word | word << 32, -1, host, unwritten});
  for (u64 at = address; at < address + bytes; at += sizeof(u32)) {
    const u64 granule = (at - reinterpret_cast<u64>(arena_.base())) / sizeof(u32);
    index_[granule] = static_cast<u32>(location_count_);
    touched_.push_back(granule);
  }
  return &location;
}

void ProofMachine::Implementation::preset(void* address, u32 bytes, u64 value) {
  const u64 at = reinterpret_cast<u64>(address);
  const Buffer* buffer = buffer_at(at);
  if (buffer == nullptr || at % bytes != 0 || (bytes != 4 && bytes != 8))
    throw std::invalid_argument("preset: no such word");
  Location* location = make_location(at, bytes, static_cast<u32>(buffer - buffers_.data()));
  location->writes[0].value = value;
  location->writes[0].unwritten = false;
}

// ---------------------------------------------------------------- reports

std::string ProofMachine::Implementation::name_party(u32 slot, u32 launch, u32 block) const {
  if (slot == nobody) return "the host";
  const Launch& in = program_of(rank_of(slot))[launch];
  return "rank " + std::to_string(rank_of(slot)) + " block " + std::to_string(block) + " thread " +
         std::to_string(slot % threads_a_rank_ - block * in.threads) + " in " + in.name;
}

std::string ProofMachine::Implementation::name_self() const {
  std::string text = name_party(current_->slot, current_->launch, current_->thread.block);
  if (current_->last_site != nullptr) text += " (last site \"" + std::string(current_->last_site) + "\")";
  return text;
}

std::string ProofMachine::Implementation::name_address(u64 address) const {
  const Buffer* buffer = buffer_at(address);
  if (buffer == nullptr) {
    // Name the nearest buffer below.
    const auto after = std::upper_bound(buffers_.begin(), buffers_.end(), address,
                                        [](u64 a, const Buffer& b) { return a < b.begin; });
    if (after == buffers_.begin()) return "an address in no buffer";
    const Buffer& below = *(after - 1);
    return "an address in no buffer, " + std::to_string(address - below.end) +
           " bytes past the end of (rank " + std::to_string(below.rank) + ", " + below.area + ")";
  }
  return "(rank " + std::to_string(buffer->rank) + ", " + buffer->area + ", offset " +
         std::to_string(address - buffer->begin) + ")";
}

void ProofMachine::Implementation::fail(Failure::Kind kind, const std::string& text) {
  if (failure_) return;
  failure_ =
      Failure{kind, std::string(name_of(kind)) + ": " + text + "; seed " + std::to_string(options_.seed)};
}

std::string ProofMachine::Implementation::deadlock_text() const {
  constexpr u32 most_lines = 12;
  std::string text = "nobody can run";
  u32 lines = 0;
  for (u32 slot = 0; slot < slots_; ++slot) {
    const Worker& worker = *workers_[slot];
    if (worker.state == State::idle || worker.state == State::runnable) continue;
    if (++lines > most_lines) continue;
    text += "\n  " + name_party(slot, worker.launch, worker.thread.block);
    if (worker.state == State::waiting && worker.waits_for_payload)
      text += " waits for rank " + std::to_string(worker.peer) + " in phase " + phase_name(worker.phase) +
              ": no payload yet at " + name_address(worker.waits_at->address);
    else if (worker.state == State::waiting)
      text += " waits for rank " + std::to_string(worker.peer) + " in phase " + phase_name(worker.phase) +
              ": expects " + std::to_string(worker.expected) + ", sees " + std::to_string(worker.seen) +
              " at " + name_address(worker.waits_at->address);
    else if (worker.state == State::at_previous)
      text += " waits for the kernels before it";
    else
      text += " is at a barrier that the rest of its block has not reached";
    if (worker.last_site != nullptr) text += ", site \"" + std::string(worker.last_site) + "\"";
  }
  if (lines > most_lines) text += "\n  and " + std::to_string(lines - most_lines) + " more";
  return text;
}

void ProofMachine::Implementation::notify(Operation::Kind kind, const void* address, u32 bytes) {
  if (observer == nullptr) return;
  const Buffer* buffer = buffer_at(reinterpret_cast<u64>(address));
  observer->operation({kind, current_->thread.rank, buffer == nullptr ? current_->thread.rank : buffer->rank,
                       address, bytes});
}

std::optional<Change> ProofMachine::Implementation::pass_site(const char* label, SiteKind kind) {
  if (label == nullptr) return std::nullopt;
  current_->last_site = label;
  if (!launch_of(*current_).contender) return std::nullopt;
  for (const PassedSite& site : sites)
    if (site.label == label && site.kind == kind) return site.change;
  // New, or the same text at another address: entries are compared as text when they are read out.
  std::optional<Change> change;
  if (options_.mutation && options_.mutation->site.kind == kind && options_.mutation->site.label == label)
    change = options_.mutation->change;
  sites.push_back({label, kind, change});
  return change;
}

// ---------------------------------------------------------------- scheduling

// Before every machine call. False: the run has failed, and the call does nothing.
bool ProofMachine::Implementation::switch_point() {
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

void ProofMachine::Implementation::block_until_runnable(State state) {
  Worker& worker = self();
  worker.state = state;
  rank_[worker.thread.rank].runnable_weight -= worker.weight;
  worker.fibre.suspend();
}

void ProofMachine::Implementation::make_runnable(Worker& worker) {
  worker.state = State::runnable;
  rank_[rank_of(worker.slot)].runnable_weight += worker.weight;
}

// Uneven speeds: a rank, a block and a thread each run at a drawn share of full speed. Uniform speeds would
// keep everyone within one call of each other and so miss buffer switches.
void ProofMachine::Implementation::draw_speeds(u32 rank) {
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

ProofMachine::Implementation::Worker* ProofMachine::Implementation::draw_worker() {
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

void ProofMachine::Implementation::work(Worker& worker) {
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
// programmatic one follows when every block of the launch before it has let it or has ended.
void ProofMachine::Implementation::start_ready(u32 rank) {
  Rank& state = rank_[rank];
  while (state.next < program_of(rank).size()) {
    if (state.lanes[state.next % lanes_].alive != 0) return;
    const bool early = program_of(rank)[state.next].programmatic && lanes_ > 1 && state.next > 0;
    if (early ? state.lanes[(state.next - 1) % lanes_].holding != 0 : state.ended != state.next) return;
    start(rank, state.next++);
  }
}

void ProofMachine::Implementation::start(u32 rank, u32 number) {
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
void ProofMachine::Implementation::end(Worker& worker) {
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

std::optional<Failure> ProofMachine::Implementation::run(std::vector<const Program*> programs,
                                                         const RunOptions& options) {
  bool programmatic = false;
  for (const Program* program : programs)
    for (const Launch& launch : *program) {
      if (launch.blocks * launch.threads > threads_a_rank_ || launch.blocks * launch.threads == 0)
        throw std::invalid_argument("a launch has more threads than the proof machine, or none");
      programmatic = programmatic || launch.programmatic;
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
  lanes_ = programmatic ? most_lanes : 1;
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

// ---------------------------------------------------------------- memory

ProofMachine::Implementation::Location* ProofMachine::Implementation::locate(const void* address, u32 bytes,
                                                                             bool is_store, u32* mask) {
  const u64 at = reinterpret_cast<u64>(address);
  const u64 arena = reinterpret_cast<u64>(arena_.base());
  const char* verb = is_store ? "store" : "load";
  const auto refuse = [&](Failure::Kind kind, const std::string& why) -> Location* {
    fail(kind, std::string(verb) + " of " + std::to_string(bytes) + " bytes at " + name_address(at) + why +
                   " by " + name_self());
    return nullptr;
  };
  if (at % bytes != 0) return refuse(Failure::Kind::misuse, ", which is not aligned to them,");
  if (at < arena || at >= arena + used_bytes_) return refuse(Failure::Kind::out_of_bounds, "");
  const u64 granule = (at - arena) / sizeof(u32);
  Location* location = nullptr;
  if (index_[granule] != 0) {
    location = &locations_[index_[granule] - 1];
  } else {
    const Buffer* buffer = buffer_at(at);
    if (buffer == nullptr) return refuse(Failure::Kind::out_of_bounds, "");
    location = make_location(bytes == 8 ? at : at / sizeof(u32) * sizeof(u32), bytes == 8 ? 8 : 4,
                             static_cast<u32>(buffer - buffers_.data()));
  }
  // Rule "one size": a word of 8 bytes is never accessed by its halves, nor two words together.
  if ((location->bytes == 8) != (bytes == 8) || (bytes == 8 && location->address != at))
    return refuse(Failure::Kind::misuse, ", a word that is also used with another size,");
  *mask = ((1u << bytes / half_bytes) - 1) << (at - location->address) / half_bytes;
  if ((*mask & ~location->mask) != 0) return refuse(Failure::Kind::out_of_bounds, "");
  const Buffer& home = buffers_[location->buffer];
  if (!home.traits.shared && home.rank != current_->thread.rank)
    return refuse(Failure::Kind::out_of_bounds, ", private to that rank,");
  if (is_store && !home.traits.writable && launch_of(*current_).contender)
    return refuse(Failure::Kind::out_of_bounds, ", which a kernel may only read,");
  return location;
}

bool ProofMachine::Implementation::includes(const Party& a, const Party& b) const {
  if (a.scope == Scope::system || b.slot == nobody) return true;
  if (rank_of(a.slot) != rank_of(b.slot)) return false;
  return a.scope == Scope::device || (a.launch == b.launch && a.block == b.block);
}

ProofMachine::Implementation::Party ProofMachine::Implementation::party_of(const Worker& worker, u32 mask,
                                                                           Access access) const {
  return {worker.slot, worker.clock[worker.slot], worker.launch, worker.thread.block,
          mask,        is_strong(access.order),   access.scope};
}

// Rule "race": overlapping accesses, one of them a store, that happens-before does not order must be morally
// strong (PTX 8.6): both strong, each in the other's scope, the same bytes.
bool ProofMachine::Implementation::check_writes(const Location& location, const Party& party, bool is_store) {
  if (!options_.races_fail) return true;
  const Worker& worker = *current_;
  for (const Write& write : location.writes) {
    if ((write.party.mask & party.mask) == 0 || knows(worker, write.party.slot, write.party.epoch) ||
        morally_strong(write.party, party))
      continue;
    fail(Failure::Kind::race, std::string(is_store ? "store" : "load") + " at " +
                                  name_address(location.address) + " by " + name_self() +
                                  " is not ordered with the store by " +
                                  name_party(write.party.slot, write.party.launch, write.party.block));
    return false;
  }
  return true;
}

bool ProofMachine::Implementation::check_readings(const Location& location, const Party& party) {
  if (!options_.races_fail) return true;
  const Worker& worker = *current_;
  for (const Party& reading : location.readings) {
    if ((reading.mask & party.mask) == 0 || knows(worker, reading.slot, reading.epoch) ||
        morally_strong(reading, party))
      continue;
    fail(Failure::Kind::race, "store at " + name_address(location.address) + " by " + name_self() +
                                  " is not ordered with the load by " +
                                  name_party(reading.slot, reading.launch, reading.block));
    return false;
  }
  return true;
}

// Rule "stores in order": for words that are written by turns, a store that does not follow the newest one in
// its thread's view is a race even where both are strong.
bool ProofMachine::Implementation::check_order(const Location& location, const Party& party) {
  if (!options_.races_fail || !party.strong || !buffers_[location.buffer].traits.stores_in_order) return true;
  for (u32 i = 0; i < location.bytes / half_bytes; ++i) {
    if ((party.mask >> i & 1) == 0) continue;
    const u32 newest = newest_of(location, 1u << i);
    if (floor_of(*current_, location, 1u << i) >= newest) continue;
    const Party& other = location.writes[newest].party;
    fail(Failure::Kind::race, "store at " + name_address(location.address) + " by " + name_self() +
                                  " neither follows nor precedes the store by " +
                                  name_party(other.slot, other.launch, other.block));
    return false;
  }
  return true;
}

long ProofMachine::Implementation::keep_clock(const u32* clock) {
  released_.insert(released_.end(), clock, clock + slots_);
  return static_cast<long>(released_.size() / slots_) - 1;
}

// A thread has read `write`, which releases a clock.
void ProofMachine::Implementation::read_release(const Write& write, const Party& party, Order order) {
  if (write.released < 0 || !mutual(write.releasing, party)) return;
  Worker& worker = *current_;
  const u32* clock = released_.data() + static_cast<std::size_t>(write.released) * slots_;
  if (order == Order::acquire) {
    // Rule "synchronises": an acquire that reads from a release, each in the other's scope, knows what the
    // releaser knew.
    join(worker.clock, clock);
  } else if (order == Order::relaxed && options_.boundaries_are_fences) {
    // Rule "kernel fence": a relaxed load acquires at the next fence.
    long& newest = worker.newest_pending[rank_of(write.releasing.slot)];
    if (newest == write.released) return;
    newest = write.released;
    worker.has_pending = true;
    join(worker.pending, clock);
  }
}

u32 ProofMachine::Implementation::newest_of(const Location& location, u32 half) const {
  u32 i = static_cast<u32>(location.writes.size()) - 1;
  while ((location.writes[i].party.mask & half) == 0) --i;
  return i;
}

// Rule "coherence": a load returns no write older than the newest one that the thread knows, nor than one
// that a load known to the thread has returned.
u32 ProofMachine::Implementation::floor_of(const Worker& worker, const Location& location, u32 half) const {
  u32 floor = static_cast<u32>(location.writes.size()) - 1;
  while (floor > 0) {
    const Party& party = location.writes[floor].party;
    if ((party.mask & half) != 0 && knows(worker, party.slot, party.epoch)) break;
    --floor;
  }
  for (const Seen& seen : location.seen)
    if ((seen.mask & half) != 0 && seen.write > floor && knows(worker, seen.slot, seen.epoch))
      floor = seen.write;
  return floor;
}

u64 ProofMachine::Implementation::load_word(Location& location, u32 mask, Access access, bool* newest) {
  Worker& worker = self();
  ++worker.clock[worker.slot];
  const Party party = party_of(worker, mask, access);
  if (!check_writes(location, party, false)) return 0;

  const bool may_be_stale = is_strong(access.order) || !options_.races_fail;
  const u32 halves = location.bytes / half_bytes;
  std::array<u32, 4> chosen{};
  *newest = true;
  const auto draw = [&](u32 half) {
    const u32 last = newest_of(location, half);
    // A weak load without a race is ordered with every store: the newest is the only one left.
    if (!may_be_stale) return last;
    const u32 floor = floor_of(worker, location, half);
    if (floor == last || random_.below(4) >= staleness_) return last;
    u32 pick = floor + random_.below(last - floor + 1);
    while ((location.writes[pick].party.mask & half) == 0) --pick;
    return pick;
  };
  if (!location.partial) {
    chosen.fill(draw(mask & -mask));
    *newest = chosen[0] + 1 == location.writes.size();
  } else {
    for (u32 i = 0; i < halves; ++i)
      if ((mask >> i & 1) != 0) chosen[i] = draw(1u << i);
    // Rule "word atomicity": a store of a whole word is seen whole. A half may not be older than a whole-word
    // store that the other half was taken from.
    for (u32 i = 0; i < halves; ++i)
      for (u32 j = 0; j < halves; ++j)
        if ((mask >> i & 1) != 0 && (mask >> j & 1) != 0 && chosen[j] < chosen[i] &&
            (location.writes[chosen[i]].party.mask >> j & 1) != 0)
          chosen[j] = chosen[i];
    for (u32 i = 0; i < halves; ++i)
      if ((mask >> i & 1) != 0 && chosen[i] != newest_of(location, 1u << i)) *newest = false;
  }

  u64 value = 0;
  u32 shift = 0;
  for (u32 i = 0; i < halves; ++i) {
    if ((mask >> i & 1) == 0) continue;
    const Write& write = location.writes[chosen[i]];
    if (write.unwritten && options_.races_fail) {
      fail(Failure::Kind::unwritten, "load at " + name_address(location.address) + " by " + name_self() +
                                         " of memory that nobody has written");
      return 0;
    }
    value |= (write.value >> 16 * i & 0xffff) << shift;
    shift += 16;
    read_release(write, party, access.order);
  }

  const auto reading = std::find_if(location.readings.begin(), location.readings.end(), [&](const Party& p) {
    return p.slot == party.slot && p.mask == mask && p.strong == party.strong && p.scope == party.scope;
  });
  if (reading == location.readings.end())
    location.readings.push_back(party);
  else
    *reading = party;
  if (may_be_stale) {
    for (u32 i = 0; i < halves; ++i) {
      if ((mask >> i & 1) == 0) continue;
      const u32 covers = location.partial ? 1u << i : mask;
      const auto last = std::find_if(location.seen.rbegin(), location.seen.rend(), [&](const Seen& seen) {
        return seen.slot == worker.slot && (seen.mask & covers) == covers;
      });
      if (last == location.seen.rend() || last->write != chosen[i])
        location.seen.push_back({worker.slot, party.epoch, covers, chosen[i]});
      if (!location.partial) break;
    }
  }
  trace = (trace ^ value) * 0x100000001b3u;
  return value;
}

void ProofMachine::Implementation::store_word(Location& location, u32 mask, u64 value, Access access,
                                              const Write* passes_on) {
  Worker& worker = self();
  ++worker.clock[worker.slot];
  const Party party = party_of(worker, mask, access);
  if (!check_writes(location, party, true) || !check_readings(location, party)) return;
  if (passes_on == nullptr && !check_order(location, party)) return;
  Write write{party, 0, -1, party, false};
  u32 shift = 0;
  for (u32 i = 0; i < location.bytes / half_bytes; ++i)
    if ((mask >> i & 1) != 0) {
      write.value |= (value >> shift & 0xffff) << 16 * i;
      shift += 16;
    }
  if (access.order == Order::release) {
    // Rule "cumulativity": a release carries all that its thread knows, also what it learnt from barriers and
    // acquires.
    write.released = keep_clock(worker.clock);
  } else {
    // Rule "kernel fence": a relaxed store releases what its thread knew at the last fence. An update also
    // passes on the release that it read.
    if (is_strong(access.order)) write.released = worker.fence;
    if (passes_on != nullptr && passes_on->released >= 0) {
      if (write.released < 0 || write.released == passes_on->released) {
        write.released = passes_on->released;
        write.releasing = passes_on->releasing;
      } else {
        const auto clock_at = [&](long index) {
          return released_.begin() + static_cast<std::ptrdiff_t>(index) * slots_;
        };
        std::vector<u32> both(clock_at(write.released), clock_at(write.released) + slots_);
        join(both.data(), &*clock_at(passes_on->released));
        write.released = keep_clock(both.data());
      }
    }
  }
  if (mask != (1u << location.bytes / half_bytes) - 1) location.partial = true;
  // Rule "order of execution": stores to a word enter its coherence order as they are executed.
  location.writes.push_back(write);
  if (location.waited) {
    location.waited = false;
    for (u32 slot = 0; slot < slots_; ++slot) {
      Worker& other = worker_at(slot);
      if (other.state == State::waiting && other.waits_at == &location) make_runnable(other);
    }
  }
}

// ---------------------------------------------------------------- machine calls

namespace {

// An access as a mutation leaves it.
Access mutated(Access access, std::optional<Change> change) {
  if (!change) return access;
  switch (*change) {
    case Change::relax:
      return {Order::relaxed, access.scope};
    case Change::narrow_device:
      return {access.order, Scope::device};
    case Change::narrow_block:
      return {access.order, Scope::block};
    case Change::drop:
    case Change::zero:
    case Change::keep:
      break;
  }
  return access;
}

}  // namespace

u64 ProofMachine::Implementation::load(const void* address, u32 bytes, Access access, const char* site) {
  if (!switch_point()) return 0;
  const std::optional<Change> change = pass_site(site, SiteKind::acquire);
  if (change == Change::drop) return 0;
  u32 mask = 0;
  Location* location = locate(address, bytes, false, &mask);
  if (location == nullptr) return 0;
  notify(Operation::Kind::load, address, bytes);
  bool newest = false;
  return load_word(*location, mask, mutated(access, change), &newest);
}

void ProofMachine::Implementation::store(void* address, u32 bytes, u64 value, Access access,
                                         const char* site) {
  if (!switch_point()) return;
  const std::optional<Change> change = pass_site(site, SiteKind::release);
  if (change == Change::drop) return;
  u32 mask = 0;
  Location* location = locate(address, bytes, true, &mask);
  if (location == nullptr) return;
  notify(access.order == Order::release ? Operation::Kind::flag : Operation::Kind::store, address, bytes);
  store_word(*location, mask, value, mutated(access, change), nullptr);
}

// Rule "atomicity": a read-modify-write reads the newest store.
u64 ProofMachine::Implementation::update(void* address, u32 bytes, Update update, u64 operand, Access access,
                                         const char* site) {
  if (!switch_point()) return 0;
  const std::optional<Change> change = pass_site(site, SiteKind::generation);
  if (change == Change::drop) return 0;
  u32 mask = 0;
  Location* location = locate(address, bytes, true, &mask);
  if (location == nullptr) return 0;
  notify(Operation::Kind::store, address, bytes);
  const Write read = location->writes[newest_of(*location, mask & -mask)];
  const u64 whole = bytes == 8 ? ~u64{0} : (u64{1} << 8 * bytes) - 1;
  const u64 old = read.value & whole;
  store_word(*location, mask, (update == Update::add ? old + operand : operand) & whole,
             mutated(access, change), &read);
  return old;
}

// Polls a word until reached(value); returns the value.
template <class Reached>
u32 ProofMachine::Implementation::wait_until(const u32* word, Access access, Reached reached, u32 expected,
                                             bool for_payload, Phase phase, u32 peer) {
  for (bool first = true;; first = false) {
    if (!first && !switch_point()) return expected;
    u32 mask = 0;
    Location* location = locate(word, sizeof(u32), false, &mask);
    if (location == nullptr) return expected;
    notify(Operation::Kind::load, word, sizeof(u32));
    bool newest = false;
    const u32 seen = static_cast<u32>(load_word(*location, mask, access, &newest));
    if (failure_ || reached(seen)) return seen;
    if (!newest) continue;
    // Rule "eventually": a waiting thread sees the newest store in the end, so it sleeps until there is one.
    Worker& worker = self();
    worker.waits_at = location;
    worker.waits_for_payload = for_payload;
    worker.expected = expected;
    worker.seen = seen;
    worker.phase = phase;
    worker.peer = peer;
    location->waited = true;
    block_until_runnable(State::waiting);
    if (failure_) return seen;
  }
}

void ProofMachine::Implementation::wait_reached(const u32* flag, u32 expected, Access access, Phase phase,
                                                u32 peer, const char* site) {
  if (!switch_point()) return;
  const std::optional<Change> change = pass_site(site, SiteKind::acquire);
  if (change == Change::drop) return;
  wait_until(
      flag, mutated(access, change), [&](u32 seen) { return static_cast<int>(seen - expected) >= 0; },
      expected, false, phase, peer);
}

u32 ProofMachine::Implementation::wait_arrived(const u32* word, u32 absent, Access access, Phase phase,
                                               u32 peer) {
  if (!switch_point()) return 0;
  return wait_until(
      word, access, [&](u32 seen) { return seen != absent; }, 0, true, phase, peer);
}

void ProofMachine::Implementation::refill(u32* word, u32 absent, Access access, const char* site) {
  if (!switch_point()) return;
  const std::optional<Change> change = pass_site(site, SiteKind::refill);
  if (change == Change::drop) return;
  u32 mask = 0;
  Location* location = locate(word, sizeof(u32), true, &mask);
  if (location == nullptr) return;
  notify(Operation::Kind::store, word, sizeof(u32));
  const u64 old = location->writes[newest_of(*location, mask & -mask)].value;
  store_word(*location, mask, change == Change::keep ? old : absent, mutated(access, change), nullptr);
}

// Also rule "kernel fence", where it holds.
void ProofMachine::Implementation::wait_for_previous_kernel(const char* site) {
  if (!switch_point()) return;
  if (pass_site(site, SiteKind::previous_kernel) == Change::drop) return;
  Worker& worker = self();
  if (worker.follows_previous) return;
  const Rank& rank = rank_[worker.thread.rank];
  if (rank.ended < worker.launch) block_until_runnable(State::at_previous);
  if (failure_) return;
  join(worker.clock, rank.known.data());
  if (worker.has_pending) join(worker.clock, worker.pending);
  worker.fence = rank.fence;
  worker.follows_previous = true;
}

void ProofMachine::Implementation::let_next_kernel_start() {
  if (!switch_point()) return;
  Worker& worker = self();
  Lane& lane = lane_of(worker);
  if (lane.lets_next_start[worker.thread.block]) return;
  lane.lets_next_start[worker.thread.block] = true;
  if (--lane.holding == 0) start_ready(worker.thread.rank);
}

// Rule "barrier": what any thread of the block did before is ordered before what any does after.
void ProofMachine::Implementation::block_barrier(const char* site) {
  if (!switch_point()) return;
  if (pass_site(site, SiteKind::barrier) == Change::drop) return;
  Worker& worker = self();
  Barrier& barrier = lane_of(worker).barriers[worker.thread.block];
  if (barrier.arrived == 0) {
    barrier.site = site;
    std::fill(barrier.clock.begin(), barrier.clock.end(), 0);
  } else if (site != nullptr && barrier.site != nullptr && std::strcmp(site, barrier.site) != 0) {
    fail(Failure::Kind::misuse, name_self() + " meets threads of its block that are at the barrier \"" +
                                    std::string(barrier.site) + "\"");
    return;
  }
  join(barrier.clock.data(), worker.clock);
  if (++barrier.arrived < worker.thread.threads) {
    block_until_runnable(State::at_barrier);
    return;
  }
  barrier.arrived = 0;
  const u32 first = worker.slot - worker.thread.thread;
  for (u32 slot = first; slot < first + worker.thread.threads; ++slot) {
    Worker& other = worker_at(slot);
    std::copy(barrier.clock.begin(), barrier.clock.end(), other.clock);
    if (&other != &worker) make_runnable(other);
  }
}

u32 ProofMachine::Implementation::choose_slot(u32 slot, const char* site) {
  if (!switch_point()) return 0;
  return pass_site(site, SiteKind::slot) ? 0 : slot;
}

// ---------------------------------------------------------------- the public face

ProofMachine::ProofMachine(u32 ranks, u32 threads_a_rank)
    : implementation_(std::make_unique<Implementation>()) {
  implementation_->reset(ranks, threads_a_rank);
}
ProofMachine::~ProofMachine() = default;

void ProofMachine::reset(u32 ranks, u32 threads_a_rank) {
  implementation_->reset(ranks, threads_a_rank);
}

char* ProofMachine::allocate(const std::string& area, u64 bytes, u64 offset_bytes, u64 stride_bytes,
                             const BufferTraits& traits) {
  return implementation_->reserve(0, implementation_->rank_count(), area, bytes, offset_bytes, stride_bytes,
                                  traits);
}

char* ProofMachine::allocate_for(u32 rank, const std::string& area, u64 bytes, u64 offset_bytes,
                                 const BufferTraits& traits) {
  return implementation_->reserve(rank, 1, area, bytes, offset_bytes, 0, traits);
}

void ProofMachine::preset(void* address, u32 bytes, u64 value) {
  implementation_->preset(address, bytes, value);
}

std::optional<Failure> ProofMachine::run(const Program& program, const RunOptions& options) {
  return implementation_->run(std::vector<const Program*>(implementation_->rank_count(), &program), options);
}

std::optional<Failure> ProofMachine::run_each(const std::vector<Program>& programs,
                                              const RunOptions& options) {
  if (programs.size() != implementation_->rank_count())
    throw std::invalid_argument("run_each: a program for every rank");
  std::vector<const Program*> each;
  each.reserve(programs.size());
  for (const Program& program : programs) each.push_back(&program);
  return implementation_->run(std::move(each), options);
}

std::vector<SiteId> ProofMachine::sites() const {
  std::vector<SiteId> result;
  for (const auto& site : implementation_->sites) {
    SiteId id{site.label, site.kind};
    if (std::find(result.begin(), result.end(), id) == result.end()) result.push_back(std::move(id));
  }
  return result;
}

std::uint64_t ProofMachine::operations() const {
  return implementation_->operations;
}
std::uint64_t ProofMachine::trace_hash() const {
  return implementation_->trace;
}
void ProofMachine::observe(Observer* observer) {
  implementation_->observer = observer;
}

}  // namespace arb::emulator
