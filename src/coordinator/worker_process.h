// A worker as the coordinator sees it: a child process that answers lines, or is lost with one sentence.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "interrupt.h"
#include "wire.h"

namespace arb {

// A worker that cannot go on. what() is one sentence: who, doing what, what happened, and its last line of
// stderr.
class WorkerLost : public std::runtime_error {
 public:
  enum class Cause : std::uint8_t {
    died,        // its process ended
    deadline,    // it did not answer in time
    nonsense,    // it answered something that is no reply to this request
    wrong_cell,  // it answered for another cell
  };
  WorkerLost(Cause cause, const std::string& sentence) : std::runtime_error(sentence), cause_(cause) {}
  [[nodiscard]] Cause cause() const { return cause_; }

 private:
  Cause cause_;
};

// How to start a worker.
struct WorkerLaunch {
  std::string who;                                    // for sentences: "the kernels' worker"
  std::filesystem::path program = "/proc/self/exe";   // tests put a fake worker here
  std::vector<std::string> arguments;                 // after the program's name
  std::map<std::string, std::string> variables = {};  // set in its environment, over what is there
  std::filesystem::path log_file;        // gets its stdout and stderr; empty: only the last lines are kept
  const Interrupt* interrupt = nullptr;  // must outlive the worker; null: requests cannot be interrupted
  std::vector<int> descriptors = {};     // the worker has them too, as worker_socket_fd + 1 and so on
};
// The arguments that make `arbench` a worker with this configuration.
std::vector<std::string> worker_arguments(const WorkerConfig& config);

// Owns one worker process and its process group. The worker starts with CUDA_MODULE_LOADING=EAGER and
// CUDA_DEVICE_MAX_CONNECTIONS=32 and otherwise the environment of this process, is the leader of a process
// group of its own (so that a Ctrl-C at the terminal reaches the coordinator alone), and dies with the thread
// that made this object.
class WorkerProcess {
 public:
  // Starts the worker. Throws std::system_error where no process can be made.
  explicit WorkerProcess(WorkerLaunch launch);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  WorkerProcess(WorkerProcess&&) = delete;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  // Kills the worker's process group.
  ~WorkerProcess();

  // Sends a request and waits for its reply, at most `deadline`. Throws WorkerLost (`doing` says with what)
  // after killing the process group, Interrupted after the same, WireError where the request itself cannot be
  // sent. A reply with `error` is returned.
  Reply request(const Request& request, std::chrono::milliseconds deadline, std::string_view doing);
  // Asks the worker to end and gives it `patience` before it is killed; never throws.
  void quit(std::chrono::milliseconds patience) noexcept;
  // The same for workers that need each other: all get the request before any reply is waited for. One that
  // is lost takes the others with it.
  static std::vector<Reply> request_all(std::span<WorkerProcess* const> workers, const Request& request,
                                        std::chrono::milliseconds deadline, std::string_view doing);
  static void quit_all(std::span<WorkerProcess* const> workers, std::chrono::milliseconds patience) noexcept;
  // False once it was lost, interrupted or asked to quit.
  [[nodiscard]] bool alive() const;

 private:
  class Child;
  // Kills the worker; the error to throw.
  WorkerLost lose(WorkerLost::Cause cause, const std::string& what, std::string_view doing);
  WorkerLost nonsense(std::string_view why, std::string_view said, std::string_view doing);
  WorkerLost too_late(std::chrono::milliseconds deadline, std::string_view doing);
  WorkerLost ended(std::chrono::steady_clock::time_point until, std::string_view doing);
  // The reply in the line that came; throws WorkerLost where it is none to `request`.
  Reply reply_to(const Request& request, std::string_view doing);

  std::unique_ptr<Child> child_;
  WorkerLaunch launch_;
};

}  // namespace arb
