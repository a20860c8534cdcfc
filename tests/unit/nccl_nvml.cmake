# Tests of src/nccl_api and src/nvml_api, against libraries of our own that they open by path.
# include()d by tests/unit/CMakeLists.txt.
include(GoogleTest)

function(arb_fake_library target source folder name)
  add_library(${target} MODULE ${CMAKE_CURRENT_LIST_DIR}/${source})
  target_link_libraries(${target} PRIVATE arb_flags)
  target_compile_definitions(${target} PRIVATE ${ARGN})
  set_target_properties(
    ${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} SUFFIX "" LIBRARY_OUTPUT_DIRECTORY
                         ${CMAKE_CURRENT_BINARY_DIR}/fakes/${folder})
endfunction()

arb_fake_library(fake_nccl fake_nccl.cpp nccl libnccl.so.2 FAKE_CODE=22809
                 "FAKE_TEXT=\"NCCL version 2.28.9+cuda13.0\"")
arb_fake_library(fake_nccl_broken fake_nccl.cpp nccl-broken libnccl.so.2 FAKE_CODE=22809 FAKE_BROKEN)
arb_fake_library(fake_nccl_old fake_nccl.cpp nccl-old libnccl.so.2 FAKE_CODE=2708)
arb_fake_library(fake_nccl_no_windows fake_nccl.cpp nccl-no-windows libnccl.so.2 FAKE_CODE=22602
                 "FAKE_TEXT=\"NCCL version 2.26.2+cuda12.8\"")
arb_fake_library(fake_nvml fake_nvml.cpp nvml libnvidia-ml.so.1)
arb_fake_library(fake_nvml_broken fake_nvml.cpp nvml-broken libnvidia-ml.so.1 FAKE_BROKEN)
arb_fake_library(fake_nvml_no_driver fake_nvml.cpp nvml-no-driver libnvidia-ml.so.1 FAKE_NO_DRIVER)
arb_fake_library(fake_nvml_old fake_nvml.cpp nvml-old libnvidia-ml.so.1 FAKE_OLD)

foreach(part nccl nvml)
  add_executable(${part}_api_test ${CMAKE_CURRENT_LIST_DIR}/${part}_api_test.cpp)
  target_include_directories(${part}_api_test PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../support)
  target_link_libraries(${part}_api_test PRIVATE arb_${part}_api GTest::gtest_main ${CMAKE_DL_LIBS})
  target_compile_definitions(${part}_api_test
                             PRIVATE ARB_FAKES="${CMAKE_CURRENT_BINARY_DIR}/fakes")
  gtest_discover_tests(${part}_api_test PROPERTIES LABELS unit)
endforeach()
add_dependencies(nccl_api_test fake_nccl fake_nccl_broken fake_nccl_old fake_nccl_no_windows)
add_dependencies(nvml_api_test fake_nvml fake_nvml_broken fake_nvml_no_driver fake_nvml_old)
