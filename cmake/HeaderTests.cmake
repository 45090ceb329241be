# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# kindex_add_header_tests(): what the people who include kindex's headers rely on, as ctest tests
# with the label `headers`. The compilers run inside the tests: a header that is wrong fails its own
# test and leaves the build alone.
#
#   headers.hip.NAME     the header alone, included twice, as HIP: warnings are errors
#   headers.cxx.NAME     the same by the C++ compiler, for those that need no HIP compiler
#   headers.*.all        all in one file, among macros that other libraries leave behind
#   headers.*.link       the objects of all of these in one program: nothing is defined twice
#   headers.*.macros     including kindex defines no macro without KINDEX_
#   headers.*.c++20      all in one file as C++20
#   headers.hipify       no word in them is one that PyTorch's hipify rewrites
#   headers.hip.fat      typed calls for gfx90a, gfx942 and gfx1100 in one object
#   headers.hip.symbols  in that object: kernels are hidden, everything is in the versioned namespace

include_guard(DIRECTORY)

set(kindex_header_tests_dir "${PROJECT_SOURCE_DIR}/tests/headers")

# What the C++ compiler takes without HIP's runtime header.
set(kindex_host_headers version config fp8 cache_view params validate reference)

# kindex_write_header_sources(directory extension headers...): a file for each; all.<extension> with
# all of them, and system.<extension> with the system headers that they include.
function(kindex_write_header_sources dir extension)
  set(spdx "// SPDX-FileCopyrightText: The kindex authors\n// SPDX-License-Identifier: MIT\n")
  set(system "")
  set(all "")
  foreach(header IN LISTS ARGN)
    string(REPLACE "/" "." name "${header}")
    set(include "#include <kindex/${header}.hpp>\n")
    file(CONFIGURE OUTPUT "${dir}/${name}.${extension}" CONTENT "${spdx}${include}${include}" @ONLY)
    string(APPEND all "${include}")
    set(path "${PROJECT_SOURCE_DIR}/include/kindex/${header}.hpp")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
    file(STRINGS "${path}" lines REGEX "^#include <")
    list(APPEND system ${lines})
  endforeach()
  list(REMOVE_DUPLICATES system)
  list(FILTER system EXCLUDE REGEX "<cub/")
  if(extension STREQUAL "cpp")
    list(FILTER system EXCLUDE REGEX "hip_runtime\\.h")
  endif()
  string(REPLACE ";" "\n" system "${system}")
  # System headers first: they may use the names that the macros forbid.
  file(CONFIGURE OUTPUT "${dir}/system.${extension}" CONTENT "${spdx}${system}\n" @ONLY)
  file(CONFIGURE OUTPUT "${dir}/all.${extension}" CONTENT
       "${spdx}${system}\n#include \"forbidden_names.hpp\"\n${all}" @ONLY)
endfunction()

# kindex_add_header_set(kind extension COMPILE command... SYNTAX more options where no object is made
#                       HEADERS ...)
function(kindex_add_header_set kind extension)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "COMPILE;HEADERS;SYNTAX")
  set(dir "${CMAKE_CURRENT_BINARY_DIR}/${kind}")
  kindex_write_header_sources("${dir}" ${extension} ${arg_HEADERS})
  string(REPLACE "/" "." names "${arg_HEADERS}")
  set(objects "")
  foreach(name IN LISTS names ITEMS all)
    kindex_add_host_test(headers.${kind}.${name} LABELS headers COMMAND
        ${arg_COMPILE} -std=c++17 -c "${dir}/${name}.${extension}" -o "${dir}/${name}.o")
    set_tests_properties(headers.${kind}.${name} PROPERTIES
        FIXTURES_SETUP kindex_header_objects_${kind})
    list(APPEND objects "${dir}/${name}.o")
  endforeach()
  # One object, so that no library is needed: -r complains of definitions that occur twice.
  kindex_add_host_test(headers.${kind}.link LABELS headers COMMAND
      "${CMAKE_CXX_COMPILER}" -nostdlib -r ${objects} -o "${dir}/linked.o")
  set_tests_properties(headers.${kind}.link PROPERTIES
      FIXTURES_REQUIRED kindex_header_objects_${kind})
  kindex_add_host_test(headers.${kind}.c++20 LABELS headers COMMAND
      ${arg_COMPILE} ${arg_SYNTAX} -std=c++20 -fsyntax-only "${dir}/all.${extension}")
  list(JOIN arg_COMPILE "|" compile)
  list(JOIN arg_SYNTAX "|" syntax)
  kindex_add_host_test(headers.${kind}.macros LABELS headers COMMAND
      "${CMAKE_COMMAND}" "-DCOMPILE=${compile}|${syntax}|-std=c++17|-DKINDEX_TEST_NO_FORBIDDEN_NAMES"
      "-DBEFORE=${dir}/system.${extension}" "-DAFTER=${dir}/all.${extension}"
      -P "${kindex_header_tests_dir}/macros.cmake")
endfunction()

function(kindex_add_header_tests)
  set(warnings -Wall -Wextra -Wundef -Wshadow -Werror)
  set(common ${warnings} -fno-exceptions -fno-rtti "-I${PROJECT_SOURCE_DIR}/include"
      "-I${kindex_header_tests_dir}")

  if(KINDEX_DEVICE STREQUAL "nvidia")
    list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND -isystem OUTPUT_VARIABLE toolkit)
    set(platform -D__HIP_PLATFORM_NVIDIA__ "-I${PROJECT_SOURCE_DIR}/tests/cuda" ${toolkit})
  else()
    set(platform -D__HIP_PLATFORM_AMD__)
    # A folder that the compiler looks in anyway must keep its place.
    if(NOT KINDEX_HIP_INCLUDE_DIR IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
      list(APPEND platform -isystem "${KINDEX_HIP_INCLUDE_DIR}")
    endif()
  endif()
  kindex_add_host_test(headers.hipify LABELS headers COMMAND
      "${CMAKE_COMMAND}" "-DHEADERS=${PROJECT_SOURCE_DIR}/include"
      -P "${kindex_header_tests_dir}/hipify.cmake")
  kindex_add_header_set(cxx cpp COMPILE "${CMAKE_CXX_COMPILER}" ${common} ${platform}
                        HEADERS ${kindex_host_headers})
  if(KINDEX_DEVICE STREQUAL "nvidia")
    return()
  endif()

  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include/kindex"
       "${PROJECT_SOURCE_DIR}/include/kindex/*.hpp")
  string(REPLACE ".hpp" "" headers "${headers}")
  separate_arguments(flags UNIX_COMMAND "${CMAKE_HIP_FLAGS}")
  set(hip "${CMAKE_HIP_COMPILER}" -x hip ${flags} ${common})
  list(GET CMAKE_HIP_ARCHITECTURES 0 arch)
  kindex_add_header_set(hip hip COMPILE ${hip} --offload-arch=${arch}
                        SYNTAX --offload-host-only HEADERS ${headers})

  # A target without kernels compiles; the launchers refuse such a device.
  set(fat_architectures gfx90a gfx942 gfx1100)
  if(KINDEX_HIP_COMPILE_OPTIONS)
    kindex_hip_device_libs(unused "${CMAKE_HIP_COMPILER}" "${fat_architectures}")
  endif()
  list(TRANSFORM fat_architectures PREPEND --offload-arch= OUTPUT_VARIABLE fat_options)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/fat.o")
  kindex_add_host_test(headers.hip.fat LABELS headers COMMAND
      ${hip} ${fat_options} -std=c++17 -c "${kindex_header_tests_dir}/fat.hip" -o "${object}")
  set_tests_properties(headers.hip.fat PROPERTIES FIXTURES_SETUP kindex_fat_object)
  find_program(KINDEX_READELF NAMES readelf llvm-readelf llvm-readelf-19)
  mark_as_advanced(KINDEX_READELF)
  if(KINDEX_READELF)
    kindex_add_host_test(headers.hip.symbols LABELS headers COMMAND
        "${CMAKE_COMMAND}" "-DREADELF=${KINDEX_READELF}" "-DOBJECT=${object}"
        -P "${kindex_header_tests_dir}/symbols.cmake")
    set_tests_properties(headers.hip.symbols PROPERTIES FIXTURES_REQUIRED kindex_fat_object)
  endif()
endfunction()
