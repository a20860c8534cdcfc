#include "stream.h"

#include <utility>

#include "driver.h"

namespace arb::cuda {

Stream::Stream(const Context& context) : context_(&context) {
  context.make_current();
  check(driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "make a stream");
}

Stream::~Stream() {
  if (stream_ != nullptr) driver().cuStreamDestroy(stream_);
}

Stream::Stream(Stream&& other) noexcept
    : context_(other.context_), stream_(std::exchange(other.stream_, nullptr)) {}

bool Stream::done() const {
  const CUresult result = driver().cuStreamQuery(stream_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "run what was launched");
  return true;
}

void Stream::launch_bytes(const Kernel& kernel, GridShape shape, const void* parameters) const {
  context_->make_current();
  CUlaunchConfig config{};
  config.gridDimX = shape.blocks;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = shape.threads;
  config.hStream = stream_;
  void* arguments[] = {const_cast<void*>(parameters)};
  check(driver().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel.handle()), arguments, nullptr),
        "launch a kernel");
}

void Stream::set_bytes(std::byte* to, unsigned char value, std::uint64_t bytes) const {
  if (bytes == 0) return;
  context_->make_current();
  check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(to), value, bytes, stream_),
        "set device memory");
}

void Stream::copy(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
  if (bytes == 0) return;
  context_->make_current();
  check(driver().cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes,
                               stream_),
        "copy device memory");
}

Event::Event(const Context& context) {
  context.make_current();
  check(driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "make an event");
}

Event::~Event() {
  if (event_ != nullptr) driver().cuEventDestroy(event_);
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

void Event::record(const Stream& stream) const {
  stream.context().make_current();
  check(driver().cuEventRecord(event_, stream.handle()), "record an event");
}

double Event::microseconds_since(const Event& start) const {
  float milliseconds = 0;
  check(driver().cuEventElapsedTime(&milliseconds, start.event_, event_), "read the time between two events");
  return 1000.0 * static_cast<double>(milliseconds);
}

}  // namespace arb::cuda
