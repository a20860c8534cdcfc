// The exported functions of a kernel file: one a dtype and rank count, so that loops over ranks unroll.
#pragma once

#include <machine/execution.cuh>
#include <machine/types.cuh>

// `name` is a template <class Element, u32 kRanks> void name(const KernelParams&); exports
// name__<dtype>_n<ranks> for 2, 4 and 8 ranks and name__<dtype>_nx for any other count (kRanks 0).
#define ARB_ALLREDUCE_KERNEL(name) ARB_DETAIL_VARIANTS(name, ARB_KERNEL)

// The same for a kernel whose threads move one vector each as long as they can: for 2 ranks, where a thread needs few
// registers, as many threads fit on an SM as it has places for.
#define ARB_ONE_VECTOR_ALLREDUCE_KERNEL(name) ARB_DETAIL_VARIANTS(name, ARB_DENSE_KERNEL)

#define ARB_DETAIL_VARIANTS(name, kernel_for_2_ranks)                                                     \
  ARB_DETAIL_VARIANTS_OF_TYPE(name, bf16, kernel_for_2_ranks)                                             \
  ARB_DETAIL_VARIANTS_OF_TYPE(name, fp16, kernel_for_2_ranks)                                             \
  ARB_DETAIL_VARIANTS_OF_TYPE(name, fp32, kernel_for_2_ranks)                                             \
  ARB_KERNEL_TABLE(name, bf16_n2, bf16_n4, bf16_n8, bf16_nx, fp16_n2, fp16_n4, fp16_n8, fp16_nx, fp32_n2, \
                   fp32_n4, fp32_n8, fp32_nx)
// clang-format off
#define ARB_DETAIL_VARIANTS_OF_TYPE(name, dtype, kernel_for_2_ranks)                      \
  kernel_for_2_ranks(name##__##dtype##_n2, (arb::name<arb::machine::dtype, 2>(params))) \
  ARB_KERNEL(name##__##dtype##_n4, (arb::name<arb::machine::dtype, 4>(params)))         \
  ARB_KERNEL(name##__##dtype##_n8, (arb::name<arb::machine::dtype, 8>(params)))         \
  ARB_KERNEL(name##__##dtype##_nx, (arb::name<arb::machine::dtype, 0>(params)))
// clang-format on
