# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# Code that must not compile, and what the compiler must say of it.
#
#   kindex_add_compile_fail_tests(prefix SOURCE file COMMAND compiler options...)
#
# The file has its cases under #if KINDEX_CASE == N, and for each a line
#
#   // case N: NAME: REGEX
#
# which becomes the test PREFIX.NAME, label compile_fail: KINDEX_CASE=N fails to compile, and the
# message matches. Without a case the file must compile: test PREFIX.none.

if(CMAKE_SCRIPT_MODE_FILE)
  # cmake -DCOMMAND=a|b|... -DEXPECT=regex -P CompileFail.cmake; no EXPECT: it must compile
  string(REPLACE "|" ";" COMMAND "${COMMAND}")
  execute_process(COMMAND ${COMMAND} RESULT_VARIABLE status OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(NOT EXPECT)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "does not compile:\n${log}")
    endif()
  elseif(status EQUAL 0)
    message(FATAL_ERROR "compiles, without \"${EXPECT}\"")
  elseif(NOT log MATCHES "error: [^\n]*(${EXPECT})")
    message(FATAL_ERROR "no error \"${EXPECT}\" in:\n${log}")
  endif()
  return()
endif()

include_guard(DIRECTORY)

set(kindex_compile_fail_script "${CMAKE_CURRENT_LIST_FILE}")

function(kindex_add_compile_fail_tests prefix)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SOURCE" "COMMAND")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${arg_SOURCE}")
  list(JOIN arg_COMMAND "|" command)
  kindex_add_host_test(${prefix}.none LABELS compile_fail COMMAND "${CMAKE_COMMAND}"
      "-DCOMMAND=${command}|-DKINDEX_CASE=0|${arg_SOURCE}" -P "${kindex_compile_fail_script}")
  file(STRINGS "${arg_SOURCE}" cases REGEX "^// case [0-9]+: ")
  if(NOT cases)
    message(FATAL_ERROR "kindex: no cases in ${arg_SOURCE}")
  endif()
  foreach(case IN LISTS cases)
    if(NOT case MATCHES "^// case ([0-9]+): ([a-z0-9_]+): (.+)$")
      message(FATAL_ERROR "kindex: \"${case}\" in ${arg_SOURCE}")
    endif()
    kindex_add_host_test(${prefix}.${CMAKE_MATCH_2} LABELS compile_fail COMMAND "${CMAKE_COMMAND}"
        "-DCOMMAND=${command}|-DKINDEX_CASE=${CMAKE_MATCH_1}|${arg_SOURCE}"
        "-DEXPECT=${CMAKE_MATCH_3}" -P "${kindex_compile_fail_script}")
  endforeach()
endfunction()
