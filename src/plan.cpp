#include "plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "catalog.h"
#include "measure.h"
#include "text.h"

namespace arb {
namespace {

constexpr std::uint64_t mib = 1 << 20;

// "no contender 'x'; did you mean 'y'? there are a, b and c"
UsageError unknown_name(std::string_view kind, std::string_view name, std::span<const std::string> known) {
  const auto nearest = nearest_name(name, known);
  const std::string hint = nearest ? fmt::format("did you mean '{}'? ", *nearest) : "";
  const std::string there = known.empty() ? "there are none here" : "there are " + enumerate(known);
  return UsageError(fmt::format("no {} '{}'; {}{}", kind, name, hint, there));
}

std::vector<const CatalogRow*> select_contenders(const std::vector<std::string>& wanted) {
  std::vector<const CatalogRow*> rows;
  std::vector<std::string> known;
  for (const CatalogRow& row : catalog()) {
    known.emplace_back(row.contender);
    if (wanted.empty()) rows.push_back(&row);
  }
  for (const std::string& name : wanted) {
    const CatalogRow* row = find_contender(name);
    if (row == nullptr) throw unknown_name("contender", name, known);
    if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
  }
  return rows;
}

// A value for sizes up to each bound in bytes.
std::uint32_t by_size(std::uint64_t bytes, std::uint32_t to_1m, std::uint32_t to_16m, std::uint32_t to_64m,
                      std::uint32_t above) {
  return bytes <= mib ? to_1m : bytes <= 16 * mib ? to_16m : bytes <= 64 * mib ? to_64m : above;
}

}  // namespace

std::uint32_t calls_per_graph(std::uint64_t message_bytes, Evidence evidence) {
  if (evidence == Evidence::emulated) return 3;
  return by_size(message_bytes, 20, 10, 5, 3);
}

std::uint32_t default_samples(std::uint64_t message_bytes, Mode mode, Evidence evidence) {
  if (evidence == Evidence::emulated) return 1;
  return mode == Mode::pipelined ? by_size(message_bytes, 21, 21, 15, 11)
                                 : by_size(message_bytes, 200, 100, 40, 20);
}

std::uint32_t default_warmups(std::uint64_t message_bytes, Mode mode, Evidence evidence) {
  if (evidence == Evidence::emulated) return 0;
  return mode == Mode::pipelined ? by_size(message_bytes, 5, 3, 2, 1) : by_size(message_bytes, 20, 10, 4, 2);
}

double expected_us(const Cell& cell) {
  // 890 us for 256 MiB on the slowest machine with NVLink; PCIe takes some ten times that.
  const double call_us = 10 + static_cast<double>(cell.bytes) / (256.0 * mib) * 8900;
  const double calls =
      (cell.samples + cell.warmups) * (cell.mode == Mode::pipelined ? cell.calls_per_graph : 1.0);
  constexpr double preparation_us = 30'000;  // buffers, capture, check
  if (cell.verify_calls != 0) {
    // Fill, delay and check stand beside the call, and ranks may share a GPU.
    return preparation_us + static_cast<double>(cell.verify_calls) * 4 * (100 + 4 * call_us);
  }
  return preparation_us + calls * call_us;
}

std::vector<std::uint64_t> sizes_of(const Sweep& sweep) {
  if (sweep.min_bytes == 0)
    throw UsageError("-b must be at least one element; an allreduce of 0 bytes has nothing to time");
  if (sweep.min_bytes > sweep.max_bytes) {
    throw UsageError(fmt::format("-b {} is more than -e {}; give a smaller -b or a larger -e",
                                 size_name(sweep.min_bytes), size_name(sweep.max_bytes)));
  }
  constexpr std::uint64_t too_large_bytes = 64ull << 30;
  if (sweep.max_bytes >= too_large_bytes) {
    throw UsageError(
        fmt::format("-e {} is too large: kernels count vectors of 16 bytes in 32 bits, so messages are "
                    "smaller than 64G",
                    size_name(sweep.max_bytes)));
  }
  if (sweep.step_bytes == 0 && sweep.factor < 2) {
    throw UsageError(fmt::format(
        "-f {} would never reach -e; a factor is 2 or more, -i takes a step in bytes", sweep.factor));
  }
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = sweep.min_bytes; bytes <= sweep.max_bytes;) {
    for (const Dtype dtype : sweep.dtypes) {
      if (bytes % size_of_bytes(dtype) == 0) continue;
      throw UsageError(
          fmt::format("{} bytes are no whole number of {} elements of {} bytes; choose -b, -f and -i so "
                      "that every size is a multiple of {}",
                      bytes, name_of(dtype), size_of_bytes(dtype), size_of_bytes(dtype)));
    }
    sizes.push_back(bytes);
    constexpr std::size_t most_sizes = 100'000;
    if (sizes.size() > most_sizes) {
      throw UsageError(
          fmt::format("more than {} sizes from -b to -e; a larger -i or -f gives fewer", most_sizes));
    }
    const std::uint64_t room = std::numeric_limits<std::uint64_t>::max();
    if (sweep.step_bytes != 0) {
      if (bytes > room - sweep.step_bytes) break;
      bytes += sweep.step_bytes;
    } else {
      if (bytes > room / sweep.factor) break;
      bytes *= sweep.factor;
    }
  }
  return sizes;
}

std::vector<std::string> select_bundles(const std::vector<std::string>& wanted,
                                        const std::vector<std::string>& bundles) {
  const auto has = [&](const std::string& name) { return std::ranges::find(bundles, name) != bundles.end(); };
  const auto preferred = [&](const std::string& bundle) {
    return !bundle.ends_with("-nvcc") || !has(split_bundle_name(bundle).toolkit + "-nvrtc");
  };
  std::vector<std::string> chosen;
  const auto choose = [&](const std::string& bundle) {
    if (std::ranges::find(chosen, bundle) == chosen.end()) chosen.push_back(bundle);
  };
  for (const std::string& bundle : bundles) {
    if (wanted.empty() && preferred(bundle)) choose(bundle);
  }
  for (const std::string& name : wanted) {
    bool found = has(name);
    if (found) choose(name);
    for (const std::string& bundle : bundles) {
      if (split_bundle_name(bundle).toolkit != name || !preferred(bundle)) continue;
      choose(bundle);
      found = true;
    }
    if (!found) throw unknown_name("toolkit", name, bundles);
  }
  return chosen;
}

void check_peers(const std::vector<std::string>& contenders, const std::vector<std::string>& peers) {
  for (const std::string& name : contenders) {
    const CatalogRow* const row = find_contender(name);
    if (row == nullptr || row->source != Source::peer) continue;
    if (std::ranges::find(peers, row->peer) != peers.end()) continue;
    throw UsageError(
        fmt::format("{} takes part with --peer {} only, or --peer {}=PYTHON for a Python that has it", name,
                    row->peer, row->peer));
  }
}

void check_sweep(const Sweep& sweep) {
  sizes_of(sweep);
  select_contenders(sweep.contenders);
}

Plan make_plan(const Sweep& sweep, const Machine& machine) {
  const std::vector<std::uint64_t> sizes = sizes_of(sweep);
  const std::vector<const CatalogRow*> contenders = select_contenders(sweep.contenders);
  const bool emulated = machine.evidence == Evidence::emulated;
  if (machine.ranks < 2) throw UsageError("an allreduce needs 2 ranks or more");

  if (!emulated) check_peers(sweep.contenders, machine.peers);
  Plan plan;
  std::vector<std::string> bundles = {""};
  std::vector<std::string> nccls = {""};
  if (!emulated) {
    // NCCL has no toolkit, nor have peers: a run of them alone has loaded no bundle to select from.
    const bool kernels =
        std::ranges::any_of(contenders, [](const CatalogRow* row) { return runs_kernels(*row); });
    bundles = kernels ? select_bundles(sweep.toolkits, machine.bundles) : std::vector<std::string>{};
    nccls = machine.nccls;
  } else if (!sweep.toolkits.empty()) {
    plan.remarks.emplace_back(
        "--toolkit is left out: emulated kernels are compiled by g++, with no CUDA toolkit");
  }

  // Contenders of this run, each with its variants, after leaving out what cannot be.
  struct Column {
    const CatalogRow* row;
    std::vector<std::string> variants;
  };
  std::vector<Column> columns;
  for (const CatalogRow* row : contenders) {
    const bool asked_for = !sweep.contenders.empty();
    if (row->source == Source::nccl && (emulated || nccls.empty())) {
      if (asked_for || !emulated) {
        plan.remarks.push_back(fmt::format(
            "{} is left out: {}", row->contender,
            emulated ? "NCCL runs on GPUs only" : "no NCCL was found; --nccl PATH takes a libnccl.so.2"));
      }
      continue;
    }
    if (row->source == Source::peer) {
      if (!asked_for && std::ranges::find(machine.peers, row->peer) == machine.peers.end()) continue;
      const std::string why = emulated ? "a peer library runs on GPUs only" : machine.peer_problem;
      if (!why.empty()) {
        plan.remarks.push_back(fmt::format("{} is left out: {}", row->contender, why));
        continue;
      }
    }
    if (runs_kernels(*row) && bundles.empty()) {
      plan.remarks.push_back(fmt::format("{} is left out: there is no kernel bundle", row->contender));
      continue;
    }
    if (row->needs_islands && machine.island_ranks == 0) {
      plan.remarks.push_back(
          fmt::format("{} is left out: it needs at least 2 islands of at least 2 ranks each, and these {} "
                      "ranks form none; "
                      "--islands N says that every N of them are one",
                      row->contender, machine.ranks));
      continue;
    }
    if (!row->in_place && std::ranges::find(sweep.places, Place::in) != sweep.places.end()) {
      plan.remarks.push_back(
          fmt::format("{} does not run in place: {}", row->contender, row->in_place_refusal));
    }
    Column column{row, row->source == Source::nccl   ? nccls
                       : row->source == Source::peer ? std::vector<std::string>{""}
                                                     : bundles};
    if (needs_windows(*row) && !asked_for) {
      for (const auto& [nccl, problem] : machine.nccl_window_problems) {
        if (std::erase(column.variants, nccl) != 0)
          plan.remarks.push_back(fmt::format("{} is left out: {}", row->contender, problem));
      }
    }
    columns.push_back(std::move(column));
  }

  for (const Dtype dtype : sweep.dtypes) {
    for (const std::uint64_t bytes : sizes) {
      for (const auto& [row, variants] : columns) {
        for (const std::string& variant : variants) {
          for (const Cache cache : sweep.caches) {
            for (const Place place : sweep.places) {
              if (place == Place::in && !row->in_place) continue;
              if (const std::string_view why = refusal_of(*row, {dtype, machine.ranks, bytes, place});
                  !why.empty()) {
                std::string remark = fmt::format("{} does not run {} {}: {}", row->contender, name_of(dtype),
                                                 place == Place::in ? "in place" : "out of place", why);
                if (std::ranges::find(plan.remarks, remark) == plan.remarks.end())
                  plan.remarks.push_back(std::move(remark));
                continue;
              }
              const CatalogRow* runs = row;
              Choice choice{row->contender, {0, 0}};
              if (row->source == Source::chosen) {
                choice = choice_of(*row, machine.tuning ? &*machine.tuning : nullptr,
                                   {machine.ranks, machine.island_ranks}, bytes, place);
                runs = find_contender(choice.contender);
              }
              for (const Mode mode : sweep.modes) {
                const bool is_nccl = row->source == Source::nccl;
                const Evidence evidence = machine.evidence;
                plan.cells.push_back(
                    {.contender = std::string(choice.contender),
                     .bundle = is_nccl ? "" : variant,
                     .nccl = is_nccl ? variant : "",
                     .dtype = dtype,
                     .ranks = machine.ranks,
                     .island_ranks = runs->needs_islands ? machine.island_ranks : 0,
                     .bytes = bytes,
                     .place = place,
                     .mode = mode,
                     .cache = cache,
                     .calls_per_graph =
                         mode == Mode::isolated && !emulated ? 1 : calls_per_graph(bytes, evidence),
                     .samples = sweep.samples.value_or(default_samples(bytes, mode, evidence)),
                     .warmups = sweep.warmups.value_or(default_warmups(bytes, mode, evidence)),
                     .seed = sweep.seed,
                     .blocks = choice.shape.blocks,
                     .threads = choice.shape.threads,
                     .alias = runs == row ? "" : std::string(row->contender),
                     .check = sweep.check});
              }
            }
          }
        }
      }
    }
  }
  if (plan.cells.empty()) {
    const std::string why = plan.remarks.empty() ? "the lists leave no cell" : plan.remarks.front();
    throw UsageError(fmt::format("nothing to run: {}", why));
  }
  return plan;
}

}  // namespace arb
