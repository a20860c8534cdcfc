#include <ostream>

#include "errors.h"
#include "verbs.h"
#include "wire.h"
#if ARB_HAS_WORKER
#include "worker/worker.h"
#endif

namespace arb {

int worker_verb(const std::string& config, [[maybe_unused]] const Terminal& terminal) {
#if ARB_HAS_WORKER
  return worker::worker_main(config, worker_socket_fd);
#else
  static_cast<void>(config);
  terminal.err << "this program was built without its worker\n";
  return status_of(ExitCode::invalid_environment);
#endif
}

}  // namespace arb
