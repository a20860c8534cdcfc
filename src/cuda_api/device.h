// GPUs as the driver describes them, and the context that a rank works in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct CUctx_st;

namespace arb::cuda {

// What a device is; needs no context.
struct DeviceProperties {
  std::uint32_t ordinal = 0;
  std::string name;
  std::string uuid;          // "GPU-xxxxxxxx-..."
  std::string architecture;  // "sm_90"
  std::string pci_address;
  std::uint64_t memory_bytes = 0;
  std::uint64_t l2_bytes = 0;
  std::uint32_t multiprocessors = 0;
  std::vector<std::uint32_t> peers;  // ordinals that the driver says it can address directly
};

// cuDriverGetVersion: 13000 is CUDA 13.0. Throws NoDriver.
std::uint32_t driver_cuda_version();
// All devices that the driver shows, in ordinal order. Throws NoDriver or CudaError.
std::vector<DeviceProperties> all_devices();

// A device's primary context, retained while the object lives.
class Context {
 public:
  explicit Context(std::uint32_t ordinal);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  Context(Context&& other) noexcept;
  Context& operator=(Context&&) = delete;

  // Makes the context current on this thread.
  void make_current() const;
  // Lets kernels and copies of this context address `peer`'s plain allocations; it is no error when they
  // already do.
  void enable_peer(const Context& peer) const;
  [[nodiscard]] std::uint32_t ordinal() const { return ordinal_; }
  [[nodiscard]] std::uint32_t multiprocessors() const;
  [[nodiscard]] CUctx_st* handle() const { return context_; }

 private:
  std::uint32_t ordinal_ = 0;
  CUctx_st* context_ = nullptr;
};

}  // namespace arb::cuda
