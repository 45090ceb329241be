// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Calls that must not compile. cmake/CompileFail.cmake makes a test of every case.

#include <kindex/kindex.hpp>

using kindex::cache_geometry;
using kindex::fp8_format;
using kindex::page_layout;
using kindex::query_source;
using kindex::typed_cache_view;

template <page_layout Layout, int PageSize = 64, fp8_format Format = fp8_format::e4m3fnuz,
          int HeadDim = 128>
using geometry = cache_geometry<PageSize, Layout, Format, HeadDim>;
using preshuffled = geometry<page_layout::preshuffled>;
using plain = geometry<page_layout::plain>;

using store_config = kindex::store_config<preshuffled, kindex::element_type::bf16>;
using gather_config = kindex::gather_config<preshuffled>;
using logits_config = kindex::paged_mqa_logits_config<preshuffled, query_source::registers, 64>;

// What is right, for the mistakes to stand beside.
hipError_t correct(const typed_cache_view<preshuffled>& cache, hipStream_t stream) {
  if (kindex::store<store_config>(cache, {}, stream) != hipSuccess) return hipErrorInvalidValue;
  if (kindex::gather<gather_config>(cache, {}, stream) != hipSuccess) return hipErrorInvalidValue;
  return kindex::paged_mqa_logits<logits_config>(cache, {}, stream);
}

// case 1: store_another_layout: kindex: the cache view's geometry .* is not the Config's
#if KINDEX_CASE == 1
hipError_t wrong(const typed_cache_view<plain>& cache, hipStream_t stream) {
  return kindex::store<store_config>(cache, {}, stream);
}
#endif

// case 2: gather_another_layout: kindex: the cache view's geometry .* is not the Config's
#if KINDEX_CASE == 2
hipError_t wrong(const typed_cache_view<plain>& cache, hipStream_t stream) {
  return kindex::gather<gather_config>(cache, {}, stream);
}
#endif

// case 3: logits_another_layout: kindex: the cache view's geometry .* is not the Config's
#if KINDEX_CASE == 3
hipError_t wrong(const typed_cache_view<plain>& cache, hipStream_t stream) {
  return kindex::paged_mqa_logits<logits_config>(cache, {}, stream);
}
#endif

// case 4: another_page_size: kindex: the cache view's geometry .* is not the Config's
#if KINDEX_CASE == 4
hipError_t wrong(const typed_cache_view<geometry<page_layout::preshuffled, 32>>& cache,
                 hipStream_t stream) {
  return kindex::gather<gather_config>(cache, {}, stream);
}
#endif

// case 5: another_format: kindex: the cache view's geometry .* is not the Config's
#if KINDEX_CASE == 5
hipError_t wrong(
    const typed_cache_view<geometry<page_layout::preshuffled, 64, fp8_format::e4m3fn>>& cache,
    hipStream_t stream) {
  return kindex::gather<gather_config>(cache, {}, stream);
}
#endif

// case 6: another_head_dim: kindex: the cache view's geometry .* is not the Config's
#if KINDEX_CASE == 6
hipError_t wrong(
    const typed_cache_view<geometry<page_layout::preshuffled, 64, fp8_format::e4m3fnuz, 64>>& cache,
    hipStream_t stream) {
  return kindex::gather<gather_config>(cache, {}, stream);
}
#endif

// case 7: heads_24_in_registers: kindex: q in registers needs its number of heads, a multiple of 16
#if KINDEX_CASE == 7
static_assert(kindex::paged_mqa_logits_config<preshuffled, query_source::registers, 24>::heads ==
              24);
#endif

// case 8: no_stream: no matching function
#if KINDEX_CASE == 8
hipError_t wrong(const kindex::store_params& params) { return kindex::store(params); }
#endif

// case 9: params_of_another_operation: no matching function
#if KINDEX_CASE == 9
hipError_t wrong(const kindex::gather_params& params, hipStream_t stream) {
  return kindex::store(params, stream);
}
#endif
