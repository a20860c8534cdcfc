// Makes inputs and checks results on the device: a 256 MB tensor would take a host seconds.
#include "pattern.cuh"

ARB_SUPPORT_KERNEL(support_fill, FillParams) {
  using namespace support;
  with_element(params.inputs.dtype, [&](auto element) {
    using Element = decltype(element);
    const CallInputs<Element> inputs(params.inputs);
    // No result of a sum in [-8, 8], and none of special values either, other than by a rare chance.
    constexpr u32 garbage = Element::bytes == 2 ? 0x5eedu : 0x5eed0badu;
    for (u64 i = grid_thread(); i < params.inputs.count_elements; i += grid_threads()) {
      machine::detail::store_element<Element>(params.to, i, inputs.bits(params.rank, i));
      if (params.poison != nullptr) machine::detail::store_element<Element>(params.poison, i, garbage);
    }
  });
}

ARB_SUPPORT_KERNEL(support_check, CheckParams) {
  using namespace support;
  with_element(params.inputs.dtype, [&](auto element) {
    using Element = decltype(element);
    constexpr u32 per_word = 4 / Element::bytes;
    constexpr double largest_double = 0x1.fffffffffffffp1023;
    const double largest = element_value<Element>(Corners<Element>::largest);
    const CallInputs<Element> inputs(params.inputs);
    const u64 call = call_number(params.inputs.finished_calls, params.inputs.call);
    const u64 count_elements = params.inputs.count_elements;
    const u64 words = (count_elements + per_word - 1) / per_word;
    // So that results of different calls do not cancel out.
    const u64 salt = params.inputs.finished_calls == nullptr ? 0 : mix(call + 1);
    const auto absolute = [](double value) { return value < 0 ? -value : value; };
    u64 wrong = 0;
    u64 first_wrong = 0;
    u64 hash = 0;
    float max_error = 0;
    for (u64 word = grid_thread(); word < words; word += grid_threads()) {
      u32 word_bits = 0;
      for (u32 half = 0; half < per_word; ++half) {
        const u64 i = word * per_word + half;
        if (i >= count_elements) break;
        const u32 bits = machine::detail::load_element<Element>(params.result, i);
        word_bits |= bits << (16 * half);
        double exact = 0;
        double magnitude = 0;
        machine::Sum<Element> sum{};
        for (u32 rank = 0; rank < params.inputs.ranks; ++rank) {
          const u32 input = inputs.bits(rank, i);
          if (rank == 0)
            sum = machine::Sum<Element>::of(input);
          else
            sum.add(input);
          const double value = element_value<Element>(input);
          exact += value;
          magnitude += absolute(value);
        }
        const double result = element_value<Element>(bits);
        const double error = absolute(result - exact);
        bool good;
        if (exact != exact) {
          good = result != result;
        } else if (absolute(exact) > largest_double) {
          good = result == exact;
        } else if (absolute(result) > largest_double) {
          // A partial or the final sum may leave the dtype's range although the exact sum does not.
          good = magnitude * (1 + params.relative_bound) >= largest;
        } else {
          // Written so that NaN is wrong.
          good = error <= params.relative_bound * magnitude + params.absolute_bound;
          if (good && magnitude > 0 && error > max_error * magnitude)
            max_error = static_cast<float>(error / magnitude);
        }
        const bool same_bits = (sum.rounded() & (Element::bytes == 2 ? 0xffffu : ~0u)) == bits;
        if (params.rank_order != 0 && !same_bits && exact == exact) good = false;
        if (!good) {
          ++wrong;
          const u64 place = wrong_place(call, i);
          if (place > first_wrong) first_wrong = place;
        }
      }
      hash += mix(word_bits + (word + 1) * golden + salt);
    }
    machine::add_relaxed_device(&params.record->hash, hash, machine::Site("hash"));
    if (wrong != 0) {
      machine::add_relaxed_device(&params.record->wrong_elements, wrong, machine::Site("wrong"));
      machine::max_relaxed_device(&params.record->first_wrong, first_wrong);
    }
    // Bits of non-negative floats are ordered as the floats are.
    machine::max_relaxed_device(&params.record->max_error_bits, __float_as_uint(max_error));
  });
}

// One thread.
ARB_SUPPORT_KERNEL(support_advance, AdvanceParams) {
  *params.finished_calls += params.calls;
}

// One thread. A clock that stands still ends the delay too.
ARB_SUPPORT_KERNEL(support_delay, DelayParams) {
  using namespace support;
  constexpr u32 most_clock_reads = 1000000;
  const u64 call = call_number(params.finished_calls, params.call);
  const u64 delay_ns = mix(mix(params.seed * golden + params.rank) + call * golden) % (params.most_ns + 1);
  const u64 start_ns = machine::now_ns();
  for (u32 reads = 0; reads < most_clock_reads && machine::now_ns() - start_ns < delay_ns; ++reads) {
  }
}
