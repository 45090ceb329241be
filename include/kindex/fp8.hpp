// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The two 8-bit float formats of the index-K cache, as constexpr software: the definition that
// tests, reference and documentation share. Kernels convert with the hardware's instructions.
#pragma once

#include <cstdint>

#include "config.hpp"

KINDEX_NAMESPACE_BEGIN

/// 8-bit float formats with 4 exponent and 3 mantissa bits. The same byte is worth half as much in
/// e4m3fnuz as in e4m3fn, so the two must never meet in one product.
/// Source: OCP 8-bit Floating Point Specification 1.0 (e4m3fn); AMD CDNA3 ISA, section on fp8
/// (fnuz).
enum class fp8_format : std::uint8_t {
  e4m3fnuz,  ///< bias 8, max 240, NaN 0x80 only, no negative zero: gfx942
  e4m3fn,    ///< bias 7, max 448, NaN 0x7F and 0xFF, negative zero 0x80: gfx950, NVIDIA
};

/// The name of a format, for messages.
constexpr const char* to_string(fp8_format format) {
  return format == fp8_format::e4m3fnuz ? "e4m3fnuz" : "e4m3fn";
}

/// The largest finite value of a format: 240 or 448.
KINDEX_HOST_DEVICE constexpr float fp8_max(fp8_format format) {
  return format == fp8_format::e4m3fnuz ? 240.0f : 448.0f;
}

/// Exponent bias of a format: 8 or 7.
KINDEX_HOST_DEVICE constexpr int fp8_bias(fp8_format format) {
  return format == fp8_format::e4m3fnuz ? 8 : 7;
}

/// True for the bytes that decode to NaN: 0x80 (fnuz); 0x7F and 0xFF (fn).
KINDEX_HOST_DEVICE constexpr bool fp8_is_nan(fp8_format format, std::uint8_t byte) {
  return format == fp8_format::e4m3fnuz ? byte == 0x80 : (byte & 0x7F) == 0x7F;
}

/// The value of one byte, exactly. NaN bytes give a quiet NaN.
KINDEX_HOST_DEVICE constexpr double fp8_decode(fp8_format format, std::uint8_t byte) {
  if (fp8_is_nan(format, byte)) return __builtin_nan("");
  const int exponent = (byte >> 3) & 15;
  const int mantissa = byte & 7;
  // A subnormal has the exponent of the smallest normal and no hidden bit.
  double value = exponent == 0 ? mantissa : 8 + mantissa;
  int power = (exponent == 0 ? 1 : exponent) - fp8_bias(format) - 3;
  for (; power > 0; --power) value *= 2;
  for (; power < 0; ++power) value /= 2;
  return (byte & 0x80) != 0 ? -value : value;
}

/// The nearest fp8 byte of a finite value, ties to even mantissa, saturated to ±max; subnormals
/// kept. NaN gives the format's NaN byte (0x80 or 0x7F). Zero keeps its sign only in e4m3fn.
KINDEX_HOST_DEVICE constexpr std::uint8_t fp8_encode(fp8_format format, double value) {
  const bool fnuz = format == fp8_format::e4m3fnuz;
  if (value != value) return fnuz ? 0x80 : 0x7F;
  // The sign of a zero is only visible through its reciprocal in constexpr code; 1/-0 = -inf.
  const bool negative = value < 0 || (value == 0 && __builtin_signbit(value) != 0);
  double magnitude = negative ? -value : value;
  const std::uint8_t max_byte = fnuz ? 0x7F : 0x7E;
  std::uint8_t byte = 0;
  if (magnitude >= static_cast<double>(fp8_max(format))) {
    byte = max_byte;
  } else {
    // Scale into [8, 16) (or below 8 for subnormals), then round to an integer mantissa.
    int exponent = 1 - fp8_bias(format);  // of the smallest normal
    double unit = 1;                      // 2^(exponent - 3)
    for (int power = exponent - 3; power < 0; ++power) unit /= 2;
    while (magnitude >= 16 * unit) {
      unit *= 2;
      ++exponent;
    }
    const double scaled = magnitude / unit;  // exact: a power of two
    int integer = static_cast<int>(scaled);
    const double rest = scaled - integer;
    if (rest > 0.5 || (rest == 0.5 && (integer & 1) != 0)) ++integer;
    // integer == 16 carries into the exponent field by itself, as does 8 for subnormals.
    const int biased = exponent + fp8_bias(format) - 1;
    const int code = biased * 8 + integer;
    byte = static_cast<std::uint8_t>(code > max_byte ? max_byte : code);
  }
  if (negative && !(fnuz && byte == 0)) byte = static_cast<std::uint8_t>(byte | 0x80);
  return byte;
}

KINDEX_NAMESPACE_END
