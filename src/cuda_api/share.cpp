#include "share.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "driver.h"

namespace arb::cuda {
namespace {

std::optional<bool> claims(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  if (driver().cuDeviceGetAttribute(&value, which, device) != CUDA_SUCCESS) return std::nullopt;
  return value != 0;
}

CUmemAllocationProp shareable_on(std::uint32_t ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = static_cast<int>(ordinal);
  return properties;
}

}  // namespace

std::vector<Capabilities> all_capabilities() {
  std::vector<Capabilities> all;
  for (const DeviceProperties& properties : all_devices()) {
    CUdevice device = 0;
    check(driver().cuDeviceGet(&device, static_cast<int>(properties.ordinal)), "get a device");
    Capabilities one;
    one.ordinal = properties.ordinal;
    one.uuid = properties.uuid;
    int major = 0;
    int minor = 0;
    check(driver().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
          "read a device attribute");
    check(driver().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
          "read a device attribute");
    one.compute_capability = fmt::format("{}.{}", major, minor);
    one.multicast = claims(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
    one.vmm_file_descriptor = claims(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    one.cluster_launch = claims(device, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
    all.push_back(std::move(one));
  }
  return all;
}

SharedBuffer::SharedBuffer(const Context& context, std::uint64_t bytes) {
  context.make_current();
  const CUmemAllocationProp properties = shareable_on(context.ordinal());
  std::size_t granularity = 0;
  check(
      driver().cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "read the allocation granularity");
  bytes_ = (std::max<std::uint64_t>(bytes, 1) + granularity - 1) / granularity * granularity;
  CUmemGenericAllocationHandle handle = 0;
  check(driver().cuMemCreate(&handle, bytes_, &properties, 0),
        fmt::format("allocate {} bytes to share on device {}", bytes_, context.ordinal()));
  allocation_ = handle;
  allocated_ = true;
  map(context.ordinal());
}

SharedBuffer::SharedBuffer(const Context& context, int descriptor, std::uint64_t bytes) : bytes_(bytes) {
  context.make_current();
  CUmemGenericAllocationHandle handle = 0;
  check(driver().cuMemImportFromShareableHandle(
            &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        fmt::format("import another process's memory on device {}", context.ordinal()));
  allocation_ = handle;
  allocated_ = true;
  map(context.ordinal());
}

void SharedBuffer::map(std::uint32_t ordinal) {
  const Driver& cu = driver();
  try {
    CUdeviceptr address = 0;
    check(cu.cuMemAddressReserve(&address, bytes_, 0, 0, 0),
          fmt::format("reserve {} bytes of addresses", bytes_));
    address_ = address;
    check(cu.cuMemMap(address_, bytes_, 0, allocation_, 0), "map shared memory");
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location = shareable_on(ordinal).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(cu.cuMemSetAccess(address_, bytes_, &access, 1),
          fmt::format("give device {} access to shared memory", ordinal));
  } catch (...) {
    release();
    throw;
  }
}

void SharedBuffer::release() noexcept {
  const Driver& cu = driver();
  if (mapped_) cu.cuMemUnmap(address_, bytes_);
  if (address_ != 0) cu.cuMemAddressFree(address_, bytes_);
  if (allocated_) cu.cuMemRelease(allocation_);
  mapped_ = allocated_ = false;
  address_ = 0;
}

SharedBuffer::~SharedBuffer() {
  release();
}

int SharedBuffer::export_descriptor() const {
  int descriptor = -1;
  check(driver().cuMemExportToShareableHandle(&descriptor, allocation_,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "export memory as a file descriptor");
  return descriptor;
}

IpcHandle ipc_handle(const Context& context, const DeviceBuffer& buffer) {
  context.make_current();
  CUipcMemHandle handle{};
  check(driver().cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(buffer.data())),
        fmt::format("get a handle for memory of device {}", context.ordinal()));
  IpcHandle bytes{};
  static_assert(sizeof handle.reserved == bytes.size());
  std::memcpy(bytes.data(), handle.reserved, bytes.size());
  return bytes;
}

IpcBuffer::IpcBuffer(const Context& context, const IpcHandle& handle) : context_(context.handle()) {
  context.make_current();
  CUipcMemHandle raw{};
  std::memcpy(raw.reserved, handle.data(), handle.size());
  CUdeviceptr address = 0;
  check(driver().cuIpcOpenMemHandle(&address, raw, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        fmt::format("open another process's memory on device {}", context.ordinal()));
  address_ = address;
}

IpcBuffer::~IpcBuffer() {
  driver().cuCtxSetCurrent(context_);
  if (address_ != 0) driver().cuIpcCloseMemHandle(address_);
}

void launch_clusters(const Stream& stream, const Kernel& kernel, GridShape shape,
                     std::uint32_t cluster_blocks, const void* parameters) {
  stream.context().make_current();
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = cluster_blocks;
  attribute.value.clusterDim.y = 1;
  attribute.value.clusterDim.z = 1;
  CUlaunchConfig config{};
  config.gridDimX = shape.blocks;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = shape.threads;
  config.hStream = stream.handle();
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* arguments[] = {const_cast<void*>(parameters)};
  check(driver().cuLaunchKernelEx(&config, reinterpret_cast<CUfunction>(kernel.handle()), arguments, nullptr),
        "launch a kernel in clusters");
}

}  // namespace arb::cuda
