// GPUs, the links between them and the host around them, from the answers and from /sys and /proc.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>

#include "probe/facts.h"
#include "probe/version.h"
#include "text.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view pci_devices = "/sys/bus/pci/devices";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "0000:17:00.0" of "00000000:17:00.0": the kernel writes four digits of the domain, NVML eight.
std::string kernel_address(std::string address) {
  std::ranges::transform(address, address.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::size_t colon = address.find(':');
  if (colon != std::string::npos && colon > 4) address = address.substr(colon - 4);
  return address;
}

bool is_pci_address(std::string_view name) {
  return name.size() == 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

// The ports above a device, outermost first: the PCI addresses on its path but for itself.
std::vector<std::string> ports_above(const std::string& pci_path) {
  std::vector<std::string> ports;
  for (const fs::path& part : fs::path(pci_path)) {
    if (is_pci_address(part.string())) ports.push_back(part.string());
  }
  if (!ports.empty()) ports.pop_back();
  return ports;
}

// "pci0000:00" of a path: the host bridge.
std::string host_bridge(const std::string& pci_path) {
  for (const fs::path& part : fs::path(pci_path)) {
    if (part.string().starts_with("pci0") || part.string().starts_with("pci1")) return part.string();
  }
  return {};
}

struct Link {
  double speed = 0;  // GT/s
  int width = 0;
};

std::optional<Link> link_of(const Box& box, const std::string& device, const char* kind) {
  const auto speed = box.line(fmt::format("{}/{}/{}_link_speed", pci_devices, device, kind));
  const auto width = box.line(fmt::format("{}/{}/{}_link_width", pci_devices, device, kind));
  if (!speed || !width) return std::nullopt;
  Link link;
  if (const auto number = Version::parse(*speed)) {
    link.speed = static_cast<double>(number->part(0)) + static_cast<double>(number->part(1)) / 10;
  }
  if (const auto number = Version::parse(*width)) link.width = static_cast<int>(number->part(0));
  if (link.speed <= 0 || link.width <= 0 || link.width > 32) return std::nullopt;
  return link;
}

// Whether a port's access control sends peer-to-peer requests or completions up to the root; absent where the
// configuration space cannot be read (all of it needs root).
std::optional<bool> acs_redirects(const Box& box, const std::string& port) {
  constexpr std::size_t header_bytes = 64;
  constexpr std::size_t first_capability = 0x100;
  constexpr unsigned acs_capability = 0x000D;
  constexpr unsigned redirect_bits = 0x04 | 0x08 | 0x20;  // request, completion, egress control
  const auto config = box.read(fmt::format("{}/{}/config", pci_devices, port), 4096).text;
  if (!config || config->size() <= header_bytes) return std::nullopt;
  const auto word = [&](std::size_t at, std::size_t bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes && at + i < config->size(); ++i)
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>((*config)[at + i])) << (8 * i);
    return value;
  };
  std::size_t at = first_capability;
  for (int steps = 0; at >= first_capability && at + 8 <= config->size() && steps < 64; ++steps) {
    const std::uint32_t head = word(at, 4);
    if ((head & 0xFFFF) == acs_capability) return (word(at + 6, 2) & redirect_bits) != 0;
    at = head >> 20;
  }
  return false;
}

// PCI addresses of NVIDIA's display controllers and accelerators as /sys shows them.
std::vector<std::string> nvidia_devices(const Box& box) {
  std::vector<std::string> found;
  for (const std::string& address : box.list(pci_devices)) {
    const std::string folder = fmt::format("{}/{}", pci_devices, address);
    if (box.line(folder + "/vendor").value_or("") != "0x10de") continue;
    const std::string kind = box.line(folder + "/class").value_or("");
    if (kind.starts_with("0x0300") || kind.starts_with("0x0302")) found.push_back(address);
  }
  return found;
}

void add_sys(const Box& box, Gpu& gpu) {
  if (!gpu.answer.pci_address) return;
  const std::string address = kernel_address(*gpu.answer.pci_address);
  gpu.answer.pci_address = address;
  const std::string folder = fmt::format("{}/{}", pci_devices, address);
  gpu.pci_path = box.resolve(folder).value_or("");
  if (gpu.pci_path.empty()) return;
  if (const auto node = box.line(folder + "/numa_node")) {
    if (!node->starts_with('-') && Version::parse(*node))
      gpu.numa_node = static_cast<int>(Version::parse(*node)->part(0));
  }
  if (const auto own = link_of(box, address, "current"); own) {
    const auto generation = [](double speed) -> std::uint32_t {
      return speed >= 64 ? 6 : speed >= 32 ? 5 : speed >= 16 ? 4 : speed >= 8 ? 3 : speed >= 5 ? 2 : 1;
    };
    if (!gpu.answer.pcie_generation) gpu.answer.pcie_generation = generation(own->speed);
    if (!gpu.answer.pcie_width_lanes) gpu.answer.pcie_width_lanes = static_cast<std::uint32_t>(own->width);
    if (const auto most = link_of(box, address, "max"); most) {
      if (!gpu.answer.pcie_generation_max) gpu.answer.pcie_generation_max = generation(most->speed);
      if (!gpu.answer.pcie_width_max_lanes)
        gpu.answer.pcie_width_max_lanes = static_cast<std::uint32_t>(most->width);
    }
  }
  if (const auto most = link_of(box, address, "max")) {
    for (const std::string& port : ports_above(gpu.pci_path)) {
      const auto able = link_of(box, port, "max");
      if (able && able->speed * able->width < most->speed * most->width)
        gpu.slowest_hop = fmt::format("{} GT/s x{} at {}", shortest(able->speed), able->width, port);
    }
  }
  if (const auto group = box.resolve(folder + "/iommu_group")) {
    const std::string type = box.line(*group + "/type").value_or("");
    if (!type.empty()) gpu.iommu_translates = type != "identity";
  } else if (box.list("/sys/kernel/iommu_groups").empty() && box.is_folder("/sys/class")) {
    gpu.iommu_translates = false;
  }
  bool any_known = false;
  bool all_known = true;
  bool redirects = false;
  for (const std::string& port : ports_above(gpu.pci_path)) {
    const auto one = acs_redirects(box, port);
    any_known = any_known || one.has_value();
    all_known = all_known && one.has_value();
    redirects = redirects || one.value_or(false);
  }
  if (redirects || (any_known && all_known)) gpu.acs_redirects = redirects;
  if (const auto module = box.resolve(folder + "/driver"))
    gpu.driver_module = fs::path(*module).filename().string();
}

// "590" of "590.44.01".
std::string branch_of(const std::string& driver) {
  return driver.substr(0, driver.find('.'));
}

std::string first_value(const std::string& text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return {};
  const std::size_t colon = text.find(':', at);
  const std::size_t begin = text.find_first_not_of(" \t", colon + 1);
  if (colon == std::string::npos || begin == std::string::npos) return {};
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::optional<int> counted(const std::set<std::string>& values) {
  if (values.empty()) return std::nullopt;
  return static_cast<int>(values.size());
}

void find_virtualisation(const Box& box, Facts& facts, const std::optional<std::string>& cpuinfo) {
  Host& host = facts.host;
  const std::string vendor = box.line("/sys/class/dmi/id/sys_vendor").value_or("");
  const std::string product = box.line("/sys/class/dmi/id/product_name").value_or("");
  const std::string hypervisor = box.line("/sys/hypervisor/type").value_or("");
  if (cpuinfo) {
    const std::string flags = first_value(*cpuinfo, "flags");
    if (!flags.empty()) host.is_virtual = contains(" " + flags + " ", " hypervisor ");
  }
  for (const auto& [mark, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"QEMU", "KVM (QEMU)"},
                                                                  {"KVM", "KVM"},
                                                                  {"VMware", "VMware"},
                                                                  {"Xen", "Xen"},
                                                                  {"Virtual Machine", "Hyper-V"},
                                                                  {"VirtualBox", "VirtualBox"},
                                                                  {"Amazon EC2", "Amazon EC2"},
                                                                  {"Google Compute", "Google Compute Engine"},
                                                                  {"Firecracker", "Firecracker"}}) {
    if (contains(vendor, mark) || contains(product, mark)) {
      if (std::string_view(mark) == "Amazon EC2" && host.is_virtual == false) break;  // its bare-metal kinds
      host.virtual_machine = name;
      host.is_virtual = true;
      break;
    }
  }
  if (host.virtual_machine.empty() && host.is_virtual == true)
    host.virtual_machine = hypervisor.empty() ? "a hypervisor that does not name itself" : hypervisor;
  if (!host.is_virtual)
    facts.unseen.push_back({"whether this is a virtual machine",
                            "/proc/cpuinfo names no flags and /sys/class/dmi says nothing"});

  if (box.is_file("/.dockerenv")) {
    host.container = "Docker";
  } else if (box.is_file("/run/.containerenv")) {
    host.container = "Podman";
  } else if (box.variable("KUBERNETES_SERVICE_HOST")) {
    host.container = "Kubernetes";
  } else if (const auto cgroup = box.read("/proc/1/cgroup").text; cgroup) {
    if (contains(*cgroup, "docker")) host.container = "Docker";
    if (contains(*cgroup, "kubepods")) host.container = "Kubernetes";
    if (contains(*cgroup, "lxc")) host.container = "LXC";
  }
  if (host.container.empty()) {
    if (const auto named = box.variable("container")) host.container = *named;
  }
}

}  // namespace

std::string meeting_point(const Gpu& a, const Gpu& b) {
  if (a.pci_path.empty() || b.pci_path.empty()) return {};
  const std::vector<std::string> above_a = ports_above(a.pci_path);
  const std::vector<std::string> above_b = ports_above(b.pci_path);
  std::size_t shared = 0;
  while (shared < above_a.size() && shared < above_b.size() && above_a[shared] == above_b[shared]) ++shared;
  if (host_bridge(a.pci_path) == host_bridge(b.pci_path)) {
    if (shared == 0) return "PHB";
    // Under one root port: a switch's upstream port and one downstream port each are left when it is one
    // switch.
    const std::size_t deepest = std::max(above_a.size(), above_b.size()) - shared;
    return deepest <= 1 ? "PIX" : "PXB";
  }
  if (a.numa_node && b.numa_node) return *a.numa_node == *b.numa_node ? "NODE" : "SYS";
  return {};
}

void find_gpus(const Box& box, const FactOptions& options, Facts& facts) {
  const Answers& answers = box.answers();
  if (!answers.nvml_why.empty()) facts.unseen.push_back({"NVML's view of the GPUs", answers.nvml_why});
  if (!answers.driver_why.empty())
    facts.unseen.push_back({"the CUDA driver's view of the GPUs", answers.driver_why});
  facts.driver = answers.driver.value_or("");
  if (const auto version = box.read("/proc/driver/nvidia/version").text) {
    facts.host.module_kind = contains(*version, "Open Kernel Module") ? "open" : "proprietary";
    for (std::size_t at = 0; at < version->size();) {
      at = version->find_first_of("0123456789", at);
      if (at == std::string::npos) break;
      const std::size_t end = std::min(version->find_first_not_of("0123456789.", at), version->size());
      const std::string word = version->substr(at, end - at);
      if (word.find('.') != std::string::npos && Version::parse(word)->part(0) >= 100) {
        facts.host.module_version = word;
        break;
      }
      at = end;
    }
    if (facts.driver.empty()) facts.driver = facts.host.module_version;
  }
  if (answers.cuda_driver) {
    facts.driver_cuda = *answers.cuda_driver;
    facts.driver_cuda_from = "the driver says so";
  } else if (!facts.driver.empty()) {
    const auto found = options.driver_cuda.find(branch_of(facts.driver));
    if (found != options.driver_cuda.end()) {
      facts.driver_cuda = found->second;
      facts.driver_cuda_from = fmt::format("drivers {} come with it", found->first);
    }
  }
  for (const GpuAnswer& answer : answers.gpus) {
    facts.gpus.emplace_back();
    facts.gpus.back().answer = answer;
  }
  facts.pairs = answers.pairs;
  if (facts.gpus.empty()) {
    const std::vector<std::string> seen = nvidia_devices(box);
    for (const std::string& address : seen) {
      GpuAnswer answer;
      answer.index = static_cast<std::uint32_t>(facts.gpus.size());
      answer.pci_address = address;
      if (const auto text = box.read(fmt::format("/proc/driver/nvidia/gpus/{}/information", address)).text) {
        if (std::string model = first_value(*text, "Model"); !model.empty()) answer.name = std::move(model);
      }
      facts.gpus.emplace_back();
      facts.gpus.back().answer = std::move(answer);
    }
    if (!box.is_folder(pci_devices))
      facts.unseen.push_back({"GPUs on the PCI bus", "/sys/bus/pci/devices cannot be read"});
  }
  const auto hidden = std::ranges::count_if(facts.gpus, [](const Gpu& gpu) { return !gpu.answer.ordinal; });
  if (answers.driver_why.empty() && !answers.gpus.empty() && hidden > 0 && hidden <= std::ssize(facts.gpus) &&
      answers.cuda_driver)
    facts.unseen.push_back({fmt::format("what CUDA says of {} of {} GPUs", hidden, facts.gpus.size()),
                            "CUDA programs do not see them; CUDA_VISIBLE_DEVICES may hide them"});
  for (Gpu& gpu : facts.gpus) add_sys(box, gpu);
  const bool some_lost = std::ranges::any_of(facts.gpus, [](const Gpu& gpu) { return gpu.pci_path.empty(); });
  if (!facts.gpus.empty() && some_lost)
    facts.unseen.push_back({"how the GPUs are wired", "/sys/bus/pci/devices does not show all of them"});
  const bool acs_hidden = std::ranges::any_of(facts.gpus, [](const Gpu& gpu) {
    return !gpu.acs_redirects && !gpu.pci_path.empty() && !ports_above(gpu.pci_path).empty();
  });
  if (acs_hidden)
    facts.unseen.push_back(
        {"access control (ACS) of the PCIe ports", "their configuration space needs root to be read"});
}

void find_host(const Box& box, Facts& facts) {
  Host& host = facts.host;
  host.kernel = box.line("/proc/sys/kernel/osrelease").value_or("");
  const auto cpuinfo = box.read("/proc/cpuinfo", 8 << 20).text;
  if (cpuinfo) {
    host.processor = first_value(*cpuinfo, "model name");
    std::set<std::string> sockets;
    for (std::size_t at = cpuinfo->find("physical id"); at != std::string::npos;
         at = cpuinfo->find("physical id", at + 1))
      sockets.insert(first_value(cpuinfo->substr(at, 64), "physical id"));
    host.sockets = counted(sockets);
  } else {
    facts.unseen.push_back({"the processors", "/proc/cpuinfo cannot be read"});
  }
  std::set<std::string> nodes;
  for (const std::string& name : box.list("/sys/devices/system/node")) {
    if (name.starts_with("node") && name.size() > 4 && std::isdigit(static_cast<unsigned char>(name[4])) != 0)
      nodes.insert(name);
  }
  host.numa_nodes = counted(nodes);
  find_virtualisation(box, facts, cpuinfo);

  if (const auto line = box.line("/proc/cmdline")) {
    for (const std::string& word : split_list(*line, ' ')) {
      if (!contains(word, "iommu") && !word.starts_with("pci=") && !word.starts_with("pcie_acs_override"))
        continue;
      host.iommu_options += (host.iommu_options.empty() ? "" : " ") + word;
    }
  }
  if (box.is_folder("/sys/class/iommu")) {
    host.iommu_on = !box.list("/sys/class/iommu").empty();
  } else if (box.is_folder("/sys/class")) {
    host.iommu_on = false;
  } else {
    facts.unseen.push_back({"the IOMMU", "/sys/class cannot be read"});
  }
  host.shared_memory = box.space("/dev/shm");
  if (!host.shared_memory)
    facts.unseen.push_back({"the size of /dev/shm", "it is not there or cannot be asked"});

  if (const auto parameters = box.read("/proc/driver/nvidia/params").text) {
    for (const std::string& row : split_list(*parameters, '\n')) {
      const std::size_t colon = row.find(':');
      if (colon == std::string::npos) continue;
      const std::string name = row.substr(0, colon);
      const std::string value = row.substr(std::min(row.find_first_not_of(' ', colon + 1), row.size()));
      constexpr std::array interesting{"RegistryDwords", "GrdmaPciTopoCheckOverride",
                                       "EnablePCIERelaxedOrderingMode", "EnableResizableBar"};
      if (std::ranges::find(interesting, name) != interesting.end() && value != "\"\"" && value != "0" &&
          !value.empty())
        host.module_parameters.emplace(name, value);
    }
  } else if (!facts.gpus.empty()) {
    facts.unseen.push_back({"the NVIDIA module's parameters", "/proc/driver/nvidia/params cannot be read"});
  }
}

}  // namespace arb::probe
