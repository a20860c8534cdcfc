// Everything that is not data: sentences and the progress line, on the error stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

namespace arb {

class Log {
 public:
  // Writes to `err`, which must outlive the log. With `live` (a terminal) progress is one line that is
  // written over; without, a line now and then.
  Log(std::ostream& err, bool live);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  Log(Log&&) = delete;
  Log& operator=(Log&&) = delete;
  ~Log();

  // One sentence for the person at the terminal, kept for command.txt.
  void sentence(const std::string& text);
  // The sentences so far.
  [[nodiscard]] const std::vector<std::string>& sentences() const { return sentences_; }

  // Says that `done` of `total` parts of the work (any unit) lie behind and what comes next.
  void progress(double done, double total, const std::string& next);
  // Wipes the progress line, so that other output can follow.
  void clear();

 private:
  struct Sink;
  std::unique_ptr<Sink> sink_;
  std::ostream& err_;
  bool live_;
  bool line_shown_ = false;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_shown_;
  std::vector<std::string> sentences_;
};

}  // namespace arb
