# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# cmake -DREADELF=program -DOBJECT=file -P symbols.cmake
# Kernels and their stubs must be hidden, so that two shared libraries with different builds of
# kindex never launch each other's; and the version must be in the name of everything.

execute_process(COMMAND "${READELF}" -sW "${OBJECT}" OUTPUT_VARIABLE table RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${READELF} cannot read ${OBJECT}")
endif()
string(REGEX MATCHALL "[^\n]*6kindex[^\n]*" lines "${table}")
set(kernels 0)
foreach(line IN LISTS lines)
  if(NOT line MATCHES "6kindex4v[0-9]+_[0-9]+")
    message(SEND_ERROR "no version in the name: ${line}")
  endif()
  if(line MATCHES "(store|gather|paged_mqa_logits)_kernel" AND NOT line MATCHES " (SECTION|FILE) ")
    math(EXPR kernels "${kernels} + 1")
    if(NOT line MATCHES " (HIDDEN|INTERNAL) " AND NOT line MATCHES " LOCAL ")
      message(SEND_ERROR "a kernel that is not hidden: ${line}")
    endif()
  endif()
endforeach()
if(kernels LESS 3)
  message(FATAL_ERROR "only ${kernels} kernels in ${OBJECT}")
endif()
message(STATUS "${kernels} symbols of kernels, all hidden")
