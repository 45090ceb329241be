// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The store against oracles that share nothing with the library: where bytes go by a table of
// offsets, which byte by a search through all values of the format, scales by their bits.

#include <algorithm>
#include <cmath>
#include <limits>

#include "catch.hpp"
#include "support/ops.hpp"
#include "support/store_problem.hpp"

using namespace kindex_test;
using kindex::element_type;
using kindex::fp8_format;
using kindex::page_layout;
using kindex::quant_division;
using kindex::scale_rounding;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

float default_max(fp8_format format) { return format == fp8_format::e4m3fnuz ? 240.0f : 448.0f; }

// sign | 4 exponent bits | 3 mantissa bits.
double value_of(fp8_format format, int byte) {
  const int bias = format == fp8_format::e4m3fnuz ? 8 : 7;
  const int exponent = byte / 8 % 16;
  const double fraction = byte % 8 / 8.0;
  return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
}

// The nearest of all bytes, of two equally near ones the even; |value| <= FMAX.
std::uint8_t nearest_byte(fp8_format format, float value) {
  const double target = std::fabs(static_cast<double>(value));
  const int last = format == fp8_format::e4m3fnuz ? 0x7F : 0x7E;
  int best = 0;
  for (int byte = 1; byte <= last; ++byte) {
    const double distance = std::fabs(value_of(format, byte) - target);
    const double best_distance = std::fabs(value_of(format, best) - target);
    if (distance < best_distance || (distance == best_distance && byte % 2 == 0)) best = byte;
  }
  // e4m3fnuz has no negative zero: 0x80 is its NaN.
  const bool negative = std::signbit(value) && (best != 0 || format == fp8_format::e4m3fn);
  return static_cast<std::uint8_t>(best + (negative ? 128 : 0));
}

// What a test reads back of one stored token.
struct token_bytes {
  std::vector<std::uint8_t> k;
  std::vector<std::uint32_t> scale;
};

// Stores all rows of k in order, at slots 0, 1, 2 ... of plain pages of one token, the one layout
// in which nothing can be in a wrong place, and reads them back.
std::vector<token_bytes> store_in_order(kindex::store_params params, k_matrix& k) {
  const int head_dim = k.head_dim();
  const int num_scales = head_dim == 256 ? 2 : 1;
  const std::int64_t page_bytes = head_dim + 4 * num_scales;
  guarded_bytes memory(static_cast<std::size_t>(page_bytes * k.rows()));
  memory.upload();
  params.cache.data = memory.get();
  params.cache.num_pages = k.rows();
  params.cache.page_stride_bytes = page_bytes;
  params.cache.page_size = 1;
  params.cache.head_dim = head_dim;
  params.cache.layout = page_layout::plain;
  std::vector<std::int64_t> order;
  for (std::int64_t row = 0; row < k.rows(); ++row) order.push_back(row);
  const slot_list slots(order, true);
  k.bind(params);
  slots.bind(params);
  check(run_directly([&](hipStream_t stream) { return store(params, stream); }), "store");
  memory.download();
  CHECK(memory.check_guards() == "");
  std::vector<token_bytes> tokens;
  for (std::int64_t row = 0; row < k.rows(); ++row) {
    const std::uint8_t* page = memory.image() + row * page_bytes;
    token_bytes token;
    token.k.assign(page, page + head_dim);
    token.scale.resize(static_cast<std::size_t>(num_scales));
    std::memcpy(token.scale.data(), page + head_dim, 4 * token.scale.size());
    tokens.push_back(token);
  }
  return tokens;
}

kindex::store_params options(fp8_format format, float quant_max = 0,
                             scale_rounding rounding = scale_rounding::none,
                             quant_division division = quant_division::reciprocal) {
  kindex::store_params params;
  params.cache.format = format;
  params.quant_max = quant_max;
  params.rounding = rounding;
  params.division = division;
  return params;
}

// Converts values, each at most `quant_max`, as they are: element 0 of every row is quant_max and
// makes the scale 1. Returns how many bytes differ from the nearest ones.
int count_wrong_bytes(fp8_format format, float quant_max, element_type type,
                      quant_division division, const std::vector<std::uint32_t>& element_bits_list,
                      const std::vector<float>& values) {
  constexpr std::size_t per_row = 127;
  const std::size_t rows = (values.size() + per_row - 1) / per_row;
  k_matrix k(type, static_cast<std::int64_t>(rows), 128);
  for (std::size_t i = 0; i < rows * per_row; ++i) {
    const auto row = static_cast<std::int64_t>(i / per_row);
    const int dim = static_cast<int>(i % per_row) + 1;
    if (dim == 1) k.set(row, 0, quant_max);
    k.set_bits(row, dim, i < values.size() ? element_bits_list[i] : 0);
  }
  const auto tokens = store_in_order(options(format, quant_max, scale_rounding::none, division), k);
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const token_bytes& token = tokens[i / per_row];
    wrong += token.scale[0] != 0x3F800000u;
    const std::uint8_t expected = nearest_byte(format, values[i]);
    const std::uint8_t found = token.k[i % per_row + 1];
    if (found != expected && wrong++ == 0) {
      UNSCOPED_INFO("first: " << values[i] << " became " << int{found} << ", not "
                              << int{expected});
    }
  }
  return wrong;
}

// Bits and values of all finite 16-bit floats up to a magnitude.
template <class ToFloat>
void all_finite_up_to(float most, ToFloat to_float, std::vector<std::uint32_t>& bits,
                      std::vector<float>& values) {
  for (std::uint32_t b = 0; b < 0x10000; ++b) {
    const float value = to_float(static_cast<std::uint16_t>(b));
    if (!(std::fabs(value) <= most)) continue;
    bits.push_back(b);
    values.push_back(value);
  }
}

}  // namespace

TEST_CASE("store: every finite bf16 becomes the nearest fp8", "[store_bytes][class_H][class_I]") {
  for_each_format([](fp8_format format) {
    std::vector<std::uint32_t> bits;
    std::vector<float> values;
    all_finite_up_to(
        default_max(format), [](std::uint16_t b) { return bits_float(std::uint32_t{b} << 16); },
        bits, values);
    REQUIRE(values.size() > 34000);
    for (const auto division : {quant_division::reciprocal, quant_division::exact}) {
      CHECK(count_wrong_bytes(format, default_max(format), element_type::bf16, division, bits,
                              values) == 0);
    }
  });
}

TEST_CASE("store: every finite fp16 becomes the nearest fp8", "[store_bytes][class_H][class_I]") {
  // The value of a half from its definition.
  const auto half = [](std::uint16_t b) {
    const int exponent = b >> 10 & 31;
    const int mantissa = b & 1023;
    if (exponent == 31) return infinity;
    const float magnitude =
        exponent == 0 ? static_cast<float>(mantissa) * 0x1p-24f
                      : std::ldexp(1 + static_cast<float>(mantissa) / 1024, exponent - 15);
    return b >> 15 != 0 ? -magnitude : magnitude;
  };
  for_each_format([&](fp8_format format) {
    std::vector<std::uint32_t> bits;
    std::vector<float> values;
    all_finite_up_to(default_max(format), half, bits, values);
    REQUIRE(values.size() > 46000);
    CHECK(count_wrong_bytes(format, default_max(format), element_type::fp16,
                            quant_division::reciprocal, bits, values) == 0);
  });
}

TEST_CASE("store: fp32 values beside every rounding boundary", "[store_bytes][class_H]") {
  for_each_format([](fp8_format format) {
    std::vector<float> quant_maxima = {default_max(format)};
    if (format == fp8_format::e4m3fnuz) quant_maxima.push_back(224);
    for (const float quant_max : quant_maxima) {
      CAPTURE(quant_max);
      std::vector<std::uint32_t> bits;
      std::vector<float> values;
      for (int byte = 0; value_of(format, byte) < static_cast<double>(quant_max); ++byte) {
        const double value = value_of(format, byte);
        const double middle = (value + value_of(format, byte + 1)) / 2;
        for (const double around : {value, middle}) {
          const auto exact = static_cast<float>(around);
          for (const float x : {exact, std::nextafter(exact, 0.0f), std::nextafter(exact, 1e9f)}) {
            for (const float signed_x : {x, -x}) {
              bits.push_back(float_bits(signed_x));
              values.push_back(signed_x);
            }
          }
        }
      }
      CHECK(count_wrong_bytes(format, quant_max, element_type::fp32, quant_division::reciprocal,
                              bits, values) == 0);
    }
  });
}

TEST_CASE("store: each byte of a page is where the layout has it", "[store_bytes][class_B]") {
  // With element 127 = FMAX the scale is 1, and values that fp8 has come out as their bytes. The
  // pair (byte of this chunk, byte of its place in the chunk) tells (t%16, d/16, d%16) apart.
  for_each_format([](fp8_format format) {
    const auto value_at = [](int t, int d) { return static_cast<float>((t * 5 + d * 3) % 16 + 1); };
    for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
      CAPTURE(kindex::to_string(format), kindex::to_string(layout));
      constexpr int page_bytes = 64 * 132;
      guarded_bytes memory(3 * page_bytes, 16);
      std::fill_n(memory.image(), memory.size(), std::uint8_t{0x80});
      memory.upload();
      const std::vector<std::int64_t> in_page = {33, 0, 63, 15, 1, 17, 16};
      std::vector<std::int64_t> slots;
      k_matrix k(element_type::bf16, static_cast<std::int64_t>(in_page.size()), 128);
      std::vector<std::uint8_t> expected(memory.image(), memory.image() + memory.size());
      for (std::size_t row = 0; row < in_page.size(); ++row) {
        const auto t = static_cast<int>(in_page[row]);
        const int page = row % 2 == 0 ? 2 : 0;
        slots.push_back(page * 64 + t);
        for (int d = 0; d < 128; ++d) {
          const float value = d == 127 ? default_max(format) : value_at(t, d);
          k.set(static_cast<std::int64_t>(row), d, value);
          // [P][D], or [P/16][D/16][16 tokens][16 bytes].
          const int tile = t / 16, token = t % 16, chunk = d / 16, byte = d % 16;
          const int offset = layout == page_layout::plain
                                 ? t * 128 + d
                                 : ((tile * 8 + chunk) * 16 + token) * 16 + byte;
          expected[static_cast<std::size_t>(page * page_bytes + offset)] =
              nearest_byte(format, value);
        }
        const std::uint32_t one = 0x3F800000;
        std::memcpy(&expected[static_cast<std::size_t>(page * page_bytes + 64 * 128 + 4 * t)], &one,
                    4);
      }
      kindex::store_params params = options(format);
      params.cache.data = memory.get();
      params.cache.num_pages = 3;
      params.cache.page_stride_bytes = page_bytes;
      params.cache.page_size = 64;
      params.cache.head_dim = 128;
      params.cache.layout = layout;
      const slot_list device_slots(slots, true);
      k.bind(params);
      device_slots.bind(params);
      CHECK(run_directly([&](hipStream_t stream) { return store(params, stream); }) == hipSuccess);
      memory.download();
      CHECK(memory.check_guards() == "");
      CHECK(std::vector<std::uint8_t>(memory.image(), memory.image() + memory.size()) == expected);
    }
  });
}

TEST_CASE("store: scales to the bit", "[store_bytes][class_J]") {
  struct row {
    float quant_max, amax;
    std::uint32_t bits;
    int exponent;  // of the ue8m0 scale
  };
  const row rows[] = {
      {448, 0.0f, 0x346FACAD, -22},  {448, 1e-4f, 0x346FACAD, -22}, {448, 1.0f, 0x3B124925, -8},
      {448, 1.75f, 0x3B800000, -8},  {448, 450.0f, 0x3F809249, 1},  {240, 0.0f, 0x34DFB23B, -21},
      {240, 1e-4f, 0x34DFB23B, -21}, {240, 1.0f, 0x3B888889, -7},   {240, 240.0f, 0x3F800000, 0},
      {224, 0.0f, 0x34EFACAD, -21},  {224, 1e-4f, 0x34EFACAD, -21}, {224, 1.0f, 0x3B924925, -7},
  };
  for_each_format([&](fp8_format format) {
    for (const row& r : rows) {
      if ((r.quant_max == 448) != (format == fp8_format::e4m3fn)) continue;
      CAPTURE(r.quant_max, r.amax);
      k_matrix k(element_type::fp32, 2, 128);
      k.fill_row(0, 0);
      k.fill_row(1, 0);
      k.set(0, 77, r.amax);
      k.set(1, 3, -r.amax);
      for (const token_bytes& token : store_in_order(options(format, r.quant_max), k)) {
        CHECK(token.scale[0] == r.bits);
      }
      for (const token_bytes& token :
           store_in_order(options(format, r.quant_max, scale_rounding::ue8m0), k)) {
        CHECK(token.scale[0] == float_bits(std::ldexp(1.0f, r.exponent)));
      }
    }
  });
}

TEST_CASE("store: scales are correctly rounded quotients", "[store_bytes][class_J]") {
  // amax of any mantissa and any exponent from the floor to the largest float.
  for_each_format([](fp8_format format) {
    random_stream random(12);
    std::vector<float> quant_maxima = {default_max(format)};
    if (format == fp8_format::e4m3fnuz) quant_maxima.push_back(224);
    for (const float quant_max : quant_maxima) {
      constexpr int rows = 4000;
      k_matrix k(element_type::fp32, rows, 64);
      std::vector<float> amaxima;
      for (int row = 0; row < rows; ++row) {
        // The floor 1e-4 has exponent field 113; a third of the rows is near it.
        const int exponent =
            random.integer(0, 2) == 0 ? random.integer(112, 115) : random.integer(100, 254);
        const auto mantissa = static_cast<std::uint32_t>(random.next() & 0x7FFFFF);
        amaxima.push_back(bits_float(static_cast<std::uint32_t>(exponent) << 23 | mantissa));
        k.fill_row(row, 0);
        k.set(row, row % 64, row % 2 == 0 ? amaxima.back() : -amaxima.back());
      }
      const auto tokens = store_in_order(options(format, quant_max), k);
      int wrong = 0;
      for (int row = 0; row < rows; ++row) {
        const float floored = std::max(amaxima[static_cast<std::size_t>(row)], 1e-4f);
        const float expected = floored / quant_max;
        wrong += tokens[static_cast<std::size_t>(row)].scale[0] != float_bits(expected);
      }
      CAPTURE(quant_max);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("store: quotients that fall on rounding boundaries", "[store_bytes][class_H][class_J]") {
  // Elements at scale * midpoint, give or take one bit: the byte tells whether reciprocal, product
  // and quotient were rounded correctly.
  for_each_format([](fp8_format format) {
    random_stream random(13);
    for (const auto division : {quant_division::reciprocal, quant_division::exact}) {
      constexpr int rows = 600;
      const float quant_max = default_max(format);
      k_matrix k(element_type::fp32, rows, 128);
      for (int row = 0; row < rows; ++row) {
        const float amax =
            std::ldexp(1 + static_cast<float>(random.unit()), random.integer(-12, 60));
        const float scale = amax / quant_max;
        k.set(row, 0, amax);
        for (int dim = 1; dim < 128; ++dim) {
          const int byte = random.integer(0, 0x7C);
          const double middle = (value_of(format, byte) + value_of(format, byte + 1)) / 2;
          const auto near = static_cast<float>(middle * static_cast<double>(scale));
          const float value =
              bits_float(float_bits(near) + static_cast<std::uint32_t>(random.integer(0, 4)) - 2);
          k.set(row, dim, dim % 2 == 0 ? value : -value);
        }
      }
      const auto tokens = store_in_order(options(format, 0, scale_rounding::none, division), k);
      int wrong = 0;
      for (int row = 0; row < rows; ++row) {
        const float scale = k.at(row, 0) / quant_max;
        const float inverse = 1.0f / scale;
        for (int dim = 0; dim < 128; ++dim) {
          const float value = k.at(row, dim);
          float scaled = division == quant_division::exact ? value / scale : value * inverse;
          scaled = std::min(std::max(scaled, -quant_max), quant_max);
          wrong += tokens[static_cast<std::size_t>(row)].k[static_cast<std::size_t>(dim)] !=
                   nearest_byte(format, scaled);
        }
      }
      CAPTURE(division == quant_division::exact);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("store: ue8m0 around powers of two", "[store_bytes][class_J]") {
  for_each_format([](fp8_format format) {
    std::vector<float> quant_maxima = {default_max(format)};
    if (format == fp8_format::e4m3fnuz) quant_maxima.push_back(224);
    for (const float quant_max : quant_maxima) {
      // Rows: FMAX * 2^n, the next bf16 above, the next fp32 above.
      k_matrix k(element_type::fp32, 31 * 3, 128);
      for (int n = -20; n <= 10; ++n) {
        const float amax = std::ldexp(quant_max, n);
        const float next_bf16 = bits_float(float_bits(amax) + 0x10000);
        const float amaxima[] = {amax, next_bf16, std::nextafter(amax, infinity)};
        for (int i = 0; i < 3; ++i) {
          const std::int64_t row = (n + 20) * 3 + i;
          k.fill_row(row, 0);
          k.set(row, (row * 7) % 128, amaxima[i]);
        }
      }
      const auto tokens = store_in_order(options(format, quant_max, scale_rounding::ue8m0), k);
      for (std::size_t row = 0; row < tokens.size(); ++row) {
        const int n = static_cast<int>(row / 3) - 20;
        CAPTURE(quant_max, n, row % 3);
        CHECK(tokens[row].scale[0] == float_bits(std::ldexp(1.0f, row % 3 == 0 ? n : n + 1)));
      }
    }
  });
}

TEST_CASE("store: reciprocal and exact division differ now and then", "[store_bytes][class_H]") {
  struct row {
    fp8_format format;
    float quant_max, amax, value;
    std::uint8_t by_reciprocal, by_division;
  };
  const row rows[] = {
      {fp8_format::e4m3fnuz, 240, 1.03125f, 3.14712524e-05f, 0x07, 0x08},
      {fp8_format::e4m3fnuz, 240, 1.1015625f, 0.000112056732f, 0x14, 0x15},
      {fp8_format::e4m3fnuz, 224, 1.078125f, 9.87052917e-05f, 0x13, 0x12},
      {fp8_format::e4m3fn, 448, 1.078125f, 0.000394821167f, 0x23, 0x22},
  };
  for_each_format([&](fp8_format format) {
    for (const row& r : rows) {
      if (r.format != format) continue;
      CAPTURE(r.quant_max, r.amax, r.value);
      for (const element_type type : {element_type::bf16, element_type::fp32}) {
        k_matrix k(type, 1, 128);
        k.fill_row(0, 0);
        k.set(0, 0, r.amax);
        k.set(0, 1, r.value);
        k.set(0, 2, -r.value);
        const auto rounding = scale_rounding::none;
        const auto by_reciprocal =
            store_in_order(options(format, r.quant_max, rounding, quant_division::reciprocal), k);
        CHECK(by_reciprocal[0].k[1] == r.by_reciprocal);
        CHECK(by_reciprocal[0].k[2] == r.by_reciprocal + 0x80);
        const auto by_division =
            store_in_order(options(format, r.quant_max, rounding, quant_division::exact), k);
        CHECK(by_division[0].k[1] == r.by_division);
        CHECK(by_division[0].k[2] == r.by_division + 0x80);
      }
    }
  });
}

TEST_CASE("store: values that are not finite", "[store_bytes][class_F][class_J]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for_each_format([&](fp8_format format) {
    const bool fnuz = format == fp8_format::e4m3fnuz;
    const std::uint8_t largest = fnuz ? 0x7F : 0x7E;
    const std::uint32_t floor_scale = fnuz ? 0x34DFB23B : 0x346FACAD;
    for (const element_type type : {element_type::bf16, element_type::fp16, element_type::fp32}) {
      for (const auto division : {quant_division::reciprocal, quant_division::exact}) {
        CAPTURE(kindex::to_string(format), kindex::to_string(type));
        k_matrix k(type, 5, 128);
        for (int row = 0; row < 5; ++row) k.fill_row(row, 0);
        // One element of each kind among finite ones, of which FMAX/2 is the largest.
        const float half_max = default_max(format) / 2;
        const float mixed[] = {nan, -nan, infinity, -infinity, half_max, -half_max, -0.0f};
        for (int dim = 0; dim < 7; ++dim) k.set(0, 60 + dim, mixed[dim]);
        k.fill_row(1, nan);
        k.fill_row(2, infinity);
        k.fill_row(3, -infinity);
        k.set(4, 0, nan);
        const auto tokens = store_in_order(options(format, 0, scale_rounding::none, division), k);
        CHECK(tokens[0].scale[0] == float_bits(0.5f));
        const std::uint8_t negative_zero = fnuz ? 0x00 : 0x80;
        const int negative_largest = largest + 0x80;
        const int bytes[] = {
            0, 0, largest, negative_largest, largest, negative_largest, negative_zero};
        for (std::size_t dim = 0; dim < 7; ++dim) {
          CAPTURE(dim);
          CHECK(tokens[0].k[60 + dim] == bytes[dim]);
        }
        CHECK(tokens[0].k[59] == 0);
        for (std::size_t row = 1; row < 5; ++row) CHECK(tokens[row].scale[0] == floor_scale);
        CHECK(tokens[1].k == std::vector<std::uint8_t>(128, 0));
        CHECK(tokens[2].k == std::vector<std::uint8_t>(128, largest));
        CHECK(tokens[3].k ==
              std::vector<std::uint8_t>(128, static_cast<std::uint8_t>(negative_largest)));
        CHECK(tokens[4].k == std::vector<std::uint8_t>(128, 0));
      }
    }
  });
}

TEST_CASE("store: one value that is not finite, alone in its wave",
          "[store_bytes][class_J][class_P]") {
  // The kernel may look at a whole wave before it picks its way.
  const float values[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
  for_each_format([&](fp8_format format) {
    const std::uint8_t largest = format == fp8_format::e4m3fnuz ? 0x7F : 0x7E;
    const int bytes[] = {largest, largest + 0x80, 0};
    for (const element_type type : {element_type::bf16, element_type::fp16, element_type::fp32}) {
      for (const int dim : {0, 15, 64, 127}) {
        for (int i = 0; i < 3; ++i) {
          CAPTURE(kindex::to_string(format), kindex::to_string(type), dim, i);
          k_matrix k(type, 1, 128);
          k.fill_row(0, default_max(format) / 4);
          k.set(0, dim, values[i]);
          const auto tokens = store_in_order(options(format), k);
          CHECK(tokens[0].scale[0] == float_bits(0.25f));
          CHECK(tokens[0].k[static_cast<std::size_t>(dim)] == bytes[i]);
          CHECK(tokens[0].k[static_cast<std::size_t>(dim ^ 1)] == largest);
        }
      }
    }
  });
}

TEST_CASE("store: no input makes a NaN byte or a scale that is not finite",
          "[store_bytes][class_F][class_J]") {
  for_each_format([](fp8_format format) {
    random_stream random(7);
    for (const element_type type : {element_type::bf16, element_type::fp16, element_type::fp32}) {
      for (const auto rounding : {scale_rounding::none, scale_rounding::ue8m0}) {
        for (const auto division : {quant_division::reciprocal, quant_division::exact}) {
          k_matrix k(type, 60, 128);
          for (int row = 0; row < 60; ++row) {
            for (int dim = 0; dim < 128; ++dim) {
              k.set_bits(row, dim, static_cast<std::uint32_t>(random.next()));
            }
          }
          int bad = 0;
          for (const token_bytes& token :
               store_in_order(options(format, 0, rounding, division), k)) {
            for (const std::uint8_t byte : token.k) bad += kindex::fp8_is_nan(format, byte);
            bad += !std::isfinite(bits_float(token.scale[0]));
            bad += bits_float(token.scale[0]) <= 0;
          }
          CHECK(bad == 0);
        }
      }
    }
  });
}

TEST_CASE("store: the two groups of 256 dims have their own scales", "[store_bytes][class_J]") {
  for_each_format([](fp8_format format) {
    const float most = default_max(format);
    k_matrix k(element_type::bf16, 3, 256);
    for (int row = 0; row < 3; ++row) k.fill_row(row, 0);
    k.set(0, 127, most);      // the last of the first group
    k.set(0, 128, 4 * most);  // the first of the second
    k.set(1, 255, most / 2);
    k.set(2, 5, std::numeric_limits<float>::quiet_NaN());
    k.set(2, 250, most);
    const auto tokens = store_in_order(options(format), k);
    const std::uint32_t floor_scale = format == fp8_format::e4m3fnuz ? 0x34DFB23B : 0x346FACAD;
    CHECK(tokens[0].scale == std::vector<std::uint32_t>{float_bits(1), float_bits(4)});
    CHECK(tokens[1].scale == std::vector<std::uint32_t>{floor_scale, float_bits(0.5f)});
    CHECK(tokens[2].scale == std::vector<std::uint32_t>{floor_scale, float_bits(1)});
    const std::uint8_t largest = format == fp8_format::e4m3fnuz ? 0x7F : 0x7E;
    CHECK(tokens[0].k[127] == largest);
    CHECK(tokens[0].k[128] == largest);
    CHECK(tokens[1].k[255] == largest);
    CHECK(tokens[2].k[5] == 0);
    CHECK(tokens[2].k[250] == largest);
  });
}

TEST_CASE("store: 64 dims are one group", "[store_bytes][class_J]") {
  k_matrix k(element_type::fp16, 2, 64);
  k.fill_row(0, 1);
  k.fill_row(1, 1);
  k.set(0, 63, 2 * default_max(native_format()));
  k.set(1, 0, -default_max(native_format()));
  const auto tokens = store_in_order(options(native_format()), k);
  CHECK(tokens[0].scale[0] == float_bits(2));
  CHECK(tokens[0].k[0] == nearest_byte(native_format(), 0.5f));
  CHECK(tokens[1].scale[0] == float_bits(1));
  CHECK(tokens[1].k[63] == nearest_byte(native_format(), 1));
}
