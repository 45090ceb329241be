// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The logits, one translation unit per head_dim.
#pragma once

#include <hip/hip_runtime_api.h>

#include <kindex/params.hpp>

namespace kindex_test {

hipError_t paged_mqa_logits_d64(const kindex::paged_mqa_logits_params& params, hipStream_t stream);
hipError_t paged_mqa_logits_d128(const kindex::paged_mqa_logits_params& params, hipStream_t stream);
hipError_t paged_mqa_logits_d256(const kindex::paged_mqa_logits_params& params, hipStream_t stream);

}  // namespace kindex_test
