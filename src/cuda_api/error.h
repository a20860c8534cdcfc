// What a failed driver call becomes: one sentence. The driver's error codes never leave src/cuda_api.
#pragma once

#include <stdexcept>

namespace arb::cuda {

// A driver call failed; what() names the call, what it was for and the driver's own words.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// There is no usable driver; what() says what is missing and what would work.
class NoDriver : public CudaError {
 public:
  using CudaError::CudaError;
};

}  // namespace arb::cuda
