// The verbs of arbench. Each returns the program's exit status and lets no exception out.
#pragma once

#include <iosfwd>
#include <string>

#include "coordinator/interrupt.h"
#include "options.h"

namespace arb {

// Where a verb prints: data to `out`, everything else to `err`.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool err_is_live = false;  // a person looks at it: the progress line is written over
};

// Runs the plan of `options`, prints it and leaves a results folder. Exit status: 0 all right; 1 a command
// line that asks for what does not exist; 2 wrong data, a hang or a lost worker; 5 an environment that cannot
// do it, a cell that could not run, or an interrupt (what was complete is kept, in a folder named
// -interrupted).
int run_verb(const RunOptions& options, const Terminal& terminal, const Interrupt& interrupt);
// Proves what can be proved on this machine: every contender under graph replay with data that changes, on
// GPUs (virtual ranks too) or emulated; prints a table and leaves verify.csv in a results folder. Exit status:
// as run_verb().
int verify_verb(const VerifyOptions& options, const Terminal& terminal, const Interrupt& interrupt);
// Prints contenders, bundles, GPUs and NCCLs. Exit status: 0; 5 when a bundle there cannot be used.
int list_verb(const ListOptions& options, const Terminal& terminal, const Interrupt& interrupt);
// Compares two arms by fresh launches, two finished runs, or two bundles without a GPU. Exit status: 0; 1
// usage; 2 wrong data, a hang or a lost worker; 3 something is SLOWER; 4 something is INCONCLUSIVE, with
// --strict; 5 an environment that cannot do it, a failed gate, or an interrupt (whole blocks are kept,
// --resume goes on).
int compare_verb(const CompareOptions& options, const Terminal& terminal, const Interrupt& interrupt);
// Searches the fastest contender and launch shape of each size, prints the crossover table and leaves tuning.json in a
// results folder and where the options say. Exit status: 0; 1 usage; 2 wrong data, a hang or a lost worker; 5 fewer
// than 2 GPUs that reach each other, a cell that could not run, or an interrupt (nothing is kept).
int tune_verb(const TuneOptions& options, const Terminal& terminal, const Interrupt& interrupt);
// Measures what the machine itself can do, prints it with warnings and leaves limits.json in a results folder. Exit
// status: 0, with warnings too; 1 usage; 2 a hang or a lost worker; 5 fewer than 2 GPUs that reach each other, a test
// that could not be made, or an interrupt (what was measured is kept).
int limits_verb(const RunOptions& options, const Terminal& terminal, const Interrupt& interrupt);
// What a worker process runs, until its coordinator says quit or is gone.
int worker_verb(const std::string& config, const Terminal& terminal);

}  // namespace arb
