// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include <atomic>

#include <kindex/validate.hpp>

#include "support/ops.hpp"
#include "support/ops_logits.hpp"

namespace kindex_test {

// kindex::paged_mqa_logits, step by step, so that each head_dim's kernels are compiled apart.
hipError_t paged_mqa_logits(const kindex::paged_mqa_logits_params& params, hipStream_t stream) {
  if (const kindex::validation checked = kindex::validate(params); !checked.ok()) {
    return checked.status;
  }
  switch (params.cache.head_dim) {
    case 64:
      return paged_mqa_logits_d64(params, stream);
    case 128:
      return paged_mqa_logits_d128(params, stream);
    case 256:
      return paged_mqa_logits_d256(params, stream);
    default:
      return hipErrorNotSupported;
  }
}

namespace {
std::atomic<int> pretended_compute_units{0};
std::atomic<int> pretended_major{0};  // 0: the device's own
std::atomic<int> pretended_minor{0};
}  // namespace

pretend_compute_units::pretend_compute_units(int count) { pretended_compute_units = count; }

pretend_compute_units::~pretend_compute_units() { pretended_compute_units = 0; }

pretend_compute_capability::pretend_compute_capability(int major, int minor) {
  pretended_major = major;
  pretended_minor = minor;
}

pretend_compute_capability::~pretend_compute_capability() { pretended_major = 0; }

hipError_t device_attribute(int* value, hipDeviceAttribute_t attribute, int device) {
  const int pretended = pretended_compute_units;
  if (attribute == hipDeviceAttributeMultiprocessorCount && pretended > 0) {
    *value = pretended;
    return hipSuccess;
  }
  if (attribute == hipDeviceAttributeComputeCapabilityMajor && pretended_major > 0) {
    *value = pretended_major;
    return hipSuccess;
  }
  if (attribute == hipDeviceAttributeComputeCapabilityMinor && pretended_major > 0) {
    *value = pretended_minor;
    return hipSuccess;
  }
  return hipDeviceGetAttribute(value, attribute, device);
}

}  // namespace kindex_test
