// Support kernels measure and check; they are no contenders. One bundle of the oldest toolkit serves every
// arm of a comparison, so that a toolkit upgrade cannot change the yardstick.
#pragma once

#include <arb/abi.h>

#include "machine/machine.cuh"

#define ARB_SUPPORT_KERNEL(name, Params)                            \
  namespace arb {                                                   \
  ARB_DEVICE void name##_body(const Params& params);                \
  }                                                                 \
  extern "C" __global__ void __launch_bounds__(arb::max_threads, 1) \
      name(const __grid_constant__ arb::Params params) {            \
    arb::name##_body(params);                                       \
  }                                                                 \
  ARB_DEVICE void arb::name##_body(const Params& params)

namespace arb::support {

// This thread's number in the grid, and how many there are.
ARB_DEVICE u64 grid_thread() {
  return u64{machine::block_index()} * machine::thread_count() + machine::thread_index();
}
ARB_DEVICE u64 grid_threads() {
  return u64{machine::block_count()} * machine::thread_count();
}

}  // namespace arb::support
