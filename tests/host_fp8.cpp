// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// fp8.hpp against oracles that share nothing with it: values from the field layout, bytes by a
// search through all 256 values.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <kindex/fp8.hpp>
#include <limits>
#include <random>
#include <vector>

#include "catch.hpp"

namespace {

using kindex::fp8_decode;
using kindex::fp8_encode;
using kindex::fp8_format;

constexpr fp8_format fnuz = fp8_format::e4m3fnuz;
constexpr fp8_format fn = fp8_format::e4m3fn;
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

// sign | 4 exponent bits | 3 mantissa bits, as the two specifications draw it.
double value_of(fp8_format format, int byte) {
  if (format == fnuz && byte == 0x80) return nan_value;
  if (format == fn && (byte == 0x7F || byte == 0xFF)) return nan_value;
  const int bias = format == fnuz ? 8 : 7;
  const int exponent = byte / 8 % 16;
  const double fraction = byte % 8 / 8.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, exponent - bias);
  return byte >= 128 ? -magnitude : magnitude;
}

// The nearest of all values; of two equally near ones that with the even byte. Infinity and all
// else beyond the largest value is nearest to that.
int nearest_byte(fp8_format format, double value) {
  const bool negative = std::signbit(value);
  const double largest = format == fnuz ? 240 : 448;
  const double target = std::fmin(std::fabs(value), largest);
  int best = 0;
  for (int byte = 1; byte < 128; ++byte) {
    const double candidate = value_of(format, byte);
    if (std::isnan(candidate)) continue;
    const double distance = std::fabs(candidate - target);
    const double best_distance = std::fabs(value_of(format, best) - target);
    if (distance < best_distance || (distance == best_distance && byte % 2 == 0)) best = byte;
  }
  if (format == fnuz && best == 0) return 0;  // 0x80 would be NaN
  return negative ? best + 128 : best;
}

// Counts differences instead of asserting each: tens of thousands of assertions take seconds.
template <class Values>
int count_wrong_bytes(fp8_format format, const Values& values) {
  int wrong = 0;
  for (const double value : values) {
    const int expected = nearest_byte(format, value);
    const int actual = fp8_encode(format, value);
    if (actual != expected && wrong++ == 0) {
      UNSCOPED_INFO("first: " << value << " gives " << actual << ", not " << expected);
    }
  }
  return wrong;
}

std::vector<double> values_and_midpoints(fp8_format format) {
  std::vector<double> values;
  for (int byte = 0; byte < 128; ++byte) {
    const double value = value_of(format, byte);
    if (std::isnan(value)) continue;
    double next = value_of(format, byte + 1);
    // Above the largest value the midpoint to the next power of two decides about saturation.
    if (byte == 127 || std::isnan(next)) next = value * 2;
    const double middle = (value + next) / 2;
    for (const double around : {value, middle}) {
      for (const double x : {around, std::nextafter(around, 0.0), std::nextafter(around, 1e9)}) {
        values.push_back(x);
        values.push_back(-x);
      }
    }
  }
  return values;
}

std::vector<double> all_finite_bf16() {
  std::vector<double> values;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint32_t wide = bits << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof value);
    if (std::isfinite(value)) values.push_back(static_cast<double>(value));
  }
  return values;
}

}  // namespace

TEST_CASE("every byte decodes to the value of its fields", "[fp8][class_H]") {
  for (const fp8_format format : {fnuz, fn}) {
    CAPTURE(kindex::to_string(format));
    for (int byte = 0; byte < 256; ++byte) {
      CAPTURE(byte);
      const double expected = value_of(format, byte);
      const double actual = fp8_decode(format, static_cast<std::uint8_t>(byte));
      CHECK(kindex::fp8_is_nan(format, static_cast<std::uint8_t>(byte)) == std::isnan(expected));
      if (std::isnan(expected)) {
        CHECK(std::isnan(actual));
      } else {
        CHECK(actual == expected);
        CHECK(std::signbit(actual) == std::signbit(expected));
      }
    }
  }
}

TEST_CASE("limits of the formats", "[fp8][class_I]") {
  CHECK(kindex::fp8_max(fnuz) == 240.0f);
  CHECK(kindex::fp8_max(fn) == 448.0f);
  CHECK(fp8_decode(fnuz, 0x7F) == 240);
  CHECK(fp8_decode(fn, 0x7E) == 448);
  CHECK(fp8_decode(fnuz, 0xFF) == -240);
  CHECK(fp8_decode(fn, 0xFE) == -448);
  CHECK(kindex::fp8_bias(fnuz) == 8);
  CHECK(kindex::fp8_bias(fn) == 7);
  CHECK(kindex::to_string(fnuz) == std::string("e4m3fnuz"));
  CHECK(kindex::to_string(fn) == std::string("e4m3fn"));
}

TEST_CASE("a byte is worth half as much in e4m3fnuz", "[fp8][class_I]") {
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == 0x80 || byte % 128 == 0x7F) continue;
    CAPTURE(byte);
    const auto code = static_cast<std::uint8_t>(byte);
    CHECK(fp8_decode(fnuz, code) * 2 == fp8_decode(fn, code));
  }
}

TEST_CASE("bytes known from elsewhere", "[fp8][class_H][class_I]") {
  struct row {
    double value;
    int fn_byte, fnuz_byte;
  };
  const row rows[] = {
      {1.0, 0x38, 0x40},
      {1.0625, 0x38, 0x40},  // tie
      {1.1875, 0x3A, 0x42},  // tie
      {0.1, 0x1D, 0x25},
      {1.0 / 3, 0x2B, 0x33},
      {17, 0x58, 0x60},  // tie
      {19, 0x5A, 0x62},  // tie
      {std::ldexp(1, -9), 0x01, 0x02},
      {std::ldexp(1, -10), 0x00, 0x01},
      {std::ldexp(3, -10), 0x02, 0x03},
      {124, 0x70, 0x78},  // tie
      {232, 0x76, 0x7E},  // tie
      {240, 0x77, 0x7F},
      {248, 0x78, 0x7F},  // tie; saturated
      {288, 0x79, 0x7F},
      {432, 0x7E, 0x7F},  // tie
      {448, 0x7E, 0x7F},
      {465, 0x7E, 0x7F},  // AMD's packed converts give NaN here
  };
  for (const row& r : rows) {
    CAPTURE(r.value);
    CHECK(fp8_encode(fn, r.value) == r.fn_byte);
    CHECK(fp8_encode(fnuz, r.value) == r.fnuz_byte);
    if (r.fn_byte != 0) CHECK(fp8_encode(fn, -r.value) == r.fn_byte + 0x80);
    CHECK(fp8_encode(fnuz, -r.value) == r.fnuz_byte + 0x80);
  }
}

TEST_CASE("special values", "[fp8][class_H]") {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(fp8_encode(fn, nan_value) == 0x7F);
  CHECK(fp8_encode(fnuz, nan_value) == 0x80);
  CHECK(fp8_encode(fn, infinity) == 0x7E);
  CHECK(fp8_encode(fn, -infinity) == 0xFE);
  CHECK(fp8_encode(fnuz, infinity) == 0x7F);
  CHECK(fp8_encode(fnuz, -infinity) == 0xFF);
  CHECK(fp8_encode(fn, -0.0) == 0x80);
  CHECK(fp8_encode(fnuz, -0.0) == 0x00);  // 0x80 would be NaN
  CHECK(fp8_encode(fn, -1e-30) == 0x80);
  CHECK(fp8_encode(fnuz, -1e-30) == 0x00);
}

TEST_CASE("encoding inverts decoding", "[fp8][class_H]") {
  for (const fp8_format format : {fnuz, fn}) {
    for (int byte = 0; byte < 256; ++byte) {
      CAPTURE(kindex::to_string(format), byte);
      if (std::isnan(value_of(format, byte))) continue;
      CHECK(fp8_encode(format, value_of(format, byte)) == byte);
    }
  }
}

TEST_CASE("values, midpoints and their neighbours round to nearest even", "[fp8][class_H]") {
  CHECK(count_wrong_bytes(fnuz, values_and_midpoints(fnuz)) == 0);
  CHECK(count_wrong_bytes(fn, values_and_midpoints(fn)) == 0);
}

TEST_CASE("every finite bf16 rounds to nearest even", "[fp8][class_H]") {
  CHECK(count_wrong_bytes(fnuz, all_finite_bf16()) == 0);
  CHECK(count_wrong_bytes(fn, all_finite_bf16()) == 0);
}

TEST_CASE("random values round to nearest even", "[fp8][class_H]") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-13, 10);
  std::vector<double> values;
  for (int i = 0; i < 20000; ++i) {
    values.push_back((i % 2 == 0 ? 1 : -1) * std::exp2(exponent(random)));
  }
  CHECK(count_wrong_bytes(fnuz, values) == 0);
  CHECK(count_wrong_bytes(fn, values) == 0);
}

TEST_CASE("encode and decode are constant expressions", "[fp8]") {
  static_assert(fp8_encode(fnuz, 1.0) == 0x40);
  static_assert(fp8_encode(fn, -448.0) == 0xFE);
  static_assert(fp8_decode(fn, 0x38) == 1.0);
  static_assert(fp8_decode(fnuz, 0x01) == 1.0 / 1024);
  SUCCEED();
}
