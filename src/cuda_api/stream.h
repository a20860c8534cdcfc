// Order on one device: streams, events between which time passes, and single launches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device.h"
#include "library.h"

struct CUstream_st;
struct CUevent_st;

namespace arb::cuda {

struct GridShape {
  std::uint32_t blocks = 1;
  std::uint32_t threads = 1;
};

class Stream {
 public:
  explicit Stream(const Context& context);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] CUstream_st* handle() const { return stream_; }
  [[nodiscard]] const Context& context() const { return *context_; }
  // True once all work so far is done; throws CudaError when some of it failed.
  [[nodiscard]] bool done() const;

  // `parameters` is the kernel's one struct; it is copied before the call returns.
  template <class Parameters>
  void launch(const Kernel& kernel, GridShape shape, const Parameters& parameters) const {
    launch_bytes(kernel, shape, &parameters);
  }
  // Every byte of to[0, bytes) becomes `value`.
  void set_bytes(std::byte* to, unsigned char value, std::uint64_t bytes) const;
  // Device to device, of any contexts that can address each other.
  void copy(std::byte* to, const std::byte* from, std::uint64_t bytes) const;

 private:
  void launch_bytes(const Kernel& kernel, GridShape shape, const void* parameters) const;

  const Context* context_;
  CUstream_st* stream_ = nullptr;
};

class Event {
 public:
  explicit Event(const Context& context);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) const;
  // Microseconds on the device from `start` to this event; both must be done.
  [[nodiscard]] double microseconds_since(const Event& start) const;

 private:
  CUevent_st* event_ = nullptr;
};

}  // namespace arb::cuda
