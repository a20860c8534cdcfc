// The emulated box: a backend that needs no GPU. It says whether contenders are right and what they move,
// never how long it takes.
#pragma once

#include <cstdint>
#include <memory>

#include "backend.h"

namespace arb {

// Runs cells of 2 to `ranks` ranks. Evidence is `emulated`, the world "emulated", limits() empty; an Outcome
// has messages and wire_bytes of one call by its busiest rank, and no samples.
std::unique_ptr<Backend> make_emulated_box(std::uint32_t ranks);

}  // namespace arb
