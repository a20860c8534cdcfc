// A worker's life: it holds contexts, buffers and communicators, runs one request at a time and answers it.
#pragma once

#include <string>

#include "peer.h"

namespace arb::worker {

// Serves requests (wire.h) on `socket_fd` until it is told to quit or the coordinator is gone; returns the
// process's exit status. `config_text` is a WorkerConfig in wire form. `peer`: the library that this process
// brings, or null.
int worker_main(const std::string& config_text, int socket_fd, const ArbPeer* peer = nullptr);

}  // namespace arb::worker
