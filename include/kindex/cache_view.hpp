// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The page format of the index-K cache and the one view of it that every operation takes.
//
// A page is planar: the K bytes of its P tokens, then all scales.
//
//     page payload        P * (D + 4 * nq) bytes, nq = scales per token
//     plain               K(page, t, d) = page * S + t * D + d
//     preshuffled         K(page, t, d) = page * S + (t/16)*16*D + (d/16)*256 + (t%16)*16 + d%16
//     both, never permuted  scale(page, t, g) = page * S + P * D + 4 * (t * nq + g)      fp32
//
// Preshuffled K is uint8[P/16][D/16][16 tokens][16 bytes]: a 64-lane wave that reads 16 bytes a
// lane reads 1 KiB in a row, and lane l then owns token l%16, dims 16*(l/16)..+15: the operand
// shape of AMD's fp8 MFMA. A 64-token page is one contiguous piece for Hopper's bulk copy as well.
#pragma once

#include <cstdint>

#include "config.hpp"
#include "fp8.hpp"

KINDEX_NAMESPACE_BEGIN

/// Order of the K bytes inside a page. Scales are in token order in both.
enum class page_layout : std::uint8_t {
  plain,        ///< token after token, D bytes each; page size 1 or a multiple of 16
  preshuffled,  ///< tiles of 16 tokens x 16 bytes; page size a multiple of 16
};

/// The name of a layout, for messages.
constexpr const char* to_string(page_layout layout) {
  return layout == page_layout::plain ? "plain" : "preshuffled";
}

/// Dims that share one scale: 128, or D below that.
KINDEX_HOST_DEVICE constexpr int quant_group(int head_dim) {
  return head_dim < 128 ? head_dim : 128;
}

/// Scales of one token: D / quant_group(D).
KINDEX_HOST_DEVICE constexpr int scales_per_token(int head_dim) {
  return head_dim / quant_group(head_dim);
}

/// Bytes of one page that carry data: P * (D + 4 * scales_per_token).
KINDEX_HOST_DEVICE constexpr std::int64_t page_payload_bytes(int page_size, int head_dim) {
  return static_cast<std::int64_t>(page_size) * (head_dim + 4 * scales_per_token(head_dim));
}

/// Byte offset inside a page of dim d of token t.
KINDEX_HOST_DEVICE constexpr std::int64_t k_offset_in_page(page_layout layout, int head_dim,
                                                           int token_in_page, int dim) {
  const std::int64_t t = token_in_page;
  return layout == page_layout::plain
             ? t * head_dim + dim
             : (t / 16) * 16 * head_dim + (dim / 16) * 256 + (t % 16) * 16 + dim % 16;
}

/// Byte offset inside a page of scale g of token t.
KINDEX_HOST_DEVICE constexpr std::int64_t scale_offset_in_page(int page_size, int head_dim,
                                                               int token_in_page, int group) {
  return static_cast<std::int64_t>(page_size) * head_dim +
         4 * (static_cast<std::int64_t>(token_in_page) * scales_per_token(head_dim) + group);
}

/// A paged index-K cache, as every operation takes it: address, geometry, layout and format
/// together, so that a writer and a reader of one view cannot disagree. Engines keep one view per
/// layer and pass it to all three operations.
struct cache_view {
  void* data = nullptr;        ///< device memory, page 0; 16-byte aligned (4 at page_size 1)
  std::int64_t num_pages = 0;  ///< ids in [0, num_pages) are pages; all others are sentinels
  std::int64_t page_stride_bytes =
      0;               ///< from page to page; >= payload, multiple of 16 (4 at page_size 1)
  int page_size = 64;  ///< tokens in a page: a multiple of 16; 1 in the plain layout
  int head_dim = 128;  ///< D: 64, 128 or 256
  page_layout layout = page_layout::preshuffled;  ///< order of the K bytes in a page
  fp8_format format = fp8_format::e4m3fnuz;       ///< of the K bytes; must be the device's
};

/// What a kernel knows of a cache at compile time. PageSize 0 means: at run time, a multiple of 16.
template <int PageSize, page_layout Layout, fp8_format Format, int HeadDim>
struct cache_geometry {
  static_assert(PageSize == 0 || PageSize % 16 == 0 ||
                    (PageSize == 1 && Layout == page_layout::plain),
                "kindex: page_size must be a multiple of 16, or 1 in the plain layout");
  static_assert(PageSize >= 0, "kindex: page_size must not be negative");
  static_assert(HeadDim == 64 || HeadDim == 128 || HeadDim == 256,
                "kindex: head_dim must be 64, 128 or 256");
  static constexpr int page_size = PageSize;                    ///< tokens; 0: at run time
  static constexpr page_layout layout = Layout;                 ///< as in cache_view
  static constexpr fp8_format format = Format;                  ///< as in cache_view
  static constexpr int head_dim = HeadDim;                      ///< D
  static constexpr int num_scales = scales_per_token(HeadDim);  ///< of one token

  /// The format never reaches the machine code: conversions and matrix instructions read bytes as
  /// the hardware does, and launchers refuse a device whose format is not the cache's. Kernels are
  /// therefore instantiated for this one geometry in place of one per format.
  using any_format = cache_geometry<PageSize, Layout, fp8_format::e4m3fn, HeadDim>;

  /// True if a run-time view has this geometry.
  static constexpr bool matches(const cache_view& view) {
    const bool size_fits = PageSize == 0 ? view.page_size % 16 == 0 : view.page_size == PageSize;
    return size_fits && view.layout == Layout && view.format == Format && view.head_dim == HeadDim;
  }
};

/// A view whose geometry the compiler knows. A typed call with another geometry does not compile;
/// it converts to a `cache_view` with the same geometry, and never from one.
template <class Geometry>
struct typed_cache_view {
  static_assert(Geometry::page_size != 0,
                "kindex: a typed view needs its page size at compile time");
  using geometry = Geometry;        ///< the cache_geometry
  void* data = nullptr;             ///< as in cache_view
  std::int64_t num_pages = 0;       ///< as in cache_view
  std::int64_t page_stride_bytes =  ///< as in cache_view; the payload unless set
      page_payload_bytes(Geometry::page_size, Geometry::head_dim);

  /// The same view for calls that take any geometry.
  constexpr operator cache_view() const {
    return {data,
            num_pages,
            page_stride_bytes,
            Geometry::page_size,
            Geometry::head_dim,
            Geometry::layout,
            Geometry::format};
  }
};

KINDEX_NAMESPACE_END
