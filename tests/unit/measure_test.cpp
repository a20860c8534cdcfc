#include "measure.h"

#include <gtest/gtest.h>

#include <limits>
#include <type_traits>

#include "catalog.h"
#include "double_backend.h"

namespace arb {
namespace {

using test::DoubleBackend;
using test::right_outcome;
using test::round_limits;

Cell cell_of(std::uint64_t bytes, std::uint32_t ranks = 4) {
  Cell cell;
  cell.contender = "alpha";
  cell.bundle = "13.0-nvrtc";
  cell.ranks = ranks;
  cell.bytes = bytes;
  cell.calls_per_graph = 20;
  cell.samples = 3;
  return cell;
}

// Nothing but a backend (measure) and a published file (RowReader) makes a row, and nothing changes one.
static_assert(!std::is_default_constructible_v<Row>);
static_assert(!std::is_constructible_v<Row, RowFields>);
static_assert(!std::is_convertible_v<RowFields, Row>);
static_assert(std::is_same_v<decltype(std::declval<Row&>().get()), const RowFields&>);
static_assert(std::is_same_v<decltype(std::declval<Row&>().operator->()), const RowFields*>);

TEST(Measure, EvidenceIsTheBackends) {
  for (const Evidence evidence : {Evidence::measured, Evidence::modelled, Evidence::emulated}) {
    const DoubleBackend backend(evidence);
    const Outcome outcome =
        right_outcome(evidence == Evidence::emulated ? std::vector<double>{} : std::vector<double>{2, 3});
    const Row row = measure(backend, cell_of(1024), outcome, {});
    EXPECT_EQ(row->evidence, evidence);
    EXPECT_EQ(row.timed(), evidence != Evidence::emulated);
  }
}

TEST(Measure, TimesFromAnEmulatorAreRefused) {
  const DoubleBackend backend(Evidence::emulated);
  EXPECT_THROW(measure(backend, cell_of(1024), right_outcome({2, 3}), {}), InvalidRow);
}

TEST(Measure, AMeasuredCellWithoutSamplesIsRefused) {
  const DoubleBackend backend(Evidence::measured);
  EXPECT_THROW(measure(backend, cell_of(1024), right_outcome({}), {}), InvalidRow);
  EXPECT_THROW(measure(backend, cell_of(1024), right_outcome({1, -1}), {}), InvalidRow);
  EXPECT_THROW(
      measure(backend, cell_of(1024), right_outcome({1, std::numeric_limits<double>::infinity()}), {}),
      InvalidRow);
}

TEST(Measure, BandwidthsAreDecimalAndBusIsWhatLinksCarry) {
  const DoubleBackend backend(Evidence::measured);
  const Row row = measure(backend, cell_of(1'000'000, 4), right_outcome({10, 10, 10}), {});
  EXPECT_DOUBLE_EQ(*row->algbw_gbps, 100);
  EXPECT_DOUBLE_EQ(*row->busbw_gbps, 150);
  EXPECT_DOUBLE_EQ(bytes_to_send(1'000'000, 2), 1'000'000);
  EXPECT_DOUBLE_EQ(bytes_to_send(1'000'000, 8), 1'750'000);
  EXPECT_EQ(row->samples, 3u);
}

TEST(Measure, FloorIsNodePlusFlagPlusBytes) {
  const DoubleBackend backend(Evidence::measured);
  Cell cell = cell_of(1'000'000, 4);
  // 0.5 + 5 / 20 + 0.25 + 1.5 MB / 100 GB/s
  EXPECT_DOUBLE_EQ(floor_us(cell, round_limits()), 16);
  cell.calls_per_graph = 5;
  EXPECT_DOUBLE_EQ(floor_us(cell, round_limits()), 16.75);
  cell.mode = Mode::isolated;
  EXPECT_DOUBLE_EQ(floor_us(cell, round_limits()), 17.25);
  const Row row =
      measure(backend, cell, right_outcome({34.5}), {.gpus = 4, .launch = 2, .limits = round_limits()});
  EXPECT_DOUBLE_EQ(*row->floor_us, 17.25);
  EXPECT_DOUBLE_EQ(*row->floor_ratio, 2);
  EXPECT_EQ(row->gpus, 4u);
  EXPECT_EQ(row->launch, 2u);
}

TEST(Measure, AWrongCellHasNoFigures) {
  const DoubleBackend backend(Evidence::measured);
  Outcome outcome = right_outcome({5, 6});
  outcome.correct = false;
  outcome.max_error = 0.5;
  const Row row =
      measure(backend, cell_of(1024), outcome, {.gpus = 4, .launch = 0, .limits = round_limits()});
  EXPECT_EQ(row->correct, false);
  EXPECT_EQ(row->max_error, 0.5);
  EXPECT_FALSE(row.timed());
  EXPECT_FALSE(row->samples || row->algbw_gbps || row->busbw_gbps || row->floor_us || row->floor_ratio);

  outcome.max_error = std::numeric_limits<double>::infinity();
  const Row no_number = measure(backend, cell_of(1024), outcome, {});
  EXPECT_FALSE(no_number->max_error);
  EXPECT_EQ(no_number->flags, "error_not_finite");
}

// A hang ends before anything is compared: wrong, checked or not, with no error to speak of.
TEST(Measure, AHangIsWrongWithoutAnError) {
  Outcome outcome;
  outcome.wrong = "rank 0 waited for rank 1 in phase publish";
  Cell cell = cell_of(1024);
  for (const bool check : {true, false}) {
    cell.check = check;
    const Row row = measure(DoubleBackend(Evidence::measured), cell, outcome, {});
    EXPECT_EQ(row->correct, false);
    EXPECT_FALSE(row->max_error || row.timed());
  }
}

TEST(Measure, RanksThatShareAGpuHaveNoFigures) {
  Outcome outcome = right_outcome({5, 6});
  outcome.flags = {"oversubscribed"};
  const Row row = measure(DoubleBackend(Evidence::measured), cell_of(1024), outcome, {});
  EXPECT_EQ(row->correct, true);
  EXPECT_FALSE(row.timed());
}

TEST(Measure, ACellThatDidNotRunSaysOnlyThat) {
  const DoubleBackend backend(Evidence::measured);
  Outcome outcome;
  outcome.failure = "too many blocks";
  outcome.flags = {"lost"};
  const Row row = measure(backend, cell_of(1024), outcome, {});
  EXPECT_EQ(row->flags, "lost failed");
  EXPECT_FALSE(row->correct || row->max_error || row.timed() || row->wire_bytes_theory);
}

TEST(Measure, UncheckedIsNeitherRightNorWrong) {
  const DoubleBackend backend(Evidence::measured);
  Cell cell = cell_of(1024);
  cell.check = false;
  const Row row = measure(backend, cell, right_outcome({5}), {});
  EXPECT_FALSE(row->correct || row->max_error);
  EXPECT_EQ(row->output_hash, "");
  EXPECT_EQ(row->flags, "unchecked");
  EXPECT_TRUE(row.timed());
}

TEST(Measure, VariantsHaveTheirOwnColumns) {
  const DoubleBackend gpus(Evidence::measured);
  const Row kernel = measure(gpus, cell_of(1024), right_outcome({5}), {});
  EXPECT_EQ(kernel->toolkit, "13.0");
  EXPECT_EQ(kernel->compiler, "nvrtc");
  EXPECT_EQ(kernel->nccl, "");
  Cell nccl = cell_of(1024);
  nccl.bundle = "";
  nccl.nccl = "2.28.9+cuda13.0";
  const Row library = measure(gpus, nccl, right_outcome({5}), {});
  EXPECT_EQ(library->toolkit, "");
  EXPECT_EQ(library->compiler, "");
  EXPECT_EQ(library->nccl, "2.28.9+cuda13.0");
  const Row emulated = measure(DoubleBackend(Evidence::emulated), cell_of(1024), right_outcome({}),
                               {.gpus = 2, .launch = 0, .limits = {}});
  EXPECT_EQ(emulated->compiler, "g++");
  EXPECT_FALSE(emulated->gpus);
}

TEST(Measure, NamesOfCellsHoldNoAdaptiveNumbers) {
  Cell cell = cell_of(1024, 2);
  EXPECT_EQ(cell_name(cell), "alpha/13.0-nvrtc/bf16/n2/1024/out/pipelined/warm");
  Cell other = cell;
  other.samples = 99;
  other.warmups = 7;
  other.calls_per_graph = 3;
  other.seed = 5;
  EXPECT_EQ(cell_name(other), cell_name(cell));
  cell.bundle = "";
  EXPECT_EQ(variant_name(cell), "g++");
}

TEST(Measure, TheoryOfTrafficStandsInEveryRowThatHasOne) {
  for (const CatalogRow& contender : catalog()) {
    Cell cell = cell_of(4096);
    cell.contender = contender.contender;
    const Row row = measure(DoubleBackend(Evidence::emulated), cell, right_outcome({}), {});
    EXPECT_EQ(row->wire_bytes_theory,
              contender.wire_bytes_theory({cell.ranks, cell.island_ranks}, cell.bytes))
        << contender.contender;
  }
}

}  // namespace
}  // namespace arb
