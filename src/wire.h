// What coordinator and worker say to each other: one JSON object a line over one stream socket.
//
//   coordinator -> worker                    worker -> coordinator
//   {"op":"hello"}                           {"op":"hello","hello":{...}}
//   {"op":"limits"}                          {"op":"limits","limits":{...}}
//   {"op":"measure","test":{...}}            {"op":"measure","figure":1.5}
//   {"op":"run","cell":{...}}                {"op":"run","cell":{...the same...},"outcome":{...}}
//   {"op":"quit"}                            {"op":"quit"}, then the worker ends with status 0
//   any                                      {"op":"...","error":"one sentence"}
//
// A worker answers each request once, in order, and says nothing unasked. `error` means that the request as a
// whole is impossible here (no libcuda.so.1, a corrupt bundle) and the worker stays usable; a cell that
// cannot run is an Outcome with `failure`. Strict both ways: a missing, unknown or mistyped key is a
// WireError, and so is a number that is not finite. This header needs no JSON library; wire.cpp is the only
// place that knows the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cell.h"
#include "limit_measurement.h"

namespace arb {

// Text that is no message of this protocol, or a value that cannot be sent; what() is one sentence.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The descriptor on which a worker finds its socket.
inline constexpr int worker_socket_fd = 3;

// What a worker is started with: `arbench worker --config TEXT`.
struct WorkerConfig {
  std::vector<std::uint32_t> devices;  // CUDA ordinals by rank, which may share one; empty: no contexts, the
                                       // worker only says hello
  std::vector<std::string>
      bundle_folders;                  // one folder a bundle (`bundles/13.0-nvrtc`), `support` among them
  std::string nccl_library;            // path to load; empty: NCCL cells are refused
  std::uint64_t deadline_ms = 30'000;  // of every wait on a device; a replay past it is a hang
  World world = World::threads;        // processes: this worker holds one rank, and finds its sockets to
                                       // the others (rendezvous.h) from worker_socket_fd + 1 on
  std::uint32_t rank = 0;              // which one
  std::string peer;                    // the peer library that the worker's program brings; empty: none

  friend bool operator==(const WorkerConfig&, const WorkerConfig&) = default;
};

// One CUDA device as the driver describes it; needs no context.
struct DeviceInfo {
  std::uint32_t ordinal = 0;
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // "GPU-..."
  std::string architecture;  // "sm_90"
  std::string pci_address;   // "0000:17:00.0"
  std::uint64_t memory_bytes = 0;
  std::vector<std::uint32_t> peers;  // ordinals that this device can read and write directly

  friend bool operator==(const DeviceInfo&, const DeviceInfo&) = default;
};

// A bundle that this worker loaded, or why it could not.
struct BundleInfo {
  std::string name;  // "13.0-nvrtc"
  std::string folder;
  std::string compiler;  // "nvrtc" or "nvcc"
  std::string problem;   // one sentence; empty: every kernel is loaded in every context

  friend bool operator==(const BundleInfo&, const BundleInfo&) = default;
};

// Who a worker is and what it found.
struct Hello {
  std::string driver;               // the kernel driver, "580.82.07"; empty where it cannot be read
  std::uint32_t cuda_driver = 0;    // cuDriverGetVersion: 13000 is 13.0; 0: no driver
  std::vector<DeviceInfo> devices;  // all that the driver shows, not only those of the configuration
  std::vector<BundleInfo> bundles;  // in the order of WorkerConfig::bundle_folders
  std::string nccl_version;         // "2.28.9+cuda13.0"; empty without NCCL
  std::string nccl_path;            // the file really loaded
  std::string nccl_problem;         // why nccl_library could not be loaded; empty when it was
  std::string nccl_window_problem;  // why it has no symmetric windows; empty when it has
  std::string peer_version;         // "torch 2.11.0+cu130"; empty without a peer
  std::string peer_problem;         // why the peer cannot be used, the rest is then empty; empty when it can

  friend bool operator==(const Hello&, const Hello&) = default;
};

enum class Op : std::uint8_t { hello, limits, measure, run, quit };
constexpr std::string_view name_of(Op op) {
  switch (op) {
    case Op::hello:
      return "hello";
    case Op::limits:
      return "limits";
    case Op::measure:
      return "measure";
    case Op::run:
      return "run";
    case Op::quit:
      break;
  }
  return "quit";
}

struct Request {
  Op op = Op::hello;
  std::optional<Cell> cell;            // with Op::run only
  std::optional<LimitTest> test = {};  // with Op::measure only

  friend bool operator==(const Request&, const Request&) = default;
};

struct Reply {
  Op op = Op::hello;              // of the request answered
  std::string error;              // one sentence; the parts below are then empty
  std::optional<bool> hung = {};  // only with an error: a wait on a device passed its deadline
  std::optional<Hello> hello;
  std::optional<MachineLimits> limits;
  std::optional<double> figure = {};  // of the test asked for, in the unit of its kind
  std::optional<Cell> cell;           // the cell asked for, with `outcome`
  std::optional<Outcome> outcome;

  friend bool operator==(const Reply&, const Reply&) = default;
};

// The functions below write and read one line without its newline; all throw WireError.
std::string to_wire(const WorkerConfig& config);
std::string to_wire(const Request& request);
std::string to_wire(const Reply& reply);
WorkerConfig worker_config_from_wire(std::string_view text);
Request request_from_wire(std::string_view text);
Reply reply_from_wire(std::string_view text);

}  // namespace arb
