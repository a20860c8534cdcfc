#include "nccl_api/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "nccl_api/entries.h"

namespace arb::nccl {
namespace {

namespace fs = std::filesystem;

// What would work instead of `refused`, as the end of a sentence.
std::string remedy(const fs::path& refused) {
  std::error_code error;
  const fs::path real = fs::canonical(refused, error);
  for (const std::string& path : find_paths(Places::from_environment())) {
    if (error || path != real) return fmt::format("this machine also has {}", path);
  }
  return "name a libnccl.so.2 of NCCL 2.4 or later (scripts/toolkits.py fetch nccl-cu13==2.28.9 brings one)";
}

struct Unloader {
  void operator()(void* handle) const { ::dlclose(handle); }
};

template <typename Function>
bool find_entry(void* handle, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(handle, symbol));
  return function != nullptr;
}

// The first entry that the library lacks, or nullptr.
const char* fill(void* handle, entry::Entries& entries) {
  find_entry(handle, "ncclGetLastError", entries.get_last_error);
  const char* missing = nullptr;
  const auto need = [&](const char* symbol, auto& function) {
    if (!find_entry(handle, symbol, function) && missing == nullptr) missing = symbol;
  };
  need("ncclGetVersion", entries.get_version);
  need("ncclGetErrorString", entries.get_error_string);
  need("ncclCommInitAll", entries.comm_init_all);
  need("ncclGetUniqueId", entries.get_unique_id);
  need("ncclCommInitRank", entries.comm_init_rank);
  need("ncclCommDestroy", entries.comm_destroy);
  need("ncclCommAbort", entries.comm_abort);
  need("ncclCommGetAsyncError", entries.comm_get_async_error);
  need("ncclGroupStart", entries.group_start);
  need("ncclGroupEnd", entries.group_end);
  need("ncclAllReduce", entries.all_reduce);
  return missing;
}

// The first entry for windows that the library lacks, or nullptr.
const char* fill_windows(void* handle, entry::Entries& entries) {
  const char* missing = nullptr;
  const auto want = [&](const char* symbol, auto& function) {
    if (!find_entry(handle, symbol, function) && missing == nullptr) missing = symbol;
  };
  want("ncclCommWindowRegister", entries.comm_window_register);
  want("ncclCommWindowDeregister", entries.comm_window_deregister);
  want("ncclMemAlloc", entries.mem_alloc);
  want("ncclMemFree", entries.mem_free);
  return missing;
}

// The file that an address comes from, links resolved; as named where that fails.
std::string file_of(const void* address, const fs::path& named) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return named.string();
  std::error_code error;
  const fs::path real = fs::canonical(info.dli_fname, error);
  return error ? std::string(info.dli_fname) : real.string();
}

}  // namespace

struct Library::Loaded {
  std::unique_ptr<void, Unloader> handle;
  entry::Entries entries;
  std::string version;
  std::string name;
  std::string path;
  std::string window_problem;
};

Library::Library(std::shared_ptr<const Loaded> loaded) : loaded_(std::move(loaded)) {}

Library Library::open(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty()) throw Error(fmt::format("no path to NCCL was given; {}", remedy(path)));
  if (path.has_parent_path() && !fs::exists(path, error)) {
    throw Error(
        fmt::format("cannot load NCCL from {}: there is no such file; {}", path.string(), remedy(path)));
  }
  if (fs::is_directory(path, error)) {
    throw Error(fmt::format("cannot load NCCL from {}: it is a folder; name the libnccl.so.2 in it, or {}",
                            path.string(), remedy(path)));
  }
  auto loaded = std::make_shared<Loaded>();
  loaded->handle.reset(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (!loaded->handle) {
    const char* const said = ::dlerror();
    throw Error(fmt::format("cannot load NCCL from {} ({}); {}", path.string(),
                            said == nullptr ? "the loader gives no reason" : said, remedy(path)));
  }
  if (const char* const missing = fill(loaded->handle.get(), loaded->entries)) {
    throw Error(fmt::format("{} is no NCCL that this program can use: it has no {}; {}", path.string(),
                            missing, remedy(path)));
  }
  int code = 0;
  if (loaded->entries.get_version(&code) != entry::Result::success || code <= 0) {
    throw Error(fmt::format("{} does not say which NCCL it is: ncclGetVersion failed; {}", path.string(),
                            remedy(path)));
  }
  loaded->version = version_from_code(code);
  loaded->path = file_of(reinterpret_cast<const void*>(loaded->entries.get_version), path);
  loaded->name = loaded->version;
  // The code is the library's word; the text in the file is believed where it agrees.
  const auto in_file = version_in_file(loaded->path);
  if (in_file && in_file->version.starts_with(loaded->version)) loaded->name = in_file->name;
  if (const char* const missing = fill_windows(loaded->handle.get(), loaded->entries)) {
    loaded->window_problem =
        fmt::format("NCCL {} has no {}: symmetric windows need NCCL 2.27 or later", loaded->name, missing);
  }
  return Library(std::move(loaded));
}

const std::string& Library::version() const {
  return loaded_->version;
}
const std::string& Library::name() const {
  return loaded_->name;
}
const std::string& Library::path() const {
  return loaded_->path;
}
const std::string& Library::window_problem() const {
  return loaded_->window_problem;
}
const entry::Entries& Library::entries() const {
  return loaded_->entries;
}

std::string version_from_code(int code) {
  const int unit = code < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", code / unit, code % unit / 100, code % 100);
}

}  // namespace arb::nccl
