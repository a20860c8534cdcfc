// What the probe's child processes do: one trial each, whatever it does to the process.
#include "probe/trials.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <thread>

#include "cuda_api/device.h"
#include "cuda_api/error.h"
#include "cuda_api/library.h"
#include "cuda_api/memory.h"
#include "cuda_api/share.h"
#include "cuda_api/stream.h"
#include "nvml_api/nvml.h"
#include "probe/json.h"
#include "probe/probe.h"
#include "probe/version.h"
#include "text.h"

namespace arb::probe {
namespace {

struct Work {
  std::byte* to;
  const std::byte* from;
  std::uint32_t count;
  std::uint32_t seed;
};

constexpr std::uint32_t words = 1 << 18;  // 1 MiB
constexpr std::uint32_t threads = 256;
constexpr std::uint32_t cluster_blocks = 2;

// What goes wrong is an exception with one sentence.

class Failed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::vector<std::byte> bytes_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw Failed("cannot read " + file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::uint32_t number_from(const std::string& text) {
  const auto number = Version::parse(text);
  if (!number) throw Failed("no number: " + text);
  return static_cast<std::uint32_t>(number->part(0));
}

std::uint32_t pattern(std::uint32_t seed, std::uint32_t i) {
  return seed + i * 2654435761U;
}

// How many words are not what `seed` makes them.
std::size_t wrong_words(const cuda::Context& context, const std::byte* data, std::uint32_t seed) {
  std::vector<std::uint32_t> host(words);
  cuda::copy_to_host(context, std::as_writable_bytes(std::span(host)), data);
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < words; ++i) wrong += host[i] == pattern(seed, i) ? 0U : 1U;
  return wrong;
}

void fill(const cuda::Context& context, std::byte* data, std::uint32_t seed) {
  std::vector<std::uint32_t> host(words);
  for (std::uint32_t i = 0; i < words; ++i) host[i] = pattern(seed, i);
  cuda::copy_to_device(context, data, std::as_bytes(std::span(host)));
}

// Waits for the stream; the parent's deadline ends a wait that does not.
void finish(const cuda::Stream& stream) {
  while (!stream.done()) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

cuda::GridShape grid() {
  return {.blocks = words / threads, .threads = threads};
}

// The kernels of a cubin.
class Kernels {
 public:
  explicit Kernels(const std::string& file) : bytes_(bytes_of(file)), library_(bytes_, file) {}
  void launch(const char* name, const cuda::Stream& stream, const Work& work) const {
    stream.launch(library_.kernel(name, sizeof(Work)), grid(), work);
    finish(stream);
  }
  [[nodiscard]] cuda::Kernel kernel(const char* name) const { return library_.kernel(name, sizeof(Work)); }

 private:
  std::vector<std::byte> bytes_;
  cuda::Library library_;
};

std::string run_cubin(const std::string& cubin, std::uint32_t ordinal) {
  const cuda::Context context(ordinal);
  const cuda::Stream stream(context);
  const cuda::DeviceBuffer buffer(context, words * 4);
  fill(context, buffer.data(), 1);
  const Kernels kernels(cubin);
  kernels.launch("probe_write", stream, {buffer.data(), nullptr, words, 77});
  if (const std::size_t wrong = wrong_words(context, buffer.data(), 77); wrong != 0)
    throw Failed(fmt::format("it ran and left {} of {} words wrong", wrong, words));
  return fmt::format("ran on GPU {} and wrote what it should", ordinal);
}

std::string run_cluster(const std::string& cubin, std::uint32_t ordinal) {
  const cuda::Context context(ordinal);
  const cuda::Stream stream(context);
  const cuda::DeviceBuffer buffer(context, words * 4);
  fill(context, buffer.data(), 1);
  const Kernels kernels(cubin);
  const Work work{buffer.data(), nullptr, words, 1000};
  constexpr std::uint32_t blocks = 4 * cluster_blocks;
  cuda::launch_clusters(stream, kernels.kernel("probe_cluster"), {.blocks = blocks, .threads = 32},
                        cluster_blocks, &work);
  finish(stream);
  std::array<std::uint32_t, blocks> got{};
  cuda::copy_to_host(context, std::as_writable_bytes(std::span(got)), buffer.data());
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const std::uint32_t expected = 1000 + (block + 1) % cluster_blocks;
    if (got.at(block) != expected)
      throw Failed(fmt::format("block {} read {} from its neighbour's shared memory where {} was left", block,
                               got.at(block), expected));
  }
  return fmt::format("clusters of {} blocks ran on GPU {} and read each other's shared memory",
                     cluster_blocks, ordinal);
}

// Both directions of one pair: what `from` writes into `to`'s memory, and what it reads from there, by the
// copy engine and, given a cubin, by the multiprocessors.
std::string p2p_pair(const cuda::Context& from, const cuda::Context& to, const Kernels* kernels) {
  from.enable_peer(to);
  const cuda::Stream stream(from);
  const cuda::DeviceBuffer mine(from, words * 4);
  const cuda::DeviceBuffer theirs(to, words * 4);
  std::uint32_t seed = 11;
  const auto expect = [&](const char* what, const cuda::Context& context, const std::byte* data) {
    if (const std::size_t wrong = wrong_words(context, data, seed); wrong != 0)
      throw Failed(fmt::format("{}: {} of {} words are wrong", what, wrong, words));
  };
  fill(from, mine.data(), seed);
  stream.copy(theirs.data(), mine.data(), words * 4);
  finish(stream);
  expect("written by the copy engine", to, theirs.data());
  seed = 22;
  fill(to, theirs.data(), seed);
  stream.copy(mine.data(), theirs.data(), words * 4);
  finish(stream);
  expect("read by the copy engine", from, mine.data());
  if (kernels == nullptr) return "copies arrived both ways; no compiled kernel for stores and loads";
  seed = 33;
  kernels->launch("probe_write", stream, {theirs.data(), nullptr, words, seed});
  expect("stored by a kernel", to, theirs.data());
  seed = 44;
  fill(to, theirs.data(), seed);
  kernels->launch("probe_copy", stream, {mine.data(), theirs.data(), words, 0});
  expect("loaded by a kernel", from, mine.data());
  return "copies, stores and loads arrived";
}

// One line a pair, before and after, so that the parent knows which one hung.
int p2p_from(const std::vector<std::string>& task) {
  const std::uint32_t source = number_from(task.at(1));
  std::optional<Kernels> kernels;
  const cuda::Context from(source);
  if (task.at(2) != "-") kernels.emplace(task.at(2));
  for (std::size_t i = 3; i < task.size(); ++i) {
    const std::uint32_t target = number_from(task[i]);
    std::cout << "begin " << target << std::endl;
    try {
      const cuda::Context to(target);
      const std::string detail =
          p2p_pair(from, to, kernels ? &*kernels : nullptr);  // before anything is said
      std::cout << "worked " << target << " " << detail << std::endl;
    } catch (const std::exception& error) {
      std::cout << "failed " << target << " " << one_line(error.what(), 200) << std::endl;
    }
  }
  return 0;
}

// The two ends of a socket between this process and its fork, made before the driver is touched.
class Twins {
 public:
  Twins() {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()) != 0)
      throw Failed("no socket pair");
    child_ = ::fork();
    if (child_ < 0) throw Failed("no second process");
  }
  ~Twins() {
    ::close(ends_[0]);
    ::close(ends_[1]);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }
  Twins(const Twins&) = delete;
  Twins& operator=(const Twins&) = delete;
  [[nodiscard]] bool is_child() const { return child_ == 0; }

  void send(const void* bytes, std::size_t size, int descriptor = -1) const {
    iovec part{.iov_base = const_cast<void*>(bytes), .iov_len = size};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (descriptor >= 0) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    if (::sendmsg(end(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
      throw Failed("the other process is gone");
  }
  // Returns a descriptor that came along, or -1.
  int receive(void* bytes, std::size_t size) const {
    iovec part{.iov_base = bytes, .iov_len = size};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(end(), &message, MSG_WAITALL) != static_cast<ssize_t>(size))
      throw Failed("the other process is gone");
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof(int));
    return descriptor;
  }
  // A sentence of the other's, empty when all went well.
  void send_text(const std::string& text) const {
    std::array<char, 256> bytes{};
    std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size() - 1));
    send(bytes.data(), bytes.size());
  }
  [[nodiscard]] std::string receive_text() const {
    std::array<char, 256> bytes{};
    receive(bytes.data(), bytes.size());
    return bytes.data();
  }

 private:
  [[nodiscard]] int end() const { return ends_.at(is_child() ? 1 : 0); }
  std::array<int, 2> ends_{-1, -1};
  pid_t child_ = -1;
};

// The importing half: checks what the other wrote, answers with a pattern of its own.
void answer(const cuda::Context& context, std::byte* data) {
  if (const std::size_t wrong = wrong_words(context, data, 5); wrong != 0)
    throw Failed(fmt::format("{} of {} words did not arrive", wrong, words));
  fill(context, data, 6);
}

std::string between_processes(bool vmm, std::uint32_t first, std::uint32_t second) {
  const Twins twins;
  if (twins.is_child()) {
    std::string problem;
    try {
      if (vmm) {
        std::uint64_t bytes = 0;
        const int descriptor = twins.receive(&bytes, sizeof bytes);
        const cuda::Context context(second);
        const cuda::SharedBuffer buffer(context, descriptor, bytes);
        answer(context, buffer.data());
      } else {
        cuda::IpcHandle handle{};
        twins.receive(handle.data(), handle.size());
        const cuda::Context context(second);
        const cuda::IpcBuffer buffer(context, handle);
        answer(context, buffer.data());
      }
    } catch (const std::exception& error) {
      problem = one_line(error.what(), 250);
    }
    twins.send_text(problem);
    ::_exit(0);
  }
  const cuda::Context context(first);
  std::string problem;
  if (vmm) {
    const cuda::SharedBuffer buffer(context, words * 4);
    fill(context, buffer.data(), 5);
    const int descriptor = buffer.export_descriptor();
    const std::uint64_t bytes = buffer.size_bytes();
    twins.send(&bytes, sizeof bytes, descriptor);
    ::close(descriptor);
    problem = twins.receive_text();
    if (problem.empty() && wrong_words(context, buffer.data(), 6) != 0)
      problem = "what the importer wrote did not arrive";
  } else {
    const cuda::DeviceBuffer buffer(context, words * 4);
    fill(context, buffer.data(), 5);
    const cuda::IpcHandle handle = cuda::ipc_handle(context, buffer);
    twins.send(handle.data(), handle.size());
    problem = twins.receive_text();
    if (problem.empty() && wrong_words(context, buffer.data(), 6) != 0)
      problem = "what the other process wrote did not arrive";
  }
  if (!problem.empty()) throw Failed(problem);
  return fmt::format("memory of GPU {} was opened by a second process on GPU {}, and written both ways",
                     first, second);
}

// NVRTC's C entries, declared by ourselves.
struct Nvrtc {
  using Program = void*;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*cubin_size)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
};

std::string compile_nvrtc(const std::string& library, const std::string& architecture,
                          const std::string& target) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw Failed(fmt::format("it cannot be loaded: {}", ::dlerror()));
  Nvrtc nvrtc;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr) throw Failed(fmt::format("it has no {}", name));
  };
  find(nvrtc.create, "nvrtcCreateProgram");
  find(nvrtc.compile, "nvrtcCompileProgram");
  find(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  find(nvrtc.cubin, "nvrtcGetCUBIN");
  find(nvrtc.log_size, "nvrtcGetProgramLogSize");
  find(nvrtc.log, "nvrtcGetProgramLog");
  Nvrtc::Program program = nullptr;
  if (nvrtc.create(&program, trial_kernels(), "probe.cu", 0, nullptr, nullptr) != 0)
    throw Failed("no program could be made");
  const std::string option = "--gpu-architecture=" + architecture;
  const std::array<const char*, 1> options{option.c_str()};
  if (nvrtc.compile(program, 1, options.data()) != 0) {
    std::size_t size = 0;
    nvrtc.log_size(program, &size);
    std::string log(size, '\0');
    nvrtc.log(program, log.data());
    throw Failed(one_line(log.c_str(), 160));
  }
  std::size_t size = 0;
  if (nvrtc.cubin_size(program, &size) != 0 || size == 0) throw Failed("it made no code");
  std::string cubin(size, '\0');
  if (nvrtc.cubin(program, cubin.data()) != 0) throw Failed("it made no code");
  std::ofstream(target, std::ios::binary) << cubin;
  return "compiled";
}

Answers nvml_answers() {
  const nvml::Snapshot snapshot = nvml::snapshot();
  Answers answers;
  answers.nvml_why = snapshot.why;
  answers.driver = snapshot.driver;
  answers.cuda_driver = snapshot.cuda_driver;
  for (const nvml::Device& device : snapshot.devices) {
    GpuAnswer gpu;
    gpu.index = device.index;
    gpu.name = device.name;
    gpu.uuid = device.uuid;
    gpu.pci_address = device.pci_address;
    gpu.compute_capability = device.compute_capability;
    gpu.memory_bytes = device.memory_bytes;
    gpu.bar1_bytes = device.bar1_bytes;
    gpu.pcie_generation = device.pcie_generation;
    gpu.pcie_width_lanes = device.pcie_width_lanes;
    gpu.pcie_generation_max = device.pcie_generation_max;
    gpu.pcie_width_max_lanes = device.pcie_width_max_lanes;
    gpu.nvlinks_active = device.nvlinks_active;
    answers.gpus.push_back(std::move(gpu));
  }
  for (const nvml::Pair& pair : snapshot.pairs)
    answers.pairs.push_back({pair.from,
                             pair.to,
                             pair.common_ancestor,
                             pair.p2p_read,
                             pair.p2p_write,
                             pair.p2p_nvlink,
                             pair.p2p_atomics,
                             {}});
  return answers;
}

Answers driver_answers() {
  Answers answers;
  try {
    answers.cuda_driver = decode_cuda(cuda::driver_cuda_version());
    const auto capabilities = cuda::all_capabilities();
    for (const cuda::DeviceProperties& device : cuda::all_devices()) {
      GpuAnswer gpu;
      gpu.index = device.ordinal;
      gpu.ordinal = device.ordinal;
      gpu.name = device.name;
      gpu.uuid = device.uuid;
      gpu.pci_address = device.pci_address;
      gpu.memory_bytes = device.memory_bytes;
      for (const cuda::Capabilities& one : capabilities) {
        if (one.ordinal != device.ordinal) continue;
        gpu.compute_capability = one.compute_capability;
        gpu.multicast = one.multicast;
        gpu.vmm_file_descriptor = one.vmm_file_descriptor;
        gpu.cluster_launch = one.cluster_launch;
      }
      answers.gpus.push_back(std::move(gpu));
      for (const cuda::Capabilities& other : capabilities) {
        if (other.ordinal == device.ordinal) continue;
        const bool reaches = std::ranges::find(device.peers, other.ordinal) != device.peers.end();
        answers.pairs.push_back({device.ordinal, other.ordinal, {}, {}, {}, {}, {}, reaches});
      }
    }
  } catch (const cuda::CudaError& error) {
    answers = {};
    answers.driver_why = error.what();
  }
  return answers;
}

}  // namespace

const char* trial_kernels() {
  // Three kernels of one parameter, for every compiler: no headers, no library.
  return R"cuda(
struct Work { unsigned* to; const unsigned* from; unsigned count; unsigned seed; };
extern "C" __global__ void probe_write(Work work) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < work.count) work.to[i] = work.seed + i * 2654435761u;
}
extern "C" __global__ void probe_copy(Work work) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < work.count) work.to[i] = work.from[i];
}
// Each block leaves its number for its neighbour in the cluster to read from shared memory.
extern "C" __global__ void probe_cluster(Work work) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ unsigned mine;
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) mine = work.seed + rank;
  asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory");
  if (threadIdx.x == 0) {
    unsigned own = static_cast<unsigned>(__cvta_generic_to_shared(&mine)), peer, value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(peer) : "r"(own), "r"((rank + 1) % size));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(peer) : "memory");
    work.to[blockIdx.x] = value;
  }
  asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
)cuda";
}

int child_main(const std::vector<std::string>& task) {
  const std::string what = task.empty() ? "" : task.front();
  if (what == "nvml" || what == "driver") {
    std::cout << answers_to_json(what == "nvml" ? nvml_answers() : driver_answers()) << std::flush;
    return 0;
  }
  if (what == "record") {
    try {
      std::cout << record() << std::flush;
    } catch (const std::exception& error) {
      std::cout << error_report(one_line(error.what())) << std::flush;
    }
    return 0;
  }
  Outcome outcome;
  try {
    if (what == "p2p" && task.size() > 3) return p2p_from(task);
    if (what == "nvrtc" && task.size() == 4) {
      outcome.detail = compile_nvrtc(task[1], task[2], task[3]);
    } else if (what == "run" && task.size() == 3) {
      outcome.detail = run_cubin(task[1], number_from(task[2]));
    } else if (what == "cluster" && task.size() == 3) {
      outcome.detail = run_cluster(task[1], number_from(task[2]));
    } else if ((what == "vmm" || what == "ipc") && task.size() == 3) {
      outcome.detail = between_processes(what == "vmm", number_from(task[1]), number_from(task[2]));
    } else {
      throw Failed("no such experiment");
    }
    outcome.worked = true;
  } catch (const std::exception& error) {
    outcome = {false, one_line(error.what(), 300)};
  }
  std::cout << outcome_to_json(outcome) << std::flush;
  return 0;
}

}  // namespace arb::probe
