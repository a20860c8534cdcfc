// Tuning on a fake worker whose costs are known, and runs that use what came out: files, sentences, exit statuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "catalog.h"
#include "command.h"
#include "fake_box.h"
#include "results_folder.h"
#include "tuning.h"

namespace arb {
namespace {

namespace fs = std::filesystem;

class FakeTune : public FakeBox {
 protected:
  [[nodiscard]] fs::path output_path() const { return scratch_.path() / "tuning.json"; }

  [[nodiscard]] RunOptions run_options(const std::string& behaviour) const {
    RunOptions options = box_options(behaviour);
    options.min_bytes = 1024;
    options.max_bytes = 4096;
    options.toolkits = {"13.0"};
    options.command = "arbench tune";
    options.nccl_paths = {nccl_path().string()};
    return options;
  }
  [[nodiscard]] TuneOptions options(const std::string& behaviour) const {
    return {.run = run_options(behaviour), .launches = 2, .output = output_path()};
  }
  // Kernels that can be chosen; the fake machine runs short names faster.
  static std::vector<std::string> choosable() {
    std::vector<std::string> names;
    for (const CatalogRow& row : catalog()) {
      if (can_be_chosen(row, 0)) names.emplace_back(row.contender);
    }
    return names;
  }
  [[nodiscard]] Result tune(const TuneOptions& options) const {
    return say([&](const Terminal& terminal, const Interrupt& interrupt) {
      return tune_verb(options, terminal, interrupt);
    });
  }
  [[nodiscard]] Result run(const RunOptions& options) const {
    return say([&](const Terminal& terminal, const Interrupt& interrupt) {
      return run_verb(options, terminal, interrupt);
    });
  }
};

TEST_F(FakeTune, FindsTheBestAndARunUsesIt) {
  const Result tuned = tune(options("good"));
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_TRUE(has(tuned.folder.filename().string(), "-2xPretended_GPU-tune")) << tuned.folder;
  EXPECT_EQ(test::read_file(tuned.folder / "tuning.json"), test::read_file(output_path()));
  EXPECT_TRUE(has(tuned.out, "crossovers")) << tuned.out;
  EXPECT_TRUE(has(tuned.err, "use it: arbench run --tuning")) << tuned.err;
  const Tuning tuning = tuning_from_json("x", test::read_file(output_path()));
  ASSERT_EQ(tuning.sizes.size(), 3u);
  const auto names = choosable();
  const std::string shortest = *std::ranges::min_element(names, {}, &std::string::size);
  for (const TunedSize& entry : tuning.sizes) {
    EXPECT_EQ(entry.contender, shortest);
    EXPECT_EQ(entry.shape.threads, 128u) << "the planted best";
    EXPECT_EQ(entry.launches, 2u);
  }
  EXPECT_EQ(tuning.machine.gpus.front(), "NVIDIA Pretended GPU");
  for (const auto& entry : fs::directory_iterator(scratch_.path())) {
    EXPECT_FALSE(has(entry.path().filename().string(), "tuning.json.")) << "a temporary file stayed behind";
  }

  fs::remove_all(results_path());
  RunOptions asked = run_options("good");
  const std::string chooser(first_of(Source::chosen).contender);
  asked.contenders = {chooser};
  asked.modes = {"pipelined"};
  asked.tuning = output_path();
  const Result used = run(asked);
  EXPECT_EQ(used.status, 0) << used.err;
  const PublishedRun published = read_results(used.folder);
  ASSERT_EQ(published.rows.size(), 3u);
  for (std::size_t i = 0; i < published.rows.size(); ++i) {
    const TunedSize& entry = tuning.sizes[i];
    EXPECT_EQ(published.rows[i]->contender, chooser);
    EXPECT_EQ(published.rows[i]->ran, entry.contender + " " + std::to_string(entry.shape.blocks) + "x128");
  }

  // On another machine it is refused: here with one that is emulated.
  fs::remove_all(results_path());
  asked.emulate = true;
  asked.nccl_paths = {};
  const Result elsewhere = run(asked);
  EXPECT_EQ(elsewhere.status, 5);
  EXPECT_TRUE(has(elsewhere.err, "tuned on 2x NVIDIA Pretended GPU, and this is an emulated machine"))
      << elsewhere.err;
  EXPECT_TRUE(elsewhere.folder.empty());
}

TEST_F(FakeTune, ATuningThatIsNotWholeIsRefused) {
  RunOptions asked = run_options("good");
  asked.tuning = output_path();
  const Result missing = run(asked);
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(has(missing.err, "no such file")) << missing.err;
  test::write_file(output_path(), R"({"schema": "arbench tuning", "version": 1, "mach)");
  const Result cut = run(asked);
  EXPECT_EQ(cut.status, 5);
  EXPECT_TRUE(has(cut.err, "cut short")) << cut.err;
  EXPECT_EQ(test::lines_of(cut.err).size(), 1u) << cut.err;
}

TEST_F(FakeTune, FewerThanTwoGpusIsOneSentence) {
  for (const char* behaviour : {"no_gpu", "one_gpu", "no_p2p"}) {
    const Result result = tune(options(behaviour));
    EXPECT_EQ(result.status, 5);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(test::lines_of(result.err).size(), 1u) << result.err;
    EXPECT_TRUE(has(result.err, "2 GPUs or more")) << result.err;
    EXPECT_FALSE(fs::exists(output_path()));
  }
}

TEST_F(FakeTune, WrongDataIsNeverTuned) {
  const Result result = tune(options("wrong_data"));  // at 2K
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_TRUE(has(result.err, "is WRONG")) << result.err;
  EXPECT_TRUE(has(result.err, "no contender ran right at 2K")) << result.err;
  EXPECT_TRUE(has(test::read_file(result.folder / "command.txt"), "exit_code: 2"));
}

TEST_F(FakeTune, ALostWorkerCostsItsContender) {
  const auto begin = std::chrono::steady_clock::now();
  TuneOptions asked = options("crash");  // at 2K
  asked.run.contenders = {choosable().front()};
  const Result result = tune(asked);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_TRUE(has(result.err, "signal 11")) << result.err;
}

TEST_F(FakeTune, CtrlCLeavesNothing) {
  TuneOptions asked = options("hang");
  asked.run.deadline_s = 60;
  EXPECT_EQ(interrupted([&] { return tune(asked).status; }, [&] { return worker_hangs(); }), 5);
  EXPECT_TRUE(fs::is_empty(results_path()));
  EXPECT_FALSE(fs::exists(output_path()));
}

TEST_F(FakeTune, WhatCannotBeAskedForIsAUsageError) {
  const auto status_with = [&](auto change) {
    TuneOptions asked = options("good");
    change(asked);
    return tune(asked).status;
  };
  EXPECT_EQ(status_with([](TuneOptions& asked) { asked.launches = 0; }), 1);
  EXPECT_EQ(status_with([](TuneOptions& asked) { asked.run.deadline_s = 0; }), 1);
  EXPECT_EQ(status_with([](TuneOptions& asked) { asked.run.dtypes = {"all"}; }), 1);
  EXPECT_EQ(status_with([](TuneOptions& asked) { asked.run.contenders = {"no such"}; }), 1);
  for (const CatalogRow& row : catalog()) {
    if (row.source == Source::nccl || can_be_chosen(row, 1)) continue;
    EXPECT_EQ(status_with([&](TuneOptions& asked) { asked.run.contenders = {std::string(row.contender)}; }),
              1)
        << row.contender;
  }
  TuneOptions unwritable = options("good");
  unwritable.output = scratch_.path() / "nowhere" / "tuning.json";
  EXPECT_EQ(tune(unwritable).status, 5);
}

}  // namespace
}  // namespace arb
