// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The four 8-bit float formats: E4M3 and E5M2, as the OCP specification has them (gfx950) and in
// the variant without infinities and negative zero (gfx942, "fnuz").

#pragma once

#include <cstdint>

namespace kindex::emulator {

struct fp8_format {
  int exponent_bits;
  int mantissa_bits;
  bool fnuz;
};

constexpr fp8_format e4m3(bool ocp) { return {4, 3, !ocp}; }
constexpr fp8_format e5m2(bool ocp) { return {5, 2, !ocp}; }

float decode_fp8(uint8_t byte, fp8_format format);

// Round to nearest even. Beyond the largest finite value: NaN (infinity in OCP E5M2), or the
// largest finite value when `saturate` is set.
uint8_t encode_fp8(float value, fp8_format format, bool saturate);

// Stochastic rounding: `noise` is added below the last mantissa bit that is kept.
uint8_t encode_fp8_stochastic(float value, uint32_t noise, fp8_format format, bool saturate);

// All 256 values; index 0 is E4M3, 1 is E5M2.
const float* fp8_table(bool ocp, bool e5m2);

}  // namespace kindex::emulator
