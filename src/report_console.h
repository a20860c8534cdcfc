// The table of a run, in the columns of nccl-tests; an emulated table has traffic where times would be.
#pragma once

#include <iosfwd>
#include <vector>

#include "measure.h"

namespace arb {

// Which columns a table has.
struct TableShape {
  Evidence evidence = Evidence::emulated;
  std::vector<Place> places = {Place::out};
  std::vector<Mode> modes = {Mode::pipelined, Mode::isolated};
  bool several_caches = false;
  bool several_launches = false;
};

// Prints rows as blocks, one a size. A line joins the rows of one contender that differ in place and mode
// only, and a block is printed when the next begins, because only then is its best known (the least p50 of
// the first place and mode asked for, pipelined before isolated; marked with *).
class ConsoleTable {
 public:
  // Prints to `out`, which must outlive the table.
  ConsoleTable(std::ostream& out, TableShape shape);
  void add(const Row& row);
  // Prints the last block and what the columns do not say; call once.
  void finish();

 private:
  void print_header();
  void print_block();

  std::ostream& out_;
  TableShape shape_;
  std::vector<Row> block_;
  bool header_printed_ = false;
  std::size_t rows_ = 0;
  std::size_t wrong_ = 0;
  std::size_t failed_ = 0;
  std::size_t unchecked_ = 0;
};

}  // namespace arb
