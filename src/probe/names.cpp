#include "probe/names.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "probe/version.h"
#include "text.h"

namespace arb::probe {
namespace {

bool is_latin(char letter) {
  return std::isalpha(static_cast<unsigned char>(letter)) != 0;
}
bool is_decimal(char letter) {
  return std::isdigit(static_cast<unsigned char>(letter)) != 0;
}
// What a folder's name is made of; a blank or a quote ends it.
bool is_in_name(char letter) {
  return is_latin(letter) || is_decimal(letter) ||
         std::string_view("_-.+@").find(letter) != std::string_view::npos ||
         static_cast<unsigned char>(letter) >= 0x80;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Names of users and hosts that images and installers give, and words of the report itself.
bool is_anyones(const std::string& name) {
  constexpr std::array words{
      "root",   "ubuntu", "debian",    "fedora", "centos", "ec2-user", "admin",  "user",    "nobody",
      "jovyan", "docker", "podman",    "nvidia", "cuda",   "nccl",     "torch",  "pytorch", "triton",
      "vllm",   "sglang", "python",    "conda",  "gpu",    "gpus",     "cpu",    "pcie",    "flashinfer",
      "linux",  "local",  "localhost", "host",   "node",   "box",      "server", "home",    "usr",
      "lib",    "lib64",  "bin",       "opt",    "mnt",    "data",     "tmp",    "dev",     "proc",
      "sys",    "nvcc",   "driver",    "works",  "worker"};
  return std::ranges::find(words, lower(name)) != words.end();
}

void replace_each(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Replaces a folder and what it is of longer paths, and not the start of a longer name.
void replace_folder(std::string& text, const std::string& folder, std::string_view to) {
  for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at + 1)) {
    const std::size_t end = at + folder.size();
    const bool starts = at == 0 || !is_in_name(text[at - 1]);
    const bool ends = end == text.size() || !is_in_name(text[end]) ||
                      (text[end] == '.' && (end + 1 == text.size() || !is_in_name(text[end + 1])));
    if (starts && ends) text.replace(at, folder.size(), to);
  }
}

// Replaces a name wherever no letter touches it. A name of one letter is one only as a folder.
void replace_name(std::string& text, const std::string& name, std::string_view to) {
  if (name.empty()) return;
  const std::string wanted = lower(name);
  std::string searched = lower(text);
  for (std::size_t at = searched.find(wanted); at != std::string::npos; at = searched.find(wanted, at)) {
    const std::size_t end = at + wanted.size();
    const char before = at == 0 ? ' ' : searched[at - 1];
    const char after = end == searched.size() ? ' ' : searched[end];
    const bool digits = is_decimal(wanted.front());
    bool stands = !is_latin(before) && !is_latin(after) && !(digits && is_decimal(before)) &&
                  !(is_decimal(wanted.back()) && is_decimal(after));
    if (wanted.size() == 1) stands = before == '/' && (after == '/' || !is_in_name(after));
    if (!stands) {
      at = end;
      continue;
    }
    text.replace(at, wanted.size(), to);
    searched.replace(at, wanted.size(), to);
    at += to.size();
  }
}

// "/home/ada/x" and "/nfs/home/ada": whoever it is.
void replace_homes_of_others(std::string& text) {
  for (const std::string_view parent : {"/home/", "/Users/"}) {
    for (std::size_t at = text.find(parent); at != std::string::npos; at = text.find(parent, at + 1)) {
      const std::size_t begin = at + parent.size();
      std::size_t end = begin;
      while (end < text.size() && is_in_name(text[end])) ++end;
      if (end == begin) continue;
      if (at > 0 && is_in_name(text[at - 1])) {
        text.replace(begin, end - begin, "<user>");
      } else {
        text.replace(at, end - at, "~");
      }
    }
  }
}

}  // namespace

Names::Names(const Box& box) {
  add_home(box, "/root");
  if (const auto home = box.variable("HOME")) add_home(box, *home);
  for (const char* const variable : {"USER", "LOGNAME", "SUDO_USER", "USERNAME"}) {
    if (const auto user = box.variable(variable)) add_user(*user);
  }
  constexpr std::uint64_t first_of_people = 1000;
  constexpr std::uint64_t last_of_people = 60'000;
  for (const std::string& row : split_list(box.read("/etc/passwd").text.value_or(""), '\n')) {
    // name:x:uid:gid:full name:home:shell, where an empty part is none.
    const std::vector<std::string> cells = split_list(row, ':');
    if (cells.size() < 4) continue;
    const auto uid = Version::parse(cells[1]) ? Version::parse(cells[1]) : Version::parse(cells[2]);
    if (!uid) continue;
    const std::uint64_t number = uid->part(0);
    if ((number < first_of_people || number > last_of_people) && !(box.is_live() && number == ::geteuid()))
      continue;
    add_user(cells[0]);
    const auto home =
        std::ranges::find_if(cells, [](const std::string& cell) { return cell.starts_with('/'); });
    if (home != cells.end()) add_home(box, *home);
  }
  for (const auto& host : {box.variable("HOSTNAME"), box.variable("HOST"),
                           box.line("/proc/sys/kernel/hostname"), box.line("/etc/hostname")}) {
    if (host) add_host(*host);
  }
  const auto longest_first = [](std::vector<std::string>& names) {
    std::ranges::sort(names, [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() > b.size() : a < b;
    });
  };
  longest_first(homes_);
  longest_first(users_);
  longest_first(hosts_);
}

void Names::add_home(const Box& box, const std::string& home) {
  for (std::string folder : {home, box.resolve(home).value_or("")}) {
    while (folder.ends_with('/')) folder.pop_back();
    // No home, but a folder that everybody has.
    const bool shared = folder.find('/', 1) == std::string::npos &&
                        is_anyones(folder.substr(std::min<std::size_t>(1, folder.size())));
    if (folder.size() < 2 || !folder.starts_with('/') || (shared && folder != "/root")) continue;
    homes_.push_back(folder);
  }
}

void Names::add_user(const std::string& name) {
  if (!name.empty() && !is_anyones(name)) users_.push_back(name);
}

void Names::add_host(const std::string& name) {
  if (name.empty()) return;
  const std::size_t dot = name.find('.');
  const std::string domain = dot == std::string::npos ? "" : name.substr(dot + 1);
  if (dot != std::string::npos) hosts_.push_back(name);
  if (domain.find('.') != std::string::npos) hosts_.push_back(domain);
  const std::string first = name.substr(0, dot);
  if (!first.empty() && !is_anyones(first)) hosts_.push_back(first);
}

std::string Names::left_out(std::string text) const {
  for (const std::string& home : homes_) replace_folder(text, home, "~");
  replace_homes_of_others(text);
  for (const std::string& host : hosts_) replace_name(text, host, "<host>");
  for (const std::string& user : users_) replace_name(text, user, "<user>");
  // What is left of "turing.example.org" where the box calls itself "turing".
  for (std::size_t at = text.find("<host>."); at != std::string::npos; at = text.find("<host>.", at + 6)) {
    std::size_t end = at + 6;
    while (end + 1 < text.size() && text[end] == '.' && is_latin(text[end + 1])) {
      ++end;
      while (end < text.size() && (is_latin(text[end]) || is_decimal(text[end]) || text[end] == '-')) ++end;
    }
    text.erase(at + 6, end - at - 6);
  }
  replace_each(text, "<host>.<host>", "<host>");
  return text;
}

std::string without_uuids(std::string_view text) {
  constexpr std::size_t fewest_digits = 8;  // a driver takes a UUID's start for the whole
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    if (!rest.starts_with("GPU-") && !rest.starts_with("MIG-")) {
      out += text[at++];
      continue;
    }
    const std::string_view tail = rest.substr(rest.starts_with("MIG-GPU-") ? 8 : 4);
    const std::size_t length = std::min(tail.find_first_not_of("0123456789abcdefABCDEF-"), tail.size());
    out += rest.substr(0, 4);
    if (length >= fewest_digits) {
      out += "<uuid>";
      at += rest.size() - tail.size() + length;
    } else {
      at += 4;
    }
  }
  return out;
}

}  // namespace arb::probe
