// libarb_worker.so: the worker for a program that brings a peer library.
#include <exception>

#include "errors.h"
#include "worker.h"

extern "C" {

// Serves requests on `socket_fd` as `arbench worker` does, with `peer` beside; both must stay until it returns. Returns
// the process's exit status and throws nothing.
[[gnu::visibility("default")]] int arb_worker_main(const char* config, int socket_fd, const ArbPeer* peer) {
  try {
    return arb::worker::worker_main(config == nullptr ? "" : config, socket_fd, peer);
  } catch (...) {
    return arb::status_of(arb::ExitCode::invalid_environment);
  }
}
}
