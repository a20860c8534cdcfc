// The vocabulary of cells and rows: small enums with the names that the output formats fix.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace arb {

enum class Dtype : std::uint8_t { bf16, fp16, fp32 };
enum class Place : std::uint8_t { out, in };  // out of place, in place
enum class Mode : std::uint8_t { isolated, pipelined };
enum class Cache : std::uint8_t { cold, warm };
enum class Evidence : std::uint8_t { measured, modelled, emulated };
enum class Style : std::uint8_t {
  staged,
  symmetric
};  // where peers read inputs: private scratch or the tensors

// Who holds the ranks of a measured run: one process with a thread for all of them, or a process each.
enum class World : std::uint8_t { threads, processes };

// A fault that a verification puts in on purpose, to show that its checks see it.
enum class Plant : std::uint8_t {
  none,
  input,   // one element of one rank's input changes after the check has been told
  output,  // one element of one rank's result is overwritten
  absent,  // one rank leaves one call out: a hang
};

inline constexpr std::array all_dtypes{Dtype::bf16, Dtype::fp16, Dtype::fp32};

constexpr std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return "bf16";
    case Dtype::fp16:
      return "fp16";
    case Dtype::fp32:
      break;
  }
  return "fp32";
}
constexpr std::string_view name_of(Place place) {
  return place == Place::in ? "in" : "out";
}
constexpr std::string_view name_of(Mode mode) {
  return mode == Mode::isolated ? "isolated" : "pipelined";
}
constexpr std::string_view name_of(Cache cache) {
  return cache == Cache::cold ? "cold" : "warm";
}
constexpr std::string_view name_of(World world) {
  return world == World::processes ? "processes" : "threads";
}
constexpr std::string_view name_of(Evidence evidence) {
  switch (evidence) {
    case Evidence::measured:
      return "measured";
    case Evidence::modelled:
      return "modelled";
    case Evidence::emulated:
      break;
  }
  return "emulated";
}

constexpr std::string_view name_of(Plant plant) {
  switch (plant) {
    case Plant::input:
      return "input";
    case Plant::output:
      return "output";
    case Plant::absent:
      return "absent";
    case Plant::none:
      break;
  }
  return "none";
}

constexpr std::uint64_t size_of_bytes(Dtype dtype) {
  return dtype == Dtype::fp32 ? 4 : 2;
}

// Reads a dtype by its own name or by nccl-tests' (bfloat16, half, float); empty for anything else.
constexpr std::optional<Dtype> dtype_from(std::string_view name) {
  if (name == "bf16" || name == "bfloat16") return Dtype::bf16;
  if (name == "fp16" || name == "half" || name == "float16") return Dtype::fp16;
  if (name == "fp32" || name == "float" || name == "float32") return Dtype::fp32;
  return std::nullopt;
}

}  // namespace arb
