// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The cache geometries that this build has kernels for: an engine lists the few that it serves, and
// its build stays short. KINDEX_TORCH_ALL_KERNELS=1 builds kindex's whole list instead.
#pragma once

#include <hip/hip_runtime.h>

#include <type_traits>

#include <kindex/kindex.hpp>

namespace kindex_torch {

/// Calls `use` with the geometry of a cache, if it is among the listed.
template <class Use>
hipError_t with_served_geometry(const kindex::cache_view& cache, Use use) {
  hipError_t status = hipErrorNotSupported;
  const auto use_if = [&](auto geometry) {
    if (!decltype(geometry)::matches(cache)) return false;
    status = use(geometry);
    return true;
  };
  const auto use_one_of = [&](auto format) {
    constexpr kindex::fp8_format f = decltype(format)::value;
    using kindex::cache_geometry;
    using kindex::page_layout;
    return use_if(cache_geometry<64, page_layout::preshuffled, f, 128>{}) ||
           use_if(cache_geometry<64, page_layout::plain, f, 128>{}) ||
           use_if(cache_geometry<1, page_layout::plain, f, 128>{});
  };
  // Both formats share their kernels.
  using kindex::fp8_format;
  (void)(use_one_of(std::integral_constant<fp8_format, fp8_format::e4m3fnuz>{}) ||
         use_one_of(std::integral_constant<fp8_format, fp8_format::e4m3fn>{}));
  return status;
}

}  // namespace kindex_torch
