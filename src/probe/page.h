// The report as people read it: a page for a terminal, or Markdown for a bug report.
#pragma once

#include <string>

#include "probe/json.h"

namespace arb::probe {

// The important first: verdicts, what an upgrade changes, the stack, the GPUs, the host, what was not seen.
std::string page(const Report& report);
// The same as Markdown. `redact` leaves out host and user names, home paths and GPUs' serial UUIDs.
std::string markdown(const Report& report, const Box& box, bool redact);
// `text` without what names a person, a host or a GPU (names.h).
std::string redacted(std::string text, const Box& box);

}  // namespace arb::probe
