# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# cmake -DREADME=... -DEXAMPLE=... -P check_readme.cmake: fails unless the README's first C++ block
# is what lies between the two [readme] lines of the example.

# between(out file begin end): the text after the line that is `begin`, up to the line that is `end`.
function(between out file begin end)
  file(READ "${file}" text)
  string(FIND "${text}" "\n${begin}\n" first)
  if(first EQUAL -1)
    message(FATAL_ERROR "${file} has no line \"${begin}\"")
  endif()
  string(LENGTH "\n${begin}\n" begin_length)
  math(EXPR first "${first} + ${begin_length}")
  string(SUBSTRING "${text}" ${first} -1 text)
  string(FIND "${text}" "\n${end}\n" last)
  if(last EQUAL -1)
    message(FATAL_ERROR "${file} has no line \"${end}\" after \"${begin}\"")
  endif()
  string(SUBSTRING "${text}" 0 ${last} text)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

between(shown "${README}" "```cpp" "```")
between(compiled "${EXAMPLE}" "// [readme]" "// [readme]")
if(NOT "${shown}" STREQUAL "${compiled}")
  message(FATAL_ERROR "${README} and ${EXAMPLE} differ.\nThe README has:\n${shown}\n\n"
                      "The example has:\n${compiled}")
endif()
message(STATUS "${README} shows what ${EXAMPLE} compiles")
