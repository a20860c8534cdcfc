// What processes can hand each other, and what devices claim to be able to: for looking at a machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device.h"
#include "memory.h"
#include "stream.h"

namespace arb::cuda {

// What the driver claims of a device; needs no context. Absent: this driver does not know the question.
struct Capabilities {
  std::uint32_t ordinal = 0;
  std::string uuid;                // "GPU-..."
  std::string compute_capability;  // "12.0"
  std::optional<bool> multicast;
  std::optional<bool> vmm_file_descriptor;
  std::optional<bool> cluster_launch;
};
// Of all devices, in ordinal order. Throws NoDriver or CudaError.
std::vector<Capabilities> all_capabilities();

// Memory of one device that another process can map: made here and exported as a file descriptor, or imported
// from one. Readable and writable from the context's device.
class SharedBuffer {
 public:
  // At least `bytes`; throws CudaError.
  SharedBuffer(const Context& context, std::uint64_t bytes);
  // Maps what another process exported; `descriptor` stays the caller's, `bytes` are the exporter's
  // size_bytes().
  SharedBuffer(const Context& context, int descriptor, std::uint64_t bytes);
  ~SharedBuffer();
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;
  SharedBuffer(SharedBuffer&&) = delete;
  SharedBuffer& operator=(SharedBuffer&&) = delete;

  // A new descriptor for the memory, which the caller closes.
  [[nodiscard]] int export_descriptor() const;
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  [[nodiscard]] std::uint64_t size_bytes() const { return bytes_; }

 private:
  void map(std::uint32_t ordinal);
  void release() noexcept;

  unsigned long long allocation_ = 0;
  std::uint64_t address_ = 0;
  std::uint64_t bytes_ = 0;
  bool allocated_ = false;
  bool mapped_ = false;
};

// The handle by which another process opens a plain buffer (cuIpc).
using IpcHandle = std::array<std::byte, 64>;
IpcHandle ipc_handle(const Context& context, const DeviceBuffer& buffer);

// Another process's plain buffer, opened by its handle while the object lives.
class IpcBuffer {
 public:
  IpcBuffer(const Context& context, const IpcHandle& handle);
  ~IpcBuffer();
  IpcBuffer(const IpcBuffer&) = delete;
  IpcBuffer& operator=(const IpcBuffer&) = delete;
  IpcBuffer(IpcBuffer&&) = delete;
  IpcBuffer& operator=(IpcBuffer&&) = delete;
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  CUctx_st* context_ = nullptr;
  std::uint64_t address_ = 0;
};

// Launches `kernel` in clusters of `cluster_blocks` blocks, which must divide shape.blocks. Throws CudaError.
void launch_clusters(const Stream& stream, const Kernel& kernel, GridShape shape,
                     std::uint32_t cluster_blocks, const void* parameters);

}  // namespace arb::cuda
