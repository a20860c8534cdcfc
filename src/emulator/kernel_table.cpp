#include "kernel_table.h"

namespace arb::emulator {

KernelFunction find_kernel(std::string_view function) {
  for (const KernelTable* table : kernel_tables())
    for (u64 i = 0; i < table->count; ++i)
      if (table->entries[i].function == function) return table->entries[i].call;
  return nullptr;
}

}  // namespace arb::emulator
