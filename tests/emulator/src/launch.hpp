// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// From a kernel and its arguments to a launch: kernel descriptor, hidden arguments, options.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "code_object.hpp"

namespace kindex::emulator {

enum class launch_status { success, invalid_configuration, not_found, failure, unsupported };

struct launch_request {
  code_object* object = nullptr;
  std::string kernel;
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_lds = 0;
  // The explicit arguments, laid out as the kernel expects them.
  std::vector<uint8_t> arguments;
};

// Copies arguments from the form of hipLaunchKernel (one pointer each).
std::vector<uint8_t> pack_arguments(const kernel_info& kernel, void* const* arguments);

launch_status check_launch(const launch_request& request);
launch_status execute_launch(const launch_request& request);

struct kernel_resources {
  uint32_t vector_registers = 0;
  uint32_t accumulation_registers = 0;
  uint32_t scalar_registers = 0;
  uint32_t static_lds = 0;
  uint32_t scratch = 0;
  uint32_t max_block = 0;
};
bool query_kernel(code_object& object, const std::string& kernel, kernel_resources* out);

// fp8 as OCP defines it, and the device a gfx950.
bool ocp_mode();

}  // namespace kindex::emulator
