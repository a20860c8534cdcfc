// A worker without GPUs that answers as a machine of two would, or goes wrong in one way.
//   fake_worker BEHAVIOUR worker --config JSON
// Where not said otherwise it goes wrong when it is asked for a cell of 2048 bytes, or for a flag from rank 1
// to 0. `slow` answers right, with times 3% longer; `other_machine` answers right, from other GPUs and another driver; `noisy` with times that differ from launch to launch; `talks`
// answers right and leaves a log, `no_peer` has no peer library and leaves one too. "rank1:BEHAVIOUR" is for the worker of that rank alone; the others are good.
// What has run of NCCL is its environment and process: "NAME=VALUE ... in PID".
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>

#include "catalog.h"
#include "wire.h"

namespace {

using namespace arb;

void send_text(const std::string& text) {
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t wrote = ::send(worker_socket_fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (wrote <= 0) std::_Exit(9);
    sent += static_cast<std::size_t>(wrote);
  }
}

[[noreturn]] void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

Hello hello_of(const WorkerConfig& config, const std::string& behaviour) {
  Hello hello;
  hello.driver = behaviour == "other_machine" ? "590.10" : "580.82.07";
  hello.cuda_driver = behaviour == "old_driver" ? 12'020 : 13'000;
  const std::uint32_t count = behaviour == "no_gpu"       ? 0
                              : behaviour == "one_gpu"    ? 1
                              : behaviour == "seven_gpus" ? 7
                                                          : 2;
  for (std::uint32_t i = 0; i < count; ++i) {
    DeviceInfo device;
    device.ordinal = i;
    device.name = "NVIDIA Pretended GPU";
    device.uuid = (behaviour == "other_machine" ? "GPU-9000000" : "GPU-0000000") + std::to_string(i);
    device.architecture = "sm_90";
    device.pci_address = "0000:0" + std::to_string(i) + ":00.0";
    device.memory_bytes = 1ull << 30;
    for (std::uint32_t peer = 0; peer < count; ++peer)
      if (peer != i && behaviour != "no_p2p") device.peers.push_back(peer);
    hello.devices.push_back(device);
  }
  for (const std::string& folder : config.bundle_folders) {
    const std::string name = folder.substr(folder.rfind('/') + 1);
    hello.bundles.push_back(
        {name, folder, "nvrtc", behaviour == "unloadable" ? "the driver refuses it" : ""});
  }
  if (!config.peer.empty()) {
    if (behaviour == "no_peer")
      hello.peer_problem = "its library cannot be imported";
    else
      hello.peer_version = config.peer + " 1.0";
  }
  if (!config.nccl_library.empty()) {
    if (behaviour == "no_nccl") {
      hello.nccl_problem = "it is no ELF file";
    } else {
      hello.nccl_version = "2.28.9+cuda13.0";
      hello.nccl_path = config.nccl_library;
      if (behaviour == "old_nccl") hello.nccl_window_problem = "this NCCL is too old for windows";
    }
  }
  return hello;
}

MachineLimits limits_of() {
  MachineLimits limits;
  limits.node_us_k20 = 0.6;
  limits.graph_start_us = 4;
  limits.node_us = 0.4;
  limits.isolated_node_us = 1.5;
  limits.flag_us = 0.6;
  limits.bandwidth_gbps = 390;
  limits.bandwidth_engine = "copy_engine";
  limits.stamp_us = 1;
  limits.clock_tick_ns = 32;
  return limits;
}

// A healthy machine's; `staged_loads` is one whose loads go through system memory.
double figure_of(const LimitTest& test, const std::string& behaviour) {
  switch (test.kind) {
    case LimitKind::nodes:
      return 4 + 0.5 * test.count;
    case LimitKind::local_copy:
      return 1 + static_cast<double>(test.bytes) / 2e6;
    case LimitKind::flag:
      return 0.6;
    case LimitKind::barrier:
      return 0.8;
    case LimitKind::move:
      break;
  }
  if (behaviour == "staged_loads" && test.engine == Engine::sm_load) return 3;
  return test.engine == Engine::copy_engine ? 56 : 50 * test.blocks / 132.0;
}

// The settings of all NCCL configurations as they are here.
std::string nccl_environment() {
  std::string text;
  for (const CatalogRow& row : catalog()) {
    for (const NcclVariable& variable : row.nccl_variables) {
      const std::string name(variable.name);
      if (const char* value = std::getenv(name.c_str())) text += name + "=" + value + " ";
    }
  }
  return text + "in " + std::to_string(::getpid());
}

Outcome outcome_of(const Cell& cell, const std::string& behaviour) {
  Outcome outcome;
  outcome.correct = true;
  if (cell.plant != Plant::none && behaviour != "blind") {
    outcome.correct = false;
    outcome.wrong = "rank 1 has 1 wrong elements";
  }
  double us = 2 + static_cast<double>(cell.bytes) / 390e3 + static_cast<double>(cell.contender.size()) / 20;
  // Of the shapes that a cell may ask for, those of 128 threads are best, the fewest blocks among them.
  if (cell.blocks != 0)
    us += 0.05 * std::abs(static_cast<double>(cell.threads) - 128) / 32 + 0.001 * cell.blocks;
  if (behaviour == "slow") us *= 1.03;
  if (behaviour == "noisy") us *= 1 + 0.001 * static_cast<double>(::getpid() % 13 - 6);
  for (std::uint32_t i = 0; i < cell.samples; ++i) outcome.samples_us.push_back(us + 0.01 * (i % 7));
  outcome.max_error = 1.0 / 512;
  outcome.output_hash = "00000000deadbeef";
  const std::string shape =
      cell.blocks == 0 ? "8x256" : std::to_string(cell.blocks) + "x" + std::to_string(cell.threads);
  outcome.ran = cell.nccl.empty() ? shape : nccl_environment();
  return outcome;
}

// Goes wrong in the middle of a request; returns where the behaviour is to answer something after all.
void misbehave(const std::string& behaviour, Reply& reply) {
  if (behaviour == "exit") {
    std::fputs("about to give up\n\n", stderr);
    std::exit(3);
  }
  if (behaviour == "crash") {
    std::fputs("illegal address in rank 1\n", stderr);
    ::raise(SIGSEGV);
  }
  if (behaviour == "hang") {
    std::fputs("rank 0 waits for rank 1\n", stderr);
    sleep_for_ever();
  }
  if (behaviour == "deaf") {  // does not even die of SIGTERM
    ::signal(SIGTERM, SIG_IGN);
    sleep_for_ever();
  }
  if (behaviour == "nonsense") {
    send_text("Segmentation fault (core dumped)\n");
    sleep_for_ever();
  }
  if (behaviour == "nan") {
    std::string text = to_wire(reply);
    text.replace(text.find("\"max_error\":") + 12, 1, "NaN");
    send_text(text + "\n");
    sleep_for_ever();
  }
  if (behaviour == "half_line_and_end") {
    send_text(to_wire(reply).substr(0, 40));
    std::exit(0);
  }
  if (behaviour == "half_line_and_hang") {
    send_text(to_wire(reply).substr(0, 40));
    sleep_for_ever();
  }
  if (behaviour == "two_lines") {
    const std::string line = to_wire(reply) + "\n";
    send_text(line + line);  // together: the second must be there when the first is read
    sleep_for_ever();
  }
  if (behaviour == "wrong_cell") reply.cell->bytes = 4096;
  if (behaviour == "wrong_op") {
    reply = Reply{};
    reply.op = Op::quit;
  }
  if (behaviour == "endless_line") {
    const std::string part(1 << 20, 'x');
    while (true) send_text(part);
  }
  if (behaviour == "flood") {  // fills its stderr for ever and never answers
    const std::string line(1000, 'y');
    while (true) std::fprintf(stderr, "%s\n", line.c_str());
  }
  if (behaviour == "flood_then_answer") {
    const std::string line(1000, 'y');
    for (int i = 0; i < 40'000; ++i) std::fprintf(stderr, "%s\n", line.c_str());
  }
  if (behaviour == "orphan") {  // dies while a child of its keeps the socket and the pipe open
    if (::fork() == 0) sleep_for_ever();
    std::fputs("my child lives on\n", stderr);
    ::raise(SIGKILL);
  }
  if (behaviour == "wrong_data") {
    reply.outcome->correct = false;
    reply.outcome->max_error = 0.75;
    reply.outcome->wrong = "element 7 of rank 1 is 3 instead of 2";
  }
  if (behaviour == "not_a_number") {
    reply.outcome->correct = false;
    reply.outcome->max_error = std::numeric_limits<double>::quiet_NaN();
    reply.outcome->wrong = "element 0 of rank 0 is NaN";
  }
  if (behaviour == "cannot_run") {
    reply.outcome = Outcome{};
    reply.outcome->failure = "its blocks do not fit on this GPU at once; take fewer ranks";
  }
  if (behaviour == "device_hangs") {  // and the worker says so
    const char* const sentence = "rank 0 waited for rank 1 in phase exchange";
    if (reply.outcome) {
      reply.outcome->correct = false;
      reply.outcome->wrong = sentence;
      reply.outcome->flags = {hang_flag};
    } else {
      reply.figure.reset();
      reply.error = sentence;
      reply.hung = true;
    }
  }
  if (behaviour == "no_samples") reply.outcome->samples_us.clear();
  // Of interest beside other ranks.
  if (behaviour == "other_bits") reply.outcome->output_hash = "00000000deadbeee";
  if (behaviour == "slower") {
    for (double& sample_us : reply.outcome->samples_us) sample_us += 100;
  }
  if (behaviour == "fewer_samples") reply.outcome->samples_us.pop_back();
}

// A cell of 2048 bytes, or the fourth case of a verification.
bool goes_wrong_at(const Cell& cell) {
  if (cell.verify_calls == 0) return cell.bytes == 2048;
  return cell.plant == Plant::none && cell.seed % 1'000'000 == 3;
}

// What the coordinator promises a worker's environment.
bool environment_is_right() {
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return loading != nullptr && std::string(loading) == "EAGER" && connections != nullptr &&
         std::string(connections) == "32";
}

// A worker of several has its sockets to the others, and no worker has any further descriptor.
bool sockets_are_right(const WorkerConfig& config) {
  const bool processes = config.world == World::processes;
  const int sockets = !processes ? 0 : config.rank == 0 ? static_cast<int>(config.devices.size()) - 1 : 1;
  for (int fd = worker_socket_fd + 1; fd < 64; ++fd) {
    if ((::fcntl(fd, F_GETFD) != -1) != (fd <= worker_socket_fd + sockets)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::string behaviour = argc > 1 ? argv[1] : "good";
  const WorkerConfig config = argc > 4 ? worker_config_from_wire(argv[4]) : WorkerConfig{};
  if (const std::size_t colon = behaviour.find(':'); colon != std::string::npos) {
    const bool mine = config.world == World::processes &&
                      behaviour == "rank" + std::to_string(config.rank) + behaviour.substr(colon);
    behaviour = mine ? behaviour.substr(colon + 1) : "good";
  }
  if (!sockets_are_right(config)) {
    std::fputs("the sockets are not what a worker is promised\n", stderr);
    return 8;
  }
  if (!environment_is_right()) {
    std::fputs("the environment is not what a worker is promised\n", stderr);
    return 8;
  }
  if (behaviour == "dies_at_once") return 5;
  if (behaviour == "talks" || behaviour == "old_nccl" || behaviour == "no_peer")
    std::fputs("started\n", stderr);
  std::string received;
  while (true) {
    const std::size_t end = received.find('\n');
    if (end == std::string::npos) {
      char buffer[4096];
      const ssize_t got = ::recv(worker_socket_fd, buffer, sizeof buffer, 0);
      if (got <= 0) return 0;
      received.append(buffer, static_cast<std::size_t>(got));
      continue;
    }
    const Request request = request_from_wire(received.substr(0, end));
    received.erase(0, end + 1);
    Reply reply;
    reply.op = request.op;
    switch (request.op) {
      case Op::hello:
        if (behaviour == "hangs_at_hello") sleep_for_ever();
        if (behaviour == "no_driver") {
          reply.error = "libcuda.so.1 is not there";
        } else {
          reply.hello = hello_of(config, behaviour);
        }
        break;
      case Op::limits:
        reply.limits = limits_of();
        break;
      case Op::measure:
        reply.figure = figure_of(*request.test, behaviour);
        if (behaviour == "no_limits" && request.test->kind != LimitKind::nodes) {
          reply.figure.reset();
          reply.error = "the device said no";
        }
        if (request.test == flag_test(1, 0)) misbehave(behaviour, reply);
        break;
      case Op::run:
        reply.cell = request.cell;
        reply.outcome = outcome_of(*request.cell, behaviour);
        if (goes_wrong_at(*request.cell)) misbehave(behaviour, reply);
        break;
      case Op::quit:
        if (behaviour == "never_quits") sleep_for_ever();
        break;
    }
    send_text(to_wire(reply) + "\n");
    if (request.op == Op::quit) return 0;
  }
}
