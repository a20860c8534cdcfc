// The C entries of libnccl.so.2 that the suite uses, declared by ourselves so that nothing of NCCL is needed
// to build. Private to src/nccl_api. header_check.cpp compares every line with <nccl.h> where there is one.
#pragma once

#include <cstddef>

namespace arb::nccl::entry {

struct Comm;    // opaque: one rank's communicator
struct Stream;  // opaque: a CUstream, which is also a cudaStream_t
struct Window;  // opaque: one rank's part of registered memory
struct UniqueId {
  char internal[128];
};

enum class Result : unsigned {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};
enum class DataType : unsigned { float16 = 6, float32 = 7, bfloat16 = 9 };
enum class Operation : unsigned { sum = 0 };
inline constexpr int window_symmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC

using GetVersion = Result(int* code);
using GetErrorString = const char*(Result);
using GetLastError = const char*(Comm*);
using CommInitAll = Result(Comm** comms, int count, const int* devices);
using GetUniqueId = Result(UniqueId* id);
using CommInitRank = Result(Comm** comm, int count, UniqueId id, int rank);
using CommDestroy = Result(Comm*);
using CommAbort = Result(Comm*);
using CommGetAsyncError = Result(Comm*, Result* async_error);
using GroupStart = Result();
using GroupEnd = Result();
using AllReduce = Result(const void* input, void* output, std::size_t count_elements, DataType, Operation,
                         Comm*, Stream*);
using MemAlloc = Result(void** memory, std::size_t bytes);
using MemFree = Result(void* memory);
using CommWindowRegister = Result(Comm*, void* memory, std::size_t bytes, Window** window, int flags);
using CommWindowDeregister = Result(Comm*, Window*);

// Every entry that communicators need; filled when a library is opened.
struct Entries {
  GetVersion* get_version = nullptr;
  GetErrorString* get_error_string = nullptr;
  GetLastError* get_last_error = nullptr;  // nullptr before NCCL 2.13
  CommInitAll* comm_init_all = nullptr;
  GetUniqueId* get_unique_id = nullptr;
  CommInitRank* comm_init_rank = nullptr;
  CommDestroy* comm_destroy = nullptr;
  CommAbort* comm_abort = nullptr;
  CommGetAsyncError* comm_get_async_error = nullptr;
  GroupStart* group_start = nullptr;
  GroupEnd* group_end = nullptr;
  AllReduce* all_reduce = nullptr;
  // For windows, from NCCL 2.27 on; nullptr before (memory: from 2.19 on).
  MemAlloc* mem_alloc = nullptr;
  MemFree* mem_free = nullptr;
  CommWindowRegister* comm_window_register = nullptr;
  CommWindowDeregister* comm_window_deregister = nullptr;
};

}  // namespace arb::nccl::entry
