#include "report_csv.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <concepts>

#include "report_columns.h"
#include "text.h"

namespace arb {
namespace {

template <typename Enum>
constexpr std::array<Enum, 0> values_of{};
template <>
constexpr std::array values_of<Evidence> = {Evidence::measured, Evidence::modelled, Evidence::emulated};
template <>
constexpr std::array values_of<Dtype> = all_dtypes;
template <>
constexpr std::array values_of<Place> = {Place::out, Place::in};
template <>
constexpr std::array values_of<Mode> = {Mode::isolated, Mode::pipelined};
template <>
constexpr std::array values_of<Cache> = {Cache::cold, Cache::warm};

template <typename T>
std::string cell_text(const T& value) {
  if constexpr (std::same_as<T, std::string>) {
    return csv_field(value);
  } else if constexpr (std::same_as<T, double>) {
    return shortest(value);
  } else if constexpr (std::same_as<T, bool>) {
    return value ? "yes" : "no";
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(name_of(value));
  } else {
    return std::to_string(value);
  }
}
template <typename T>
std::string cell_text(const std::optional<T>& value) {
  return value ? cell_text(*value) : "";
}

template <typename T>
void parse(const std::string& text, T& value) {
  bool good = true;
  if constexpr (std::same_as<T, std::string>) {
    value = text;
  } else if constexpr (std::same_as<T, bool>) {
    good = text == "yes" || text == "no";
    value = text == "yes";
  } else if constexpr (std::is_enum_v<T>) {
    good = false;
    for (const T candidate : values_of<T>) {
      if (name_of(candidate) != text) continue;
      value = candidate;
      good = true;
    }
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    good = error == std::errc{} && end == text.data() + text.size();
  }
  if (!good) throw CsvError(fmt::format("'{}' is no value of this column", one_line(text, 40)));
}
template <typename T>
void parse(const std::string& text, std::optional<T>& value) {
  if (text.empty()) return;
  parse(text, value.emplace());
}

// The fields of one line; a quote inside quotes is doubled.
std::vector<std::string> split_line(std::string_view line) {
  std::vector<std::string> out(1);
  bool inside = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (inside && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      out.back() += '"';
      ++i;
    } else if (c == '"') {
      inside = !inside;
    } else if (c == ',' && !inside) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  if (inside) throw CsvError("a quote is never closed");
  return out;
}

}  // namespace

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c == '\n' || c == '\r' ? ' ' : c;  // one row, one line
  }
  return out + '"';
}

std::string csv_header() {
  std::string line;
  RowFields none;
  for_each_column(none, [&line](const char* name, const auto&) {
    if (!line.empty()) line += ',';
    line += name;
  });
  return line;
}

std::string csv_line(const Row& row) {
  std::string line;
  bool first = true;
  for_each_column(row.get(), [&](const char*, const auto& value) {
    if (!first) line += ',';
    first = false;
    line += cell_text(value);
  });
  return line;
}

std::vector<Row> RowReader::read(std::string_view text) {
  std::vector<Row> rows;
  if (text.empty()) throw CsvError("rows.csv is empty");
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      throw CsvError(fmt::format("line {} of rows.csv is cut: it has no end", number));
    }
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (number == 1) {
      if (line != csv_header())
        throw CsvError("line 1 of rows.csv is not the header of this version of arbench");
      continue;
    }
    try {
      const std::vector<std::string> values = split_line(line);
      RowFields fields;
      std::size_t count = 0;
      for_each_column(fields, [&count](const char*, auto&) { ++count; });
      if (values.size() != count)
        throw CsvError(fmt::format("{} columns instead of {}", values.size(), count));
      std::size_t at = 0;
      for_each_column(fields, [&](const char* name, auto& value) {
        try {
          parse(values[at++], value);
        } catch (const CsvError& error) {
          throw CsvError(fmt::format("{}: {}", name, error.what()));
        }
      });
      rows.push_back(Row(std::move(fields)));
    } catch (const std::runtime_error& error) {
      throw CsvError(fmt::format("line {} of rows.csv: {}", number, error.what()));
    }
  }
  return rows;
}

}  // namespace arb
