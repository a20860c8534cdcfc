// What names a person or a host, and texts without it: reports are committed and sent around.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "probe/box.h"

namespace arb::probe {

class Names {
 public:
  // Whose names: the box's host, its users (HOME, USER and the like, and /etc/passwd), their home folders.
  explicit Names(const Box& box);

  // `text` with home folders as "~", users as "<user>", hosts and their domains as "<host>", also as parts of
  // longer words ("/mnt/ada-scratch") and in either case. Names that thousands of machines share ("ubuntu")
  // are no one's.
  [[nodiscard]] std::string left_out(std::string text) const;

 private:
  void add_home(const Box& box, const std::string& home);
  void add_user(const std::string& name);
  void add_host(const std::string& name);

  std::vector<std::string> homes_;  // longest first
  std::vector<std::string> users_;
  std::vector<std::string> hosts_;
};

// `text` with UUIDs of GPUs and their slices as "GPU-<uuid>" and "MIG-<uuid>", also when they are shortened.
std::string without_uuids(std::string_view text);

}  // namespace arb::probe
