#include "results_folder.h"

#include <gtest/gtest.h>

#include <functional>

#include "double_backend.h"
#include "report_csv.h"
#include "scratch.h"

namespace arb {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using test::Scratch;
using test::write_file;

Row some_row(std::uint64_t bytes) {
  Cell cell;
  cell.contender = "alpha";
  cell.ranks = 2;
  cell.bytes = bytes;
  return measure(test::DoubleBackend(Evidence::emulated), cell, test::right_outcome({}), {});
}

CommandRecord record() {
  return {.command = "arbench run",
          .version = "0",
          .started = utc_now(true),
          .interrupted = false,
          .exit_code = ExitCode::good,
          .remarks = {"one\nremark"}};
}

fs::path publish(const fs::path& parent, int rows, bool interrupted = false) {
  ResultsFolder folder(parent);
  for (int i = 1; i <= rows; ++i) folder.add(some_row(static_cast<std::uint64_t>(i) * 2));
  for (const char* name : {"benchmark.json", "environment.json", "manifest.json"}) folder.write(name, "{}\n");
  CommandRecord command = record();
  command.interrupted = interrupted;
  return folder.publish("name", command);
}

std::string refusal(const fs::path& folder) {
  try {
    read_results(folder);
  } catch (const ForeignResults& error) {
    return error.what();
  }
  return "";
}

TEST(ResultsFolder, IsInvisibleUntilItIsWhole) {
  const Scratch scratch;
  const fs::path parent = scratch.path() / "a" / "results";
  {
    ResultsFolder folder(parent);
    folder.add(some_row(2));
    EXPECT_TRUE(folder.folder().filename().string().starts_with('.'));
    EXPECT_NE(refusal(folder.folder()), "");
  }
  EXPECT_TRUE(fs::is_empty(parent)) << "an unpublished folder is removed";
}

TEST(ResultsFolder, ReadsBackWhatWasPublished) {
  const Scratch scratch;
  const PublishedRun run = read_results(publish(scratch.path(), 3));
  ASSERT_EQ(run.rows.size(), 3u);
  EXPECT_EQ(run.rows[2], some_row(6));
  EXPECT_FALSE(run.interrupted);
  EXPECT_NE(read_file(run.folder / "command.txt").find("remark: one remark\n"), std::string::npos);
}

TEST(ResultsFolder, NeverReplacesAFolder) {
  const Scratch scratch;
  fs::create_directory(scratch.path() / "name");  // an empty folder is somebody's too
  EXPECT_EQ(publish(scratch.path(), 1).filename(), "name-2");
  EXPECT_EQ(publish(scratch.path(), 2).filename(), "name-3");
  EXPECT_EQ(read_results(scratch.path() / "name-2").rows.size(), 1u);
  EXPECT_EQ(read_results(scratch.path() / "name-3").rows.size(), 2u);
}

TEST(ResultsFolder, AnInterruptedRunSaysSoInItsName) {
  const Scratch scratch;
  const fs::path folder = publish(scratch.path(), 1, true);
  EXPECT_EQ(folder.filename(), "name-interrupted");
  EXPECT_TRUE(read_results(folder).interrupted);
}

TEST(ResultsFolder, AnUnwritablePlaceIsFoundAtOnce) {
  const Scratch scratch;
  write_file(scratch.path() / "file", "");
  EXPECT_THROW(ResultsFolder(scratch.path() / "file" / "results"), EnvironmentError);
  EXPECT_THROW(ResultsFolder("/proc/results"), EnvironmentError);
}

TEST(ResultsFolder, ForeignAndCutFoldersAreRefused) {
  const Scratch scratch;
  EXPECT_NE(refusal(scratch.path() / "nowhere").find("no such folder"), std::string::npos);
  EXPECT_NE(refusal(scratch.path()).find("is missing"), std::string::npos);
  const fs::path good = publish(scratch.path(), 3);
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(refusal(good / ""), "") << "a slash at the end is the same folder";

  const auto broken = [&](const std::string& file, const std::function<std::string(std::string)>& change) {
    const fs::path copy = scratch.path() / "copy";
    fs::remove_all(copy);
    fs::copy(good, copy);
    write_file(copy / file, change(read_file(copy / file)));
    return refusal(copy);
  };
  EXPECT_NE(
      broken("rows.csv", [](const std::string& text) { return text.substr(0, text.size() - 5); }).find("cut"),
      std::string::npos);
  EXPECT_NE(
      broken("rows.csv",
             [](const std::string& text) { return text.substr(0, text.rfind('\n', text.size() - 2) + 1); })
          .find("2 rows"),
      std::string::npos);
  EXPECT_NE(broken("rows.csv", [](const std::string&) { return std::string("a,b\n1,2\n"); }).find("header"),
            std::string::npos);
  EXPECT_NE(broken("command.txt", [](const std::string& text) { return text.substr(0, 60); }).find("cut"),
            std::string::npos);
  EXPECT_NE(
      broken("command.txt", [](const std::string&) { return std::string("make all\n"); }).find("not ours"),
      std::string::npos);
  for (const char* file :
       {"rows.csv", "benchmark.json", "environment.json", "manifest.json", "command.txt"}) {
    const fs::path copy = scratch.path() / "copy";
    fs::remove_all(copy);
    fs::copy(good, copy);
    fs::remove(copy / file);
    EXPECT_NE(refusal(copy).find(std::string(file) + " is missing"), std::string::npos);
  }
}

}  // namespace
}  // namespace arb
