# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# cmake -DCOMPILE=compiler|option|... -DBEFORE=source -DAFTER=source -P macros.cmake
# Fails if AFTER defines macros without KINDEX_ that BEFORE does not.

string(REPLACE "|" ";" COMPILE "${COMPILE}")
list(REMOVE_ITEM COMPILE "")

function(macros_of source result)
  execute_process(COMMAND ${COMPILE} -dM -E "${source}" OUTPUT_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${source} does not compile")
  endif()
  string(REGEX MATCHALL "#define [A-Za-z_0-9]+" names "${text}")
  set(${result} "${names}" PARENT_SCOPE)
endfunction()

macros_of("${BEFORE}" before)
macros_of("${AFTER}" after)
list(REMOVE_ITEM after ${before})
set(own "${after}")
list(FILTER own INCLUDE REGEX "^#define KINDEX_")
list(LENGTH own number)
list(FILTER after EXCLUDE REGEX "^#define KINDEX_")
if(after OR number EQUAL 0)
  message(FATAL_ERROR "${number} macros with KINDEX_, and without: ${after}")
endif()
message(STATUS "${number} macros, all with KINDEX_")
