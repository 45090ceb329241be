// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The reference against numbers that were computed without it: the contract's exact values and
// pages laid out by hand. Everything else is compared with the reference, so this comes first.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <kindex/reference.hpp>
#include <limits>
#include <vector>

#include "catch.hpp"

namespace {

namespace reference = kindex::reference;
using kindex::element_type;
using kindex::fp8_format;
using kindex::page_layout;
using kindex::quant_division;
using kindex::scale_rounding;

constexpr fp8_format fnuz = fp8_format::e4m3fnuz;
constexpr fp8_format fn = fp8_format::e4m3fn;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float power_of_two(int exponent) { return std::ldexp(1.0f, exponent); }

// A cache in host memory, all bytes poisoned.
struct host_cache {
  host_cache(std::int64_t pages, int page_size, int head_dim, page_layout layout, fp8_format format,
             std::int64_t gap = 0)
      : bytes(static_cast<std::size_t>(pages *
                                       (kindex::page_payload_bytes(page_size, head_dim) + gap)),
              poison) {
    view.data = bytes.data();
    view.num_pages = pages;
    view.page_size = page_size;
    view.head_dim = head_dim;
    view.layout = layout;
    view.format = format;
    view.page_stride_bytes = kindex::page_payload_bytes(page_size, head_dim) + gap;
  }

  float scale_at(std::size_t offset) const {
    float value = 0;
    std::memcpy(&value, &bytes[offset], sizeof value);
    return value;
  }

  static constexpr std::uint8_t poison = 0xA5;
  std::vector<std::uint8_t> bytes;
  kindex::cache_view view;
};

// Stores one fp32 row in slot 0 of a plain one-token page: `bytes` and `scale` of it.
struct stored_row {
  std::vector<std::uint8_t> bytes;
  float scale;
};

stored_row store_row(fp8_format format, const std::vector<float>& values, float quant_max = 0,
                     quant_division division = quant_division::reciprocal,
                     scale_rounding rounding = scale_rounding::none) {
  host_cache cache(1, 1, 128, page_layout::plain, format);
  std::vector<float> k(128, 0.0f);
  std::copy(values.begin(), values.end(), k.begin());
  const std::int64_t slot = 0;
  kindex::store_params params;
  params.cache = cache.view;
  params.k = k.data();
  params.k_type = element_type::fp32;
  params.k_row_stride = 128;
  params.num_tokens = 1;
  params.slots = &slot;
  params.num_slots = 1;
  params.quant_max = quant_max;
  params.division = division;
  params.rounding = rounding;
  reference::store(params);
  return {{cache.bytes.begin(), cache.bytes.begin() + 128}, cache.scale_at(128)};
}

}  // namespace

TEST_CASE("bf16 and fp16 values", "[reference]") {
  CHECK(reference::bf16_to_float(0x3F80) == 1.0f);
  CHECK(reference::bf16_to_float(0xC049) == -3.140625f);
  CHECK(reference::bf16_to_float(0x0001) == power_of_two(-133));
  CHECK(reference::bf16_to_float(0xFF80) == -infinity);
  CHECK(std::isnan(reference::bf16_to_float(0x7FC0)));
  CHECK(reference::fp16_to_float(0x3C00) == 1.0f);
  CHECK(reference::fp16_to_float(0xC248) == -3.140625f);
  CHECK(reference::fp16_to_float(0x7BFF) == 65504.0f);
  CHECK(reference::fp16_to_float(0x0400) == power_of_two(-14));
  CHECK(reference::fp16_to_float(0x0001) == power_of_two(-24));
  CHECK(reference::fp16_to_float(0x83FF) == -1023 * power_of_two(-24));
  CHECK(reference::fp16_to_float(0xFC00) == -infinity);
  CHECK(std::isnan(reference::fp16_to_float(0x7E00)));
}

TEST_CASE("scales to the bit", "[reference][class_J]") {
  struct row {
    float amax, quant_max;
    std::uint32_t bits;
    int exponent;  // of the ue8m0 scale
  };
  const row rows[] = {
      {0.0f, 448, 0x346FACAD, -22},  {1e-4f, 448, 0x346FACAD, -22}, {0.0f, 240, 0x34DFB23B, -21},
      {1e-4f, 240, 0x34DFB23B, -21}, {0.0f, 224, 0x34EFACAD, -21},  {1e-4f, 224, 0x34EFACAD, -21},
      {1.0f, 448, 0x3B124925, -8},   {1.0f, 240, 0x3B888889, -7},   {1.0f, 224, 0x3B924925, -7},
      {1.75f, 448, 0x3B800000, -8},  {240.0f, 240, 0x3F800000, 0},
  };
  for (const row& r : rows) {
    CAPTURE(r.amax, r.quant_max);
    CHECK(bits_of(reference::quant_scale(r.amax, r.quant_max, scale_rounding::none)) == r.bits);
    CHECK(reference::quant_scale(r.amax, r.quant_max, scale_rounding::ue8m0) ==
          power_of_two(r.exponent));
  }
  CHECK(reference::quant_scale(450, 448, scale_rounding::ue8m0) == 2);
}

TEST_CASE("ue8m0 keeps powers of two and rounds all else up", "[reference][class_J]") {
  for (const float quant_max : {224.0f, 240.0f, 448.0f}) {
    for (int n = -20; n <= 10; ++n) {
      CAPTURE(quant_max, n);
      const float amax = std::ldexp(quant_max, n);
      const float above = std::nextafter(amax, infinity);
      const float next_bf16 = std::ldexp(quant_max * (1 + 1.0f / 128), n);
      if (amax < 1e-4f) continue;  // the floor decides
      CHECK(reference::quant_scale(amax, quant_max, scale_rounding::ue8m0) == power_of_two(n));
      CHECK(reference::quant_scale(above, quant_max, scale_rounding::ue8m0) == power_of_two(n + 1));
      CHECK(reference::quant_scale(next_bf16, quant_max, scale_rounding::ue8m0) ==
            power_of_two(n + 1));
    }
  }
}

TEST_CASE("a row whose amax is FMAX has scale one and plain fp8 bytes", "[reference][class_H]") {
  // The contract's values; on the left FMAX itself.
  const stored_row with_fnuz =
      store_row(fnuz, {240, 1, 1.0625f, 1.1875f, 0.1f, 1.0f / 3, 17, 19, power_of_two(-9),
                       power_of_two(-10), 3 * power_of_two(-10), 124, 232, -1, -232});
  CHECK(with_fnuz.scale == 1.0f);
  const std::vector<std::uint8_t> fnuz_bytes = {0x7F, 0x40, 0x40, 0x42, 0x25, 0x33, 0x60, 0x62,
                                                0x02, 0x01, 0x03, 0x78, 0x7E, 0xC0, 0xFE, 0x00};
  CHECK(std::vector<std::uint8_t>(with_fnuz.bytes.begin(), with_fnuz.bytes.begin() + 16) ==
        fnuz_bytes);

  const stored_row with_fn =
      store_row(fn, {448, 1, 1.0625f, 1.1875f, 0.1f, 1.0f / 3, 17, 19, power_of_two(-9),
                     power_of_two(-10), 3 * power_of_two(-10), 124, 232, 240, 248, 288, 432, -432});
  CHECK(with_fn.scale == 1.0f);
  const std::vector<std::uint8_t> fn_bytes = {0x7E, 0x38, 0x38, 0x3A, 0x1D, 0x2B, 0x58, 0x5A, 0x01,
                                              0x00, 0x02, 0x70, 0x76, 0x77, 0x78, 0x79, 0x7E, 0xFE};
  CHECK(std::vector<std::uint8_t>(with_fn.bytes.begin(), with_fn.bytes.begin() + 18) == fn_bytes);
}

TEST_CASE("reciprocal and exact division differ now and then", "[reference]") {
  // Found by a search over all bf16 pairs with a program that shares nothing with the reference.
  struct row {
    fp8_format format;
    float quant_max, amax, value;
    std::uint8_t by_reciprocal, by_division;
  };
  const row rows[] = {
      {fnuz, 240, 1.03125f, 3.14712524e-05f, 0x07, 0x08},
      {fnuz, 240, 1.1015625f, 0.000112056732f, 0x14, 0x15},
      {fnuz, 224, 1.078125f, 9.87052917e-05f, 0x13, 0x12},
      {fn, 448, 1.078125f, 0.000394821167f, 0x23, 0x22},
  };
  for (const row& r : rows) {
    CAPTURE(r.quant_max, r.amax, r.value);
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint8_t sign_bit = sign < 0 ? 0x80 : 0;
      const std::vector<float> values = {sign * r.value, r.amax};
      CHECK(store_row(r.format, values, r.quant_max, quant_division::reciprocal).bytes[0] ==
            (r.by_reciprocal | sign_bit));
      CHECK(store_row(r.format, values, r.quant_max, quant_division::exact).bytes[0] ==
            (r.by_division | sign_bit));
    }
  }
}

TEST_CASE("values that are not finite", "[reference][class_J]") {
  const stored_row mixed =
      store_row(fnuz, {nan_value, -nan_value, infinity, -infinity, 120, -0.0f});
  CHECK(bits_of(mixed.scale) == bits_of(0.5f));  // amax 120, of the finite elements
  CHECK(mixed.bytes[0] == 0x00);
  CHECK(mixed.bytes[1] == 0x00);
  CHECK(mixed.bytes[2] == 0x7F);
  CHECK(mixed.bytes[3] == 0xFF);
  CHECK(mixed.bytes[4] == 0x7F);
  CHECK(mixed.bytes[5] == 0x00);

  const stored_row in_fn = store_row(fn, {nan_value, -nan_value, infinity, -infinity, 224, -0.0f});
  CHECK(in_fn.scale == 0.5f);
  CHECK(in_fn.bytes[0] == 0x00);
  CHECK(in_fn.bytes[1] == 0x00);
  CHECK(in_fn.bytes[2] == 0x7E);
  CHECK(in_fn.bytes[3] == 0xFE);
  CHECK(in_fn.bytes[5] == 0x80);

  const stored_row narrower = store_row(fnuz, {infinity, -infinity, 224}, 224);
  CHECK(narrower.scale == 1.0f);
  CHECK(narrower.bytes[0] == kindex::fp8_encode(fnuz, 224));
  CHECK(narrower.bytes[1] == kindex::fp8_encode(fnuz, -224));

  const stored_row nothing_finite =
      store_row(fnuz, std::vector<float>(128, infinity), 0, quant_division::exact);
  CHECK(bits_of(nothing_finite.scale) == 0x34DFB23Bu);
  CHECK(nothing_finite.bytes == std::vector<std::uint8_t>(128, 0x7F));
}

TEST_CASE("a zero row", "[reference][class_J]") {
  const stored_row zeros = store_row(fnuz, std::vector<float>(128, -0.0f));
  CHECK(bits_of(zeros.scale) == 0x34DFB23Bu);
  CHECK(zeros.bytes == std::vector<std::uint8_t>(128, 0x00));
  const stored_row in_fn = store_row(fn, {});
  CHECK(bits_of(in_fn.scale) == 0x346FACADu);
  CHECK(in_fn.bytes == std::vector<std::uint8_t>(128, 0x00));
}

TEST_CASE("store writes where the layout says and nothing else", "[reference]") {
  // Two tokens in 3 pages of 16 with a gap; D=256 has two groups with a scale each.
  for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
    CAPTURE(kindex::to_string(layout));
    host_cache cache(3, 16, 256, layout, fnuz, 32);
    std::vector<float> k(2 * 300, nan_value);
    for (int dim = 0; dim < 256; ++dim) {
      k[static_cast<std::size_t>(dim)] = dim == 17 ? 240.0f : dim == 200 ? -480.0f : 0.0f;
      k[static_cast<std::size_t>(300 + dim)] = dim == 3 ? 1.0f : 0.0f;
    }
    const std::int32_t slots[] = {2 * 16 + 5, -1, 7};  // the third slot has no row
    kindex::store_params params;
    params.cache = cache.view;
    params.k = k.data();
    params.k_type = element_type::fp32;
    params.k_row_stride = 300;
    params.num_tokens = 2;
    params.slots = slots;
    params.num_slots = 3;
    reference::store(params);

    std::vector<std::uint8_t> expected(cache.bytes.size(), host_cache::poison);
    const std::size_t page = 2 * (16 * 264 + 32);
    for (std::size_t dim = 0; dim < 256; ++dim) {
      const std::size_t plain = 5 * 256 + dim;
      const std::size_t preshuffled = dim / 16 * 256 + 5 * 16 + dim % 16;
      expected[page + (layout == page_layout::plain ? plain : preshuffled)] = dim == 17    ? 0x7F
                                                                              : dim == 200 ? 0xFF
                                                                                           : 0x00;
    }
    const float scales[] = {1.0f, 2.0f};
    std::memcpy(&expected[page + 4096 + 5 * 8], scales, sizeof scales);
    CHECK(cache.bytes == expected);
  }
}

TEST_CASE("store skips slots outside the cache", "[reference]") {
  host_cache cache(2, 64, 128, page_layout::plain, fnuz);
  std::vector<std::uint16_t> k(6 * 128, 0x3F80);
  const std::int64_t slots[] = {-1,  -64,       std::numeric_limits<std::int64_t>::min(),
                                128, 1LL << 40, std::numeric_limits<std::int64_t>::max()};
  kindex::store_params params;
  params.cache = cache.view;
  params.k = k.data();
  params.k_row_stride = 128;
  params.num_tokens = 6;
  params.slots = slots;
  params.num_slots = 6;
  const std::vector<std::uint8_t> before = cache.bytes;
  reference::store(params);
  CHECK(cache.bytes == before);
}

TEST_CASE("gather finds owners, pages and scales", "[reference]") {
  for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
    CAPTURE(kindex::to_string(layout));
    host_cache cache(4, 16, 128, layout, fnuz);
    // Byte of (page, t, d), different for all tokens and chunks.
    const auto byte_of = [](int page, int t, int d) {
      return static_cast<std::uint8_t>(page * 64 + t + d * 5);
    };
    for (int page = 0; page < 4; ++page) {
      for (int t = 0; t < 16; ++t) {
        for (int d = 0; d < 128; ++d) {
          const int in_page =
              layout == page_layout::plain ? t * 128 + d : d / 16 * 256 + t * 16 + d % 16;
          cache.bytes[static_cast<std::size_t>(page * 2112 + in_page)] = byte_of(page, t, d);
        }
        const float scale = static_cast<float>(page * 16 + t + 1);
        std::memcpy(&cache.bytes[static_cast<std::size_t>(page * 2112 + 2048 + t * 4)], &scale, 4);
      }
    }
    // Lengths 0, 18, 0, 0, 3, 40: the fifth has an id beyond the cache, the last a table too short.
    const std::int32_t cu_seq_lens[] = {0, 0, 18, 18, 18, 21, 61};
    const std::int32_t table[] = {-1, -1, 3, 1, -1, -1, -1, -1, 4, 0, 2, -1};
    constexpr int rows = 63;
    std::vector<std::uint8_t> dst_k(rows * 144, 0xEE);
    std::vector<float> dst_scale(rows * 2, -7.0f);
    kindex::gather_params params;
    params.cache = cache.view;
    params.block_table = table;
    params.block_table_stride = 2;
    params.block_table_width = 2;
    params.cu_seq_lens = cu_seq_lens;
    params.num_seqs = 6;
    params.dst_k = dst_k.data();
    params.dst_k_stride_bytes = 144;
    params.dst_scale = dst_scale.data();
    params.dst_scale_stride = 2;
    params.num_tokens = rows;
    reference::gather(params);

    for (int row = 0; row < rows; ++row) {
      CAPTURE(row);
      // Who owns the row, written out. Page -1: zeros; -2: untouched.
      int page = -2;
      int t = 0;
      if (row < 16) {
        page = 3;
        t = row;
      } else if (row < 18) {
        page = 1;
        t = row - 16;
      } else if (row < 21) {
        page = -1;
      } else if (row < 37) {
        page = 2;
        t = row - 21;
      } else if (row < 61) {
        page = -1;
      }
      int wrong = 0;
      for (int d = 0; d < 144; ++d) {
        const int expected = page == -2 || d >= 128 ? 0xEE : page == -1 ? 0 : byte_of(page, t, d);
        wrong += dst_k[static_cast<std::size_t>(row * 144 + d)] != expected;
      }
      CHECK(wrong == 0);
      const float expected = page == -2   ? -7.0f
                             : page == -1 ? 0.0f
                                          : static_cast<float>(page * 16 + t + 1);
      CHECK(dst_scale[static_cast<std::size_t>(row * 2)] == expected);
      CHECK(dst_scale[static_cast<std::size_t>(row * 2 + 1)] == -7.0f);
    }

    // An upper bound below the length clamps.
    std::fill(dst_k.begin(), dst_k.end(), std::uint8_t{0xEE});
    params.num_tokens = 5;
    reference::gather(params);
    CHECK(dst_k[4 * 144] == byte_of(3, 4, 0));
    CHECK(dst_k[5 * 144] == 0xEE);
  }
}

namespace {

// B=1 call over one-hot q, q[h,d] = 1 if d == h, and k[t,d] = ((t+d) mod 7) - 3 with scale
// 2^((t mod 3)-1), in pages 2, 0 of 16 tokens.
struct one_hot_case {
  explicit one_hot_case(page_layout layout, fp8_format format)
      : cache(3, 16, 128, layout, format), q(64 * 128), weights(64), logits(32, -1.0f) {
    for (int t = 0; t < 32; ++t) {
      const int page = t < 16 ? 2 : 0;
      for (int d = 0; d < 128; ++d) {
        const int in_page =
            layout == page_layout::plain ? t % 16 * 128 + d : d / 16 * 256 + t % 16 * 16 + d % 16;
        cache.bytes[static_cast<std::size_t>(page * 2112 + in_page)] =
            kindex::fp8_encode(format, (t + d) % 7 - 3);
      }
      const float scale = power_of_two(t % 3 - 1);
      std::memcpy(&cache.bytes[static_cast<std::size_t>(page * 2112 + 2048 + t % 16 * 4)], &scale,
                  4);
    }
    for (int h = 0; h < 64; ++h) {
      for (int d = 0; d < 128; ++d) {
        q[static_cast<std::size_t>(h * 128 + d)] = kindex::fp8_encode(format, d == h ? 1 : 0);
      }
      weights[static_cast<std::size_t>(h)] = static_cast<float>(h + 1);
    }
    params.cache = cache.view;
    params.q = q.data();
    params.q_format = format;
    params.q_batch_stride = 64 * 128;
    params.q_next_n_stride = 64 * 128;
    params.q_head_stride = 128;
    params.weights = weights.data();
    params.weights_row_stride = 64;
    params.context_lens = &length;
    params.block_table = table;
    params.block_table_stride = 2;
    params.block_table_width = 2;
    params.logits = logits.data();
    params.logits_row_stride = 32;
    params.logits_width = 32;
    params.num_seqs = 1;
    params.next_n = 1;
    params.num_heads = 64;
  }

  host_cache cache;
  std::vector<std::uint8_t> q;
  std::vector<float> weights;
  std::vector<float> logits;
  std::int32_t length = 20;
  std::int32_t table[2] = {2, 0};
  kindex::paged_mqa_logits_params params;
};

}  // namespace

TEST_CASE("logits of one-hot queries", "[reference]") {
  for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
    for (const fp8_format format : {fnuz, fn}) {
      CAPTURE(kindex::to_string(layout), kindex::to_string(format));
      one_hot_case test(layout, format);
      reference::paged_mqa_logits(test.params);
      const float expected[] = {927, 1800, 3492, 846, 1702, 3550, 955.5f, 1854, 3600};
      for (std::size_t t = 0; t < 9; ++t) CHECK(test.logits[t] == expected[t]);
      CHECK(test.logits[19] != -1.0f);
      CHECK(test.logits[20] == -1.0f);  // fill::none
      CHECK(test.logits[31] == -1.0f);

      for (std::size_t h = 1; h < 64; h += 2) test.weights[h] = -test.weights[h];
      test.params.fill = kindex::fill::neg_infinity;
      reference::paged_mqa_logits(test.params);
      const float mixed[] = {35, -68, 132, -32, -2, -250, -34.5f, 70, -136};
      for (std::size_t t = 0; t < 9; ++t) {
        CHECK(test.logits[t] == mixed[t]);
        // The terms have the magnitudes of the first half, whatever their signs.
        const reference::logit logit =
            reference::logit_value(test.params, 0, static_cast<std::int64_t>(t));
        CHECK(logit.magnitude == static_cast<double>(expected[t]));
      }
      CHECK(test.logits[20] == -infinity);
      CHECK(test.logits[31] == -infinity);
    }
  }
}

TEST_CASE("logits of tokens without a page", "[reference]") {
  for (const std::int32_t bad : {-1, 3, 0x7FFFFFFF}) {
    one_hot_case test(page_layout::preshuffled, fnuz);
    test.table[0] = bad;
    reference::paged_mqa_logits(test.params);
    for (std::size_t t = 0; t < 16; ++t) CHECK(test.logits[t] == -infinity);
    for (std::size_t t = 16; t < 20; ++t) CHECK(std::isfinite(test.logits[t]));
    CHECK(test.logits[20] == -1.0f);
  }
}

TEST_CASE("logits of constant q and k", "[reference]") {
  struct row {
    fp8_format format;
    double value;
    float weight;
    float logit;
  };
  const row rows[] = {{fnuz, 1.0, 1.0f / 64, 128},
                      {fn, 1.0, 1.0f / 64, 128},
                      {fnuz, 240, 1.0f / 64, 7372800},
                      {fn, 448, 1.0f / 64, 25690112}};
  for (const row& r : rows) {
    CAPTURE(kindex::to_string(r.format), r.value);
    one_hot_case test(page_layout::preshuffled, r.format);
    const std::uint8_t byte = kindex::fp8_encode(r.format, r.value);
    std::fill(test.q.begin(), test.q.end(), byte);
    std::fill(test.weights.begin(), test.weights.end(), r.weight);
    for (std::size_t page = 0; page < 3; ++page) {
      std::fill_n(test.cache.bytes.begin() + static_cast<std::ptrdiff_t>(page * 2112), 2048, byte);
      for (std::size_t t = 0; t < 16; ++t) {
        const float one = 1.0f;
        std::memcpy(&test.cache.bytes[page * 2112 + 2048 + t * 4], &one, 4);
      }
    }
    reference::paged_mqa_logits(test.params);
    CHECK(test.logits[0] == r.logit);
    CHECK(test.logits[19] == r.logit);
  }
}

TEST_CASE("with two scales a token the relu comes after both", "[reference][class_J]") {
  // q = 1 everywhere; the two halves of k are +1 and -1: dots of 128 and -128.
  host_cache cache(1, 16, 256, page_layout::plain, fnuz);
  std::fill_n(cache.bytes.begin(), 16 * 256, std::uint8_t{0x40});
  for (std::size_t t = 0; t < 16; ++t) {
    std::fill_n(cache.bytes.begin() + static_cast<std::ptrdiff_t>(t * 256 + 128), 128,
                std::uint8_t{0xC0});
    const float scales[] = {static_cast<float>(t), 2.0f};
    std::memcpy(&cache.bytes[4096 + t * 8], scales, 8);
  }
  const std::vector<std::uint8_t> q(8 * 256, 0x40);
  const std::vector<float> weights(8, -0.5f);
  std::vector<float> logits(16, -1.0f);
  const std::int32_t length = 16;
  const std::int32_t table = 0;
  kindex::paged_mqa_logits_params params;
  params.cache = cache.view;
  params.q = q.data();
  params.q_head_stride = 256;
  params.weights = weights.data();
  params.weights_row_stride = 8;
  params.context_lens = &length;
  params.block_table = &table;
  params.block_table_stride = 1;
  params.block_table_width = 1;
  params.logits = logits.data();
  params.logits_row_stride = 16;
  params.logits_width = 16;
  params.num_seqs = 1;
  params.num_heads = 8;
  reference::paged_mqa_logits(params);
  for (int t = 0; t < 16; ++t) {
    CAPTURE(t);
    const int product = t < 2 ? 0 : 128 * (t - 2);
    CHECK(logits[static_cast<std::size_t>(t)] == static_cast<float>(8 * -0.5 * product));
  }
}

TEST_CASE("how many tokens a row sees", "[reference][class_G]") {
  kindex::paged_mqa_logits_params params;
  params.cache.page_size = 64;
  params.block_table_width = 2;
  params.logits_width = 1000;
  const auto visible = [&](std::int32_t length, int next_n) {
    params.context_lens = &length;
    params.next_n = next_n;
    std::vector<std::int64_t> counts;
    for (int n = 0; n < next_n; ++n) counts.push_back(reference::visible_tokens(params, n));
    return counts;
  };
  using counts = std::vector<std::int64_t>;
  CHECK(visible(5, 3) == counts{3, 4, 5});
  CHECK(visible(1, 3) == counts{0, 0, 1});
  CHECK(visible(65, 4) == counts{62, 63, 64, 65});
  CHECK(visible(0, 2) == counts{0, 0});
  CHECK(visible(-5, 2) == counts{0, 0});
  CHECK(visible(129, 2) == counts{128, 128});  // the table ends
  CHECK(visible(1 << 30, 1) == counts{128});
  params.logits_width = 100;
  CHECK(visible(101, 3) == counts{99, 100, 100});  // the output ends

  // Per row, in the second column of a [2, 3] array of pairs.
  const std::int32_t per_row[] = {-1, 7, -1, 0, -1, 9, -1, 1, -1, 100, -1, 120};
  params.context_lens = per_row + 1;
  params.context_lens_shape = kindex::lens_shape::per_row;
  params.context_lens_batch_stride = 6;
  params.context_lens_next_n_stride = 2;
  params.num_seqs = 2;
  params.next_n = 3;
  counts all;
  for (int row = 0; row < 6; ++row) all.push_back(reference::visible_tokens(params, row));
  CHECK(all == counts{7, 0, 9, 1, 100, 100});
}
