// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Typed calls, compiled for targets with and without kernels. No runtime header is included before.

#include <kindex/kindex.hpp>

using geometry =
    kindex::cache_geometry<64, kindex::page_layout::preshuffled, kindex::fp8_format::e4m3fnuz, 128>;
using typed_view = kindex::typed_cache_view<geometry>;

hipError_t store(const typed_view& cache, const kindex::store_params& params, hipStream_t stream) {
  return kindex::store<kindex::store_config<geometry, kindex::element_type::bf16>>(cache, params,
                                                                                   stream);
}

hipError_t gather(const typed_view& cache, const kindex::gather_params& params,
                  hipStream_t stream) {
  return kindex::gather<kindex::gather_config<geometry>>(cache, params, stream);
}

hipError_t logits(const typed_view& cache, const kindex::paged_mqa_logits_params& params,
                  hipStream_t stream) {
  using config = kindex::paged_mqa_logits_config<geometry, kindex::query_source::registers, 64>;
  return kindex::paged_mqa_logits<config>(cache, params, stream);
}
