// Ctrl-C, or a terminal that goes away, as something to wait for instead of something that strikes anywhere.
#pragma once

namespace arb {

// From construction on SIGINT, SIGTERM and, unless it is ignored, SIGHUP no longer end the process; they make fd()
// readable and arrived() true for good. Make one before any thread starts, and keep it to the end.
class Interrupt {
 public:
  // Throws std::system_error.
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  Interrupt(Interrupt&&) = delete;
  Interrupt& operator=(Interrupt&&) = delete;
  ~Interrupt();

  // A descriptor that polls readable once a signal has arrived.
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool arrived() const;

 private:
  int fd_ = -1;
};

}  // namespace arb
