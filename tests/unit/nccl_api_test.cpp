#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "catalog.h"
#include "has.h"
#include "nccl_api/communicators.h"
#include "nccl_api/configuration.h"
#include "nccl_api/debug_log.h"
#include "nccl_api/library.h"
#include "nccl_api/windows.h"

namespace arb::nccl {
namespace {

namespace fs = std::filesystem;
using test::has;

const std::string fakes = ARB_FAKES;  // NOLINT(cert-err58-cpp)

// A folder of its own that goes away.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "arb-nccl-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  Folder(Folder&&) = delete;
  Folder& operator=(Folder&&) = delete;

  // Writes a file, and the folders to it.
  fs::path write(const fs::path& file, const std::string& bytes) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file, std::ios::binary) << bytes;
    return path_ / file;
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string error_of_opening(const fs::path& path) {
  try {
    (void)Library::open(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The fake library's own controls.
class Fake {
 public:
  Fake() : library(Library::open(fakes + "/nccl/libnccl.so.2")) {
    handle_ = ::dlopen(library.path().c_str(), RTLD_NOW | RTLD_NOLOAD);
    reinterpret_cast<void (*)()>(::dlsym(handle_, "fake_reset"))();
  }
  ~Fake() { ::dlclose(handle_); }
  Fake(const Fake&) = delete;
  Fake& operator=(const Fake&) = delete;
  Fake(Fake&&) = delete;
  Fake& operator=(Fake&&) = delete;

  [[nodiscard]] std::string calls() const {
    return reinterpret_cast<const char* (*)()>(::dlsym(handle_, "fake_calls"))();
  }
  void fail(const char* call) const {
    reinterpret_cast<void (*)(const char*)>(::dlsym(handle_, "fake_fail"))(call);
  }
  void hang(const char* call) const {
    reinterpret_cast<void (*)(const char*)>(::dlsym(handle_, "fake_hang"))(call);
  }
  void takes_windows(bool takes) const {
    reinterpret_cast<void (*)(bool)>(::dlsym(handle_, "fake_takes_windows"))(takes);
  }
  void symmetric_kernel(bool there) const {
    reinterpret_cast<void (*)(bool)>(::dlsym(handle_, "fake_symmetric_kernel"))(there);
  }
  void asynchronous(int result) const {
    reinterpret_cast<void (*)(int)>(::dlsym(handle_, "fake_asynchronous"))(result);
  }

  Library library;

 private:
  void* handle_ = nullptr;
};

void* pointer(std::uintptr_t value) {
  return reinterpret_cast<void*>(value);  // never followed
}

void reduce_two(Communicators& communicators, Dtype dtype = Dtype::bf16) {
  const std::array<const void*, 2> inputs{pointer(1), pointer(2)};
  const std::array<void*, 2> outputs{pointer(3), pointer(4)};
  const std::array<void*, 2> streams{pointer(5), pointer(6)};
  communicators.all_reduce(inputs, outputs, 1000, dtype, streams);
}

constexpr std::array<std::uint32_t, 2> two_devices{0, 3};

TEST(NcclLibrary, DecodesVersionCodes) {
  EXPECT_EQ(version_from_code(22809), "2.28.9");
  EXPECT_EQ(version_from_code(21005), "2.10.5");
  EXPECT_EQ(version_from_code(20908), "2.9.8");
  EXPECT_EQ(version_from_code(2708), "2.7.8");
  EXPECT_EQ(version_from_code(2402), "2.4.2");
}

TEST(NcclLibrary, OpensByPathAndSaysWhichItIs) {
  const Library library = Library::open(fakes + "/nccl/../nccl/libnccl.so.2");
  EXPECT_EQ(library.version(), "2.28.9");
  EXPECT_EQ(library.name(), "2.28.9+cuda13.0");
  EXPECT_EQ(library.path(), fs::canonical(fakes + "/nccl/libnccl.so.2").string());
}

TEST(NcclLibrary, WithoutTextInTheFileTheCudaBuildIsUnknown) {
  const Library library = Library::open(fakes + "/nccl-old/libnccl.so.2");
  EXPECT_EQ(library.version(), "2.7.8");
  EXPECT_EQ(library.name(), "2.7.8");
}

TEST(NcclLibrary, RefusesWithOneSentence) {
  const Folder folder;
  const std::string text = error_of_opening(folder.write("libnccl.so.2", "this is no library, only text\n"));
  EXPECT_TRUE(has(text, "libnccl.so.2")) << text;
  EXPECT_TRUE(has(text, "invalid ELF header") || has(text, "file too short")) << text;
  EXPECT_TRUE(has(text, "; ")) << text;

  const std::string missing = error_of_opening(folder.path() / "nowhere" / "libnccl.so.2");
  EXPECT_TRUE(has(missing, "there is no such file")) << missing;

  const std::string directory = error_of_opening(folder.path());
  EXPECT_TRUE(has(directory, "it is a folder")) << directory;

  const std::string broken = error_of_opening(fakes + "/nccl-broken/libnccl.so.2");
  EXPECT_TRUE(has(broken, "it has no ncclCommGetAsyncError")) << broken;

  EXPECT_TRUE(has(error_of_opening(""), "no path to NCCL was given"));
  for (const std::string& sentence : {text, missing, directory, broken}) EXPECT_FALSE(has(sentence, "\n"));
}

TEST(NcclLocate, ReadsTheVersionOutOfBytes) {
  const auto version =
      version_in_bytes(std::string("\0NCCL version mismatch\0NCCL version 2.28.9+cuda13.0\0x", 51));
  ASSERT_TRUE(version);
  EXPECT_EQ(*version, (FileVersion{"2.28.9+cuda13.0", "2.28.9", "13.0"}));
  EXPECT_EQ(version_in_bytes("NCCL version 2.30.1rc2+cuda12.9").value().name, "2.30.1rc2+cuda12.9");
  EXPECT_FALSE(version_in_bytes(""));
  EXPECT_FALSE(version_in_bytes("NCCL version "));
  EXPECT_FALSE(version_in_bytes("NCCL version 2.28.9 compiled with CUDA 13.0"));
  EXPECT_FALSE(version_in_bytes("NCCL version 2.28.9+cuda"));
  EXPECT_FALSE(version_in_bytes("NCCL version 2.28+cuda13.0"));
  EXPECT_FALSE(version_in_bytes("NCCL version %d.%d.%d+cuda%d.%d"));
  EXPECT_FALSE(version_in_file("/nowhere/libnccl.so.2"));
  EXPECT_FALSE(version_in_file("/dev/null"));
}

TEST(NcclLocate, FindsEachFileOnceInEveryPlace) {
  const Folder folder;
  const std::string text = "NCCL version 2.27.5+cuda12.9";
  const fs::path& root = folder.path();
  const std::string by_variable = folder.write("ld/libnccl.so.2", text).string();
  const std::string by_cache = folder.write("system/libnccl.so.2", text).string();
  const std::string in_toolkit = folder.write("local/cuda-13.0/lib64/libnccl.so.2", text).string();
  fs::create_directory_symlink("cuda-13.0", root / "local" / "cuda");
  const fs::path packages = "lib/python3.11/site-packages/nvidia/nccl/lib";
  const std::string in_venv = folder.write("venv" / packages / "libnccl.so.2", text).string();
  folder.write("venv/bin/python3", "");
  const std::string in_pyenv =
      folder.write("pyenv/versions/3.11.7" / packages / "libnccl.so.2", text).string();
  folder.write("pyenv/shims/python3", "");
  const std::string fetched = folder.write("cache/nccl-cu13-2.28.9/lib/libnccl.so.2", "no version").string();
  folder.write("cache/13.0/lib/libnccl.so.2", text);
  const std::string cached_path = '\0' + by_cache + '\0';

  Places places;
  places.ld_library_path = ":" + (root / "ld").string() + "::/nowhere:";
  places.loader_cache = folder.write("ld.so.cache", "libnccl.so.2" + cached_path + cached_path + "end");
  places.cuda_home = root / "local" / "cuda";
  places.toolkits_parent = root / "local";
  places.path = (root / "venv/bin").string() + ":" + (root / "pyenv/shims").string() + ":/nowhere";
  places.toolkit_cache = root / "cache";
  EXPECT_EQ(find_paths(places),
            (std::vector<std::string>{by_variable, by_cache, in_toolkit, in_venv, in_pyenv, fetched}));
  EXPECT_TRUE(find_paths(Places{}).empty());
}

TEST(NcclCommunicators, ReduceInOneGroupInRankOrder) {
  const Fake fake;
  {
    Communicators communicators(fake.library, two_devices);
    EXPECT_EQ(communicators.ranks(), 2U);
    reduce_two(communicators);
    reduce_two(communicators, Dtype::fp32);
    communicators.check();
  }
  EXPECT_EQ(fake.calls(),
            "init:0:3 "
            "start reduce0(1,3,1000,9,0,5) reduce1(2,4,1000,9,0,6) end "
            "start reduce0(1,3,1000,7,0,5) reduce1(2,4,1000,7,0,6) end "
            "destroy0 destroy1");
}

TEST(NcclCommunicators, AProcessMayHoldOneRankOfSeveral) {
  const Fake fake;
  {
    const UniqueId id = make_unique_id(fake.library);
    Communicators communicators(fake.library, 2, 3, id);
    EXPECT_EQ(communicators.ranks(), 1U);
    const std::array<const void*, 1> input{pointer(1)};
    const std::array<void*, 1> output{pointer(3)};
    const std::array<void*, 1> stream{pointer(5)};
    communicators.all_reduce(input, output, 1000, Dtype::bf16, stream);
    communicators.check();
    fake.asynchronous(6);
    try {
      communicators.check();
      FAIL() << "the failure was lost";
    } catch (const Error& error) {
      EXPECT_TRUE(has(error.what(), "on rank 2 of 3")) << error.what();
    }
  }
  EXPECT_EQ(fake.calls(), "id init2of3 start reduce2(1,3,1000,9,0,5) end abort2");
  fake.fail("init1of3");
  EXPECT_THROW(Communicators(fake.library, 1, 3, make_unique_id(fake.library)), Error);
  fake.fail("id");
  EXPECT_THROW(make_unique_id(fake.library), Error);
}

TEST(NcclCommunicators, AFailureClosesTheGroupAndAborts) {
  const Fake fake;
  {
    Communicators communicators(fake.library, two_devices);
    fake.fail("reduce0");
    try {
      reduce_two(communicators, Dtype::fp16);
      FAIL() << "the failure was lost";
    } catch (const Error& error) {
      EXPECT_STREQ(
          error.what(),
          "ncclAllReduce failed on rank 0 of 2 with NCCL 2.28.9+cuda13.0: internal error (the fake was "
          "told to fail)");
    }
  }
  EXPECT_EQ(fake.calls(), "init:0:3 start reduce0(1,3,1000,6,0,5) end abort0 abort1");
}

TEST(NcclCommunicators, AnAsynchronousErrorIsFoundByCheck) {
  const Fake fake;
  {
    Communicators communicators(fake.library, two_devices);
    fake.asynchronous(7);  // in progress is no error
    communicators.check();
    fake.asynchronous(6);
    EXPECT_THROW(communicators.check(), Error);
  }
  EXPECT_EQ(fake.calls(), "init:0:3 abort0 abort1");
}

TEST(NcclCommunicators, AbortedOnesTakeNoMoreWork) {
  const Fake fake;
  {
    Communicators communicators(fake.library, two_devices);
    communicators.abort();
    EXPECT_THROW(reduce_two(communicators), Error);
  }
  EXPECT_EQ(fake.calls(), "init:0:3 abort0 abort1");
}

TEST(NcclCommunicators, MovedOnesAreDestroyedOnce) {
  const Fake fake;
  {
    Communicators first(fake.library, two_devices);
    const Communicators second(std::move(first));
    EXPECT_EQ(second.ranks(), 2U);
  }
  EXPECT_EQ(fake.calls(), "init:0:3 destroy0 destroy1");
}

TEST(NcclCommunicators, RefuseWhatCannotWork) {
  const Fake fake;
  EXPECT_THROW(Communicators(fake.library, {}), Error);
  EXPECT_THROW(Communicators(fake.library, std::array<std::uint32_t, 2>{1, 1}), Error);
  EXPECT_EQ(fake.calls(), "");
  Communicators communicators(fake.library, two_devices);
  const std::array<const void*, 1> one_input{pointer(1)};
  const std::array<void*, 2> two{pointer(3), pointer(4)};
  EXPECT_THROW(communicators.all_reduce(one_input, two, 1, Dtype::bf16, two), Error);
  fake.fail("init:0:3");
  EXPECT_THROW(Communicators(fake.library, two_devices), Error);
  EXPECT_EQ(fake.calls(), "init:0:3 init:0:3");
}

std::string choice_in(const std::string& log) {
  LogParser parser;
  parser.feed(log);
  const auto choice = parser.newest();
  return choice ? describe(*choice) : "";
}

constexpr const char* start_line =
    "box:77:91 [0] NCCL INFO ncclCommInitAll comm 0x55d0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 17000 "
    "commId "
    "0x9fd2 - Init START\n";
constexpr const char* reduce_line =
    "box:77:77 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}\n";
constexpr const char* destroy_line =
    "box:77:91 [0] NCCL INFO comm 0x55d0 rank 0 nranks 2 cudaDev 0 busId 17000 - Destroy COMPLETE\n";

TEST(NcclLogParser, ReadsLinesOfKnownVersions) {
  EXPECT_EQ(choice_in(reduce_line), "RING LL 8 channels");
  EXPECT_EQ(
      choice_in("[2026-01-02 03:04:05] box:77:77 [1] NCCL INFO AllReduce: 2 Bytes -> Algo TREE proto SIMPLE "
                "channel{Lo..Hi}={3..3}\n"),
      "TREE SIMPLE 1 channel");
  EXPECT_EQ(choice_in("box:7:7 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo NVLS_TREE proto SIMPLE "
                      "channel{Lo..Hi}={0..15}\n"),
            "NVLS_TREE SIMPLE 16 channels");
  // 2.27 has no nWorks, later ones add more.
  EXPECT_EQ(choice_in("box:7:7 [0] NCCL INFO AllReduce [Symmetric]: 2097152 Bytes -> Kernel "
                      "AllReduce_RSxLDMC_AGxSTMC nchannels 16 nthreads 512\n"),
            "AllReduce_RSxLDMC_AGxSTMC symmetric 16 channels");
  EXPECT_EQ(
      choice_in(
          "box:7:7 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels "
          "1 nthreads 512 nWorks 1 cgaClusterSize 2\n"),
      "AllReduce_AGxLL_R symmetric 1 channel");
}

TEST(NcclLogParser, TheNewestLineCountsAndPiecesJoin) {
  LogParser parser;
  const std::string log =
      std::string(reduce_line) +
      "box:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo TREE proto LL128 "
      "channel{Lo..Hi}={0..1}\nbox:1:1 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto LL "
      "channel{Lo..Hi}={0..0}\n";
  for (const char letter : log) parser.feed({&letter, 1});
  ASSERT_TRUE(parser.newest());
  EXPECT_EQ(*parser.newest(), (Choice{8, "TREE", "LL128", 2, {}}));
  parser.feed("box:1:1 [0] NCCL INFO AllReduce: 16 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}");
  EXPECT_EQ(parser.newest()->bytes, 8U);  // that line has not ended yet
}

TEST(NcclLogParser, AddsTransportsOfTheRingAndTree) {
  const std::string direct =
      "box:7:9 [0] NCCL INFO Channel 00/08 : 0[0] -> 1[1] via P2P/direct pointer/read\n";
  const std::string memory = "box:7:9 [1] NCCL INFO Channel 01 : 1[1] -> 0[0] via SHM/direct/direct\n";
  EXPECT_EQ(choice_in(start_line + direct + direct + reduce_line),
            "RING LL 8 channels P2P/direct pointer/read");
  EXPECT_EQ(choice_in(start_line + direct + memory + reduce_line),
            "RING LL 8 channels P2P/direct pointer/read+SHM/direct/direct");
  EXPECT_EQ(choice_in("box:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n" +
                      std::string(reduce_line)),
            "RING LL 8 channels NET/IB/0/GDRDMA");
  // NVLS does not go over those connections.
  EXPECT_EQ(
      choice_in(
          start_line + direct +
          "box:7:7 [0] NCCL INFO AllReduce: 8 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..3}\n"),
      "NVLS SIMPLE 4 channels");
  // Two communicators alive: told where they agree only; after both are gone the next one starts afresh.
  EXPECT_EQ(choice_in(std::string(start_line) + start_line + direct + reduce_line),
            "RING LL 8 channels P2P/direct pointer/read");
  const std::string both = std::string(start_line) + direct + start_line + memory + reduce_line;
  EXPECT_EQ(choice_in(both), "RING LL 8 channels");
  EXPECT_EQ(choice_in(both + destroy_line + destroy_line + start_line + memory + reduce_line),
            "RING LL 8 channels SHM/direct/direct");
}

TEST(NcclLogParser, GarbageIsUnknownAndNeverAGuess) {
  const std::string prefix = "box:1:1 [0] NCCL INFO ";
  for (const std::string line : {
           "",
           "AllReduce",
           "AllReduce: ",
           "AllReduce: 8 Bytes",
           "AllReduce: 8 Bytes -> Algo",
           "AllReduce: 8 Bytes -> Algo RING proto LL",
           "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..",
           "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={7..0}",
           "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..4294967295}",
           "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={-1..0}",
           "AllReduce: 8 Bytes -> Algo 1 proto 2 time 3970.683594",
           "AllReduce: 99999999999999999999999 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}",
           "AllReduce: -8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}",
           "AllReduce [Symmetric]: 8 Bytes -> Kernel K nchannels 0 nthreads 1",
           "AllReduce: opCount 16 sendbuff 0x93 recvbuff 0x96 count 2 datatype 7 op 0 root 0",
           "Channel 00/0 : 0[0] -> 1[1] via ",
       }) {
    EXPECT_EQ(choice_in(prefix + line + "\n"), "") << line;
  }
  EXPECT_EQ(choice_in("AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..7}\n"), "");
  EXPECT_EQ(choice_in(std::string("\0\xff\n\n\nNCCL INFO \n", 16)), "");
  // A newer line in an unknown form makes an older choice stale.
  EXPECT_EQ(choice_in(reduce_line + prefix + "AllReduce: 8 Bytes -> Algo 1 proto 2 time 3.9\n"), "");
}

TEST(NcclDebugLog, RecordsWhatTheLibraryLogs) {
  ::unsetenv("NCCL_DEBUG");
  {
    DebugLog log;
    ASSERT_EQ(log.why_not(), "");
    EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "INFO");
    EXPECT_STREQ(std::getenv("NCCL_DEBUG_SUBSYS"), "INIT,TUNING");
    EXPECT_FALSE(log.choice_for(2000));
    const Fake fake;
    Communicators communicators(fake.library, two_devices);
    EXPECT_FALSE(log.choice_for(2000));
    reduce_two(communicators);
    ASSERT_TRUE(log.choice_for(2000));
    EXPECT_EQ(describe(*log.choice_for(2000)), "RING LL 8 channels P2P/direct pointer");
    EXPECT_FALSE(log.choice_for(4000));
    reduce_two(communicators, Dtype::fp32);
    EXPECT_TRUE(log.choice_for(4000));
  }
  EXPECT_EQ(std::getenv("NCCL_DEBUG"), nullptr);
  EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), nullptr);
}

TEST(NcclDebugLog, LeavesTheUsersSettingAlone) {
  ::setenv("NCCL_DEBUG", "WARN", 1);
  {
    DebugLog log;
    EXPECT_TRUE(has(log.why_not(), "NCCL_DEBUG is set"));
    EXPECT_FALSE(log.choice_for(2000));
    EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), nullptr);
  }
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "WARN");
  ::unsetenv("NCCL_DEBUG");
}

// --- windows

// The steps of a process that holds all ranks, written down.
struct Walk {
  std::string steps = {};
  std::string refusal = {};  // agree() throws it
  std::chrono::milliseconds deadline{10'000};

  Windows::Steps of() {
    return {.make_current = [this](std::size_t rank) { steps += "current" + std::to_string(rank) + " "; },
            .agree =
                [this](const std::string& problem) {
                  steps += problem.empty() ? "agree " : "disagree ";
                  if (!problem.empty()) throw Error(problem);
                  if (!refusal.empty()) throw std::runtime_error(refusal);
                },
            .deadline = deadline};
  }
};

// One allreduce from the begin of each window to its middle.
void reduce_in(const Windows& windows, Communicators& communicators, std::uint64_t middle_bytes = 1 << 20) {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (std::size_t rank = 0; rank < communicators.ranks(); ++rank) {
    inputs.push_back(windows.data(rank));
    outputs.push_back(windows.data(rank) + middle_bytes);
  }
  const std::vector<void*> streams(communicators.ranks(), pointer(5));
  communicators.all_reduce(inputs, outputs, 1000, Dtype::bf16, streams);
}

TEST(NcclWindows, AreRegisteredInOneGroupAndGivenBackBeforeTheCommunicatorsAndTheirMemory) {
  const Fake fake;
  Walk walk;
  {
    Windows windows;
    Communicators communicators(fake.library, two_devices);
    windows.reserve(communicators, 5000, walk.of());
    EXPECT_TRUE(windows.registered());
    EXPECT_NE(windows.data(0), windows.data(1));
  }
  EXPECT_EQ(walk.steps, "agree current0 current1 agree ");
  EXPECT_EQ(fake.calls(),
            "init:0:3 alloc:2097152 alloc:2097152 start register0:2097152 register1:2097152 end "
            "deregister0 deregister1 destroy0 destroy1 free free");
}

TEST(NcclWindows, GrowAndGiveBackWhatIsFarTooLarge) {
  const Fake fake;
  Walk walk;
  Windows windows;
  Communicators communicators(fake.library, two_devices);
  windows.reserve(communicators, 3 << 20, walk.of());
  const std::string first = fake.calls();
  windows.reserve(communicators, 1, walk.of());
  windows.reserve(communicators, 4 << 20, walk.of());
  EXPECT_EQ(fake.calls(), first) << "4 MiB are there";
  windows.reserve(communicators, (300ull << 20) + 1, walk.of());
  EXPECT_EQ(fake.calls(), first +
                              " deregister0 deregister1 free free alloc:316669952 alloc:316669952 start "
                              "register0:316669952 register1:316669952 end");
  const std::string large = fake.calls();
  windows.reserve(communicators, 100ull << 20, walk.of());
  EXPECT_EQ(fake.calls(), large) << "less than four times too large";
  windows.reserve(communicators, 1 << 20, walk.of());
  EXPECT_EQ(fake.calls(), large +
                              " deregister0 deregister1 free free alloc:2097152 alloc:2097152 start "
                              "register0:2097152 register1:2097152 end");
}

TEST(NcclWindows, AProcessMayHoldOneRankOfSeveral) {
  const Fake fake;
  Walk walk;
  {
    Windows windows;
    Communicators communicators(fake.library, 2, 3, make_unique_id(fake.library));
    windows.reserve(communicators, 1, walk.of());
  }
  EXPECT_EQ(fake.calls(), "id init2of3 alloc:2097152 start register2:2097152 end deregister2 destroy2 free");
}

TEST(NcclWindows, NobodyRegistersUnlessAllHaveRoom) {
  const Fake fake;
  Windows windows;
  Communicators communicators(fake.library, two_devices);
  Walk walk;
  fake.fail("alloc:2097152");
  try {
    windows.reserve(communicators, 1, walk.of());
    FAIL() << "the failure was lost";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "NCCL 2.28.9+cuda13.0 could not allocate 2 MiB for a window: internal error");
  }
  EXPECT_EQ(walk.steps, "agree current0 disagree ");
  EXPECT_EQ(fake.calls(), "init:0:3 alloc:2097152");
  fake.fail("");
  // Another process that has none.
  Walk refused{.refusal = "rank 1 has no room"};
  EXPECT_THROW(windows.reserve(communicators, 1, refused.of()), std::runtime_error);
  EXPECT_FALSE(has(fake.calls(), "register"));
}

TEST(NcclWindows, AFailureToRegisterIsASentenceAndEndsTheCommunicators) {
  const Fake fake;
  Walk walk;
  {
    Windows windows;
    Communicators communicators(fake.library, two_devices);
    fake.fail("register1:2097152");
    try {
      windows.reserve(communicators, 1, walk.of());
      FAIL() << "the failure was lost";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "ncclCommWindowRegister failed on rank 1 of 2 with NCCL 2.28.9+cuda13.0: internal error "
                   "(the fake was told to fail)");
    }
  }
  EXPECT_EQ(fake.calls(),
            "init:0:3 alloc:2097152 alloc:2097152 start register0:2097152 register1:2097152 end "
            "abort0 abort1 free free");
}

TEST(NcclWindowsDeathTest, ARegistrationThatHangsEndsTheProcessWithASentence) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Fake fake;
  Walk walk{.deadline = std::chrono::milliseconds(50)};
  Windows windows;
  Communicators communicators(fake.library, two_devices);
  fake.hang("end");
  EXPECT_EXIT(windows.reserve(communicators, 1, walk.of()), testing::ExitedWithCode(2),
              "did not come back from registering a window within 50 ms");
}

TEST(NcclWindowsDeathTest, GivingOneBackThatHangsEndsTheProcessWithASentence) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Fake fake;
  Walk walk{.deadline = std::chrono::milliseconds(50)};
  Windows windows;
  Communicators communicators(fake.library, two_devices);
  windows.reserve(communicators, 1, walk.of());
  fake.hang("free");
  EXPECT_EXIT(windows.reserve(communicators, 4 << 20, walk.of()), testing::ExitedWithCode(2),
              "NCCL did not come back from giving a window back within 50 ms");
  fake.hang("nothing");  // this process has one to give back as well
}

TEST(NcclWindows, ALibraryWithoutThemSaysSo) {
  const Library library = Library::open(fakes + "/nccl-no-windows/libnccl.so.2");
  EXPECT_EQ(library.window_problem(),
            "NCCL 2.26.2+cuda12.8 has no ncclCommWindowRegister: symmetric windows need NCCL 2.27 or later");
  EXPECT_EQ(Library::open(fakes + "/nccl/libnccl.so.2").window_problem(), "");
  Communicators communicators(library, two_devices);
  Walk walk;
  Windows windows;
  try {
    windows.reserve(communicators, 1, walk.of());
    FAIL() << "it has none";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), library.window_problem());
  }
  reduce_two(communicators);  // still of use
}

TEST(NcclWindows, WhatRanIsASymmetricKernelOrNamesTheFallback) {
  ::unsetenv("NCCL_DEBUG");
  DebugLog log;
  const Fake fake;
  Walk walk;
  Windows windows;
  Communicators communicators(fake.library, two_devices);
  windows.reserve(communicators, 1, walk.of());
  reduce_in(windows, communicators);
  EXPECT_EQ(what_ran(log.choice_for(2000), Window::registered, {}), "AllReduce_AGxLL_R symmetric 4 channels");
  EXPECT_FALSE(fell_back(log.choice_for(2000), Window::registered));
  fake.symmetric_kernel(false);
  reduce_in(windows, communicators);
  EXPECT_EQ(what_ran(log.choice_for(2000), Window::registered, {}),
            "RING LL 8 channels P2P/direct pointer (fell back: not a symmetric kernel)");
  EXPECT_TRUE(fell_back(log.choice_for(2000), Window::registered));
  // A contender without windows has nothing to fall back from.
  EXPECT_EQ(what_ran(log.choice_for(2000), Window::none, {}), "RING LL 8 channels P2P/direct pointer");
  // What the log does not say is not known.
  EXPECT_EQ(what_ran(log.choice_for(4000), Window::registered, {}), "");
  EXPECT_FALSE(fell_back(log.choice_for(4000), Window::registered));
}

TEST(NcclWindows, OneThatWasNotRegisteredIsAFallbackAlsoWithoutALog) {
  const Fake fake;
  Walk walk;
  {
    Windows windows;
    Communicators communicators(fake.library, two_devices);
    fake.takes_windows(false);
    windows.reserve(communicators, 1, walk.of());
    EXPECT_FALSE(windows.registered());
  }
  EXPECT_FALSE(has(fake.calls(), "deregister"));
  EXPECT_EQ(what_ran({}, Window::unregistered, {}), "(fell back: NCCL registered no window)");
  EXPECT_TRUE(fell_back({}, Window::unregistered));
}

TEST(NcclConfiguration, IsWhatTheEnvironmentSays) {
  int configured = 0;
  for (const CatalogRow& row : catalog()) {
    if (row.nccl_variables.empty()) {
      EXPECT_TRUE(configuration_here(row).users.empty() && configuration_here(row).problem.empty());
      continue;
    }
    ++configured;
    EXPECT_EQ(row.source, Source::nccl);
    for (const NcclVariable& variable : row.nccl_variables) ::unsetenv(std::string(variable.name).c_str());
    EXPECT_TRUE(has(configuration_here(row).problem, "is not set")) << row.contender;
    for (const NcclVariable& variable : row.nccl_variables)
      ::setenv(std::string(variable.name).c_str(), std::string(variable.value).c_str(), 1);
    EXPECT_TRUE(configuration_here(row).problem.empty());
    EXPECT_TRUE(configuration_here(row).users.empty());
    const std::string name(row.nccl_variables.back().name);
    ::setenv(name.c_str(), "16", 1);
    EXPECT_TRUE(configuration_here(row).problem.empty());
    EXPECT_EQ(what_ran({}, Window::none, configuration_here(row)), "(the user's " + name + "=16)");
    for (const NcclVariable& variable : row.nccl_variables) ::unsetenv(std::string(variable.name).c_str());
  }
  EXPECT_GT(configured, 0);
}

TEST(NcclReal, ARealLibraryOpensAndAgreesWithItsFile) {
  const std::vector<std::string> paths = find_paths(Places::from_environment());
  const auto real =
      std::ranges::find_if(paths, [](const std::string& path) { return version_in_file(path).has_value(); });
  if (real == paths.end()) {
    GTEST_SKIP() << "no NCCL on this machine; scripts/toolkits.py fetch nccl-cu13==2.28.9 would bring one";
  }
  const Library library = Library::open(*real);
  EXPECT_EQ(library.path(), *real);
  EXPECT_EQ(library.name(), version_in_file(*real)->name);
  int minor = 0;
  ASSERT_EQ(std::sscanf(library.version().c_str(), "2.%d.", &minor), 1);
  EXPECT_EQ(library.window_problem().empty(), minor >= 27) << library.window_problem();
}

}  // namespace
}  // namespace arb::nccl
