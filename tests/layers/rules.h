// The invariants of the design as rules over source text. A rule sees one file and says what is wrong with
// it, so that the same rule checks the tree and a planted violation.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace arb::layers {

// A file of the tree, path below its root, with '/' between.
struct SourceFile {
  std::string path;
  std::string text;
};

// What a rule found: "src/x.cpp:12: includes <cuda.h>".
using Findings = std::vector<std::string>;
using Rule = std::function<Findings(const SourceFile&)>;

// `text` with comments turned into blanks; lines keep their numbers. With `strings_too` the insides of string
// literals go as well.
std::string without_comments(const std::string& text, bool strings_too);

// 1: a kernel's name stands in its own file and in the catalog, and nowhere else in code.
Findings kernel_named_outside_catalog(const SourceFile& file, const std::vector<std::string>& kernels);
// 2: kernels include only abi.h and machine/, and leave the machine's words to machine/.
Findings kernel_includes(const SourceFile& file);
Findings machine_words(const SourceFile& file);
// 3: <cuda.h> in src/cuda_api alone, <nccl.h> in src/nccl_api alone; their error codes neither.
Findings vendor_headers(const SourceFile& file);
Findings vendor_error_codes(const SourceFile& file);
// 4: bench/ and tests/ name no kernel.
Findings kernel_named_in_bench_or_tests(const SourceFile& file, const std::vector<std::string>& kernels);
// 5: devices wait in machine/wait.cuh alone, and each loop there looks at its deadline.
Findings device_waits(const SourceFile& file);
// 6: only kernels/ knows a CUDA compiler.
Findings cuda_compiler(const SourceFile& file);
// 7: rows come from measure() and RowReader alone.
Findings row_makers(const SourceFile& file);
// 8: numeric parameters and fields that are times or sizes carry their unit.
Findings units(const SourceFile& file);

}  // namespace arb::layers
