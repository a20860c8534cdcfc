// Toolkits, libraries and Python packages, from names and metadata alone.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "nccl_api/locate.h"
#include "probe/elf.h"
#include "probe/facts.h"
#include "probe/version.h"
#include "text.h"

namespace arb::probe {
namespace {

namespace fs = std::filesystem;

std::string parent_of(const std::string& path) {
  return fs::path(path).parent_path().string();
}

// The digits after `mark` in a header's line "#define mark 12080"; 0 where there is none.
std::uint64_t defined_number(const std::string& header, std::string_view mark) {
  const std::string define = "#define " + std::string(mark) + " ";
  const std::size_t at = header.find(define);
  if (at == std::string::npos) return 0;
  const auto number =
      Version::parse(std::string_view(header).substr(header.find_first_not_of(' ', at + define.size())));
  return number ? number->part(0) : 0;
}

// The version of a toolkit's folder: cuda.h first, since it cannot lie about itself; else version.json.
std::string toolkit_version(const Box& box, const std::string& folder) {
  for (const char* const include :
       {"include", "targets/x86_64-linux/include", "targets/sbsa-linux/include"}) {
    const auto header = box.read(folder + "/" + include + "/cuda.h").text;
    if (!header) continue;
    if (const std::uint64_t code = defined_number(*header, "CUDA_VERSION"); code != 0)
      return decode_cuda(code);
  }
  const auto json = box.read(folder + "/version.json").text;
  if (!json) return {};
  const std::size_t cuda = json->find("\"cuda\"");
  const std::size_t version = cuda == std::string::npos ? cuda : json->find("\"version\"", cuda);
  const std::size_t colon = version == std::string::npos ? version : json->find(':', version);
  const std::size_t quote = colon == std::string::npos ? colon : json->find('"', colon);
  if (quote == std::string::npos) return {};
  const auto parsed = Version::parse(std::string_view(*json).substr(quote + 1));
  if (!parsed || parsed->numbers.size() < 2) return {};
  return fmt::format("{}.{}", parsed->part(0), parsed->part(1));
}

// What cudnn_version.h beside a library's folder says.
std::string cudnn_version(const Box& box, const std::string& prefix) {
  const auto header = box.read(prefix + "/include/cudnn_version.h").text;
  if (!header) return {};
  const std::uint64_t major = defined_number(*header, "CUDNN_MAJOR");
  if (major == 0) return {};
  return fmt::format("{}.{}.{}", major, defined_number(*header, "CUDNN_MINOR"),
                     defined_number(*header, "CUDNN_PATCHLEVEL"));
}

// nvcc's toolkit is the parent of its bin/, links resolved.
std::optional<Nvcc> nvcc_at(const Box& box, const std::string& path, const std::string& found) {
  if (!box.is_file(path)) return std::nullopt;
  Nvcc nvcc;
  nvcc.path = path;
  nvcc.found = found;
  nvcc.runs = box.can_run(path);
  nvcc.toolkit = parent_of(parent_of(box.resolve(path).value_or(path)));
  nvcc.version = toolkit_version(box, nvcc.toolkit);
  if (nvcc.version.empty()) nvcc.version = toolkit_version(box, parent_of(parent_of(path)));
  return nvcc;
}

void add_nvcc(const Box& box, Facts& facts, const std::string& path, const std::string& found) {
  auto nvcc = nvcc_at(box, path, found);
  if (!nvcc) return;
  const auto real = box.resolve(path);
  for (const Nvcc& other : facts.nvccs) {
    if (box.resolve(other.path) == real) return;
  }
  facts.nvccs.push_back(std::move(*nvcc));
}

// Folders of a list such as PATH; relative ones cannot be judged and are left out.
std::vector<std::string> folders_of(const std::optional<std::string>& list) {
  std::vector<std::string> folders;
  if (!list) return folders;
  for (std::string& folder : split_list(*list, ':')) {
    if (folder.starts_with('/')) folders.push_back(std::move(folder));
  }
  return folders;
}

// The normal form of a distribution's name: "flashinfer_python" and "Flashinfer-Python" are one.
std::string normal_name(std::string_view name) {
  std::string normal;
  for (const char letter : name) {
    const char lower = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
    normal += lower == '_' || lower == '.' ? '-' : lower;
  }
  return normal;
}

// A header field of a METADATA file.
std::string metadata_field(const std::string& metadata, std::string_view field) {
  const std::string start = std::string(field) + ": ";
  std::size_t at = metadata.starts_with(start) ? 0 : metadata.find("\n" + start);
  if (at == std::string::npos) return {};
  if (at != 0) ++at;
  const std::size_t begin = at + start.size();
  std::string value = metadata.substr(begin, metadata.find('\n', begin) - begin);
  if (value.ends_with('\r')) value.pop_back();
  return value;
}

struct Distribution {
  std::string name;
  std::string version;
  std::string folder;  // the packages' folder that holds it
};

// All distributions of the environment by name; the first folder wins, as in Python.
std::map<std::string, Distribution> distributions(const Box& box, const Python& python) {
  std::map<std::string, Distribution> found;
  for (const std::string& folder : python.packages_folders) {
    for (const std::string& entry : box.list(folder)) {
      const bool dist = entry.ends_with(".dist-info");
      if (!dist && !entry.ends_with(".egg-info")) continue;
      const std::string stem = entry.substr(0, entry.size() - std::string_view(".dist-info").size());
      const std::size_t dash = stem.find('-');
      Distribution one{.name = normal_name(stem.substr(0, dash)), .version = {}, .folder = folder};
      if (dash != std::string::npos) one.version = stem.substr(dash + 1);
      if (!Version::parse(one.version)) {
        // An unusual folder name; the metadata says.
        const auto metadata =
            box.read(fmt::format("{}/{}/{}", folder, entry, dist ? "METADATA" : "PKG-INFO"), 1 << 14).text;
        if (!metadata) continue;
        one.name = normal_name(metadata_field(*metadata, "Name"));
        one.version = metadata_field(*metadata, "Version");
      }
      found.emplace(one.name, std::move(one));
    }
  }
  return found;
}

// What a line of version.py assigns, without quotes: "cuda: Optional[str] = '12.8'" for "cuda".
std::string python_value(const std::string& source, std::string_view name) {
  for (std::size_t begin = 0; begin < source.size();) {
    const std::size_t end = std::min(source.find('\n', begin), source.size());
    const std::string_view line = std::string_view(source).substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(name)) continue;
    const std::string_view rest = line.substr(name.size());
    if (rest.empty() || (rest.front() != ' ' && rest.front() != ':' && rest.front() != '=')) continue;
    const std::size_t equal = rest.find('=');
    if (equal == std::string_view::npos) continue;
    const std::size_t quote = rest.find_first_of("'\"", equal);
    if (quote == std::string_view::npos) continue;
    const std::size_t close = rest.find(rest[quote], quote + 1);
    if (close == std::string_view::npos) continue;
    return std::string(rest.substr(quote + 1, close - quote - 1));
  }
  return {};
}

// The CUDA that an extension module was linked with, from its needed libraries: "12" or "13".
std::string linked_cuda(const Box& box, const std::string& folder) {
  constexpr std::size_t most_files = 4;
  std::size_t looked = 0;
  std::vector<std::string> folders = {folder};
  for (const std::string& name : box.list(folder)) {
    if (name.starts_with("sm") && box.is_folder(fmt::format("{}/{}", folder, name)))
      folders.push_back(fmt::format("{}/{}", folder, name));
  }
  for (const std::string& place : folders) {
    for (const std::string& name : box.list(place)) {
      if (!name.ends_with(".so") || looked == most_files) continue;
      const auto file = box.host_path(fmt::format("{}/{}", place, name));
      if (!file) continue;
      ++looked;
      for (const std::string& needed : needed_libraries(*file)) {
        for (const std::string_view library : {"libcudart.so.", "libnvrtc.so.", "libcublas.so."}) {
          if (needed.starts_with(library)) return needed.substr(library.size());
        }
      }
    }
  }
  return {};
}

// CUDA's version by the cuda.h that a package brings.
std::string header_cuda(const Box& box, const std::string& folder) {
  const std::uint64_t code = defined_number(box.read(folder + "/cuda.h").text.value_or(""), "CUDA_VERSION");
  return code == 0 ? std::string() : decode_cuda(code);
}

std::optional<Package> package_of(const Box& box, const std::map<std::string, Distribution>& all,
                                  const std::string& name, const std::string& module) {
  const auto found = all.find(name);
  if (found == all.end()) return std::nullopt;
  Package package{.name = name, .version = found->second.version, .cuda = {}, .evidence = "its metadata"};
  const std::string folder = found->second.folder + "/" + module;
  if (name == "torch") {
    if (const auto source = box.read(folder + "/version.py", 1 << 14).text) {
      if (const std::string version = python_value(*source, "__version__"); Version::parse(version))
        package.version = version;
      package.cuda = python_value(*source, "cuda");
      package.evidence = "torch/version.py";
      if (!Version::parse(package.cuda)) package.cuda.clear();
    }
  }
  if (package.cuda.empty()) {
    if (const auto version = Version::parse(package.version); version && !version->local.empty()) {
      package.cuda = cuda_of_tag(version->local).value_or("");
      if (!package.cuda.empty()) package.evidence = "its version's suffix";
    }
  }
  if (package.cuda.empty() && !module.empty() &&
      (name == "vllm" || name == "sgl-kernel" || name == "sglang-kernel")) {
    package.cuda = linked_cuda(box, folder);
    if (!package.cuda.empty()) package.evidence = "the libraries that it links";
  }
  if (package.cuda.empty() && name == "triton") {
    package.cuda = header_cuda(box, folder + "/backends/nvidia/include");
    if (!package.cuda.empty()) package.evidence = "the cuda.h that it brings";
  }
  return package;
}

// Those of interest, in a fixed order.
std::vector<Package> packages_of(const Box& box, const std::map<std::string, Distribution>& all) {
  std::vector<Package> packages;
  for (const auto& [name, module] :
       std::initializer_list<std::pair<const char*, const char*>>{{"torch", "torch"},
                                                                  {"triton", "triton"},
                                                                  {"flashinfer-python", "flashinfer"},
                                                                  {"flashinfer-cubin", ""},
                                                                  {"flashinfer-jit-cache", ""},
                                                                  {"vllm", "vllm"},
                                                                  {"sglang", "sglang"},
                                                                  {"sgl-kernel", "sgl_kernel"},
                                                                  {"sglang-kernel", "sgl_kernel"}}) {
    if (auto package = package_of(box, all, name, module)) packages.push_back(std::move(*package));
  }
  return packages;
}

std::string python_version(const std::string& folder) {
  const std::string name = fs::path(folder).filename().string();
  return name.starts_with("python") ? name.substr(6) : std::string();
}

// Adds the packages' folders of a prefix.
void add_prefix(const Box& box, const std::string& prefix, Python& python) {
  for (const char* const lib : {"/lib", "/lib64", "/local/lib"}) {
    for (const std::string& name : box.list(prefix + lib)) {
      if (!name.starts_with("python3")) continue;
      const std::string folder = fmt::format("{}{}/{}", prefix, lib, name);
      if (!python.version.empty() && !python_version(folder).empty() &&
          python_version(folder) != python.version && name != "python3")
        continue;
      for (const char* const packages : {"site-packages", "dist-packages"}) {
        const std::string place = folder + "/" + packages;
        if (!box.is_folder(place)) continue;
        const auto real = box.resolve(place);
        const bool known = std::ranges::any_of(
            python.packages_folders, [&](const std::string& other) { return box.resolve(other) == real; });
        if (!known) python.packages_folders.push_back(place);
        if (python.version.empty()) python.version = python_version(folder);
      }
    }
  }
}

// The packages of an installed Python, the user's own first.
void add_base(const Box& box, const std::string& prefix, Python& python) {
  const auto home = box.variable("HOME");
  if (home && !python.version.empty() && !box.variable("PYTHONNOUSERSITE"))
    add_prefix(box, *home + "/.local", python);
  if (prefix == "/usr") add_prefix(box, "/usr/local", python);
  add_prefix(box, prefix, python);
  // Debian's, for every version of Python 3.
  const std::string debian = "/usr/lib/python3/dist-packages";
  if (prefix == "/usr" && box.is_folder(debian) &&
      std::ranges::find(python.packages_folders, debian) == python.packages_folders.end())
    python.packages_folders.push_back(debian);
}

// "3.12" of "3.12.3".
std::string minor_version(const std::string& text) {
  const auto version = Version::parse(text);
  return version ? fmt::format("{}.{}", version->part(0), version->part(1)) : std::string();
}

// What pyvenv.cfg says of a key: "key = value".
std::string config_value(const std::string& config, std::string_view key) {
  for (const std::string& line : split_list(config, '\n')) {
    const std::size_t equal = line.find('=');
    if (equal == std::string::npos) continue;
    const std::vector<std::string> name = split_list(line.substr(0, equal), ' ');
    if (name.size() != 1 || name.front() != key) continue;
    const std::size_t begin = line.find_first_not_of(' ', equal + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

// The environment of a program or a prefix; absent where there is neither.
std::optional<Python> python_at(const Box& box, const std::string& place, const std::string& found) {
  const bool folder = box.is_folder(place);
  std::string program = place;
  if (folder) program = box.is_file(place + "/bin/python3") ? place + "/bin/python3" : place + "/bin/python";
  if (!folder && !box.can_run(program)) return std::nullopt;
  const std::string prefix = folder ? place : parent_of(parent_of(program));
  Python one;
  one.program = box.is_file(program) ? program : std::string();
  one.prefix = prefix;
  one.chosen = found;
  // In the order of Python's own path: PYTHONPATH, then the user's packages, then the prefix's.
  for (const std::string& extra : folders_of(box.variable("PYTHONPATH"))) {
    const bool holds_packages = std::ranges::any_of(
        box.list(extra), [](const std::string& name) { return name.ends_with(".dist-info"); });
    if (holds_packages) one.packages_folders.push_back(extra);
  }
  if (const auto config = box.read(prefix + "/pyvenv.cfg", 1 << 14).text) {
    one.version = minor_version(config_value(*config, "version"));
    if (one.version.empty()) one.version = minor_version(config_value(*config, "version_info"));
    add_prefix(box, prefix, one);
    const std::string home = config_value(*config, "home");
    if (config_value(*config, "include-system-site-packages") == "true" && !home.empty())
      add_base(box, parent_of(home), one);
    return one;
  }
  const auto real = box.resolve(program);
  if (real) one.version = python_version(*real);
  if (one.version.find('.') == std::string::npos) one.version.clear();
  if (one.version.empty()) {
    // Its packages' folder says which Python it is; the user's packages then come after it.
    add_prefix(box, prefix, one);
  }
  add_base(box, prefix, one);
  if (real && parent_of(parent_of(*real)) != prefix) add_base(box, parent_of(parent_of(*real)), one);
  return one;
}

// Where conda is usually installed.
std::vector<std::string> conda_roots(const Box& box) {
  std::vector<std::string> roots = {"/opt/conda"};
  if (const auto program = box.variable("CONDA_EXE")) roots.push_back(parent_of(parent_of(*program)));
  if (const auto home = box.variable("HOME")) {
    for (const char* const name : {"miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"})
      roots.push_back(fmt::format("{}/{}", *home, name));
  }
  return roots;
}

struct Kind {
  const char* name;    // of the library
  const char* wheel;   // of its packages, before "-cu12"
  const char* folder;  // in nvidia/ of CUDA 12's wheels
};
constexpr std::array kinds{Kind{"libcudart", "nvidia-cuda-runtime", "cuda_runtime"},
                           Kind{"libnccl", "nvidia-nccl", "nccl"}, Kind{"libcudnn", "nvidia-cudnn", "cudnn"},
                           Kind{"libnvrtc", "nvidia-cuda-nvrtc", "cuda_nvrtc"}};

// The part of "libnccl.so.2.28.9" after ".so.".
std::string number_in_name(const std::string& name) {
  const std::size_t at = name.find(".so.");
  return at == std::string::npos ? std::string() : name.substr(at + 4);
}

bool is_full_version(const std::string& version) {
  const auto parsed = Version::parse(version);
  return parsed && parsed->numbers.size() >= 2;
}

// Where files of the same library are, a file is listed once, by its real path.
class LibraryList {
 public:
  LibraryList(const Box& box, Facts& facts, const std::map<std::string, Distribution>& all)
      : box_(box), facts_(facts), all_(all) {}

  void folder(const std::string& folder, const std::string& source, const std::string& toolkit) {
    for (const std::string& name : box_.list(folder)) {
      for (const Kind& kind : kinds) {
        if (name.starts_with(std::string(kind.name) + ".so."))
          add(kind, fmt::format("{}/{}", folder, name), source, toolkit);
      }
    }
  }

 private:
  void add(const Kind& kind, const std::string& path, const std::string& source, const std::string& toolkit) {
    const auto real = box_.resolve(path);
    if (!real || !box_.is_file(path) || !seen_.insert(*real).second) return;
    Library library{.kind = kind.name, .path = path, .version = {}, .cuda = {}, .source = source};
    library.version = number_in_name(fs::path(*real).filename().string());
    const bool short_name = !is_full_version(library.version);
    if (source == "Python") {
      const auto wheel = wheel_of(kind, path);
      if (wheel) {
        library.version = wheel->first;
        library.cuda = wheel->second;
      }
    }
    const std::string named(kind.name);
    if (source != "Python" && short_name) {
      library.version.clear();
      // Only these two are numbered as their toolkit is.
      if (named == "libcudart" || named == "libnvrtc") library.version = toolkit;
      if (named == "libcudnn") library.version = cudnn_version(box_, parent_of(parent_of(*real)));
    }
    if (named == "libnccl" && library.cuda.empty()) {
      if (const auto host = box_.host_path(path)) {
        // A few MB of constants; the whole file of 200 MB only where it is unusual and nothing else says.
        auto said = nccl::version_in_bytes(elf_section(*host, ".rodata"));
        if (!said && !is_full_version(library.version)) said = nccl::version_in_file(*host);
        if (said) {
          library.version = said->version;
          library.cuda = said->cuda_build;
        }
      }
    }
    if ((named == "libcudart" || named == "libnvrtc") && is_full_version(library.version)) {
      const auto version = Version::parse(library.version);
      library.cuda = fmt::format("{}.{}", version->part(0), version->part(1));
    }
    if (!is_full_version(library.version)) library.version.clear();
    facts_.libraries.push_back(std::move(library));
  }

  // Version and CUDA of the package that brought a library: "nvidia-nccl-cu12" 2.27.5 -> {"2.27.5", "12"}.
  [[nodiscard]] std::optional<std::pair<std::string, std::string>> wheel_of(const Kind& kind,
                                                                            const std::string& path) const {
    for (const auto& [name, one] : all_) {
      if (!name.starts_with(kind.wheel) || !path.starts_with(one.folder)) continue;
      const std::string tag = name.substr(std::string_view(kind.wheel).size());
      const auto version = Version::parse(one.version);
      if (!version) continue;
      // Since CUDA 13 most packages have no suffix; their version is CUDA's.
      std::string cuda =
          tag.empty() ? std::to_string(version->part(0)) : cuda_of_tag(tag.substr(1)).value_or("");
      const bool in_13 = path.find("/nvidia/cu13/") != std::string::npos;
      if (in_13 && cuda != "13") continue;
      if (!in_13 && cuda == "13" && path.find(".so.12") != std::string::npos) continue;
      return std::pair(one.version, std::move(cuda));
    }
    return std::nullopt;
  }

  const Box& box_;
  Facts& facts_;
  const std::map<std::string, Distribution>& all_;
  std::set<std::string> seen_;
};

std::vector<std::string> toolkit_folders(const Box& box) {
  std::vector<std::string> folders;
  for (const std::string& name : box.list("/usr/local")) {
    if (name.starts_with("cuda") && box.is_folder("/usr/local/" + name))
      folders.push_back("/usr/local/" + name);
  }
  return folders;
}

// What scripts/toolkits.py has fetched.
std::vector<std::string> fetched_toolkits(const Box& box) {
  std::string cache = box.variable("ARB_TOOLKITS").value_or("");
  if (cache.empty()) cache = box.variable("HOME").value_or("") + "/.cache/arbench/toolkits";
  std::vector<std::string> folders;
  for (const std::string& name : box.list(cache)) {
    if (Version::parse(name)) folders.push_back(fmt::format("{}/{}", cache, name));
  }
  return folders;
}

}  // namespace

void find_toolkits(const Box& box, Facts& facts) {
  for (const std::string& folder : folders_of(box.variable("PATH"))) {
    const std::string path = folder + "/nvcc";
    add_nvcc(box, facts, path, "PATH");
    if (!facts.shell_nvcc && box.can_run(path)) facts.shell_nvcc = nvcc_at(box, path, "PATH");
  }
  std::string home_variable = "CUDA_HOME";
  auto home = box.variable(home_variable);
  if (!home) {
    home_variable = "CUDA_PATH";
    home = box.variable(home_variable);
  }
  if (home) add_nvcc(box, facts, *home + "/bin/nvcc", home_variable);
  for (const std::string& folder : toolkit_folders(box))
    add_nvcc(box, facts, folder + "/bin/nvcc", "/usr/local");
  if (const auto conda = box.variable("CONDA_PREFIX")) add_nvcc(box, facts, *conda + "/bin/nvcc", "conda");

  for (const std::string& folder : fetched_toolkits(box))
    add_nvcc(box, facts, folder + "/bin/nvcc", "arbench's cache");

  // The order of torch.utils.cpp_extension and of flashinfer/jit/cpp_ext.py.
  if (home) {
    facts.jit_nvcc = nvcc_at(box, *home + "/bin/nvcc", home_variable);
    facts.jit_why = facts.jit_nvcc
                        ? fmt::format("{} is set to {}", home_variable, *home)
                        : fmt::format("{} is set to {}, which has no bin/nvcc", home_variable, *home);
  } else if (facts.shell_nvcc) {
    facts.jit_nvcc = facts.shell_nvcc;
    facts.jit_why = "CUDA_HOME is not set and it comes first on PATH";
  } else {
    facts.jit_nvcc = nvcc_at(box, "/usr/local/cuda/bin/nvcc", "/usr/local");
    facts.jit_why = facts.jit_nvcc
                        ? "CUDA_HOME is not set and no nvcc is on PATH, so /usr/local/cuda is taken"
                        : "CUDA_HOME is not set, no nvcc is on PATH and /usr/local/cuda has none";
  }

  const std::vector<std::string> loader = folders_of(box.variable("LD_LIBRARY_PATH"));
  std::vector<std::string> homes = toolkit_folders(box);
  for (const std::string& folder : homes) {
    const std::string compat = folder + "/compat";
    for (const std::string& name : box.list(compat)) {
      if (!name.starts_with("libcuda.so.")) continue;
      const std::string driver = number_in_name(name);
      if (!is_full_version(driver)) continue;
      const auto real = box.resolve(compat);
      const bool known = std::ranges::any_of(
          facts.compats, [&](const Compat& other) { return box.resolve(other.folder) == real; });
      const bool used =
          std::ranges::any_of(loader, [&](const std::string& other) { return box.resolve(other) == real; });
      if (!known) facts.compats.push_back({compat, driver, used});
    }
  }
}

void find_python(const Box& box, const std::string& wanted, Facts& facts) {
  std::vector<std::pair<std::string, std::string>> places;  // program or prefix, how it was found
  const std::vector<std::string> path = folders_of(box.variable("PATH"));
  if (wanted.find('/') != std::string::npos) {
    places.emplace_back(wanted, "--python");
  } else if (!wanted.empty()) {
    for (const std::string& folder : path)
      places.emplace_back(fmt::format("{}/{}", folder, wanted), "--python");
  }
  const std::size_t asked_for = places.size();
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto prefix = box.variable(variable)) places.emplace_back(*prefix, variable);
  }
  for (const std::string& folder : path) {
    places.emplace_back(folder + "/python3", "PATH");
    places.emplace_back(folder + "/python", "PATH");
  }
  const std::size_t active = places.size();
  for (const std::string& root : conda_roots(box)) {
    places.emplace_back(root, "conda");
    for (const std::string& name : box.list(root + "/envs"))
      places.emplace_back(fmt::format("{}/envs/{}", root, name), "conda");
  }

  std::set<std::string> seen;  // folders of packages, links resolved
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [place, found] = places[i];
    const bool may_be_chosen = facts.python.prefix.empty() && (wanted.empty() ? i < active : i < asked_for);
    auto one = python_at(box, place, found);
    if (!one) continue;
    const bool bare = one->packages_folders.empty();
    if (bare && !(may_be_chosen && found == "--python")) continue;
    std::string folders;
    for (const std::string& folder : one->packages_folders)
      folders.append(box.resolve(folder).value_or("")).append(":");
    if (!bare && !seen.insert(folders).second) continue;
    for (const std::string& folder : one->packages_folders) {
      add_nvcc(box, facts, folder + "/nvidia/cuda_nvcc/bin/nvcc", "Python");
      add_nvcc(box, facts, folder + "/nvidia/cu13/bin/nvcc", "Python");
    }
    add_nvcc(box, facts, one->prefix + "/bin/nvcc", "Python");
    std::vector<Package> packages = packages_of(box, distributions(box, *one));
    if (may_be_chosen) {
      facts.python = std::move(*one);
      facts.python.packages = std::move(packages);
    } else if (!packages.empty()) {
      facts.other_pythons.push_back({one->prefix, found, std::move(packages)});
    }
  }
  if (facts.python.prefix.empty()) {
    facts.unseen.push_back(
        {"Python packages",
         wanted.empty() ? "no Python environment was found in VIRTUAL_ENV, CONDA_PREFIX or on PATH; "
                          "--python names one"
                        : fmt::format("--python {}: there is no such program or environment", wanted)});
  } else if (facts.python.packages_folders.empty()) {
    facts.unseen.push_back({"Python packages", fmt::format("{} has no site-packages folder that can be read",
                                                           facts.python.prefix)});
  }
}

void find_libraries(const Box& box, Facts& facts) {
  const auto all = distributions(box, facts.python);
  LibraryList list(box, facts, all);
  for (const std::string& folder : folders_of(box.variable("LD_LIBRARY_PATH")))
    list.folder(folder, "LD_LIBRARY_PATH", "");
  for (const std::string& packages : facts.python.packages_folders) {
    for (const Kind& kind : kinds) list.folder(packages + "/nvidia/" + kind.folder + "/lib", "Python", "");
    list.folder(packages + "/nvidia/cu13/lib", "Python", "");
  }
  for (const std::string& folder : toolkit_folders(box)) {
    const std::string version = toolkit_version(box, folder);
    for (const char* const lib : {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"})
      list.folder(folder + lib, "toolkit", version);
  }
  for (const std::string& folder : fetched_toolkits(box))
    list.folder(folder + "/lib", "arbench's cache", toolkit_version(box, folder));
  if (const auto conda = box.variable("CONDA_PREFIX")) list.folder(*conda + "/lib", "conda", "");
  for (const char* const folder :
       {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"})
    list.folder(folder, "system", "");
}

const Package* find_package(const Facts& facts, std::string_view name) {
  for (const Package& package : facts.python.packages) {
    if (package.name == name) return &package;
  }
  return nullptr;
}

}  // namespace arb::probe
