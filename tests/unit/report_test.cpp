// Console, CSV and JSON of one made-up run, compared with tests/golden; ARB_UPDATE_GOLDEN=1 writes them anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "double_backend.h"
#include "report_columns.h"
#include "report_console.h"
#include "report_csv.h"
#include "report_json.h"
#include "scratch.h"

namespace arb {
namespace {

using test::DoubleBackend;
using test::right_outcome;
using test::round_limits;

void compare_with_golden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(ARB_GOLDEN_DIR) / name;
  if (std::getenv("ARB_UPDATE_GOLDEN") != nullptr) test::write_file(path, text);
  EXPECT_EQ(text, test::read_file(path)) << "differs from " << path;
}

// Two sizes, two kernels in two toolkits and one NCCL; one cell is wrong, one failed, one is not checked.
std::vector<Row> measured_run() {
  const DoubleBackend backend(Evidence::measured);
  std::vector<Row> rows;
  double us = 4;
  for (const std::uint64_t bytes : {1024u, 1048576u}) {
    for (const char* variant :
         {"alpha 12.8-nvrtc", "alpha 13.0-nvrtc", "beta/symmetric 13.0-nvrtc", "library 2.28.9+cuda13.0"}) {
      const std::string text = variant;
      for (const Place place : {Place::out, Place::in}) {
        for (const Mode mode : {Mode::pipelined, Mode::isolated}) {
          Cell cell;
          cell.contender = text.substr(0, text.find(' '));
          const std::string made_by = text.substr(text.find(' ') + 1);
          (cell.contender == "library" ? cell.nccl : cell.bundle) = made_by;
          if (cell.contender == "beta/symmetric" && place == Place::in) continue;
          cell.ranks = 2;
          cell.bytes = bytes;
          cell.place = place;
          cell.mode = mode;
          cell.calls_per_graph = mode == Mode::isolated ? 1 : 20;
          us = us * 1.25 > 60 ? 4 : us * 1.25;
          Outcome outcome = right_outcome({us, us * 1.5, us * 1.25, us * 1.125});
          const bool first = bytes == 1024 && mode == Mode::pipelined && place == Place::out;
          if (first && made_by == "13.0-nvrtc" && cell.contender == "alpha") {
            outcome.correct = false;
            outcome.max_error = 0.25;
          }
          if (bytes == 1048576 && cell.contender == "library" && place == Place::in) {
            outcome = Outcome{};
            outcome.failure = "it said no";
          }
          if (bytes == 1048576 && cell.contender == "beta/symmetric") {
            cell.check = false;
            outcome.flags = {"throttled"};
          }
          outcome.ran = "8x256, \"quoted\"";
          rows.push_back(measure(backend, cell, outcome, {.gpus = 2, .launch = 0, .limits = round_limits()}));
        }
      }
    }
  }
  return rows;
}

std::vector<Row> emulated_run() {
  const DoubleBackend backend(Evidence::emulated);
  std::vector<Row> rows;
  for (const std::uint64_t bytes : {1024u, 2048u}) {
    for (const char* contender : {"alpha", "beta/symmetric"}) {
      Cell cell;
      cell.contender = contender;
      cell.ranks = 4;
      cell.dtype = Dtype::fp32;
      cell.bytes = bytes;
      cell.calls_per_graph = 3;
      Outcome outcome = right_outcome({});
      outcome.messages = 3;
      outcome.wire_bytes = bytes * 3;
      outcome.correct = !(bytes == 2048 && cell.contender == "alpha");
      rows.push_back(measure(backend, cell, outcome, {}));
    }
  }
  return rows;
}

std::string table_of(const std::vector<Row>& rows, TableShape shape) {
  std::ostringstream out;
  ConsoleTable table(out, std::move(shape));
  for (const Row& row : rows) table.add(row);
  table.finish();
  return out.str();
}

std::string csv_of(const std::vector<Row>& rows) {
  std::string text = csv_header() + "\n";
  for (const Row& row : rows) text += csv_line(row) + "\n";
  return text;
}

TEST(Report, ConsoleOfAMeasuredRun) {
  compare_with_golden("measured.txt", table_of(measured_run(), {.evidence = Evidence::measured,
                                                                .places = {Place::out, Place::in},
                                                                .modes = {Mode::pipelined, Mode::isolated},
                                                                .several_caches = false,
                                                                .several_launches = false}));
}

TEST(Report, ConsoleOfAnEmulatedRunShowsNoTimes) {
  const std::string text = table_of(emulated_run(), {.evidence = Evidence::emulated,
                                                     .places = {Place::out},
                                                     .modes = {Mode::pipelined},
                                                     .several_caches = false,
                                                     .several_launches = false});
  compare_with_golden("emulated.txt", text);
  for (const char* word : {"(us)", "GB/s", "time", "floor"})
    EXPECT_EQ(text.find(word), std::string::npos) << word;
}

TEST(Report, CsvOfTheSameRuns) {
  compare_with_golden("measured.csv", csv_of(measured_run()));
  compare_with_golden("emulated.csv", csv_of(emulated_run()));
}

TEST(Report, JsonOfTheSameRuns) {
  compare_with_golden("measured.json", json_document(measured_run()));
  compare_with_golden("emulated.json", json_document(emulated_run()));
}

TEST(Report, ColumnsAreThoseOfMeasurementMd) {
  EXPECT_EQ(
      csv_header(),
      "evidence,contender,toolkit,compiler,nccl,world,dtype,ranks,gpus,bytes,place,mode,cache,launch,calls_"
      "per_graph,"
      "samples,p50_us,p95_us,p99_us,min_us,algbw_gbps,busbw_gbps,floor_us,floor_ratio,messages,wire_bytes,"
      "wire_bytes_theory,correct,max_error,output_hash,ran,flags");
}

TEST(Report, CsvReadsBackAsTheSameRows) {
  for (const std::vector<Row>& rows : {measured_run(), emulated_run()})
    EXPECT_EQ(RowReader::read(csv_of(rows)), rows);
}

TEST(Report, JsonHoldsTheSameFiguresAsCsv) {
  const std::vector<Row> rows = measured_run();
  const auto json = nlohmann::json::parse(json_document(rows));
  ASSERT_EQ(json["rows"].size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(json["rows"][i].contains("p50_us"), rows[i].timed());
    if (rows[i].timed()) {
      EXPECT_EQ(json["rows"][i]["p50_us"].get<double>(), *rows[i]->p50_us);
    }
  }
}

// A file that a crash or a full disk cut: refused, or (cut between two lines) shorter, which command.txt
// tells.
TEST(Report, NoCutOfACsvReadsAsTheWhole) {
  const std::vector<Row> rows = measured_run();
  const std::string whole = csv_of(rows);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    try {
      EXPECT_LT(RowReader::read(whole.substr(0, length)).size(), rows.size()) << length;
      EXPECT_EQ(whole[length - 1], '\n') << length;
    } catch (const CsvError&) {
    }
  }
}

TEST(Report, ACsvThatContradictsItselfIsRefused) {
  const std::string good = csv_of(emulated_run());
  EXPECT_NO_THROW(RowReader::read(good));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  // One kind of evidence for another, in either direction; times in an emulated row; values of no column.
  EXPECT_THROW(RowReader::read(with("\nemulated,", "\nmeasured,")), CsvError);
  EXPECT_THROW(RowReader::read(with(",emulated,fp32", ",threads,fp32")), CsvError);
  EXPECT_THROW(RowReader::read(with(",3,,,,,,,,,,3,", ",3,5,1,2,3,1,1,1,,,3,")), CsvError);
  EXPECT_THROW(RowReader::read(with("fp32", "fp64")), CsvError);
  EXPECT_THROW(RowReader::read(with(",yes,", ",maybe,")), CsvError);
  EXPECT_THROW(RowReader::read(with("evidence,", "proof,")), CsvError);
  EXPECT_THROW(RowReader::read(with(",yes,", ",yes,,")), CsvError);
  const std::string measured = csv_of(measured_run());
  std::string turned = measured;
  turned.replace(turned.find("\nmeasured,"), 10, "\nemulated,");
  EXPECT_THROW(RowReader::read(turned), CsvError);
}

}  // namespace
}  // namespace arb
