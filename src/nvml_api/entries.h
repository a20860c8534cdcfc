// The C entries of libnvidia-ml.so.1 that the suite uses, declared by ourselves. Private to src/nvml_api.
#pragma once

namespace arb::nvml::entry {

struct Handle;  // opaque: a device

using Result = unsigned;  // nvmlReturn_t
inline constexpr Result success = 0;

// Values of NVML's enums that are asked for.
inline constexpr unsigned clock_sm = 1;
inline constexpr unsigned clock_memory = 2;
inline constexpr unsigned temperature_gpu = 0;
inline constexpr unsigned p2p_read = 0;
inline constexpr unsigned p2p_write = 1;
inline constexpr unsigned p2p_nvlink = 2;
inline constexpr unsigned p2p_atomics = 3;
inline constexpr unsigned nvlink_max_links = 18;
inline constexpr unsigned nvlink_error_counters = 4;  // replay, recovery, CRC of flits, CRC of data: 0 to 3
inline constexpr unsigned text_length = 96;           // enough for every text below

using Init = Result();
using Shutdown = Result();
using ErrorString = const char*(Result);
using SystemText = Result(char* text, unsigned length);
using SystemNumber = Result(int* value);
using DeviceCount = Result(unsigned* count);
using DeviceByIndex = Result(unsigned index, Handle** device);
using DeviceText = Result(Handle*, char* text, unsigned length);
using DeviceNumber = Result(Handle*, unsigned* value);
using DeviceNumberOf = Result(Handle*, unsigned which, unsigned* value);
using DeviceMask = Result(Handle*, unsigned long long* mask);
using NvlinkCounter = Result(Handle*, unsigned link, unsigned which, unsigned long long* value);
using DeviceTwoNumbers = Result(Handle*, int* first, int* second);
// nvmlPciInfo_t (version 3); nvmlMemory_t and nvmlBAR1Memory_t, which are three numbers alike: total first.
struct PciInfo {
  char short_address[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char address[32];
};
struct MemoryInfo {
  unsigned long long total_bytes;
  unsigned long long second_bytes;
  unsigned long long third_bytes;
};
using DevicePciInfo = Result(Handle*, PciInfo* info);
using DeviceMemoryInfo = Result(Handle*, MemoryInfo* info);
using PairNumber = Result(Handle*, Handle*, unsigned* value);
using PairNumberOf = Result(Handle*, Handle*, unsigned which, unsigned* value);

// nullptr for what this NVML lacks; the first four are always there.
struct Entries {
  Init* init = nullptr;
  Shutdown* shutdown = nullptr;
  DeviceCount* device_count = nullptr;
  DeviceByIndex* device_by_index = nullptr;
  ErrorString* error_string = nullptr;
  SystemText* driver_version = nullptr;
  SystemNumber* cuda_driver_version = nullptr;
  DeviceText* name = nullptr;
  DeviceText* uuid = nullptr;
  DeviceNumberOf* clock = nullptr;
  DeviceNumberOf* max_clock = nullptr;
  DeviceMask* clock_events = nullptr;
  DeviceNumberOf* temperature = nullptr;
  DeviceNumber* power_mw = nullptr;
  DeviceNumber* power_limit_mw = nullptr;
  DeviceNumber* pcie_generation = nullptr;
  DeviceNumber* pcie_width = nullptr;
  DeviceNumber* pcie_generation_max = nullptr;
  DeviceNumber* pcie_width_max = nullptr;
  DeviceNumber* pcie_replays = nullptr;
  DeviceNumberOf* nvlink_state = nullptr;
  NvlinkCounter* nvlink_errors = nullptr;
  DevicePciInfo* pci_info = nullptr;
  DeviceTwoNumbers* compute_capability = nullptr;
  DeviceMemoryInfo* memory = nullptr;
  DeviceMemoryInfo* bar1_memory = nullptr;
  PairNumber* common_ancestor = nullptr;
  PairNumberOf* p2p_status = nullptr;
};

}  // namespace arb::nvml::entry
