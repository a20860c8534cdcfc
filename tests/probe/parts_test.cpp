// Versions, conditions, the rules' file, and the JSON report's schema.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
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
#include "scratch.h"

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
    EXPECT_TRUE(std::ranges::any_of(sources,
                                    [](const std::string& source) {
                                      return source.find("https://") != std::string::npos ||
                                             source.find(" of this suite") != std::string::npos;
                                    }))
        << id << " has no public source";
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
  EXPECT_EQ(json.at("schema"), 2);
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

// A process that the kernel holds cannot be killed; here its corpse is kept by another process that traces it.
TEST(Child, OneThatCannotBeReapedIsLeftBehind) {
  const auto kept = run_child({.program = "/usr/bin/python3",
                               .arguments = {"-c", R"python(
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
me, (back, there) = os.getpid(), os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(there, b"y" if libc.ptrace(0x4206, me, None, None) == 0 else b"n")
    time.sleep(6)
    os._exit(0)
print(os.read(back, 1).decode(), flush=True)
time.sleep(60)
)python"},
                               .environment = {},
                               .deadline = std::chrono::seconds(3)});
  if (!kept.out.starts_with("y")) GTEST_SKIP() << "no Python that may trace: " << kept.out << kept.problem();
  EXPECT_TRUE(kept.lost);
  EXPECT_LT(kept.seconds, 5);
  EXPECT_NE(kept.problem().find("cannot be killed"), std::string::npos) << kept.problem();
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

TEST(Elf, SectionsAreRead) {
  EXPECT_NE(elf_section("/proc/self/exe", ".rodata").find("SectionsAreRead"), std::string::npos);
  EXPECT_TRUE(elf_section("/proc/self/exe", ".no-such").empty());
  EXPECT_TRUE(elf_section("/proc/cpuinfo", ".rodata").empty());
}

TEST(Record, IsMadeByAProcessOfItsOwnAndNamesNobody) {
  const test::Scratch scratch;
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = probe_json(ARB_PROGRAM);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2600));
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << "one line";
  const auto record = nlohmann::json::parse(text);
  EXPECT_EQ(record.at("schema"), 2);
  if (!record.contains("error")) {
    EXPECT_TRUE(record.at("facts").contains("toolkit.jit"));
  }
  // What a process that is told of a person and a home would have said.
  const auto said = test::run_command({ARB_PROGRAM, "probe-child", "record"},
                                      {.environment = {{"HOME", "/data/lovelace"},
                                                       {"USER", "lovelace"},
                                                       {"HOSTNAME", "turing.example.org"},
                                                       {"CUDA_HOME", "/data/lovelace/cuda"},
                                                       {"NCCL_P2P_LEVEL", "on turing for Lovelace1"}}});
  EXPECT_TRUE(nlohmann::json::accept(said.out)) << said.out << said.err;
  for (const char* const name : {"lovelace", "Lovelace", "turing", "example.org"})
    EXPECT_EQ(said.out.find(name), std::string::npos) << name;
  EXPECT_NE(said.out.find("~/cuda"), std::string::npos);
}

TEST(Record, IsInEveryResultsFolder) {
  const test::Scratch scratch;
  const std::string home = "/data/lovelace";
  const auto said = test::run_command(
      {ARB_PROGRAM, "run", "--emulate", "--ranks", "2", "-b", "1K", "-e", "1K", "--results",
       scratch.path() / "results"},
      {.environment = {{"HOME", home}, {"CUDA_HOME", home + "/cuda"}, {"USER", "lovelace"}}});
  ASSERT_EQ(said.status, 0) << said.err;
  for (const auto& run : std::filesystem::directory_iterator(scratch.path() / "results")) {
    for (const char* const file : {"environment.json", "benchmark.json"})
      EXPECT_EQ(test::read_file(run.path() / file).find("lovelace"), std::string::npos) << file;
    const auto environment = nlohmann::json::parse(test::read_file(run.path() / "environment.json"));
    EXPECT_EQ(environment.at("variables").at("CUDA_HOME"), "~/cuda");
    EXPECT_EQ(environment.at("probe").at("schema"), 2);
    EXPECT_EQ(environment["probe"].at("toolkits").at("just_in_time_why"),
              "CUDA_HOME is set to ~/cuda, which has no bin/nvcc");
    return;
  }
  FAIL() << "no results";
}

TEST(Record, OfAProgramThatHangsFailsOrLiesIsAnError) {
  const test::Scratch scratch;
  for (const char* const script : {"sleep 60", "exit 7", "echo nonsense", "echo '{}'", "kill -9 $$"}) {
    const std::filesystem::path program = scratch.path() / "program";
    test::write_file(program, std::string("#!/bin/sh\n") + script + "\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    const auto begin = std::chrono::steady_clock::now();
    const auto record = nlohmann::json::parse(probe_json(program));
    EXPECT_TRUE(record.at("error").is_string()) << script;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << script;
  }
  EXPECT_TRUE(nlohmann::json::parse(probe_json("/no/such/program")).contains("error"));
}

TEST(Program, RefusesAPythonThatIsNotThere) {
  for (const char* const python : {"/no/such/python", "./no-such", "no-such-python", "/etc/passwd"}) {
    const auto said = test::run_command({ARB_PROGRAM, "probe", "--python", python});
    EXPECT_EQ(said.status, 1) << python;
    EXPECT_NE(said.err.find("there is no such program or environment"), std::string::npos) << said.err;
  }
}

TEST(Program, TakesAPythonAsTheShellMeansIt) {
  const test::Scratch scratch;
  const std::filesystem::path env = scratch.path() / "env";
  test::write_file(env / "bin/python3.12", "#!/bin/sh\n");
  std::filesystem::permissions(env / "bin/python3.12", std::filesystem::perms::owner_all);
  test::write_file(env / "lib/python3.12/site-packages/torch-2.10.0+cu128.dist-info/METADATA",
                   "Name: torch\n");
  const auto relative = std::filesystem::relative(env / "bin/python3.12").string();
  for (const std::string& python : {relative, std::string("python3.12")}) {
    const auto said = test::run_command({ARB_PROGRAM, "probe", "--json", "--python", python},
                                        {.environment = {{"PATH", (env / "bin").string()}}});
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(nlohmann::json::parse(said.out).at("facts").at("torch.cuda").at("value"), "12.8") << python;
  }
}

TEST(Program, LooksAtThisMachineInTime) {
  const auto begin = std::chrono::steady_clock::now();
  const auto said = test::run_command({ARB_PROGRAM, "probe", "--json"});
  EXPECT_EQ(said.status, 0) << said.err;
  EXPECT_EQ(nlohmann::json::parse(said.out).at("schema"), 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20))
      << "two where nothing else runs";
}

}  // namespace
}  // namespace arb::probe
