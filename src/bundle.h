// A kernel bundle as files: what its manifest says, and its cubins once they were found whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace arb {

// A folder that is no usable bundle; what() is one sentence.
class BundleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the compiler said of one exported function; per thread, shared_bytes per block.
struct BundleFunction {
  std::string name;
  std::uint32_t registers = 0;
  std::uint64_t spill_store_bytes = 0;
  std::uint64_t spill_load_bytes = 0;
  std::uint64_t stack_bytes = 0;
  std::uint64_t shared_bytes = 0;
  std::uint64_t instructions = 0;
  std::string sass_sha256;
};

// One kernel file compiled for one architecture.
struct BundleCubin {
  std::string kernel;        // "two_shot_pull"
  std::string architecture;  // "sm_90"
  std::string file;          // below the bundle's folder
  std::string sha256;
  std::vector<BundleFunction> functions;
};

struct Bundle {
  std::filesystem::path folder;
  std::string name;              // "13.0-nvrtc"
  std::string toolkit;           // "13.0"
  std::string compiler;          // "nvrtc" or "nvcc"
  std::string compiler_version;  // as the compiler says it
  std::string source_hash;       // of everything the kernels are made of
  std::vector<BundleCubin> cubins;

  [[nodiscard]] bool has_architecture(std::string_view architecture) const;
  // "sm_90 sm_120"
  [[nodiscard]] std::string architectures() const;
  // One hash over the hashes of all cubins: another one means other code.
  [[nodiscard]] std::string code_digest() const;
};

// Reads <folder>/manifest.json. Throws BundleError when it is missing, cut short or of another schema.
Bundle read_bundle(const std::filesystem::path& folder);
// The bytes of a cubin. Throws BundleError when the file is missing or is not what the manifest describes.
std::vector<std::byte> read_cubin(const Bundle& bundle, const BundleCubin& cubin);

}  // namespace arb
