#include "report_console.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <ostream>
#include <tuple>

#include "catalog.h"

namespace arb {
namespace {

// nccl-tests' names of types.
std::string_view nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return "bfloat16";
    case Dtype::fp16:
      return "half";
    case Dtype::fp32:
      break;
  }
  return "float";
}

std::string variant_of(const RowFields& row) {
  if (!row.nccl.empty()) return row.nccl;
  if (row.toolkit.empty() && row.compiler.empty()) {
    const CatalogRow* const peer = find_contender(row.contender);
    return peer == nullptr ? "" : std::string(peer->peer);
  }
  if (row.toolkit.empty()) return row.compiler;
  return row.compiler.empty() ? row.toolkit : row.toolkit + "-" + row.compiler;
}

// Four significant digits without an exponent, as nccl-tests prints times: 2.104, 13.56, 890.1, 12034.
std::string figure(double value) {
  const int decimals = value < 10 ? 3 : value < 100 ? 2 : value < 10'000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string wrong_text(const Row& row) {
  if (!row->correct) return row->flags.find("failed") != std::string::npos ? "failed" : "n/a";
  return *row->correct ? "0" : "WRONG";
}

const Row* find(const std::vector<const Row*>& line, Place place, Mode mode) {
  const auto found = std::ranges::find_if(
      line, [&](const Row* row) { return (*row)->place == place && (*row)->mode == mode; });
  return found == line.end() ? nullptr : *found;
}

auto line_key(const Row& row) {
  return std::tuple(row->contender, variant_of(row.get()), row->cache, row->launch, row->ranks);
}

}  // namespace

ConsoleTable::ConsoleTable(std::ostream& out, TableShape shape) : out_(out), shape_(std::move(shape)) {}

void ConsoleTable::add(const Row& row) {
  if (!block_.empty() && (block_.front()->bytes != row->bytes || block_.front()->dtype != row->dtype ||
                          block_.front()->launch != row->launch)) {
    print_block();
  }
  ++rows_;
  if (row->correct == false) ++wrong_;
  if (!row->correct) ++(row->flags.find("failed") != std::string::npos ? failed_ : unchecked_);
  block_.push_back(row);
}

void ConsoleTable::print_header() {
  header_printed_ = true;
  const bool emulated = shape_.evidence == Evidence::emulated;
  std::string names = fmt::format("#{:>11} {:>11} {:>9} {:>6}  {:<24} {:<18}", "size", "count", "type",
                                  "redop", "contender", "toolkit");
  std::string units =
      fmt::format("#{:>11} {:>11} {:>9} {:>6}  {:<24} {:<18}", "(B)", "(elements)", "", "", "", "");
  std::string above(names.size(), ' ');
  above[0] = '#';
  if (shape_.several_launches) {
    names += fmt::format(" {:>6}", "launch");
    units += fmt::format(" {:>6}", "");
    above += std::string(7, ' ');
  }
  if (shape_.several_caches) {
    names += fmt::format(" {:>5}", "cache");
    units += fmt::format(" {:>5}", "");
    above += std::string(6, ' ');
  }
  const bool both_modes = shape_.modes.size() > 1;
  const bool pipelined = std::ranges::find(shape_.modes, Mode::pipelined) != shape_.modes.end();
  for (const Place place : shape_.places) {
    std::string part;
    if (emulated) {
      part = fmt::format(" {:>8} {:>12} {:>12} {:>7}", "messages", "wire bytes", "theory", "correct");
      units += fmt::format(" {:>8} {:>12} {:>12} {:>7}", "", "(B)", "(B)", "");
    } else {
      part = fmt::format(" {:>8} {:>7} {:>7} {:>6}", pipelined ? "time" : "isolated", "algbw", "busbw",
                         "#wrong");
      units += fmt::format(" {:>8} {:>7} {:>7} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
      if (both_modes) {
        part += fmt::format(" {:>8}", "isolated");
        units += fmt::format(" {:>8}", "(us)");
      }
    }
    above += fmt::format("{:^{}}", place == Place::out ? "out-of-place" : "in-place", part.size());
    names += part;
  }
  if (emulated) {
    names += "  evidence";
  } else {
    names += fmt::format(" {:>7} best", "x floor");
  }
  const auto print = [this](std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    out_ << line << '\n';
  };
  print(above);
  print(names);
  print(units);
}

void ConsoleTable::print_block() {
  if (block_.empty()) return;
  if (!header_printed_) print_header();
  const bool emulated = shape_.evidence == Evidence::emulated;
  const bool pipelined = std::ranges::find(shape_.modes, Mode::pipelined) != shape_.modes.end();
  const Mode main_mode = pipelined ? Mode::pipelined : Mode::isolated;
  const bool both_modes = shape_.modes.size() > 1;
  const Place main_place = shape_.places.front();

  std::vector<std::vector<const Row*>> lines;
  for (const Row& row : block_) {
    const auto same = [&](const std::vector<const Row*>& line) {
      return line_key(*line.front()) == line_key(row);
    };
    const auto line = std::ranges::find_if(lines, same);
    if (line == lines.end()) {
      lines.push_back({&row});
    } else {
      line->push_back(&row);
    }
  }
  // The best of a size; warm and cold are different questions, so each has its own.
  const auto best_us = [&](Cache cache) {
    double least = 0;
    for (const auto& line : lines) {
      const Row* row = find(line, main_place, main_mode);
      if (row == nullptr || !row->timed() || (*row)->cache != cache) continue;
      if (least == 0 || *(*row)->p50_us < least) least = *(*row)->p50_us;
    }
    return least;
  };

  for (const auto& line : lines) {
    const Row& any = *line.front();
    std::string text = fmt::format(" {:>11} {:>11} {:>9} {:>6}  {:<24} {:<18}", any->bytes,
                                   any->bytes / size_of_bytes(any->dtype), nccl_type(any->dtype), "sum",
                                   any->contender, variant_of(any.get()));
    if (shape_.several_launches) text += fmt::format(" {:>6}", any->launch);
    if (shape_.several_caches) text += fmt::format(" {:>5}", name_of(any->cache));
    for (const Place place : shape_.places) {
      const Row* main = find(line, place, main_mode);
      const Row* second = both_modes ? find(line, place, Mode::isolated) : nullptr;
      if (emulated) {
        const Row* row = main != nullptr ? main : find(line, place, Mode::isolated);
        const auto number = [&](const std::optional<std::uint64_t>& value) {
          return value ? std::to_string(*value) : "-";
        };
        text += row == nullptr
                    ? fmt::format(" {:>8} {:>12} {:>12} {:>7}", "-", "-", "-", "-")
                    : fmt::format(" {:>8} {:>12} {:>12} {:>7}", number((*row)->messages),
                                  number((*row)->wire_bytes), number((*row)->wire_bytes_theory),
                                  (*row)->correct ? (*(*row)->correct ? "yes" : "WRONG") : wrong_text(*row));
        continue;
      }
      if (main != nullptr && main->timed()) {
        text += fmt::format(" {:>8} {:>7} {:>7} {:>6}", figure(*(*main)->p50_us),
                            figure(*(*main)->algbw_gbps), figure(*(*main)->busbw_gbps), wrong_text(*main));
      } else {
        text +=
            fmt::format(" {:>8} {:>7} {:>7} {:>6}", "-", "-", "-", main != nullptr ? wrong_text(*main) : "-");
      }
      if (both_modes) {
        const bool wrong = second != nullptr && (*second)->correct == false;
        text += fmt::format(" {:>8}", second != nullptr && second->timed() ? figure(*(*second)->p50_us)
                                      : wrong                              ? "WRONG"
                                                                           : "-");
      }
    }
    if (emulated) {
      text += fmt::format("  {}", name_of(any->evidence));
    } else {
      const Row* main = find(line, main_place, main_mode);
      const bool floor = main != nullptr && (*main)->floor_ratio.has_value();
      text += fmt::format(" {:>7}", floor ? fmt::format("{:.2f}", *(*main)->floor_ratio) : "-");
      if (main != nullptr && main->timed() && *(*main)->p50_us == best_us(any->cache)) text += " *";
    }
    out_ << text << '\n';
  }
  out_.flush();
  block_.clear();
}

void ConsoleTable::finish() {
  print_block();
  out_ << fmt::format("# {} cells: {} wrong{}, {} failed{}\n", rows_, wrong_,
                      wrong_ > 0    ? " FAILED"
                      : failed_ > 0 ? ""
                                    : " OK",
                      failed_, unchecked_ > 0 ? fmt::format(", {} unchecked", unchecked_) : "");
  out_.flush();
}

}  // namespace arb
