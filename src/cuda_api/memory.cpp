#include "memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "driver.h"
#include "error.h"

namespace arb::cuda {
namespace {

CUdeviceptr pointer(const std::byte* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

CUmemAllocationProp allocation_on(std::uint32_t ordinal) {
  CUdevice device = 0;
  int has_descriptors = 0;
  check(driver().cuDeviceGet(&device, static_cast<int>(ordinal)), "get a device");
  check(driver().cuDeviceGetAttribute(
            &has_descriptors, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device),
        "read a device attribute");
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  if (has_descriptors != 0) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = static_cast<int>(ordinal);
  return properties;
}

double in_gib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1ull << 30);
}

std::uint64_t granularity_bytes_on(std::uint32_t ordinal) {
  const CUmemAllocationProp properties = allocation_on(ordinal);
  std::size_t bytes = 0;
  check(driver().cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "read the allocation granularity");
  return bytes;
}

CUmemGenericAllocationHandle allocate_on(std::uint32_t ordinal, std::uint64_t bytes) {
  const CUmemAllocationProp properties = allocation_on(ordinal);
  CUmemGenericAllocationHandle handle = 0;
  check(driver().cuMemCreate(&handle, bytes, &properties, 0),
        fmt::format("allocate {:.3f} GiB of symmetric memory on device {}", in_gib(bytes), ordinal));
  return handle;
}

void zero(const Context& context, CUdeviceptr address, std::uint64_t bytes) {
  context.make_current();
  check(driver().cuMemsetD8Async(address, 0, bytes, nullptr), "zero symmetric memory");
  check(driver().cuCtxSynchronize(), "zero symmetric memory");
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

void RetiredMemory::free() noexcept {
  for (const Part& part : parts_) {
    if (part.sharing == Sharing::descriptors) {
      driver().cuMemRelease(part.allocation);
    } else {
      driver().cuCtxSetCurrent(part.context);
      driver().cuMemFree(part.allocation);
    }
  }
  parts_.clear();
}

void SymmetricBuffer::reserve(std::uint64_t ranks, std::uint64_t granularity_bytes) {
  stride_bytes_ = (bytes_ + granularity_bytes - 1) / granularity_bytes * granularity_bytes;
  CUdeviceptr base = 0;
  check(driver().cuMemAddressReserve(&base, stride_bytes_ * ranks, granularity_bytes, 0, 0),
        fmt::format("reserve {:.3f} GiB of addresses", in_gib(stride_bytes_ * ranks)));
  base_ = base;
  reserved_bytes_ = stride_bytes_ * ranks;
}

void SymmetricBuffer::map(std::uint32_t rank, unsigned long long allocation,
                          std::span<const std::uint32_t> ordinals) {
  const Driver& cu = driver();
  const CUdeviceptr address = base_ + rank * stride_bytes_;
  const CUresult mapped = cu.cuMemMap(address, stride_bytes_, 0, allocation, 0);
  if (mapped != CUDA_SUCCESS) cu.cuMemRelease(allocation);
  check(mapped, "map symmetric memory");
  mappings_.push_back({rank, allocation});
  std::vector<CUmemAccessDesc> access;
  for (const std::uint32_t ordinal : ordinals) {
    CUmemAccessDesc one{};
    one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    one.location.id = static_cast<int>(ordinal);
    one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const auto same = [&](const CUmemAccessDesc& other) { return other.location.id == one.location.id; };
    if (std::ranges::none_of(access, same)) access.push_back(one);
  }
  check(cu.cuMemSetAccess(address, stride_bytes_, access.data(), access.size()),
        fmt::format("give every device access to the memory of rank {}", rank));
}

SymmetricBuffer::SymmetricBuffer(std::span<const Context* const> ranks, std::uint64_t bytes_a_rank)
    : bytes_(std::max<std::uint64_t>(bytes_a_rank, 1)) {
  std::uint64_t granularity_bytes = 1;
  std::vector<std::uint32_t> ordinals;
  for (const Context* rank : ranks) {
    ordinals.push_back(rank->ordinal());
    granularity_bytes = std::max(granularity_bytes, granularity_bytes_on(rank->ordinal()));
  }
  try {
    reserve(ranks.size(), granularity_bytes);
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
      map(rank, allocate_on(ranks[rank]->ordinal(), stride_bytes_), ordinals);
      zero(*ranks[rank], base_ + rank * stride_bytes_, stride_bytes_);
    }
  } catch (...) {
    release();
    throw;
  }
}

SymmetricBuffer::SymmetricBuffer(const Context& context, std::uint32_t rank, std::uint32_t ranks,
                                 std::uint64_t bytes_a_rank, const ShareParts& share,
                                 std::shared_ptr<RetiredMemory> retired, Sharing sharing)
    : bytes_(std::max<std::uint64_t>(bytes_a_rank, 1)),
      sharing_(sharing),
      own_rank_(rank),
      context_(context.handle()),
      retired_(std::move(retired)) {
  try {
    context.make_current();
    if (sharing_ == Sharing::ipc || !share_by_descriptor(context, ranks, share)) {
      share_by_ipc(context, ranks, share);
    }
  } catch (...) {
    release();
    throw;
  }
}

bool SymmetricBuffer::share_by_descriptor(const Context& context, std::uint32_t ranks,
                                          const ShareParts& share) {
  const Driver& cu = driver();
  const std::array ordinals{context.ordinal()};
  reserve(ranks, granularity_bytes_on(context.ordinal()));
  const CUmemGenericAllocationHandle own = allocate_on(context.ordinal(), stride_bytes_);
  map(own_rank_, own, ordinals);
  zero(context, base_ + own_rank_ * stride_bytes_, stride_bytes_);
  SharedPart part;
  part.stride_bytes = stride_bytes_;
  int fd = -1;
  if (cu.cuMemExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
      CUDA_SUCCESS) {
    part.descriptor = Descriptor(fd);
    part.given = true;
  }
  const std::vector<SharedPart> parts = share(std::move(part));
  if (!std::ranges::all_of(parts, &SharedPart::given)) {
    release();
    return false;
  }
  for (std::uint32_t peer = 0; peer < ranks; ++peer) {
    if (peer == own_rank_) continue;
    if (parts[peer].stride_bytes != stride_bytes_) {
      throw CudaError(fmt::format("ranks {} and {} give a buffer {} and {} bytes: their GPUs differ too much",
                                  own_rank_, peer, stride_bytes_, parts[peer].stride_bytes));
    }
    CUmemGenericAllocationHandle allocation = 0;
    void* const handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(parts[peer].descriptor.get()));
    check(cu.cuMemImportFromShareableHandle(&allocation, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          fmt::format("open the memory of rank {}", peer));
    map(peer, allocation, ordinals);
  }
  return true;
}

void SymmetricBuffer::share_by_ipc(const Context& context, std::uint32_t ranks, const ShareParts& share) {
  const Driver& cu = driver();
  sharing_ = Sharing::ipc;
  if (ranks != 2) {
    throw CudaError(
        fmt::format("the driver gives no descriptors of memory, and CUDA IPC serves 2 ranks, not {}: its "
                    "addresses need not be equally far apart; run with --world threads",
                    ranks));
  }
  // Whole blocks of the driver's: a part of a block would be opened at the block's begin.
  constexpr std::uint64_t block_bytes = 2 << 20;
  const std::uint64_t own_bytes = (bytes_ + block_bytes - 1) / block_bytes * block_bytes;
  CUdeviceptr own = 0;
  check(cu.cuMemAlloc(&own, own_bytes), fmt::format("allocate {:.3f} GiB of symmetric memory on device {}",
                                                    in_gib(own_bytes), context.ordinal()));
  mappings_.push_back({own_rank_, own});
  zero(context, own, own_bytes);
  SharedPart part;
  CUipcMemHandle handle{};
  static_assert(sizeof(handle) == sizeof(part.ipc_handle));
  check(cu.cuIpcGetMemHandle(&handle, own), "share memory by CUDA IPC");
  std::memcpy(part.ipc_handle.data(), &handle, sizeof(handle));
  part.given = true;
  const std::vector<SharedPart> parts = share(std::move(part));
  const std::uint32_t peer = 1 - own_rank_;
  std::memcpy(&handle, parts[peer].ipc_handle.data(), sizeof(handle));
  CUdeviceptr theirs = 0;
  check(cu.cuIpcOpenMemHandle(&theirs, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        fmt::format("open the memory of rank {} by CUDA IPC", peer));
  mappings_.push_back({peer, theirs});
  base_ = own_rank_ == 0 ? own : theirs;
  stride_bytes_ = (own_rank_ == 0 ? theirs : own) - base_;
}

void SymmetricBuffer::release() noexcept {
  if (mappings_.empty() && reserved_bytes_ == 0) return;
  const Driver& cu = driver();
  const auto is_own = [&](const Mapping& mapping) {
    return retired_ != nullptr && mapping.rank == own_rank_;
  };
  for (const Mapping& mapping : mappings_) {
    if (sharing_ == Sharing::descriptors) {
      cu.cuMemUnmap(base_ + mapping.rank * stride_bytes_, stride_bytes_);
    } else if (!is_own(mapping)) {
      cu.cuCtxSetCurrent(context_);
      cu.cuIpcCloseMemHandle(mapping.allocation);
    }
  }
  for (const Mapping& mapping : mappings_) {
    if (is_own(mapping)) {
      retired_->parts_.push_back({sharing_, context_, mapping.allocation});
    } else if (sharing_ == Sharing::descriptors) {
      cu.cuMemRelease(mapping.allocation);
    }
  }
  mappings_.clear();
  if (reserved_bytes_ != 0) cu.cuMemAddressFree(base_, reserved_bytes_);
  reserved_bytes_ = 0;
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
  std::swap(mappings_, other.mappings_);
  std::swap(sharing_, other.sharing_);
  std::swap(own_rank_, other.own_rank_);
  std::swap(context_, other.context_);
  std::swap(retired_, other.retired_);
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
