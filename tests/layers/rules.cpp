#include "rules.h"

#include <algorithm>
#include <regex>
#include <set>

namespace arb::layers {
namespace {

bool under(const SourceFile& file, const std::string& folder) {
  return file.path.starts_with(folder + "/");
}
bool has_suffix(const SourceFile& file, const std::vector<std::string>& suffixes) {
  return std::ranges::any_of(suffixes,
                             [&](const std::string& suffix) { return file.path.ends_with(suffix); });
}
bool is_cpp(const SourceFile& file) {
  return has_suffix(file, {".h", ".cpp", ".cu", ".cuh", ".cpp.in"});
}
bool is_cmake(const SourceFile& file) {
  return has_suffix(file, {"CMakeLists.txt", ".cmake"});
}

// One finding a match of `pattern`, with its line.
Findings matches(const SourceFile& file, const std::string& text, const std::regex& pattern,
                 const std::string& what) {
  Findings findings;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    const auto line = 1 + std::count(text.begin(), text.begin() + match->position(), '\n');
    findings.push_back(file.path + ":" + std::to_string(line) + ": " + what + " '" + match->str() + "'");
  }
  return findings;
}

Findings names_in(const SourceFile& file, const std::string& text, const std::vector<std::string>& kernels) {
  Findings findings;
  for (const std::string& kernel : kernels) {
    const Findings more =
        matches(file, text, std::regex("\\b" + kernel + "(?![a-z0-9])"), "names the kernel");
    findings.insert(findings.end(), more.begin(), more.end());
  }
  return findings;
}

}  // namespace

std::string without_comments(const std::string& text, bool strings_too) {
  std::string out = text;
  const auto blank = [&out](std::size_t at) {
    if (out[at] != '\n') out[at] = ' ';
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      for (; i < text.size() && text[i] != '\n'; ++i) blank(i);
    } else if (text.compare(i, 2, "/*") == 0) {
      const std::size_t end = std::min(text.find("*/", i + 2), text.size() - 2);
      for (; i < end + 2; ++i) blank(i);
      --i;
    } else if (text.compare(i, 2, "R\"") == 0) {
      const std::size_t open = text.find('(', i);
      if (open == std::string::npos) break;
      const std::string close = ")" + text.substr(i + 2, open - i - 2) + "\"";
      const std::size_t end = std::min(text.find(close, open), text.size());
      for (i = open + 1; i < end; ++i) {
        if (strings_too) blank(i);
      }
      i = std::min(end + close.size() - 1, text.size());
    } else if (text[i] == '"' ||
               (text[i] == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1]))))) {
      const char quote = text[i];
      for (++i; i < text.size() && text[i] != quote && text[i] != '\n'; ++i) {
        const bool escaped = text[i] == '\\';
        if (strings_too) blank(i);
        if (escaped && i + 1 < text.size()) {
          ++i;
          if (strings_too) blank(i);
        }
      }
    }
  }
  return out;
}

Findings kernel_named_outside_catalog(const SourceFile& file, const std::vector<std::string>& kernels) {
  if (!under(file, "src") && !under(file, "kernels") && !under(file, "include")) return {};
  if (!is_cpp(file) && !is_cmake(file) && !has_suffix(file, {".py"})) return {};
  if (file.path == "src/catalog.cpp") return {};
  std::vector<std::string> others;
  for (const std::string& kernel : kernels) {
    if (file.path != "kernels/" + kernel + ".cu") others.push_back(kernel);
  }
  return names_in(file, is_cpp(file) ? without_comments(file.text, false) : file.text, others);
}

Findings kernel_includes(const SourceFile& file) {
  if (!under(file, "kernels") || !has_suffix(file, {".cu", ".cuh"})) return {};
  const std::string text = without_comments(file.text, false);
  Findings findings;
  static const std::regex include(R"(#\s*include\s*([<"][^>"]*[>"]))");
  for (std::sregex_iterator match(text.begin(), text.end(), include), end; match != end; ++match) {
    const std::string what = (*match)[1];
    const std::string name = what.substr(1, what.size() - 2);
    const bool support =
        under(file, "kernels/support") && name.find('/') == std::string::npos && name.ends_with(".cuh");
    if (name == "arb/abi.h" || name.starts_with("machine/") || support) continue;
    findings.push_back(file.path + ": includes " + what + "; kernels see arb/abi.h and machine/ only");
  }
  return findings;
}

Findings machine_words(const SourceFile& file) {
  if (!under(file, "kernels") || under(file, "kernels/machine") || !has_suffix(file, {".cu", ".cuh"}))
    return {};
  static const std::regex words(
      R"(\b(asm|__asm__|threadIdx|blockIdx|blockDim|gridDim|warpSize|__shared__|__syncthreads\w*|__syncwarp|__shfl\w*|)"
      R"(__threadfence\w*|atomic[A-Z]\w*|volatile|clock64|__nanosleep)\b)");
  return matches(file, without_comments(file.text, true), words, "uses, outside kernels/machine,");
}

Findings vendor_headers(const SourceFile& file) {
  if (!is_cpp(file)) return {};
  const std::string text = without_comments(file.text, false);
  Findings findings;
  const auto add = [&](const Findings& more) { findings.insert(findings.end(), more.begin(), more.end()); };
  if (!under(file, "src/cuda_api")) {
    add(matches(file, text, std::regex(R"(#\s*include\s*[<"](cuda|cudaTypedefs)\.h[>"])"),
                "outside src/cuda_api"));
  }
  if (!under(file, "src/nccl_api")) {
    add(matches(file, text, std::regex(R"(#\s*include\s*[<"]nccl\.h[>"])"), "outside src/nccl_api"));
  }
  add(matches(file, text,
              std::regex(R"(#\s*include\s*[<"](cuda_runtime\w*|cuda_fp16|cuda_bf16|nvml)\.h[>"])"),
              "nowhere wanted:"));
  return findings;
}

Findings vendor_error_codes(const SourceFile& file) {
  if (!is_cpp(file) || under(file, "kernels")) return {};
  const std::string text = without_comments(file.text, true);
  Findings findings;
  const auto add = [&](const Findings& more) { findings.insert(findings.end(), more.begin(), more.end()); };
  if (!under(file, "src/cuda_api")) {
    add(matches(file, text, std::regex(R"(\b(CUresult|CUDA_SUCCESS|CUDA_ERROR_\w+|cudaError\w*)\b)"),
                "outside src/cuda_api"));
  }
  // Stand-ins for NCCL that tests open by path speak its language.
  if (!under(file, "src/nccl_api") && !file.path.starts_with("tests/unit/fake_nccl")) {
    add(matches(file, text, std::regex(R"(\b(ncclResult_t|ncclSuccess|nccl\w+Error)\b)"),
                "outside src/nccl_api"));
  }
  return findings;
}

Findings kernel_named_in_bench_or_tests(const SourceFile& file, const std::vector<std::string>& kernels) {
  if (!under(file, "bench") && !under(file, "tests")) return {};
  // Data about planted bugs is kept by kernel; everything else iterates the catalog.
  if (file.path.ends_with(".csv") && !under(file, "tests/golden")) return {};
  return names_in(file, file.text, kernels);
}

Findings device_waits(const SourceFile& file) {
  if (!under(file, "kernels") || !has_suffix(file, {".cu", ".cuh"})) return {};
  const std::string text = without_comments(file.text, true);
  const bool is_wait = file.path == "kernels/machine/wait.cuh";
  if (is_wait || file.path == "kernels/machine/sentinel.cuh") {
    // Each loop without a bound gives up in the one way that wait.cuh has: with a reason, at a deadline.
    const auto count = [&](const std::regex& what) {
      return std::distance(std::sregex_iterator(text.begin(), text.end(), what), std::sregex_iterator());
    };
    Findings findings;
    if (count(std::regex(R"(\b(while\s*\(|for\s*\([^;]*;\s*;))")) >
        count(std::regex(R"(\bmust_give_up\(poll\b)")))
      findings.push_back(file.path + ": a loop that never gives up");
    if (is_wait && count(std::regex(R"([<>]=?\s*context\.deadline_ns)")) == 0)
      findings.push_back(file.path + ": nothing looks at a deadline");
    if (is_wait && count(std::regex("Reason reason")) == 0)
      findings.push_back(file.path + ": a wait without a reason");
    return findings;
  }
  if (file.path == "kernels/machine/memory.cuh") {
    return matches(file, text, std::regex(R"(\b(while\s*\(|for\s*\([^;]*;\s*;|do\s*\{))"),
                   "loops without a bound, outside wait.cuh,");
  }
  return matches(file, text, std::regex(R"(\b(while\s*\(|for\s*\([^;]*;\s*;|do\s*\{|load_acquire\w*\s*\())"),
                 "waits or polls outside machine/wait.cuh:");
}

Findings cuda_compiler(const SourceFile& file) {
  if (!is_cmake(file) || under(file, "kernels")) return {};
  std::string text = file.text;
  static const std::regex comment("#[^\n]*");
  text = std::regex_replace(text, comment, "");
  Findings findings = matches(
      file, text,
      std::regex(R"(\b(enable_language\s*\(\s*CUDA|find_package\s*\(\s*CUDA\w*|CUDA::\w+|CMAKE_CUDA_\w+|)"
                 R"(LANGUAGES[^)]*\bCUDA\b)|\bnvcc\b)"),
      "needs a CUDA compiler:");
  return findings;
}

Findings row_makers(const SourceFile& file) {
  if (!is_cpp(file) || under(file, "tests")) return {};
  const std::string text = without_comments(file.text, true);
  if (file.path == "src/measure.h") {
    const std::size_t begin = text.find("class Row {");
    if (begin == std::string::npos) return {file.path + ": there is no class Row"};
    const std::string body = text.substr(begin, text.find("\n};", begin) - begin);
    Findings findings;
    static const std::regex friends(R"(friend\s+([^;{]*))");
    for (std::sregex_iterator match(body.begin(), body.end(), friends), end; match != end; ++match) {
      const std::string who = (*match)[1];
      if (who.find("Row measure(") == 0 || who.find("class RowReader") == 0 ||
          who.find("bool operator==") == 0)
        continue;
      findings.push_back(file.path + ": another friend of Row: " + who);
    }
    const std::size_t hidden = body.find("private:");
    static const std::regex way_in(R"(RowFields\s*[&*]|RowFields\s+fields)");
    const Findings open =
        matches(file, std::regex_replace(body.substr(0, hidden), std::regex("const RowFields[&*]"), ""),
                way_in, "a public way into a row:");
    findings.insert(findings.end(), open.begin(), open.end());
    return findings;
  }
  if (file.path == "src/measure.cpp" || file.path == "src/report_csv.cpp") return {};
  return matches(
      file, text,
      std::regex(
          R"(\bconst_cast\s*<\s*(arb::)?Row|\bRow\s*\(\s*(std::move\s*\(|fields)|\bRowFields\s+\w+\s*[;{=])"),
      "makes or changes a row:");
}

Findings units(const SourceFile& file) {
  if (!under(file, "src") && !under(file, "include") && !under(file, "bench")) return {};
  // entries.h mirrors a vendor's C header, names and all, and is private to its folder.
  if (!has_suffix(file, {".h"}) || file.path.ends_with("/entries.h")) return {};
  const std::string text = without_comments(file.text, true);
  Findings findings;
  // A number whose name ends in a dimension and not in a unit.
  static const std::regex number(
      R"(\b(?:std::uint(?:8|16|32|64)_t|std::int(?:32|64)_t|std::size_t|double|float|int|long|unsigned|u32|u64)>?\s*[&*]?\s+)"
      R"(((?:\w+_)?(?:size|length|width|latency|duration|time|deadline|timeout|delay|elapsed|interval|period|bandwidth|capacity|)"
      R"(stride|offset|memory|age|patience|budget))_?\s*(?=[,;)={\[]))");
  for (std::sregex_iterator match(text.begin(), text.end(), number), end; match != end; ++match) {
    const auto line = 1 + std::count(text.begin(), text.begin() + match->position(), '\n');
    findings.push_back(file.path + ":" + std::to_string(line) + ": '" + (*match)[1].str() + "' has no unit");
  }
  return findings;
}

}  // namespace arb::layers
