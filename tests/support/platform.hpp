// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the tests must know about the device at hand, and calls into the emulator where it is
// loaded.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include <kindex/fp8.hpp>

namespace kindex_test {

/// Throws with the call's name if a HIP call failed: Catch2 reports it as a failure of the case.
void check(hipError_t status, const char* what);

/// True under the emulator (its sizes are checked to the byte, its time is not a device's).
bool is_emulated();

/// True on an NVIDIA device.
bool is_nvidia();

/// The fp8 format of the device's matrix instructions: e4m3fnuz on gfx942, e4m3fn elsewhere.
kindex::fp8_format native_format();

/// Runs `body(format)` for the native format and, under an emulator that can, for the other one
/// too: there the device changes its kind meanwhile.
void for_each_format(const std::function<void(kindex::fp8_format)>& body);

/// Relative to sum_h |w * relu| * scale: contract, section 5.
double logits_tolerance();

/// True if the device's runtime can capture a stream into a graph.
bool can_capture();

/// Wave instructions executed so far, or -1 where nobody counts. A measure of work without a clock.
std::int64_t executed_instructions();

}  // namespace kindex_test
