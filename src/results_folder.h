// results/<date>-<gpus>-<what>/: written under a hidden name, renamed when whole, never changed afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "errors.h"
#include "measure.h"

namespace arb {

// How a run was made and how it ended: command.txt.
struct CommandRecord {
  std::string command;  // as typed
  std::string version;  // of arbench
  std::string started;  // "2026-11-30T12:59:42Z"
  bool interrupted = false;
  ExitCode exit_code = ExitCode::good;
  std::vector<std::string> remarks;  // one sentence each: what was left out, lost or wrong
};

// A folder that is being written. If it is never published its destructor removes it; if the program is
// killed it stays behind with a dot before its name, which no reader accepts.
class ResultsFolder {
 public:
  // Makes a temporary folder in `parent` (which is made where missing) and tries it, so that an unwritable
  // one is found before anything runs. Throws EnvironmentError.
  // Without rows there is no rows.csv: what is found has a file of its own (write()).
  explicit ResultsFolder(std::filesystem::path parent, bool with_rows = true);
  ResultsFolder(const ResultsFolder&) = delete;
  ResultsFolder& operator=(const ResultsFolder&) = delete;
  ResultsFolder(ResultsFolder&&) = delete;
  ResultsFolder& operator=(ResultsFolder&&) = delete;
  ~ResultsFolder();

  // Where the files are until they are published; workers log here.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  // Appends to rows.csv, on disk at once. Throws EnvironmentError.
  void add(const Row& row);
  // Appends to a file that write() began. Throws EnvironmentError.
  void append(const std::string& name, const std::string& text);
  // Writes a whole file (benchmark.json, environment.json, manifest.json). Throws EnvironmentError.
  void write(const std::string& name, const std::string& text);
  // Writes command.txt, removes empty logs and renames the folder to `name`, or to `name`-2, -3 ... where
  // that is taken; an interrupted run's name ends in -interrupted. Returns the final path. Throws
  // EnvironmentError.
  std::filesystem::path publish(const std::string& name, const CommandRecord& record);

 private:
  std::filesystem::path parent_;
  std::filesystem::path folder_;
  std::ofstream rows_file_;
  bool with_rows_;
  std::uint64_t rows_ = 0;
  bool published_ = false;
};

// A folder that is no whole run of ours; what() is one sentence.
class ForeignResults : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A published run, read back.
struct PublishedRun {
  std::filesystem::path folder;
  bool interrupted = false;
  std::vector<Row> rows;
};
// Throws ForeignResults when the folder is missing, hidden (half-written), lacks one of its five files, or
// holds rows that are cut, foreign or fewer than command.txt says.
PublishedRun read_results(const std::filesystem::path& folder);

// "2026-11-30T125942" of now, in UTC, as in names of folders; with `punctuated` "2026-11-30T12:59:42Z".
std::string utc_now(bool punctuated);

}  // namespace arb
