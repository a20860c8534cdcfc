// What the machine layer in src/emulator/machine calls. Two engines implement it: proof.h (every word has a
// history, every interleaving is possible) and counting.h (plain memory, whole ranges, traffic counted).
#pragma once

#include <arb/abi.h>

namespace arb::emulator {

// How strongly an access is ordered, and for whom: as in PTX.
enum class Order : u32 { weak, relaxed, acquire, release };
enum class Scope : u32 { block, device, system };
struct Access {
  Order order;
  Scope scope;
};
constexpr Access weak{Order::weak, Scope::block};

// Kinds of ordering sites, by what can be planted there.
enum class SiteKind : u32 { release, acquire, barrier, slot, generation, refill, previous_kernel };

// One operation on memory, as an observer sees it.
struct Operation {
  enum class Kind : u32 { load, store, flag };  // flag: a release store of one word
  Kind kind;
  u32 rank;             // who
  u32 owner;            // whose memory
  const void* address;  // first byte
  u64 bytes;            // contiguous
};

// Sees every operation of an engine in the order of execution. The traffic counter is one; a scheduler in
// virtual time can be another.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  Observer(Observer&&) = delete;
  Observer& operator=(Observer&&) = delete;
  virtual ~Observer() = default;
  virtual void operation(const Operation& operation) = 0;
};

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;
  virtual ~Engine() = default;

  // Words of 2, 4 or 8 bytes, aligned to their size. `site` is a label, or null where none was given.
  virtual u64 load(const void* address, u32 bytes, Access access, const char* site) = 0;
  virtual void store(void* address, u32 bytes, u64 value, Access access, const char* site) = 0;
  // A read-modify-write.
  virtual void add(void* address, u32 bytes, u64 addend, Access access, const char* site) = 0;
  // Returns once *flag has reached `expected` (by signed difference), or when the run has failed.
  virtual void wait_reached(const u32* flag, u32 expected, Access access, Phase phase, u32 peer,
                            const char* site) = 0;
  // Returns a word once a load gives anything but `absent`; or anything when the run has failed.
  virtual u32 wait_arrived(const u32* word, u32 absent, Access access, Phase phase, u32 peer) = 0;
  // Returns a word once a load gives anything but `absent` or *flag has reached `expected` (then as it is after that);
  // or anything when the run has failed.
  virtual u32 wait_arrived_or_told(const u32* word, u32 absent, Access access, const u32* flag, u32 expected,
                                   Access flag_access, Phase phase, u32 peer, const char* site) = 0;
  // Stores `absent` where payload has been read.
  virtual void refill(u32* word, u32 absent, Access access, const char* site) = 0;
  virtual void block_barrier(const char* site) = 0;
  virtual void wait_for_previous_kernel(const char* site) = 0;
  virtual void let_next_kernel_start() = 0;
  virtual u32 choose_slot(u32 slot, const char* site) = 0;

  // Counting: ranges are moved whole through these bytes. Null in proof: ranges are split into words.
  // The engine checks that the bytes lie in one buffer and reports the operation.
  virtual const void* whole_source(const void* address, u64 bytes) = 0;
  virtual void* whole_target(void* address, u64 bytes) = 0;
  // Counting: returns once no word of the range is `absent`.
  virtual void wait_whole_arrived(const void* address, u64 bytes, u32 absent, Phase phase, u32 peer) = 0;
  virtual bool ranges_are_whole() const = 0;
};

// The emulated thread that runs now.
struct Thread {
  Engine* engine;
  u32 rank;
  u32 block;
  u32 blocks;
  u32 thread;
  u32 threads;
};

// The one mutable global of the emulator, a pointer per operating-system thread: kernels ask thread_index()
// with no argument, as on a GPU. An engine sets it before it resumes a fibre; every machine runs on one
// operating-system thread, so machines on different ones are independent.
extern constinit thread_local const Thread* running;

}  // namespace arb::emulator
