# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# EnableHip: enable_language(HIP), on a ROCm installation and on a distribution's packages alike.
#
# A ROCm installation and recent distributions need none of the help below and get none: every step
# first looks whether it is needed. Debian 12 needs all three:
#   1. its plain `clang++` and its hipcc are too old for gfx942: take the first compiler that compiles
#      a small HIP program for it;
#   2. its device libraries have no oclc_isa_version_942.bc: make it, beside links to the others;
#   3. CMake 3.25 looks for hip-lang-config.cmake in <root>/lib only, Debian has it in the
#      multiarch folder (and that one wants clang_rt for the GPU): write a minimal one.
#
# Honours CMAKE_HIP_COMPILER, HIPCXX, ROCM_PATH and CMAKE_HIP_ARCHITECTURES. A macro file, because
# enable_language must run in the scope of the including directory. Sets:
#   KINDEX_HIP_INCLUDE_DIR    the folder of hip/hip_runtime.h, for plain C++ sources
#   KINDEX_HIP_RUNTIME        libamdhip64.so
#   CMAKE_HIP_ARCHITECTURES   unless given: gfx942, and gfx950 where the compiler knows it
# and, where step 2 is needed, appends to CMAKE_HIP_FLAGS (in this directory's scope).

include_guard(DIRECTORY)

# kindex_hip_compiles(result compiler "architectures" options...): can this compiler build a HIP
# kernel and its host side? Headers and device libraries, no linking. Leaves kindex_hip_log.
function(kindex_hip_compiles result compiler architectures)
  set(dir "${PROJECT_BINARY_DIR}/CMakeFiles/kindex-hip-probe")
  file(WRITE "${dir}/probe.hip" [[
#include <hip/hip_runtime.h>
__global__ void kernel(float* x) { x[threadIdx.x] = __expf(x[threadIdx.x]); }
int main() { hipLaunchKernelGGL(kernel, dim3(1), dim3(64), 0, nullptr, nullptr); }
]])
  list(TRANSFORM architectures PREPEND "--offload-arch=")
  execute_process(
    COMMAND "${compiler}" -x hip ${architectures} -std=c++17 ${ARGN} -c "${dir}/probe.hip" -o
            "${dir}/probe.o"
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE log)
  if(status EQUAL 0)
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
  set(kindex_hip_log "${log}" PARENT_SCOPE)
endfunction()

# kindex_hip_device_libs(result compiler "architectures"): a folder with links to the installed
# device libraries and the oclc_isa_version files that they lack. Empty where none are installed.
function(kindex_hip_device_libs result compiler architectures)
  set(${result} "" PARENT_SCOPE)
  file(GLOB candidates "$ENV{ROCM_PATH}/amdgcn/bitcode/ockl.bc" "/opt/rocm/amdgcn/bitcode/ockl.bc"
       "/usr/lib/*/amdgcn/bitcode/ockl.bc" "/usr/lib/amdgcn/bitcode/ockl.bc"
       "/usr/amdgcn/bitcode/ockl.bc")
  if(NOT candidates)
    return()
  endif()
  list(GET candidates 0 first)
  get_filename_component(installed "${first}" DIRECTORY)
  set(dir "${PROJECT_BINARY_DIR}/hip-device-libs")
  file(MAKE_DIRECTORY "${dir}")
  file(GLOB libraries "${installed}/*.bc")
  foreach(library IN LISTS libraries)
    get_filename_component(name "${library}" NAME)
    file(CREATE_LINK "${library}" "${dir}/${name}" SYMBOLIC)
  endforeach()
  foreach(arch IN LISTS architectures)
    # gfx942: major 9, minor 4, step 2; gfx90a: the step is hexadecimal; gfx1100: major 11.
    if(NOT arch MATCHES "^gfx([0-9]+)([0-9])([0-9a-f])(:|$)")
      continue()
    endif()
    set(major "${CMAKE_MATCH_1}")
    set(minor "${CMAKE_MATCH_2}")
    math(EXPR step "0x${CMAKE_MATCH_3}")
    set(number "${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3}")
    if(EXISTS "${dir}/oclc_isa_version_${number}.bc")
      continue()
    endif()
    math(EXPR version "${major} * 1000 + ${minor} * 100 + ${step}")
    # The one constant that such a file defines.
    file(WRITE "${dir}/isa_version_${number}.c"
         "const __attribute__((address_space(4), visibility(\"hidden\"))) int "
         "__oclc_ISA_version = ${version};\n")
    execute_process(
      COMMAND "${compiler}" -x c -target amdgcn-amd-amdhsa -mcpu=gfx${number} -nogpulib -emit-llvm
              -c "${dir}/isa_version_${number}.c" -o "${dir}/oclc_isa_version_${number}.bc"
      OUTPUT_QUIET ERROR_QUIET)
  endforeach()
  set(${result} "${dir}" PARENT_SCOPE)
endfunction()

# kindex_hip_find_compiler("architectures"): sets KINDEX_HIP_COMPILER and KINDEX_HIP_COMPILE_OPTIONS
# in the cache, so that the search runs once per build folder and list of architectures.
function(kindex_hip_find_compiler architectures)
  if(KINDEX_HIP_COMPILER AND KINDEX_HIP_CHECKED STREQUAL "${CMAKE_HIP_COMPILER}|${architectures}")
    return()
  endif()
  if(CMAKE_HIP_COMPILER)
    set(candidates "${CMAKE_HIP_COMPILER}")
  elseif(DEFINED ENV{HIPCXX})
    set(candidates "$ENV{HIPCXX}")
  else()
    set(candidates "$ENV{ROCM_PATH}/llvm/bin/clang++" "$ENV{ROCM_PATH}/lib/llvm/bin/clang++"
        /opt/rocm/llvm/bin/clang++ /opt/rocm/lib/llvm/bin/clang++ amdclang++)
    foreach(version RANGE 24 17 -1)
      list(APPEND candidates clang++-${version})
    endforeach()
    list(APPEND candidates clang++)
  endif()

  set(tried "")
  foreach(candidate IN LISTS candidates)
    unset(compiler)
    find_program(compiler "${candidate}" NO_CACHE)
    if(NOT compiler)
      continue()
    endif()
    set(options "")
    kindex_hip_compiles(works "${compiler}" "${architectures}")
    set(log "${kindex_hip_log}")
    if(NOT works AND log MATCHES "device library")
      kindex_hip_device_libs(libs "${compiler}" "${architectures}")
      if(libs)
        set(options "--rocm-device-lib-path=${libs}")
        kindex_hip_compiles(works "${compiler}" "${architectures}" ${options})
        set(log "${kindex_hip_log}")
      endif()
    endif()
    if(works)
      set(KINDEX_HIP_COMPILER "${compiler}" CACHE INTERNAL "compiler that EnableHip chose")
      set(KINDEX_HIP_COMPILE_OPTIONS "${options}" CACHE INTERNAL "what that compiler needs")
      set(KINDEX_HIP_CHECKED "${CMAKE_HIP_COMPILER}|${architectures}" CACHE INTERNAL "for these")
      message(STATUS "kindex: HIP compiler ${compiler} ${options}")
      return()
    endif()
    string(REGEX REPLACE "\n.*" "" log "${log}")
    string(APPEND tried "  ${compiler}: ${log}\n")
  endforeach()
  if(NOT tried)
    set(tried "  (none found)\n")
  endif()
  message(FATAL_ERROR
          "kindex: no HIP compiler for ${architectures}. Tried:\n${tried}"
          "On Debian 12, ./run.sh installs what is needed. Elsewhere install ROCm 6 or newer, or name "
          "a clang++ by -DCMAKE_HIP_COMPILER=... .")
endfunction()

# kindex_hip_write_lang_package(): step 3 above. Sets CMAKE_HIP_COMPILER_ROCM_ROOT in the caller.
function(kindex_hip_write_lang_package)
  # From 3.28 on CMake finds the package in a multiarch folder too.
  if(CMAKE_HIP_COMPILER_ROCM_ROOT OR CMAKE_VERSION VERSION_GREATER_EQUAL 3.28)
    return()
  endif()
  execute_process(COMMAND "${KINDEX_HIP_COMPILER}" -v -print-targets OUTPUT_QUIET
                  ERROR_VARIABLE log)
  set(root "")
  if(log MATCHES "Found HIP installation: *([^,\n]*)")
    set(root "${CMAKE_MATCH_1}")
  endif()
  if(root AND EXISTS "${root}/lib/cmake/hip-lang/hip-lang-config.cmake")
    return()
  endif()
  find_library(KINDEX_HIP_RUNTIME amdhip64 HINTS "${root}/lib")
  mark_as_advanced(KINDEX_HIP_RUNTIME)
  if(NOT KINDEX_HIP_RUNTIME)
    message(FATAL_ERROR "kindex: no libamdhip64.so (Debian: libamdhip64-dev)")
  endif()
  set(stand_in "${PROJECT_BINARY_DIR}/hip-lang-package")
  file(WRITE "${stand_in}/lib/cmake/hip-lang/hip-lang-config.cmake"
       "# Written by EnableHip.cmake: what CMake needs of the package hip-lang, no more.
if(NOT TARGET hip-lang::device)
  add_library(hip-lang::device INTERFACE IMPORTED)
  set_property(TARGET hip-lang::device PROPERTY
               INTERFACE_LINK_LIBRARIES \"$<$<LINK_LANGUAGE:HIP>:${KINDEX_HIP_RUNTIME}>\")
endif()
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET hip-lang::device)
")
  set(CMAKE_HIP_COMPILER_ROCM_ROOT "${stand_in}" PARENT_SCOPE)
endfunction()

if(CMAKE_HIP_ARCHITECTURES)
  kindex_hip_find_compiler("${CMAKE_HIP_ARCHITECTURES}")
else()
  kindex_hip_find_compiler(gfx942)
endif()

if(NOT CMAKE_HIP_ARCHITECTURES)
  if(NOT DEFINED KINDEX_HIP_KNOWS_GFX950)
    kindex_hip_compiles(kindex_hip_knows "${KINDEX_HIP_COMPILER}" gfx950 ${KINDEX_HIP_COMPILE_OPTIONS})
    set(KINDEX_HIP_KNOWS_GFX950 ${kindex_hip_knows} CACHE INTERNAL "the HIP compiler knows gfx950")
  endif()
  set(CMAKE_HIP_ARCHITECTURES gfx942)
  if(KINDEX_HIP_KNOWS_GFX950)
    list(APPEND CMAKE_HIP_ARCHITECTURES gfx950)
  endif()
endif()

kindex_hip_write_lang_package()
if(NOT CMAKE_HIP_COMPILER)
  set(CMAKE_HIP_COMPILER "${KINDEX_HIP_COMPILER}")
endif()
if(NOT CMAKE_HIP_PLATFORM)
  set(CMAKE_HIP_PLATFORM amd)
endif()
if(KINDEX_HIP_COMPILE_OPTIONS)
  # Before enable_language: CMake could not even tell the compiler's name without its device
  # libraries. A normal variable over the cached one, so that repeated runs do not pile up flags.
  if(NOT DEFINED CMAKE_HIP_FLAGS)
    set(CMAKE_HIP_FLAGS "$ENV{HIPFLAGS}")
  endif()
  string(JOIN " " CMAKE_HIP_FLAGS ${CMAKE_HIP_FLAGS} ${KINDEX_HIP_COMPILE_OPTIONS})
endif()
enable_language(HIP)

set(kindex_hip_roots "$ENV{ROCM_PATH}" "${CMAKE_HIP_COMPILER_ROCM_ROOT}" /opt/rocm)
find_path(KINDEX_HIP_INCLUDE_DIR hip/hip_runtime.h HINTS ${kindex_hip_roots} PATH_SUFFIXES include)
find_library(KINDEX_HIP_RUNTIME amdhip64 HINTS ${kindex_hip_roots} PATH_SUFFIXES lib)
mark_as_advanced(KINDEX_HIP_INCLUDE_DIR KINDEX_HIP_RUNTIME)
