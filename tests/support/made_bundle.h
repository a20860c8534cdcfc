// Kernel bundles of no kernels' code, whole or broken in one way, for tests of what reads bundles.
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "scratch.h"

namespace arb::test {

inline std::string sha256_hex(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", digest[i]);
    hex += digits.data();
  }
  return hex;
}

// Writes <parent>/<name>/ with one cubin of one made-up kernel for `architecture`.
inline std::filesystem::path make_bundle(const std::filesystem::path& parent, const std::string& name,
                                         const std::string& architecture = "sm_90") {
  std::filesystem::path folder = parent / name;
  const std::string code = "no real code";
  const std::string file = "made_up." + architecture + ".cubin";
  const std::string toolkit = name.substr(0, name.find('-'));
  const std::string compiler =
      name.find('-') == std::string::npos ? "nvrtc" : name.substr(name.find('-') + 1);
  write_file(folder / file, code);
  write_file(folder / "manifest.json",
             R"({"schema":1,"name":")" + name + R"(","toolkit":")" + toolkit + R"(","compiler":")" +
                 compiler + R"(","compiler_version":"made up","flags":[],"architectures":[")" + architecture +
                 R"("],"source_hash":"00","kernels":[{"kernel":"made_up","file":"kernels/made_up.cu",)"
                 R"("source_hash":"00","cubins":[{"architecture":")" +
                 architecture + R"(","file":")" + file + R"(","bytes":)" + std::to_string(code.size()) +
                 R"(,"sha256":")" + sha256_hex(code) +
                 R"(","functions":[{"name":"made_up__bf16_n2","registers":32,)"
                 R"("spill_store_bytes":0,"spill_load_bytes":0,"stack_bytes":0,"shared_bytes":0,)"
                 R"("instructions":1,"sass_sha256":"00"}]}]}]})"
                 "\n");
  return folder;
}

}  // namespace arb::test
