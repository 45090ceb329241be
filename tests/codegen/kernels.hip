// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The instantiations whose machine code has budgets (budgets.txt): each operation in both layouts,
// with pages of 16 and 64 tokens and of a size known at run time.
#include <kindex/gather.hpp>
#include <kindex/paged_mqa_logits.hpp>
#include <kindex/store.hpp>

namespace {

template <int PageSize, kindex::page_layout Layout>
using pages = kindex::cache_geometry<PageSize, Layout, kindex::fp8_format::e4m3fn, 128>;

using kindex::page_layout;
using kindex::query_source;

}  // namespace

#define KINDEX_TEST_PAGES(size, layout)                                                         \
  template __global__ void kindex::detail::store_kernel<                                        \
      kindex::store_config<pages<size, layout>, kindex::element_type::bf16>,                    \
      kindex::detail::store_args<size>>(kindex::detail::store_args<size>);                      \
  template                                                                                      \
      __global__ void kindex::detail::gather_kernel<kindex::gather_config<pages<size, layout>>, \
                                                    kindex::detail::gather_args<size>>(         \
          kindex::detail::gather_args<size>);                                                   \
  template __global__ void kindex::detail::paged_mqa_logits_kernel<                             \
      kindex::paged_mqa_logits_config<pages<size, layout>, query_source::registers, 64>,        \
      kindex::detail::logits_args<size>>(kindex::detail::logits_args<size>);                    \
  template __global__ void kindex::detail::paged_mqa_logits_kernel<                             \
      kindex::paged_mqa_logits_config<pages<size, layout>, query_source::registers, 32>,        \
      kindex::detail::logits_args<size>>(kindex::detail::logits_args<size>);                    \
  template __global__ void kindex::detail::paged_mqa_logits_kernel<                             \
      kindex::paged_mqa_logits_config<pages<size, layout>, query_source::shared, 64>,           \
      kindex::detail::logits_args<size>>(kindex::detail::logits_args<size>);                    \
  template __global__ void kindex::detail::paged_mqa_logits_kernel<                             \
      kindex::paged_mqa_logits_config<pages<size, layout>, query_source::shared>,               \
      kindex::detail::logits_args<size>>(kindex::detail::logits_args<size>);

KINDEX_TEST_PAGES(16, page_layout::plain)
KINDEX_TEST_PAGES(64, page_layout::plain)
KINDEX_TEST_PAGES(0, page_layout::plain)
KINDEX_TEST_PAGES(16, page_layout::preshuffled)
KINDEX_TEST_PAGES(64, page_layout::preshuffled)
KINDEX_TEST_PAGES(0, page_layout::preshuffled)
