// The columns of a row, once and in order, for every format that writes or reads them.
#pragma once

namespace arb {

// Calls visit(name, field) for each column of a RowFields (or const RowFields) in the order of rows.csv.
template <typename Fields, typename Visitor>
void for_each_column(Fields& row, Visitor&& visit) {
  visit("evidence", row.evidence);
  visit("contender", row.contender);
  visit("toolkit", row.toolkit);
  visit("compiler", row.compiler);
  visit("nccl", row.nccl);
  visit("world", row.world);
  visit("dtype", row.dtype);
  visit("ranks", row.ranks);
  visit("gpus", row.gpus);
  visit("bytes", row.bytes);
  visit("place", row.place);
  visit("mode", row.mode);
  visit("cache", row.cache);
  visit("launch", row.launch);
  visit("calls_per_graph", row.calls_per_graph);
  visit("samples", row.samples);
  visit("p50_us", row.p50_us);
  visit("p95_us", row.p95_us);
  visit("p99_us", row.p99_us);
  visit("min_us", row.min_us);
  visit("algbw_gbps", row.algbw_gbps);
  visit("busbw_gbps", row.busbw_gbps);
  visit("floor_us", row.floor_us);
  visit("floor_ratio", row.floor_ratio);
  visit("messages", row.messages);
  visit("wire_bytes", row.wire_bytes);
  visit("wire_bytes_theory", row.wire_bytes_theory);
  visit("correct", row.correct);
  visit("max_error", row.max_error);
  visit("output_hash", row.output_hash);
  visit("ran", row.ran);
  visit("flags", row.flags);
}

}  // namespace arb
