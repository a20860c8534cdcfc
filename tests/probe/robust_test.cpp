// Boxes that are broken, hostile or odd: the probe says what it can and why it cannot say the rest.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "errors.h"
#include "probe/box.h"
#include "probe/facts.h"
#include "probe/json.h"
#include "probe/probe.h"
#include "probe/rules.h"
#include "scratch.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

void write_program(const fs::path& path) {
  test::write_file(path, "#!/bin/sh\n");
  fs::permissions(path, fs::perms::owner_all);
}

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
  EXPECT_THROW((void)report(Box(scratch.path(), {}, {}, {}), options), UsageError);
}

TEST(Robust, GarbageInTorchsVersionFileIsNoVersion) {
  const test::Scratch scratch;
  const fs::path site = scratch.path() / "env/lib/python3.12/site-packages";
  test::write_file(scratch.path() / "env/bin/python3", "");
  test::write_file(site / "torch-2.10.0+cu128.dist-info/METADATA", "Name: torch\nVersion: 2.10.0+cu128\n");
  std::string garbage = "__version__ = '\x1b]0;owned\x07\xff'\ncuda = '\x1b[2J'\n";
  for (int i = 0; i < 4096; ++i) garbage += static_cast<char>(i * 37);
  test::write_file(site / "torch/version.py", garbage);
  const Box box(scratch.path(), {{"VIRTUAL_ENV", "/env"}}, {}, {});
  const auto json = looked_at(box);
  EXPECT_EQ(json["facts"]["torch.version"]["value"], "2.10.0+cu128");
  EXPECT_EQ(json["facts"]["torch.cuda"]["value"], "12.8") << "by the version's suffix";
}

TEST(Robust, NothingSteersTheTerminal) {
  const test::Scratch scratch;
  const Box box(scratch.path(),
                {{"CUDA_HOME",
                  "/opt/\x1b[31m\xc2\x9b"
                  "2J``` | x\ny"},
                 {"NCCL_ALGO", "\x07"}},
                {}, {});
  ProbeOptions options;
  for (const Output output : {Output::page, Output::markdown}) {
    options.output = output;
    const std::string text = report(box, options);
    EXPECT_TRUE(
        std::ranges::all_of(text, [](unsigned char c) { return c == '\n' || (c >= 0x20 && c != 0x7f); }));
    EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
    if (output == Output::markdown) {
      EXPECT_EQ(text.find("2J```"), std::string::npos) << "a fence that ends early";
    }
  }
}

TEST(Robust, LoopsOfLinksEnd) {
  const test::Scratch scratch;
  const fs::path site = scratch.path() / "env/lib/python3.12/site-packages";
  test::write_file(scratch.path() / "env/bin/python3", "");
  fs::create_directories(site / "nvidia/nccl");
  fs::create_directory_symlink("..", site / "nvidia/nccl/lib");
  fs::create_symlink("libnccl.so.3", site / "nvidia/libnccl.so.2");
  fs::create_symlink("libnccl.so.2", site / "nvidia/libnccl.so.3");
  fs::create_symlink("torch.dist-info", site / "torch.dist-info");
  fs::create_symlink("torch", site / "torch");
  fs::create_directory_symlink(".", site / "sgl_kernel");
  test::write_file(site / "sgl_kernel-1.0.dist-info/METADATA", "Name: sgl-kernel\n");
  const auto json = looked_at(Box(scratch.path(), {{"VIRTUAL_ENV", "/env"}}, {}, {}));
  EXPECT_EQ(json["facts"]["sgl_kernel.version"]["value"], "1.0");
  EXPECT_EQ(json["facts"]["nccl.version"]["state"], "absent");
}

TEST(Robust, OtherEnvironmentsAreNamed) {
  const test::Scratch scratch;
  const fs::path root = scratch.path();
  const auto environment = [&](const std::string& prefix, const std::string& torch) {
    write_program(root / prefix / "bin/python3");
    test::write_file(
        root / prefix / "lib/python3.12/site-packages" / ("torch-" + torch + ".dist-info") / "METADATA",
        "Name: torch\n");
  };
  environment("active", "2.8.0");
  environment("home/ada/miniconda3/envs/serve", "2.10.0");
  environment("pathed", "2.9.0");
  test::write_file(root / "home/ada/miniconda3/envs/serve/bin/nvcc", "");
  test::write_file(root / "home/ada/miniconda3/envs/serve/include/cuda.h", "#define CUDA_VERSION 12090\n");
  const std::map<std::string, std::string> variables = {
      {"VIRTUAL_ENV", "/active"}, {"PATH", "/pathed/bin:/active/bin"}, {"HOME", "/home/ada"}};
  const auto json = looked_at(Box(root, variables, {}, {}));
  EXPECT_EQ(json["facts"]["torch.version"]["value"], "2.8.0");
  ASSERT_EQ(json["python"]["others"].size(), 2u);
  EXPECT_EQ(json["python"]["others"][0]["prefix"], "/pathed");
  EXPECT_EQ(json["python"]["others"][1]["packages"][0]["version"], "2.10.0");
  EXPECT_EQ(json["facts"]["toolkit.newest"]["value"], "12.9") << "every environment's nvcc is listed";
  ProbeOptions options;
  options.python = "/pathed/bin/python3";
  EXPECT_EQ(looked_at(Box(root, variables, {}, {}), options)["facts"]["torch.version"]["value"], "2.9.0");
}

TEST(Robust, PackagesAreFoundInPythonsOwnOrder) {
  const test::Scratch scratch;
  const fs::path root = scratch.path();
  write_program(root / "usr/bin/python3.12");
  fs::create_symlink("python3.12", root / "usr/bin/python3");
  const auto torch = [&](const std::string& folder, const std::string& version) {
    test::write_file(root / folder / ("torch-" + version + ".dist-info") / "METADATA", "Name: torch\n");
  };
  std::map<std::string, std::string> variables = {{"PATH", "/usr/bin"}, {"HOME", "/home/ada"}};
  const auto found = [&] {
    return looked_at(Box(root, variables, {}, {}))["facts"]["torch.version"]["value"].get<std::string>();
  };
  torch("usr/lib/python3/dist-packages", "1.0");
  EXPECT_EQ(found(), "1.0");
  torch("usr/local/lib/python3.12/dist-packages", "2.0");
  EXPECT_EQ(found(), "2.0");
  torch("home/ada/.local/lib/python3.12/site-packages", "3.0");
  EXPECT_EQ(found(), "3.0") << "the user's own come first";
  torch("extra", "4.0");
  variables["PYTHONPATH"] = "/extra";
  EXPECT_EQ(found(), "4.0");
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
