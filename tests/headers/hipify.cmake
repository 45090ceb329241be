# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# cmake -DHEADERS=folder -P hipify.cmake
# Fails if a header has a word that PyTorch's hipify rewrites. It would then make a copy of the header
# under another name, and of all that include it: two kindex in one program. What hipify really does
# with the headers, examples/torch_extension tests, where PyTorch is.

file(GLOB_RECURSE headers "${HEADERS}/*.hpp")
if(NOT headers)
  message(FATAL_ERROR "no headers in ${HEADERS}")
endif()
foreach(header IN LISTS headers)
  file(READ "${header}" text)
  string(REGEX MATCH "__CUDACC__|[^A-Za-z0-9_]cu(da|blas|rand|sparse|dnn|fft)[A-Z_.][A-Za-z0-9_]*|<<<"
         word "${text}")
  if(word)
    message(SEND_ERROR "${header}: ${word}")
  endif()
endforeach()
