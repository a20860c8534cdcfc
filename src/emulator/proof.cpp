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
  std::optional<Failure> run(const std::vector<Launch>& program, const RunOptions& options);

  u64 load(const void* address, u32 bytes, Access access, const char* site) override;
  void store(void* address, u32 bytes, u64 value, Access access, const char* site) override;
  u64 update(void* address, u32 bytes, Update update, u64 operand, Access access, const char* site) override;
  void wait_reached(const u32* flag, u32 expected, Access access, Phase phase, u32 peer,
                    const char* site) override;
  void block_barrier(const char* site) override;
  u32 choose_slot(u32 slot, const char* site) override;
  const void* whole_source(const void*, u64) override { return nullptr; }
  void* whole_target(void*, u64) override { return nullptr; }
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

  enum class State : std::uint8_t { runnable, waiting, at_barrier, at_boundary, done };
  struct Worker {
    explicit Worker() : fibre(stack_bytes) {}
    Fibre fibre;
    Thread thread{};
    u32 slot = 0;
    u32 launch = 0;
    u32* clock = nullptr;
    State state = State::runnable;
    u32 weight = 1;
    const char* last_site = nullptr;
    // While waiting or at a barrier:
    const Location* waits_at = nullptr;
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
  struct Rank {
    u32 weight = 1;
    u32 runnable_weight = 0;  // sum over runnable workers
    u32 arrived = 0;          // at the end of the launch
    std::vector<u32> boundary;
    std::vector<Barrier> barriers;
  };

  // Scheduling.
  Worker& self() { return *current_; }
  void work(Worker& worker);
  bool switch_point();
  void block_until_runnable(State state);
  void make_runnable(Worker& worker);
  Worker* draw_worker();
  void draw_speeds(u32 rank);
  void end_of_launch();
  std::string deadlock_text() const;
  Worker& worker_at(u32 slot) { return *workers_[slot]; }
  u32 rank_of(u32 slot) const { return slot / threads_a_rank_; }

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
  u32 slots_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Rank> rank_;
  std::vector<u32> clocks_;    // of workers, slots_ each
  std::vector<u32> released_;  // of release stores, slots_ each

  const std::vector<Launch>* program_ = nullptr;
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
  slots_ = ranks * threads_a_rank;
  while (workers_.size() < slots_) workers_.push_back(std::make_unique<Worker>());
  clocks_.assign(std::size_t{slots_} * slots_, 0);
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
  const u64 word = home.traits.initial;
  const Party host{nobody, 0, 0, 0, all, true, Scope::system};
  const u64 offset = address < home.begin ? 0 : address - home.begin;
  const bool unwritten = offset >= home.traits.initial_bytes;
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
  const Launch& in = (*program_)[launch];
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
    if (worker.state != State::waiting && worker.state != State::at_barrier) continue;
    if (++lines > most_lines) continue;
    text += "\n  " + name_party(slot, worker.launch, worker.thread.block);
    if (worker.state == State::waiting)
      text += " waits for rank " + std::to_string(worker.peer) + " in phase " + phase_name(worker.phase) +
              ": expects " + std::to_string(worker.expected) + ", sees " + std::to_string(worker.seen) +
              " at " + name_address(worker.waits_at->address);
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
  if (!(*program_)[current_->launch].contender) return std::nullopt;
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
  const u32 threads = (*program_)[workers_[std::size_t{rank} * threads_a_rank_]->launch].threads;
  for (u32 i = 0; i < threads_a_rank_; ++i) {
    Worker& worker = worker_at(rank * threads_a_rank_ + i);
    worker.weight = even ? 1 : block_share[i / threads % 64] * shares[random_.below(4)];
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
  for (u32 i = 0; i < threads_a_rank_; ++i) {
    Worker& worker = worker_at(chosen * threads_a_rank_ + i);
    if (worker.state != State::runnable) continue;
    if (draw < worker.weight) return &worker;
    draw -= worker.weight;
  }
  return nullptr;
}

void ProofMachine::Implementation::work(Worker& worker) {
  const u32 index = worker.slot % threads_a_rank_;
  for (u32 number = 0; number < program_->size() && !failure_; ++number) {
    const Launch& launch = (*program_)[number];
    worker.launch = number;
    worker.last_site = nullptr;
    worker.thread = {this,          rank_of(worker.slot),   index / launch.threads,
                     launch.blocks, index % launch.threads, launch.threads};
    if (index < launch.blocks * launch.threads) {
      try {
        launch.body(worker.thread.rank);
      } catch (const Abandoned&) {
        break;
      } catch (const std::exception& error) {
        fail(Failure::Kind::misuse, "an exception left " + launch.name + ": " + error.what());
      } catch (...) {
        fail(Failure::Kind::misuse, "an exception left " + launch.name);
      }
    }
    end_of_launch();
  }
  worker.state = State::done;
}

// Rule "kernel boundary": everything that a rank's launch did is ordered before all that its next one does.
void ProofMachine::Implementation::end_of_launch() {
  if (failure_) return;
  Worker& worker = self();
  Rank& rank = rank_[worker.thread.rank];
  join(rank.boundary.data(), worker.clock);
  if (++rank.arrived < threads_a_rank_) {
    block_until_runnable(State::at_boundary);
    return;
  }
  rank.arrived = 0;
  for (u32 i = 0; i < threads_a_rank_; ++i) {
    Worker& other = worker_at(worker.thread.rank * threads_a_rank_ + i);
    std::copy(rank.boundary.begin(), rank.boundary.end(), other.clock);
    if (&other != &worker) make_runnable(other);
  }
  if (random_.one_in(2)) draw_speeds(worker.thread.rank);
}

std::optional<Failure> ProofMachine::Implementation::run(const std::vector<Launch>& program,
                                                         const RunOptions& options) {
  for (const Launch& launch : program)
    if (launch.blocks * launch.threads > threads_a_rank_ || launch.blocks * launch.threads == 0)
      throw std::invalid_argument("a launch has more threads than the proof machine, or none");
  program_ = &program;
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
  rank_.assign(ranks_, Rank{});
  for (Rank& rank : rank_) {
    rank.boundary.assign(slots_, 0);
    rank.barriers.resize(threads_a_rank_);
    for (Barrier& barrier : rank.barriers) barrier.clock.assign(slots_, 0);
  }
  for (u32 slot = 0; slot < slots_; ++slot) {
    Worker& worker = worker_at(slot);
    worker.slot = slot;
    worker.clock = clocks_.data() + std::size_t{slot} * slots_;
    worker.state = program.empty() ? State::done : State::runnable;
    worker.launch = 0;
    if (!program.empty()) worker.fibre.start([this, &worker] { work(worker); });
  }
  for (u32 rank = 0; rank < ranks_ && !program.empty(); ++rank) draw_speeds(rank);

  while (!failure_) {
    Worker* worker = draw_worker();
    if (worker == nullptr) {
      for (u32 slot = 0; slot < slots_; ++slot)
        if (worker_at(slot).state != State::done) {
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
    if (worker->state == State::done) rank_[rank_of(worker->slot)].runnable_weight -= worker->weight;
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
  if (is_store && !home.traits.writable && (*program_)[current_->launch].contender)
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
    // Rule "synchronises": an acquire that reads from a release, each in the other's scope, knows what the
    // releaser knew.
    if (access.order == Order::acquire && write.released >= 0 && mutual(write.releasing, party))
      join(worker.clock, released_.data() + static_cast<std::size_t>(write.released) * slots_);
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
    write.released = static_cast<long>(released_.size() / slots_);
    released_.insert(released_.end(), worker.clock, worker.clock + slots_);
  } else if (passes_on != nullptr) {
    write.released = passes_on->released;
    write.releasing = passes_on->releasing;
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

void ProofMachine::Implementation::wait_reached(const u32* flag, u32 expected, Access access, Phase phase,
                                                u32 peer, const char* site) {
  std::optional<Change> change;
  for (bool first = true;; first = false) {
    if (!switch_point()) return;
    if (first) change = pass_site(site, SiteKind::acquire);
    if (change == Change::drop) return;
    u32 mask = 0;
    Location* location = locate(flag, sizeof(u32), false, &mask);
    if (location == nullptr) return;
    notify(Operation::Kind::load, flag, sizeof(u32));
    bool newest = false;
    const u32 seen = static_cast<u32>(load_word(*location, mask, mutated(access, change), &newest));
    if (failure_ || static_cast<int>(seen - expected) >= 0) return;
    if (!newest) continue;
    // Rule "eventually": a waiting thread sees the newest store in the end, so it sleeps until there is one.
    Worker& worker = self();
    worker.waits_at = location;
    worker.expected = expected;
    worker.seen = seen;
    worker.phase = phase;
    worker.peer = peer;
    location->waited = true;
    block_until_runnable(State::waiting);
    if (failure_) return;
  }
}

// Rule "barrier": what any thread of the block did before is ordered before what any does after.
void ProofMachine::Implementation::block_barrier(const char* site) {
  if (!switch_point()) return;
  if (pass_site(site, SiteKind::barrier) == Change::drop) return;
  Worker& worker = self();
  Barrier& barrier = rank_[worker.thread.rank].barriers[worker.thread.block];
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
  const u32 first = worker.thread.rank * threads_a_rank_ + worker.thread.block * worker.thread.threads;
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

std::optional<Failure> ProofMachine::run(const std::vector<Launch>& program, const RunOptions& options) {
  return implementation_->run(program, options);
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
