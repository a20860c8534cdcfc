// Versions, conditions, the rules' file, and the JSON report's schema.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "command.h"
#include "errors.h"
#include "probe/child.h"
#include "probe/elf.h"
#include "probe/json.h"
#include "probe/page.h"
#include "probe/probe.h"
#include "probe/rules.h"
#include "probe/version.h"

namespace arb::probe {
namespace {

TEST(Version, CodesAreDecodedRightly) {
  EXPECT_EQ(decode_cuda(12080), "12.8");
  EXPECT_EQ(decode_cuda(13010), "13.1");
  EXPECT_EQ(decode_cudnn(91002), "9.10.2") << "not 9.1.002";
  EXPECT_EQ(decode_cudnn(90100), "9.1.0");
  EXPECT_EQ(decode_cudnn(8907), "8.9.7");
  EXPECT_EQ(decode_nccl(22809), "2.28.9");
  EXPECT_EQ(decode_nccl(2708), "2.7.8");
  EXPECT_EQ(encode_cudnn("9.10.2.21"), 91002u);
  EXPECT_EQ(encode_cudnn("nonsense"), std::nullopt);
  EXPECT_EQ(cuda_of_tag("cu128"), "12.8");
  EXPECT_EQ(cuda_of_tag("cu13"), "13");
  EXPECT_EQ(cuda_of_tag("cuda12.9"), "12.9");
  EXPECT_EQ(cuda_of_tag("cpu"), std::nullopt);
}

TEST(Version, AreComparedNumberByNumber) {
  EXPECT_LT(*Version::parse("12.9"), *Version::parse("12.10"));
  EXPECT_EQ(*Version::parse("12"), *Version::parse("12.0"));
  EXPECT_EQ(*Version::parse("0.6.15.post1"), *Version::parse("0.6.15"));
  EXPECT_EQ(Version::parse("2.10.0+cu128")->local, "cu128");
  for (const char* const odd : {"", "x", "+cu128", "99999999999999999999", ".", "-1"})
    EXPECT_FALSE(Version::parse(odd)) << odd;
}

Truth truth_of(const std::string& condition, const FactMap& map) {
  std::vector<std::string> missing;
  return Condition(condition).evaluate(map, missing);
}

TEST(Condition, HasThreeValues) {
  FactMap map;
  set_known(map, "yes", "true");
  set_known(map, "no", "false");
  set_known(map, "v", "12.8");
  set_known(map, "name", "SYS");
  set_absent(map, "gone", "it is not here");
  set_unknown(map, "dark", "nobody looked");
  EXPECT_EQ(truth_of("yes and v < 12.9 and name in (NODE, SYS)", map), Truth::yes);
  EXPECT_EQ(truth_of("v >= 12.10", map), Truth::no);
  EXPECT_EQ(truth_of("dark", map), Truth::unknown);
  EXPECT_EQ(truth_of("dark and no", map), Truth::no);
  EXPECT_EQ(truth_of("dark or yes", map), Truth::yes);
  EXPECT_EQ(truth_of("not dark", map), Truth::unknown);
  EXPECT_EQ(truth_of("never_heard_of < 1", map), Truth::unknown);
  EXPECT_EQ(truth_of("gone < 5", map), Truth::no) << "what is absent compares as no";
  EXPECT_EQ(truth_of("absent(gone) and known(v) and not absent(v)", map), Truth::yes);
  EXPECT_EQ(truth_of("absent(dark)", map), Truth::unknown);
  EXPECT_EQ(truth_of("name == \"SYS\"", map), Truth::yes);
  EXPECT_EQ(truth_of("known(dark)", map), Truth::no);
  for (const char* const wrong : {"", "a and", "a <", "(a", "a b", "known a", "a in (", "a == \"", "and"})
    EXPECT_THROW(Condition{wrong}, std::invalid_argument) << wrong;
}

TEST(Rules, AreWholeAndSourced) {
  const RuleSet& rules = built_in_rules();
  std::set<std::string> approaches;
  for (const Approach& approach : rules.approaches) approaches.insert(approach.id);
  std::set<std::string> ids;
  const std::set<std::string> kinds = {"toolkit gate", "a library's table", "hardware never",
                                       "configuration"};
  // Every fact that a rule asks for is one that facts name, on any box.
  Facts empty;
  name_facts(Box("/nonexistent", {}, {}, {}), empty);
  for (const char* const extra : {"cudnn.code", "want.toolkit"}) set_known(empty.map, extra, "1");
  const auto check = [&](const std::string& id, const Condition& when,
                         const std::vector<std::string>& sources) {
    EXPECT_TRUE(ids.insert(id).second) << id << " is there twice";
    EXPECT_FALSE(sources.empty()) << id;
    for (const std::string& name : when.names())
      EXPECT_TRUE(empty.map.contains(name)) << id << " asks for " << name;
  };
  for (const Rule& rule : rules.rules) {
    check(rule.id, rule.when, rule.sources);
    for (const std::string& approach : rule.approaches) EXPECT_TRUE(approaches.contains(approach)) << rule.id;
    EXPECT_EQ(rule.verdict == "BLOCKED", kinds.contains(rule.kind)) << rule.id;
    if (rule.verdict == "BLOCKED") {
      EXPECT_FALSE(rule.way_out.empty()) << rule.id;
    }
    for (const std::string* text : {&rule.because, &rule.way_out}) {
      for (std::size_t open = text->find('{'); open != std::string::npos; open = text->find('{', open + 1))
        EXPECT_TRUE(empty.map.contains(text->substr(open + 1, text->find('}', open) - open - 1))) << rule.id;
    }
  }
  for (const ChainRule& rule : rules.chain) check(rule.id, rule.when, rule.sources);
  for (const std::string& approach : approaches) {
    EXPECT_TRUE(std::ranges::any_of(rules.rules,
                                    [&](const Rule& rule) {
                                      return rule.verdict == "WORKS" &&
                                             std::ranges::find(rule.approaches, approach) !=
                                                 rule.approaches.end();
                                    }))
        << approach << " can never work";
  }
}

TEST(Rules, MistakesNameTheRow) {
  const std::string start =
      R"({"driver_cuda":{},"newest":{},"last_of_major":{},"approaches":[],"links":[],"chain":[],"rules":[)";
  try {
    rules_from_json(
        start +
        R"({"id":"odd","approaches":[],"verdict":"NOTE","kind":"","when":"a <","because":"","way_out":"","sources":[]}]})");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("odd"), std::string::npos);
  }
  EXPECT_THROW(rules_from_json("{"), std::invalid_argument);
}

TEST(WhatIf, RefusesWhatCannotBeAssumed) {
  EXPECT_THROW(what_if(built_in_rules(), {}, {{"kernel", "6.8"}}), UsageError);
  EXPECT_THROW(what_if(built_in_rules(), {}, {{"toolkit", "new"}}), UsageError);
  EXPECT_THROW(assumptions_from("toolkit"), UsageError);
  EXPECT_THROW(assumptions_from("=13"), UsageError);
  EXPECT_EQ(assumptions_from("toolkit=13.1, flashinfer=0.7.4").size(), 2u);
}

// Keys and types of the report; a change of any of them is a new schema.
TEST(Report, HasItsSchema) {
  const Box box = Box::recorded(std::filesystem::path(ARB_BOXES_DIR) / "sm120-8x-two-sockets");
  ProbeOptions options;
  options.output = Output::json;
  const auto json = nlohmann::json::parse(report(box, options));
  EXPECT_EQ(json.at("schema"), 1);
  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  EXPECT_EQ(keys,
            (std::set<std::string>{"schema", "verdicts", "what_if", "experiments", "driver", "gpus", "pairs",
                                   "toolkits", "libraries", "python", "host", "unseen", "facts"}));
  const auto strings_or_null = [](const nlohmann::json& value) {
    return value.is_string() || value.is_null();
  };
  for (const auto& verdict : json["verdicts"]) {
    EXPECT_TRUE(verdict.at("approach").is_string() && verdict.at("title").is_string());
    EXPECT_TRUE((std::set<std::string>{"WORKS", "BLOCKED", "UNKNOWN"}.contains(verdict.at("status"))));
    EXPECT_TRUE(strings_or_null(verdict.at("kind")));
    for (const char* const list : {"findings", "notes"}) {
      for (const auto& finding : verdict.at(list)) {
        EXPECT_TRUE(finding.at("rule").is_string() && finding.at("because").is_string());
        EXPECT_TRUE(strings_or_null(finding.at("kind")) && strings_or_null(finding.at("way_out")));
        EXPECT_TRUE(finding.at("sources").is_array() && !finding.at("sources").empty());
      }
    }
  }
  EXPECT_EQ(json["verdicts"].size(), built_in_rules().approaches.size());
  EXPECT_EQ(json["what_if"]["assumptions"]["toolkit"], "13.1");
  for (const auto& change : json["what_if"]["changes"])
    EXPECT_TRUE(change.at("effect").is_string() && change.at("newer_libraries_alone").is_boolean());
  for (const auto& step : json["what_if"]["chain"])
    EXPECT_TRUE((std::set<std::string>{"stay", "replace", "look"}.contains(step.at("action"))));
  for (const auto& [name, fact] : json["facts"].items()) {
    const std::string state = fact.at("state");
    EXPECT_TRUE(fact.at(state == "known" ? "value" : "why").is_string()) << name;
  }
  EXPECT_EQ(json["gpus"].size(), 8u);
  EXPECT_EQ(json["pairs"].size(), 56u);
  EXPECT_EQ(json["toolkits"]["just_in_time"]["version"], "12.8");
  EXPECT_EQ(json["toolkits"]["shell"], nullptr);
}

TEST(Answers, SurviveTheirJson) {
  Answers answers;
  answers.driver = "590.44.01";
  answers.gpus.push_back({.index = 3,
                          .ordinal = 1,
                          .name = "a \"name\"",
                          .uuid = {},
                          .pci_address = {},
                          .compute_capability = "12.0",
                          .memory_bytes = 1ULL << 40,
                          .bar1_bytes = {},
                          .pcie_generation = {},
                          .pcie_width_lanes = {},
                          .pcie_generation_max = {},
                          .pcie_width_max_lanes = {},
                          .nvlinks_active = {},
                          .multicast = false,
                          .vmm_file_descriptor = {},
                          .cluster_launch = true});
  answers.pairs.push_back({0, 1, "SYS", "ok", {}, {}, {}, true});
  const Answers back = answers_from_json(answers_to_json(answers));
  EXPECT_EQ(back.driver, answers.driver);
  ASSERT_EQ(back.gpus.size(), 1u);
  EXPECT_EQ(back.gpus[0].name, "a \"name\"");
  EXPECT_EQ(back.gpus[0].memory_bytes, 1ULL << 40);
  EXPECT_EQ(back.gpus[0].multicast, false);
  EXPECT_FALSE(back.gpus[0].vmm_file_descriptor);
  ASSERT_EQ(back.pairs.size(), 1u);
  EXPECT_EQ(back.pairs[0].p2p_read, "ok");
  EXPECT_THROW(answers_from_json("nonsense"), std::invalid_argument);
  EXPECT_FALSE(outcome_from_json("[]"));
  EXPECT_TRUE(outcome_from_json(outcome_to_json({true, "well"}))->worked);
}

TEST(Child, EndsAtItsDeadline) {
  const auto quick = run_child({.program = "/bin/sh",
                                .arguments = {"-c", "echo hello; echo trouble >&2"},
                                .environment = {},
                                .deadline = std::chrono::seconds(20)});
  EXPECT_EQ(quick.problem(), "");
  EXPECT_EQ(quick.out, "hello\n");
  const auto stuck = run_child({.program = "/bin/sh",
                                .arguments = {"-c", "echo begun; sleep 60 & wait"},
                                .environment = {},
                                .deadline = std::chrono::milliseconds(300)});
  EXPECT_FALSE(stuck.in_time);
  EXPECT_EQ(stuck.out, "begun\n");
  EXPECT_LT(stuck.seconds, 10);
  EXPECT_NE(stuck.problem().find("killed"), std::string::npos);
  const auto failed = run_child({.program = "/bin/sh",
                                 .arguments = {"-c", "echo last words >&2; exit 3"},
                                 .environment = {},
                                 .deadline = std::chrono::seconds(20)});
  EXPECT_EQ(failed.problem(), "it ended with status 3: last words");
  const auto killed = run_child({.program = "/bin/sh",
                                 .arguments = {"-c", "kill -SEGV $$"},
                                 .environment = {},
                                 .deadline = std::chrono::seconds(20)});
  EXPECT_NE(killed.problem().find("signal 11"), std::string::npos);
  const auto flood = run_child({.program = "/bin/sh",
                                .arguments = {"-c", "yes | head -c 4000000"},
                                .environment = {},
                                .deadline = std::chrono::seconds(20)});
  EXPECT_LE(flood.out.size(), 1u << 21);
  EXPECT_EQ(run_child({.program = "/no/such/program",
                       .arguments = {},
                       .environment = {},
                       .deadline = std::chrono::seconds(5)})
                .status,
            127);
}

TEST(Elf, NeededLibrariesAreRead) {
  const auto ours = needed_libraries("/proc/self/exe");
  EXPECT_TRUE(std::ranges::any_of(ours, [](const std::string& name) { return name.starts_with("libc.so"); }));
  EXPECT_TRUE(needed_libraries("/proc/cpuinfo").empty());
  EXPECT_TRUE(needed_libraries("/no/such/file").empty());
}

TEST(Program, PrintsPageJsonAndMarkdown) {
  const std::string box = std::string(ARB_BOXES_DIR) + "/sm120-8x-two-sockets";
  const auto page = test::run_command({ARB_PROGRAM, "probe", "--box", box});
  EXPECT_EQ(page.status, 0) << page.err;
  EXPECT_EQ(page.out, test::read_file(box + "/page.txt"));
  const auto json =
      test::run_command({ARB_PROGRAM, "probe", "--json", "--box", box, "--what-if", "toolkit=12.9"});
  EXPECT_EQ(nlohmann::json::parse(json.out).at("what_if").at("assumptions").at("toolkit"), "12.9");
  EXPECT_EQ(test::run_command({ARB_PROGRAM, "probe", "--box", "/no/such"}).status, 5);
  EXPECT_EQ(test::run_command({ARB_PROGRAM, "probe", "--what-if", "toolkit", "--box", box}).status, 1);
  EXPECT_EQ(test::run_command({ARB_PROGRAM, "probe", "--deep", "--box", box}).status, 1);
  EXPECT_EQ(test::run_command({ARB_PROGRAM, "probe", "--json", "--markdown", "--box", box}).status, 1);
}

TEST(Program, LooksAtThisMachineInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const auto said = test::run_command({ARB_PROGRAM, "probe", "--json"});
  EXPECT_EQ(said.status, 0) << said.err;
  EXPECT_EQ(nlohmann::json::parse(said.out).at("schema"), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20))
      << "two where nothing else runs";
  EXPECT_EQ(nlohmann::json::parse(probe_json(ARB_PROGRAM)).at("schema"), 1);
}

}  // namespace
}  // namespace arb::probe
