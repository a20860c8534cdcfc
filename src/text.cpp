#include "text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <utility>

namespace arb {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string size_name(std::uint64_t size_bytes) {
  constexpr std::array units = {std::pair{30, 'G'}, std::pair{20, 'M'}, std::pair{10, 'K'}};
  for (const auto& [shift, unit] : units) {
    if (size_bytes != 0 && size_bytes % (std::uint64_t{1} << shift) == 0) {
      return std::to_string(size_bytes >> shift) + unit;
    }
  }
  return std::to_string(size_bytes);
}

std::optional<std::uint64_t> size_from(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  std::string unit(end, text.data() + text.size());
  std::ranges::transform(unit, unit.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::pair<std::string_view, int>, 4> units = {
      {{"", 0}, {"k", 10}, {"m", 20}, {"g", 30}}};
  if (unit.ends_with("ib") && unit.size() == 3) {
    unit.resize(1);
  } else if (unit.ends_with('b')) {
    unit.pop_back();
  }
  for (const auto& [name, shift] : units) {
    if (unit != name) continue;
    if (number > (std::numeric_limits<std::uint64_t>::max() >> shift)) return std::nullopt;
    return number << shift;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> seconds_from(std::string_view text) {
  constexpr std::uint64_t most_s = 366 * 24 * 3600;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const std::uint64_t factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (factor == 0 || number > most_s / factor) return std::nullopt;
  return number * factor;
}

std::vector<std::string> split_list(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t cut = text.find(separator);
    std::string_view part = text.substr(0, cut);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    if (cut == std::string_view::npos) return parts;
    text.remove_prefix(cut + 1);
  }
}

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

std::string enumerate(std::span<const std::string> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

std::string one_line(std::string_view text, std::size_t limit) {
  std::string line;
  for (const char c : text) {
    if (line.size() == limit) return line + "...";
    const auto code = static_cast<unsigned char>(c);
    line += code < 0x20 || code == 0x7f ? ' ' : c;
  }
  return line;
}

std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

}  // namespace arb
