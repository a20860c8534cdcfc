#include "memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "driver.h"

namespace arb::cuda {
namespace {

CUdeviceptr pointer(const std::byte* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

CUmemAllocationProp allocation_on(std::uint32_t ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = static_cast<int>(ordinal);
  return properties;
}

double in_gib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1ull << 30);
}

}  // namespace

DeviceBuffer::DeviceBuffer(const Context& context, std::uint64_t bytes)
    : context_(context.handle()), bytes_(std::max<std::uint64_t>(bytes, 1)) {
  context.make_current();
  CUdeviceptr address = 0;
  check(driver().cuMemAlloc(&address, bytes_),
        fmt::format("allocate {:.3f} GiB on device {}", in_gib(bytes_), context.ordinal()));
  address_ = address;
}

DeviceBuffer::~DeviceBuffer() {
  if (address_ == 0) return;
  driver().cuCtxSetCurrent(context_);
  driver().cuMemFree(address_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : context_(other.context_),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedBuffer::PinnedBuffer(std::uint64_t bytes) {
  void* data = nullptr;
  check(driver().cuMemHostAlloc(&data, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        fmt::format("pin {} bytes of host memory", bytes));
  data_ = static_cast<std::byte*>(data);
  std::memset(data_, 0, bytes);
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) driver().cuMemFreeHost(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

SymmetricBuffer::SymmetricBuffer(std::span<const Context* const> ranks, std::uint64_t bytes_a_rank)
    : bytes_(std::max<std::uint64_t>(bytes_a_rank, 1)) {
  const Driver& cu = driver();
  std::uint64_t granularity = 1;
  for (const Context* rank : ranks) {
    const CUmemAllocationProp properties = allocation_on(rank->ordinal());
    std::size_t own = 0;
    check(cu.cuMemGetAllocationGranularity(&own, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "read the allocation granularity");
    granularity = std::max<std::uint64_t>(granularity, own);
  }
  stride_bytes_ = (bytes_ + granularity - 1) / granularity * granularity;
  std::vector<CUmemAccessDesc> access;
  for (const Context* rank : ranks) {
    CUmemAccessDesc one{};
    one.location = allocation_on(rank->ordinal()).location;
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const auto same = [&](const CUmemAccessDesc& other) { return other.location.id == one.location.id; };
    if (std::ranges::none_of(access, same)) access.push_back(one);
  }
  try {
    CUdeviceptr base = 0;
    check(cu.cuMemAddressReserve(&base, stride_bytes_ * ranks.size(), granularity, 0, 0),
          fmt::format("reserve {:.3f} GiB of addresses", in_gib(stride_bytes_ * ranks.size())));
    base_ = base;
    reserved_bytes_ = stride_bytes_ * ranks.size();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::uint32_t ordinal = ranks[rank]->ordinal();
      const CUmemAllocationProp properties = allocation_on(ordinal);
      const CUdeviceptr address = base_ + rank * stride_bytes_;
      CUmemGenericAllocationHandle handle = 0;
      check(cu.cuMemCreate(&handle, stride_bytes_, &properties, 0),
            fmt::format("allocate {:.3f} GiB of symmetric memory on device {}", in_gib(stride_bytes_),
                        ordinal));
      const CUresult mapped = cu.cuMemMap(address, stride_bytes_, 0, handle, 0);
      if (mapped != CUDA_SUCCESS) cu.cuMemRelease(handle);
      check(mapped, "map symmetric memory");
      allocations_.push_back(handle);
      check(cu.cuMemSetAccess(address, stride_bytes_, access.data(), access.size()),
            fmt::format("give every device access to device {}'s memory", ordinal));
    }
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank]->make_current();
      check(cu.cuMemsetD8Async(base_ + rank * stride_bytes_, 0, stride_bytes_, nullptr),
            "zero symmetric memory");
      check(cu.cuCtxSynchronize(), "zero symmetric memory");
    }
  } catch (...) {
    release();
    throw;
  }
}

void SymmetricBuffer::release() noexcept {
  if (base_ == 0) return;
  const Driver& cu = driver();
  for (std::size_t rank = 0; rank < allocations_.size(); ++rank) {
    cu.cuMemUnmap(base_ + rank * stride_bytes_, stride_bytes_);
  }
  for (const auto handle : allocations_) cu.cuMemRelease(handle);
  allocations_.clear();
  cu.cuMemAddressFree(base_, reserved_bytes_);
  base_ = 0;
}

SymmetricBuffer::~SymmetricBuffer() {
  release();
}

SymmetricBuffer::SymmetricBuffer(SymmetricBuffer&& other) noexcept {
  *this = std::move(other);
}

SymmetricBuffer& SymmetricBuffer::operator=(SymmetricBuffer&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(stride_bytes_, other.stride_bytes_);
  std::swap(bytes_, other.bytes_);
  std::swap(reserved_bytes_, other.reserved_bytes_);
  std::swap(allocations_, other.allocations_);
  return *this;
}

std::uint64_t free_bytes(const Context& context) {
  context.make_current();
  std::size_t free = 0;
  std::size_t total = 0;
  check(driver().cuMemGetInfo(&free, &total), "read how much memory is free");
  return free;
}

void copy_to_device(const Context& context, std::byte* to, std::span<const std::byte> from) {
  context.make_current();
  check(driver().cuMemcpyHtoD(pointer(to), from.data(), from.size()), "copy to a device");
  // From pageable memory the call may return while the last part is still on its way, and our streams do not
  // wait for the default one.
  check(driver().cuStreamSynchronize(nullptr), "copy to a device");
}

void copy_to_host(const Context& context, std::span<std::byte> to, const std::byte* from) {
  context.make_current();
  check(driver().cuMemcpyDtoH(to.data(), pointer(from), to.size()), "copy from a device");
}

}  // namespace arb::cuda
