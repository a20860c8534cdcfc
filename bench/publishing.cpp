#include "publishing.h"

#include <utility>

namespace arb {

std::filesystem::path publish_results(ResultsFolder& folder, const Environment& environment,
                                      const RunOptions& options, const Started& started,
                                      const std::string& what, Ended ended) {
  folder.write("environment.json", environment_json(environment, options.probe_program));
  folder.write("manifest.json", manifest_json(environment));
  return folder.publish(started.name + "-" + what, {.command = options.command,
                                                    .version = ARB_VERSION,
                                                    .started = started.utc,
                                                    .interrupted = ended.interrupted,
                                                    .exit_code = ended.exit_code,
                                                    .remarks = std::move(ended.remarks)});
}

}  // namespace arb
