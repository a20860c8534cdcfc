// The proof engine: a small machine whose memory keeps every write, run under a seeded adversarial scheduler.
// docs/emulator.md says what is modelled; proof_*.cpp name each rule where they apply it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine.h"
#include "failure.h"

namespace arb::emulator {

// One launch; a rank's launches follow one another, ranks run freely.
struct Launch {
  std::string name;  // for reports
  u32 blocks = 1;
  u32 threads = 1;
  std::function<void(u32 rank)> body;  // what one thread does; it asks machine/ who it is
  bool contender =
      false;  // its sites are recorded and may be mutated, and it may not store to read-only buffers
  // Its threads may start once every block of the launch before has let it or has ended.
  bool programmatic = false;
  // The launch after it, which is not programmatic, does not follow it: it starts with it.
  bool beside = false;
};

// The launches of one rank, in order.
using Program = std::vector<Launch>;

// Who may touch a buffer, and what is in it at first.
struct BufferTraits {
  bool shared = false;   // peers may load and store it
  bool writable = true;  // a contender may store to it
  // Of every 4-byte word in the first initial_bytes; elsewhere a load before the first store is a failure.
  u32 initial = 0;
  u64 initial_bytes = 0;
  std::optional<u32> rest = std::nullopt;  // of every word elsewhere
  // A strong store that does not follow the newest one in its thread's view is a race: nothing else decides
  // which of them stays.
  bool stores_in_order = false;
};

struct RunOptions {
  std::uint64_t seed = 1;
  bool races_fail = true;  // false: races go unreported, so that values show what an order allows
  // Kernel boundaries and waits for the previous kernel act as a system-scope fence of every thread. Not
  // promised by PTX: for protocols that name it.
  bool boundaries_are_fences = false;
  std::optional<Mutation> mutation;
  std::uint64_t most_operations = 5'000'000;  // machine calls of a run; beyond that it counts as endless
};

class ProofEngine;

class ProofMachine {
 public:
  // At most 8 ranks and 64 threads a rank.
  ProofMachine(u32 ranks, u32 threads_a_rank);
  ProofMachine(const ProofMachine&) = delete;
  ProofMachine& operator=(const ProofMachine&) = delete;
  ProofMachine(ProofMachine&&) = delete;
  ProofMachine& operator=(ProofMachine&&) = delete;
  ~ProofMachine();

  // Forgets all buffers and words and takes another shape, for the next program; keeps stacks and storage.
  void reset(u32 ranks, u32 threads_a_rank);
  // Reserves a buffer on every rank, `stride_bytes` (a multiple of 256) apart, each `offset_bytes` past a
  // multiple of 256. Returns rank 0's. Addresses are names: memory cannot be reached through them.
  char* allocate(const std::string& area, u64 bytes, u64 offset_bytes, u64 stride_bytes,
                 const BufferTraits& traits);
  // The same on one rank.
  char* allocate_for(u32 rank, const std::string& area, u64 bytes, u64 offset_bytes,
                     const BufferTraits& traits);
  // Sets a word of 4 or 8 bytes before a run, known to everyone.
  void preset(void* address, u32 bytes, u64 value);

  // Runs a program on every rank to its end, once after a reset. The failure, if any, names the seed; a seed
  // replays a run exactly.
  std::optional<Failure> run(const Program& program, const RunOptions& options);
  // The same with a program for each rank.
  std::optional<Failure> run_each(const std::vector<Program>& programs, const RunOptions& options);
  // The sites that the last run's contenders passed.
  [[nodiscard]] std::vector<SiteId> sites() const;
  // Machine calls of the last run.
  [[nodiscard]] std::uint64_t operations() const;
  // A hash of the last run's schedule and of all values loaded: equal for a replay.
  [[nodiscard]] std::uint64_t trace_hash() const;
  // Sees every operation of later runs; may be null.
  void observe(Observer* observer);

 private:
  std::unique_ptr<ProofEngine> engine_;
};

}  // namespace arb::emulator
