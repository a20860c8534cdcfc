#include "comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "report_csv.h"
#include "text.h"

namespace arb {
namespace {

using Json = nlohmann::ordered_json;

// Three figures: 6.21us, 31.0us, 890us.
std::string time_text(double us) {
  const int decimals = us < 10 ? 2 : us < 100 ? 1 : 0;
  return fmt::format("{:.{}f}us", us, decimals);
}

std::string change_text(double fraction) {
  return fmt::format("{:+.1f}%", fraction * 100);
}

std::string interval_text(const Judgement& judgement) {
  return fmt::format("[{:+.1f},{:+.1f}]", judgement.ci_low * 100, judgement.ci_high * 100);
}

// .001, .61, 1
std::string q_text(double q) {
  if (q < 0.0005) return "<.001";
  if (q >= 0.995) return "1";
  std::string text = q < 0.0995 ? fmt::format("{:.3f}", q) : fmt::format("{:.2f}", q);
  return text.substr(1);
}

std::string confidence_text(const Rules& rules) {
  return fmt::format("{:g}% CI", (1 - rules.alpha) * 100);
}

using Line = std::vector<std::string>;

struct Shape {
  bool modes = false;
  bool dtypes = false;
};

Shape shape_of(const Comparison& comparison) {
  Shape shape;
  for (const ComparedCell& cell : comparison.cells) {
    shape.modes = shape.modes || cell.key.mode != comparison.cells.front().key.mode;
    shape.dtypes = shape.dtypes || cell.key.dtype != comparison.cells.front().key.dtype;
  }
  return shape;
}

Line head_of(const Comparison& comparison, const Shape& shape) {
  Line line = {"contender"};
  if (shape.dtypes) line.emplace_back("type");
  if (shape.modes) line.emplace_back("mode");
  line.insert(line.end(),
              {"size", "A " + comparison.label_a, "B " + comparison.label_b,
               fmt::format("change [{}]", confidence_text(comparison.rules)), "q", "verdict", "why"});
  return line;
}

Line line_of(const Comparison& comparison, const ComparedCell& cell, const Shape& shape) {
  const Judgement& judgement = cell.judgement;
  Line line = {cell.key.contender_name()};
  if (shape.dtypes) line.emplace_back(name_of(cell.key.dtype));
  if (shape.modes) line.emplace_back(name_of(cell.key.mode));
  line.insert(
      line.end(),
      {size_name(cell.key.bytes), time_text(cell.a_us), time_text(cell.b_us),
       fmt::format("{:>6} {}", change_text(judgement.change), interval_text(judgement)), q_text(judgement.q),
       comparison.failed.empty() ? std::string(name_of(judgement.verdict)) : "none", cell.why});
  return line;
}

std::string headline(const Comparison& comparison) {
  if (!comparison.paired) {
    return fmt::format(
        "two runs, {} launches or more each, unpaired: drift between them counts as a difference, so this "
        "proves "
        "less than `arbench compare --a --b`",
        comparison.blocks);
  }
  return fmt::format("{} blocks of A ({}), B ({}) and a placebo, interleaved", comparison.blocks,
                     comparison.arm_a.empty() ? "as is" : comparison.arm_a,
                     comparison.arm_b.empty() ? "as is" : comparison.arm_b);
}

std::string placebo_text(const Comparison& comparison) {
  std::size_t with = 0;
  std::size_t flagged = 0;
  std::size_t alarms = 0;
  for (const ComparedCell& cell : comparison.cells) {
    if (!cell.placebo) continue;
    ++with;
    if (cell.placebo->p < comparison.rules.alpha) ++flagged;
    if (cell.placebo->verdict == Verdict::faster || cell.placebo->verdict == Verdict::slower) ++alarms;
  }
  if (with == 0) return {};
  return fmt::format(
      "placebo (A against A): {} of {} cells flagged at {:g}%, {} false alarms after adjusting", flagged,
      with, comparison.rules.alpha * 100, alarms);
}

// What stands below a table, one sentence each.
std::vector<std::string> notes(const Comparison& comparison) {
  std::vector<std::string> lines;
  const std::string placebo = placebo_text(comparison);
  if (!placebo.empty()) lines.push_back(placebo);
  for (const Gate& gate : comparison.gates) {
    if (!gate.sentence.empty())
      lines.push_back(fmt::format("gate {} {}: {}", gate.name, name_of(gate.state), gate.sentence));
  }
  lines.insert(lines.end(), comparison.remarks.begin(), comparison.remarks.end());
  if (comparison.failed.empty()) {
    lines.push_back(verdict_counts(comparison));
  } else {
    lines.push_back("no verdict: " + comparison.failed);
  }
  return lines;
}

Json json_of(const Judgement& judgement) {
  Json json = {{"blocks", judgement.blocks}, {"change", judgement.change},
               {"ci_low", judgement.ci_low}, {"ci_high", judgement.ci_high},
               {"p", judgement.p},           {"band_q", judgement.band_q},
               {"q", judgement.q},           {"margin", judgement.margin},
               {"mde", judgement.mde}};
  if (judgement.sign_flip) json["sign_flip_p"] = *judgement.sign_flip;
  if (judgement.hodges_lehmann) json["hodges_lehmann"] = *judgement.hodges_lehmann;
  if (judgement.placebo_bound) json["placebo_bound"] = *judgement.placebo_bound;
  if (judgement.more_blocks) json["more_blocks"] = *judgement.more_blocks;
  for (auto entry = json.begin(); entry != json.end();) {
    const bool infinite = entry->is_number_float() && !std::isfinite(entry->get<double>());
    entry = infinite ? json.erase(entry) : std::next(entry);
  }
  return json;
}

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string markdown_line(const Line& line) {
  std::string text = "|";
  for (const std::string& field : line) {
    std::string safe;
    for (const char c : field) safe += c == '|' ? std::string("\\|") : std::string(1, c);
    text += " " + safe + " |";
  }
  return text + "\n";
}

std::string markdown_table(const Comparison& comparison, const std::vector<const ComparedCell*>& cells) {
  const Shape shape = shape_of(comparison);
  const Line head = head_of(comparison, shape);
  std::string text = markdown_line(head) + "|";
  for (std::size_t i = 0; i < head.size(); ++i) text += i == 0 || i + 2 >= head.size() ? "---|" : "---:|";
  text += "\n";
  for (const ComparedCell* cell : cells) {
    Line line = line_of(comparison, *cell, shape);
    std::string& verdict = line[line.size() - 2];
    if (cell->judgement.verdict == Verdict::faster || cell->judgement.verdict == Verdict::slower)
      verdict.insert(0, "**").append("**");
    text += markdown_line(line);
  }
  return text;
}

}  // namespace

std::string verdict_counts(const Comparison& comparison) {
  std::vector<std::string> parts;
  for (const Verdict verdict :
       {Verdict::faster, Verdict::slower, Verdict::equivalent, Verdict::inconclusive}) {
    parts.push_back(fmt::format("{} {}", comparison.count(verdict), name_of(verdict)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string comparison_table(const Comparison& comparison) {
  const Shape shape = shape_of(comparison);
  std::vector<Line> lines = {head_of(comparison, shape)};
  for (const ComparedCell& cell : comparison.cells) lines.push_back(line_of(comparison, cell, shape));
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text = "# " + headline(comparison) + "\n";
  for (const Line& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i)
      row += i + 1 == line.size() ? line[i] : fmt::format("{:<{}}  ", line[i], widths[i]);
    text += row + "\n";
  }
  for (const std::string& note : notes(comparison)) text += "# " + note + "\n";
  return text;
}

std::string comparison_markdown(const Comparison& comparison) {
  std::vector<const ComparedCell*> changed;
  std::vector<const ComparedCell*> all;
  for (const ComparedCell& cell : comparison.cells) {
    all.push_back(&cell);
    if (comparison.failed.empty() &&
        (cell.judgement.verdict == Verdict::faster || cell.judgement.verdict == Verdict::slower))
      changed.push_back(&cell);
  }
  std::string text =
      fmt::format("### Allreduce: B {} against A {}\n\n", comparison.label_b, comparison.label_a);
  text += comparison.failed.empty() ? verdict_counts(comparison) : "No verdict: " + comparison.failed;
  text += fmt::format(" ({}).\n\n", headline(comparison));
  if (!changed.empty()) text += markdown_table(comparison, changed) + "\n";
  text += "<details><summary>all cells</summary>\n\n" + markdown_table(comparison, all) + "\n</details>\n\n";
  for (const std::string& note : notes(comparison)) text += "- " + note + "\n";
  return text;
}

std::string comparison_json(const Comparison& comparison) {
  Json json = {{"schema", "arbench comparison"}, {"version", 1},
               {"evidence", "measured"},         {"paired", comparison.paired},
               {"a", comparison.arm_a},          {"b", comparison.arm_b},
               {"blocks", comparison.blocks},    {"alpha", comparison.rules.alpha}};
  if (!comparison.failed.empty()) json["failed"] = comparison.failed;
  json["verdicts"] = Json::object();
  for (const Verdict verdict :
       {Verdict::faster, Verdict::slower, Verdict::equivalent, Verdict::inconclusive}) {
    json["verdicts"][std::string(name_of(verdict))] =
        comparison.failed.empty() ? comparison.count(verdict) : 0;
  }
  json["gates"] = Json::array();
  for (const Gate& gate : comparison.gates) {
    Json entry = {{"gate", gate.name}, {"state", name_of(gate.state)}};
    if (!gate.sentence.empty()) entry["sentence"] = gate.sentence;
    json["gates"].push_back(std::move(entry));
  }
  json["remarks"] = comparison.remarks;
  json["cells"] = Json::array();
  for (const ComparedCell& cell : comparison.cells) {
    Json entry = {{"name", cell.key.name()},
                  {"contender", cell.key.contender_name()},
                  {"dtype", name_of(cell.key.dtype)},
                  {"ranks", cell.key.ranks},
                  {"bytes", cell.key.bytes},
                  {"place", name_of(cell.key.place)},
                  {"mode", name_of(cell.key.mode)},
                  {"cache", name_of(cell.key.cache)},
                  {"a_us", cell.a_us},
                  {"b_us", cell.b_us}};
    if (comparison.failed.empty()) entry["verdict"] = name_of(cell.judgement.verdict);
    entry["why"] = cell.why;
    entry.update(json_of(cell.judgement));
    if (cell.placebo) {
      entry["placebo"] = json_of(*cell.placebo);
      entry["placebo"]["verdict"] = name_of(cell.placebo->verdict);
    }
    json["cells"].push_back(std::move(entry));
  }
  return dumped(json);
}

std::string smaller_is_better_json(const Comparison& comparison) {
  Json json = Json::array();
  for (const ComparedCell& cell : comparison.cells) {
    const Judgement& judgement = cell.judgement;
    const std::string verdict =
        comparison.failed.empty() ? std::string(name_of(judgement.verdict)) : "no verdict";
    json.push_back(
        {{"name", cell.key.name()},
         {"unit", "us"},
         {"value", cell.b_us},
         {"extra", fmt::format("{}: {} {} against A {}; {}", verdict, change_text(judgement.change),
                               interval_text(judgement), comparison.label_a, cell.why)}});
  }
  return dumped(json);
}

std::string verdicts_csv(const Comparison& comparison) {
  std::string text =
      "contender,dtype,ranks,bytes,mode,a,b,blocks,a_us,b_us,change,ci_low,ci_high,q,margin,mde,verdict,"
      "why\n";
  for (const ComparedCell& cell : comparison.cells) {
    const Judgement& judgement = cell.judgement;
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                    csv_field(cell.key.contender_name()), name_of(cell.key.dtype), cell.key.ranks,
                    cell.key.bytes, name_of(cell.key.mode), csv_field(comparison.arm_a),
                    csv_field(comparison.arm_b), judgement.blocks, shortest(cell.a_us), shortest(cell.b_us),
                    shortest(judgement.change), shortest(judgement.ci_low), shortest(judgement.ci_high),
                    shortest(judgement.q), shortest(judgement.margin), shortest(judgement.mde),
                    comparison.failed.empty() ? name_of(judgement.verdict) : "", csv_field(cell.why));
  }
  return text;
}

}  // namespace arb
