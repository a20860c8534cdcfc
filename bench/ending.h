// How a verb ends: what went wrong becomes one sentence in its log and an exit status.
#pragma once

#include <exception>
#include <string>

#include "coordinator/worker_process.h"
#include "errors.h"

namespace arb {

// Runs verb.go() and gives the status for exit(); `interrupted` is the sentence for a verb that kept nothing.
template <class Verb>
int run_to_end(Verb& verb, const std::string& interrupted) {
  const auto end = [&](const std::string& sentence, ExitCode code) {
    verb.log().sentence(sentence);
    return status_of(code);
  };
  try {
    return status_of(verb.go());
  } catch (const UsageError& error) {
    return end(error.what(), ExitCode::usage);
  } catch (const WorkerLost& error) {
    return end(error.what(), ExitCode::wrong_data);
  } catch (const Interrupted&) {
    return end(interrupted, ExitCode::invalid_environment);
  } catch (const std::exception& error) {
    return end(error.what(), ExitCode::invalid_environment);
  }
}

}  // namespace arb
