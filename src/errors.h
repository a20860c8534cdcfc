// How the program ends, and the errors that say so. Every what() is one sentence: what, why, what would work.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace arb {

// Exit codes, fixed for scripts.
enum class ExitCode : std::uint8_t {
  good = 0,
  usage = 1,                // the command line asks for something that does not exist
  wrong_data = 2,           // a wrong result, or a hang that was caught
  regression = 3,           // compare: something became slower
  inconclusive = 4,         // compare --strict: nothing can be said
  invalid_environment = 5,  // this machine cannot do it now, or the run was interrupted
};
// The value for exit().
constexpr int status_of(ExitCode code) {
  return static_cast<int>(code);
}

// The user asked for something that does not exist; exit 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The machine or its files cannot do what was asked; exit 5.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// SIGINT, SIGTERM or SIGHUP arrived while something was under way.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

}  // namespace arb
