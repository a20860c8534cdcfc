// What NCCL really did, read from its own log: algorithm, protocol, channels and transport. NCCL has no call
// that says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace arb::nccl {

// NCCL's choice for one allreduce.
struct Choice {
  std::uint64_t bytes = 0;              // of one rank's tensor
  std::string algorithm;                // "RING"; for a symmetric kernel its name
  std::string protocol;                 // "LL"; "symmetric" for a symmetric kernel
  std::uint32_t channels = 0;           // blocks a rank
  std::vector<std::string> transports;  // "P2P/CUMEM", "SHM/direct/direct"; empty: not known for certain

  friend bool operator==(const Choice&, const Choice&) = default;
};

// Whether it was a kernel for symmetric windows.
bool is_symmetric(const Choice& choice);
// "RING LL 8 channels P2P/CUMEM"; several transports joined by '+'.
std::string describe(const Choice& choice);

// Reads NCCL's log (NCCL_DEBUG=INFO; the lines of 2.24 to 2.31) in pieces of any length.
class LogParser {
 public:
  void feed(std::string_view text);
  // The newest allreduce's choice; empty where the log has none, or the newest one is in a form not known
  // here.
  [[nodiscard]] std::optional<Choice> newest() const;

 private:
  void line(std::string_view text);
  void all_reduce(std::string_view text);

  std::string rest_;  // a line whose end has not come yet
  std::optional<Choice> newest_;
  std::vector<std::string> transports_;  // of the communicators that live, in the order seen
  std::uint32_t communicators_ = 0;      // that live
};

// Has NCCL write its log to an anonymous file in memory and reads the choices from it. Make one before
// Library::open and keep it until the communicators are gone, at most one a process: NCCL reads the settings
// once. It sets NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,TUNING and NCCL_DEBUG_FILE and takes them away in the
// end; where the user has set NCCL_DEBUG it does nothing. Costs a line of log for each call enqueued or
// captured, none for a graph replay.
class DebugLog {
 public:
  DebugLog();
  ~DebugLog();
  DebugLog(const DebugLog&) = delete;
  DebugLog& operator=(const DebugLog&) = delete;
  DebugLog(DebugLog&&) = delete;
  DebugLog& operator=(DebugLog&&) = delete;

  // Why nothing is recorded, one sentence; empty: it is.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  // Of the newest allreduce; empty when unknown, never a guess, and when it was of another size (bytes of one rank's
  // tensor).
  std::optional<Choice> choice_for(std::uint64_t bytes);

 private:
  void read_on();

  int file_ = -1;
  std::uint64_t read_bytes_ = 0;
  LogParser parser_;
  std::string why_not_;
};

}  // namespace arb::nccl
