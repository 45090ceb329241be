// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The operations, for those cache geometries that a program measures: each program brings its own
// definitions (scenario_*.hip, sweep_*.hip), since every kernel costs compile time. Other
// geometries are refused with hipErrorNotSupported.
#pragma once

#include <hip/hip_runtime_api.h>

#include <kindex/params.hpp>

namespace kindex_bench {

hipError_t store(const kindex::store_params& params, hipStream_t stream);
hipError_t gather(const kindex::gather_params& params, hipStream_t stream);
hipError_t paged_mqa_logits(const kindex::paged_mqa_logits_params& params, hipStream_t stream);

}  // namespace kindex_bench
