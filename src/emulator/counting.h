// The counting engine: one fibre a block, one thread a block, plain memory, whole ranges. It gives data and
// traffic of messages up to megabytes; orders and races are the proof engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine.h"

namespace arb::emulator {

// What a rank did to its peers' memory.
struct Traffic {
  std::uint64_t messages = 0;    // contiguous transfers of payload from or to a peer, and flags stored to one
  std::uint64_t wire_bytes = 0;  // payload only
};

// Adds up each rank's traffic.
class TrafficCounter final : public Observer {
 public:
  explicit TrafficCounter(u32 ranks) : traffic_(ranks) {}
  void operation(const Operation& operation) override;
  void clear();
  [[nodiscard]] const std::vector<Traffic>& traffic() const { return traffic_; }

 private:
  std::vector<Traffic> traffic_;
};

// One launch of a rank's chain: `blocks` blocks of one thread.
struct Node {
  u32 blocks = 1;
  std::function<void()> body;
};

class CountingMachine {
 public:
  explicit CountingMachine(u32 ranks);
  CountingMachine(const CountingMachine&) = delete;
  CountingMachine& operator=(const CountingMachine&) = delete;
  CountingMachine(CountingMachine&&) = delete;
  CountingMachine& operator=(CountingMachine&&) = delete;
  ~CountingMachine();

  // Forgets all buffers.
  void clear();
  // Says that [begin, begin + bytes) is a buffer of `rank`; kernels may touch nothing else. The memory is the
  // caller's and outlives the run.
  void add_buffer(u32 rank, const std::string& area, std::byte* begin, u64 bytes);
  // Sees every operation of later runs; may be null.
  void observe(Observer* observer);

  // Each rank goes through its chain `calls` times back to back. `between(rank, call)` runs before a rank's
  // call and once more after its last (call == calls); other ranks may be anywhere. Returns a sentence if the
  // run could not go on: a deadlock, a stray access.
  std::optional<std::string> run(const std::vector<std::vector<Node>>& chains, u32 calls,
                                 const std::function<void(u32 rank, u32 call)>& between);

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace arb::emulator
