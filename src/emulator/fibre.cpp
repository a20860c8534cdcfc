#include "fibre.h"

#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace arb::emulator {
namespace {

// Boost frees a fibre's stack when its body ends; ours is kept for the next body.
struct BorrowedStack {
  boost::context::stack_context stack;
  boost::context::stack_context allocate() { return stack; }
  void deallocate(boost::context::stack_context&) {}
};

// Before a switch: `shadow` keeps this side's shadow stack (null: this side ends here).
[[maybe_unused]] void leave([[maybe_unused]] void** shadow, [[maybe_unused]] const void* bottom,
                            [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(shadow, bottom, bytes);
#endif
}

// After a switch: `shadow` is what leave() kept; where the other side's stack lies goes to bottom and bytes.
[[maybe_unused]] void arrive([[maybe_unused]] void* shadow, [[maybe_unused]] const void** bottom,
                             [[maybe_unused]] std::size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(shadow, bottom, bytes);
#endif
}

}  // namespace

Fibre::Fibre(std::size_t stack_bytes) : allocator_(stack_bytes), stack_(allocator_.allocate()) {
#if defined(__SANITIZE_THREAD__)
  inside_shadow_ = __tsan_create_fiber(0);
#endif
}

Fibre::~Fibre() {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(inside_shadow_);
#endif
  allocator_.deallocate(stack_);
}

void Fibre::announce_entry() {
  arrive(nullptr, &outside_bottom_, &outside_bytes_);
}

void Fibre::start(std::function<void()> body) {
  body_ = std::move(body);
#if defined(__SANITIZE_ADDRESS__)
  // The last body's outermost frames were left without a return, and so with their shadow still poisoned.
  ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
#endif
  const auto entry = [this](boost::context::fiber&& caller) noexcept {
    caller_ = std::move(caller);
    announce_entry();
    body_();
    leave(nullptr, outside_bottom_, outside_bytes_);
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(outside_shadow_, 0);
#endif
    return std::move(caller_);
  };
  context_ =
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack_.sp, stack_.size, stack_),
                            BorrowedStack{stack_}, entry);
}

void Fibre::resume() {
  leave(&outside_shadow_, static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
#if defined(__SANITIZE_THREAD__)
  outside_shadow_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(inside_shadow_, 0);
#endif
  context_ = std::move(context_).resume();
  arrive(outside_shadow_, nullptr, nullptr);
}

void Fibre::suspend() {
  leave(&inside_shadow_, outside_bottom_, outside_bytes_);
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(outside_shadow_, 0);
#endif
  caller_ = std::move(caller_).resume();
  arrive(inside_shadow_, &outside_bottom_, &outside_bytes_);
}

}  // namespace arb::emulator
