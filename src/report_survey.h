// A survey of the machine's limits as people and programs read it: matrices by pair, tables by block count.
#pragma once

#include <string>

#include "survey.h"

namespace arb {

// Tables for a console; "-" where a test was not made. Ends with a line a warning.
std::string survey_text(const Survey& survey);
// Strict JSON, indented, with a final newline: {"schema": "arbench limits", "version": 1, "evidence": "measured", ...}.
// Matrices have a row a sending rank; null on the diagonal and where a test was not made. `tests_left_out` is said as
// it is.
std::string survey_json(const Survey& survey, std::size_t tests_left_out);

}  // namespace arb
