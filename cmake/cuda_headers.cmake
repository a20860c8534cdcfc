# arb_cuda_headers: an interface target with the folder that holds cuda.h, from whichever toolkit has the newest one.
# Nothing else of CUDA is needed to build host code; nothing of it is linked.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
if(NOT ARB_CUDA_INCLUDE_DIR OR NOT EXISTS ${ARB_CUDA_INCLUDE_DIR}/cuda.h)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/toolkits.py headers
    OUTPUT_VARIABLE found ERROR_VARIABLE why OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT found)
    message(FATAL_ERROR "Host code needs cuda.h: ${why}")
  endif()
  set(ARB_CUDA_INCLUDE_DIR ${found} CACHE PATH "folder that holds cuda.h" FORCE)
endif()
add_library(arb_cuda_headers INTERFACE)
target_include_directories(arb_cuda_headers SYSTEM INTERFACE ${ARB_CUDA_INCLUDE_DIR})
