#include "peer_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "catalog.h"
#include "text.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

bool can_execute(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0;
}

// What a shell would start.
std::optional<fs::path> found_in_path(const std::string& program) {
  const char* const value = std::getenv("PATH");
  std::string_view rest = value != nullptr ? value : "";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const fs::path file = fs::path(rest.substr(0, end)) / program;
    if (end > 0 && can_execute(file)) return fs::absolute(file);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> known_peers() {
  std::vector<std::string> names;
  for (const CatalogRow& row : catalog()) {
    const std::string name(row.peer);
    if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

std::map<std::string, PeerProgram> peer_programs(const std::vector<std::string>& named,
                                                 const fs::path& folder) {
  std::map<std::string, PeerProgram> programs;
  for (const std::string& text : named) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const auto row = std::ranges::find_if(
        catalog(), [&](const CatalogRow& candidate) { return !name.empty() && candidate.peer == name; });
    if (row == catalog().end())
      throw UsageError(fmt::format("--peer {}: no such peer; there are {}", text, enumerate(known_peers())));
    if (programs.contains(name)) throw UsageError(fmt::format("--peer {} is given twice", name));
    PeerProgram program;
    program.script = folder / "peers" / row->peer_script;
    program.library = folder / "lib" / "libarb_worker.so";
    if (equals == std::string::npos) {
      const auto python = found_in_path("python3");
      if (!python)
        throw UsageError(fmt::format(
            "--peer {}: $PATH has no python3; name one that has it: --peer {}=PYTHON", name, name));
      program.python = *python;
    } else {
      // Not resolved: a virtual environment's Python is a link, and knows its packages by the link's place.
      const std::string given = text.substr(equals + 1);
      if (!given.empty()) program.python = fs::absolute(given).lexically_normal();
      if (!can_execute(program.python))
        throw UsageError(
            fmt::format("--peer {}: there is no such program; name a Python that has {}", text, name));
    }
    for (const fs::path& file : {program.script, program.library}) {
      std::error_code error;
      if (fs::is_regular_file(file, error)) continue;
      throw EnvironmentError(
          fmt::format("--peer {}: {} is not there; a build makes it, beside arbench", name, file.string()));
    }
    programs.emplace(name, std::move(program));
  }
  return programs;
}

}  // namespace arb
