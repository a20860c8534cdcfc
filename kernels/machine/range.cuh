// Moving and summing ranges of a message. A message is counted in vectors of 16 bytes from its first element;
// the last one may be partial. The threads of a block share a range. Accesses are weak: order them with flags
// and barriers.
#pragma once

#include <arb/abi.h>

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

template <u32 kValue>
struct Constant {
  static constexpr u32 value = kValue;
};

struct alignas(vector_bytes) Vector {
  u32 word[4];
};

ARB_DEVICE bool is_vector_aligned(const void* address) {
  return reinterpret_cast<u64>(address) % vector_bytes == 0;
}

template <class Element>
ARB_DEVICE constexpr u32 elements_per_vector() {
  return vector_bytes / Element::bytes;
}

// Element `index` as the low bits of a word, from an address that is aligned to the element only.
template <class Element>
ARB_DEVICE u32 load_element(const void* message, u64 index) {
  if constexpr (Element::bytes == 2)
    return static_cast<const unsigned short*>(message)[index];
  else
    return static_cast<const u32*>(message)[index];
}

template <class Element>
ARB_DEVICE void store_element(void* message, u64 index, u32 bits) {
  if constexpr (Element::bytes == 2)
    static_cast<unsigned short*>(message)[index] = static_cast<unsigned short>(bits);
  else
    static_cast<u32*>(message)[index] = bits;
}

// How many vectors make up what memory moves at a time, and how many the threads of a block move at a time.
constexpr u32 vectors_of_line = 8;
ARB_DEVICE u32 vectors_of_pass() {
  return thread_count() * 8;
}

// How many vectors of [range] are whole when the message has count_elements.
template <class Element>
ARB_DEVICE u64 whole_end(u64 count_elements, VectorRange range) {
  const u64 whole = count_elements / elements_per_vector<Element>();
  return range.end < whole ? range.end : whole;
}

// Calls visit(element index) for the block's share of the elements from vector `first` to the range's end.
template <class Element, class Visit>
ARB_DEVICE void for_each_element(u64 count_elements, u64 first, u64 end, Visit visit) {
  const u64 begin_element = first * elements_per_vector<Element>();
  const u64 end_vector = end * elements_per_vector<Element>();
  const u64 end_element = end_vector < count_elements ? end_vector : count_elements;
  for (u64 i = begin_element + thread_index(); i < end_element; i += thread_count()) visit(i);
}

// One vector of every rank, added in rank order in fp32 and rounded once.
template <class Element, u32 kRanks>
ARB_DEVICE Vector sum_of(const Vector (&part)[kRanks == 0 ? max_ranks : kRanks], u32 ranks) {
  constexpr u32 most = kRanks == 0 ? max_ranks : kRanks;
  Vector result;
#pragma unroll
  for (u32 w = 0; w < 4; ++w) {
    Sum<Element> sum = Sum<Element>::of(part[0].word[w]);
#pragma unroll
    for (u32 r = 1; r < most; ++r)
      if (kRanks != 0 || r < ranks) sum.add(part[r].word[w]);
    result.word[w] = sum.rounded();
  }
  return result;
}

}  // namespace detail

// A prefetch pays while the message is no longer; of a long one it would only push other things out of the cache.
ARB_DEVICE constexpr u64 most_prefetched_bytes() {
  return 128 * 1024;
}

// to[range] = from[range]; `also_to`, unless null, gets the same.
template <class Element>
ARB_DEVICE void copy_range(void* to, void* also_to, const void* from, u64 count_elements, VectorRange range) {
  using namespace detail;
  constexpr u32 unroll = 8;
  u64 done = range.begin;
  if (is_vector_aligned(to) && is_vector_aligned(also_to) && is_vector_aligned(from)) {
    done = whole_end<Element>(count_elements, range);
    if (done < range.begin) done = range.begin;
    const Vector* source = static_cast<const Vector*>(from);
    const auto copy_vectors = [&](u64 first, auto vectors) {
      constexpr u32 n = decltype(vectors)::value;
      Vector vector[n];
#pragma unroll
      for (u32 u = 0; u < n; ++u) vector[u] = source[first + u * thread_count()];
#pragma unroll
      for (u32 u = 0; u < n; ++u) static_cast<Vector*>(to)[first + u * thread_count()] = vector[u];
      if (also_to == nullptr) return;
#pragma unroll
      for (u32 u = 0; u < n; ++u) static_cast<Vector*>(also_to)[first + u * thread_count()] = vector[u];
    };
    u64 i = range.begin + thread_index();
    for (; i + (unroll - 1) * u64{thread_count()} < done; i += unroll * u64{thread_count()})
      copy_vectors(i, Constant<unroll>{});
    for (; i < done; i += thread_count()) copy_vectors(i, Constant<1>{});
  }
  for_each_element<Element>(count_elements, done, range.end, [&](u64 i) {
    const u32 bits = load_element<Element>(from, i);
    store_element<Element>(to, i, bits);
    if (also_to != nullptr) store_element<Element>(also_to, i, bits);
  });
}

template <class Element>
ARB_DEVICE void copy_range(void* to, const void* from, u64 count_elements, VectorRange range) {
  copy_range<Element>(to, nullptr, from, count_elements, range);
}

namespace detail {

// target(0)[range] to target(targets - 1)[range] = the sum of source(0)[range] to source(ranks - 1)[range], in that
// order. With kTargets 0 the targets are too many to keep their addresses at hand.
template <class Element, u32 kRanks, u32 kTargets, class TargetOf, class SourceOf>
ARB_DEVICE void reduce_from(TargetOf target, u32 targets, SourceOf source, u32 ranks, u64 count_elements,
                            VectorRange range) {
  constexpr u32 most = kRanks == 0 ? max_ranks : kRanks;
  constexpr u32 most_targets = kTargets == 0 ? max_ranks : kTargets;
  [[maybe_unused]] constexpr u32 targets_unroll = kTargets == 0 ? 1 : kTargets;
  constexpr u32 unroll = most <= 2 ? 4 : most <= 4 ? 2 : 1;
  bool aligned = true;
  for (u32 r = 0; r < ranks; ++r) aligned = aligned && is_vector_aligned(source(r));
  for (u32 k = 0; k < targets; ++k) aligned = aligned && is_vector_aligned(target(k));
  u64 done = range.begin;
  if (aligned) {
    done = whole_end<Element>(count_elements, range);
    if (done < range.begin) done = range.begin;
    const auto sum_vectors = [&](u64 first, auto vectors) {
      constexpr u32 n = decltype(vectors)::value;
      Vector part[n][most];
#pragma unroll
      for (u32 u = 0; u < n; ++u) {
#pragma unroll
        for (u32 r = 0; r < most; ++r)
          if (kRanks != 0 || r < ranks)
            part[u][r] = static_cast<const Vector*>(source(r))[first + u * thread_count()];
      }
#pragma unroll
      for (u32 u = 0; u < n; ++u) {
        const Vector result = sum_of<Element, kRanks>(part[u], ranks);
#pragma unroll targets_unroll
        for (u32 k = 0; k < most_targets; ++k)
          if (k < targets) static_cast<Vector*>(target(k))[first + u * thread_count()] = result;
      }
    };
    u64 i = range.begin + thread_index();
    for (; i + (unroll - 1) * u64{thread_count()} < done; i += unroll * u64{thread_count()})
      sum_vectors(i, Constant<unroll>{});
    for (; i < done; i += thread_count()) sum_vectors(i, Constant<1>{});
  }
  for_each_element<Element>(count_elements, done, range.end, [&](u64 i) {
    Sum<Element> sum = Sum<Element>::of(load_element<Element>(source(0), i));
    for (u32 r = 1; r < ranks; ++r) sum.add(load_element<Element>(source(r), i));
    for (u32 k = 0; k < targets; ++k) store_element<Element>(target(k), i, sum.rounded());
  });
}

}  // namespace detail

// to[range] = the sum of every rank's from[range], added in rank order in fp32 and rounded once.
// `also_to`, unless null, gets the same. kRanks 0 takes the count from `from.ranks`.
template <class Element, u32 kRanks>
ARB_DEVICE void reduce_range(void* to, void* also_to, const Sources& from, u64 count_elements,
                             VectorRange range) {
  detail::reduce_from<Element, kRanks, 2>(
      [&](u32 which) { return which == 0 ? to : also_to; }, also_to == nullptr ? 1 : 2,
      [&](u32 rank) -> const void* { return from.base + rank * from.stride_bytes; },
      kRanks == 0 ? from.ranks : kRanks, count_elements, range);
}

// The same from wherever source_of(rank) says, to as many places: to target_of(0)[range] up to
// target_of(ranks - 1)[range].
template <class Element, u32 kRanks, class TargetOf, class SourceOf>
ARB_DEVICE void reduce_range_to_all(TargetOf target_of, SourceOf source_of, u32 ranks, u64 count_elements,
                                    VectorRange range) {
  // With more targets their addresses would not fit into registers beside the sources.
  constexpr u32 targets_at_hand = kRanks <= 4 ? kRanks : 0;
  detail::reduce_from<Element, kRanks, targets_at_hand>(target_of, ranks, source_of, ranks, count_elements,
                                                        range);
}

// to[range] = first[range] + second[range], added in fp32 and rounded once; `also_to`, unless null, gets the
// same.
template <class Element>
ARB_DEVICE void add_ranges(void* to, void* also_to, const void* first, const void* second, u64 count_elements,
                           VectorRange range) {
  detail::reduce_from<Element, 2, 2>(
      [&](u32 which) { return which == 0 ? to : also_to; }, also_to == nullptr ? 1 : 2,
      [&](u32 which) { return which == 0 ? first : second; }, 2, count_elements, range);
}

}  // namespace arb::machine
