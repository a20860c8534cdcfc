// What every results folder of a verb ends with: what it ran on, and the command.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "environment.h"
#include "errors.h"
#include "options.h"
#include "results_folder.h"

namespace arb {

// When a verb began: for command.txt, and as the folder's name begins.
struct Started {
  std::string utc = utc_now(true);
  std::string name = utc_now(false);
};

// How it ended.
struct Ended {
  bool interrupted = false;
  ExitCode exit_code = ExitCode::good;
  std::vector<std::string> remarks;
};

// Writes environment.json and manifest.json and publishes the folder as <started>-<what>, `what` being such as
// "2xH200-run". Gives its path. Throws EnvironmentError, BundleError.
std::filesystem::path publish_results(ResultsFolder& folder, const Environment& environment,
                                      const RunOptions& options, const Started& started,
                                      const std::string& what, Ended ended);

}  // namespace arb
