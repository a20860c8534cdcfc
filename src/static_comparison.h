// What two compilers made of the same kernels, read from manifests: no GPU, no time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bundle.h"

namespace arb {

// One function for one architecture, as both bundles have it.
struct StaticRow {
  std::string kernel;
  std::string function;
  std::string architecture;
  std::optional<BundleFunction> a;
  std::optional<BundleFunction> b;

  [[nodiscard]] bool same_sass() const { return a && b && a->sass_sha256 == b->sass_sha256; }
};

// Every function of either bundle, by kernel, architecture and name.
std::vector<StaticRow> compare_static(const Bundle& a, const Bundle& b);

// One line a row and, below, one sentence on all of them.
std::string static_table(const Bundle& a, const Bundle& b, const std::vector<StaticRow>& rows);
std::string static_markdown(const Bundle& a, const Bundle& b, const std::vector<StaticRow>& rows);
// Strict JSON: {"schema": "arbench static comparison", "version": 1, ...}.
std::string static_json(const Bundle& a, const Bundle& b, const std::vector<StaticRow>& rows);
// The header and one line a row: a, b, kernel, function, architecture, registers_a, registers_b,
// spill_bytes_a, spill_bytes_b, instructions_a, instructions_b, sass (same, other, missing).
std::string static_csv(const Bundle& a, const Bundle& b, const std::vector<StaticRow>& rows);
// "12 of 18 functions have the same SASS; registers fell in 2 and rose in 1; ...".
std::string static_summary(const std::vector<StaticRow>& rows);

}  // namespace arb
