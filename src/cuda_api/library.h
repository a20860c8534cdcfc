// Kernel code as data: a cubin loaded once for all contexts, and its functions by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device.h"

struct CUlib_st;
struct CUkern_st;

namespace arb::cuda {

// One exported function; valid while its Library lives. The same handle serves every context.
class Kernel {
 public:
  Kernel() = default;
  explicit Kernel(CUkern_st* handle) : handle_(handle) {}
  [[nodiscard]] CUkern_st* handle() const { return handle_; }
  // Loads the function into `context` now, so that no lazy load can wait behind a kernel that spins.
  void load_in(const Context& context) const;
  // How many blocks of `threads` threads `context`'s device holds at a time.
  [[nodiscard]] std::uint32_t resident_blocks(const Context& context, std::uint32_t threads) const;

 private:
  CUkern_st* handle_ = nullptr;
};

class Library {
 public:
  // `cubin` must hold native code for the devices in use; `name` is for sentences. Throws CudaError.
  Library(std::span<const std::byte> cubin, std::string name);
  ~Library();
  Library(Library&& other) noexcept;
  Library& operator=(Library&&) = delete;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Throws CudaError when there is no such function, or when its one parameter is not `parameter_bytes` long:
  // the bundle was then built from another abi.h.
  [[nodiscard]] Kernel kernel(const std::string& function, std::uint64_t parameter_bytes) const;

 private:
  CUlib_st* handle_ = nullptr;
  std::string name_;
};

}  // namespace arb::cuda
