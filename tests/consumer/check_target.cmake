# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# kindex::kindex carries an include path and C++17, nothing else.
get_target_property(features kindex::kindex INTERFACE_COMPILE_FEATURES)
if(NOT features STREQUAL "cxx_std_17")
  message(FATAL_ERROR "compile features: ${features}")
endif()
foreach(property IN ITEMS COMPILE_OPTIONS COMPILE_DEFINITIONS LINK_LIBRARIES LINK_OPTIONS SOURCES)
  get_target_property(value kindex::kindex INTERFACE_${property})
  if(value)
    message(FATAL_ERROR "${property} of kindex::kindex: ${value}")
  endif()
endforeach()
