// rows.csv: written a row at a time, read back whole and with suspicion.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "measure.h"

namespace arb {

// A text as one field: in quotes where it holds a comma, a quote or a line's end (which becomes a blank).
std::string csv_field(const std::string& text);
// The header line, without its newline.
std::string csv_header();
// One row, without its newline. Numbers are the shortest text that reads back as the same double.
std::string csv_line(const Row& row);

// A text that is not a whole rows.csv of ours; what() is one sentence with the line.
class CsvError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Reads what csv_header() and csv_line() wrote.
class RowReader {
 public:
  // All rows of a rows.csv. Throws CsvError on another header, a cut line, a wrong number of columns, a value
  // that is none of its column's, or a row that contradicts itself (InvalidRow becomes CsvError).
  static std::vector<Row> read(std::string_view text);
};

}  // namespace arb
