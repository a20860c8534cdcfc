#include "probe/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <set>

#include "probe/names.h"
#include "probe/version.h"
#include "text.h"

namespace arb::probe {
namespace {

constexpr std::size_t width = 110;

// `text` in lines of at most `width`, each after the first behind `indent` blanks.
std::string wrapped(std::string_view text, std::size_t first, std::size_t indent) {
  std::string out;
  std::size_t column = first;
  for (const std::string& word : split_list(text, ' ')) {
    if (column + word.size() + 1 > width && column > indent) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column != first || !out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string labelled(const std::string& label, std::string_view text, std::size_t indent) {
  const std::string head = std::string(indent, ' ') + label;
  return head + wrapped(text, head.size(), head.size() <= 30 ? head.size() : indent + 4) + "\n";
}

std::string value_of(const Facts& facts, const std::string& name) {
  return filled("{" + name + "}", facts.map);
}
bool is_known(const Facts& facts, const std::string& name) {
  const auto found = facts.map.find(name);
  return found != facts.map.end() && found->second.state == Fact::State::known;
}

std::string gib(std::uint64_t bytes) {
  return fmt::format("{:.0f} GiB", static_cast<double>(bytes) / (1ULL << 30));
}
std::string mib_or_gib(std::uint64_t bytes) {
  return bytes < (1ULL << 30) ? fmt::format("{} MiB", bytes >> 20) : gib(bytes);
}

// "8x NVIDIA RTX PRO 6000 (compute capability 12.0, PCIe)".
std::string gpu_line(const Facts& facts) {
  if (!is_known(facts, "gpu.count")) return "GPUs: not seen";
  if (facts.gpus.empty()) return "No GPU";
  const std::string name =
      is_known(facts, "gpu.name") ? value_of(facts, "gpu.name") : "NVIDIA GPU of unknown model";
  std::string line = fmt::format("{}x {}", facts.gpus.size(), name);
  std::string in_brackets;
  if (is_known(facts, "gpu.cc.max")) {
    const std::string low = value_of(facts, "gpu.cc.min");
    const std::string high = value_of(facts, "gpu.cc.max");
    in_brackets = "compute capability " + (low == high ? low : low + " to " + high);
  }
  if (is_known(facts, "nvlink.full")) {
    in_brackets += (in_brackets.empty() ? "" : ", ") +
                   std::string(value_of(facts, "nvlink.full") == "true" ? "NVLink between all" : "PCIe");
  }
  if (is_known(facts, "topology.numa_nodes") && value_of(facts, "topology.numa_nodes") != "1")
    in_brackets += fmt::format(", on {} NUMA nodes", value_of(facts, "topology.numa_nodes"));
  return in_brackets.empty() ? line : fmt::format("{} ({})", line, in_brackets);
}

std::string stack_line(const Facts& facts) {
  std::string line =
      facts.driver.empty() ? "No NVIDIA driver was found" : fmt::format("Driver {}", facts.driver);
  if (!facts.driver.empty())
    line += facts.driver_cuda.empty() ? ", whose CUDA is not known"
                                      : fmt::format(" supports CUDA up to {}", facts.driver_cuda);
  line += facts.jit_nvcc
              ? fmt::format("; just-in-time compiler: nvcc {}",
                            facts.jit_nvcc->version.empty() ? "of unknown version" : facts.jit_nvcc->version)
              : "; no nvcc that a just-in-time build would find";
  if (const Package* torch = find_package(facts, "torch"))
    line += fmt::format("; PyTorch {} built for CUDA {}", torch->version,
                        torch->cuda.empty() ? "unknown" : torch->cuda);
  return line + ".";
}

// The one rule that blocks everything, when that is so.
const Finding* common_block(const std::vector<Verdict>& verdicts) {
  const Finding* first = nullptr;
  for (const Verdict& verdict : verdicts) {
    if (verdict.status != "BLOCKED" || verdict.findings.empty()) return nullptr;
    if (first == nullptr) first = &verdict.findings.front();
    if (verdict.findings.front().rule != first->rule && verdict.findings.front().rule != "cluster-gpu")
      return nullptr;
  }
  return first;
}

bool same_findings(const std::vector<Finding>& a, const std::vector<Finding>& b) {
  return std::ranges::equal(
      a, b, [](const Finding& x, const Finding& y) { return x.rule == y.rule && x.because == y.because; });
}

// Approaches that fare alike for the same reasons share a paragraph.
bool alike(const Verdict& a, const Verdict& b) {
  return a.status == b.status && same_findings(a.findings, b.findings) && same_findings(a.notes, b.notes) &&
         a.not_seen == b.not_seen;
}

// `told` holds the rules that the page has spelt out already: they are only named again.
std::string verdict_text(const Verdict& verdict, const std::vector<std::string>& titles,
                         std::set<std::string>& told) {
  const std::string kind = verdict.kind.empty() ? "" : "  [" + verdict.kind + "]";
  std::string out = labelled(fmt::format("{:<9}", verdict.status), enumerate(titles) + kind, 2);
  const auto tell = [&](const char* label, const std::string& prefix, const Finding& finding, bool apart) {
    if (!told.insert(finding.rule).second) {
      out += labelled(label, fmt::format("{}as said above. ({})", prefix, finding.rule), 11);
      return;
    }
    const bool way_out = !finding.way_out.empty();
    out += labelled(label,
                    fmt::format("{}{}{}. ({})", prefix, finding.because,
                                way_out && !apart ? "; " + finding.way_out : "", finding.rule),
                    11);
    if (way_out && apart) out += labelled("way out: ", finding.way_out + ".", 11);
  };
  for (std::size_t i = 0; i < verdict.findings.size(); ++i) {
    const Finding& finding = verdict.findings[i];
    tell(i == 0 ? "" : "and ", i > 0 && !finding.kind.empty() ? "[" + finding.kind + "] " : "", finding,
         true);
  }
  for (const std::string& unseen : verdict.not_seen) out += labelled("not seen: ", unseen + ".", 11);
  for (const Finding& note : verdict.notes) tell("note: ", "", note, false);
  return out;
}

std::string verdicts_text(const Report& report) {
  std::string out = "CAN EACH APPROACH RUN HERE?\n";
  if (const Finding* all = common_block(report.verdicts)) {
    out +=
        labelled("BLOCKED  ",
                 fmt::format("all of them: {}. Way out: {}. ({})", all->because, all->way_out, all->rule), 2);
    return out;
  }
  std::set<std::string> rules_told;
  for (const char* const status : {"WORKS", "UNKNOWN", "BLOCKED"}) {
    std::vector<bool> told(report.verdicts.size());
    for (std::size_t i = 0; i < report.verdicts.size(); ++i) {
      const Verdict& verdict = report.verdicts[i];
      if (verdict.status != status || told[i]) continue;
      std::vector<std::string> titles;
      for (std::size_t j = i; j < report.verdicts.size(); ++j) {
        if (!alike(verdict, report.verdicts[j])) continue;
        titles.push_back(report.verdicts[j].title);
        told[j] = true;
      }
      out += verdict_text(verdict, titles, rules_told);
    }
  }
  return out;
}

std::string assumption_text(const std::map<std::string, std::string>& assumptions) {
  std::string text;
  for (const auto& [what, version] : assumptions)
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", what == "toolkit" ? "CUDA toolkit" : what,
                        version);
  return text;
}

std::string what_if_text(const WhatIf& what_if) {
  const std::string assumed = assumption_text(what_if.assumptions);
  std::string heading = fmt::format("WHAT WOULD {} CHANGE?", assumed);
  std::ranges::transform(heading, heading.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string out = heading + "\n";
  const auto list = [&](const std::string& effect) {
    std::vector<std::string> titles;
    for (const Change& change : what_if.changes) {
      if (change.effect == effect) titles.push_back(change.title);
    }
    return titles;
  };
  const auto line = [&](const std::string& label, const std::vector<std::string>& titles) {
    if (!titles.empty()) out += labelled(label, enumerate(titles) + ".", 2);
  };
  if (!what_if.chain.empty() && what_if.chain.front().link == "driver")
    out += labelled("driver: ", what_if.chain.front().text + ".", 2);
  std::vector<std::string> opens;
  for (const Change& change : what_if.changes) {
    if (change.effect != "opens") continue;
    opens.push_back(change.title + (change.libraries_alone
                                        ? fmt::format(" (so would {} with the toolkit that is there)",
                                                      assumption_text(what_if.libraries))
                                        : ""));
  }
  const bool steps =
      std::ranges::any_of(what_if.chain, [](const ChainStep& step) { return step.action == "replace"; });
  out += labelled(steps && !opens.empty() ? "opens, once the steps below are done: " : "opens: ",
                  (opens.empty() ? std::string("nothing by itself") : enumerate(opens)) + ".", 2);
  if (!what_if.cheaper.empty())
    out += labelled(
        "cheaper: ",
        fmt::format("CUDA toolkit {} opens the same, and PyTorch and what was built with it may stay.",
                    what_if.cheaper),
        2);
  line(fmt::format("opens together with {}: ", assumption_text(what_if.libraries)),
       list("opens with newer libraries"));
  line(fmt::format("opened by {} alone, whatever the toolkit: ", assumption_text(what_if.libraries)),
       list("newer libraries alone open it"));
  line("breaks: ", list("breaks"));
  line("still not known: ", list("unknown"));
  // What stays shut, by why: the hardest first.
  for (const char* const kind : {"hardware never", "a library's table", "toolkit gate", "configuration"}) {
    std::vector<std::string> titles;
    for (const Change& change : what_if.changes) {
      if (change.effect == "stays shut" && change.kind == kind) titles.push_back(change.title);
    }
    line(fmt::format("does not open [{}]: ", kind), titles);
  }
  if (what_if.chain.empty()) return out;
  out += "  In this order:\n";
  int number = 0;
  for (const ChainStep& step : what_if.chain) {
    out += labelled(fmt::format("{}. {:<11}{:<8}", ++number, step.link, step.action), step.text + ".", 4);
    for (const std::string& broken : step.breaks) out += labelled("known to break: ", broken + ".", 26);
  }
  return out;
}

std::string stack_text(const Facts& facts) {
  std::string out = "TOOLKITS AND LIBRARIES\n";
  for (const Nvcc& nvcc : facts.nvccs) {
    const bool jit = facts.jit_nvcc && facts.jit_nvcc->toolkit == nvcc.toolkit;
    const bool shell = facts.shell_nvcc && facts.shell_nvcc->toolkit == nvcc.toolkit;
    out += fmt::format("  nvcc {:<7} {}  (found by {}){}{}{}\n", nvcc.version.empty() ? "?" : nvcc.version,
                       nvcc.path, nvcc.found, nvcc.runs ? "" : " has no run bit", shell ? " <- `nvcc`" : "",
                       jit ? " <- just-in-time builds" : "");
  }
  if (facts.nvccs.empty())
    out += "  no nvcc in PATH, CUDA_HOME, /usr/local/cuda*, conda or the Python environment\n";
  out += labelled("which wins: ", facts.jit_why + ".", 2);
  for (const Compat& compat : facts.compats)
    out += fmt::format("  forward compatibility: {} (driver {}){}\n", compat.folder, compat.driver,
                       compat.in_use ? ", in use" : ", not in use");
  for (const Library& library : facts.libraries) {
    std::string version = library.version.empty() ? "?" : library.version;
    if (library.kind == "libcudnn") {
      if (const auto code = encode_cudnn(library.version)) version += fmt::format(" ({})", *code);
    }
    out += fmt::format("  {:<10} {:<18} {:<10} {}\n", library.kind, version,
                       library.cuda.empty() ? "" : "CUDA " + library.cuda, library.path);
  }
  out += "PYTHON\n";
  const Python& python = facts.python;
  if (python.prefix.empty()) {
    out += "  none was found\n";
  } else {
    out += fmt::format("  {}{} (chosen by {})\n", python.prefix,
                       python.version.empty() ? "" : ", Python " + python.version, python.chosen);
    for (const Package& package : python.packages)
      out += fmt::format("  {:<21} {:<18} {:<10} {}\n", package.name, package.version,
                         package.cuda.empty() ? "" : "CUDA " + package.cuda,
                         package.cuda.empty() ? "" : "by " + package.evidence);
    if (python.packages.empty()) out += "  none of torch, triton, flashinfer, vllm, sglang, sgl-kernel\n";
  }
  for (const OtherPython& other : facts.other_pythons) {
    std::vector<std::string> words;
    for (const Package& package : other.packages) words.push_back(package.name + " " + package.version);
    out += labelled("also: ",
                    fmt::format("{} (found by {}) has {}; --python {} judges it.", other.prefix, other.found,
                                enumerate(words), other.prefix),
                    2);
  }
  return out;
}

std::string mark(const std::optional<bool>& value) {
  return value ? (*value ? "yes" : "no") : "?";
}

std::string gpus_text(const Facts& facts) {
  if (facts.gpus.empty()) return {};
  std::string out = "GPUS\n";
  for (const Gpu& gpu : facts.gpus) {
    const GpuAnswer& one = gpu.answer;
    std::string link = "PCIe ?";
    if (one.pcie_generation && one.pcie_width_lanes) {
      link = fmt::format("PCIe {} x{}", *one.pcie_generation, *one.pcie_width_lanes);
      if (one.pcie_generation_max && one.pcie_width_max_lanes)
        link += fmt::format(" (at most {} x{})", *one.pcie_generation_max, *one.pcie_width_max_lanes);
    }
    out +=
        fmt::format("  {} {} {} {}", one.index, one.pci_address.value_or("?"), one.name.value_or("?"), link);
    if (one.memory_bytes) out += fmt::format(", {}", gib(*one.memory_bytes));
    if (one.bar1_bytes) out += fmt::format(", BAR1 {}", mib_or_gib(*one.bar1_bytes));
    if (one.nvlinks_active) out += fmt::format(", {} NVLinks", *one.nvlinks_active);
    if (gpu.numa_node) out += fmt::format(", NUMA {}", *gpu.numa_node);
    if (one.multicast) out += fmt::format(", multicast {}", mark(one.multicast));
    if (!gpu.driver_module.empty() && gpu.driver_module != "nvidia")
      out += fmt::format(", bound to {}", gpu.driver_module);
    out += "\n";
    if (one.uuid) out += fmt::format("    {}\n", *one.uuid);
    if (!gpu.slowest_hop.empty())
      out += fmt::format("    a port above it can do less: {}\n", gpu.slowest_hop);
  }
  if (facts.gpus.size() < 2) return out;
  out +=
      "  where they meet, and whether peers may [r]ead, [w]rite, do [a]tomics, use NV[l]ink (NVML's "
      "claims):\n        ";
  for (const Gpu& to : facts.gpus) out += fmt::format(" {:>9}", to.answer.index);
  out += "\n";
  for (const Gpu& from : facts.gpus) {
    out += fmt::format("    {:>3} ", from.answer.index);
    for (const Gpu& to : facts.gpus) {
      if (from.answer.index == to.answer.index) {
        out += fmt::format(" {:>9}", "-");
        continue;
      }
      std::string cell = meeting_point(from, to);
      std::string claims;
      for (const PairAnswer& pair : facts.pairs) {
        if (pair.from != from.answer.index || pair.to != to.answer.index) continue;
        if (cell.empty()) cell = pair.common_ancestor.value_or("?");
        const auto letter = [](const std::optional<std::string>& status, char name) {
          return !status ? '?' : *status == "ok" ? name : '-';
        };
        claims = {letter(pair.p2p_read, 'r'), letter(pair.p2p_write, 'w'), letter(pair.p2p_atomics, 'a'),
                  letter(pair.p2p_nvlink, 'l')};
      }
      if (cell.empty()) cell = "?";
      out += fmt::format(" {:>4} {:>4}", cell, claims.empty() ? "????" : claims);
    }
    out += "\n";
  }
  return out;
}

std::string host_text(const Facts& facts) {
  const Host& host = facts.host;
  std::string out = "HOST\n";
  if (!host.processor.empty())
    out += fmt::format(
        "  {}{}{}\n", host.processor,
        host.sockets ? fmt::format(", {} socket{}", *host.sockets, *host.sockets == 1 ? "" : "s") : "",
        host.numa_nodes ? fmt::format(", {} NUMA node{}", *host.numa_nodes, *host.numa_nodes == 1 ? "" : "s")
                        : "");
  if (!host.kernel.empty()) out += fmt::format("  Linux {}\n", host.kernel);
  out += fmt::format("  virtual machine: {}; container: {}\n",
                     !host.is_virtual               ? "not seen"
                     : host.virtual_machine.empty() ? "no"
                                                    : host.virtual_machine,
                     host.container.empty() ? "no" : host.container);
  out += fmt::format("  IOMMU: {}{}",
                     !host.iommu_on   ? "not seen"
                     : *host.iommu_on ? "on"
                                      : "off",
                     host.iommu_options.empty() ? "" : fmt::format(" ({})", host.iommu_options));
  if (!facts.gpus.empty())
    out += fmt::format(
        "; translates for GPUs: {}; ACS redirects their traffic: {}",
        is_known(facts, "iommu.translates") ? (value_of(facts, "iommu.translates") == "true" ? "yes" : "no")
                                            : "not seen",
        is_known(facts, "acs.redirects") ? (value_of(facts, "acs.redirects") == "true" ? "yes" : "no")
                                         : "not seen");
  out += "\n";
  if (host.shared_memory) out += fmt::format("  /dev/shm: {}\n", mib_or_gib(host.shared_memory->size_bytes));
  if (!host.module_kind.empty()) {
    out += fmt::format("  NVIDIA kernel module: {}, {}",
                       host.module_version.empty() ? "?" : host.module_version, host.module_kind);
    for (const auto& [name, value] : host.module_parameters) out += fmt::format(", {}={}", name, value);
    out += "\n";
  }
  std::string variables;
  for (const auto& [name, fact] : facts.map) {
    if (name.starts_with("env.") && fact.state == Fact::State::known)
      variables += fmt::format("{}{}={}", variables.empty() ? "" : " ", name.substr(4), fact.value);
  }
  if (!variables.empty()) out += labelled("variables: ", variables, 2);
  return out;
}

std::string experiments_text(const Report& report) {
  if (report.experiments.empty()) return {};
  std::string out = "EXPERIMENTS\n";
  std::vector<std::pair<std::string, std::vector<std::string>>> not_run;  // by why
  for (const Experiment& one : report.experiments) {
    if (one.state == "not run") {
      auto same = std::ranges::find_if(not_run, [&](const auto& group) { return group.first == one.detail; });
      if (same == not_run.end()) same = not_run.insert(not_run.end(), {one.detail, {}});
      same->second.push_back(one.id);
      continue;
    }
    if (one.state == "worked" && one.id.starts_with("peer path ")) continue;  // its GPU's row counts it
    const std::string head = fmt::format("  {:<8} {:<30} ", one.state, one.id);
    out += head + wrapped(one.detail, head.size(), 11) + "\n";
  }
  for (const auto& [why, ids] : not_run) out += labelled("not run  ", enumerate(ids) + ": " + why + ".", 2);
  return out;
}

std::string unseen_text(const Facts& facts) {
  if (facts.unseen.empty()) return {};
  std::string out = "NOT SEEN, AND WHY\n";
  for (const Unseen& unseen : facts.unseen) out += labelled(unseen.what + ": ", unseen.why, 2);
  return out;
}

std::string sources_text(const Report& report) {
  std::string out = "SOURCES\n";
  std::set<std::string> told;
  const auto tell = [&](const std::string& rule, const std::vector<std::string>& sources) {
    if (!told.insert(rule).second) return;
    std::string line;
    for (const std::string& source : sources) line += (line.empty() ? "" : "; ") + source;
    out += labelled(rule + ": ", line, 2);
  };
  const bool one_for_all = common_block(report.verdicts) != nullptr;
  for (const Verdict& verdict : report.verdicts) {
    for (const Finding& finding : verdict.findings) tell(finding.rule, finding.sources);
    for (const Finding& finding : verdict.notes) tell(finding.rule, finding.sources);
    if (one_for_all) break;
  }
  if (report.what_if) {
    for (const ChainStep& step : report.what_if->chain) tell(step.rule, step.sources);
  }
  return out;
}

std::vector<std::string> sections(const Report& report) {
  const Facts& facts = *report.facts;
  std::vector<std::string> all = {
      verdicts_text(report),    report.what_if ? what_if_text(*report.what_if) : std::string(),
      experiments_text(report), stack_text(facts),
      gpus_text(facts),         host_text(facts),
      unseen_text(facts),       report.with_sources ? sources_text(report) : std::string()};
  std::erase_if(all, [](const std::string& text) { return text.empty(); });
  return all;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) return;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Names and values are a box's, whoever made them: none may steer a terminal.
std::string printable(std::string text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = static_cast<unsigned char>(at + 1 < text.size() ? text[at + 1] : 0);
    const bool second_set = byte == 0xC2 && next >= 0x80 && next < 0xA0;
    if (second_set) text.erase(at, 1);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7F || second_set) text[at] = '?';
  }
  return text;
}

std::string without_trailing_blanks(const std::string& text) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::size_t last = end;
    while (last > begin && text[last - 1] == ' ') --last;
    out.append(text, begin, last - begin);
    out += '\n';
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::string page(const Report& report) {
  std::string out = "arbench probe: " + wrapped(gpu_line(*report.facts), 15, 0) + "\n" +
                    wrapped(stack_line(*report.facts), 0, 0) + "\n";
  for (const std::string& section : sections(report)) out += "\n" + section;
  if (!report.with_sources) out += "\nWhere each (rule) is from: arbench probe --sources.\n";
  return printable(without_trailing_blanks(out));
}

std::string redacted(std::string text, const Box& box) {
  return without_uuids(Names(box).left_out(std::move(text)));
}

std::string markdown(const Report& report, const Box& box, bool redact) {
  std::string out = fmt::format(
      "### arbench probe: {}\n\n{}\n\n| approach | verdict | class | why | way out | rule "
      "|\n|---|---|---|---|---|---|\n",
      gpu_line(*report.facts), stack_line(*report.facts));
  const auto cell = [](std::string text) {
    replace_all(text, "|", "\\|");
    replace_all(text, "\n", " ");
    return text;
  };
  for (const Verdict& verdict : report.verdicts) {
    std::string why;
    std::string way;
    std::string rules;
    for (const Finding& finding : verdict.findings) {
      why += (why.empty() ? "" : "; ") + finding.because;
      if (!finding.way_out.empty()) way += (way.empty() ? "" : "; ") + finding.way_out;
      rules += (rules.empty() ? "" : ", ") + finding.rule;
    }
    for (const std::string& unseen : verdict.not_seen) why += (why.empty() ? "not seen: " : "; ") + unseen;
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", cell(verdict.title), verdict.status, verdict.kind,
                       cell(why), cell(way), rules);
  }
  std::vector<std::string> all = sections(report);
  for (std::string& section : all) {
    if (section.starts_with("CAN EACH")) continue;
    replace_all(section, "```", "'''");
    const std::size_t end = section.find('\n');
    out += fmt::format("\n<details><summary>{}</summary>\n\n```\n{}```\n\n</details>\n",
                       section.substr(0, end), section.substr(end + 1));
  }
  out = printable(without_trailing_blanks(out));
  return redact ? redacted(std::move(out), box) : out;
}

}  // namespace arb::probe
