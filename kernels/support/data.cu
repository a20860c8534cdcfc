// Makes inputs and checks results on the device: a 256 MB tensor would take a host seconds.
#include "pattern.cuh"

ARB_SUPPORT_KERNEL(support_fill, FillParams) {
  using namespace support;
  with_element(params.dtype, [&](auto element) {
    using Element = decltype(element);
    for (u64 i = grid_thread(); i < params.count_elements; i += grid_threads())
      machine::detail::store_element<Element>(
          params.to, i, element_bits<Element>(input_value(params.seed, params.rank, i)));
  });
}

ARB_SUPPORT_KERNEL(support_check, CheckParams) {
  using namespace support;
  with_element(params.dtype, [&](auto element) {
    using Element = decltype(element);
    constexpr u32 per_word = 4 / Element::bytes;
    const u64 words = (params.count_elements + per_word - 1) / per_word;
    u64 wrong = 0;
    u64 furthest = 0;
    u64 hash = 0;
    float max_error = 0;
    for (u64 word = grid_thread(); word < words; word += grid_threads()) {
      u32 word_bits = 0;
      for (u32 half = 0; half < per_word; ++half) {
        const u64 i = word * per_word + half;
        if (i >= params.count_elements) break;
        const u32 bits = machine::detail::load_element<Element>(params.result, i);
        word_bits |= bits << (16 * half);
        double exact = 0;
        double magnitude = 0;
        machine::Sum<Element> sum{};
        for (u32 rank = 0; rank < params.ranks; ++rank) {
          const u32 input = element_bits<Element>(input_value(params.seed, rank, i));
          if (rank == 0)
            sum = machine::Sum<Element>::of(input);
          else
            sum.add(input);
          const double value = element_value<Element>(input);
          exact += value;
          magnitude += value < 0 ? -value : value;
        }
        const bool same_bits = (sum.rounded() & (Element::bytes == 2 ? 0xffffu : ~0u)) == bits;
        const double difference = element_value<Element>(bits) - exact;
        const double error = difference < 0 ? -difference : difference;
        // Written so that NaN is wrong.
        if (!(error <= params.relative_bound * magnitude) || (params.rank_order != 0 && !same_bits)) {
          ++wrong;
          if (params.count_elements - i > furthest) furthest = params.count_elements - i;
        } else if (magnitude > 0 && error > max_error * magnitude) {
          max_error = static_cast<float>(error / magnitude);
        }
      }
      hash += mix(word_bits + (word + 1) * golden);
    }
    machine::add_relaxed_device(&params.record->hash, hash, machine::Site("hash"));
    if (wrong != 0) {
      machine::add_relaxed_device(&params.record->wrong_elements, wrong, machine::Site("wrong"));
      machine::max_relaxed_device(&params.record->elements_from_first_wrong, furthest);
    }
    // Bits of non-negative floats are ordered as the floats are.
    machine::max_relaxed_device(&params.record->max_error_bits, __float_as_uint(max_error));
  });
}
