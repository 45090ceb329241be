// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Mistakes that the types catch. cmake/CompileFail.cmake makes a test of every case.

#include <kindex/params.hpp>

#include <cstdint>

using kindex::cache_geometry;
using kindex::fp8_format;
using kindex::page_layout;

template <int PageSize, page_layout Layout = page_layout::preshuffled, int HeadDim = 128>
using geometry = cache_geometry<PageSize, Layout, fp8_format::e4m3fnuz, HeadDim>;

// What is right, for the mistakes to stand beside.
static_assert(geometry<64>::page_size == 64, "");
static_assert(geometry<1, page_layout::plain>::page_size == 1, "");
static_assert(geometry<48, page_layout::plain, 256>::num_scales == 2, "");

[[maybe_unused]] static void correct(const std::int32_t* int32, const std::int64_t* int64) {
  kindex::typed_cache_view<geometry<64>> typed;
  typed.num_pages = 2;
  [[maybe_unused]] const kindex::cache_view view = typed;
  kindex::store_params store;
  store.cache = typed;
  store.slots = int32;
  store.slots = int64;
  kindex::gather_params gather;
  gather.block_table = int32;
  gather.cu_seq_lens = int32;
  kindex::paged_mqa_logits_params logits;
  logits.block_table = int32;
  logits.context_lens = int32;
}

// case 1: page_size_24: kindex: page_size must be a multiple of 16, or 1 in the plain layout
#if KINDEX_CASE == 1
static_assert(geometry<24>::page_size == 24, "");
#endif

// case 2: page_size_1_preshuffled: kindex: page_size must be a multiple of 16, or 1 in the plain
#if KINDEX_CASE == 2
static_assert(geometry<1>::page_size == 1, "");
#endif

// case 3: page_size_2_plain: kindex: page_size must be a multiple of 16, or 1 in the plain layout
#if KINDEX_CASE == 3
static_assert(geometry<2, page_layout::plain>::page_size == 2, "");
#endif

// case 4: page_size_negative: kindex: page_size must not be negative
#if KINDEX_CASE == 4
static_assert(geometry<-16>::page_size == -16, "");
#endif

// case 5: head_dim_96: kindex: head_dim must be 64, 128 or 256
#if KINDEX_CASE == 5
static_assert(geometry<64, page_layout::plain, 96>::head_dim == 96, "");
#endif

// case 6: typed_view_without_page_size: kindex: a typed view needs its page size at compile time
#if KINDEX_CASE == 6
kindex::typed_cache_view<geometry<0>> view;
#endif

// case 7: typed_view_of_another_layout: (conversion|no viable|no match|could not convert)
#if KINDEX_CASE == 7
kindex::typed_cache_view<geometry<64>> view =
    kindex::typed_cache_view<geometry<64, page_layout::plain>>{};
#endif

// case 8: typed_view_of_untyped: (conversion|no viable|no match|could not convert)
#if KINDEX_CASE == 8
kindex::typed_cache_view<geometry<64>> view = kindex::cache_view{};
#endif

// case 9: gather_block_table_int64: (invalid conversion|cannot convert|incompatible)
#if KINDEX_CASE == 9
void set(kindex::gather_params& params, const std::int64_t* table) { params.block_table = table; }
#endif

// case 10: gather_cu_seq_lens_int64: (invalid conversion|cannot convert|incompatible)
#if KINDEX_CASE == 10
void set(kindex::gather_params& params, const std::int64_t* lens) { params.cu_seq_lens = lens; }
#endif

// case 11: logits_block_table_int64: (invalid conversion|cannot convert|incompatible)
#if KINDEX_CASE == 11
void set(kindex::paged_mqa_logits_params& params, const std::int64_t* table) {
  params.block_table = table;
}
#endif

// case 12: logits_context_lens_int64: (invalid conversion|cannot convert|incompatible)
#if KINDEX_CASE == 12
void set(kindex::paged_mqa_logits_params& params, const std::int64_t* lens) {
  params.context_lens = lens;
}
#endif

// case 13: logits_out_double: (invalid conversion|cannot convert|incompatible)
#if KINDEX_CASE == 13
void set(kindex::paged_mqa_logits_params& params, double* logits) { params.logits = logits; }
#endif

// case 14: slots_uint32: (no viable|no match|ambiguous|cannot convert)
#if KINDEX_CASE == 14
void set(kindex::store_params& params, const std::uint32_t* slots) { params.slots = slots; }
#endif

// case 15: slots_untyped: (no viable|no match|ambiguous|cannot convert)
#if KINDEX_CASE == 15
void set(kindex::store_params& params, const void* slots) { params.slots = slots; }
#endif

// case 16: format_for_layout: (cannot convert|incompatible|no viable|invalid)
#if KINDEX_CASE == 16
void set(kindex::cache_view& view) { view.layout = fp8_format::e4m3fn; }
#endif
