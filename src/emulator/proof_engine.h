// What ProofMachine is made of, for proof*.cpp alone: proof_memory.cpp has the rules of the memory model,
// proof_schedule.cpp who runs when, proof.cpp the buffers, the machine calls and the reports.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "fibre.h"
#include "proof.h"
#include "random.h"

namespace arb::emulator {

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

class ProofEngine final : public Engine {
 public:
  ProofEngine() : index_(static_cast<u32*>(std::calloc(arena_bytes / sizeof(u32), sizeof(u32))), &std::free) {
    if (!index_) throw std::bad_alloc();
  }
  ~ProofEngine() override = default;

  void reset(u32 ranks, u32 threads_a_rank);
  char* reserve(u32 first_rank, u32 rank_count, const std::string& area, u64 bytes, u64 offset_bytes,
                u64 stride_bytes, const BufferTraits& traits);
  void preset(void* address, u32 bytes, u64 value);
  std::optional<Failure> run(std::vector<const Program*> programs, const RunOptions& options);

  u64 load(const void* address, u32 bytes, Access access, const char* site) override;
  void store(void* address, u32 bytes, u64 value, Access access, const char* site) override;
  void add(void* address, u32 bytes, u64 addend, Access access, const char* site) override;
  void wait_reached(const u32* flag, u32 expected, Access access, Phase phase, u32 peer,
                    const char* site) override;
  u32 wait_arrived(const u32* word, u32 absent, Access access, Phase phase, u32 peer) override;
  u32 wait_arrived_or_told(const u32* word, u32 absent, Access access, const u32* flag, u32 expected,
                           Access flag_access, Phase phase, u32 peer, const char* site) override;
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
    Worker() : fibre(stack_bytes) {}
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
    const Location* waits_also_at = nullptr;
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
  // A load of a waiting thread; `newest`: it gave the newest store.
  Location* poll(const u32* word, Access access, u32* seen, bool* newest);
  void sleep_at(Location* location, Location* also, u32 expected, u32 seen, bool for_payload, Phase phase,
                u32 peer);
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

}  // namespace arb::emulator
