// The ways to compare: new launches of two arms, two finished runs, two bundles without a GPU.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compare_host.h"
#include "comparison.h"
#include "errors.h"
#include "log.h"
#include "options.h"
#include "verbs.h"

namespace arb {

// What standard output gets.
std::string document_of(const Comparison& comparison, CompareFormat format);

// Each returns how the program ends; errors are exceptions.
ExitCode compare_arms(const CompareOptions& options, const Terminal& terminal, const Interrupt& interrupt,
                      Log& log, const HostMaker& make_host);
ExitCode compare_two_runs(const CompareOptions& options, const Terminal& terminal, Log& log);
ExitCode compare_bundles(const CompareOptions& options, const Terminal& terminal, Log& log);

// compare_verb (verbs.h) on a host of the caller's.
int compare_verb_on(const CompareOptions& options, const Terminal& terminal, const Interrupt& interrupt,
                    const HostMaker& make_host);

// The arguments that an interrupted comparison was started with. Throws EnvironmentError where the folder is
// no interrupted comparison.
std::vector<std::string> arguments_to_resume(const std::filesystem::path& folder);

}  // namespace arb
