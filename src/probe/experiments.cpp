#include "probe/experiments.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "cuda_api/device.h"
#include "cuda_api/error.h"
#include "cuda_api/library.h"
#include "cuda_api/memory.h"
#include "cuda_api/share.h"
#include "cuda_api/stream.h"
#include "nvml_api/nvml.h"
#include "probe/child.h"
#include "probe/json.h"
#include "probe/version.h"
#include "text.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Three kernels of one parameter, for every compiler: no headers, no library.
constexpr const char* kernel_source = R"cuda(
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

struct Work {
  std::byte* to;
  const std::byte* from;
  std::uint32_t count;
  std::uint32_t seed;
};

constexpr std::uint32_t words = 1 << 18;  // 1 MiB
constexpr std::uint32_t threads = 256;
constexpr std::uint32_t cluster_blocks = 2;

// ---- In the children. What goes wrong is an exception with one sentence. ----

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
  if (nvrtc.create(&program, kernel_source, "probe.cu", 0, nullptr, nullptr) != 0)
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

// ---- In the probe itself. ----

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "arbench-probe-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// What torch is asked, and what the two-shot allreduce is tried with. Strict about what it prints: one line
// of words.
constexpr const char* torch_question = R"python(
import torch
parts = ["torch " + torch.__version__, "CUDA " + str(torch.version.cuda)]
code = torch.backends.cudnn.version()
parts.append("cuDNN code " + str(code))
try:
    parts.append("NCCL " + ".".join(str(n) for n in torch.cuda.nccl.version()))
except Exception as error:
    parts.append("NCCL not asked (" + str(error) + ")")
parts.append("architectures " + " ".join(torch.cuda.get_arch_list()))
parts.append("GPUs " + str(torch.cuda.device_count()))
print("; ".join(parts))
)python";

constexpr const char* torch_two_shot = R"python(
import os, sys, tempfile
import torch, torch.distributed as dist, torch.multiprocessing as mp
def rank_main(rank, path):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="file://" + path, rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    import torch.distributed._symmetric_memory as symm
    group = dist.group.WORLD.group_name
    data = symm.empty(65536, dtype=torch.bfloat16, device=torch.device("cuda", rank))
    handle = symm.rendezvous(data, group)
    for i in range(20):
        data.fill_(float(rank + 1 + i))
        torch.ops.symm_mem.two_shot_all_reduce_(data, "sum", group)
        torch.cuda.synchronize()
        assert bool((data == float(3 + 2 * i)).all()), "wrong sum"
    if rank == 0:
        print("two ranks, 20 calls, right sums; multicast address", "there" if handle.multicast_ptr else "none", flush=True)
    dist.destroy_process_group()
if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    mp.spawn(rank_main, args=(os.path.join(folder, "store"),), nprocs=2)
)python";

struct Job {
  Experiment experiment;
  std::function<void(Experiment&, milliseconds left)> run;
  std::string blocked;  // why it cannot be run; empty: it can
};

// Runs what can be run on some threads until the budget is spent.
void run_jobs(std::vector<Job>& jobs, Clock::time_point until, unsigned most_threads) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    while (true) {
      const std::size_t i = next.fetch_add(1);
      if (i >= jobs.size()) return;
      Job& job = jobs[i];
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
      job.experiment.state = "not run";
      if (!job.blocked.empty()) {
        job.experiment.detail = job.blocked;
      } else if (left < milliseconds(1000)) {
        job.experiment.detail = "the time for all experiments was up";
      } else {
        const Clock::time_point begin = Clock::now();
        job.run(job.experiment, left);
        job.experiment.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      }
    }
  };
  std::vector<std::thread> pool;
  const unsigned count = std::max(1U, std::min(most_threads, std::thread::hardware_concurrency()));
  for (unsigned i = 0; i < count; ++i) pool.emplace_back(work);
  for (std::thread& one : pool) one.join();
}

void conclude(Experiment& experiment, const ChildSaid& said) {
  const auto outcome = outcome_from_json(said.out);
  if (outcome && said.problem().empty()) {
    experiment.state = outcome->worked ? "worked" : "failed";
    experiment.detail = outcome->detail;
  } else {
    experiment.state = "failed";
    experiment.detail = said.problem().empty() ? "its process answered nonsense" : said.problem();
  }
}

std::string architecture_of(const GpuAnswer& gpu) {
  std::string digits = gpu.compute_capability.value_or("");
  std::erase(digits, '.');
  return digits.empty() ? std::string() : "sm_" + digits;
}

// Whether code for `architecture` runs on a GPU of `native`: sm_120a and sm_120f on sm_120.
bool runs_on(const std::string& architecture, const std::string& native) {
  std::string bare = architecture;
  if (!bare.empty() && (bare.back() == 'a' || bare.back() == 'f')) bare.pop_back();
  return !native.empty() && bare == native;
}

class Deep {
 public:
  Deep(const Box& box, Facts& facts, const DeepOptions& options)
      : box_(box), facts_(facts), options_(options), until_(Clock::now() + options.budget) {
    for (const Gpu& gpu : facts.gpus) {
      if (gpu.answer.ordinal) gpus_.push_back(&gpu);
    }
    if (gpus_.empty())
      no_gpu_ = box.answers().driver_why.empty() ? "the driver shows no GPU"
                                                 : "no GPU can be used: " + box.answers().driver_why;
  }

  std::vector<Experiment> run() {
    // PyTorch needs the longest and waits mostly: it runs beside the rest.
    std::vector<Job> torch = torch_jobs();
    std::thread beside([&] { run_jobs(torch, until_, 1); });
    std::vector<Job> compile = compile_jobs();
    run_jobs(compile, until_, 4);
    std::vector<Job> execute = execute_jobs();
    run_jobs(execute, until_, 4);
    // One at a time: they load the links between the GPUs.
    std::vector<Job> peers = peer_jobs();
    run_jobs(peers, until_, 2);
    beside.join();
    std::vector<Experiment> all;
    for (auto* const jobs : {&compile, &execute, &peers, &torch}) {
      for (Job& job : *jobs) all.push_back(std::move(job.experiment));
    }
    for (Experiment& pair : pairs_) all.push_back(std::move(pair));
    conclude_facts(all);
    return all;
  }

 private:
  void ask_child(Experiment& experiment, std::vector<std::string> task, milliseconds deadline,
                 std::map<std::string, std::string> environment = {}) const {
    task.insert(task.begin(), "probe-child");
    conclude(experiment, run_child({.program = options_.program,
                                    .arguments = std::move(task),
                                    .environment = std::move(environment),
                                    .deadline = deadline}));
  }

  std::vector<std::string> architectures() const {
    std::vector<std::string> list = {"sm_120", "sm_120a", "sm_120f"};
    for (const Gpu* gpu : gpus_) {
      const std::string native = architecture_of(gpu->answer);
      if (!native.empty() && std::ranges::find(list, native) == list.end()) list.push_back(native);
    }
    return list;
  }

  std::vector<Job> compile_jobs() {
    std::vector<Job> jobs;
    const fs::path source = folder_.path() / "probe.cu";
    if (!folder_.path().empty()) std::ofstream(source) << kernel_source;
    const auto add = [&](const std::string& compiler, const std::string& architecture,
                         const std::string& blocked, auto make) {
      const fs::path target = folder_.path() / fmt::format("{}-{}.cubin", jobs.size(), architecture);
      Job job;
      job.experiment.id = fmt::format("compile {} {}", architecture, compiler);
      job.experiment.fact = "deep." + architecture;
      job.blocked = folder_.path().empty() ? "no temporary folder can be made" : blocked;
      job.run = [this, make, architecture, target, compiler](Experiment& experiment, milliseconds left) {
        make(experiment, target, std::min(left, milliseconds(25'000)));
        std::error_code error;
        if (experiment.state != "worked" || !fs::exists(target, error)) return;
        const std::lock_guard lock(mutex_);
        cubins_.push_back({architecture, compiler, target.string()});
      };
      jobs.push_back(std::move(job));
    };
    std::set<std::string> told;
    for (const Nvcc& nvcc : facts_.nvccs) {
      const std::string compiler = (nvcc.version.empty() ? nvcc.path : nvcc.version) + "-nvcc";
      if (!told.insert(compiler).second) continue;
      for (const std::string& architecture : architectures()) {
        add(compiler, architecture, nvcc.runs ? "" : nvcc.path + " has no run bit",
            [this, nvcc, architecture, source](Experiment& experiment, const fs::path& target,
                                               milliseconds deadline) {
              const ChildSaid said = run_child(
                  {.program = nvcc.path,
                   .arguments = {"-cubin", "-arch=" + architecture, "-o", target.string(), source.string()},
                   .environment = {},
                   .deadline = deadline});
              experiment.state = said.problem().empty() ? "worked" : "failed";
              experiment.detail = said.problem().empty() ? "compiled" : said.problem();
            });
      }
    }
    for (const Library& library : facts_.libraries) {
      if (library.kind != "libnvrtc" || library.path.find(".alt.") != std::string::npos) continue;
      const std::string compiler = (library.cuda.empty() ? library.path : library.cuda) + "-nvrtc";
      if (!told.insert(compiler).second) continue;
      for (const std::string& architecture : architectures()) {
        add(compiler, architecture, "",
            [this, library, architecture](Experiment& experiment, const fs::path& target,
                                          milliseconds deadline) {
              const std::string folder = fs::path(library.path).parent_path().string();
              const std::string others = box_.variable("LD_LIBRARY_PATH").value_or("");
              ask_child(experiment, {"nvrtc", library.path, architecture, target.string()}, deadline,
                        {{"LD_LIBRARY_PATH", others.empty() ? folder : folder + ":" + others}});
            });
      }
    }
    if (jobs.empty()) {
      Job none;
      none.experiment.id = "compile sm_120, sm_120a, sm_120f";
      none.blocked = "neither an nvcc nor an NVRTC was found";
      jobs.push_back(std::move(none));
    }
    return jobs;
  }

  // A cubin that runs on this GPU, or nothing.
  [[nodiscard]] std::string cubin_for(const Gpu& gpu) const {
    for (const auto& one : cubins_) {
      if (runs_on(one.architecture, architecture_of(gpu.answer))) return one.file;
    }
    return {};
  }

  std::vector<Job> execute_jobs() {
    std::vector<Job> jobs;
    for (const auto& cubin : cubins_) {
      const auto match = std::ranges::find_if(
          gpus_, [&](const Gpu* gpu) { return runs_on(cubin.architecture, architecture_of(gpu->answer)); });
      Job job;
      job.experiment.id = fmt::format("run {} {}", cubin.architecture, cubin.compiler);
      job.experiment.fact = "deep." + cubin.architecture;
      if (match == gpus_.end()) {
        job.blocked = no_gpu_.empty() ? "no GPU here is of that architecture" : no_gpu_;
      } else {
        const std::uint32_t ordinal = *(*match)->answer.ordinal;
        job.run = [this, file = cubin.file, ordinal](Experiment& experiment, milliseconds left) {
          ask_child(experiment, {"run", file, std::to_string(ordinal)}, std::min(left, milliseconds(15'000)));
        };
      }
      jobs.push_back(std::move(job));
    }
    Job cluster;
    cluster.experiment.id = "launch a thread-block cluster";
    cluster.experiment.fact = "deep.cluster";
    const std::string file = gpus_.empty() ? "" : cubin_for(*gpus_.front());
    const auto capability =
        gpus_.empty() ? std::nullopt : Version::parse(gpus_.front()->answer.compute_capability.value_or(""));
    if (!no_gpu_.empty()) {
      cluster.blocked = no_gpu_;
    } else if (capability && capability->part(0) < 9) {
      cluster.blocked = "compute capability 9.0 is the first with clusters";
    } else if (file.empty()) {
      cluster.blocked = "no compiler here made code for this GPU";
    } else {
      cluster.run = [this, file](Experiment& experiment, milliseconds left) {
        ask_child(experiment, {"cluster", file, std::to_string(*gpus_.front()->answer.ordinal)},
                  std::min(left, milliseconds(15'000)));
      };
    }
    jobs.push_back(std::move(cluster));
    for (const bool vmm : {true, false}) {
      Job job;
      job.experiment.id = vmm ? "VMM export and import" : "IPC between processes";
      job.experiment.fact = vmm ? "deep.vmm" : "deep.ipc";
      job.blocked = no_gpu_;
      if (no_gpu_.empty()) {
        const std::string first = std::to_string(*gpus_.front()->answer.ordinal);
        const std::string second =
            std::to_string(*gpus_[gpus_.size() > 1 && peers_claimed() ? 1 : 0]->answer.ordinal);
        job.run = [this, vmm, first, second](Experiment& experiment, milliseconds left) {
          ask_child(experiment, {vmm ? "vmm" : "ipc", first, second}, std::min(left, milliseconds(15'000)));
        };
      }
      jobs.push_back(std::move(job));
    }
    return jobs;
  }

  [[nodiscard]] bool peers_claimed() const {
    const auto found = facts_.map.find("p2p.all");
    return found != facts_.map.end() && found->second.value == "true";
  }

  // One job a source GPU; its pairs go into pairs_.
  std::vector<Job> peer_jobs() {
    std::vector<Job> jobs;
    const auto whole = [&](const std::string& why) {
      Job job;
      job.experiment.id = "every pair's peer path";
      job.blocked = why;
      jobs.push_back(std::move(job));
    };
    if (!no_gpu_.empty()) {
      whole(no_gpu_);
      return jobs;
    }
    if (gpus_.size() < 2) {
      whole("there is one GPU");
      return jobs;
    }
    for (const Gpu* from : gpus_) {
      std::vector<std::uint32_t> targets;
      for (const Gpu* to : gpus_) {
        if (to == from) continue;
        const bool claimed = std::ranges::any_of(facts_.pairs, [&](const PairAnswer& pair) {
          return pair.from == from->answer.index && pair.to == to->answer.index && pair.driver_access == true;
        });
        if (claimed) {
          targets.push_back(*to->answer.ordinal);
        } else {
          pairs_.push_back({.id = fmt::format("peer path {}>{}", *from->answer.ordinal, *to->answer.ordinal),
                            .fact = "deep.p2p",
                            .state = "not run",
                            .detail = "the driver does not offer it",
                            .seconds = 0});
        }
      }
      if (targets.empty()) continue;
      Job job;
      job.experiment.id = fmt::format("peer paths from {}", *from->answer.ordinal);
      job.run = [this, from, targets](Experiment& experiment, milliseconds left) {
        peers_of(experiment, *from, targets, std::min(left, milliseconds(20'000)));
      };
      jobs.push_back(std::move(job));
    }
    if (jobs.empty()) whole("the driver offers no peer access between any two GPUs");
    return jobs;
  }

  // A pair that hangs costs its process; the pairs after it get a new one.
  void peers_of(Experiment& experiment, const Gpu& from, std::vector<std::uint32_t> targets,
                milliseconds budget) {
    const std::string source = std::to_string(*from.answer.ordinal);
    const std::string cubin = cubin_for(from);
    const Clock::time_point until = Clock::now() + budget;
    std::size_t good = 0;
    std::size_t tried = 0;
    while (!targets.empty()) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
      std::vector<std::string> task = {"probe-child", "p2p", source, cubin.empty() ? "-" : cubin};
      for (const std::uint32_t target : targets) task.push_back(std::to_string(target));
      const ChildSaid said = left < milliseconds(500)
                                 ? ChildSaid{}
                                 : run_child({.program = options_.program,
                                              .arguments = task,
                                              .environment = {},
                                              .deadline = std::min(left, options_.pair_deadline)});
      std::set<std::uint32_t> done;
      std::optional<std::uint32_t> begun;
      for (const std::string& row : split_list(said.out, '\n')) {
        const std::vector<std::string> cells = split_list(row, ' ');
        if (cells.size() < 2) continue;
        const auto number = Version::parse(cells[1]);
        if (!number) continue;
        const auto target = static_cast<std::uint32_t>(number->part(0));
        if (cells[0] == "begin") begun = target;
        if (cells[0] != "worked" && cells[0] != "failed") continue;
        done.insert(target);
        begun.reset();
        add_pair(source, target, cells[0],
                 row.substr(std::min(row.size(), cells[0].size() + cells[1].size() + 2)));
        good += cells[0] == "worked" ? 1U : 0U;
        ++tried;
      }
      if (begun) {
        done.insert(*begun);
        add_pair(source, *begun, "failed", said.problem());
        ++tried;
      }
      if (done.empty()) {
        for (const std::uint32_t target : targets)
          add_pair(source, target, left < milliseconds(500) ? "not run" : "failed",
                   left < milliseconds(500) ? "the time for its GPU was up"
                   : said.problem().empty() ? "its process said nothing of it"
                                            : said.problem());
        tried += left < milliseconds(500) ? 0U : targets.size();
        break;
      }
      std::erase_if(targets, [&](std::uint32_t target) { return done.contains(target); });
    }
    experiment.state = tried == 0 ? "not run" : good == tried ? "worked" : "failed";
    experiment.detail = fmt::format("{} of {} pairs delivered what was written", good, tried);
  }

  void add_pair(const std::string& source, std::uint32_t target, const std::string& state,
                const std::string& detail) {
    const std::lock_guard lock(mutex_);
    pairs_.push_back({.id = fmt::format("peer path {}>{}", source, target),
                      .fact = "deep.p2p",
                      .state = state,
                      .detail = detail,
                      .seconds = 0});
  }

  std::vector<Job> torch_jobs() {
    std::vector<Job> jobs;
    const std::string& python = facts_.python.program;
    const bool has_torch = find_package(facts_, "torch") != nullptr;
    const std::string why = python.empty() ? "no Python was found"
                            : has_torch    ? ""
                                           : "PyTorch is not in this Python";
    Job ask;
    ask.experiment.id = "import torch and ask it";
    ask.blocked = why;
    ask.run = [python](Experiment& experiment, milliseconds left) {
      const ChildSaid said = run_child({.program = python,
                                        .arguments = {"-c", torch_question},
                                        .environment = {},
                                        .deadline = std::min(left, milliseconds(40'000))});
      experiment.state = said.problem().empty() ? "worked" : "failed";
      experiment.detail = said.problem().empty() ? one_line(said.out, 300) : said.problem();
    };
    jobs.push_back(std::move(ask));
    Job two_shot;
    two_shot.experiment.id = "torch two-shot allreduce";
    two_shot.experiment.fact = "deep.torch_two_shot";
    two_shot.blocked = !why.empty()       ? why
                       : !no_gpu_.empty() ? no_gpu_
                       : gpus_.size() < 2 ? "there is one GPU"
                       : !peers_claimed() ? "the GPUs do not offer peer access"
                                          : "";
    two_shot.run = [this, python](Experiment& experiment, milliseconds left) {
      const fs::path script = folder_.path() / "two_shot.py";
      std::ofstream(script) << torch_two_shot;
      const ChildSaid said = run_child(
          {.program = python,
           .arguments = {script.string()},
           // Two-shot needs no multicast, and making multicast objects is no experiment for a shared host.
           .environment = {{"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"}, {"NCCL_NVLS_ENABLE", "0"}},
           .deadline = std::min(left, milliseconds(50'000))});
      experiment.state = said.problem().empty() ? "worked" : "failed";
      experiment.detail = said.problem().empty() ? one_line(said.out, 200) : said.problem();
    };
    jobs.push_back(std::move(two_shot));
    return jobs;
  }

  // A fact is true when something worked and nothing failed; false when something failed, except that one
  // compiler is enough for an architecture.
  void conclude_facts(const std::vector<Experiment>& all) {
    std::map<std::string, std::pair<bool, bool>> by_fact;  // worked, failed
    for (const Experiment& one : all) {
      if (one.fact.empty()) continue;
      by_fact[one.fact].first |= one.state == "worked";
      by_fact[one.fact].second |= one.state == "failed";
    }
    for (const auto& [fact, said] : by_fact) {
      const bool any_is_enough = fact.starts_with("deep.sm_");
      if (any_is_enough ? said.first : said.first && !said.second) {
        set_known(facts_.map, fact, "true");
      } else if (said.second) {
        set_known(facts_.map, fact, "false");
      } else {
        set_unknown(facts_.map, fact, "its experiment was not run");
      }
    }
  }

  struct Cubin {
    std::string architecture;
    std::string compiler;
    std::string file;
  };
  const Box& box_;
  Facts& facts_;
  const DeepOptions& options_;
  Clock::time_point until_;
  std::vector<const Gpu*> gpus_;
  std::string no_gpu_;
  Folder folder_;
  std::mutex mutex_;
  std::vector<Cubin> cubins_;
  std::vector<Experiment> pairs_;
};

}  // namespace

std::vector<Experiment> run_experiments(const Box& box, Facts& facts, const DeepOptions& options) {
  return Deep(box, facts, options).run();
}

int child_main(const std::vector<std::string>& task) {
  const std::string what = task.empty() ? "" : task.front();
  if (what == "nvml" || what == "driver") {
    std::cout << answers_to_json(what == "nvml" ? nvml_answers() : driver_answers()) << std::flush;
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
