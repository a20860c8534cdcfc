// Versions as people write them, and the numbers that CUDA's libraries write them as.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace arb::probe {

// "2.10.0+cu128" is {2, 10, 0} with the local part "cu128". Compared number by number; missing numbers are 0.
struct Version {
  std::vector<std::uint64_t> numbers;
  std::string local;  // what follows '+'

  // Reads as many leading numbers as there are ("0.6.15.post1" is {0, 6, 15}); absent where there is none.
  static std::optional<Version> parse(std::string_view text);
  [[nodiscard]] std::uint64_t part(std::size_t index) const {
    return index < numbers.size() ? numbers[index] : 0;
  }
};
std::strong_ordering operator<=>(const Version& a, const Version& b);
bool operator==(const Version& a, const Version& b);

// 12080 -> "12.8": CUDA_VERSION, cudaRuntimeGetVersion, cuDriverGetVersion.
std::string decode_cuda(std::uint64_t code);
// 91002 -> "9.10.2", 8907 -> "8.9.7": CUDNN_VERSION (two digits each since 9.0, one for the minor before).
std::string decode_cudnn(std::uint64_t code);
// "9.10.2.21" -> 91002, what PyTorch prints; absent for what is no cuDNN version.
std::optional<std::uint64_t> encode_cudnn(std::string_view version);
// 22809 -> "2.28.9", 2708 -> "2.7.8": NCCL_VERSION_CODE (two digits for the minor since 2.9).
std::string decode_nccl(std::uint64_t code);
// The CUDA of a build's name: "cu128" -> "12.8", "cu13" -> "13", "cuda12.9" -> "12.9"; absent otherwise.
std::optional<std::string> cuda_of_tag(std::string_view tag);

}  // namespace arb::probe
