// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the C++ compiler sees of the kernels: calls with kindex's own parameters. The two .hip files
// behind it know nothing of PyTorch, so a change of the binding does not compile a kernel again.
#pragma once

#include <hip/hip_runtime_api.h>

#include <kindex/fp8.hpp>
#include <kindex/params.hpp>

namespace kindex_torch {

hipError_t native_format(kindex::fp8_format& format);
hipError_t store(const kindex::store_params& params, hipStream_t stream);
hipError_t gather(const kindex::gather_params& params, hipStream_t stream);
hipError_t paged_mqa_logits(const kindex::paged_mqa_logits_params& params, hipStream_t stream);

/// What `served_geometries.hpp` and logits.hip list, for the message of a refusal.
inline constexpr const char* served =
    "head_dim 128; pages of 64 tokens, plain or preshuffled, or of 1, plain; 32 or 64 heads";

}  // namespace kindex_torch
