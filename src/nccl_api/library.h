// NCCL, opened by path at run time: which libraries there are, and what the opened one says it is.
//
// One NCCL configuration a process: NCCL reads its NCCL_* settings once, at its first use, and keeps them, so
// a second configuration, like a second NCCL, takes a second process. Set NCCL_* (and make a DebugLog) before
// the first call of Library::open.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nccl_api/error.h"
#include "nccl_api/locate.h"

namespace arb::nccl {

namespace entry {
struct Entries;
}

// A loaded libnccl.so.2; copies share it. It stays loaded for the rest of the process, because threads of
// NCCL may outlive a communicator that had to be aborted.
class Library {
 public:
  // Loads the file (a bare name such as "libnccl.so.2" goes through the loader's search). Throws nccl::Error
  // saying what is wrong with it and which other file would work.
  static Library open(const std::filesystem::path& path);

  [[nodiscard]] const std::string& version() const;  // "2.28.9", as ncclGetVersion says
  [[nodiscard]] const std::string& name() const;     // "2.28.9+cuda13.0", the rows' nccl column
  [[nodiscard]] const std::string& path() const;     // the file really loaded, links resolved
  // Why there are no symmetric windows, one sentence; empty: there are.
  [[nodiscard]] const std::string& window_problem() const;

  // The C entries; of use inside src/nccl_api only, where the type is complete.
  [[nodiscard]] const entry::Entries& entries() const;

 private:
  struct Loaded;
  explicit Library(std::shared_ptr<const Loaded> loaded);

  std::shared_ptr<const Loaded> loaded_;
};

// The version that ncclGetVersion's code stands for: 22809 is "2.28.9", and before 2.9 2708 is "2.7.8".
std::string version_from_code(int code);

}  // namespace arb::nccl
