#include "results_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "report_csv.h"
#include "text.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view record_title = "arbench results 1";
constexpr std::array required_files = {"rows.csv", "benchmark.json", "environment.json", "manifest.json",
                                       "command.txt"};

EnvironmentError cannot_write(const fs::path& path, const std::string& why) {
  return EnvironmentError(
      fmt::format("cannot write results to {}: {}; --results DIR takes another folder", path.string(), why));
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ForeignResults(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  return {std::istreambuf_iterator<char>(file), {}};
}

// The value after "key: " in a record, or empty.
std::string record_value(const std::string& text, const std::string& key) {
  const std::string start = "\n" + key + ": ";
  const std::size_t at = text.find(start);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + start.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

std::string utc_now(bool punctuated) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return punctuated ? fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))
                    : fmt::format("{:%Y-%m-%dT%H%M%S}", fmt::gmtime(now));
}

ResultsFolder::ResultsFolder(fs::path parent, bool with_rows)
    : parent_(std::move(parent)), with_rows_(with_rows) {
  std::error_code error;
  fs::create_directories(parent_, error);
  if (error) throw cannot_write(parent_, error.message());
  std::string name = (parent_ / ".arbench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw cannot_write(parent_, std::strerror(errno));
  folder_ = name;
  fs::permissions(folder_, fs::perms(0755), error);
  if (!with_rows) return;
  rows_file_.open(folder_ / "rows.csv", std::ios::binary);
  rows_file_ << csv_header() << '\n' << std::flush;
  if (!rows_file_) {
    const std::string why = std::strerror(errno);
    fs::remove_all(folder_, error);
    throw cannot_write(parent_, why);
  }
}

ResultsFolder::~ResultsFolder() {
  if (published_) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void ResultsFolder::add(const Row& row) {
  rows_file_ << csv_line(row) << '\n' << std::flush;
  if (!rows_file_) throw cannot_write(folder_ / "rows.csv", std::strerror(errno));
  ++rows_;
}

void ResultsFolder::append(const std::string& name, const std::string& text) {
  std::ofstream file(folder_ / name, std::ios::binary | std::ios::app);
  file << text << std::flush;
  if (!file) throw cannot_write(folder_ / name, std::strerror(errno));
}

void ResultsFolder::write(const std::string& name, const std::string& text) {
  std::ofstream file(folder_ / name, std::ios::binary);
  file << text << std::flush;
  if (!file) throw cannot_write(folder_ / name, std::strerror(errno));
}

fs::path ResultsFolder::publish(const std::string& name, const CommandRecord& record) {
  rows_file_.close();
  std::string text =
      fmt::format("{}\ncommand: {}\nversion: {}\nstarted: {}\nended: {}\nstatus: {}\nexit_code: {}\n",
                  record_title, one_line(record.command, 4000), record.version, record.started, utc_now(true),
                  record.interrupted ? "interrupted" : "complete", status_of(record.exit_code));
  if (with_rows_) text += fmt::format("rows: {}\n", rows_);
  for (const std::string& remark : record.remarks)
    text += fmt::format("remark: {}\n", one_line(remark, 2000));
  write("command.txt", text);
  std::error_code ignored;
  std::vector<fs::path> empty;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    if (entry.path().extension() == ".log" && entry.file_size(ignored) == 0) empty.push_back(entry.path());
  }
  for (const fs::path& path : empty) fs::remove(path, ignored);

  const std::string full_name = record.interrupted ? name + "-interrupted" : name;
  constexpr int most_runs_a_second = 1000;
  for (int attempt = 1; attempt <= most_runs_a_second; ++attempt) {
    fs::path target = parent_ / (attempt == 1 ? full_name : fmt::format("{}-{}", full_name, attempt));
    // Never replaces what is there, not even an empty folder.
    if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) {
      published_ = true;
      folder_ = target;
      return target;
    }
    if (errno == EEXIST) continue;
    // File systems without RENAME_NOREPLACE: rename() at least replaces no folder that holds anything.
    if (errno == EINVAL && !fs::exists(target)) {
      std::error_code error;
      fs::rename(folder_, target, error);
      if (!error) {
        published_ = true;
        folder_ = target;
        return target;
      }
    }
    throw cannot_write(target, std::strerror(errno));
  }
  throw cannot_write(parent_ / full_name, "that name and its next ones are taken");
}

PublishedRun read_results(const fs::path& folder) {
  std::error_code error;
  const auto refuse = [&](const std::string& why) {
    return ForeignResults(fmt::format("{} is no finished run: {}; give a folder that `arbench run` published",
                                      folder.string(), why));
  };
  if (!fs::is_directory(folder, error)) throw refuse("there is no such folder");
  const fs::path name = folder.filename().empty() ? folder.parent_path().filename() : folder.filename();
  if (name != "." && name != ".." && name.string().starts_with('.')) {
    throw refuse("its name starts with a dot, so it was never finished");
  }
  for (const char* file : required_files) {
    if (!fs::is_regular_file(folder / file, error)) throw refuse(fmt::format("{} is missing", file));
  }
  const std::string record = read_file(folder / "command.txt");
  if (!record.starts_with(record_title)) throw refuse("command.txt is not ours");
  const std::string status = record_value(record, "status");
  if (status != "complete" && status != "interrupted") throw refuse("command.txt is cut");
  const std::string count_text = record_value(record, "rows");
  std::uint64_t count = 0;
  const auto [end, parse_error] =
      std::from_chars(count_text.data(), count_text.data() + count_text.size(), count);
  if (count_text.empty() || parse_error != std::errc{} || end != count_text.data() + count_text.size()) {
    throw refuse("command.txt is cut");
  }
  PublishedRun run{.folder = folder, .interrupted = status == "interrupted", .rows = {}};
  try {
    run.rows = RowReader::read(read_file(folder / "rows.csv"));
  } catch (const CsvError& csv_error) {
    throw refuse(csv_error.what());
  }
  if (run.rows.size() != count)
    throw refuse(fmt::format("rows.csv has {} rows and command.txt says {}", run.rows.size(), count));
  return run;
}

}  // namespace arb
