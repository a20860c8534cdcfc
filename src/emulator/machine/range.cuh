// Moving and summing ranges of a message: the emulated twin of kernels/machine/range.cuh. In proof a range is
// split into the words (or, where a tensor is aligned to its element only, elements) that each GPU thread
// would touch; in counting one call moves it whole.
#pragma once

#include <arb/abi.h>

#include <cstring>
#include <machine/execution.cuh>
#include <machine/types.cuh>

namespace arb::machine {

// Vectors [begin, end) of a message.
struct VectorRange {
  u64 begin;
  u64 end;
};

// The same message area on every rank: rank r's starts at base + r * stride_bytes.
struct Sources {
  const char* base;
  u64 stride_bytes;
  u32 ranks;
};

namespace detail {

inline bool is_vector_aligned(const void* address) {
  return reinterpret_cast<u64>(address) % vector_bytes == 0;
}

// The bytes of a range when the message has count_elements.
struct ByteRange {
  u64 begin;
  u64 end;
};
template <class Element>
ByteRange bytes_of(u64 count_elements, VectorRange range) {
  const u64 bytes = count_elements * Element::bytes;
  const u64 end = range.end * vector_bytes < bytes ? range.end * vector_bytes : bytes;
  const u64 begin = range.begin * vector_bytes;
  return {begin < end ? begin : end, end};
}

// Calls visit(offset in bytes, width in bytes) for this thread's share of a range, as the GPU splits it:
// whole vectors by their four words where everything is aligned, else elements.
template <class Element, class Visit>
void for_each_word(u64 count_elements, VectorRange range, bool aligned, Visit visit) {
  const ByteRange bytes = bytes_of<Element>(count_elements, range);
  u64 done = bytes.begin;
  if (aligned) {
    const u64 whole = bytes.end / vector_bytes;
    for (u64 i = bytes.begin / vector_bytes + thread_index(); i < whole; i += thread_count())
      for (u64 word = 0; word < vector_bytes; word += sizeof(u32))
        visit(i * vector_bytes + word, static_cast<u32>(sizeof(u32)));
    if (done < whole * vector_bytes) done = whole * vector_bytes;
  }
  for (u64 at = done + u64{thread_index()} * Element::bytes; at < bytes.end;
       at += u64{thread_count()} * Element::bytes)
    visit(at, Element::bytes);
}

// A word or an element as the low bits of a word.
inline u32 load_weak(const void* message, u64 offset, u32 width) {
  return static_cast<u32>(
      engine().load(static_cast<const char*>(message) + offset, width, emulator::weak, nullptr));
}
inline void store_weak(void* message, u64 offset, u32 width, u32 bits) {
  engine().store(static_cast<char*>(message) + offset, width, bits, emulator::weak, nullptr);
}

// Counting: the sum of whole ranges, in tiles that stay in the cache.
template <class Element>
void reduce_whole(void* to, void* also_to, const Sources& from, ByteRange bytes) {
  constexpr u64 tile_bytes = 2048;
  constexpr u64 tile_words = tile_bytes / sizeof(u32);
  const u64 length = bytes.end - bytes.begin;
  const char* source[max_ranks] = {};
  for (u32 r = 0; r < from.ranks; ++r)
    source[r] = static_cast<const char*>(
        engine().whole_source(from.base + r * from.stride_bytes + bytes.begin, length));
  char* target = static_cast<char*>(engine().whole_target(static_cast<char*>(to) + bytes.begin, length));
  char* also_target =
      also_to == nullptr
          ? nullptr
          : static_cast<char*>(engine().whole_target(static_cast<char*>(also_to) + bytes.begin, length));
  if (target == nullptr || (also_to != nullptr && also_target == nullptr)) return;
  for (u32 r = 0; r < from.ranks; ++r)
    if (source[r] == nullptr) return;
  u32 word[tile_words] = {};
  Sum<Element> sum[tile_words];
  for (u64 at = 0; at < length; at += tile_bytes) {
    const u64 n = length - at < tile_bytes ? length - at : tile_bytes;
    std::memcpy(word, source[0] + at, n);
    for (u64 i = 0; i < tile_words; ++i) sum[i] = Sum<Element>::of(word[i]);
    for (u32 r = 1; r < from.ranks; ++r) {
      std::memcpy(word, source[r] + at, n);
      for (u64 i = 0; i < tile_words; ++i) sum[i].add(word[i]);
    }
    for (u64 i = 0; i < tile_words; ++i) word[i] = sum[i].rounded();
    std::memcpy(target + at, word, n);
    if (also_target != nullptr) std::memcpy(also_target + at, word, n);
  }
}

}  // namespace detail

// to[range] = from[range].
template <class Element>
inline void copy_range(void* to, const void* from, u64 count_elements, VectorRange range) {
  using namespace detail;
  const ByteRange bytes = bytes_of<Element>(count_elements, range);
  if (bytes.begin == bytes.end) return;
  if (engine().ranges_are_whole()) {
    const u64 length = bytes.end - bytes.begin;
    const void* source = engine().whole_source(static_cast<const char*>(from) + bytes.begin, length);
    void* target = engine().whole_target(static_cast<char*>(to) + bytes.begin, length);
    if (source != nullptr && target != nullptr) std::memmove(target, source, length);
    return;
  }
  for_each_word<Element>(count_elements, range, is_vector_aligned(to) && is_vector_aligned(from),
                         [&](u64 at, u32 width) { store_weak(to, at, width, load_weak(from, at, width)); });
}

// to[range] = the sum of every rank's from[range], added in rank order in fp32 and rounded once.
// `also_to`, unless null, gets the same. kRanks 0 takes the count from `from.ranks`.
template <class Element, u32 kRanks>
inline void reduce_range(void* to, void* also_to, const Sources& from, u64 count_elements,
                         VectorRange range) {
  using namespace detail;
  const Sources sources{from.base, from.stride_bytes, kRanks == 0 ? from.ranks : kRanks};
  const ByteRange bytes = bytes_of<Element>(count_elements, range);
  if (bytes.begin == bytes.end) return;
  if (engine().ranges_are_whole()) {
    reduce_whole<Element>(to, also_to, sources, bytes);
    return;
  }
  const bool aligned = is_vector_aligned(to) && is_vector_aligned(sources.base) && is_vector_aligned(also_to);
  for_each_word<Element>(count_elements, range, aligned, [&](u64 at, u32 width) {
    Sum<Element> sum = Sum<Element>::of(load_weak(sources.base, at, width));
    for (u32 r = 1; r < sources.ranks; ++r)
      sum.add(load_weak(sources.base + r * sources.stride_bytes, at, width));
    const u32 rounded = sum.rounded();
    store_weak(to, at, width, rounded);
    if (also_to != nullptr) store_weak(also_to, at, width, rounded);
  });
}

}  // namespace arb::machine
