// A stack that can be left and entered again: one emulated thread. Boost.Context underneath, with the
// switches announced to AddressSanitizer and ThreadSanitizer where the program is built with one of them.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <functional>

namespace arb::emulator {

// One fibre. It belongs to the operating-system thread that starts it; resume() and suspend() alternate.
class Fibre {
 public:
  explicit Fibre(std::size_t stack_bytes);
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;
  Fibre(Fibre&&) = delete;
  Fibre& operator=(Fibre&&) = delete;
  // Precondition: finished().
  ~Fibre();

  // Prepares to run `body` from the next resume() on; the stack is reused. Precondition: finished(). An
  // exception that would leave `body` ends the program: a fibre has no caller to throw to.
  void start(std::function<void()> body);
  // Runs the body until it suspends or ends. Called from outside.
  void resume();
  // Goes back to whoever resumed. Called from inside the body.
  void suspend();
  // No body is under way.
  [[nodiscard]] bool finished() const { return !context_; }

 private:
  void announce_entry();

  boost::context::protected_fixedsize_stack allocator_;
  boost::context::stack_context stack_;
  boost::context::fiber context_;  // of the body while it is suspended
  boost::context::fiber caller_;   // of the resumer while the body runs
  std::function<void()> body_;
  // For the sanitizers: both sides' shadow stacks, and where the resumer's stack lies.
  void* inside_shadow_ = nullptr;
  void* outside_shadow_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_bytes_ = 0;
};

}  // namespace arb::emulator
