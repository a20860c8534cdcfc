#include "measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "catalog.h"
#include "stats.h"

namespace arb {
namespace {

void require(bool holds, const RowFields& fields, const char* rule) {
  if (holds) return;
  throw InvalidRow(
      fmt::format("the row of {} at {} bytes breaks a rule: {}", fields.contender, fields.bytes, rule));
}

bool has_word(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

Row::Row(RowFields fields) : fields_(std::move(fields)) {
  const RowFields& f = fields_;
  const std::array latency = {f.p50_us, f.p95_us, f.p99_us, f.min_us, f.algbw_gbps, f.busbw_gbps};
  for (const auto& figure : latency) {
    require(figure.has_value() == timed(), f, "times and bandwidths are there together or not at all");
  }
  for (const auto& figure :
       {f.p50_us, f.p95_us, f.p99_us, f.min_us, f.algbw_gbps, f.floor_us, f.floor_ratio}) {
    require(!figure || (std::isfinite(*figure) && *figure > 0), f, "a figure is finite and positive");
  }
  require(!f.busbw_gbps || (std::isfinite(*f.busbw_gbps) && *f.busbw_gbps >= 0), f, "a figure is finite");
  require(f.floor_us.has_value() == f.floor_ratio.has_value(), f, "a floor comes with its ratio");
  require(timed() || !f.floor_us, f, "a floor stands beside a time");
  require(timed() == f.samples.has_value(), f, "times come with the number of samples");
  require(!f.samples || *f.samples > 0, f, "times rest on at least one sample");
  if (timed()) {
    require(*f.min_us <= *f.p50_us && *f.p50_us <= *f.p95_us && *f.p95_us <= *f.p99_us, f,
            "percentiles do not decrease");
    require(f.evidence != Evidence::emulated, f, "emulated rows have no times");
    require(f.correct.value_or(true), f, "a cell whose data is wrong has no times");
    require(f.flags.find("oversubscribed") == std::string::npos, f, "ranks that share a GPU have no times");
  }
  require(f.evidence != Evidence::measured || !f.messages, f, "traffic is counted in the emulator only");
  require((f.world == "emulated") == (f.evidence == Evidence::emulated), f, "world and evidence agree");
  require(!f.max_error || (std::isfinite(*f.max_error) && *f.max_error >= 0), f, "an error is a number");
}

double bytes_to_send(std::uint64_t message_bytes, std::uint32_t ranks) {
  const double n = ranks;
  return static_cast<double>(message_bytes) * 2 * (n - 1) / n;
}

double floor_us(const Cell& cell, const MachineLimits& limits) {
  const double node_us = cell.mode == Mode::isolated
                             ? limits.isolated_node_us
                             : limits.node_us + limits.graph_start_us / cell.calls_per_graph;
  // 1 GB/s is 1000 bytes a microsecond.
  return node_us + limits.flag_us + bytes_to_send(cell.bytes, cell.ranks) / (limits.bandwidth_gbps * 1e3);
}

BundleName split_bundle_name(std::string_view bundle) {
  const std::size_t dash = bundle.rfind('-');
  if (dash == std::string_view::npos) return {.toolkit = std::string(bundle), .compiler = {}};
  return {.toolkit = std::string(bundle.substr(0, dash)), .compiler = std::string(bundle.substr(dash + 1))};
}

const std::string& contender_name(const Cell& cell) {
  return cell.alias.empty() ? cell.contender : cell.alias;
}

std::string variant_name(const Cell& cell) {
  if (!cell.bundle.empty()) return cell.bundle;
  if (!cell.nccl.empty()) return cell.nccl;
  const CatalogRow* const row = find_contender(cell.contender);
  if (row != nullptr && row->source == Source::peer) return std::string(row->peer);
  return "g++";
}

std::string cell_name(const Cell& cell) {
  return fmt::format("{}/{}/{}/n{}/{}/{}/{}/{}", contender_name(cell), variant_name(cell),
                     name_of(cell.dtype), cell.ranks, cell.bytes, name_of(cell.place), name_of(cell.mode),
                     name_of(cell.cache));
}

Row measure(const Backend& backend, const Cell& cell, const Outcome& outcome, const RowContext& context) {
  RowFields row;
  row.evidence = backend.evidence();
  row.world = backend.world();
  row.contender = contender_name(cell);
  if (row.evidence == Evidence::emulated) {
    row.compiler = "g++";
  } else {
    auto [toolkit, compiler] = split_bundle_name(cell.bundle);
    row.toolkit = std::move(toolkit);
    row.compiler = std::move(compiler);
    row.nccl = cell.nccl;
    row.gpus = context.gpus;
  }
  row.dtype = cell.dtype;
  row.ranks = cell.ranks;
  row.bytes = cell.bytes;
  row.place = cell.place;
  row.mode = cell.mode;
  row.cache = cell.cache;
  row.launch = context.launch;
  row.calls_per_graph = cell.calls_per_graph;
  row.ran = cell.alias.empty() || outcome.ran.empty() ? outcome.ran : cell.contender + " " + outcome.ran;

  std::vector<std::string> flags = outcome.flags;
  const auto flag = [&flags](const char* word) {
    if (!has_word(flags, word)) flags.emplace_back(word);
  };
  if (!outcome.failure.empty()) {
    flag("failed");
    row.flags = joined(flags);
    return Row(std::move(row));
  }

  row.messages = outcome.messages;
  row.wire_bytes = outcome.wire_bytes;
  if (const CatalogRow* contender = find_contender(cell.contender)) {
    row.wire_bytes_theory = contender->wire_bytes_theory({cell.ranks, cell.island_ranks}, cell.bytes);
  }
  // A hang is wrong even where nothing was to be compared; what was not compared has neither error nor hash.
  const bool wrong = !outcome.wrong.empty() || (cell.check && !outcome.correct);
  if (wrong) row.correct = false;
  if (cell.check) {
    row.correct = !wrong;
    row.output_hash = outcome.output_hash;
    if (!std::isfinite(outcome.max_error)) {
      flag("error_not_finite");
    } else if (!wrong || outcome.max_error > 0) {
      row.max_error = outcome.max_error;
    }
  } else {
    flag("unchecked");
  }
  if (row.evidence == Evidence::emulated) {
    if (!outcome.samples_us.empty())
      throw InvalidRow("an emulated backend answered with times, which mean nothing");
  } else if (has_word(outcome.flags, "oversubscribed")) {
    // Ranks that share a GPU prove a protocol; their times are no figures.
  } else if (row.correct.value_or(true)) {
    if (outcome.samples_us.empty())
      throw InvalidRow(fmt::format("{} ran and has no samples", cell_name(cell)));
    const Percentiles figures = [&] {
      try {
        return percentiles_of(outcome.samples_us);
      } catch (const std::invalid_argument& error) {
        throw InvalidRow(fmt::format("{}: {}", cell_name(cell), error.what()));
      }
    }();
    row.samples = outcome.samples_us.size();
    row.p50_us = figures.p50_us;
    row.p95_us = figures.p95_us;
    row.p99_us = figures.p99_us;
    row.min_us = figures.min_us;
    row.algbw_gbps = static_cast<double>(cell.bytes) / (figures.p50_us * 1e3);
    row.busbw_gbps =
        *row.algbw_gbps * bytes_to_send(cell.bytes, cell.ranks) / static_cast<double>(cell.bytes);
    if (context.limits && context.limits->bandwidth_gbps > 0) {
      row.floor_us = floor_us(cell, *context.limits);
      row.floor_ratio = figures.p50_us / *row.floor_us;
    }
  }
  row.flags = joined(flags);
  return Row(std::move(row));
}

}  // namespace arb
