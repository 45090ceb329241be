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
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail {

/// Magnitude bits of the smallest non-finite float: above it only NaN.
inline constexpr std::uint32_t infinity_bits = 0x7F800000u;

#if KINDEX_DEVICE_COMPILER

/// Elements of K that one lane quantises: they become one unit.
inline constexpr int unit_elements = 16;

KINDEX_DEVICE float bits_to_float(std::uint32_t bits) { return __uint_as_float(bits); }
KINDEX_DEVICE std::uint32_t float_to_bits(float value) { return __float_as_uint(value); }

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

/// Sixteen elements of K as they lie in memory.
template <element_type Type>
struct unit_of_elements {
  static constexpr int num_words = unit_elements * element_bytes(Type) / 4;
  std::uint32_t word[num_words];
};

/// Loads 16 elements from an address that is a multiple of Alignment bytes.
template <element_type Type, int Alignment>
KINDEX_DEVICE unit_of_elements<Type> load_elements(const void* address) {
  unit_of_elements<Type> unit;
#pragma unroll
  for (int i = 0; i < unit.num_words / 4; ++i) {
    const u32x4 words = load_unit<Alignment>(static_cast<const char*>(address) + 16 * i);
    unit.word[4 * i + 0] = words.x;
    unit.word[4 * i + 1] = words.y;
    unit.word[4 * i + 2] = words.z;
    unit.word[4 * i + 3] = words.w;
  }
  return unit;
}

/// The elements as floats, exactly.
template <element_type Type>
KINDEX_DEVICE void widen(const unit_of_elements<Type>& unit, float (&value)[unit_elements]) {
#pragma unroll
  for (int i = 0; i < unit.num_words; ++i) {
    const std::uint32_t word = unit.word[i];
    if constexpr (Type == element_type::fp32) {
      value[i] = bits_to_float(word);
    } else if constexpr (Type == element_type::bf16) {
      value[2 * i] = bits_to_float(word << 16);
      value[2 * i + 1] = bits_to_float(word & 0xFFFF0000u);
    } else {
      value[2 * i] = half_to_float(static_cast<std::uint16_t>(word));
      value[2 * i + 1] = half_to_float(static_cast<std::uint16_t>(word >> 16));
    }
  }
}

/// The larger of two 16-bit numbers, twice.
KINDEX_DEVICE std::uint32_t max_u16x2(std::uint32_t a, std::uint32_t b) {
#if KINDEX_PLATFORM_NVIDIA
  return __vmaxu2(a, b);
#else
  using u16x2 = __attribute__((ext_vector_type(2))) std::uint16_t;
  return __builtin_bit_cast(std::uint32_t, __builtin_elementwise_max(__builtin_bit_cast(u16x2, a),
                                                                     __builtin_bit_cast(u16x2, b)));
#endif
}

/// Float bits of the largest magnitude of the lanes' elements: GroupSize neighbouring lanes, all of
/// them here. Without their sign floats of all types compare as integers, NaN above Inf above all
/// finite ones.
template <int GroupSize, element_type Type>
KINDEX_DEVICE std::uint32_t group_amax_bits(const unit_of_elements<Type>& unit) {
  std::uint32_t largest = 0;
  if constexpr (Type == element_type::fp32) {
#pragma unroll
    for (int i = 0; i < unit.num_words; ++i) {
      const std::uint32_t magnitude = unit.word[i] & 0x7FFFFFFFu;
      largest = magnitude > largest ? magnitude : largest;
    }
    return group_max<GroupSize>(largest);
  } else {
#pragma unroll
    for (int i = 0; i < unit.num_words; ++i) {
      largest = max_u16x2(largest, unit.word[i] & 0x7FFF7FFFu);
    }
    // The larger half on top; what is below it does not matter.
    const std::uint32_t low_half = largest << 16;
    largest = group_max<GroupSize>(low_half > largest ? low_half : largest);
    return Type == element_type::bf16
               ? largest & 0xFFFF0000u
               : float_to_bits(half_to_float(static_cast<std::uint16_t>(largest >> 16)));
  }
}

/// Four finite floats within the format's range to four fp8 bytes: nearest, ties to even.
KINDEX_DEVICE std::uint32_t to_fp8x4([[maybe_unused]] float a, [[maybe_unused]] float b,
                                     [[maybe_unused]] float c, [[maybe_unused]] float d) {
#if KINDEX_PLATFORM_NVIDIA
  std::uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return low | static_cast<std::uint32_t>(high) << 16;
#elif KINDEX_TARGET_CDNA
  // The packed converts do not saturate; the caller sees to it. The first keeps the upper half of a
  // register, which the second overwrites: any register, so none is cleared for it.
  int word;
  asm("" : "=v"(word) : "v"(d));
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, word, false);
  return static_cast<std::uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(c, d, low, true));
#else
  return 0;
#endif
}

/// Correctly rounded quotient and product, also where the includer compiles with fast math.
KINDEX_DEVICE float divide_rn(float a, float b) { return __fdiv_rn(a, b); }
KINDEX_DEVICE float multiply_rn(float a, float b) { return __fmul_rn(a, b); }
KINDEX_DEVICE float multiply_add_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }

/// Scales two values; CDNA does both in one instruction.
KINDEX_DEVICE void multiply_pair_rn(float& a, float& b, float factor) {
#if KINDEX_PLATFORM_NVIDIA
  a = multiply_rn(a, factor);
  b = multiply_rn(b, factor);
#else
  const f32x2 product = f32x2{a, b} * f32x2{factor, factor};
  a = product.x;
  b = product.y;
#endif
}

/// 1 / a, correctly rounded, for results that are normal numbers.
KINDEX_DEVICE float reciprocal_rn(float a) {
#if KINDEX_PLATFORM_NVIDIA
  return __frcp_rn(a);
#elif KINDEX_TARGET_CDNA
  // The instruction is good to 1 ulp; two Newton steps make it exact (tried out, all mantissas).
  float inverse = __builtin_amdgcn_rcpf(a);
  inverse = multiply_add_rn(multiply_add_rn(-a, inverse, 1.0f), inverse, inverse);
  return multiply_add_rn(multiply_add_rn(-a, inverse, 1.0f), inverse, inverse);
#else
  return 1.0f / a;
#endif
}

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail
KINDEX_NAMESPACE_END
