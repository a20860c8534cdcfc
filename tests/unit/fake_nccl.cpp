// A libnccl.so.2 of our own: writes down what is called, fails where it is told to, logs as NCCL does.
// FAKE_CODE is what ncclGetVersion answers; FAKE_TEXT the version in the file's bytes; FAKE_BROKEN leaves an
// entry out.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct State {
  std::string calls;     // separated by blanks
  std::string fail;      // the call that fails, as it is written down
  int asynchronous = 0;  // what ncclCommGetAsyncError finds
  int comms[64] = {};    // what communicators point to: their rank
};

State& state() {
  static State instance;
  return instance;
}

// 0, or 3 (an internal error) for the call that is to fail.
int record(const std::string& call) {
  State& fake = state();
  fake.calls += fake.calls.empty() ? call : " " + call;
  return call == fake.fail ? 3 : 0;
}

void log(const std::string& line) {
  const char* const level = std::getenv("NCCL_DEBUG");
  const char* const path = std::getenv("NCCL_DEBUG_FILE");
  if (level == nullptr || path == nullptr) return;
  static std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return;
  std::fprintf(file, "host:1:1 [0] NCCL INFO %s\n", line.c_str());
  std::fflush(file);
}

int rank_of(void* comm) {
  return *static_cast<int*>(comm);
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
  return record("destroy" + std::to_string(rank_of(comm)));
}
int ncclCommAbort(void* comm) {
  return record("abort" + std::to_string(rank_of(comm)));
}
#ifndef FAKE_BROKEN
int ncclCommGetAsyncError(void*, int* found) {
  *found = state().asynchronous;
  return 0;
}
#endif
int ncclGroupStart() {
  return record("start");
}
int ncclGroupEnd() {
  return record("end");
}
int ncclAllReduce(const void* input, void* output, std::size_t count, int type, int operation, void* comm,
                  void* stream) {
  if (rank_of(comm) == 0) {
    log("AllReduce: " + std::to_string(count * (type == 7 ? 4 : 2)) +
        " Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}");
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
