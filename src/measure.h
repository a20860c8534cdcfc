// From what a backend found to one row of figures, and what keeps a row honest.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "backend.h"
#include "cell.h"
#include "types.h"

namespace arb {

// The columns of rows.csv, in their order. Empty (nullopt or "") where not applicable.
struct RowFields {
  Evidence evidence = Evidence::emulated;
  std::string contender;
  std::string toolkit;   // "13.0"
  std::string compiler;  // "nvcc", "nvrtc", "g++"
  std::string nccl;      // version+build
  std::string world;     // "threads", "emulated"
  Dtype dtype = Dtype::bf16;
  std::uint32_t ranks = 0;
  std::optional<std::uint32_t> gpus;  // distinct ones
  std::uint64_t bytes = 0;
  Place place = Place::out;
  Mode mode = Mode::pipelined;
  Cache cache = Cache::warm;
  std::uint32_t launch = 0;  // counts from 0
  std::uint32_t calls_per_graph = 1;
  std::optional<std::uint64_t> samples;
  std::optional<double> p50_us;
  std::optional<double> p95_us;
  std::optional<double> p99_us;
  std::optional<double> min_us;
  std::optional<double> algbw_gbps;
  std::optional<double> busbw_gbps;
  std::optional<double> floor_us;
  std::optional<double> floor_ratio;
  std::optional<std::uint64_t> messages;
  std::optional<std::uint64_t> wire_bytes;
  std::optional<std::uint64_t> wire_bytes_theory;
  std::optional<bool> correct;
  std::optional<double> max_error;
  std::string output_hash;
  std::string ran;
  std::string flags;  // words, blanks between

  friend bool operator==(const RowFields&, const RowFields&) = default;
};

// A row that contradicts itself; what() is one sentence.
class InvalidRow : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a row needs to know beside the cell and its outcome.
struct RowContext {
  std::optional<std::uint32_t> gpus;  // distinct GPUs under the ranks; empty when emulated
  std::uint32_t launch = 0;           // counts from 0
  std::optional<MachineLimits> limits;
};

// A row whose figures agree with its evidence. Nothing but measure() (from a backend) and the reader of
// rows.csv (from a published file) can make one, and nothing can change one, so no path turns one kind of
// evidence into another:
//   - emulated rows have no times, bandwidths or floors;
//   - ranks that share a GPU (oversubscribed) have none either;
//   - a wrong cell has none either, and has max_error unless the error is no number;
//   - times are there together or not at all, finite, positive and ordered; measured rows have no traffic
//   counts.
class Row {
 public:
  // The columns, to read.
  [[nodiscard]] const RowFields& get() const { return fields_; }
  const RowFields* operator->() const { return &fields_; }
  [[nodiscard]] bool timed() const { return fields_.p50_us.has_value(); }
  friend bool operator==(const Row&, const Row&) = default;

 private:
  explicit Row(RowFields fields);  // throws InvalidRow
  friend Row measure(const Backend& backend, const Cell& cell, const Outcome& outcome,
                     const RowContext& context);
  friend class RowReader;

  RowFields fields_;
};

// The row of a cell that `backend` ran; evidence and world are the backend's. Throws InvalidRow when the
// outcome holds times that the backend's evidence cannot have, or no times where it must have them.
Row measure(const Backend& backend, const Cell& cell, const Outcome& outcome, const RowContext& context);

// Bytes a rank must send for an allreduce of `message_bytes`: message x 2(n-1)/n.
double bytes_to_send(std::uint64_t message_bytes, std::uint32_t ranks);
// The least time of a cell on a machine with these limits, in microseconds: node + flag + bytes / best
// bandwidth.
double floor_us(const Cell& cell, const MachineLimits& limits);
// "13.0-nvrtc" in two: toolkit and compiler. A name without a dash is all toolkit.
struct BundleName {
  std::string toolkit;
  std::string compiler;
};
BundleName split_bundle_name(std::string_view bundle);
// The cell's contender as rows name it: "auto" where it was chosen by that.
const std::string& contender_name(const Cell& cell);
// What the cell's contender was built or loaded from: "13.0-nvrtc", an NCCL version, or "g++" when emulated.
std::string variant_name(const Cell& cell);
// The name that joins a cell across runs: "two_shot_pull/13.0-nvrtc/bf16/n2/1024/out/pipelined/warm".
std::string cell_name(const Cell& cell);

}  // namespace arb
