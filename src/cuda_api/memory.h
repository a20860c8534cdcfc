// Memory with one owner each: a rank's own, symmetric over ranks, and pinned host memory that devices can
// address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device.h"

namespace arb::cuda {

// Plain device memory of one context.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Throws CudaError, also when the device has no room.
  DeviceBuffer(const Context& context, std::uint64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  [[nodiscard]] std::uint64_t size_bytes() const { return bytes_; }

 private:
  CUctx_st* context_ = nullptr;
  std::uint64_t address_ = 0;
  std::uint64_t bytes_ = 0;
};

// Host memory that every context can address under the same address.
class PinnedBuffer {
 public:
  // Zeroed. Needs a current context.
  explicit PinnedBuffer(std::uint64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&&) = delete;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

// The same buffer on every rank: rank r's copy is device memory of ranks[r], mapped at base + r * stride in
// this process and readable and writable from every rank's device. Zeroed. All ranks unmap before any copy is
// freed.
class SymmetricBuffer {
 public:
  SymmetricBuffer() = default;
  // Throws CudaError when a device has no room or cannot map a peer's memory.
  SymmetricBuffer(std::span<const Context* const> ranks, std::uint64_t bytes_a_rank);
  ~SymmetricBuffer();
  SymmetricBuffer(SymmetricBuffer&& other) noexcept;
  SymmetricBuffer& operator=(SymmetricBuffer&& other) noexcept;
  SymmetricBuffer(const SymmetricBuffer&) = delete;
  SymmetricBuffer& operator=(const SymmetricBuffer&) = delete;

  [[nodiscard]] std::byte* data(std::uint32_t rank) const {
    return reinterpret_cast<std::byte*>(base_ + rank * stride_bytes_);
  }
  [[nodiscard]] std::uint64_t stride_bytes() const { return stride_bytes_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return bytes_; }

 private:
  void release() noexcept;

  std::uint64_t base_ = 0;
  std::uint64_t stride_bytes_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::vector<unsigned long long> allocations_;  // one a rank; those that were mapped
};

// Bytes free on the context's device now.
std::uint64_t free_bytes(const Context& context);
// Blocking copies between host and device memory of any context.
void copy_to_device(const Context& context, std::byte* to, std::span<const std::byte> from);
void copy_to_host(const Context& context, std::span<std::byte> to, const std::byte* from);

}  // namespace arb::cuda
