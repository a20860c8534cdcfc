#include "static_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "report_csv.h"

namespace arb {
namespace {

using Json = nlohmann::ordered_json;
using Field = std::uint64_t (*)(const BundleFunction&);

std::uint64_t registers_of(const BundleFunction& function) {
  return function.registers;
}
std::uint64_t spilled_of(const BundleFunction& function) {
  return function.spill_store_bytes + function.spill_load_bytes;
}
std::uint64_t instructions_of(const BundleFunction& function) {
  return function.instructions;
}

std::string one(const std::optional<BundleFunction>& function, Field field, const char* missing) {
  return function ? std::to_string(field(*function)) : missing;
}

// "40", "40->38", "-->40".
std::string both(const StaticRow& row, Field field) {
  const std::string a = one(row.a, field, "-");
  const std::string b = one(row.b, field, "-");
  return a == b ? a : a + "->" + b;
}

const char* sass_text(const StaticRow& row) {
  return !row.a || !row.b ? "missing" : row.same_sass() ? "same" : "other";
}

std::vector<std::vector<std::string>> lines_of(const std::vector<StaticRow>& rows) {
  std::vector<std::vector<std::string>> lines = {
      {"function", "arch", "registers", "spilled B", "instructions", "SASS"}};
  for (const StaticRow& row : rows) {
    lines.push_back({row.function, row.architecture, both(row, registers_of), both(row, spilled_of),
                     both(row, instructions_of), sass_text(row)});
  }
  return lines;
}

std::string heading(const Bundle& a, const Bundle& b) {
  return fmt::format("{} ({}) -> {} ({})", a.name, a.compiler_version, b.name, b.compiler_version);
}

std::string sources_note(const Bundle& a, const Bundle& b) {
  if (a.source_hash == b.source_hash) return {};
  return "the bundles are made from different sources, so differences are not the compilers' alone";
}

}  // namespace

std::vector<StaticRow> compare_static(const Bundle& a, const Bundle& b) {
  std::map<std::tuple<std::string, std::string, std::string>, StaticRow> rows;
  for (const auto& [bundle, side] : {std::pair{&a, &StaticRow::a}, std::pair{&b, &StaticRow::b}}) {
    for (const BundleCubin& cubin : bundle->cubins) {
      for (const BundleFunction& function : cubin.functions) {
        StaticRow& row = rows[{cubin.kernel, cubin.architecture, function.name}];
        row.kernel = cubin.kernel;
        row.function = function.name;
        row.architecture = cubin.architecture;
        row.*side = function;
      }
    }
  }
  std::vector<StaticRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
}

std::string static_summary(const std::vector<StaticRow>& rows) {
  std::size_t same = 0;
  std::size_t missing = 0;
  std::size_t fell = 0;
  std::size_t rose = 0;
  std::size_t spills = 0;
  for (const StaticRow& row : rows) {
    if (!row.a || !row.b) {
      ++missing;
      continue;
    }
    if (row.same_sass()) ++same;
    if (row.b->registers < row.a->registers) ++fell;
    if (row.b->registers > row.a->registers) ++rose;
    if (spilled_of(*row.b) > spilled_of(*row.a)) ++spills;
  }
  std::string text =
      fmt::format("{} of {} functions have the same SASS; registers fell in {} and rose in {}; {} spill more",
                  same, rows.size(), fell, rose, spills);
  if (missing > 0) text += fmt::format("; {} exist on one side only", missing);
  return text;
}

std::string static_table(const Bundle& a, const Bundle& b, const std::vector<StaticRow>& rows) {
  const auto lines = lines_of(rows);
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text = "# " + heading(a, b) + "\n";
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i)
      text += i + 1 == line.size() ? line[i] + "\n" : fmt::format("{:<{}}  ", line[i], widths[i]);
  }
  const std::string note = sources_note(a, b);
  if (!note.empty()) text += "# " + note + "\n";
  return text + "# " + static_summary(rows) + "\n";
}

std::string static_markdown(const Bundle& a, const Bundle& b, const std::vector<StaticRow>& rows) {
  std::string text = fmt::format("### {}\n\n{}.\n\n", heading(a, b), static_summary(rows));
  bool head = true;
  for (const auto& line : lines_of(rows)) {
    text += fmt::format("| {} |\n", fmt::join(line, " | "));
    if (head) text += "|---|---|---:|---:|---:|---|\n";
    head = false;
  }
  const std::string note = sources_note(a, b);
  return note.empty() ? text : text + "\n" + note + "\n";
}

std::string static_json(const Bundle& a, const Bundle& b, const std::vector<StaticRow>& rows) {
  Json json = {{"schema", "arbench static comparison"},
               {"version", 1},
               {"a", a.name},
               {"a_compiler", a.compiler_version},
               {"b", b.name},
               {"b_compiler", b.compiler_version},
               {"same_sources", a.source_hash == b.source_hash},
               {"summary", static_summary(rows)}};
  json["functions"] = Json::array();
  for (const StaticRow& row : rows) {
    Json entry = {{"kernel", row.kernel}, {"function", row.function}, {"architecture", row.architecture}};
    for (const auto& [side, name] : {std::pair{&row.a, "a"}, std::pair{&row.b, "b"}}) {
      if (!*side) continue;
      const BundleFunction& function = **side;
      entry[name] = {{"registers", function.registers},
                     {"spill_store_bytes", function.spill_store_bytes},
                     {"spill_load_bytes", function.spill_load_bytes},
                     {"stack_bytes", function.stack_bytes},
                     {"shared_bytes", function.shared_bytes},
                     {"instructions", function.instructions},
                     {"sass_sha256", function.sass_sha256}};
    }
    entry["sass"] = sass_text(row);
    json["functions"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string static_csv(const Bundle& a, const Bundle& b, const std::vector<StaticRow>& rows) {
  std::string text =
      "a,b,kernel,function,architecture,registers_a,registers_b,spill_bytes_a,spill_bytes_b,instructions_a,"
      "instructions_b,sass\n";
  for (const StaticRow& row : rows) {
    text += fmt::format("{},{},{},{},{}", csv_field(a.name), csv_field(b.name), csv_field(row.kernel),
                        csv_field(row.function), row.architecture);
    for (const Field field : {registers_of, spilled_of, instructions_of}) {
      text += fmt::format(",{},{}", one(row.a, field, ""), one(row.b, field, ""));
    }
    text += fmt::format(",{}\n", sass_text(row));
  }
  return text;
}

}  // namespace arb
