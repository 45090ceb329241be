# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# How tests, benchmarks and examples are declared:
#
#   kindex_add_hip_executable(target SOURCES a.hip b.cpp ... [LIBRARIES ...])
#   kindex_add_host_executable(target SOURCES a.cpp ... [LIBRARIES ...])      no HIP library linked
#   kindex_add_device_test(name COMMAND ... [LABELS ...] [TIMEOUT seconds])   needs the device
#   kindex_add_host_test(name COMMAND ... [LABELS ...] [TIMEOUT seconds])     does not
#
# KINDEX_DEVICE says where the device tests run:
#   emulated   HIP for gfx942, run on tests/emulator's stand-in for libamdhip64
#   amd        HIP, run on the system's ROCm
#   nvidia     the same .hip files by nvcc; tests/cuda maps the HIP names
# `emulated` and `amd` build the same programs: which libamdhip64 is loaded decides.

include_guard(DIRECTORY)

set(KINDEX_DEVICE emulated CACHE STRING "Where the tests and benchmarks run: emulated, amd or nvidia")
set_property(CACHE KINDEX_DEVICE PROPERTY STRINGS emulated amd nvidia)
if(NOT KINDEX_DEVICE MATCHES "^(emulated|amd|nvidia)$")
  message(FATAL_ERROR "kindex: KINDEX_DEVICE is \"${KINDEX_DEVICE}\", not emulated, amd or nvidia")
endif()
option(KINDEX_WERROR "Warnings are errors in kindex's own targets" OFF)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo, Debug, MinSizeRel" FORCE)
  endif()
endif()

if(KINDEX_DEVICE STREQUAL "nvidia")
  # sm_90a, not sm_90: wgmma exists only there.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(kindex_hip_language CUDA)
  set(kindex_hip_runtime_library CUDA::cudart_static)
else()
  include(EnableHip)
  set(kindex_hip_language HIP)
  set(kindex_hip_runtime_library "${KINDEX_HIP_RUNTIME}")
endif()

include(ProcessorCount)
ProcessorCount(kindex_num_processors)

# Warnings, and the way to the HIP headers for plain C++ sources. Never part of kindex::kindex.
add_library(kindex_development INTERFACE)
set(kindex_warnings -Wall -Wextra -Wundef -Wshadow)
if(KINDEX_DEVICE STREQUAL "nvidia")
  target_compile_definitions(kindex_development INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:__HIP_PLATFORM_NVIDIA__>")
  # -Wundef and -Wshadow would fire in the sources that nvcc generates.
  target_compile_options(kindex_development INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:${kindex_warnings}>"
      "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>"
      "$<$<AND:$<BOOL:${KINDEX_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>"
      "$<$<AND:$<BOOL:${KINDEX_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings>")
  # nvcc defines the platform itself; g++ must be told.
  target_compile_definitions(kindex_development INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:__HIP_PLATFORM_NVIDIA__>")
  target_include_directories(kindex_development BEFORE INTERFACE "${PROJECT_SOURCE_DIR}/tests/cuda")
  target_include_directories(kindex_development SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
else()
  target_compile_options(kindex_development INTERFACE
      ${kindex_warnings}
      "$<$<BOOL:${KINDEX_WERROR}>:-Werror>")
  # The HIP compiler defines the platform itself; g++ must be told.
  target_compile_definitions(kindex_development INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:__HIP_PLATFORM_AMD__>")
  target_include_directories(kindex_development SYSTEM INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:${KINDEX_HIP_INCLUDE_DIR}>")
endif()
target_link_libraries(kindex_development INTERFACE kindex::kindex)

set(kindex_standard
    CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    HIP_STANDARD 17 HIP_STANDARD_REQUIRED ON HIP_EXTENSIONS OFF
    CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)

# A macro: the property holds in the directory of the caller.
macro(kindex_set_hip_language)
  foreach(kindex_source IN ITEMS ${ARGN})
    if(kindex_source MATCHES "\\.hip$")
      set_source_files_properties("${kindex_source}" PROPERTIES LANGUAGE ${kindex_hip_language})
    endif()
  endforeach()
endmacro()

# What both kinds of program have in common.
function(kindex_add_host_executable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "kindex: executable ${target}: SOURCES is missing, or unknown arguments "
                        "\"${arg_UNPARSED_ARGUMENTS}\"")
  endif()
  add_executable(${target} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES
      ${kindex_standard}
      RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${target} PRIVATE kindex_development ${arg_LIBRARIES})
endfunction()

function(kindex_add_hip_executable target)
  kindex_add_host_executable(${target} ${ARGN})
  get_target_property(sources ${target} SOURCES)
  kindex_set_hip_language(${sources})
  # CMake adds the runtime by itself only for a program with a .hip file.
  target_link_libraries(${target} PRIVATE ${kindex_hip_runtime_library})
  if(KINDEX_DEVICE STREQUAL "emulated")
    # RUNPATH, not RPATH: LD_LIBRARY_PATH must win.
    target_link_options(${target} PRIVATE "LINKER:--enable-new-dtags")
    if(TARGET kindex_emulator)
      add_dependencies(${target} kindex_emulator)
    endif()
  endif()
endfunction()

function(kindex_add_host_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

function(kindex_add_device_test name)
  kindex_add_host_test(${name} ${ARGN})
  set_property(TEST ${name} APPEND PROPERTY LABELS device)
  if(KINDEX_DEVICE STREQUAL "emulated")
    # The emulator runs workgroups on all cores, so one such test at a time.
    set_tests_properties(${name} PROPERTIES
        PROCESSORS ${kindex_num_processors}
        ENVIRONMENT_MODIFICATION
        "LD_LIBRARY_PATH=path_list_prepend:${PROJECT_BINARY_DIR}/emulator")
  else()
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()

# What tests and benchmarks share: buffers, page tables, the table of cases. The kernels'
# instantiations beside them (support/*.hip) take long to compile and belong to the tests alone.
file(GLOB kindex_support_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cpp")
add_library(kindex_test_support STATIC EXCLUDE_FROM_ALL ${kindex_support_sources})
set_target_properties(kindex_test_support PROPERTIES ${kindex_standard})
target_include_directories(kindex_test_support PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(kindex_test_support PUBLIC
    kindex_development ${kindex_hip_runtime_library} ${CMAKE_DL_LIBS})
