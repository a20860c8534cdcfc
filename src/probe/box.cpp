#include "probe/box.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <utility>

#include "descriptor.h"
#include "errors.h"
#include "probe/json.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

constexpr int most_links = 40;

std::string words_for(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return "there is no such file";
    case EACCES:
    case EPERM:
      return "it may not be read by this user";
    default:
      return std::strerror(error);
  }
}

std::string trimmed(std::string text) {
  const auto blank = [](char letter) {
    return letter == ' ' || letter == '\n' || letter == '\t' || letter == '\r';
  };
  while (!text.empty() && (blank(text.back()) || text.back() == '\0')) text.pop_back();
  text.erase(text.begin(), std::ranges::find_if_not(text, blank));
  return text;
}

}  // namespace

Box::Box(fs::path root, std::map<std::string, std::string> environment, Answers answers,
         std::map<std::string, Space> spaces)
    : root_(std::move(root)),
      environment_(std::move(environment)),
      answers_(std::move(answers)),
      spaces_(std::move(spaces)) {}

Box Box::live(Answers answers) {
  std::map<std::string, std::string> environment;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::size_t equal = variable.find('=');
    if (equal != std::string_view::npos)
      environment.emplace(variable.substr(0, equal), variable.substr(equal + 1));
  }
  return {"/", std::move(environment), std::move(answers), {}};
}

Box Box::recorded(const fs::path& folder) {
  const fs::path file = folder / "box.json";
  const Descriptor opened = open_to_read(file);
  std::string text;
  if (opened) {
    std::vector<char> buffer(1 << 20);
    ssize_t got = 0;
    while ((got = ::read(opened.get(), buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
  } else {
    throw EnvironmentError(folder.string() +
                           " is no recorded box: it has no box.json; give a folder with root/ and box.json");
  }
  RecordedBox recorded = recorded_box_from_json(text, file.string());
  return {folder / "root", std::move(recorded.environment), std::move(recorded.answers),
          std::move(recorded.spaces)};
}

std::optional<std::string> Box::resolve(std::string_view path) const {
  std::list<std::string> left;
  const auto push_front = [&](const fs::path& parts) {
    auto at = left.begin();
    for (const fs::path& part : parts.relative_path()) left.insert(at, part.string());
  };
  push_front(fs::path(path));
  fs::path done = "/";
  int links = 0;
  while (!left.empty()) {
    const std::string part = std::exchange(left.front(), {});
    left.pop_front();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      done = done.parent_path();
      continue;
    }
    const fs::path next = done / part;
    std::error_code error;
    const fs::path host = root_ / next.relative_path();
    const fs::file_status status = fs::symlink_status(host, error);
    if (error || status.type() == fs::file_type::not_found) return std::nullopt;
    if (status.type() != fs::file_type::symlink) {
      done = next;
      continue;
    }
    if (++links > most_links) return std::nullopt;
    const fs::path target = fs::read_symlink(host, error);
    if (error) return std::nullopt;
    if (target.is_absolute()) done = "/";
    push_front(target);
  }
  return done.string();
}

std::optional<fs::path> Box::host_path(std::string_view path) const {
  const auto real = resolve(path);
  if (!real) return std::nullopt;
  return root_ / fs::path(*real).relative_path();
}

Text Box::read(std::string_view path, std::size_t limit_bytes) const {
  const auto host = host_path(path);
  if (!host) return {{}, "there is no such file"};
  const Descriptor file = open_to_read(*host);
  if (!file) return {{}, words_for(errno)};
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {{}, "it is no file"};
  std::string text;
  std::vector<char> buffer(std::min<std::size_t>(limit_bytes, 1 << 16));
  while (text.size() < limit_bytes) {
    const ssize_t got = ::read(file.get(), buffer.data(), std::min(buffer.size(), limit_bytes - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && text.empty()) return {{}, words_for(errno)};
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return {std::move(text), {}};
}

std::optional<std::string> Box::line(std::string_view path) const {
  auto text = read(path, 1 << 16).text;
  if (!text) return std::nullopt;
  return trimmed(std::move(*text));
}

bool Box::is_file(std::string_view path) const {
  const auto host = host_path(path);
  std::error_code error;
  return host && fs::is_regular_file(*host, error);
}

bool Box::is_folder(std::string_view path) const {
  const auto host = host_path(path);
  std::error_code error;
  return host && fs::is_directory(*host, error);
}

bool Box::can_run(std::string_view path) const {
  const auto host = host_path(path);
  return host && is_file(path) && ::access(host->c_str(), X_OK) == 0;
}

std::vector<std::string> Box::list(std::string_view folder) const {
  std::vector<std::string> names;
  const auto host = host_path(folder);
  if (!host) return names;
  std::error_code error;
  for (fs::directory_iterator entry(*host, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::optional<std::string> Box::variable(const std::string& name) const {
  const auto found = environment_.find(name);
  if (found == environment_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<Space> Box::space(const std::string& path) const {
  if (const auto found = spaces_.find(path); found != spaces_.end()) return found->second;
  if (!is_live()) return std::nullopt;
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return std::nullopt;
  return Space{status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize};
}

}  // namespace arb::probe
