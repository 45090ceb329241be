// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Where each byte of a page lies. Offsets come from tables and from the shape
// uint8[P/16][D/16][16 tokens][16 bytes], not from the formula under test.

#include <cstdint>
#include <kindex/cache_view.hpp>
#include <string>
#include <vector>

#include "catch.hpp"

namespace {

using kindex::fp8_format;
using kindex::k_offset_in_page;
using kindex::page_layout;
using kindex::page_payload_bytes;
using kindex::scale_offset_in_page;

constexpr int page_sizes[] = {16, 32, 48, 64, 80, 112, 128, 256};
constexpr int head_dims[] = {64, 128, 256};

using page64 = kindex::cache_geometry<64, page_layout::preshuffled, fp8_format::e4m3fnuz, 128>;
using any_page = kindex::cache_geometry<0, page_layout::preshuffled, fp8_format::e4m3fnuz, 128>;
using token_page = kindex::cache_geometry<1, page_layout::plain, fp8_format::e4m3fn, 256>;

}  // namespace

TEST_CASE("payload of a page", "[layout][class_B]") {
  CHECK(page_payload_bytes(1, 128) == 132);
  CHECK(page_payload_bytes(16, 128) == 2112);
  CHECK(page_payload_bytes(64, 128) == 8448);
  CHECK(page_payload_bytes(256, 128) == 33792);
  CHECK(page_payload_bytes(64, 64) == 64 * 68);
  CHECK(page_payload_bytes(64, 256) == 64 * 264);  // two scales
  CHECK(kindex::quant_group(64) == 64);
  CHECK(kindex::quant_group(128) == 128);
  CHECK(kindex::quant_group(256) == 128);
  CHECK(kindex::scales_per_token(64) == 1);
  CHECK(kindex::scales_per_token(128) == 1);
  CHECK(kindex::scales_per_token(256) == 2);
}

TEST_CASE("offsets of the two layouts at D=128", "[layout][class_B]") {
  struct row {
    int token, dim;
    std::int64_t plain, preshuffled;
  };
  const row rows[] = {
      {0, 0, 0, 0},          {0, 15, 15, 15},     {0, 16, 16, 256},      {0, 127, 127, 1807},
      {1, 0, 128, 16},       {1, 16, 144, 272},   {16, 0, 2048, 2048},   {17, 33, 2209, 2577},
      {31, 127, 4095, 4095}, {63, 0, 8064, 6384}, {63, 127, 8191, 8191},
  };
  for (const row& r : rows) {
    CAPTURE(r.token, r.dim);
    CHECK(k_offset_in_page(page_layout::plain, 128, r.token, r.dim) == r.plain);
    CHECK(k_offset_in_page(page_layout::preshuffled, 128, r.token, r.dim) == r.preshuffled);
  }
}

TEST_CASE("preshuffled bytes follow one another as [P/16][D/16][16 tokens][16 bytes]",
          "[layout][class_B]") {
  for (const int page_size : page_sizes) {
    for (const int head_dim : head_dims) {
      CAPTURE(page_size, head_dim);
      std::int64_t expected = 0;
      int wrong = 0;
      for (int tile = 0; tile < page_size / 16; ++tile) {
        for (int chunk = 0; chunk < head_dim / 16; ++chunk) {
          for (int token = 0; token < 16; ++token) {
            for (int byte = 0; byte < 16; ++byte, ++expected) {
              wrong += k_offset_in_page(page_layout::preshuffled, head_dim, tile * 16 + token,
                                        chunk * 16 + byte) != expected;
            }
          }
        }
      }
      CHECK(wrong == 0);
      CHECK(expected == page_size * head_dim);
    }
  }
}

TEST_CASE("plain bytes follow one another as [P][D]", "[layout][class_B]") {
  for (const int head_dim : head_dims) {
    std::int64_t expected = 0;
    int wrong = 0;
    for (int token = 0; token < 256; ++token) {
      for (int dim = 0; dim < head_dim; ++dim, ++expected) {
        wrong += k_offset_in_page(page_layout::plain, head_dim, token, dim) != expected;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("scales follow the K bytes in token order", "[layout][class_B]") {
  CHECK(scale_offset_in_page(1, 128, 0, 0) == 128);
  CHECK(scale_offset_in_page(64, 128, 0, 0) == 8192);
  CHECK(scale_offset_in_page(64, 128, 1, 0) == 8196);
  CHECK(scale_offset_in_page(64, 128, 63, 0) == 8444);
  CHECK(scale_offset_in_page(16, 64, 5, 0) == 1024 + 20);
  CHECK(scale_offset_in_page(16, 256, 0, 1) == 4096 + 4);
  CHECK(scale_offset_in_page(16, 256, 1, 0) == 4096 + 8);
  CHECK(scale_offset_in_page(16, 256, 15, 1) == 4096 + 124);
  for (const int page_size : page_sizes) {
    for (const int head_dim : head_dims) {
      const int last = kindex::scales_per_token(head_dim) - 1;
      CHECK(scale_offset_in_page(page_size, head_dim, page_size - 1, last) + 4 ==
            page_payload_bytes(page_size, head_dim));
    }
  }
}

TEST_CASE("a typed view becomes a view with its geometry", "[layout]") {
  kindex::typed_cache_view<page64> typed;
  CHECK(typed.page_stride_bytes == 8448);
  int memory = 0;
  typed.data = &memory;
  typed.num_pages = 3;
  typed.page_stride_bytes = 1002240;
  const kindex::cache_view view = typed;
  CHECK(view.data == &memory);
  CHECK(view.num_pages == 3);
  CHECK(view.page_stride_bytes == 1002240);
  CHECK(view.page_size == 64);
  CHECK(view.head_dim == 128);
  CHECK(view.layout == page_layout::preshuffled);
  CHECK(view.format == fp8_format::e4m3fnuz);

  const kindex::cache_view other = kindex::typed_cache_view<token_page>{};
  CHECK(other.page_stride_bytes == 264);
  CHECK(other.page_size == 1);
  CHECK(other.head_dim == 256);
  CHECK(other.layout == page_layout::plain);
  CHECK(other.format == fp8_format::e4m3fn);
}

TEST_CASE("a geometry matches only views that agree in everything", "[layout][class_B][class_I]") {
  const kindex::cache_view view = kindex::typed_cache_view<page64>{};
  CHECK(page64::matches(view));
  CHECK(any_page::matches(view));
  CHECK_FALSE(token_page::matches(view));

  kindex::cache_view other = view;
  other.layout = page_layout::plain;
  CHECK_FALSE(page64::matches(other));
  CHECK_FALSE(any_page::matches(other));
  other = view;
  other.format = fp8_format::e4m3fn;
  CHECK_FALSE(page64::matches(other));
  other = view;
  other.head_dim = 64;
  CHECK_FALSE(page64::matches(other));
  other = view;
  other.page_size = 80;
  CHECK_FALSE(page64::matches(other));
  CHECK(any_page::matches(other));
  other.page_size = 24;
  CHECK_FALSE(any_page::matches(other));
}

TEST_CASE("names of the layouts", "[layout]") {
  CHECK(kindex::to_string(page_layout::plain) == std::string("plain"));
  CHECK(kindex::to_string(page_layout::preshuffled) == std::string("preshuffled"));
}
