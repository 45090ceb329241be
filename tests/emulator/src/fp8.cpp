// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "fp8.hpp"

#include <cmath>

#include "common.hpp"

namespace kindex::emulator {
namespace {

int bias_of(fp8_format f) { return (1 << (f.exponent_bits - 1)) - (f.fnuz ? 0 : 1); }

uint8_t overflow_code(fp8_format f, bool negative) {
  if (f.fnuz) return 0x80;
  const uint8_t code = f.exponent_bits == 5 ? 0x7c : 0x7f;  // infinity, or NaN where there is none
  return negative ? code | 0x80 : code;
}

uint8_t nan_code(fp8_format f, bool negative) {
  if (f.fnuz) return 0x80;
  return negative ? 0xff : 0x7f;
}

uint8_t largest_code(fp8_format f, bool negative) {
  const uint8_t code = f.fnuz ? 0x7f : f.exponent_bits == 5 ? 0x7b : 0x7e;
  return negative ? code | 0x80 : code;
}

// Rounds on the bits of the single: `round_up(remainder, half, odd)` decides whether the kept part
// goes up. The result may run over into the next exponent, which is what rounding up means.
template <class Round>
uint8_t encode(float value, fp8_format f, bool saturate, Round&& round_up) {
  const uint32_t bits = as_bits(value);
  const bool negative = bits >> 31;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return nan_code(f, negative);
  if (magnitude == 0x7f800000u) {
    return saturate ? largest_code(f, negative) : overflow_code(f, negative);
  }
  const int single_exponent = static_cast<int>(magnitude >> 23);
  const int exponent = (single_exponent ? single_exponent : 1) - 127;
  const uint32_t mantissa = (magnitude & 0x7fffffu) | (single_exponent ? 0x800000u : 0u);
  const int smallest = 1 - bias_of(f);  // exponent of the smallest normal number
  int shift = 23 - f.mantissa_bits;
  if (exponent < smallest) shift += smallest - exponent;
  // Far below the smallest subnormal there is nothing left to round up.
  if (shift > 60) shift = 60;
  uint32_t code = static_cast<uint32_t>(uint64_t{mantissa} >> shift);
  const uint64_t remainder = mantissa & low_mask(static_cast<unsigned>(shift));
  if (round_up(remainder, uint64_t{1} << (shift - 1), (code & 1) != 0)) ++code;
  // The leading one of a normal number adds 1 to the exponent field.
  if (exponent >= smallest) {
    code += static_cast<uint32_t>(exponent - smallest) << f.mantissa_bits;
  }
  if (code > largest_code(f, false)) {
    return saturate ? largest_code(f, negative) : overflow_code(f, negative);
  }
  if (code == 0) return f.fnuz || !negative ? 0 : 0x80;
  return static_cast<uint8_t>(code | (negative ? 0x80 : 0));
}

struct tables {
  float values[2][2][256];
  tables() {
    for (int ocp = 0; ocp < 2; ++ocp) {
      for (int byte = 0; byte < 256; ++byte) {
        values[ocp][0][byte] = decode_fp8(static_cast<uint8_t>(byte), e4m3(ocp));
        values[ocp][1][byte] = decode_fp8(static_cast<uint8_t>(byte), e5m2(ocp));
      }
    }
  }
};

}  // namespace

float decode_fp8(uint8_t byte, fp8_format f) {
  const bool negative = byte >> 7;
  const int exponent = (byte >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = byte & ((1 << f.mantissa_bits) - 1);
  if (f.fnuz) {
    if (byte == 0x80) return NAN;
  } else if (f.exponent_bits == 5) {
    if (exponent == 31) return mantissa ? NAN : negative ? -INFINITY : INFINITY;
  } else if (exponent == 15 && mantissa == 7) {
    return NAN;
  }
  const float scaled =
      std::ldexp(static_cast<float>(mantissa + (exponent ? 1 << f.mantissa_bits : 0)),
                 (exponent ? exponent : 1) - bias_of(f) - f.mantissa_bits);
  return negative ? -scaled : scaled;
}

uint8_t encode_fp8(float value, fp8_format format, bool saturate) {
  return encode(value, format, saturate, [](uint64_t remainder, uint64_t half, bool odd) {
    return remainder > half || (remainder == half && odd);
  });
}

uint8_t encode_fp8_stochastic(float value, uint32_t noise, fp8_format format, bool saturate) {
  return encode(value, format, saturate, [noise](uint64_t remainder, uint64_t half, bool) {
    // The noise is a fraction of the last kept place, 32 bits wide.
    const unsigned __int128 scaled = static_cast<unsigned __int128>(noise) * (2 * half);
    return (static_cast<unsigned __int128>(remainder) << 32) + scaled >=
           (static_cast<unsigned __int128>(2 * half) << 32);
  });
}

const float* fp8_table(bool ocp, bool is_e5m2) {
  static const tables all;
  return all.values[ocp][is_e5m2];
}

}  // namespace kindex::emulator
