// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// CDNA's matrix instruction in the role that the logits need: heads x dims times dims x tokens.
//
// v_mfma_f32_32x32x16_fp8_fp8, A = q (rows are heads), B = K (columns are tokens):
//
//     operands   lane l holds row/column l%32, 8 bytes of k = 8*(l/32)..+7
//     result     lane l, register r holds head 8*(r/4)+4*(l/32)+r%4, token l%32
//
// A 16-byte load serves two instructions. The k order inside them does not matter as long as q and
// K agree: load j of lane l is dims 32j + 16(l/32)..+15 of its head or token, in both.
// Source: AMD Instinct MI300 ISA, section on matrix fused multiply-add.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::gfx9 {

/// Rows and columns of the matrix instruction.
inline constexpr int block_heads = 32;
inline constexpr int block_tokens = 32;
inline constexpr int blocks_per_unit = unit_tokens / block_tokens;

#if KINDEX_TARGET_CDNA

using f32x16 = __attribute__((ext_vector_type(16))) float;

/// What sums begin with; to be made before the loop that they are in. The matrix instruction takes
/// a constant 0, but clang 21 gives it none if a second sum begins nearby: it makes 16 registers of
/// zeros anew for the two, by 24 instructions, and may spill for want of registers. There they are
/// made once.
KINDEX_DEVICE f32x16 make_zeros() {
  f32x16 zeros = {};
#if KINDEX_CLANG_20
#pragma unroll
  for (int i = 0; i < 16; i += 2) {  // not all at once, or they would be copies of 16 others
    f32x2 pair = {};
    asm volatile("" : "+v"(pair));
    zeros[i] = pair.x;
    zeros[i + 1] = pair.y;
  }
#endif
  return zeros;
}

/// One lane's share of a block of heads or tokens.
template <int HeadDim>
struct fragment {
  static constexpr int num_loads = HeadDim / 32;
  u32x4 load[num_loads];
};

/// Adds the products of one 16-byte load: 32 dims.
KINDEX_DEVICE f32x16 multiply_add(u32x4 q, u32x4 k, f32x16 sum) {
  struct halves {
    long low, high;
  };
  const auto a = __builtin_bit_cast(halves, q);
  const auto b = __builtin_bit_cast(halves, k);
  sum = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a.low, b.low, sum, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a.high, b.high, sum, 0, 0, 0);
}

/// The upper bound of relu's median.
KINDEX_DEVICE float relu_bound() {
#if KINDEX_CLANG_20
  float bound;  // of which the compiler knows nothing: it would make a fmaxf of the median
  asm("" : "=s"(bound) : "0"(__builtin_inff()));
  return bound;
#else
  return __builtin_inff();
#endif
}

/// max(0, value), 0 for NaN. The median needs no canonical operand, which fmaxf would make first.
KINDEX_DEVICE float relu(float value, float bound) {
  return __builtin_amdgcn_fmed3f(value, 0.0f, bound);
}

/// Weights of one lane's sixteen heads of a block, in the order of the result's registers.
struct block_weights {
  f32x4 quad[4];
};

/// Relu, and the weights of this lane's heads; even and odd heads are summed apart.
KINDEX_DEVICE f32x2 add_weighted_relu(f32x16 value, const block_weights& weights, f32x2 sum,
                                      float bound) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const f32x2 low = {relu(value[4 * i], bound), relu(value[4 * i + 1], bound)};
    const f32x2 high = {relu(value[4 * i + 2], bound), relu(value[4 * i + 3], bound)};
    sum = __builtin_elementwise_fma(low, weights.quad[i].xy, sum);
    sum = __builtin_elementwise_fma(high, weights.quad[i].zw, sum);
  }
  return sum;
}

/// Adds the two lane groups' shares of every token. first and second are this lane's shares of
/// token l%32 of a unit's two blocks; the result is the whole sum of token l of the unit.
KINDEX_DEVICE float reduce_lane_groups(float first, float second) {
  const bool upper = lane_id() >= 32;
  return (upper ? second : first) + shuffle_xor(upper ? first : second, 32);
}

#endif  // KINDEX_TARGET_CDNA

}  // namespace detail::gfx9
KINDEX_NAMESPACE_END
