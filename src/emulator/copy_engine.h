// A copy engine on the emulated machine: what a copy step of a schedule does.
#pragma once

#include <arb/abi.h>

#include <cstdint>

#include "schedule.h"

namespace arb::emulator {

// Performs `step`, a copy of the rank that has `params`, on the running thread; the only one of its launch.
// In proof each word is written once, in an order drawn from `seed`, and the kernel fence before the step
// makes its stores release; in counting the bytes move whole.
void perform_copy(const KernelParams& params, const Step& step, std::uint64_t seed);

}  // namespace arb::emulator
