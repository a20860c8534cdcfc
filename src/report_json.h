// Rows as strict JSON: {"schema": "arbench rows", "version": 1, "rows": [{...}]}.
#pragma once

#include <span>
#include <string>

#include "measure.h"

namespace arb {

// A JSON document of these rows, indented, with a final newline. The keys of a row are the columns of
// rows.csv in their order; what does not apply has no key, so every number there is finite and was found.
std::string json_document(std::span<const Row> rows);

}  // namespace arb
