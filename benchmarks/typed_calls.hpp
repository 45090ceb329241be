// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// From run-time parameters to typed calls, for an explicit list of page formats.
#pragma once

#include <hip/hip_runtime.h>

#include <kindex/kindex.hpp>

#include "synthetic.hpp"

namespace kindex_bench {

/// A page format of head_dim dims.
template <int PageSize, kindex::page_layout Layout>
struct page_format {
  template <kindex::fp8_format Format>
  using geometry = kindex::cache_geometry<PageSize, Layout, Format, head_dim>;
};

template <int PageSize>
using plain = page_format<PageSize, kindex::page_layout::plain>;
template <int PageSize>
using preshuffled = page_format<PageSize, kindex::page_layout::preshuffled>;

/// Calls `use(geometry)` with the geometry of `cache` if one of PageFormats has it.
template <class... PageFormats, class Use>
hipError_t with_geometry(const kindex::cache_view& cache, Use use) {
  hipError_t status = hipErrorNotSupported;
  const auto use_if = [&](auto geometry) {
    if (!decltype(geometry)::matches(cache)) return false;
    status = use(geometry);
    return true;
  };
  using kindex::fp8_format;
  (void)((use_if(typename PageFormats::template geometry<fp8_format::e4m3fnuz>{}) ||
          use_if(typename PageFormats::template geometry<fp8_format::e4m3fn>{})) ||
         ...);
  return status;
}

/// The kernel that kindex::paged_mqa_logits takes for the shape.
template <class Geometry>
hipError_t chosen_logits(Geometry, const kindex::paged_mqa_logits_params& params,
                         hipStream_t stream) {
  return kindex::detail::target::with_logits_config<Geometry>(
      params.next_n, params.num_heads,
      [&](auto config) { return kindex::paged_mqa_logits<decltype(config)>(params, stream); });
}

template <class Geometry>
hipError_t bf16_store(Geometry, const kindex::store_params& params, hipStream_t stream) {
  return kindex::store<kindex::store_config<Geometry, kindex::element_type::bf16>>(params, stream);
}

template <class Geometry>
hipError_t raw_gather(Geometry, const kindex::gather_params& params, hipStream_t stream) {
  return kindex::gather<kindex::gather_config<Geometry>>(params, stream);
}

}  // namespace kindex_bench
