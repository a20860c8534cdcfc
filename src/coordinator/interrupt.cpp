#include "interrupt.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace arb {

Interrupt::Interrupt() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // An ssh that drops must cost no more than Ctrl-C does. Under nohup the signal is ignored and stays so: a blocked one
  // would arrive after all.
  struct sigaction hang_up {};
  if (sigaction(SIGHUP, nullptr, &hang_up) != 0)
    throw std::system_error(errno, std::generic_category(), "sigaction");
  if (hang_up.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0)
    throw std::system_error(errno, std::generic_category(), "sigprocmask");
  // Never read from: a signal stays pending, so it is seen by everyone who asks.
  fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
}

Interrupt::~Interrupt() {
  ::close(fd_);
}

bool Interrupt::arrived() const {
  pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace arb
