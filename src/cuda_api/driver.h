// libcuda.so.1, opened at run time: the driver's entry points by name, and the check of what they return.
// Private to src/cuda_api: it includes <cuda.h>.
#pragma once

#include <cuda.h>

#include <source_location>
#include <string_view>

namespace arb::cuda {

// The entry points that the suite uses. Versioned names come from the header's own macros (cuMemAlloc is
// cuMemAlloc_v2), so the table matches the header whichever toolkit it is from.
// clang-format off
#define ARB_DRIVER_ENTRIES(entry)                                                                  \
  entry(cuInit) entry(cuDriverGetVersion) entry(cuGetErrorName) entry(cuGetErrorString)            \
  entry(cuDeviceGet) entry(cuDeviceGetCount) entry(cuDeviceGetName) entry(cuDeviceGetUuid)         \
  entry(cuDeviceGetAttribute) entry(cuDeviceTotalMem) entry(cuDeviceGetPCIBusId)                   \
  entry(cuDeviceCanAccessPeer) entry(cuDevicePrimaryCtxRelease) entry(cuCtxSetCurrent)             \
  entry(cuCtxSynchronize) entry(cuCtxEnablePeerAccess) entry(cuMemAlloc) entry(cuMemFree)          \
  entry(cuMemFreeHost) entry(cuMemGetInfo) entry(cuMemcpyHtoD) entry(cuMemcpyDtoH)                 \
  entry(cuMemcpyAsync) entry(cuMemsetD8Async) entry(cuMemAddressFree) entry(cuMemCreate)           \
  entry(cuMemRelease) entry(cuMemMap) entry(cuMemUnmap) entry(cuMemSetAccess)                      \
  entry(cuMemExportToShareableHandle) entry(cuMemImportFromShareableHandle)                        \
  entry(cuIpcGetMemHandle) entry(cuIpcCloseMemHandle) entry(cuLibraryLoadData)                     \
  entry(cuLibraryUnload) entry(cuLibraryGetKernel) entry(cuKernelGetFunction)                      \
  entry(cuKernelGetParamInfo) entry(cuStreamCreate) entry(cuStreamDestroy) entry(cuStreamQuery)    \
  entry(cuStreamSynchronize) entry(cuLaunchKernelEx) entry(cuStreamBeginCapture)                   \
  entry(cuStreamEndCapture) entry(cuEventCreate) entry(cuEventDestroy) entry(cuEventRecord)        \
  entry(cuEventElapsedTime) entry(cuGraphCreate) entry(cuGraphDestroy) entry(cuGraphAddNode_v2)    \
  entry(cuGraphInstantiateWithParams) entry(cuGraphUpload) entry(cuGraphLaunch)                    \
  entry(cuGraphExecDestroy) entry(cuOccupancyMaxActiveBlocksPerMultiprocessor)                     \
  entry(cuDevicePrimaryCtxRetain) entry(cuIpcOpenMemHandle) entry(cuMemAddressReserve)             \
  entry(cuMemGetAllocationGranularity) entry(cuMemHostAlloc)
// clang-format on

// One member a driver function, of exactly its type.
struct Driver {
#define ARB_MEMBER(name) decltype(&::name) name = nullptr;
  ARB_DRIVER_ENTRIES(ARB_MEMBER)
#undef ARB_MEMBER
};

// The driver, opened and initialised at the first call. Throws NoDriver, at every call, where there is none.
const Driver& driver();

// Throws CudaError saying what could not be done and the driver's words for `result`; nothing on success.
void check(CUresult result, std::string_view doing,
           const std::source_location& where = std::source_location::current());

}  // namespace arb::cuda
