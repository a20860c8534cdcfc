// A libnccl.so.2 of our own: writes down what is called, fails where it is told to, logs as NCCL does.
// FAKE_CODE is what ncclGetVersion answers, and windows are there from 22700 on; FAKE_TEXT the version in the
// file's bytes; FAKE_BROKEN leaves an entry out.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>

namespace {

// Memory that one rank has registered.
struct Window {
  int rank;
  const char* memory;
  std::size_t bytes;
  void** handle;  // filled when the group ends; then null
  bool live;
};

struct State {
  std::string calls;             // separated by blanks
  std::string fail;              // the call that fails, as it is written down
  int asynchronous = 0;          // what ncclCommGetAsyncError finds
  int comms[64] = {};            // what communicators point to: their rank
  std::string hang;              // the call that never returns
  bool takes_windows = true;     // false: says yes and registers nothing
  bool symmetric_kernel = true;  // false: has none for what comes
  int open_groups = 0;
  std::map<void*, std::size_t> memory;
  std::deque<Window> windows;  // whose places are their handles
};

State& state() {
  static State instance;
  return instance;
}

// 0, or 3 (an internal error) for the call that is to fail.
int record(const std::string& call) {
  State& fake = state();
  fake.calls += fake.calls.empty() ? call : " " + call;
  while (call == fake.hang) ::sleep(1);
  return call == fake.fail ? 3 : 0;
}

void log(const std::string& line) {
  const char* const level = std::getenv("NCCL_DEBUG");
  const char* const path = std::getenv("NCCL_DEBUG_FILE");
  if (level == nullptr || path == nullptr) return;
  std::FILE* const file = std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "host:1:1 [0] NCCL INFO %s\n", line.c_str());
  std::fclose(file);
}

int rank_of(void* comm) {
  return *static_cast<int*>(comm);
}

bool has_live_window(int rank) {
  return std::any_of(state().windows.begin(), state().windows.end(),
                     [&](const Window& window) { return window.live && window.rank == rank; });
}

// As NCCL looks for it: by the address alone.
bool in_window(int rank, const void* address) {
  const char* const place = static_cast<const char*>(address);
  return std::any_of(state().windows.begin(), state().windows.end(), [&](const Window& window) {
    return window.live && window.rank == rank && place >= window.memory &&
           place < window.memory + window.bytes;
  });
}

}  // namespace

extern "C" {

#ifdef FAKE_TEXT
extern const char fake_text[];
const char fake_text[] = FAKE_TEXT;
#endif

const char* fake_calls() {
  return state().calls.c_str();
}
void fake_reset() {
  state() = State{};
}
void fake_fail(const char* call) {
  state().fail = call;
}
void fake_hang(const char* call) {
  state().hang = call;
}
void fake_takes_windows(bool takes) {
  state().takes_windows = takes;
}
void fake_symmetric_kernel(bool there) {
  state().symmetric_kernel = there;
}
void fake_asynchronous(int result) {
  state().asynchronous = result;
}

int ncclGetVersion(int* code) {
  *code = FAKE_CODE;
  return 0;
}
const char* ncclGetErrorString(int result) {
  return result == 3 ? "internal error" : "some error";
}
const char* ncclGetLastError(void*) {
  return state().fail.empty() ? "" : "the fake was told to\nfail";
}
int ncclCommInitAll(void** comms, int count, const int* devices) {
  std::string call = "init";
  for (int rank = 0; rank < count; ++rank) call.append(":").append(std::to_string(devices[rank]));
  const int result = record(call);
  if (result != 0) return result;
  for (int rank = 0; rank < count; ++rank) {
    state().comms[rank] = rank;
    comms[rank] = &state().comms[rank];
  }
  log("ncclCommInitAll comm 0x1 rank 0 nranks " + std::to_string(count) +
      " cudaDev 0 nvmlDev 0 busId 1000 commId 0x2 - Init START");
  log("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer");
  return 0;
}
struct FakeUniqueId {
  char internal[128];
};
int ncclGetUniqueId(FakeUniqueId* id) {
  for (int i = 0; i < 128; ++i) id->internal[i] = static_cast<char>(i + 1);
  return record("id");
}
int ncclCommInitRank(void** comm, int count, FakeUniqueId id, int rank) {
  for (int i = 0; i < 128; ++i) {
    if (id.internal[i] != static_cast<char>(i + 1)) return 3;
  }
  const int result = record("init" + std::to_string(rank) + "of" + std::to_string(count));
  if (result != 0) return result;
  state().comms[0] = rank;
  *comm = &state().comms[0];
  return 0;
}
int ncclCommDestroy(void* comm) {
  const char* const mistake = has_live_window(rank_of(comm)) ? ":with-a-window" : "";
  return record("destroy" + std::to_string(rank_of(comm)) + mistake);
}
int ncclCommAbort(void* comm) {
  for (Window& window : state().windows) window.live = window.live && window.rank != rank_of(comm);
  return record("abort" + std::to_string(rank_of(comm)));
}
#ifndef FAKE_BROKEN
int ncclCommGetAsyncError(void*, int* found) {
  *found = state().asynchronous;
  return 0;
}
#endif
int ncclGroupStart() {
  ++state().open_groups;
  return record("start");
}
int ncclGroupEnd() {
  --state().open_groups;
  for (Window& window : state().windows) {
    if (window.handle != nullptr && state().takes_windows) {
      *window.handle = &window;
      window.live = true;
    }
    window.handle = nullptr;
  }
  return record("end");
}
#if FAKE_CODE >= 22700
int ncclMemAlloc(void** memory, std::size_t bytes) {
  const int result = record("alloc:" + std::to_string(bytes));
  if (result != 0) return result;
  *memory = std::malloc(bytes);
  state().memory[*memory] = bytes;
  return 0;
}
int ncclMemFree(void* memory) {
  const bool used = std::any_of(state().windows.begin(), state().windows.end(),
                                [&](const Window& window) { return window.live && window.memory == memory; });
  state().memory.erase(memory);
  std::free(memory);
  return record(used ? "free:in-a-window" : "free");
}
int ncclCommWindowRegister(void* comm, void* memory, std::size_t bytes, void** window, int flags) {
  const int rank = rank_of(comm);
  const int result = record("register" + std::to_string(rank) + ":" + std::to_string(bytes));
  if (result != 0) return result;
  const auto found = state().memory.find(memory);
  if (flags != 1 || state().open_groups == 0 || found == state().memory.end() || found->second < bytes)
    return 4;
  state().windows.push_back({rank, static_cast<const char*>(memory), bytes, window, false});
  return 0;
}
int ncclCommWindowDeregister(void* comm, void* window) {
  static_cast<Window*>(window)->live = false;
  return record("deregister" + std::to_string(rank_of(comm)));
}
#endif
int ncclAllReduce(const void* input, void* output, std::size_t count, int type, int operation, void* comm,
                  void* stream) {
  if (rank_of(comm) == 0) {
    const bool symmetric = state().symmetric_kernel && in_window(0, input) && in_window(0, output);
    log((symmetric ? "AllReduce [Symmetric]: " : "AllReduce: ") +
        std::to_string(count * (type == 7 ? 4 : 2)) +
        (symmetric ? " Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1"
                   : " Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}"));
  }
  const auto number = [](const void* pointer) {
    return std::to_string(reinterpret_cast<std::size_t>(pointer));
  };
  const int result = record("reduce" + std::to_string(rank_of(comm)));
  state().calls += "(" + number(input) + "," + number(output) + "," + std::to_string(count) + "," +
                   std::to_string(type) + "," + std::to_string(operation) + "," + number(stream) + ")";
  return result;
}

}  // extern "C"
