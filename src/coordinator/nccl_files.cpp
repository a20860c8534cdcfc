#include "nccl_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace arb {
namespace {

namespace fs = std::filesystem;

constexpr const char* library_name = "libnccl.so.2";

void add_if_there(std::vector<std::string>& list, const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  const std::string real = fs::canonical(path, error).string();
  if (!error && std::ranges::find(list, real) == list.end()) list.push_back(real);
}

// Folders in `folder`, sorted, newest version last in the usual naming.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_directory(error)) found.push_back(entry->path());
  }
  std::ranges::sort(found, std::ranges::greater{});
  return found;
}

}  // namespace

std::vector<std::string> nccl_candidates(const std::vector<std::string>& user_paths) {
  std::vector<std::string> list;
  std::error_code error;
  for (const std::string& text : user_paths) {
    fs::path path = text;
    if (fs::is_directory(path, error)) path /= library_name;
    if (!fs::is_regular_file(path, error)) {
      throw UsageError(
          fmt::format("--nccl {}: no such library; give the path of a {} or the folder that holds one", text,
                      library_name));
    }
    add_if_there(list, path);
  }
  if (!user_paths.empty()) return list;

  list.emplace_back(library_name);
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                             "/usr/local/lib", "/usr/local/nccl/lib", "/opt/nccl/lib"}) {
    add_if_there(list, fs::path(folder) / library_name);
  }
  for (const fs::path& folder : folders_in("/usr/local")) {
    if (folder.filename().string().starts_with("cuda")) add_if_there(list, folder / "lib64" / library_name);
  }
  // Python's wheels: the NCCL that a machine-learning stack really loads.
  std::vector<fs::path> prefixes = {"/usr", "/usr/local", "/opt/conda"};
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = std::getenv(variable)) prefixes.insert(prefixes.begin(), value);
  }
  if (const char* home = std::getenv("HOME")) prefixes.push_back(fs::path(home) / ".local");
  for (const fs::path& prefix : prefixes) {
    for (const fs::path& python : folders_in(prefix / "lib")) {
      if (!python.filename().string().starts_with("python")) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        add_if_there(list, python / packages / "nvidia" / "nccl" / "lib" / library_name);
      }
    }
  }
  return list;
}

}  // namespace arb
