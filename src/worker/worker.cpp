#include "worker.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>

#include "cell_runner.h"
#include "code.h"
#include "cuda_api/error.h"
#include "limits.h"
#include "nccl_api/error.h"
#include "peer.h"
#include "ranks.h"
#include "rendezvous.h"
#include "wire.h"

namespace arb::worker {
namespace {

// Lines over a socket.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}

  // The next line without its newline; empty when the coordinator is gone.
  std::optional<std::string> next() {
    for (;;) {
      const auto end = buffer_.find('\n');
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      char bytes[4096];
      const ssize_t count = read(fd_, bytes, sizeof(bytes));
      if (count <= 0) return std::nullopt;
      buffer_.append(bytes, static_cast<std::size_t>(count));
    }
  }

  // False when the coordinator is gone.
  bool send(const Reply& reply) {
    const std::string line = to_wire(reply) + '\n';
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t count = ::send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<std::size_t>(count);
    }
    return true;
  }

 private:
  int fd_;
  std::string buffer_;
};

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  ..." has the version as its first word with two
// dots or one; empty where the file is not there.
std::string kernel_driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 && word.find('.') != std::string::npos)
      return word;
  }
  return "";
}

std::uint32_t most_ranks_of_a_gpu(const std::vector<std::uint32_t>& device_of_rank) {
  std::ptrdiff_t most = 0;
  for (const std::uint32_t ordinal : device_of_rank)
    most = std::max(most, std::ranges::count(device_of_rank, ordinal));
  return static_cast<std::uint32_t>(most);
}

// Everything that a worker holds; built at the first request so that an error has somebody to go to.
class Worker {
 public:
  // `first_socket_fd`: where the sockets to the other workers begin, if this one holds one rank of several.
  Worker(WorkerConfig config, int first_socket_fd, const ArbPeer* peer)
      : config_(std::move(config)), callbacks_(peer) {
    if (config_.world != World::processes || config_.devices.empty()) return;
    const auto count = static_cast<std::uint32_t>(config_.devices.size());
    std::vector<Descriptor> sockets;
    for (std::uint32_t i = 0; i < (config_.rank == 0 ? count - 1 : 1); ++i)
      sockets.emplace_back(first_socket_fd + static_cast<int>(i));
    // A peer may be held up by a wait on its device, and then has a better sentence than ours.
    constexpr std::chrono::seconds longer_than_a_device{10};
    rendezvous_ =
        std::make_unique<Rendezvous>(config_.rank, count, std::move(sockets),
                                     std::chrono::milliseconds(config_.deadline_ms) + longer_than_a_device);
  }

  Reply answer(const Request& request) {
    Reply reply;
    reply.op = request.op;
    try {
      switch (request.op) {
        case Op::hello:
          reply.hello = hello();
          break;
        case Op::limits:
          if (rendezvous_ != nullptr)
            throw BundleError("limits are measured by a worker that holds all ranks");
          start();
          reply.limits = measure_limits(*ranks_, *runner_);
          break;
        case Op::measure:
          if (rendezvous_ != nullptr)
            throw BundleError("limits are measured by a worker that holds all ranks");
          start();
          if (limit_bench_ == nullptr) limit_bench_ = std::make_unique<LimitBench>(*ranks_);
          reply.figure = limit_bench_->measure(*request.test);
          break;
        case Op::run:
          start();
          reply.cell = request.cell;
          reply.outcome = runner_->run(*request.cell);
          break;
        case Op::quit:
          break;
      }
    } catch (const std::exception& error) {
      if (rendezvous_ != nullptr && request.op != Op::hello) rendezvous_->abandon(error.what());
      reply.cell.reset();
      limit_bench_.reset();  // a wait that was given up leaves its flags out of step
      reply.error = error.what();
      if (dynamic_cast<const DeviceDeadline*>(&error) != nullptr) reply.hung = true;
    }
    return reply;
  }

 private:
  Hello hello() {
    Hello hello;
    if (!config_.peer.empty()) {
      try {
        hello.peer_version = open_peer().version();
      } catch (const PeerError& error) {
        hello.peer_problem = error.what();
        return hello;  // nothing else of this worker is of use
      }
    }
    hello.cuda_driver = cuda::driver_cuda_version();
    hello.driver = kernel_driver_version();
    for (const cuda::DeviceProperties& device : cuda::all_devices()) {
      hello.devices.push_back({device.ordinal, device.name, device.uuid, device.architecture,
                               device.pci_address, device.memory_bytes, device.peers});
    }
    load_code();
    hello.bundles = code_->bundles();
    if (!config_.nccl_library.empty()) {
      try {
        open_nccl();
        hello.nccl_version = nccl_->library.name();
        hello.nccl_path = nccl_->library.path();
        hello.nccl_window_problem = nccl_->library.window_problem();
      } catch (const nccl::Error& error) {
        hello.nccl_problem = error.what();
      }
    }
    return hello;
  }

  void load_code() {
    if (code_ != nullptr) return;
    std::string architecture;
    for (const cuda::DeviceProperties& device : cuda::all_devices()) {
      if (std::ranges::find(config_.devices, device.ordinal) == config_.devices.end()) continue;
      architecture = device.architecture;
      l2_bytes_ = std::max(l2_bytes_, device.l2_bytes);
    }
    std::vector<std::uint32_t> distinct;
    for (const std::uint32_t ordinal : config_.devices) {
      if (std::ranges::find(distinct, ordinal) == distinct.end()) distinct.push_back(ordinal);
    }
    if (rendezvous_ != nullptr) distinct = {config_.devices[config_.rank]};
    for (const std::uint32_t ordinal : distinct) contexts_.emplace_back(ordinal);
    code_ = std::make_unique<Code>(config_.bundle_folders, architecture, contexts_);
  }

  void open_nccl() {
    if (nccl_ == nullptr) nccl_ = std::make_unique<Nccl>(config_.nccl_library);
  }

  // Before anything of ours on the device: libraries expect to set it up themselves.
  Peer& open_peer() {
    if (peer_ == nullptr) {
      if (callbacks_ == nullptr)
        throw PeerError(fmt::format("this worker's program does not bring {}", config_.peer));
      if (config_.rank >= config_.devices.size()) throw PeerError("a peer's worker needs a GPU for its rank");
      peer_ = std::make_unique<Peer>(*callbacks_);
    }
    peer_->start(config_.devices[config_.rank]);
    return *peer_;
  }

  void start() {
    if (runner_ != nullptr) return;
    if (config_.devices.size() < 2) {
      throw BundleError("this worker was given fewer than 2 ranks, and an allreduce needs 2");
    }
    if (!config_.peer.empty()) open_peer();
    load_code();
    if (!config_.nccl_library.empty()) open_nccl();
    if (rendezvous_ != nullptr) {
      ranks_ = std::make_unique<Ranks>(contexts_.front(), *rendezvous_, code_->support(), config_.deadline_ms,
                                       most_ranks_of_a_gpu(config_.devices));
    } else {
      ranks_ = std::make_unique<Ranks>(contexts_, static_cast<std::uint32_t>(config_.devices.size()),
                                       code_->support(), config_.deadline_ms);
    }
    runner_ = std::make_unique<CellRunner>(*ranks_, *code_, nccl_.get(), peer_.get(), l2_bytes_);
  }

  WorkerConfig config_;
  const ArbPeer* callbacks_;
  std::uint64_t l2_bytes_ = 0;
  // In the order in which they need one another: destroyed from the bottom up.
  std::unique_ptr<Rendezvous> rendezvous_;
  std::vector<cuda::Context> contexts_;
  std::unique_ptr<Nccl> nccl_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<Code> code_;
  std::unique_ptr<Ranks> ranks_;
  std::unique_ptr<CellRunner> runner_;
  std::unique_ptr<LimitBench> limit_bench_;
};

}  // namespace

int worker_main(const std::string& config_text, int socket_fd, const ArbPeer* peer) {
  Channel channel(socket_fd);
  try {
    Worker worker(worker_config_from_wire(config_text), socket_fd + 1, peer);
    // Loaded before anybody asks, so that workers that are started together load together.
    const Reply greeting = worker.answer({.op = Op::hello, .cell = {}});
    while (const auto line = channel.next()) {
      const Request request = request_from_wire(*line);
      if (!channel.send(request.op == Op::hello ? greeting : worker.answer(request))) return 0;
      if (request.op == Op::quit) return 0;
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

}  // namespace arb::worker
