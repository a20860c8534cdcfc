// A deadline for a call of somebody else's library that has none.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace arb {

// Ends the process with status 2 and a sentence on stderr where it is not destroyed in time: a call that waits for
// other processes cannot be given up.
class CallDeadline {
 public:
  // `who` did not come back from `doing`.
  CallDeadline(std::chrono::milliseconds deadline, std::string who, std::string doing)
      : watcher_([this, deadline, who = std::move(who),
                  doing = std::move(doing)](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          const auto until = std::chrono::steady_clock::now() + deadline;
          if (condition_.wait_until(lock, stop, until, [&] { return stop.stop_requested(); }) ||
              stop.stop_requested()) {
            return;
          }
          constexpr int exit_status_of_a_hang = 2;
          fmt::print(stderr, "{} did not come back from {} within {} ms: a rank is missing or has failed\n",
                     who, doing, deadline.count());
          std::fflush(stderr);
          ::_exit(exit_status_of_a_hang);
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any condition_;
  std::jthread watcher_;  // stopped and joined first
};

}  // namespace arb
