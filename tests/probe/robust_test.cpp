// Boxes that are broken, hostile or odd: the probe says what it can and why it cannot say the rest.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "probe/box.h"
#include "probe/facts.h"
#include "probe/json.h"
#include "probe/probe.h"
#include "probe/rules.h"
#include "scratch.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

// The page and the JSON are made, and the JSON is strict.
nlohmann::json looked_at(const Box& box, ProbeOptions options = {}) {
  EXPECT_FALSE(report(box, options).empty());
  options.output = Output::markdown;
  EXPECT_FALSE(report(box, options).empty());
  options.output = Output::json;
  return nlohmann::json::parse(report(box, options));
}

TEST(Robust, NothingAtAll) {
  const auto json = looked_at(Box("/nonexistent", {}, {}, {}));
  EXPECT_GE(json["unseen"].size(), 5u);
  for (const auto& verdict : json["verdicts"]) EXPECT_NE(verdict["status"], "WORKS");
}

TEST(Robust, NobodyCouldBeAskedIsNotNoGpu) {
  Answers answers;
  answers.nvml_why = "NVML is gone";
  answers.driver_why = "the driver is gone";
  const auto json = looked_at(Box("/nonexistent", {}, answers, {}));
  EXPECT_EQ(json["facts"]["gpu.count"]["state"], "unknown");
  for (const auto& verdict : json["verdicts"]) EXPECT_EQ(verdict["status"], "UNKNOWN") << verdict["approach"];
}

TEST(Robust, GpusOnTheBusWithoutADriver) {
  const test::Scratch scratch;
  for (const char* const address : {"0000:01:00.0", "0000:02:00.0"}) {
    const fs::path device = scratch.path() / "sys/bus/pci/devices" / address;
    test::write_file(device / "vendor", "0x10de\n");
    test::write_file(device / "class", "0x030000\n");
  }
  Answers answers;
  answers.nvml_why = "NVML is gone";
  answers.driver_why = "the driver is gone";
  const auto json = looked_at(Box(scratch.path(), {}, answers, {}));
  EXPECT_EQ(json["facts"]["gpu.count"]["value"], "2");
  for (const auto& verdict : json["verdicts"]) {
    if (verdict["approach"] == "flashinfer_pcie" || verdict["approach"] == "arbench") {
      EXPECT_EQ(verdict["status"], "UNKNOWN");
    }
  }
}

TEST(Robust, SixteenGpus) {
  Answers answers;
  for (std::uint32_t i = 0; i < 16; ++i) {
    GpuAnswer gpu;
    gpu.index = gpu.ordinal.emplace(i);
    gpu.name = "NVIDIA B300";
    gpu.compute_capability = "10.3";
    answers.gpus.push_back(gpu);
    for (std::uint32_t j = 0; j < 16; ++j) {
      if (i != j) answers.pairs.push_back({i, j, "SYS", "ok", "ok", "ok", "ok", true});
    }
  }
  const auto json = looked_at(Box("/nonexistent", {}, answers, {}));
  EXPECT_EQ(json["gpus"].size(), 16u);
  EXPECT_EQ(json["pairs"].size(), 240u);
}

TEST(Robust, MixedAndOddAnswers) {
  Answers answers;
  answers.driver = "";
  answers.cuda_driver = "not a version";
  GpuAnswer odd;
  odd.index = 7;
  odd.name = std::string("bad \xff\xfe name");
  odd.pci_address = "::::";
  odd.compute_capability = "twelve";
  answers.gpus = {odd, {}};
  answers.pairs.push_back({7, 99, "moon", "perhaps", {}, {}, {}, {}});
  const auto json = looked_at(
      Box("/nonexistent", {{"PATH", "::relative:/nowhere"}, {"LD_LIBRARY_PATH", ":"}}, answers, {}));
  EXPECT_EQ(json["facts"]["gpu.cc.max"]["state"], "unknown");
}

TEST(Robust, WeirdFiles) {
  const test::Scratch scratch;
  const fs::path root = scratch.path();
  test::write_file(root / "usr/local/cuda/include/cuda.h", "#define CUDA_VERSION banana\n");
  test::write_file(root / "usr/local/cuda/version.json", R"({"cuda": {"version": )");
  test::write_file(root / "usr/local/cuda/bin/nvcc", "");
  test::write_file(root / "usr/local/cuda-99/bin/nvcc", "");
  fs::create_directory_symlink("loop", root / "usr/local/loop");
  fs::create_directory_symlink("/usr/local/cuda-loop2", root / "usr/local/cuda-loop1");
  fs::create_directory_symlink("/usr/local/cuda-loop1", root / "usr/local/cuda-loop2");
  fs::create_directory_symlink("../../../../../../etc", root / "usr/local/cuda-out");
  const fs::path site = root / "env/lib/python3.12/site-packages";
  test::write_file(root / "env/bin/python3", "");
  test::write_file(root / "env/pyvenv.cfg", "version\n");
  for (const char* const name : {"torch-.dist-info", "torch.dist-info", "-1.dist-info", ".dist-info",
                                 "vllm-1.2.dist-info", "triton-abc.dist-info"})
    test::write_file(site / name / "METADATA", "Name: torch\nVersion: 2.99.0a0+gitabc.cu999\n");
  test::write_file(site / "torch/version.py", "__version__ = \ncuda = None\n");
  test::write_file(site / "vllm/_C.so", std::string("\x7f"
                                                    "ELF\x02\x01\x01",
                                                    7) +
                                            std::string(200, '\xff'));
  ::mkfifo((root / "env/pipe").c_str(), 0600);
  fs::create_symlink("pipe", root / "env/version.json");
  test::write_file(root / "proc/cpuinfo", std::string(100'000, 'x'));
  test::write_file(root / "proc/driver/nvidia/version", "no numbers at all");
  test::write_file(root / "proc/driver/nvidia/params", "::::\n:\nRegistryDwords:");
  const auto json = looked_at(Box(
      root,
      {{"VIRTUAL_ENV", "/env"}, {"CUDA_HOME", "/usr/local/cuda-99"}, {"CUDA_VISIBLE_DEVICES", "7,GPU-x,-1"}},
      {}, {}));
  EXPECT_EQ(json["toolkits"]["just_in_time"]["version"], nullptr);
  EXPECT_EQ(json["facts"]["torch.version"]["value"], "2.99.0a0+gitabc.cu999");
}

TEST(Robust, UnreadableFoldersAreSaid) {
  const test::Scratch scratch;
  test::write_file(scratch.path() / "env/bin/python3", "");
  ProbeOptions options;
  options.python = "/env";
  const auto json = looked_at(Box(scratch.path(), {}, {}, {}), options);
  bool said = false;
  for (const auto& unseen : json["unseen"]) said = said || unseen["what"] == "Python packages";
  EXPECT_TRUE(said);
  options.python = "/no/such/python";
  const auto gone = looked_at(Box(scratch.path(), {}, {}, {}), options);
  EXPECT_EQ(gone["facts"]["torch.version"]["state"], "unknown");
}

TEST(Robust, AToolkitHomeWithoutACompilerIsNoCompiler) {
  const test::Scratch scratch;
  test::write_file(scratch.path() / "usr/local/cuda/bin/nvcc", "");
  const auto json = looked_at(Box(scratch.path(), {{"CUDA_HOME", "/opt/none"}}, {}, {}));
  EXPECT_EQ(json["toolkits"]["just_in_time"], nullptr);
  EXPECT_EQ(json["toolkits"]["just_in_time_why"], "CUDA_HOME is set to /opt/none, which has no bin/nvcc");
}

TEST(Robust, LinksStayInsideTheBox) {
  const test::Scratch scratch;
  test::write_file(scratch.path() / "root/a/file", "inside");
  fs::create_symlink("../../../../../../../etc/passwd", scratch.path() / "root/a/out");
  fs::create_symlink("/a/file", scratch.path() / "root/a/absolute");
  const Box box(scratch.path() / "root", {}, {}, {});
  EXPECT_EQ(box.line("/a/absolute"), "inside");
  EXPECT_FALSE(box.line("/a/out"));
  EXPECT_EQ(box.resolve("/a/../a/./file"), "/a/file");
}

}  // namespace
}  // namespace arb::probe
