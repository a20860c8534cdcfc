#include "nccl_api/windows.h"

#include <fmt/format.h>

#include <utility>

#include "call_deadline.h"
#include "nccl_api/entries.h"
#include "size_to_hold.h"

namespace arb::nccl {
namespace {

constexpr std::uint64_t mib = 1 << 20;

}  // namespace

Memory::Memory(Library library, std::uint64_t bytes) : library_(std::move(library)) {
  if (!library_.window_problem().empty()) throw Error(library_.window_problem());
  const entry::Result result = library_.entries().mem_alloc(&data_, bytes);
  if (result != entry::Result::success || data_ == nullptr) {
    throw Error(fmt::format("NCCL {} could not allocate {} MiB for a window: {}", library_.name(),
                            (bytes + mib - 1) / mib, library_.entries().get_error_string(result)));
  }
}

Memory::~Memory() {
  if (data_ != nullptr) library_.entries().mem_free(data_);
}

Memory::Memory(Memory&& other) noexcept
    : library_(std::move(other.library_)), data_(std::exchange(other.data_, nullptr)) {}

void Windows::reserve(Communicators& communicators, std::uint64_t bytes, const Steps& steps) {
  // Far too large is given back: the kernels' worker wants the memory for its own cells.
  constexpr std::uint64_t generous_bytes = 256 * mib;
  const bool too_large = bytes_ > generous_bytes && bytes_ / 4 > bytes;
  if (bytes <= bytes_ && !too_large) return;
  bytes_ = 0;
  {
    const CallDeadline deadline(steps.deadline, "NCCL", "giving a window back");
    communicators.deregister_windows();
    memory_.clear();
  }
  steps.agree("");  // now nobody has the old memory mapped, and it is really free
  const std::uint64_t new_bytes = size_to_hold(bytes);
  std::string problem;
  try {
    for (std::size_t rank = 0; rank < communicators.ranks(); ++rank) {
      steps.make_current(rank);
      memory_.emplace_back(communicators.library(), new_bytes);
    }
  } catch (const Error& error) {
    problem = error.what();
    memory_.clear();
  }
  // Who registers waits for all, so nobody begins unless everybody can.
  steps.agree(problem);
  std::vector<void*> places;
  for (const Memory& memory : memory_) places.push_back(memory.data());
  {
    const CallDeadline deadline(steps.deadline, "NCCL", "registering a window");
    registered_ = communicators.register_windows(places, new_bytes);
  }
  bytes_ = new_bytes;
}

}  // namespace arb::nccl
