// Each recorded box: its page and its verdicts as golden files, and the verdicts that matter by rule id.
// ARB_UPDATE_GOLDEN=1 writes the golden files anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "errors.h"
#include "probe/box.h"
#include "probe/facts.h"
#include "probe/page.h"
#include "probe/probe.h"
#include "probe/rules.h"
#include "scratch.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const std::string& name) {
  return fs::path(ARB_BOXES_DIR) / name;
}

Facts facts_of(const std::string& name) {
  return find_facts(Box::recorded(folder_of(name)),
                    {.python = {}, .driver_cuda = built_in_rules().driver_cuda});
}

void compare_with_golden(const fs::path& path, const std::string& text) {
  if (std::getenv("ARB_UPDATE_GOLDEN") != nullptr) test::write_file(path, text);
  EXPECT_EQ(text, test::read_file(path)) << path << ": ARB_UPDATE_GOLDEN=1 writes it anew";
}

// "approach status kind rules", a line each.
std::string verdict_lines(const std::vector<Verdict>& verdicts) {
  std::string text;
  for (const Verdict& verdict : verdicts) {
    text += verdict.approach + " " + verdict.status;
    if (!verdict.kind.empty()) text += " [" + verdict.kind + "]";
    for (const Finding& finding : verdict.findings) text += " " + finding.rule;
    for (const std::string& unseen : verdict.not_seen)
      text += " (" + unseen.substr(0, unseen.find(':')) + ")";
    text += "\n";
  }
  return text;
}

std::string names(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

class RecordedBox : public testing::TestWithParam<std::string> {};

TEST_P(RecordedBox, HasItsPageAndVerdicts) {
  const Box box = Box::recorded(folder_of(GetParam()));
  compare_with_golden(folder_of(GetParam()) / "page.txt", report(box, {}));
  compare_with_golden(folder_of(GetParam()) / "verdicts.txt",
                      verdict_lines(judge(built_in_rules(), facts_of(GetParam()).map)));
}

TEST_P(RecordedBox, RedactedMarkdownNamesNobody) {
  const Box box = Box::recorded(folder_of(GetParam()));
  ProbeOptions options;
  options.output = Output::markdown;
  const std::string text = report(box, options);
  for (const char* const name : {"/home/", "ada", "turing", "GPU-0000"}) {
    EXPECT_EQ(text.find(name), std::string::npos) << name << " in\n" << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecordedBox,
                         testing::Values("sm120-8x-two-sockets", "sm120-8x-one-socket-switches",
                                         "rtx5090-2x-no-p2p", "dgx-8x-nvlink", "vm-2x", "container-small-shm",
                                         "no-gpu"),
                         names);

// What one approach got, as "STATUS rule rule".
std::string verdict_of(const std::string& box, const std::string& approach) {
  for (const Verdict& verdict : judge(built_in_rules(), facts_of(box).map)) {
    if (verdict.approach != approach) continue;
    std::string text = verdict.status;
    for (const Finding& finding : verdict.findings) text += " " + finding.rule;
    return text;
  }
  return "no such approach";
}

TEST(StartingCase, IsSeenAsItIs) {
  const Facts facts = facts_of("sm120-8x-two-sockets");
  EXPECT_FALSE(facts.shell_nvcc) << "no nvcc is on PATH";
  ASSERT_TRUE(facts.jit_nvcc);
  EXPECT_EQ(facts.jit_nvcc->version, "12.8");
  const Package* const torch = find_package(facts, "torch");
  ASSERT_NE(torch, nullptr);
  EXPECT_EQ(torch->version, "2.10.0+cu128");
  EXPECT_EQ(torch->cuda, "12.8");
  EXPECT_EQ(facts.map.at("cudnn.code").value, "91002");
  EXPECT_EQ(facts.map.at("cudnn.version").value, "9.10.2.21");
  EXPECT_EQ(facts.map.at("driver.cuda").value, "13.1");
  EXPECT_EQ(facts.map.at("topology.farthest").value, "SYS");
  EXPECT_EQ(facts.map.at("sgl_kernel.cuda").value, "12") << "from what its library links";
}

TEST(StartingCase, KnowsWhatANewerToolkitOpens) {
  const std::string box = "sm120-8x-two-sockets";
  EXPECT_EQ(verdict_of(box, "flashinfer_fusion"), "BLOCKED fusion-toolkit");
  EXPECT_EQ(verdict_of(box, "sglang_custom"), "BLOCKED sglang-nvlink");
  EXPECT_EQ(verdict_of(box, "torch_multimem"), "BLOCKED multimem-hardware");
  EXPECT_EQ(verdict_of(box, "nvls"), "BLOCKED multimem-hardware");
  EXPECT_EQ(verdict_of(box, "nccl_symmetric"), "WORKS symmetric-works") << "2.27 asks for peer access only";
  EXPECT_EQ(verdict_of(box, "torch_two_shot"), "UNKNOWN torch-atomics");
  EXPECT_EQ(verdict_of(box, "clusters"), "WORKS cluster-works");
  EXPECT_EQ(verdict_of(box, "arbench"), "WORKS own-works");

  const WhatIf upgrade = what_if(built_in_rules(), facts_of(box).map, {{"toolkit", "13.1"}});
  std::set<std::string> opens;
  for (const Change& change : upgrade.changes) {
    if (change.effect == "opens") opens.insert(change.approach);
    if (change.approach == "vllm_custom" || change.approach == "vllm_symm_mem" || change.approach == "nvls") {
      EXPECT_EQ(change.effect, "stays shut") << change.approach;
    }
  }
  EXPECT_EQ(opens, std::set<std::string>{"flashinfer_fusion"});
  EXPECT_EQ(upgrade.cheaper, "12.9");
  ASSERT_EQ(upgrade.chain.size(), 9u);
  EXPECT_EQ(upgrade.chain[0].rule, "driver-stays") << "the driver already supports 13.1";
  EXPECT_EQ(upgrade.chain[2].rule, "torch-13");
  EXPECT_EQ(upgrade.chain[6].rule, "sgl-kernel-13");
}

TEST(StartingCase, NewerNcclTakesSymmetricKernelsAway) {
  const Facts facts = facts_of("sm120-8x-two-sockets");
  for (const auto& [version, effect] : std::map<std::string, std::string>{
           {"2.28.9", "keeps working"}, {"2.29.7", "breaks"}, {"2.32.6", "breaks"}}) {
    for (const Change& change : what_if(built_in_rules(), facts.map, {{"nccl", version}}).changes) {
      if (change.approach == "nccl_symmetric") {
        EXPECT_EQ(change.effect, effect) << version;
      }
    }
  }
}

TEST(StartingCase, GenericSymmetricKernelsAreAskedForByName) {
  Facts facts = facts_of("sm120-8x-two-sockets");
  set_known(facts.map, "nccl.version", "2.31.2");
  const auto verdict = [&] {
    for (const Verdict& one : judge(built_in_rules(), facts.map))
      if (one.approach == "nccl_symmetric") return one.status + " " + one.findings.front().rule;
    return std::string();
  };
  EXPECT_EQ(verdict(), "BLOCKED symmetric-nvlink") << "they are off by default";
  set_known(facts.map, "env.NCCL_SYM_GENK_ENABLE", "1");
  EXPECT_EQ(verdict(), "UNKNOWN symmetric-generic");
}

TEST(StartingCase, ANewerFlashInferTakesTheOldToolkitForSm120Only) {
  Facts facts = facts_of("sm120-8x-two-sockets");
  set_known(facts.map, "flashinfer.version", "0.7.1");
  const auto status = [&] { return judge(built_in_rules(), facts.map).front().status; };
  EXPECT_EQ(status(), "WORKS") << "12.8 makes sm_120a";
  set_known(facts.map, "gpu.cc.max", "12.1");
  EXPECT_EQ(status(), "BLOCKED");
  set_known(facts.map, "toolkit.jit", "12.9");
  EXPECT_EQ(status(), "WORKS");
}

TEST(StartingCase, AToolkitNobodyHasHeardOfIsNotPromised) {
  Facts facts = facts_of("sm120-8x-two-sockets");
  const auto driver_rule = [&](const std::string& toolkit) {
    return what_if(built_in_rules(), facts.map, {{"toolkit", toolkit}}).chain.front().rule;
  };
  set_known(facts.map, "driver.cuda", "13.3");
  EXPECT_EQ(driver_rule("13.3"), "driver-stays");
  EXPECT_EQ(driver_rule("13.5"), "driver-minor");
  EXPECT_EQ(driver_rule("14.0"), "driver-unheard-of");
  EXPECT_EQ(driver_rule("12.8"), "driver-stays");
}

TEST(OneSocket, TheLibrarysTableStandsBeforeTheToolkit) {
  const std::string box = "sm120-8x-one-socket-switches";
  EXPECT_EQ(verdict_of(box, "flashinfer_fusion"), "BLOCKED fusion-table");
  EXPECT_EQ(verdict_of(box, "flashinfer_pcie"), "BLOCKED pcie-old");
  EXPECT_EQ(verdict_of(box, "vllm_custom"), "BLOCKED custom-nvlink");
  EXPECT_EQ(verdict_of(box, "vllm_symm_mem"), "BLOCKED engine-symm-table engine-symm-multicast");
  const Facts facts = facts_of(box);
  EXPECT_EQ(meeting_point(facts.gpus[0], facts.gpus[1]), "PIX");
  EXPECT_EQ(meeting_point(facts.gpus[0], facts.gpus[7]), "NODE");
  EXPECT_EQ(facts.map.at("acs.redirects").value, "true");
  EXPECT_EQ(facts.map.at("iommu.translates").value, "false");
  EXPECT_EQ(facts.map.at("vllm.cuda").value, "12");
  ASSERT_EQ(facts.compats.size(), 1u);
  EXPECT_FALSE(facts.compats[0].in_use);
}

TEST(Geforce, HasNoPeerAccessAndSaysWhose) {
  const std::string box = "rtx5090-2x-no-p2p";
  for (const char* const approach :
       {"flashinfer_fusion", "flashinfer_pcie", "vllm_custom", "torch_two_shot", "nccl_symmetric", "arbench"})
    EXPECT_EQ(verdict_of(box, approach), "BLOCKED p2p-geforce") << approach;
  EXPECT_EQ(verdict_of(box, "nccl_tuning"), "WORKS nccl-works");
}

TEST(Nvlink, RunsEverything) {
  for (const Verdict& verdict : judge(built_in_rules(), facts_of("dgx-8x-nvlink").map))
    EXPECT_EQ(verdict.status, "WORKS") << verdict.approach;
}

TEST(Nvlink, MulticastTurnedOffIsNotTried) {
  Facts facts = facts_of("dgx-8x-nvlink");
  set_known(facts.map, "env.TORCH_SYMM_MEM_DISABLE_MULTICAST", "1");
  set_known(facts.map, "env.NCCL_NVLS_ENABLE", "0");
  for (const Verdict& verdict : judge(built_in_rules(), facts.map)) {
    const std::string rule = verdict.findings.empty() ? "" : verdict.findings.front().rule;
    if (verdict.approach == "torch_multimem") {
      EXPECT_EQ(rule, "multimem-variable");
    }
    if (verdict.approach == "nvls") {
      EXPECT_EQ(rule, "nvls-variable");
    }
    if (verdict.approach == "torch_two_shot") {
      EXPECT_EQ(rule, "torch-works");
    }
    if (verdict.approach == "vllm_symm_mem") {
      EXPECT_EQ(rule, "engine-symm-multicast");
    }
  }
}

TEST(VirtualMachine, IsNamedAsTheReason) {
  EXPECT_EQ(verdict_of("vm-2x", "arbench"), "BLOCKED p2p-virtual-machine");
  EXPECT_EQ(facts_of("vm-2x").host.virtual_machine, "KVM (QEMU)");
  EXPECT_EQ(facts_of("vm-2x").python.chosen, "CONDA_PREFIX");
}

TEST(Container, SmallSharedMemoryAndAHiddenBusAreSaid) {
  EXPECT_EQ(verdict_of("container-small-shm", "nccl_tuning"), "UNKNOWN nccl-shm");
  EXPECT_EQ(verdict_of("container-small-shm", "nccl_symmetric"), "BLOCKED symmetric-nvlink") << "NCCL 2.30";
  EXPECT_EQ(verdict_of("container-small-shm", "flashinfer_fusion"), "UNKNOWN")
      << "whether the IOMMU translates is hidden";
  // The experiment answers what /sys hides.
  Facts facts = facts_of("container-small-shm");
  set_known(facts.map, "deep.p2p", "true");
  set_known(facts.map, "iommu.translates", "true");
  for (const Verdict& verdict : judge(built_in_rules(), facts.map)) {
    if (verdict.approach == "flashinfer_fusion") {
      EXPECT_EQ(verdict.status, "WORKS");
    }
  }
}

TEST(NoGpu, EveryVerdictSaysSo) {
  for (const Verdict& verdict : judge(built_in_rules(), facts_of("no-gpu").map)) {
    EXPECT_EQ(verdict.status, "BLOCKED");
    ASSERT_FALSE(verdict.findings.empty());
    EXPECT_TRUE(verdict.findings.front().rule == "two-gpus" ||
                verdict.findings.front().rule == "cluster-gpu");
  }
}

}  // namespace
}  // namespace arb::probe
