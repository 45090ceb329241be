// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Numbers in and out: 16 elements of K to float, 16 floats to one unit of fp8. The fp8 format is
// the hardware's own; launchers see to it that it is the cache's.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "../params.hpp"
#include "memory.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail {

#if KINDEX_DEVICE_COMPILER

/// Elements of K that one lane quantises: they become one unit.
inline constexpr int unit_elements = 16;

KINDEX_DEVICE float bits_to_float(std::uint32_t bits) { return __uint_as_float(bits); }
KINDEX_DEVICE std::uint32_t float_to_bits(float value) { return __float_as_uint(value); }

/// Magnitude bits of the smallest non-finite float: above it only NaN.
inline constexpr std::uint32_t infinity_bits = 0x7F800000u;

/// IEEE half to float, without a header that HIP 5.2 lacks or nvcc names differently.
KINDEX_DEVICE float half_to_float(std::uint16_t bits) {
#if KINDEX_PLATFORM_NVIDIA
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
#endif
}

/// Loads 16 elements and widens them to float, exactly. Aligned: the address is a multiple of 16.
template <element_type Type, bool Aligned>
KINDEX_DEVICE void load_elements(const void* address, float (&value)[unit_elements]) {
  if constexpr (Type == element_type::fp32) {
    if constexpr (Aligned) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const u32x4 word = load_unit<16>(static_cast<const char*>(address) + 16 * i);
        value[4 * i + 0] = bits_to_float(word.x);
        value[4 * i + 1] = bits_to_float(word.y);
        value[4 * i + 2] = bits_to_float(word.z);
        value[4 * i + 3] = bits_to_float(word.w);
      }
    } else {
#pragma unroll
      for (int i = 0; i < unit_elements; ++i) value[i] = static_cast<const float*>(address)[i];
    }
  } else {
    std::uint32_t pair[unit_elements / 2];
    if constexpr (Aligned) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const u32x4 word = load_unit<16>(static_cast<const char*>(address) + 16 * i);
        pair[4 * i + 0] = word.x;
        pair[4 * i + 1] = word.y;
        pair[4 * i + 2] = word.z;
        pair[4 * i + 3] = word.w;
      }
    } else {
      const auto* element = static_cast<const std::uint16_t*>(address);
#pragma unroll
      for (int i = 0; i < unit_elements / 2; ++i) {
        pair[i] = element[2 * i] | static_cast<std::uint32_t>(element[2 * i + 1]) << 16;
      }
    }
#pragma unroll
    for (int i = 0; i < unit_elements / 2; ++i) {
      if constexpr (Type == element_type::bf16) {
        value[2 * i] = bits_to_float(pair[i] << 16);
        value[2 * i + 1] = bits_to_float(pair[i] & 0xFFFF0000u);
      } else {
        value[2 * i] = half_to_float(static_cast<std::uint16_t>(pair[i]));
        value[2 * i + 1] = half_to_float(static_cast<std::uint16_t>(pair[i] >> 16));
      }
    }
  }
}

/// Four finite floats within the format's range to four fp8 bytes: nearest, ties to even.
KINDEX_DEVICE std::uint32_t to_fp8x4(float a, float b, float c, float d) {
#if KINDEX_PLATFORM_NVIDIA
  std::uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return low | static_cast<std::uint32_t>(high) << 16;
#elif KINDEX_TARGET_CDNA
  // The packed converts do not saturate; the caller has clamped.
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0, false);
  return static_cast<std::uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(c, d, low, true));
#else
  return 0;
#endif
}

/// Correctly rounded quotient and product, also where the includer compiles with fast math.
KINDEX_DEVICE float divide_rn(float a, float b) { return __fdiv_rn(a, b); }
KINDEX_DEVICE float multiply_rn(float a, float b) { return __fmul_rn(a, b); }

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail
KINDEX_NAMESPACE_END
