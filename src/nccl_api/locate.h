// Where NCCLs are, and which ones, without loading any.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace arb::nccl {

// What a file says about itself: "NCCL version 2.28.9+cuda13.0" lies in its bytes.
struct FileVersion {
  std::string name;        // "2.28.9+cuda13.0"
  std::string version;     // "2.28.9", with a suffix where there is one ("2.30.1rc1")
  std::string cuda_build;  // "13.0"

  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};

// Reads the version out of text that holds it; empty where it holds none.
std::optional<FileVersion> version_in_bytes(std::string_view bytes);
// The same of a file, which is mapped and not loaded; empty also where the file cannot be read.
std::optional<FileVersion> version_in_file(const std::filesystem::path& file);

// Where to look. An empty member is skipped; lists are separated by colons.
struct Places {
  std::string ld_library_path;
  std::filesystem::path loader_cache;                  // the loader's cache, /etc/ld.so.cache
  std::vector<std::filesystem::path> folders;          // that hold the library itself
  std::filesystem::path cuda_home;                     // its lib64 and lib
  std::filesystem::path toolkits_parent;               // each cuda*/lib64 in it: /usr/local
  std::string path;                                    // PATH: the folders of python3
  std::vector<std::filesystem::path> python_prefixes;  // further ones: each lib/python3*/site-packages in it
  std::filesystem::path toolkit_cache;                 // each nccl-*/lib in it

  // What LD_LIBRARY_PATH, CUDA_HOME, PATH, VIRTUAL_ENV, HOME and ARB_TOOLKITS say, and the usual folders.
  static Places from_environment();
};

// Files named libnccl.so.2 in these places, in the order of the members above, each file once.
std::vector<std::string> find_paths(const Places& places);

}  // namespace arb::nccl
