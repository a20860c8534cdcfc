#include "limit_measurement.h"

#include <fmt/format.h>

namespace arb {

LimitTest nodes_test(GraphEdge edge, std::uint32_t count) {
  LimitTest test;
  test.kind = LimitKind::nodes;
  test.edge = edge;
  test.count = count;
  return test;
}

LimitTest local_copy_test(std::uint64_t bytes) {
  LimitTest test;
  test.kind = LimitKind::local_copy;
  test.bytes = bytes;
  return test;
}

LimitTest flag_test(std::uint32_t from, std::uint32_t to) {
  LimitTest test;
  test.kind = LimitKind::flag;
  test.from = from;
  test.to = to;
  return test;
}

LimitTest barrier_test() {
  LimitTest test;
  test.kind = LimitKind::barrier;
  return test;
}

LimitTest move_test(Engine engine, Traffic traffic, std::uint32_t blocks, std::uint32_t from,
                    std::uint32_t to) {
  LimitTest test;
  test.kind = LimitKind::move;
  test.engine = engine;
  test.traffic = traffic;
  test.blocks = engine == Engine::copy_engine ? 0 : blocks;
  test.from = traffic == Traffic::pair ? from : 0;
  test.to = traffic == Traffic::pair ? to : 0;
  test.bytes = traffic == Traffic::pair ? pair_move_bytes : team_move_bytes;
  return test;
}

std::string text_of(const LimitTest& test) {
  switch (test.kind) {
    case LimitKind::nodes:
      return fmt::format("a graph of {} empty nodes, {} edges", test.count, name_of(test.edge));
    case LimitKind::local_copy:
      return fmt::format("a node that copies {} bytes locally", test.bytes);
    case LimitKind::flag:
      return fmt::format("a flag from rank {} to rank {}", test.from, test.to);
    case LimitKind::barrier:
      return "a barrier of all ranks";
    case LimitKind::move:
      break;
  }
  std::string text = test.engine == Engine::sm_store  ? "SM stores"
                     : test.engine == Engine::sm_load ? "SM loads"
                                                      : "copy engines";
  if (test.traffic == Traffic::pair) text += fmt::format(" from rank {} to rank {}", test.from, test.to);
  if (test.traffic == Traffic::next) text += " to the next";
  if (test.traffic == Traffic::all_pairs) text += " of all pairs at once";
  if (test.blocks != 0) text += fmt::format(", {} blocks", test.blocks);
  return text;
}

}  // namespace arb
