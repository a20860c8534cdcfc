// Arms, orders, records, gates, causes and reports of comparisons, on made-up launches.
#include "comparison.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "comparison_report.h"
#include "scratch.h"
#include "static_comparison.h"

namespace arb {
namespace {

std::string sentence_of(const auto& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

// --- arms and orders
// ----------------------------------------------------------------------------------------

TEST(Arm, ReadsEveryKind) {
  const ArmSpec arm = arm_from({"toolkit=12.8,nccl=/opt/nccl,contender=nccl,arbench=/old/arbench"});
  EXPECT_EQ(arm.toolkit, "12.8");
  EXPECT_EQ(arm.nccl, "/opt/nccl");
  EXPECT_EQ(arm.contender, "nccl");
  EXPECT_EQ(arm.program, "/old/arbench");
  EXPECT_EQ(arm_from({"bundle=/some/13.0-nvcc"}).bundle_folder, "/some/13.0-nvcc");
  EXPECT_EQ(arm_from({"bundle=13.0-nvcc"}).toolkit, "13.0-nvcc");
  EXPECT_EQ(arm_from({"toolkit=12.8"}).label(), "12.8");
  EXPECT_EQ(arm_from({}).label(), "as is");
  EXPECT_EQ(arm_from({"bundle=/a/13.0-nvrtc"}).label(), "bundle=/a/13.0-nvrtc");
  EXPECT_EQ(arm_from({"bundle=/somewhere/far/away/from/here/13.0-nvrtc", "NCCL_ALGO=Tree"}).label(),
            "bundle=.../13.0-nvrtc,NCCL_ALGO=Tree");
  EXPECT_EQ(arm_from({"nccl=/usr/lib/x86_64-linux-gnu/nccl-2.28.9/"}).label(), "nccl=.../nccl-2.28.9/");
}

TEST(Arm, VariablesMayHoldCommas) {
  const ArmSpec arm = arm_from({"NCCL_ALGO=Ring,Tree,env NCCL_PROTO=LL", "NCCL_DEBUG="});
  const std::map<std::string, std::string> expected = {
      {"NCCL_ALGO", "Ring,Tree"}, {"NCCL_PROTO", "LL"}, {"NCCL_DEBUG", ""}};
  EXPECT_EQ(arm.variables, expected);
  // What is printed reads back as the same arm.
  EXPECT_EQ(arm_from({arm.text}).variables, expected);
}

TEST(Arm, RefusesWithASentence) {
  EXPECT_NE(sentence_of([] { arm_from({"toolkits=12.8"}); }).find("did you mean 'toolkit'?"),
            std::string::npos);
  EXPECT_NE(sentence_of([] { arm_from({"12.8"}); }).find("is no arm"), std::string::npos);
  EXPECT_THROW(arm_from({"toolkit="}), UsageError);
  EXPECT_THROW(arm_from({"toolkit=12.8,toolkit=13.0"}), UsageError);
  EXPECT_THROW(arm_from({"toolkit=12.8,bundle=/x/y"}), UsageError);
  EXPECT_THROW(arm_from({"CUDA_VISIBLE_DEVICES=1"}), UsageError);
  EXPECT_THROW(check_arms(arm_from({"contender=nccl"}), arm_from({})), UsageError);
}

TEST(Arm, CrossedRolesTakeOneFactorOfB) {
  const ArmSpec a = arm_from({"toolkit=12.8,nccl=/a"});
  const ArmSpec b = arm_from({"toolkit=13.0,nccl=/b"});
  EXPECT_EQ(arm_of(Role::placebo, a, b), a);
  EXPECT_EQ(arm_of(Role::b, a, b), b);
  EXPECT_EQ(arm_of(Role::compiler_of_b, a, b).toolkit, "13.0");
  EXPECT_EQ(arm_of(Role::compiler_of_b, a, b).nccl, "/a");
  EXPECT_EQ(arm_of(Role::nccl_of_b, a, b).toolkit, "12.8");
  EXPECT_EQ(arm_of(Role::nccl_of_b, a, b).nccl, "/b");
}

TEST(Orders, AreBalancedAndRepeatable) {
  const std::vector<Role> three = {Role::a, Role::b, Role::placebo};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto orders = block_orders(three, 12, seed);
    ASSERT_EQ(orders.size(), 12u);
    for (std::size_t from = 0; from < 12; from += 6) {
      EXPECT_EQ(std::set(orders.begin() + static_cast<std::ptrdiff_t>(from),
                         orders.begin() + static_cast<std::ptrdiff_t>(from + 6))
                    .size(),
                6u);
    }
    EXPECT_EQ(block_orders(three, 12, seed), orders);
    const auto longer = block_orders(three, 24, seed);
    EXPECT_TRUE(std::equal(orders.begin(), orders.end(), longer.begin()));
  }
  EXPECT_NE(block_orders(three, 12, 1), block_orders(three, 12, 2));
  const std::vector<Role> five = {Role::a, Role::b, Role::placebo, Role::compiler_of_b, Role::nccl_of_b};
  const auto orders = block_orders(five, 10, 3);
  for (std::size_t place = 0; place < 5; ++place) {
    std::map<Role, int> counts;
    for (const auto& order : orders) ++counts[order[place]];
    for (const Role role : five) EXPECT_EQ(counts[role], 2);
  }
}

// --- a made-up comparison
// -----------------------------------------------------------------------------------

struct Made {
  ComparisonPlan plan;
  std::vector<Block> blocks;
  std::vector<CellFacts> facts;
};

// Two kernels and NCCL at three sizes; `effect(role, cell)` is ln of the factor on a time.
Made made(const std::function<double(Role, const ComparedKey&)>& effect, bool crossed = false,
          std::uint32_t count = 12) {
  Made made;
  made.plan.arm_a = "toolkit=12.8";
  made.plan.arm_b = "toolkit=13.0";
  made.plan.blocks = count;
  made.plan.roles = {Role::a, Role::b, Role::placebo};
  if (crossed) {
    made.plan.roles.insert(made.plan.roles.end(), {Role::compiler_of_b, Role::nccl_of_b});
    made.plan.attribute = true;
  }
  made.plan.driver = "580.82.07";
  made.plan.gpus = {"GPU-0", "GPU-1"};
  made.plan.found.resize(made.plan.roles.size());
  for (const char* contender : {"kernel_1", "kernel_2", "nccl"}) {
    for (const std::uint64_t bytes : {1u << 10, 1u << 18, 8u << 20}) {
      made.plan.cells.push_back({.contender = contender,
                                 .contender_b = contender,
                                 .dtype = Dtype::bf16,
                                 .ranks = 2,
                                 .bytes = bytes,
                                 .place = Place::out,
                                 .mode = Mode::pipelined,
                                 .cache = Cache::warm});
      CellFacts facts;
      facts.is_nccl = std::string(contender) == "nccl";
      facts.same_code = facts.is_nccl || std::string(contender) == "kernel_2";
      facts.phrase = facts.is_nccl     ? "same NCCL"
                     : facts.same_code ? "same SASS"
                                       : "SASS differs, regs 40->48";
      made.facts.push_back(facts);
    }
  }
  std::mt19937_64 random(12);
  std::normal_distribution<double> normal;
  const auto orders = block_orders(made.plan.roles, count, 1);
  for (std::uint32_t index = 0; index < count; ++index) {
    Block block{.index = index, .launches = {}};
    for (const Role role : orders[index]) {
      LaunchRecord launch{.role = role, .driver = "580.82.07", .gpus = {}, .times_us = {}, .ran = {}};
      for (const std::string& uuid : made.plan.gpus) {
        launch.gpus.push_back({.uuid = uuid,
                               .sm_clock_mhz = 1980,
                               .memory_clock_mhz = 2619,
                               .events = std::vector<std::string>{},
                               .new_errors = 0,
                               .temperature_c = 45});
      }
      for (const ComparedKey& key : made.plan.cells) {
        const double base_us = 5 + static_cast<double>(key.bytes) / 300e3;
        launch.times_us.emplace_back(base_us * std::exp(effect(role, key) + 0.002 * normal(random)));
        launch.ran.emplace_back("8x256");
      }
      block.launches.push_back(std::move(launch));
    }
    made.blocks.push_back(std::move(block));
  }
  return made;
}

double nothing(Role /*role*/, const ComparedKey& /*key*/) {
  return 0;
}

constexpr ArmsDiffer compilers_differ = {.compiler = true, .nccl = false, .other = false};

Comparison compared(const Made& made, const ArmsDiffer& differ = compilers_differ) {
  return compare_blocks(made.plan, made.blocks, {}, made.facts, differ);
}

Gate gate(const Comparison& comparison, const std::string& name) {
  return *std::ranges::find(comparison.gates, name, &Gate::name);
}

TEST(Comparison, AAgainstAIsEquivalent) {
  const Comparison comparison = compared(made(nothing));
  EXPECT_EQ(comparison.failed, "");
  EXPECT_EQ(comparison.count(Verdict::equivalent), 9u);
  for (const Gate& there : comparison.gates) EXPECT_EQ(there.state, GateState::passed) << there.name;
  EXPECT_EQ(exit_code_of(comparison, true), ExitCode::good);
}

TEST(Comparison, ThreePercentMoreIsARegression) {
  const Comparison comparison = compared(made([](Role role, const ComparedKey& key) {
    return role == Role::b && key.contender == "kernel_1" ? std::log(1.03) : 0;
  }));
  EXPECT_EQ(comparison.count(Verdict::slower), 3u);
  EXPECT_EQ(comparison.count(Verdict::equivalent), 6u);
  EXPECT_EQ(comparison.cells.front().why, "SASS differs, regs 40->48");
  EXPECT_NEAR(comparison.cells.front().judgement.change, 0.03, 0.005);
  EXPECT_EQ(exit_code_of(comparison, false), ExitCode::regression);
}

TEST(Comparison, SizesOfAContenderStandTogetherInBands) {
  Made several = made([](Role role, const ComparedKey&) { return role == Role::b ? 0.004 : 0; });
  for (ComparedKey& key : several.plan.cells) {
    if (key.bytes == 1 << 18) key.bytes = 4 << 10;
  }
  const Comparison comparison = compared(several);
  const auto band_q = [&](std::size_t cell) { return comparison.cells[cell].judgement.band_q; };
  EXPECT_LT(band_q(0), 1);
  EXPECT_NE(comparison.cells[0].judgement.p, comparison.cells[1].judgement.p);
  EXPECT_EQ(band_q(0), band_q(1));
  EXPECT_NE(band_q(0), band_q(2));  // from 4M
  EXPECT_NE(band_q(0), band_q(3));  // another contender
}

TEST(Comparison, RunsHaveAsManyLaunchesAsTheCellWithTheFewest) {
  UnpairedCell many;
  many.a_us = many.b_us = {5, 5.1, 5, 5.1, 5};
  UnpairedCell few;
  few.a_us = few.b_us = {5, 5.1, 5};
  const Comparison comparison = compare_runs(std::vector{many, few}, {}, {});
  EXPECT_EQ(comparison.blocks, 3u);
  EXPECT_NE(comparison_table(comparison).find("two runs, 3 launches or more each"), std::string::npos);
}

TEST(Comparison, WhereMoreLaunchesCannotHelpItSaysSo) {
  UnpairedCell drifting;
  drifting.a_us = {5, 5.01, 4.99};
  drifting.b_us = {5.2, 5.21, 5.19};
  drifting.history_us = {5, 5.2, 4.8, 5.1, 4.9};
  const Comparison comparison = compare_runs(std::vector{drifting}, {}, {});
  EXPECT_TRUE(
      comparison.cells.front().why.ends_with("%, more launches cannot help: earlier runs differ by as much"))
      << comparison.cells.front().why;
}

// --- gates
// --------------------------------------------------------------------------------------------------

TEST(Gates, FireOnWhatTheyGuard) {
  struct Case {
    std::string gate;
    std::function<void(Made&)> spoil;
  };
  const std::vector<Case> cases = {
      {"gpus", [](Made& made) { made.blocks[5].launches[1].gpus[0].uuid = "GPU-9"; }},
      {"driver", [](Made& made) { made.blocks[7].launches[0].driver = "570.00"; }},
      {"clocks",
       [](Made& made) {
         for (Block& block : made.blocks) {
           for (LaunchRecord& launch : block.launches) {
             if (launch.role == Role::b) launch.gpus[1].sm_clock_mhz = 1980 * 0.98;
           }
         }
       }},
      {"clocks",
       [](Made& made) {
         for (Block& block : made.blocks) {
           for (LaunchRecord& launch : block.launches) {
             if (launch.role == Role::b) launch.gpus[0].memory_clock_mhz = 2619 * 1.02;
           }
         }
       }},
      {"clock_events",  // most launches of B, and one of A
       [](Made& made) {
         for (Block& block : made.blocks) {
           for (LaunchRecord& launch : block.launches) {
             const bool here =
                 launch.role == Role::b ? block.index > 2 : launch.role == Role::a && block.index == 0;
             if (here) launch.gpus[0].events = {"sw_power_cap"};
           }
         }
       }},
      {"clock_events",
       [](Made& made) {
         for (Block& block : made.blocks) {
           for (LaunchRecord& launch : block.launches) {
             if (launch.role == Role::b) launch.gpus[0].events = {"hw_thermal_slowdown"};
           }
         }
       }},
      {"hardware_errors",
       [](Made& made) { made.blocks[2].launches[2].gpus[1].new_errors = made.plan.cells.size() + 1; }},
      {"hardware_errors",
       [](Made& made) {
         for (Block& block : made.blocks) {
           for (LaunchRecord& launch : block.launches) {
             if (launch.role == Role::b) launch.gpus[0].new_errors = 1;
           }
         }
       }},
      {"placebo",
       [](Made& made) {
         for (Block& block : made.blocks) {
           for (LaunchRecord& launch : block.launches) {
             if (launch.role != Role::placebo) continue;
             for (auto& time : launch.times_us) time = *time * 1.05;
           }
         }
       }},
  };
  for (const Case& spoilt : cases) {
    Made broken = made(nothing);
    spoilt.spoil(broken);
    const Comparison comparison = compared(broken);
    for (const Gate& there : comparison.gates) {
      EXPECT_EQ(there.state, there.name == spoilt.gate ? GateState::failed : GateState::passed)
          << spoilt.gate << ": " << there.name << " " << there.sentence;
    }
    EXPECT_NE(comparison.failed, "") << spoilt.gate;
    EXPECT_EQ(exit_code_of(comparison, false), ExitCode::invalid_environment) << spoilt.gate;
    // Estimates stay, verdicts do not.
    EXPECT_EQ(comparison.count(Verdict::inconclusive), 9u);
    EXPECT_EQ(verdicts_csv(comparison).find("EQUIVALENT"), std::string::npos);
    EXPECT_NE(comparison_table(comparison).find("no verdict: "), std::string::npos);
  }
}

TEST(Gates, WithoutNvmlTheyAreUncheckedAndStrictRefuses) {
  Made blind = made(nothing);
  for (Block& block : blind.blocks) {
    for (LaunchRecord& launch : block.launches) {
      for (GpuDuring& gpu : launch.gpus) {
        gpu.sm_clock_mhz.reset();
        gpu.events.reset();
        gpu.new_errors.reset();
      }
    }
  }
  const Comparison comparison = compared(blind);
  const std::vector<std::string> expected = {"clocks", "clock_events", "hardware_errors"};
  EXPECT_EQ(unchecked_gates(comparison.gates), expected);
  EXPECT_EQ(exit_code_of(comparison, false), ExitCode::good);
  EXPECT_EQ(exit_code_of(comparison, true), ExitCode::invalid_environment);
  EXPECT_NE(comparison_table(comparison).find("gate clocks unchecked"), std::string::npos);
}

TEST(Gates, AnEventUnderBothArmsIsNoDifference) {
  Made capped = made(nothing);
  for (Block& block : capped.blocks) {
    for (LaunchRecord& launch : block.launches) launch.gpus[0].events = {"sw_power_cap"};
  }
  EXPECT_EQ(gate(compared(capped), "clock_events").state, GateState::passed);
}

TEST(Gates, ThePlaceboIsAToo) {
  Made turning = made(nothing);
  for (Block& block : turning.blocks) {
    for (LaunchRecord& launch : block.launches) {
      // 1.5% below A, and just between A and its placebo.
      if (launch.role == Role::b) launch.gpus[0].sm_clock_mhz = 1980 * 0.985;
      if (launch.role == Role::placebo) launch.gpus[0].sm_clock_mhz = 1980 * 0.97;
    }
  }
  EXPECT_EQ(gate(compared(turning), "clocks").state, GateState::passed);
}

TEST(Gates, AMemoryClockThatIsNotKnownIsUnchecked) {
  Made blind = made(nothing);
  blind.blocks[3].launches[0].gpus[1].memory_clock_mhz.reset();
  EXPECT_EQ(gate(compared(blind), "clocks").state, GateState::unchecked);
}

// Of many bands one may fall by chance.
TEST(Gates, ThePlaceboIsAdjustedForManyBands) {
  const Made alike = made(nothing);
  const auto placebo_gate = [&](const Judgement& judgement) {
    return check_gates(alike.plan, alike.blocks, std::vector{judgement}).back();
  };
  EXPECT_EQ(placebo_gate({.p = 0.005, .band_q = 0.045, .q = 0.045}).state, GateState::passed);
  EXPECT_EQ(placebo_gate({.p = 0.001, .band_q = 0.009, .q = 0.009}).state, GateState::failed);
}

TEST(Gates, OfTwoFinishedRuns) {
  const GpuDuring steady{.uuid = "GPU-0",
                         .sm_clock_mhz = 1980,
                         .memory_clock_mhz = 2619,
                         .events = std::vector<std::string>{},
                         .new_errors = 0,
                         .temperature_c = 45};
  const RunMachine a{.driver = "580.82.07",
                     .gpus = {"GPU-0", "GPU-1"},
                     .during = {steady, steady},
                     .rows = 60,
                     .throttled_rows = 0};
  const auto states = [&](const RunMachine& b) {
    std::string text;
    for (const Gate& gate : check_gates(a, b)) {
      if (gate.state != GateState::passed) text += fmt::format("{} {};", gate.name, name_of(gate.state));
    }
    return text;
  };
  EXPECT_EQ(states(a), "");
  RunMachine b = a;
  b.gpus[1] = "GPU-7";
  EXPECT_EQ(states(b), "gpus failed;");
  b = a;
  b.driver = "590.10";
  EXPECT_EQ(states(b), "");
  EXPECT_EQ(check_gates(a, b)[1].sentence, "it changed from 580.82.07 to 590.10 between the runs");
  b = a;
  b.during[1].sm_clock_mhz = 1980 * 0.98;
  EXPECT_EQ(states(b), "clocks failed;");
  b = a;
  b.during[0].memory_clock_mhz = 2619 * 1.02;
  EXPECT_EQ(states(b), "clocks failed;");
  b = a;
  b.throttled_rows = 1;
  EXPECT_EQ(states(b), "");
  EXPECT_EQ(check_gates(a, b)[3].sentence,
            "0 of 60 rows of A and 1 of 60 of B were measured while a GPU was held back");
  b.throttled_rows = 20;
  EXPECT_EQ(states(b), "clock_events failed;");
  b = a;
  b.during[0].new_errors = 3;
  EXPECT_EQ(states(b), "");
  EXPECT_EQ(check_gates(a, b)[4].sentence, "the links of rank 0 counted 3 new errors in 60 rows of B");
  b.during[0].new_errors = 61;
  EXPECT_EQ(states(b), "hardware_errors failed;");
  b = {};
  EXPECT_EQ(states(b),
            "gpus unchecked;driver unchecked;clocks unchecked;clock_events unchecked;"
            "hardware_errors unchecked;");
}

TEST(Gates, AFewLinkErrorsUnderBothArmsAreToldOf) {
  Made replayed = made(nothing);
  for (Block& block : replayed.blocks) block.launches[block.index % 3].gpus[0].new_errors = 1;
  const Comparison comparison = compared(replayed);
  const Gate errors = gate(comparison, "hardware_errors");
  EXPECT_EQ(errors.state, GateState::passed);
  EXPECT_NE(errors.sentence.find("counted 12 new errors that they put right, in "), std::string::npos)
      << errors.sentence;
  EXPECT_EQ(comparison.failed, "");
  EXPECT_NE(comparison_table(comparison).find(errors.sentence), std::string::npos);
}

TEST(Comparison, ACellThatOneLaunchLacksHasNoVerdictAndIsSaid) {
  Made lacking = made(nothing);
  lacking.blocks[3].launches[1].times_us[4].reset();
  const Comparison comparison = compared(lacking);
  EXPECT_EQ(comparison.cells.size(), 8u);
  EXPECT_TRUE(comparison.incomplete);
  EXPECT_EQ(exit_code_of(comparison, false), ExitCode::invalid_environment);
  for (Block& block : lacking.blocks) {
    for (LaunchRecord& launch : block.launches) std::ranges::fill(launch.times_us, std::nullopt);
  }
  EXPECT_NE(compared(lacking).failed, "");
}

// --- causes
// -------------------------------------------------------------------------------------------------

TEST(Attribution, NamesTheCompiler) {
  Made planted = made([](Role role, const ComparedKey& key) {
    return role == Role::b && key.contender == "kernel_1" ? std::log(1.03) : 0;
  });
  planted.plan.attribute = true;
  const Comparison comparison = compared(planted);
  EXPECT_EQ(comparison.cells.front().why, "compiler: SASS differs, regs 40->48");
  EXPECT_NE(comparison_table(comparison).find("all 6 negative controls held"), std::string::npos);
}

TEST(Attribution, CrossedArmsTellCompilerFromNccl) {
  const auto effect = [](Role role, const ComparedKey& key) {
    const bool compiler = role == Role::b || role == Role::compiler_of_b;
    const bool nccl = role == Role::b || role == Role::nccl_of_b;
    if (key.contender == "kernel_1" && compiler) return std::log(0.95);
    if (key.contender == "nccl" && nccl) return std::log(1.06);
    return 0.0;
  };
  Made crossed = made(effect, true);
  for (CellFacts& facts : crossed.facts) {
    if (facts.is_nccl) facts = {.is_nccl = true, .same_code = false, .phrase = "NCCL 2.28.3 -> 2.28.9"};
  }
  const Comparison comparison = compared(crossed, {.compiler = true, .nccl = true, .other = false});
  std::map<std::string, std::string> why;
  for (const ComparedCell& cell : comparison.cells) why[cell.key.contender] = cell.why;
  EXPECT_EQ(why["kernel_1"], "compiler: SASS differs, regs 40->48");
  EXPECT_EQ(why["nccl"], "NCCL: NCCL 2.28.3 -> 2.28.9");
  EXPECT_EQ(why["kernel_2"].substr(0, 6), "within");
}

TEST(Attribution, AMovedControlWithholdsEveryCause) {
  Made odd = made([](Role role, const ComparedKey& key) {
    return role == Role::b && key.contender != "kernel_2" ? std::log(1.05)
                                                          : 0;  // NCCL moves with the compiler
  });
  odd.plan.attribute = true;
  const Comparison comparison = compared(odd);
  EXPECT_EQ(comparison.cells.front().judgement.verdict, Verdict::slower);
  EXPECT_EQ(comparison.cells.front().why, "cause withheld: a negative control moved");
  EXPECT_NE(comparison_table(comparison).find("negative controls moved"), std::string::npos);
}

TEST(Attribution, AKernelThatMovesWithNcclWithholdsEveryCause) {
  Made odd = made(
      [](Role role, const ComparedKey& key) {
        const bool nccl = role == Role::b || role == Role::nccl_of_b;
        return nccl && key.contender != "kernel_2" ? std::log(1.05) : 0;
      },
      true);
  for (CellFacts& facts : odd.facts) facts.same_code = false;
  const Comparison comparison = compared(odd, {.compiler = true, .nccl = true, .other = false});
  EXPECT_EQ(comparison.cells.front().why, "cause withheld: a negative control moved");
  EXPECT_NE(comparison_table(comparison).find("kernel_1/bf16/n2/1024/out/pipelined/warm reacts to NCCL"),
            std::string::npos);
}

TEST(Attribution, AnNcclThatMovesWithTheCompilerWithholdsEveryCause) {
  Made odd = made(
      [](Role role, const ComparedKey& key) {
        const bool compiler = role == Role::b || role == Role::compiler_of_b;
        return compiler && key.contender == "nccl" ? std::log(1.05) : 0;
      },
      true);
  for (CellFacts& facts : odd.facts) facts.same_code = false;
  const Comparison comparison = compared(odd, {.compiler = true, .nccl = true, .other = false});
  EXPECT_NE(comparison_table(comparison).find("nccl/bf16/n2/1024/out/pipelined/warm reacts to the compiler)"),
            std::string::npos);
  EXPECT_EQ(comparison.cells[6].why, "cause withheld: a negative control moved");
}

TEST(Attribution, ASameSassThatMovesWithholdsEveryCause) {
  Made odd = made([](Role role, const ComparedKey& key) {
    return role == Role::b && key.contender == "kernel_2" ? std::log(1.05) : 0;
  });
  odd.plan.attribute = true;
  EXPECT_NE(comparison_table(compared(odd)).find("reacts to the compiler with the same SASS"),
            std::string::npos);
}

TEST(Attribution, AFactorIsItsEffectUnderEitherValueOfTheOther) {
  // ln of the times, with an interaction: A 0, compiler of B 0.1, NCCL of B 0.2, B 0.5.
  const std::vector<std::pair<Role, double>> logs = {
      {Role::a, 0}, {Role::b, 0.5}, {Role::placebo, 0}, {Role::compiler_of_b, 0.1}, {Role::nccl_of_b, 0.2}};
  ComparisonPlan plan;
  plan.cells.resize(1);
  Block block;
  for (const auto& [role, log] : logs)
    block.launches.push_back(
        {.role = role, .driver = {}, .gpus = {}, .times_us = {std::exp(log)}, .ran = {}});
  EXPECT_NEAR(factor_effects(plan, std::vector{block}, Factor::compiler)[0][0], (0.1 + 0.3) / 2, 1e-12);
  EXPECT_NEAR(factor_effects(plan, std::vector{block}, Factor::nccl)[0][0], (0.2 + 0.4) / 2, 1e-12);
  // Without crossed launches the factor is all that differs.
  block.launches.resize(3);
  EXPECT_NEAR(factor_effects(plan, std::vector{block}, Factor::nccl)[0][0], 0.5, 1e-12);
}

TEST(Attribution, NeitherNeedsBothFactorsEquivalent) {
  // Each factor moves kernel_1 and NCCL by less than the margin, and both together by more.
  Made halves = made(
      [](Role role, const ComparedKey& key) {
        if (key.contender == "kernel_2" || key.bytes > 1 << 20) return 0.0;
        return role == Role::b ? 0.03 : role == Role::compiler_of_b || role == Role::nccl_of_b ? 0.015 : 0.0;
      },
      true);
  const ArmsDiffer both = {.compiler = true, .nccl = true, .other = false};
  for (CellFacts& facts : halves.facts) facts.same_code = facts.same_code && !facts.is_nccl;
  Comparison comparison = compared(halves, both);
  EXPECT_EQ(comparison.cells[6].judgement.verdict, Verdict::slower);
  EXPECT_EQ(comparison.cells[6].why, "neither compiler nor NCCL alone: same NCCL");
  EXPECT_EQ(comparison.cells.front().judgement.verdict, Verdict::slower);
  EXPECT_EQ(comparison.cells.front().why, "neither compiler nor NCCL alone: SASS differs, regs 40->48");
  // The same with crossed launches that are too noisy to show anything.
  int launch = 0;
  const Made noisy = made(
      [&](Role role, const ComparedKey& key) {
        if (key.contender != "kernel_1" || key.bytes > 1 << 10) return 0.0;
        if (role == Role::compiler_of_b) return 0.015 + (++launch % 2 == 0 ? 0.1 : -0.1);
        return role == Role::b ? 0.03 : role == Role::nccl_of_b ? 0.015 : 0.0;
      },
      true);
  comparison = compared(noisy, both);
  EXPECT_EQ(comparison.cells.front().judgement.verdict, Verdict::slower);
  EXPECT_EQ(comparison.cells.front().why, "undecided between compiler and NCCL: SASS differs, regs 40->48");
}

TEST(Attribution, WhatElseDiffersIsTheCauseWhereAnythingDoes) {
  Made planted = made([](Role role, const ComparedKey& key) {
    return role == Role::b && key.contender == "kernel_1" ? std::log(1.03) : 0;
  });
  planted.plan.attribute = true;
  const Comparison comparison = compared(planted, {.compiler = true, .nccl = false, .other = true});
  EXPECT_EQ(comparison.cells.front().why, "what else differs between the arms: SASS differs, regs 40->48");
}

TEST(Attribution, Phrases) {
  BundleFunction a{.name = "f", .registers = 40, .instructions = 900, .sass_sha256 = "1"};
  BundleFunction b = a;
  EXPECT_EQ(compiled_difference(a, b), "same SASS");
  b.sass_sha256 = "2";
  EXPECT_EQ(compiled_difference(a, b), "SASS differs, regs 40, 900 instructions both");
  b.instructions = 880;
  EXPECT_EQ(compiled_difference(a, b), "SASS differs, instructions 900->880");
  b.registers = 48;
  b.spill_store_bytes = 16;
  EXPECT_EQ(compiled_difference(a, b), "SASS differs, regs 40->48, 16 B spilled");
  EXPECT_EQ(nccl_difference("2.28.3", "2.28.9", false, "Ring/LL", "Tree/LL"),
            "NCCL 2.28.3 -> 2.28.9: Ring/LL -> Tree/LL");
  EXPECT_EQ(nccl_difference("2.28.9", "2.28.9", true, "Ring", "Ring"), "same NCCL");
}

// --- records
// ------------------------------------------------------------------------------------------------

TEST(Records, RoundTrip) {
  Made original = made(nothing);
  original.blocks[0].launches[0].times_us[2].reset();
  original.blocks[0].launches[0].gpus[1].sm_clock_mhz.reset();
  original.plan.arguments = {"compare", "--a", "toolkit=12.8"};
  EXPECT_EQ(plan_from_json(to_json(original.plan)), original.plan);
  std::string lines;
  for (const Block& block : original.blocks) lines += to_json_line(block) + "\n";
  EXPECT_EQ(blocks_from_json_lines(lines, original.plan), original.blocks);
}

TEST(Records, RefuseWhatIsCutOrForeign) {
  const Made original = made(nothing);
  const std::string plan = to_json(original.plan);
  EXPECT_THROW(plan_from_json(plan.substr(0, plan.size() / 2)), RecordError);
  EXPECT_THROW(plan_from_json("{}"), RecordError);
  EXPECT_THROW(plan_from_json(R"({"schema": "something else"})"), RecordError);
  const std::string line = to_json_line(original.blocks[0]);
  EXPECT_THROW(blocks_from_json_lines(line, original.plan), RecordError);  // no end of line
  EXPECT_THROW(blocks_from_json_lines(line.substr(0, 100) + "\n", original.plan), RecordError);
  EXPECT_THROW(blocks_from_json_lines(to_json_line(original.blocks[1]) + "\n", original.plan), RecordError);
  ComparisonPlan other = original.plan;
  other.cells.pop_back();
  EXPECT_NE(sentence_of([&] { blocks_from_json_lines(line + "\n", other); }).find("9 times for 8 cells"),
            std::string::npos);
}

// --- reports
// ------------------------------------------------------------------------------------------------

// A golden file; ARB_WRITE_GOLDEN=1 writes it anew.
void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(ARB_GOLDEN_DIR) + "/" + name;
  if (std::getenv("ARB_WRITE_GOLDEN") != nullptr) test::write_file(path, text);
  EXPECT_EQ(text, test::read_file(path)) << name;
}

// Figures that are the same on every machine: no random numbers, no logarithms that could round differently.
Comparison golden_comparison() {
  Comparison comparison;
  comparison.label_a = "12.8";
  comparison.label_b = "13.0";
  comparison.arm_a = "toolkit=12.8";
  comparison.arm_b = "toolkit=13.0";
  comparison.blocks = 12;
  const auto add = [&](const char* contender, std::uint64_t bytes, double a_us, double b_us,
                       Judgement judgement, const char* why) {
    judgement.blocks = 12;
    judgement.change = b_us / a_us - 1;
    comparison.cells.push_back({.key = {.contender = contender,
                                        .contender_b = contender,
                                        .dtype = Dtype::bf16,
                                        .ranks = 2,
                                        .bytes = bytes,
                                        .place = Place::out,
                                        .mode = Mode::pipelined,
                                        .cache = Cache::warm},
                                .a_us = a_us,
                                .b_us = b_us,
                                .judgement = judgement,
                                .placebo = Judgement{.p = 0.5},
                                .why = why});
  };
  add("kernel_1", 32 << 10, 6.25, 6.0625,
      {.verdict = Verdict::faster,
       .ci_low = -0.034,
       .ci_high = -0.024,
       .p = 0.0005,
       .q = 0.001,
       .margin = 0.02,
       .mde = 0.008},
      "SASS differs, regs 40->38");
  add("nccl", 32 << 10, 10, 10.0625,
      {.verdict = Verdict::equivalent,
       .ci_low = -0.005,
       .ci_high = 0.009,
       .p = 0.61,
       .q = 0.61,
       .margin = 0.02,
       .mde = 0.009},
      "within 2%");
  add("kernel_2", 2 << 20, 31, 31.25,
      {.verdict = Verdict::inconclusive,
       .ci_low = -0.009,
       .ci_high = 0.031,
       .p = 0.34,
       .q = 0.34,
       .margin = 0.02,
       .mde = 0.026,
       .more_blocks = 14},
      "MDE 2.6%, +14 blocks");
  comparison.gates = {{.name = "gpus", .state = GateState::passed, .sentence = {}},
                      {.name = "clocks", .state = GateState::unchecked, .sentence = "NVML gave no clocks"}};
  comparison.remarks = {"one, with a \"quote\""};
  return comparison;
}

TEST(Reports, Golden) {
  const Comparison comparison = golden_comparison();
  expect_golden("compare.txt", comparison_table(comparison));
  expect_golden("compare.md", comparison_markdown(comparison));
  expect_golden("compare.json", comparison_json(comparison));
  expect_golden("compare.csv", verdicts_csv(comparison));
  expect_golden("compare.smaller.json", smaller_is_better_json(comparison));
}

TEST(Reports, JsonIsStrictAndFinite) {
  Comparison comparison = golden_comparison();
  comparison.cells[0].judgement.mde = std::numeric_limits<double>::infinity();
  comparison.cells[1].judgement.p = std::nan("");
  const std::string text = comparison_json(comparison);
  EXPECT_EQ(text.find("null"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_FALSE(json.at("cells")[0].contains("mde"));
}

TEST(Reports, ExitCodes) {
  Comparison comparison = golden_comparison();
  EXPECT_EQ(exit_code_of(comparison, false), ExitCode::good);
  comparison.gates.clear();
  EXPECT_EQ(exit_code_of(comparison, true), ExitCode::inconclusive);
  comparison.cells[0].judgement.verdict = Verdict::slower;
  EXPECT_EQ(exit_code_of(comparison, true), ExitCode::regression);
  comparison.failed = "a gate";
  EXPECT_EQ(exit_code_of(comparison, false), ExitCode::invalid_environment);
}

// --- static
// -------------------------------------------------------------------------------------------------

TEST(StaticComparison, SaysWhatChanged) {
  const auto bundle = [](const std::string& name, std::vector<BundleFunction> functions) {
    Bundle made;
    made.name = name;
    made.compiler_version = "compiler of " + name;
    made.cubins.push_back({"kernel", "sm_120", "kernel.sm_120.cubin", "00", std::move(functions)});
    return made;
  };
  const BundleFunction same{.name = "same", .registers = 32, .instructions = 100, .sass_sha256 = "1"};
  const BundleFunction before{.name = "moved", .registers = 40, .instructions = 200, .sass_sha256 = "2"};
  const BundleFunction after{
      .name = "moved", .registers = 48, .spill_store_bytes = 16, .instructions = 210, .sass_sha256 = "3"};
  const BundleFunction only{.name = "new", .registers = 16, .instructions = 50, .sass_sha256 = "4"};
  const Bundle a = bundle("12.8-nvrtc", {same, before});
  const Bundle b = bundle("13.0-nvrtc", {same, after, only});
  const std::vector<StaticRow> rows = compare_static(a, b);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(
      static_summary(rows),
      "1 of 3 functions have the same SASS; registers fell in 0 and rose in 1; 1 spill more; 1 exist on one "
      "side only");
  const std::string table = static_table(a, b, rows);
  EXPECT_NE(table.find("40->48"), std::string::npos) << table;
  EXPECT_NE(table.find("0->16"), std::string::npos);
  EXPECT_NE(
      static_csv(a, b, rows).find("12.8-nvrtc,13.0-nvrtc,kernel,moved,sm_120,40,48,0,16,200,210,other\n"),
      std::string::npos);
  EXPECT_NE(static_csv(a, b, rows).find(",new,sm_120,,16,,0,,50,missing\n"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(static_json(a, b, rows)));
}

}  // namespace
}  // namespace arb
