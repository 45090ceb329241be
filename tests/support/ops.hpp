// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The three operations with every kernel variant, instantiated once for all device tests: kernel
// templates are by far the largest part of the compile time. The tests themselves are plain C++.
#pragma once

#include <hip/hip_runtime_api.h>

#include <kindex/params.hpp>

namespace kindex_test {

hipError_t store(const kindex::store_params& params, hipStream_t stream);
hipError_t gather(const kindex::gather_params& params, hipStream_t stream);
hipError_t paged_mqa_logits(const kindex::paged_mqa_logits_params& params, hipStream_t stream);

/// While it lives, the operations above believe that the device has this many compute units.
class pretend_compute_units {
 public:
  explicit pretend_compute_units(int count);
  pretend_compute_units(const pretend_compute_units&) = delete;
  pretend_compute_units& operator=(const pretend_compute_units&) = delete;
  ~pretend_compute_units();
};

/// While it lives, the operations above believe that the device has this compute capability.
class pretend_compute_capability {
 public:
  pretend_compute_capability(int major, int minor);
  pretend_compute_capability(const pretend_compute_capability&) = delete;
  pretend_compute_capability& operator=(const pretend_compute_capability&) = delete;
  ~pretend_compute_capability();
};

/// hipDeviceGetAttribute as the operations above see it.
hipError_t device_attribute(int* value, hipDeviceAttribute_t attribute, int device);

}  // namespace kindex_test
