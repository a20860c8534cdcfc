#include "library.h"

#include <fmt/format.h>

#include <utility>

#include "driver.h"
#include "error.h"

namespace arb::cuda {

void Kernel::load_in(const Context& context) const {
  context.make_current();
  CUfunction function = nullptr;
  check(driver().cuKernelGetFunction(&function, handle_), "load a kernel into a context");
}

std::uint32_t Kernel::resident_blocks(const Context& context, std::uint32_t threads) const {
  const Driver& cu = driver();
  context.make_current();
  CUfunction function = nullptr;
  check(cu.cuKernelGetFunction(&function, handle_), "load a kernel into a context");
  int blocks = 0;
  check(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, static_cast<int>(threads), 0),
        "read how many blocks fit a multiprocessor");
  return static_cast<std::uint32_t>(blocks) * context.multiprocessors();
}

Library::Library(std::span<const std::byte> cubin, std::string name) : name_(std::move(name)) {
  check(driver().cuLibraryLoadData(&handle_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        fmt::format("load the kernels of {}", name_));
}

Library::~Library() {
  if (handle_ != nullptr) driver().cuLibraryUnload(handle_);
}

Library::Library(Library&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}

Kernel Library::kernel(const std::string& function, std::uint64_t parameter_bytes) const {
  const Driver& cu = driver();
  CUkernel kernel = nullptr;
  check(cu.cuLibraryGetKernel(&kernel, handle_, function.c_str()),
        fmt::format("find the function {} in {}", function, name_));
  std::size_t offset = 0;
  std::size_t bytes = 0;
  check(cu.cuKernelGetParamInfo(kernel, 0, &offset, &bytes),
        fmt::format("read the parameter of {}", function));
  if (bytes != parameter_bytes) {
    throw CudaError(fmt::format(
        "{} of {} takes {} bytes of parameters where this program passes {}: rebuild the bundle from this "
        "program's sources",
        function, name_, bytes, parameter_bytes));
  }
  return Kernel(kernel);
}

}  // namespace arb::cuda
