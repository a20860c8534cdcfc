// Compiled only where <nccl.h> is found: entries.h says what NCCL's own header says. Makes no code.
#include <nccl.h>

#include <type_traits>

#include "nccl_api/entries.h"

namespace arb::nccl::entry {
namespace {

// The type of <nccl.h> that a type of entries.h stands for.
template <typename Type>
struct Theirs {
  using type = Type;
};
template <typename Type>
using theirs = typename Theirs<Type>::type;
template <>
struct Theirs<Result> {
  using type = ncclResult_t;
};
template <>
struct Theirs<DataType> {
  using type = ncclDataType_t;
};
template <>
struct Theirs<Operation> {
  using type = ncclRedOp_t;
};
template <>
struct Theirs<Comm*> {
  using type = ncclComm_t;
};
template <>
struct Theirs<Comm**> {
  using type = ncclComm_t*;
};
template <>
struct Theirs<Result*> {
  using type = ncclResult_t*;
};
template <>
struct Theirs<UniqueId> {
  using type = ncclUniqueId;
};
template <>
struct Theirs<UniqueId*> {
  using type = ncclUniqueId*;
};
template <>
struct Theirs<Stream*> {
  using type = cudaStream_t;
};
#if NCCL_VERSION_CODE >= 22700
template <>
struct Theirs<Window*> {
  using type = ncclWindow_t;
};
template <>
struct Theirs<Window**> {
  using type = ncclWindow_t*;
};
#endif
template <typename Return, typename... Arguments>
struct Theirs<Return(Arguments...)> {
  using type = theirs<Return>(theirs<Arguments>...);
};

template <typename Ours, typename Declared>
constexpr bool same_function = std::is_same_v<theirs<Ours>, Declared>;

static_assert(same_function<GetVersion, decltype(::ncclGetVersion)>);
static_assert(same_function<GetErrorString, decltype(::ncclGetErrorString)>);
static_assert(same_function<GetLastError, decltype(::ncclGetLastError)>);
static_assert(same_function<CommInitAll, decltype(::ncclCommInitAll)>);
static_assert(same_function<GetUniqueId, decltype(::ncclGetUniqueId)>);
static_assert(same_function<CommInitRank, decltype(::ncclCommInitRank)>);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(same_function<CommDestroy, decltype(::ncclCommDestroy)>);
static_assert(same_function<CommAbort, decltype(::ncclCommAbort)>);
static_assert(same_function<CommGetAsyncError, decltype(::ncclCommGetAsyncError)>);
static_assert(same_function<GroupStart, decltype(::ncclGroupStart)>);
static_assert(same_function<GroupEnd, decltype(::ncclGroupEnd)>);
static_assert(same_function<AllReduce, decltype(::ncclAllReduce)>);
#if NCCL_VERSION_CODE >= 21900
static_assert(same_function<MemAlloc, decltype(::ncclMemAlloc)>);
static_assert(same_function<MemFree, decltype(::ncclMemFree)>);
#endif
#if NCCL_VERSION_CODE >= 22700
static_assert(same_function<CommWindowRegister, decltype(::ncclCommWindowRegister)>);
static_assert(same_function<CommWindowDeregister, decltype(::ncclCommWindowDeregister)>);
static_assert(window_symmetric == NCCL_WIN_COLL_SYMMETRIC);
#endif

// Enums are passed as their underlying integers, so size and values are what the call depends on.
template <typename Ours>
constexpr bool same_integer =
    std::is_same_v<std::underlying_type_t<Ours>, std::underlying_type_t<theirs<Ours>>>;

static_assert(same_integer<Result> && same_integer<DataType> && same_integer<Operation>);
static_assert(static_cast<ncclResult_t>(Result::success) == ncclSuccess);
static_assert(static_cast<ncclResult_t>(Result::unhandled_cuda_error) == ncclUnhandledCudaError);
static_assert(static_cast<ncclResult_t>(Result::system_error) == ncclSystemError);
static_assert(static_cast<ncclResult_t>(Result::internal_error) == ncclInternalError);
static_assert(static_cast<ncclResult_t>(Result::invalid_argument) == ncclInvalidArgument);
static_assert(static_cast<ncclResult_t>(Result::invalid_usage) == ncclInvalidUsage);
static_assert(static_cast<ncclResult_t>(Result::remote_error) == ncclRemoteError);
static_assert(static_cast<ncclResult_t>(Result::in_progress) == ncclInProgress);
static_assert(static_cast<ncclDataType_t>(DataType::float16) == ncclFloat16);
static_assert(static_cast<ncclDataType_t>(DataType::float32) == ncclFloat32);
static_assert(static_cast<ncclDataType_t>(DataType::bfloat16) == ncclBfloat16);
static_assert(static_cast<ncclRedOp_t>(Operation::sum) == ncclSum);

}  // namespace
}  // namespace arb::nccl::entry
