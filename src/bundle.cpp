#include "bundle.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace arb {
namespace {

using nlohmann::json;

constexpr std::string_view rebuild = "build it again with `cmake --build --preset release --target bundles`";

std::string sha256_hex(const std::vector<std::byte>& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

BundleFunction function_from(const json& text) {
  return {text.at("name"),
          text.at("registers"),
          text.at("spill_store_bytes"),
          text.at("spill_load_bytes"),
          text.at("stack_bytes"),
          text.at("shared_bytes"),
          text.at("instructions"),
          text.at("sass_sha256")};
}

}  // namespace

bool Bundle::has_architecture(std::string_view architecture) const {
  return std::ranges::find(cubins, architecture, &BundleCubin::architecture) != cubins.end();
}

std::string Bundle::architectures() const {
  std::string text;
  std::vector<std::string_view> seen;
  for (const BundleCubin& cubin : cubins) {
    if (std::ranges::find(seen, cubin.architecture) != seen.end()) continue;
    seen.push_back(cubin.architecture);
    text += (text.empty() ? "" : " ") + cubin.architecture;
  }
  return text;
}

std::string Bundle::code_digest() const {
  std::vector<std::byte> text;
  for (const BundleCubin& cubin : cubins) {
    for (const char c : cubin.file + " " + cubin.sha256 + "\n") text.push_back(static_cast<std::byte>(c));
  }
  return sha256_hex(text);
}

Bundle read_bundle(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "manifest.json";
  std::ifstream stream(file);
  if (!stream) {
    throw BundleError(
        fmt::format("{} is no kernel bundle: it has no manifest.json; {}", folder.string(), rebuild));
  }
  try {
    const json text = json::parse(stream);
    if (text.at("schema") != 1) {
      throw BundleError(
          fmt::format("{} is of a schema that this program does not read; {}", file.string(), rebuild));
    }
    Bundle bundle{folder,
                  text.at("name"),
                  text.at("toolkit"),
                  text.at("compiler"),
                  text.at("compiler_version"),
                  text.at("source_hash"),
                  {}};
    for (const json& kernel : text.at("kernels")) {
      for (const json& cubin : kernel.at("cubins")) {
        BundleCubin entry{
            kernel.at("kernel"), cubin.at("architecture"), cubin.at("file"), cubin.at("sha256"), {}};
        for (const json& function : cubin.at("functions")) entry.functions.push_back(function_from(function));
        bundle.cubins.push_back(std::move(entry));
      }
    }
    if (bundle.cubins.empty()) {
      throw BundleError(fmt::format("{} lists no kernels; {}", file.string(), rebuild));
    }
    return bundle;
  } catch (const json::exception& error) {
    throw BundleError(fmt::format("{} is corrupt ({}); {}", file.string(), error.what(), rebuild));
  }
}

std::vector<std::byte> read_cubin(const Bundle& bundle, const BundleCubin& cubin) {
  const std::filesystem::path path = bundle.folder / cubin.file;
  std::ifstream stream(path, std::ios::binary);
  std::vector<std::byte> bytes;
  if (stream) {
    const std::vector<char> text{std::istreambuf_iterator<char>(stream), {}};
    bytes.resize(text.size());
    std::ranges::transform(text, bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  }
  if (bytes.empty() || sha256_hex(bytes) != cubin.sha256) {
    throw BundleError(fmt::format("{} is {} what bundle {} was built with; {}", path.string(),
                                  bytes.empty() ? "missing, so not" : "not", bundle.name, rebuild));
  }
  return bytes;
}

}  // namespace arb
