// What host and kernels agree on: the one parameter struct, limits, and the failure record.
// Builtin types only: NVRTC compiles this file without any standard header.
#pragma once

namespace arb {

using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int max_ranks = 8;
constexpr int max_blocks = 1024;  // a grid never has more blocks: flags are indexed by block
constexpr int vector_bytes = 16;  // the unit in which kernels partition a message
constexpr int max_threads = 512;  // of a block: leaves 128 registers a thread

// What a kernel was doing when it waited; names for people are in phase_name().
enum class Phase : u32 {
  none = 0,
  publish = 1,   // peers' inputs are readable
  reduce = 2,    // peers' reduced shards are readable
  finish = 3,    // peers have read what this rank is about to reuse
  gate = 4,      // support kernels: the host opens the gate
  barrier = 5,   // support kernels: all ranks arrive
  exchange = 6,  // peers' messages are here
  gather = 7,    // peers' shards are here
};
constexpr int phase_count = 8;

constexpr const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::publish:
      return "publish";
    case Phase::reduce:
      return "reduce";
    case Phase::finish:
      return "finish";
    case Phase::gate:
      return "gate";
    case Phase::barrier:
      return "barrier";
    case Phase::exchange:
      return "exchange";
    case Phase::gather:
      return "gather";
    case Phase::none:
      break;
  }
  return "none";
}

// A buffer that every rank has at the same place: rank r's copy starts at base + r * stride_bytes.
struct Symmetric {
  char* base;
  u64 stride_bytes;
};

// Written by the first wait of a rank whose deadline passed; the host reads it after every replay.
// Lives in pinned host memory so that it can be read while a device still runs.
struct FailureRecord {
  u32 failed;    // 0 or 1, written last
  u32 rank;      // who waited
  u32 peer;      // for whom
  u32 phase;     // a Phase
  u32 block;     // in which block
  u32 expected;  // the generation waited for
  u32 seen;      // the last value read
  u32 reserved;
};

// Device memory of one rank that no peer touches.
struct LocalState {
  u64 call_ticks;     // ticks_per_call for every finished call: generation = call_ticks / ticks_per_call
  u32 failure_claim;  // 0 until the first failed wait takes the failure record
  u32 reserved;
  u64 steps[2];  // all steps before a call of even and of odd generation, for flags that count several a call
};
constexpr u64 ticks_per_call = 1ull << 16;  // a call's blocks add this together, at least one each

// The single argument of every contender kernel.
//
// Scratch of a rank (in `scratch`, so peers can reach it):
//   [0, flags_bytes)   u32 flags[phase_count][max_blocks][max_ranks]; flag (p, b, r) is written by rank r
//   only [flags_bytes, ...) messages: areas of capacity_bytes each; the kernel's file comment says which is
//   which
struct KernelParams {
  const void* input;  // this rank's tensor, aligned to its element
  void* output;  // this rank's result, aligned to its element; may equal input where the catalog allows it
  Symmetric scratch;
  Symmetric
      inputs;  // style symmetric: where peers' inputs are (rank's own equals `input`); else base is null
  LocalState* local;       // this rank's
  FailureRecord* failure;  // this rank's
  u64 count_elements;
  u64 capacity_bytes;  // of one message area; a multiple of 256 and >= the message
  u64 deadline_ns;     // how long a wait may take
  u32 rank;
  u32 ranks;
  u32 island_ranks;  // ranks [k * island_ranks, (k + 1) * island_ranks) are close to each other; 0: not known
  u32 step;          // which launch of a schedule of several this is
};

// What an area holds that takes one of `parts` shares of a message: the share, and the whole of a message of
// so few vectors that it cannot be shared. A multiple of 256, as the areas of whole messages are, so that stores do
// not straddle lines of memory.
constexpr u64 share_area_bytes(u64 capacity_bytes, u32 parts) {
  return (capacity_bytes / parts + (max_ranks + 1) * vector_bytes + 255) / 256 * 256;
}

// Of a message of `bytes` whose bulk copy engines bring: vectors [begin, end) by them, the rest by stores while the engines
// start, which take some microseconds.
struct EnginePart {
  u64 begin;
  u64 end;
};
constexpr EnginePart engine_part(u64 bytes) {
  constexpr u64 most_stored_bytes = 3ull << 20;
  const u64 stored_bytes = bytes / 8 < most_stored_bytes ? bytes / 8 : most_stored_bytes;
  return {stored_bytes / vector_bytes, bytes / vector_bytes};
}

constexpr u64 flags_bytes = static_cast<u64>(phase_count) * max_blocks * max_ranks * sizeof(u32);

static_assert(sizeof(void*) == 8, "64-bit only");
static_assert(sizeof(KernelParams) == 16 + 2 * 16 + 2 * 8 + 3 * 8 + 4 * 4,
              "no padding: the loader checks the size");
static_assert(ticks_per_call >= max_blocks, "");
static_assert(sizeof(FailureRecord) == 32, "");

// --- Support kernels (kernels/support): one struct each
// ------------------------------------------------------------

enum class DtypeCode : u32 { bf16 = 0, fp16 = 1, fp32 = 2 };

// Holds a stream until the host writes `opened` to *gate (pinned host memory).
struct GateParams {
  const u32* gate;
  LocalState* local;
  FailureRecord* failure;
  u64 deadline_ns;
  u32 opened;
  u32 rank;
};

// *stamp = the device clock in nanoseconds.
struct StampParams {
  u64* stamp;
};

// What the inputs of a call look like.
enum class Pattern : u32 {
  random = 0,     // multiples of 2^-23 in [-1, 1), others in every call
  special = 1,    // among them signed zeros, denormals, large numbers, inf, NaN and the sentinel's own bits
  perturbed = 2,  // the same in every call but for one element of one rank, drawn for each call
};

// Whose inputs: a pure function of seed, call, rank and index, the same on every rank.
struct InputParams {
  u64 seed;                   // random inputs of call c are make_input() of seed + c on the host
  const u64* finished_calls;  // this rank's counter, which the last node of a replayed graph moves; null: 0
  u64 call;                   // after those
  u64 count_elements;
  u32 ranks;  // only for Pattern::perturbed
  DtypeCode dtype;
  Pattern pattern;
  u32 reserved;
};

// to[i] = the input of `rank`; the garbage that `poison` gets is the result of no call.
struct FillParams {
  void* to;
  void* poison;  // as long as `to`; null: nothing is poisoned
  InputParams inputs;
  u32 rank;
  u32 reserved;
};

// What the check kernels of a rank found; the host zeroes it before.
struct CheckRecord {
  u64 wrong_elements;
  u64 first_wrong;  // 0 when none is, else wrong_place() of the first one in the earliest call
  u64 hash;         // hash_hex() of the tensor; with `finished_calls` a sum over all tensors and their calls
  u64 max_error_bits;  // of a non-negative float: largest |result - exact| / (sum of |addends|)
};
constexpr u32 element_index_bits = 36;
// Larger for an earlier call, then for an earlier element, and never 0.
constexpr u64 wrong_place(u64 call, u64 element) {
  return ~(call << element_index_bits | element);
}
constexpr u64 call_of_wrong_place(u64 place) {
  return ~place >> element_index_bits;
}
constexpr u64 element_of_wrong_place(u64 place) {
  return ~place & ((1ull << element_index_bits) - 1);
}

// Compares a result with the sum, in double, of the inputs of all ranks; inf and NaN as IEEE sums have them.
struct CheckParams {
  const void* result;
  CheckRecord* record;
  InputParams inputs;
  double relative_bound;  // allowed: relative_bound * (sum of |addends|) + absolute_bound
  double absolute_bound;  // what roundings may err among denormals
  u32 rank_order;         // 1: the bits must be those of the fp32 sum in rank order, rounded once
  u32 reserved;
};

// *finished_calls += calls.
struct AdvanceParams {
  u64* finished_calls;
  u64 calls;
};

// Takes 0 to most_ns, drawn from seed, rank and call.
struct DelayParams {
  const u64* finished_calls;
  u64 call;
  u64 seed;
  u64 most_ns;
  u32 rank;
  u32 reserved;
};

// Bounces a flag between two ranks; the first one writes how long `rounds` round trips took.
struct PingPongParams {
  u32* own_flag;
  u32* peer_flag;
  u64* elapsed_ns;
  LocalState* local;
  FailureRecord* failure;
  u64 deadline_ns;
  u32 first_value;  // flags grow from here, so that runs can follow one another
  u32 rounds;
  u32 starts;  // 1: sends first
  u32 rank;
  u32 peer;
  u32 reserved;
};

// to[0, bytes) = from[0, bytes): a store test when `to` is a peer's memory, a load test when `from` is.
struct MoveParams {
  void* to;
  const void* from;
  u64 bytes;  // a multiple of 16
};

// *tick_ns = the smallest step of the device clock that was seen.
struct ClockTickParams {
  u64* tick_ns;
};

}  // namespace arb
