// Moving and summing ranges of a message: the emulated twin of kernels/machine/range.cuh. In proof a range is
// split into the words (or, where a tensor is aligned to its element only, elements) that each GPU thread
// would touch; in counting one call moves it whole.
#pragma once

#include <arb/abi.h>

#include <array>
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

struct alignas(vector_bytes) Vector {
  u32 word[4];
};

template <class Element>
constexpr u32 elements_per_vector() {
  return vector_bytes / Element::bytes;
}

// Element `index` as the low bits of a word.
template <class Element>
u32 load_element(const void* message, u64 index) {
  return load_weak(message, index * Element::bytes, Element::bytes);
}
template <class Element>
void store_element(void* message, u64 index, u32 bits) {
  store_weak(message, index * Element::bytes, Element::bytes, bits);
}

// One vector of every rank, added in rank order in fp32 and rounded once.
template <class Element, u32 kRanks>
Vector sum_of(const Vector (&part)[kRanks == 0 ? max_ranks : kRanks], u32 ranks) {
  Vector result;
  for (u32 w = 0; w < 4; ++w) {
    Sum<Element> sum = Sum<Element>::of(part[0].word[w]);
    for (u32 r = 1; r < (kRanks == 0 ? ranks : kRanks); ++r) sum.add(part[r].word[w]);
    result.word[w] = sum.rounded();
  }
  return result;
}

// Of a line of memory and of a pass of a block: few, so that the few vectors of a proof make several of both. In counting
// a block is one thread; its pass is that of a large block of a GPU.
constexpr u32 vectors_of_line = 1;
inline u32 vectors_of_pass() {
  return engine().ranges_are_whole() ? 8 * max_threads : thread_count();
}

// Counting: the sum of `length` bytes of each source, in tiles that stay in the cache.
template <class Element>
void sum_whole(const std::array<char*, max_ranks>& target, u32 targets,
               const std::array<const char*, max_ranks>& source, u32 sources, u64 length) {
  constexpr u64 tile_bytes = 2048;
  constexpr u64 tile_words = tile_bytes / sizeof(u32);
  u32 word[tile_words] = {};
  Sum<Element> sum[tile_words];
  for (u64 at = 0; at < length; at += tile_bytes) {
    const u64 n = length - at < tile_bytes ? length - at : tile_bytes;
    std::memcpy(word, source[0] + at, n);
    for (u64 i = 0; i < tile_words; ++i) sum[i] = Sum<Element>::of(word[i]);
    for (u32 r = 1; r < sources; ++r) {
      std::memcpy(word, source[r] + at, n);
      for (u64 i = 0; i < tile_words; ++i) sum[i].add(word[i]);
    }
    for (u64 i = 0; i < tile_words; ++i) word[i] = sum[i].rounded();
    for (u32 k = 0; k < targets; ++k) std::memcpy(target[k] + at, word, n);
  }
}

inline char* whole_target_at(void* message, ByteRange bytes) {
  if (message == nullptr) return nullptr;
  return static_cast<char*>(
      engine().whole_target(static_cast<char*>(message) + bytes.begin, bytes.end - bytes.begin));
}
inline const char* whole_source_at(const void* message, ByteRange bytes) {
  return static_cast<const char*>(
      engine().whole_source(static_cast<const char*>(message) + bytes.begin, bytes.end - bytes.begin));
}

}  // namespace detail

// Proof messages are of both kinds.
constexpr u64 most_prefetched_bytes() {
  return 64;
}

// to[range] = from[range]; `also_to`, unless null, gets the same.
template <class Element>
inline void copy_range(void* to, void* also_to, const void* from, u64 count_elements, VectorRange range) {
  using namespace detail;
  const ByteRange bytes = bytes_of<Element>(count_elements, range);
  if (bytes.begin == bytes.end) return;
  if (engine().ranges_are_whole()) {
    const u64 length = bytes.end - bytes.begin;
    const char* source = whole_source_at(from, bytes);
    std::memmove(whole_target_at(to, bytes), source, length);
    if (also_to != nullptr) std::memmove(whole_target_at(also_to, bytes), source, length);
    return;
  }
  const bool aligned = is_vector_aligned(to) && is_vector_aligned(also_to) && is_vector_aligned(from);
  for_each_word<Element>(count_elements, range, aligned, [&](u64 at, u32 width) {
    const u32 bits = load_weak(from, at, width);
    store_weak(to, at, width, bits);
    if (also_to != nullptr) store_weak(also_to, at, width, bits);
  });
}

template <class Element>
inline void copy_range(void* to, const void* from, u64 count_elements, VectorRange range) {
  copy_range<Element>(to, nullptr, from, count_elements, range);
}

namespace detail {

// target(0)[range] to target(targets - 1)[range] = the sum of source(0)[range] to source(sources - 1)[range], in
// that order.
template <class Element, class TargetOf, class SourceOf>
void reduce_from(TargetOf target, u32 targets, SourceOf source, u32 sources, u64 count_elements,
                 VectorRange range) {
  const ByteRange bytes = bytes_of<Element>(count_elements, range);
  if (bytes.begin == bytes.end) return;
  if (engine().ranges_are_whole()) {
    std::array<const char*, max_ranks> from{};
    for (u32 r = 0; r < sources; ++r) from[r] = whole_source_at(source(r), bytes);
    std::array<char*, max_ranks> to{};
    for (u32 k = 0; k < targets; ++k) to[k] = whole_target_at(target(k), bytes);
    sum_whole<Element>(to, targets, from, sources, bytes.end - bytes.begin);
    return;
  }
  bool aligned = true;
  for (u32 r = 0; r < sources; ++r) aligned = aligned && is_vector_aligned(source(r));
  for (u32 k = 0; k < targets; ++k) aligned = aligned && is_vector_aligned(target(k));
  for_each_word<Element>(count_elements, range, aligned, [&](u64 at, u32 width) {
    Sum<Element> sum = Sum<Element>::of(load_weak(source(0), at, width));
    for (u32 r = 1; r < sources; ++r) sum.add(load_weak(source(r), at, width));
    const u32 rounded = sum.rounded();
    for (u32 k = 0; k < targets; ++k) store_weak(target(k), at, width, rounded);
  });
}

}  // namespace detail

// to[range] = the sum of every rank's from[range], added in rank order in fp32 and rounded once.
// `also_to`, unless null, gets the same. kRanks 0 takes the count from `from.ranks`.
template <class Element, u32 kRanks>
inline void reduce_range(void* to, void* also_to, const Sources& from, u64 count_elements,
                         VectorRange range) {
  detail::reduce_from<Element>([&](u32 which) { return which == 0 ? to : also_to; },
                               also_to == nullptr ? 1 : 2,
                               [&](u32 rank) -> const void* { return from.base + rank * from.stride_bytes; },
                               kRanks == 0 ? from.ranks : kRanks, count_elements, range);
}

// The same from wherever source_of(rank) says, to as many places: to target_of(0)[range] up to
// target_of(ranks - 1)[range].
template <class Element, u32 kRanks, class TargetOf, class SourceOf>
inline void reduce_range_to_all(TargetOf target_of, SourceOf source_of, u32 ranks, u64 count_elements,
                                VectorRange range) {
  detail::reduce_from<Element>(target_of, ranks, source_of, ranks, count_elements, range);
}

// to[range] = first[range] + second[range], added in fp32 and rounded once; `also_to`, unless null, gets the
// same.
template <class Element>
inline void add_ranges(void* to, void* also_to, const void* first, const void* second, u64 count_elements,
                       VectorRange range) {
  detail::reduce_from<Element>(
      [&](u32 which) { return which == 0 ? to : also_to; }, also_to == nullptr ? 1 : 2,
      [&](u32 which) { return which == 0 ? first : second; }, 2, count_elements, range);
}

}  // namespace arb::machine
