// Memory that NCCL may use in place: from its own allocator, registered as a symmetric window.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nccl_api/communicators.h"

namespace arb::nccl {

// Device memory of the kind that windows take.
class Memory {
 public:
  // On the device of the current context, a primary one. Throws nccl::Error.
  Memory(Library library, std::uint64_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  Library library_;
  void* data_ = nullptr;
};

// One window over all ranks, whose size follows need: to register is slow, and every registration is a meeting of all
// ranks. Its memory must outlive the communicators, which give the window back.
class Windows {
 public:
  // What the holder of the ranks does for it.
  struct Steps {
    // Makes the context of this process's rank (by its place in the communicators) current.
    std::function<void(std::size_t rank)> make_current;
    // Meets the other processes; throws in all of them where one has a problem, which is a sentence.
    std::function<void(const std::string& problem)> agree;
    // How long NCCL may take to register or to give back; past it the process ends with a sentence on stderr,
    // status 2: NCCL waits for the other ranks with no deadline of its own.
    std::chrono::milliseconds deadline;
  };

  // Makes it hold `bytes` of each rank, and not far more; no work that uses it may be under way. A step that all
  // processes take together. What it held is lost when its size changes. Throws nccl::Error, and what the steps throw.
  void reserve(Communicators& communicators, std::uint64_t bytes, const Steps& steps);
  // Of this process's rank; 2 MiB aligned by NCCL's allocator.
  [[nodiscard]] std::byte* data(std::size_t rank) const { return memory_[rank].data(); }
  // False: NCCL took the memory and registered nothing.
  [[nodiscard]] bool registered() const { return registered_; }

 private:
  std::vector<Memory> memory_;  // one a rank of this process
  std::uint64_t bytes_ = 0;
  bool registered_ = false;
};

}  // namespace arb::nccl
