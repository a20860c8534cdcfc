// What a failed NCCL call becomes: one sentence. NCCL's result codes never leave src/nccl_api.
#pragma once

#include <stdexcept>

namespace arb::nccl {

// NCCL cannot be loaded, or one of its calls failed; what() says which file or call, what is wrong, and what
// would work where that is known.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace arb::nccl
