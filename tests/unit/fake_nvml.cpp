// A libnvidia-ml.so.1 of our own with two GPUs: the second answers little. FAKE_BROKEN leaves an entry out,
// FAKE_NO_DRIVER cannot be initialised, FAKE_OLD has the throttle entry's old name. The variable
// FAKE_SM_CLOCK is the first one's SM clock.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int not_supported = 3;
int devices[2] = {0, 1};

bool rich(const void* device) {
  return device == &devices[0];
}
int text(const std::string& value, char* out, unsigned length) {
  if (value.size() + 1 > length) return 7;
  std::memcpy(out, value.c_str(), value.size() + 1);
  return 0;
}
template <typename Number>
int number(const void* device, Number value, Number* out) {
  if (!rich(device)) return not_supported;
  *out = value;
  return 0;
}

}  // namespace

extern "C" {

#ifndef FAKE_BROKEN
int nvmlInit_v2() {
#ifdef FAKE_NO_DRIVER
  return 9;
#else
  return 0;
#endif
}
#endif
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int result) {
  return result == 9 ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* out, unsigned length) {
  return text("580.82.07", out, length);
}
int nvmlSystemGetCudaDriverVersion_v2(int* code) {
  *code = 13010;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetName(void*, char* out, unsigned length) {
  return text("NVIDIA Fake", out, length);
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned length) {
  return text(rich(device) ? "GPU-0" : "GPU-1", out, length);
}
int nvmlDeviceGetClockInfo(void* device, unsigned which, unsigned* out) {
  const char* const sm_clock = std::getenv("FAKE_SM_CLOCK");
  if (which == 1 && sm_clock != nullptr)
    return number(device, static_cast<unsigned>(std::atoi(sm_clock)), out);
  return number(device, which == 1 ? 1980U : 3201U, out);
}
int nvmlDeviceGetMaxClockInfo(void* device, unsigned which, unsigned* out) {
  return number(device, which == 1 ? 2000U : 3300U, out);
}
#ifdef FAKE_OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* out) {
  return number(device, 0ULL, out);
}
#else
int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* out) {
  return number(device, 0x24ULL, out);
}
#endif
int nvmlDeviceGetTemperature(void* device, unsigned, unsigned* out) {
  return number(device, 41U, out);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* out) {
  return number(device, 123456U, out);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* out) {
  return number(device, 1U, out);
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* out) {
  return number(device, 8U, out);
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* out) {
  return number(device, 5U, out);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* out) {
  return number(device, 16U, out);
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* out) {
  return link < 4 ? number(device, link == 3 ? 0U : 1U, out) : 2;
}
int nvmlDeviceGetNvLinkErrorCounter(void* device, unsigned link, unsigned which, unsigned long long* out) {
  return which < 2 ? number(device, link == 1 ? 5ULL : 0ULL, out) : not_supported;
}
int nvmlDeviceGetTopologyCommonAncestor(void*, void*, unsigned* out) {
  *out = 50;
  return 0;
}
int nvmlDeviceGetP2PStatus(void* from, void*, unsigned which, unsigned* out) {
  *out = rich(from) ? which : 99;  // 99 is no status that there is
  return 0;
}

}  // extern "C"
