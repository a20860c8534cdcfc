#include "device.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "driver.h"

namespace arb::cuda {
namespace {

std::uint32_t attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(driver().cuDeviceGetAttribute(&value, which, device), "read a device attribute");
  return static_cast<std::uint32_t>(value);
}

// The driver's usual spelling of the 16 bytes.
std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

DeviceProperties properties_of(int ordinal, int count) {
  const Driver& cu = driver();
  CUdevice device = 0;
  check(cu.cuDeviceGet(&device, ordinal), "get a device");
  DeviceProperties properties;
  properties.ordinal = static_cast<std::uint32_t>(ordinal);
  std::array<char, 256> text{};
  check(cu.cuDeviceGetName(text.data(), text.size(), device), "read a device's name");
  properties.name = text.data();
  CUuuid uuid{};
  check(cu.cuDeviceGetUuid(&uuid, device), "read a device's UUID");
  properties.uuid = uuid_text(uuid);
  properties.architecture =
      fmt::format("sm_{}{}", attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                  attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  check(cu.cuDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device),
        "read a device's PCI address");
  properties.pci_address = text.data();
  std::size_t bytes = 0;
  check(cu.cuDeviceTotalMem(&bytes, device), "read a device's memory size");
  properties.memory_bytes = bytes;
  properties.l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  properties.multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  for (int other = 0; other < count; ++other) {
    int can = 0;
    CUdevice peer = 0;
    check(cu.cuDeviceGet(&peer, other), "get a device");
    if (other != ordinal && cu.cuDeviceCanAccessPeer(&can, device, peer) == CUDA_SUCCESS && can != 0) {
      properties.peers.push_back(static_cast<std::uint32_t>(other));
    }
  }
  return properties;
}

}  // namespace

std::uint32_t driver_cuda_version() {
  int version = 0;
  check(driver().cuDriverGetVersion(&version), "read the driver's CUDA version");
  return static_cast<std::uint32_t>(version);
}

std::vector<DeviceProperties> all_devices() {
  int count = 0;
  check(driver().cuDeviceGetCount(&count), "count the devices");
  std::vector<DeviceProperties> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) devices.push_back(properties_of(ordinal, count));
  return devices;
}

Context::Context(std::uint32_t ordinal) : ordinal_(ordinal) {
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, static_cast<int>(ordinal)), fmt::format("get device {}", ordinal));
  check(driver().cuDevicePrimaryCtxRetain(&context_, device),
        fmt::format("open a context on device {}", ordinal));
}

Context::~Context() {
  if (context_ == nullptr) return;
  CUdevice device = 0;
  if (driver().cuDeviceGet(&device, static_cast<int>(ordinal_)) == CUDA_SUCCESS) {
    driver().cuDevicePrimaryCtxRelease(device);
  }
}

Context::Context(Context&& other) noexcept
    : ordinal_(other.ordinal_), context_(std::exchange(other.context_, nullptr)) {}

std::uint32_t Context::multiprocessors() const {
  CUdevice device = 0;
  check(driver().cuDeviceGet(&device, static_cast<int>(ordinal_)), "get a device");
  return attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
}

void Context::make_current() const {
  check(driver().cuCtxSetCurrent(context_), fmt::format("make device {}'s context current", ordinal_));
}

void Context::enable_peer(const Context& peer) const {
  make_current();
  const CUresult result = driver().cuCtxEnablePeerAccess(peer.context_, 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
    check(result, fmt::format("let device {} access device {}", ordinal_, peer.ordinal_));
  }
}

}  // namespace arb::cuda
