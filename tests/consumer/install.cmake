# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# cmake -DPREFIX=folder -DBUILD=folder -DHEADERS=folder -P install.cmake
# Installs into a fresh prefix; every header arrives, and nothing that depends on the machine.

file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${PREFIX}"
                RESULT_VARIABLE status OUTPUT_QUIET)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the install failed")
endif()
file(GLOB_RECURSE wanted RELATIVE "${HEADERS}" "${HEADERS}/*.hpp")
file(GLOB_RECURSE installed RELATIVE "${PREFIX}/include" "${PREFIX}/include/*")
if(NOT wanted STREQUAL installed)
  message(FATAL_ERROR "installed:\n${installed}\nnot:\n${wanted}")
endif()
file(GLOB_RECURSE package "${PREFIX}/*.cmake")
foreach(file IN LISTS package)
  file(STRINGS "${file}" paths REGEX "(${BUILD}|${HEADERS}|${PREFIX})")
  if(paths)
    message(FATAL_ERROR "${file} names a path of this machine: ${paths}")
  endif()
endforeach()
