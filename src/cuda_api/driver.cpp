#include "driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "error.h"

namespace arb::cuda {
namespace {

// Two steps, so that the header's macros for versioned names expand before they become text.
#define ARB_TEXT_OF(name) #name
#define ARB_EXPANDED_TEXT_OF(name) ARB_TEXT_OF(name)

Driver open_driver() {
  // Never closed: the driver keeps threads and exit handlers of its own.
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw NoDriver(
        "no NVIDIA driver: libcuda.so.1 cannot be opened; install the driver (580 or newer runs every "
        "bundle)");
  }
  Driver table;
#define ARB_RESOLVE(name)                                                                          \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, ARB_EXPANDED_TEXT_OF(name))); \
  if (table.name == nullptr) {                                                                     \
    throw NoDriver("the NVIDIA driver is too old: it lacks " ARB_EXPANDED_TEXT_OF(                 \
        name) "; 570 or newer (CUDA 12.8) works");                                                 \
  }
  ARB_DRIVER_ENTRIES(ARB_RESOLVE)
#undef ARB_RESOLVE
  const CUresult result = table.cuInit(0);
  if (result != CUDA_SUCCESS) {
    const char* words = nullptr;
    table.cuGetErrorString(result, &words);
    throw NoDriver(fmt::format("the NVIDIA driver does not start: {}; check that nvidia-smi lists a GPU",
                               words == nullptr ? "no reason given" : words));
  }
  return table;
}

}  // namespace

const Driver& driver() {
  static const Driver table = open_driver();
  return table;
}

void check(CUresult result, std::string_view doing, const std::source_location& where) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* words = nullptr;
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &words);
  throw CudaError(fmt::format("cannot {}: {} ({}) [{}:{}]", doing, words == nullptr ? "unknown error" : words,
                              name == nullptr ? "?" : name,
                              std::filesystem::path(where.file_name()).filename().string(), where.line()));
}

}  // namespace arb::cuda
