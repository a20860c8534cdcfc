// The kernels that were compiled for the emulated machine, by the names that a GPU finds them by.
#pragma once

#include <arb/abi.h>

#include <span>
#include <string_view>

namespace arb::emulator {

using KernelFunction = void (*)(const KernelParams&);

struct KernelEntry {
  const char* function;  // "one_shot_pull__bf16_n2"
  KernelFunction call;   // runs one thread of it
};

// What ARB_KERNEL_TABLE leaves in each kernel file.
struct KernelTable {
  const KernelEntry* entries;
  u64 count;
};

// The tables of all files under kernels/; CMake writes the list.
std::span<const KernelTable* const> kernel_tables();
// Null if no kernel file exports it.
KernelFunction find_kernel(std::string_view function);

}  // namespace arb::emulator
