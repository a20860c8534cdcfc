#include "verb_probe.h"

#include <exception>
#include <ostream>

#include "errors.h"
#include "probe/trials.h"

namespace arb {

int probe_verb(const ProbeVerbOptions& options, const Terminal& terminal) {
  try {
    if (options.json && options.markdown) throw UsageError("--json and --markdown: choose one");
    probe::ProbeOptions wanted = options.probe;
    wanted.what_if = probe::assumptions_from(options.what_if);
    if (options.json) wanted.output = probe::Output::json;
    if (options.markdown) wanted.output = probe::Output::markdown;
    wanted.redact = !options.with_names;
    terminal.out << probe::report(wanted) << std::flush;
    return status_of(ExitCode::good);
  } catch (const UsageError& error) {
    terminal.err << "arbench probe: " << error.what() << '\n';
    return status_of(ExitCode::usage);
  } catch (const std::exception& error) {
    terminal.err << "arbench probe: " << error.what() << '\n';
    return status_of(ExitCode::invalid_environment);
  }
}

int probe_child_verb(const std::vector<std::string>& task) {
  return probe::child_main(task);
}

}  // namespace arb
