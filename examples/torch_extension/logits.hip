// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "kernels.hpp"
#include "served_geometries.hpp"

namespace kindex_torch {

#if !KINDEX_TORCH_ALL_KERNELS
namespace {

/// Calls the first configuration that serves the shape.
template <class... Config>
hipError_t first_that_serves(const kindex::paged_mqa_logits_params& params, hipStream_t stream) {
  hipError_t status = hipErrorNotSupported;
  (void)((Config::serves(params.next_n, params.num_heads) &&
          (status = kindex::paged_mqa_logits<Config>(params, stream), true)) ||
         ...);
  return status;
}

}  // namespace
#endif

hipError_t paged_mqa_logits(const kindex::paged_mqa_logits_params& params, hipStream_t stream) {
#if KINDEX_TORCH_ALL_KERNELS
  return kindex::paged_mqa_logits(params, stream);
#else
  if (params.num_heads != 32 && params.num_heads != 64) return hipErrorNotSupported;
  return with_served_geometry(params.cache, [&](auto geometry) {
    using kindex::paged_mqa_logits_config;
    using kindex::query_source;
    using g = decltype(geometry);
#if KINDEX_PLATFORM_NVIDIA
    return first_that_serves<paged_mqa_logits_config<g, query_source::shared, 64>,
                             paged_mqa_logits_config<g, query_source::shared, 32>>(params, stream);
#else
    return first_that_serves<paged_mqa_logits_config<g, query_source::registers, 64>,
                             paged_mqa_logits_config<g, query_source::registers, 32>,
                             paged_mqa_logits_config<g, query_source::shared, 0>,
                             paged_mqa_logits_config<g, query_source::global, 0>>(params, stream);
#endif
  });
#endif
}

}  // namespace kindex_torch
