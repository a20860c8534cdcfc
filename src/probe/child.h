// A child process that is given a time to say something in.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace arb::probe {

struct ChildOptions {
  std::filesystem::path program;
  std::vector<std::string> arguments;              // after the program's name
  std::map<std::string, std::string> environment;  // added to ours
  std::chrono::milliseconds deadline{5'000};
};

struct ChildSaid {
  bool started = false;
  bool in_time = false;  // ended by itself before the deadline
  bool lost = false;     // neither ended nor could be killed
  int status = -1;       // exit status; -signal when a signal ended it
  std::string out;       // at most 1 MiB each
  std::string err;
  double seconds = 0;
  // What went wrong, one clause; empty when it ended with status 0 in time.
  [[nodiscard]] std::string problem() const;
};

// Runs the program in a process group of its own and kills the group at the deadline. Returns half a second
// after it at the latest. Never throws.
ChildSaid run_child(const ChildOptions& options) noexcept;

}  // namespace arb::probe
