// A machine of one thread, so that the support kernels run as plain functions on the host.
#pragma once

#include <arb/abi.h>

#define ARB_DEVICE inline
#define ARB_KERNEL(name, call)
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__

namespace arb::machine {

struct Site {
  constexpr explicit Site(const char* /*label*/) {}
};

inline u32 thread_index() {
  return 0;
}
inline u32 thread_count() {
  return 1;
}
inline u32 block_index() {
  return 0;
}
inline u32 block_count() {
  return 1;
}

}  // namespace arb::machine
