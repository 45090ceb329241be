// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the tests must know about the device at hand, and calls into the emulator where it is
// loaded.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include <kindex/fp8.hpp>

struct kindex_emulator_traffic;

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

/// What the emulator counted since the last call of reset_work(); nothing on a GPU.
struct device_work {
  std::int64_t instructions = 0;  ///< of waves: a measure of cost without a clock
  std::int64_t waves = 0;
  std::int64_t vector_instructions = 0;  ///< of these, without matrix instructions
  std::int64_t bank_conflicts = 0;       ///< passes over the LDS banks that no conflict would need
};
void reset_work();
device_work work_done();

/// Counts the traffic to a range of device memory while it lives. Emulator only: elsewhere
/// `active()` is false and all counts are 0.
class memory_watch {
 public:
  memory_watch(const void* base, std::size_t bytes);
  memory_watch(const memory_watch&) = delete;
  memory_watch& operator=(const memory_watch&) = delete;
  ~memory_watch();

  bool active() const { return id_ >= 0; }
  /// Bytes that lanes and scalar loads asked for, repetitions included.
  std::int64_t bytes_loaded() const;
  std::int64_t bytes_stored() const;
  /// Part of the 64-byte pieces that vector loads touched which they asked for.
  double segment_efficiency() const;

 private:
  struct kindex_emulator_traffic traffic() const;

  int id_ = -1;
};

/// While it lives, findings of the emulator are expected and not printed.
class expect_findings {
 public:
  expect_findings();
  expect_findings(const expect_findings&) = delete;
  expect_findings& operator=(const expect_findings&) = delete;
  ~expect_findings();
};

}  // namespace kindex_test
