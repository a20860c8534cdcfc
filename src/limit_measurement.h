// One test of what a machine itself can do: plain data, the same in coordinator and worker. Its answer is one figure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace arb {

enum class GraphEdge : std::uint8_t { plain, programmatic };
enum class Engine : std::uint8_t { sm_store, sm_load, copy_engine };
// Who moves bytes at the same time: one rank to another, each to the next, or each to all others.
enum class Traffic : std::uint8_t { pair, next, all_pairs };
// What is measured, and what the answer is.
enum class LimitKind : std::uint8_t {
  nodes,       // a graph of `count` empty nodes, event to event: microseconds of the whole graph
  local_copy,  // a node that copies a tensor of `bytes` in its own memory, pipelined: microseconds a node
  flag,        // half of a round trip that `from` starts and `to` answers: microseconds
  barrier,     // flags of all ranks to all, inside one kernel: microseconds a barrier
  move,        // bytes from rank to rank: what the busiest rank sends, in decimal GB/s
};

constexpr std::string_view name_of(GraphEdge edge) {
  return edge == GraphEdge::plain ? "plain" : "programmatic";
}
constexpr std::string_view name_of(Engine engine) {
  switch (engine) {
    case Engine::sm_store:
      return "sm_store";
    case Engine::sm_load:
      return "sm_load";
    case Engine::copy_engine:
      break;
  }
  return "copy_engine";
}
constexpr std::string_view name_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::pair:
      return "pair";
    case Traffic::next:
      return "next";
    case Traffic::all_pairs:
      break;
  }
  return "all_pairs";
}
constexpr std::string_view name_of(LimitKind kind) {
  switch (kind) {
    case LimitKind::nodes:
      return "nodes";
    case LimitKind::local_copy:
      return "local_copy";
    case LimitKind::flag:
      return "flag";
    case LimitKind::barrier:
      return "barrier";
    case LimitKind::move:
      break;
  }
  return "move";
}

// What a kind does not use stays as it is here, so that equal tests are equal.
struct LimitTest {
  LimitKind kind = LimitKind::nodes;
  GraphEdge edge = GraphEdge::plain;  // nodes
  std::uint32_t count = 0;            // nodes
  Engine engine = Engine::sm_store;   // move
  Traffic traffic = Traffic::pair;    // move
  std::uint32_t from = 0;             // flag, and move of a pair: the bytes are here at first
  std::uint32_t to = 0;               // the same: and come here, whoever moves them
  std::uint32_t blocks = 0;           // move by SMs: of a rank, shared between those it moves for
  std::uint64_t bytes = 0;            // local_copy: of the tensor; move: of a rank's buffer

  friend bool operator==(const LimitTest&, const LimitTest&) = default;
};

// One pair moves the first; where all ranks move, all of the other, less where memory is short. Enough of both that
// starting a copy engine (3 us or so) does not show.
inline constexpr std::uint64_t pair_move_bytes = 64ull << 20;
inline constexpr std::uint64_t team_move_bytes = 256ull << 20;
// Blocks of a rank from which SM bandwidth no longer grew on any GPU seen so far (H200: 132 multiprocessors), and fewer,
// which get in each other's way less.
inline constexpr std::uint32_t many_blocks = 132;
inline constexpr std::uint32_t some_blocks = 64;

LimitTest nodes_test(GraphEdge edge, std::uint32_t count);
LimitTest local_copy_test(std::uint64_t bytes);
LimitTest flag_test(std::uint32_t from, std::uint32_t to);
LimitTest barrier_test();
// A copy engine has no blocks, and only a pair has ranks of its own.
LimitTest move_test(Engine engine, Traffic traffic, std::uint32_t blocks, std::uint32_t from = 0,
                    std::uint32_t to = 0);
// For people: "SM stores from rank 0 to rank 1, 64 blocks".
std::string text_of(const LimitTest& test);

}  // namespace arb
