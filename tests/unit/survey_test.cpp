// The survey of a machine's limits: its plan, its tables, and the illnesses of machines that exist in numbers only.
#include "survey.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "report_survey.h"
#include "scratch.h"

namespace arb {
namespace {

constexpr Engine engines[] = {Engine::sm_store, Engine::sm_load, Engine::copy_engine};

void compare_with_golden(const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(ARB_GOLDEN_DIR) / name;
  if (std::getenv("ARB_UPDATE_GOLDEN") != nullptr) test::write_file(path, text);
  EXPECT_EQ(text, test::read_file(path)) << "differs from " << path;
}

// 8 GPUs on two sockets, PCIe, in good health: what others reported of SM120 boxes.
double healthy(const LimitTest& test) {
  switch (test.kind) {
    case LimitKind::nodes:
      return test.edge == GraphEdge::plain ? 4 + 0.5 * test.count : 3.75 + 0.375 * test.count;
    case LimitKind::local_copy:
      return 1 + static_cast<double>(test.bytes) / 1e6;
    case LimitKind::flag:
      return test.from / 4 == test.to / 4 ? 0.65 : 1.25;
    case LimitKind::barrier:
      return 2.5;
    case LimitKind::move:
      break;
  }
  const double reached = test.engine == Engine::copy_engine ? 1 : std::min(1.0, 0.4 + test.blocks / 64.0);
  if (test.traffic == Traffic::all_pairs) return 22 * reached;
  if (test.traffic == Traffic::next) return 52 * reached;
  // Across sockets 36 to 51, inside one 53 to 56.
  const double spread = (test.from * 3 + test.to * 5) % 8 / 7.0;
  return (test.from / 4 == test.to / 4 ? 53 + 3 * spread : 36 + 15 * spread) * reached;
}

Survey survey_of(std::uint32_t ranks, const std::function<double(const LimitTest&)>& machine) {
  Survey survey;
  survey.ranks = ranks;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) survey.numa_nodes.push_back(static_cast<int>(rank / 4));
  for (const LimitTest& test : survey_plan(ranks)) survey.figures.push_back({test, machine(test)});
  return survey;
}

std::vector<Illness> illnesses(const Survey& survey) {
  std::vector<Illness> found;
  for (const Warning& warning : warnings_of(survey)) found.push_back(warning.illness);
  return found;
}

TEST(SurveyPlan, HasEveryDirectedPairOfEveryEngineAtEveryBlockCountOnce) {
  const std::vector<LimitTest> plan = survey_plan(3);
  for (const LimitTest& test : plan) EXPECT_EQ(std::ranges::count(plan, test), 1) << text_of(test);
  const auto has = [&](const LimitTest& test) { return std::ranges::find(plan, test) != plan.end(); };
  for (std::uint32_t from = 0; from < 3; ++from) {
    for (std::uint32_t to = 0; to < 3; ++to) {
      EXPECT_EQ(has(flag_test(from, to)), from != to);
      for (const std::uint32_t blocks : survey_blocks) {
        for (const Engine engine : engines)
          EXPECT_EQ(has(move_test(engine, Traffic::pair, blocks, from, to)), from != to);
      }
    }
  }
  for (const Engine engine : engines) {
    EXPECT_TRUE(has(move_test(engine, Traffic::next, many_blocks)));
    // The test that a run's floors rest on.
    EXPECT_TRUE(has(move_test(engine, Traffic::all_pairs, many_blocks)));
  }
}

TEST(Survey, NodesComeFromBothChains) {
  const Survey survey = survey_of(2, healthy);
  const auto plain = node_cost(survey, GraphEdge::plain);
  ASSERT_TRUE(plain);
  EXPECT_DOUBLE_EQ(plain->us, 0.5);
  EXPECT_DOUBLE_EQ(plain->us_k20, 0.7);
  EXPECT_NEAR(plain->start_us, 4, 1e-9);
  EXPECT_FALSE(node_cost(Survey{.ranks = 2}, GraphEdge::plain));
}

TEST(Survey, BestBlocksAreTheFewestThatReachTheMost) {
  const Survey survey = survey_of(4, healthy);
  EXPECT_EQ(survey.best_blocks(Engine::sm_store), 64u);
  EXPECT_EQ(survey.best_blocks(Engine::copy_engine), 0u);
  EXPECT_EQ(survey.pairs_gbps(Engine::sm_load, 64).size(), 12u);
}

TEST(Illnesses, AHealthyBoxHasNone) {
  for (const std::uint32_t ranks : {2u, 4u, 8u}) {
    for (const Warning& warning : warnings_of(survey_of(ranks, healthy))) ADD_FAILURE() << warning.sentence;
  }
  // NVLink: all pairs at once lose nothing, loads a little.
  const Survey nvlink = survey_of(2, [](const LimitTest& test) {
    if (test.kind != LimitKind::move) return healthy(test);
    return test.engine == Engine::copy_engine ? 389.0 : test.engine == Engine::sm_store ? 366.0 : 335.0;
  });
  EXPECT_TRUE(warnings_of(nvlink).empty());
  EXPECT_TRUE(warnings_of(Survey{.ranks = 8}).empty()) << "nothing was measured";
}

TEST(Illnesses, LoadsThatAreStagedAreFound) {
  const auto staged = [](double slower) {
    return survey_of(4, [slower](const LimitTest& test) {
      const bool load = test.kind == LimitKind::move && test.engine == Engine::sm_load;
      return healthy(test) / (load ? slower : 1);
    });
  };
  EXPECT_EQ(illnesses(staged(14)), std::vector{Illness::staged_loads});
  EXPECT_TRUE(illnesses(staged(2)).empty());
  const std::string sentence = warnings_of(staged(14)).front().sentence;
  EXPECT_NE(sentence.find("0->1"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("and 8 more"), std::string::npos) << sentence;
}

TEST(Illnesses, AllPairsOfStoresThatCollapseAreFound) {
  const auto collapsed = [](double all_pairs_gbps) {
    return survey_of(8, [=](const LimitTest& test) {
      const bool it = test.kind == LimitKind::move && test.engine == Engine::sm_store &&
                      test.traffic == Traffic::all_pairs;
      return it ? all_pairs_gbps : healthy(test);
    });
  };
  EXPECT_EQ(illnesses(collapsed(2.7)), std::vector{Illness::write_collapse});
  EXPECT_TRUE(illnesses(collapsed(20)).empty());
  const std::string sentence = warnings_of(collapsed(2.7)).front().sentence;
  EXPECT_NE(sentence.find("2.7 GB/s"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("loads of all pairs: 22.0"), std::string::npos) << sentence;
}

TEST(Illnesses, ASlowPairIsNamedAmongItsKind) {
  // Half the width, across sockets: slower than all of its kind, and only there.
  const auto with_slow = [](double gbps) {
    return survey_of(8, [=](const LimitTest& test) {
      const bool it =
          test.kind == LimitKind::move && test.traffic == Traffic::pair && test.from == 2 && test.to == 5;
      return it ? gbps : healthy(test);
    });
  };
  const auto warnings = warnings_of(with_slow(20));
  ASSERT_EQ(warnings.size(), std::size(engines));
  for (const Warning& warning : warnings) {
    EXPECT_EQ(warning.illness, Illness::slow_pair);
    EXPECT_NE(warning.sentence.find("2->5 (20.0 GB/s)"), std::string::npos) << warning.sentence;
    EXPECT_NE(warning.sentence.find("across"), std::string::npos) << warning.sentence;
  }
  EXPECT_TRUE(warnings_of(with_slow(36)).empty());
  // Where nodes are not known, pairs across sockets are no illness of their own.
  Survey unknown = survey_of(8, healthy);
  unknown.numa_nodes.clear();
  EXPECT_TRUE(warnings_of(unknown).empty());
}

Survey sick_pair_of_gpus() {
  return survey_of(2, [](const LimitTest& test) {
    return test.kind == LimitKind::move && test.engine == Engine::sm_load ? 3.5 : healthy(test);
  });
}

TEST(SurveyReport, Console) {
  compare_with_golden("limits.txt", survey_text(sick_pair_of_gpus()));
}

TEST(SurveyReport, Json) {
  const std::string text = survey_json(sick_pair_of_gpus(), 0);
  compare_with_golden("limits.json", text);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["evidence"], "measured");
  EXPECT_EQ(json["warnings"][0]["illness"], "staged_loads");
  EXPECT_TRUE(json["flags_us"][0][0].is_null());
  EXPECT_EQ(json["flags_us"][0][1], 0.65);
}

// A survey that was cut short has no figure that was not measured.
TEST(SurveyReport, WhatIsMissingIsADash) {
  Survey cut = survey_of(3, healthy);
  cut.figures.resize(20);
  const std::string text = survey_text(cut);
  EXPECT_NE(text.find("barrier of all ranks by flags: 2.50 us"), std::string::npos) << text;
  EXPECT_NE(text.find("copy_engine                   -            -"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(survey_json(cut, survey_plan(3).size() - 20));
  EXPECT_GT(json["tests_left_out"], 50);
  EXPECT_FALSE(json["bandwidth"][0].contains("next_gbps"));
}

}  // namespace
}  // namespace arb
