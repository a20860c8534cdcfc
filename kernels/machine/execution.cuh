// Who runs: threads, blocks, the block barrier, and the label of an ordering site.
#pragma once

#include <arb/abi.h>

#define ARB_DEVICE __device__ __forceinline__
// Defines the exported function `name` that runs `call`, an expression in `params`.
#define ARB_KERNEL(name, call)                                      \
  extern "C" __global__ void __launch_bounds__(arb::max_threads, 1) \
      name(const __grid_constant__ arb::KernelParams params) {      \
    call;                                                           \
  }
// The same in so few registers that every place for a thread on an SM can be taken.
#define ARB_DENSE_KERNEL(name, call)                                                                      \
  extern "C" __global__ void __launch_bounds__(arb::max_threads, ARB_THREADS_OF_AN_SM / arb::max_threads) \
      name(const __grid_constant__ arb::KernelParams params) {                                            \
    call;                                                                                                 \
  }
// Places for threads: CUDA C++ Programming Guide, technical specifications per compute capability.
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 800 || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100 && __CUDA_ARCH__ != 1010))
#define ARB_THREADS_OF_AN_SM 2048
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define ARB_THREADS_OF_AN_SM 1024
#else
#define ARB_THREADS_OF_AN_SM 1536
#endif
// Lists a file's exported functions for the emulator; a GPU finds them by name.
#define ARB_KERNEL_TABLE(name, ...)

namespace arb::machine {

// Labels one ordering call so that the emulator can weaken exactly that one; costs nothing on a GPU.
struct Site {
  ARB_DEVICE constexpr explicit Site(const char*) {}
};

ARB_DEVICE u32 thread_index() {
  return threadIdx.x;
}
ARB_DEVICE u32 thread_count() {
  return blockDim.x;
}
ARB_DEVICE u32 block_index() {
  return blockIdx.x;
}
ARB_DEVICE u32 block_count() {
  return gridDim.x;
}

// All threads of the block arrive; what each did before is ordered before what any does after.
ARB_DEVICE void block_barrier(Site) {
  __syncthreads();
}

// `slot` itself; a labelled site because a protocol that never switches must be caught.
ARB_DEVICE u32 choose_slot(u32 slot, Site) {
  return slot;
}

// Until all kernels that this one follows have ended and their accesses are visible; no effect under a plain
// edge, which has waited already. Nothing that they touch may be touched before.
ARB_DEVICE void wait_for_previous_kernel(Site) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The value, computed by here: a compiler likes to compute what is needed after a wait after that wait.
template <class T>
ARB_DEVICE T* computed(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}
ARB_DEVICE u64 computed(u64 value) {
  asm volatile("" : "+l"(value));
  return value;
}
ARB_DEVICE bool computed(bool value) {
  u32 word = value ? 1 : 0;
  asm volatile("" : "+r"(word));
  return word != 0;
}

// Lets the next kernel of the stream start once every block has said so; no effect under a plain edge.
ARB_DEVICE void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace arb::machine
