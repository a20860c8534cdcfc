#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "compare.h"
#include "coordinator/bundles.h"
#include "static_comparison.h"
#include "text.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

// A side is a bundle's folder, a bundle's name or a toolkit.
Bundle bundle_of(const std::string& side, const BundleSet& set, const fs::path& folder) {
  std::error_code error;
  if (side.find('/') != std::string::npos || fs::is_regular_file(fs::path(side) / "manifest.json", error)) {
    if (!fs::is_directory(side, error)) throw UsageError(fmt::format("{}: there is no such folder", side));
    return read_bundle(side);
  }
  std::vector<std::string> names;
  for (const Bundle& bundle : set.bundles) names.push_back(bundle.name);
  for (const BundleProblem& problem : set.problems) {
    if (problem.name == side) throw EnvironmentError(problem.sentence);
  }
  if (names.empty()) {
    throw EnvironmentError(fmt::format(
        "there are no kernel bundles in {}; build the target `bundles`, or --bundles DIR", folder.string()));
  }
  const std::vector<std::string> chosen = select_bundles({side}, names);
  return *std::ranges::find(set.bundles, chosen.front(), &Bundle::name);
}

}  // namespace

ExitCode compare_bundles(const CompareOptions& options, const Terminal& terminal, Log& log) {
  if (options.sides.size() != 2) {
    throw UsageError("--static takes two bundles, such as `arbench compare --static 12.8-nvrtc 13.0-nvrtc`");
  }
  const fs::path folder = options.run.bundles.empty() ? default_bundle_folder() : options.run.bundles;
  const BundleSet set = find_bundles(folder);
  const Bundle a = bundle_of(options.sides[0], set, folder);
  const Bundle b = bundle_of(options.sides[1], set, folder);
  const std::vector<StaticRow> rows = compare_static(a, b);
  log.clear();
  switch (options.format) {
    case CompareFormat::table:
      terminal.out << static_table(a, b, rows);
      break;
    case CompareFormat::markdown:
      terminal.out << static_markdown(a, b, rows);
      break;
    case CompareFormat::json:
      terminal.out << static_json(a, b, rows);
      break;
    case CompareFormat::csv:
      terminal.out << static_csv(a, b, rows);
      break;
    case CompareFormat::smaller_is_better:
      throw UsageError("a static comparison has no times, so there is no smaller-is-better of it");
  }
  terminal.out << std::flush;
  return ExitCode::good;
}

}  // namespace arb
