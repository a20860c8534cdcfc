#include "copy_engine.h"

#include <cstring>
#include <utility>
#include <vector>

#include "engine.h"
#include "random.h"

namespace arb::emulator {
namespace {

char* address_of(const KernelParams& params, const Location& location) {
  switch (location.buffer) {
    case Location::Buffer::input:
      return static_cast<char*>(const_cast<void*>(params.input)) + location.offset_bytes;
    case Location::Buffer::output:
      return static_cast<char*>(params.output) + location.offset_bytes;
    case Location::Buffer::scratch:
      break;
  }
  return params.scratch.base + location.rank * params.scratch.stride_bytes + location.offset_bytes;
}

bool is_flag(const Location& location) {
  return location.buffer == Location::Buffer::scratch && location.offset_bytes < flags_bytes;
}

}  // namespace

void perform_copy(const KernelParams& params, const Step& step, std::uint64_t seed) {
  Engine& engine = *running->engine;
  char* const to = address_of(params, step.to);
  const char* const from = address_of(params, step.from);
  if (engine.ranges_are_whole()) {
    if (is_flag(step.to)) {
      engine.store(to, sizeof(u32), engine.load(from, sizeof(u32), weak, nullptr),
                   {Order::release, Scope::system}, nullptr);
    } else {
      std::memmove(engine.whole_target(to, step.bytes), engine.whole_source(from, step.bytes), step.bytes);
    }
    return;
  }
  const bool words = (reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from)) % sizeof(u32) == 0;
  struct Piece {
    std::uint64_t at;
    u32 width;
  };
  std::vector<Piece> pieces;
  for (std::uint64_t at = 0; at < step.bytes;) {
    const u32 width = words && step.bytes - at >= 4 ? 4 : 2;
    pieces.push_back({at, width});
    at += width;
  }
  // In a chain the kernel fence before a copy makes its stores release; beside one, copies are one launch here.
  const bool releases = step.beside && is_flag(step.to);
  Random random(seed);
  for (std::size_t i = pieces.size(); i > 1; --i)
    std::swap(pieces[i - 1], pieces[random.below(static_cast<std::uint32_t>(i))]);
  for (const Piece& piece : pieces)
    engine.store(to + piece.at, piece.width, engine.load(from + piece.at, piece.width, weak, nullptr),
                 {releases ? Order::release : Order::relaxed, Scope::system}, nullptr);
}

}  // namespace arb::emulator
