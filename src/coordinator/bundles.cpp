#include "bundles.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>
#include <tuple>

namespace arb {
namespace {

namespace fs = std::filesystem;

struct Architecture {
  int major = 0;
  int minor = 0;
  char suffix = ' ';
};

std::optional<Architecture> architecture_from(std::string_view text) {
  if (!text.starts_with("sm_")) return std::nullopt;
  text.remove_prefix(3);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (rest.size() > 1) return std::nullopt;
  return Architecture{number / 10, number % 10, rest.empty() ? ' ' : rest.front()};
}

// "12.8" before "13.0".
std::tuple<int, int> version_key(const std::string& toolkit) {
  int major = 0;
  int minor = 0;
  const char* const end = toolkit.data() + toolkit.size();
  const auto [dot, error] = std::from_chars(toolkit.data(), end, major);
  if (error == std::errc{} && dot < end) std::from_chars(dot + 1, end, minor);
  return {major, minor};
}

}  // namespace

BundleSet find_bundles(const fs::path& folder) {
  BundleSet set;
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    if (!hidden && entry->is_directory(error))
      folders.push_back(fs::absolute(entry->path()).lexically_normal());
  }
  std::ranges::sort(folders);
  for (const fs::path& path : folders) {
    const std::string there = path.filename().string();
    try {
      Bundle bundle = read_bundle(path);
      if (bundle.name != there) {
        throw BundleError(fmt::format("{} holds the manifest of bundle {}; build the target `bundles` again",
                                      path.string(), bundle.name));
      }
      for (const BundleCubin& cubin : bundle.cubins) read_cubin(bundle, cubin);
      if (bundle.name == support_bundle) {
        set.support = std::move(bundle);
      } else {
        set.bundles.push_back(std::move(bundle));
      }
    } catch (const BundleError& problem) {
      set.problems.push_back({there, problem.what()});
    }
  }
  // NVRTC before nvcc within a toolkit, because every toolkit can have it.
  std::ranges::sort(set.bundles, {}, [](const Bundle& bundle) {
    return std::tuple(version_key(bundle.toolkit), bundle.compiler != "nvrtc", bundle.name);
  });
  return set;
}

fs::path program_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

fs::path default_bundle_folder() {
  return program_folder() / "bundles";
}

std::string manifest_text(const Bundle& bundle) {
  std::ifstream file(bundle.folder / "manifest.json", std::ios::binary);
  if (!file) throw BundleError(fmt::format("cannot read {}/manifest.json", bundle.folder.string()));
  return {std::istreambuf_iterator<char>(file), {}};
}

bool runs_on(const std::string& code, const std::string& gpu) {
  const auto from = architecture_from(code);
  const auto to = architecture_from(gpu);
  if (!from || !to || from->major != to->major) return false;
  return from->suffix == 'a' ? from->minor == to->minor : from->minor <= to->minor;
}

std::string hardware_problem(const Bundle& bundle, const std::vector<std::string>& gpu_architectures) {
  for (const std::string& gpu : gpu_architectures) {
    const auto fits = [&](const BundleCubin& cubin) { return runs_on(cubin.architecture, gpu); };
    if (std::ranges::any_of(bundle.cubins, fits)) continue;
    return fmt::format(
        "bundle {} holds code for {} and this GPU is {}; configure with -DARB_ARCHITECTURES={} and build "
        "the target `bundles`",
        bundle.folder.string(), bundle.architectures(), gpu, gpu.starts_with("sm_") ? gpu.substr(3) : gpu);
  }
  return {};
}

}  // namespace arb
