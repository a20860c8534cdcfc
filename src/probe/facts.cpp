#include "probe/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "probe/version.h"

namespace arb::probe {
namespace {

constexpr std::array distances{"PIX", "PXB", "PHB", "NODE", "SYS"};

std::string truth(bool value) {
  return value ? "true" : "false";
}

// Sets a fact that is true when all say yes and false when one says no; unknown when one does not say.
template <typename Range, typename Ask>
void set_all(FactMap& map, const std::string& name, const Range& range, Ask ask, const std::string& why) {
  bool all_said = true;
  for (const auto& one : range) {
    const std::optional<bool> said = ask(one);
    if (said == false) {
      set_known(map, name, "false");
      return;
    }
    all_said = all_said && said.has_value();
  }
  if (all_said && std::begin(range) != std::end(range)) {
    set_known(map, name, "true");
  } else {
    set_unknown(map, name, why);
  }
}

std::optional<bool> is_ok(const std::optional<std::string>& status) {
  if (!status || *status == "unknown") return std::nullopt;
  return *status == "ok";
}

void set_text(FactMap& map, const std::string& name, const std::string& value, const std::string& why) {
  if (value.empty()) {
    set_unknown(map, name, why);
  } else {
    set_known(map, name, value);
  }
}

void name_gpus(const Box& box, Facts& facts) {
  FactMap& map = facts.map;
  const Answers& answers = box.answers();
  const bool asked = answers.nvml_why.empty() || answers.driver_why.empty();
  const std::string no_answer = !answers.nvml_why.empty() ? "NVML could not be asked" : "NVML does not say";
  const std::string no_driver =
      !answers.driver_why.empty() ? "the CUDA driver could not be asked" : "the driver does not say";
  if (facts.gpus.empty() && !asked && !box.is_folder("/sys/bus/pci/devices")) {
    set_unknown(map, "gpu.count", "neither NVML nor the driver nor /sys could be asked");
  } else {
    set_known(map, "gpu.count", std::to_string(facts.gpus.size()));
  }
  const std::string none = "there is no GPU";
  std::optional<Version> low;
  std::optional<Version> high;
  std::string low_text;
  std::string high_text;
  bool all_known = !facts.gpus.empty();
  std::set<std::string> names;
  for (const Gpu& gpu : facts.gpus) {
    const auto capability = Version::parse(gpu.answer.compute_capability.value_or(""));
    all_known = all_known && capability.has_value();
    if (gpu.answer.name) names.insert(*gpu.answer.name);
    if (!capability) continue;
    if (!low || *capability < *low) {
      low = capability;
      low_text = *gpu.answer.compute_capability;
    }
    if (!high || *capability > *high) {
      high = capability;
      high_text = *gpu.answer.compute_capability;
    }
  }
  const std::string why_capability = facts.gpus.empty() ? none : no_answer;
  set_text(map, "gpu.cc.min", all_known ? low_text : "", why_capability);
  set_text(map, "gpu.cc.max", all_known ? high_text : "", why_capability);
  set_text(map, "gpu.name",
           names.size() == 1 ? *names.begin()
           : names.empty()   ? ""
                             : "several models",
           why_capability);
  if (names.empty()) {
    set_unknown(map, "gpu.geforce", why_capability);
  } else {
    set_known(map, "gpu.geforce", truth(std::ranges::any_of(names, [](const std::string& name) {
                return name.find("GeForce") != std::string::npos;
              })));
  }
  set_all(
      map, "gpu.multicast", facts.gpus, [](const Gpu& gpu) { return gpu.answer.multicast; },
      facts.gpus.empty() ? none : no_driver);
  set_all(
      map, "gpu.vmm", facts.gpus, [](const Gpu& gpu) { return gpu.answer.vmm_file_descriptor; },
      facts.gpus.empty() ? none : no_driver);
  set_all(
      map, "gpu.cluster", facts.gpus, [](const Gpu& gpu) { return gpu.answer.cluster_launch; },
      facts.gpus.empty() ? none : no_driver);
  set_all(
      map, "bar1.covers_memory", facts.gpus,
      [](const Gpu& gpu) -> std::optional<bool> {
        if (!gpu.answer.bar1_bytes || !gpu.answer.memory_bytes) return std::nullopt;
        return *gpu.answer.bar1_bytes >= *gpu.answer.memory_bytes;
      },
      facts.gpus.empty() ? none : no_answer);
  const auto any_of = [&](const std::string& name, auto ask, const std::string& why) {
    // "Some GPU does": the opposite of "all do not".
    set_all(
        map, name, facts.gpus,
        [&](const Gpu& gpu) -> std::optional<bool> {
          const std::optional<bool> said = ask(gpu);
          return said ? std::optional(!*said) : std::nullopt;
        },
        why);
    Fact& fact = map[name];
    if (fact.state == Fact::State::known) fact.value = truth(fact.value == "false");
  };
  any_of(
      "iommu.translates", [](const Gpu& gpu) { return gpu.iommu_translates; },
      facts.gpus.empty()
          ? none
          : "/sys does not show the GPUs' IOMMU groups; arbench probe --deep verifies every pair instead");
  any_of(
      "acs.redirects", [](const Gpu& gpu) { return gpu.acs_redirects; },
      facts.gpus.empty() ? none : "the ports' configuration space could not be read");

  // NVML's pairs, which rules about peers speak of; one GPU has none.
  const std::string why_pairs = facts.gpus.size() < 2 ? "there are not two GPUs" : no_answer;
  set_all(
      map, "p2p.read", facts.pairs, [](const PairAnswer& pair) { return is_ok(pair.p2p_read); }, why_pairs);
  set_all(
      map, "p2p.write", facts.pairs, [](const PairAnswer& pair) { return is_ok(pair.p2p_write); }, why_pairs);
  set_all(
      map, "p2p.atomics", facts.pairs, [](const PairAnswer& pair) { return is_ok(pair.p2p_atomics); },
      why_pairs);
  set_all(
      map, "nvlink.full", facts.pairs, [](const PairAnswer& pair) { return is_ok(pair.p2p_nvlink); },
      why_pairs);
  set_all(
      map, "p2p.all", facts.pairs,
      [](const PairAnswer& pair) -> std::optional<bool> {
        const auto read = is_ok(pair.p2p_read);
        const auto write = is_ok(pair.p2p_write);
        if (pair.driver_access == false || read == false || write == false) return false;
        if (pair.driver_access == true) return true;
        if (read && write) return true;
        return std::nullopt;
      },
      why_pairs);
  std::string reason;
  for (const PairAnswer& pair : facts.pairs) {
    if (pair.p2p_write && *pair.p2p_write != "ok") reason = *pair.p2p_write;
    if (reason.empty() && pair.p2p_read && *pair.p2p_read != "ok") reason = *pair.p2p_read;
  }
  set_text(map, "p2p.reason", reason, "NVML gives no reason");

  std::size_t farthest = 0;
  bool placed = facts.gpus.size() >= 2;
  for (std::size_t a = 0; a < facts.gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < facts.gpus.size(); ++b) {
      std::string word = meeting_point(facts.gpus[a], facts.gpus[b]);
      if (word.empty()) {
        for (const PairAnswer& pair : facts.pairs) {
          if (pair.from == facts.gpus[a].answer.index && pair.to == facts.gpus[b].answer.index)
            word = pair.common_ancestor.value_or("");
        }
      }
      const auto at = std::ranges::find(distances, word);
      placed = placed && at != distances.end();
      if (at != distances.end())
        farthest = std::max(farthest, static_cast<std::size_t>(at - distances.begin()));
    }
  }
  set_text(
      map, "topology.farthest", placed ? distances.at(farthest) : "",
      facts.gpus.size() < 2 ? "there are not two GPUs" : "neither /sys nor NVML says where the GPUs meet");
  std::set<int> nodes;
  bool nodes_known = !facts.gpus.empty();
  for (const Gpu& gpu : facts.gpus) {
    nodes_known = nodes_known && gpu.numa_node.has_value();
    if (gpu.numa_node) nodes.insert(*gpu.numa_node);
  }
  set_text(map, "topology.numa_nodes", nodes_known ? std::to_string(nodes.size()) : "",
           facts.gpus.empty() ? none : "/sys does not say");
}

void name_software(const Box& box, Facts& facts) {
  FactMap& map = facts.map;
  set_text(map, "driver.version", facts.driver, "no NVIDIA driver was found");
  set_text(map, "driver.cuda", facts.driver_cuda,
           facts.driver.empty() ? "no NVIDIA driver was found" : "this driver's CUDA is not in the table");
  if (facts.jit_nvcc && !facts.jit_nvcc->version.empty()) {
    set_known(map, "toolkit.jit", facts.jit_nvcc->version);
  } else if (facts.jit_nvcc) {
    set_unknown(map, "toolkit.jit", fmt::format("{} does not say its version", facts.jit_nvcc->path));
  } else {
    set_absent(map, "toolkit.jit", facts.jit_why);
  }
  std::optional<Version> newest;
  std::string newest_text;
  for (const Nvcc& nvcc : facts.nvccs) {
    const auto version = Version::parse(nvcc.version);
    if (!version || (newest && *version <= *newest)) continue;
    newest = version;
    newest_text = nvcc.version;
  }
  if (newest) {
    set_known(map, "toolkit.newest", newest_text);
  } else {
    set_absent(map, "toolkit.newest", "no nvcc was found");
  }

  const bool looked = !facts.python.packages_folders.empty();
  const auto package = [&](const std::string& fact, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      const Package* found = find_package(facts, name);
      if (found == nullptr) continue;
      set_text(map, fact + ".version", found->version, "its version cannot be read");
      set_text(map, fact + ".cuda", found->cuda, "its files do not say for which CUDA it was built");
      return;
    }
    const std::string name(*names.begin());
    for (const char* const part : {".version", ".cuda"}) {
      if (looked) {
        set_absent(map, fact + part, fmt::format("{} is not in this Python", name));
      } else {
        set_unknown(map, fact + part, "no Python environment could be looked into");
      }
    }
  };
  package("torch", {"torch"});
  package("triton", {"triton"});
  package("flashinfer", {"flashinfer-python"});
  package("flashinfer.jit_cache", {"flashinfer-jit-cache"});
  package("vllm", {"vllm"});
  package("sglang", {"sglang"});
  package("sgl_kernel", {"sglang-kernel", "sgl-kernel"});

  // What PyTorch loads: the library in its own environment, else the loader's first.
  const auto library = [&](const std::string& fact, std::string_view kind) {
    const Library* chosen = nullptr;
    for (const Library& one : facts.libraries) {
      if (one.kind != kind || one.version.empty()) continue;
      if (one.source == "Python") {
        chosen = &one;
        break;
      }
      if (chosen == nullptr) chosen = &one;
    }
    if (chosen == nullptr) {
      set_absent(map, fact + ".version", fmt::format("no {} was found", kind));
      set_absent(map, fact + ".cuda", fmt::format("no {} was found", kind));
      return;
    }
    set_known(map, fact + ".version", chosen->version);
    set_text(map, fact + ".cuda", chosen->cuda,
             "neither its name nor its package says for which CUDA it was built");
  };
  library("nccl", "libnccl");
  library("cudnn", "libcudnn");
  library("cudart", "libcudart");
  library("nvrtc", "libnvrtc");
  if (const auto code = encode_cudnn(map["cudnn.version"].value);
      code && map["cudnn.version"].state == Fact::State::known)
    set_known(map, "cudnn.code", std::to_string(*code));

  // Environment variables that rules ask for: set to what, or known not to be set.
  for (const char* const name :
       {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_NVLS_ENABLE",
        "NCCL_SHM_DISABLE", "NCCL_CUMEM_ENABLE", "NCCL_WIN_ENABLE", "NCCL_SYM_GENK_ENABLE", "NCCL_PROTO",
        "NCCL_ALGO", "NCCL_MIN_NCHANNELS", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "VLLM_NCCL_SO_PATH",
        "FLASHINFER_CUDA_ARCH_LIST", "TRITON_PTXAS_PATH"}) {
    const std::string fact = std::string("env.") + name;
    if (const auto value = box.variable(name)) {
      set_known(map, fact, *value);
    } else {
      set_absent(map, fact, "it is not set");
    }
  }
}

}  // namespace

void set_known(FactMap& map, const std::string& name, std::string value) {
  map[name] = {Fact::State::known, std::move(value), {}};
}
void set_absent(FactMap& map, const std::string& name, std::string why) {
  map[name] = {Fact::State::absent, {}, std::move(why)};
}
void set_unknown(FactMap& map, const std::string& name, std::string why) {
  map[name] = {Fact::State::unknown, {}, std::move(why)};
}

void name_facts(const Box& box, Facts& facts) {
  name_gpus(box, facts);
  name_software(box, facts);
  FactMap& map = facts.map;
  const Host& host = facts.host;
  if (host.is_virtual) {
    set_known(map, "host.virtual", truth(*host.is_virtual));
  } else {
    set_unknown(map, "host.virtual", "neither /proc/cpuinfo nor /sys/class/dmi says");
  }
  set_known(map, "host.container", truth(!host.container.empty()));
  if (host.shared_memory) {
    set_known(map, "shm.mib", std::to_string(host.shared_memory->size_bytes >> 20));
  } else {
    set_unknown(map, "shm.mib", "/dev/shm could not be asked");
  }
  // What only experiments tell.
  for (const char* const name : {"deep.p2p", "deep.vmm", "deep.ipc", "deep.cluster", "deep.torch_two_shot",
                                 "deep.sm_120", "deep.sm_120a", "deep.sm_120f"})
    set_unknown(map, name, "only an experiment tells; arbench probe --deep makes it");
}

Facts find_facts(const Box& box, const FactOptions& options) {
  Facts facts;
  find_toolkits(box, facts);
  find_python(box, options.python, facts);
  find_libraries(box, facts);
  find_gpus(box, options, facts);
  find_host(box, facts);
  name_facts(box, facts);
  return facts;
}

}  // namespace arb::probe
