// Memory with one owner each: a rank's own, symmetric over ranks, and pinned host memory that devices can
// address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "descriptor.h"
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

// How processes reach each other's device memory: by descriptors of allocations that each maps where it
// likes, or, where the driver gives none, by CUDA IPC, which chooses the addresses itself.
enum class Sharing : std::uint8_t { descriptors, ipc };

// What a process tells the others about its part of a buffer.
struct SharedPart {
  Descriptor descriptor;                   // Sharing::descriptors
  std::array<std::byte, 64> ipc_handle{};  // Sharing::ipc
  std::uint64_t stride_bytes = 0;
  bool given = false;  // false: the driver gave neither
};
// Gives every process's part to all, by rank; a step that all take together. The own part comes back without
// its descriptor.
using ShareParts = std::function<std::vector<SharedPart>(SharedPart own)>;

// Own parts of buffers over processes that are gone here and may still be mapped by peers.
class RetiredMemory {
 public:
  RetiredMemory() = default;
  ~RetiredMemory() { free(); }
  RetiredMemory(const RetiredMemory&) = delete;
  RetiredMemory& operator=(const RetiredMemory&) = delete;
  RetiredMemory(RetiredMemory&&) = delete;
  RetiredMemory& operator=(RetiredMemory&&) = delete;

  // Frees them; to be called once no peer has any of them mapped.
  void free() noexcept;

 private:
  friend class SymmetricBuffer;
  struct Part {
    Sharing sharing;
    CUctx_st* context;
    unsigned long long allocation;  // a handle, or with ipc an address
  };
  std::vector<Part> parts_;
};

// The same buffer on every rank: rank r's copy is memory of its device, mapped at base + r * stride in this
// process and readable and writable from the devices of this process. Zeroed. All ranks unmap before any copy
// is freed.
class SymmetricBuffer {
 public:
  SymmetricBuffer() = default;
  // All ranks in this process. Throws CudaError when a device has no room or cannot map a peer's memory.
  SymmetricBuffer(std::span<const Context* const> ranks, std::uint64_t bytes_a_rank);
  // One rank in this process, `ranks` in all, which make the buffer together; the own part goes to `retired`
  // in the end. Throws the same, and what `share` throws; also where CUDA IPC is all there is and there are
  // more than 2 ranks.
  SymmetricBuffer(const Context& context, std::uint32_t rank, std::uint32_t ranks, std::uint64_t bytes_a_rank,
                  const ShareParts& share, std::shared_ptr<RetiredMemory> retired,
                  Sharing sharing = Sharing::descriptors);
  ~SymmetricBuffer();
  SymmetricBuffer(SymmetricBuffer&& other) noexcept;
  SymmetricBuffer& operator=(SymmetricBuffer&& other) noexcept;
  SymmetricBuffer(const SymmetricBuffer&) = delete;
  SymmetricBuffer& operator=(const SymmetricBuffer&) = delete;

  [[nodiscard]] std::byte* data(std::uint32_t rank) const {
    return reinterpret_cast<std::byte*>(base_ + rank * stride_bytes_);
  }
  // Modulo 2^64 a negative distance where CUDA IPC chose the addresses so.
  [[nodiscard]] std::uint64_t stride_bytes() const { return stride_bytes_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return bytes_; }
  [[nodiscard]] Sharing sharing() const { return sharing_; }

 private:
  // One rank's copy as this process has it mapped.
  struct Mapping {
    std::uint32_t rank;
    unsigned long long allocation;  // a handle; with ipc the address
  };
  void reserve(std::uint64_t ranks, std::uint64_t granularity_bytes);
  // Maps the allocation, which is released again where that fails, as the rank's copy.
  void map(std::uint32_t rank, unsigned long long allocation, std::span<const std::uint32_t> ordinals);
  // False, with nothing left of it, where a rank's driver gave no descriptor.
  bool share_by_descriptor(const Context& context, std::uint32_t ranks, const ShareParts& share);
  void share_by_ipc(const Context& context, std::uint32_t ranks, const ShareParts& share);
  void release() noexcept;

  std::uint64_t base_ = 0;
  std::uint64_t stride_bytes_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::vector<Mapping> mappings_;
  Sharing sharing_ = Sharing::descriptors;
  // Over processes: the own rank, where it lives, and where its part goes in the end. No `retired`: all ranks
  // are here.
  std::uint32_t own_rank_ = 0;
  CUctx_st* context_ = nullptr;
  std::shared_ptr<RetiredMemory> retired_;
};

// Bytes free on the context's device now.
std::uint64_t free_bytes(const Context& context);
// Blocking copies between host and device memory of any context.
void copy_to_device(const Context& context, std::byte* to, std::span<const std::byte> from);
void copy_to_host(const Context& context, std::span<std::byte> to, const std::byte* from);

}  // namespace arb::cuda
