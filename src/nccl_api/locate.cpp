#include "nccl_api/locate.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

namespace arb::nccl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view file_name = "libnccl.so.2";
constexpr std::size_t longest_name = 64;

// A file's bytes, mapped to read; empty where that is not possible.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& file) {
    // Not to block on a pipe of that name.
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return;
    struct stat status {};
    if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
      size_bytes_ = static_cast<std::size_t>(status.st_size);
      void* const start = ::mmap(nullptr, size_bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
      if (start != MAP_FAILED) start_ = start;
    }
    ::close(descriptor);
  }
  ~MappedFile() {
    if (start_ != nullptr) ::munmap(start_, size_bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile(MappedFile&&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  [[nodiscard]] std::string_view bytes() const {
    return start_ == nullptr ? std::string_view{}
                             : std::string_view(static_cast<const char*>(start_), size_bytes_);
  }

 private:
  void* start_ = nullptr;
  std::size_t size_bytes_ = 0;
};

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// Length of the digits and dots at the start of `text` when they form `parts` numbers, else 0.
std::size_t numbers(std::string_view text, int parts) {
  std::size_t at = 0;
  for (int part = 0; part < parts; ++part) {
    if (part > 0) {
      if (at >= text.size() || text[at] != '.') return 0;
      ++at;
    }
    const std::size_t first = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    if (at == first) return 0;
  }
  return at;
}

std::optional<FileVersion> parse_name(std::string_view text) {
  const std::size_t version_end = numbers(text, 3);
  if (version_end == 0) return std::nullopt;
  constexpr std::string_view mark = "+cuda";
  const std::size_t cuda = text.find(mark);
  if (cuda == std::string_view::npos) return std::nullopt;
  const auto printable = [](char letter) { return letter > ' ' && letter < 127; };
  if (!std::ranges::all_of(text.substr(version_end, cuda - version_end), printable)) return std::nullopt;
  const std::string_view build = text.substr(cuda + mark.size());
  const std::size_t build_end = numbers(build, 2);
  if (build_end == 0) return std::nullopt;
  return FileVersion{std::string(text.substr(0, cuda + mark.size() + build_end)),
                     std::string(text.substr(0, cuda)), std::string(build.substr(0, build_end))};
}

std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const std::size_t colon = std::min(list.find(':'), list.size());
    if (colon > 0) parts.push_back(list.substr(0, colon));
    list.remove_prefix(std::min(colon + 1, list.size()));
  }
  return parts;
}

// Folders directly in `parent` whose names start with `prefix`, sorted; none where it cannot be read.
std::vector<fs::path> folders_in(const fs::path& parent, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path());
  }
  std::ranges::sort(found);
  return found;
}

// Collects files, each once by its real path.
class Collector {
 public:
  void file(const fs::path& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error || !fs::is_regular_file(real, error)) return;
    if (std::ranges::find(found_, real.string()) == found_.end()) found_.push_back(real.string());
  }
  void folder(const fs::path& path) {
    if (!path.empty()) file(path / file_name);
  }
  void toolkit(const fs::path& path) {
    folder(path / "lib64");
    folder(path / "lib");
  }
  void python_prefix(const fs::path& prefix) {
    for (const fs::path& python : folders_in(prefix / "lib", "python3")) {
      for (const char* const packages : {"site-packages", "dist-packages"}) {
        folder(python / packages / "nvidia" / "nccl" / "lib");
      }
    }
  }
  std::vector<std::string> take() { return std::move(found_); }

 private:
  std::vector<std::string> found_;
};

// The loader's cache holds its paths as strings between zero bytes, in every version of its format.
void collect_loader_cache(const fs::path& cache, Collector& collector) {
  const MappedFile file(cache);
  const std::string_view bytes = file.bytes();
  const std::string ending = '/' + std::string(file_name) + '\0';
  for (std::size_t at = bytes.find(ending); at != std::string_view::npos; at = bytes.find(ending, at + 1)) {
    const std::size_t zero = bytes.rfind('\0', at);
    const std::size_t first = zero == std::string_view::npos ? 0 : zero + 1;
    collector.file(fs::path(bytes.substr(first, at - first)) / file_name);
  }
}

// The prefix of a python3 on PATH is the parent of its folder: as named (a virtual environment) and with
// links resolved (what the environment was made from). pyenv's is a script in <root>/shims, for
// <root>/versions/*.
void collect_python(const fs::path& folder, Collector& collector) {
  const fs::path program = folder / "python3";
  std::error_code error;
  if (!fs::exists(program, error)) return;
  collector.python_prefix(folder.parent_path());
  const fs::path real = fs::canonical(program, error);
  if (!error) collector.python_prefix(real.parent_path().parent_path());
  if (folder.filename() == "shims") {
    for (const fs::path& version : folders_in(folder.parent_path() / "versions", "")) {
      collector.python_prefix(version);
    }
  }
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::optional<FileVersion> version_in_bytes(std::string_view bytes) {
  constexpr std::string_view mark = "NCCL version ";
  while (!bytes.empty()) {
    // memmem: some ten times as fast over 200 MB as string_view::find.
    const void* const hit = ::memmem(bytes.data(), bytes.size(), mark.data(), mark.size());
    if (hit == nullptr) break;
    bytes.remove_prefix(static_cast<std::size_t>(static_cast<const char*>(hit) - bytes.data()) + mark.size());
    if (auto version = parse_name(bytes.substr(0, longest_name))) return version;
  }
  return std::nullopt;
}

std::optional<FileVersion> version_in_file(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  return version_in_bytes(mapped.bytes());
}

Places Places::from_environment() {
  Places places;
  places.ld_library_path = variable("LD_LIBRARY_PATH");
  places.loader_cache = "/etc/ld.so.cache";
  places.folders = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                    "/usr/local/lib"};
  places.cuda_home = variable("CUDA_HOME");
  places.toolkits_parent = "/usr/local";
  places.path = variable("PATH");
  const fs::path home = variable("HOME");
  const fs::path virtual_environment = variable("VIRTUAL_ENV");
  if (!virtual_environment.empty()) places.python_prefixes.push_back(virtual_environment);
  if (!home.empty()) places.python_prefixes.push_back(home / ".local");
  places.toolkit_cache = variable("ARB_TOOLKITS");
  if (places.toolkit_cache.empty() && !home.empty()) {
    places.toolkit_cache = home / ".cache" / "arbench" / "toolkits";
  }
  return places;
}

std::vector<std::string> find_paths(const Places& places) {
  Collector collector;
  for (const std::string_view folder : split_list(places.ld_library_path)) collector.folder(folder);
  if (!places.loader_cache.empty()) collect_loader_cache(places.loader_cache, collector);
  for (const fs::path& folder : places.folders) collector.folder(folder);
  if (!places.cuda_home.empty()) collector.toolkit(places.cuda_home);
  if (!places.toolkits_parent.empty()) {
    for (const fs::path& toolkit : folders_in(places.toolkits_parent, "cuda")) collector.toolkit(toolkit);
  }
  for (const std::string_view folder : split_list(places.path)) collect_python(folder, collector);
  for (const fs::path& prefix : places.python_prefixes) collector.python_prefix(prefix);
  if (!places.toolkit_cache.empty()) {
    for (const fs::path& fetched : folders_in(places.toolkit_cache, "nccl-")) collector.toolkit(fetched);
  }
  return collector.take();
}

}  // namespace arb::nccl
