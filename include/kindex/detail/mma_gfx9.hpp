// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// CDNA's matrix instruction in the role that the logits need: heads x dims times dims x tokens.
//
// v_mfma_f32_16x16x32_fp8_fp8, A = q (rows are heads), B = K (columns are tokens):
//
//     operands   lane l holds row/column l%16, 8 bytes of k = 8*(l/16)..+7
//     result     lane l, register r holds head 4*(l/16)+r, token l%16
//
// A 16-byte load serves two instructions. The k order inside them does not matter as long as q and
// K agree: load j of lane l is dims 64j + 16(l/16)..+15 of its head or token, in both.
// Source: AMD Instinct MI300 ISA, section on matrix fused multiply-add.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "memory.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::gfx9 {

#if KINDEX_TARGET_CDNA

/// One lane's share of 16 heads or 16 tokens.
template <int HeadDim>
struct fragment {
  static constexpr int num_loads = HeadDim / 64;
  u32x4 load[num_loads];
};

/// Adds the products of one 16-byte load: 64 dims.
KINDEX_DEVICE f32x4 multiply_add(u32x4 q, u32x4 k, f32x4 sum) {
  struct halves {
    long low, high;
  };
  const auto a = __builtin_bit_cast(halves, q);
  const auto b = __builtin_bit_cast(halves, k);
  sum = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a.low, b.low, sum, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a.high, b.high, sum, 0, 0, 0);
}

/// q . k of 16 heads and 16 tokens over scale group g (128 dims, or all 64).
template <int HeadDim>
KINDEX_DEVICE f32x4 dot(const fragment<HeadDim>& q, const fragment<HeadDim>& k, int group) {
  constexpr int loads_per_group = fragment<HeadDim>::num_loads < 2 ? 1 : 2;
  f32x4 sum = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < loads_per_group; ++j) {
    sum =
        multiply_add(q.load[group * loads_per_group + j], k.load[group * loads_per_group + j], sum);
  }
  return sum;
}

/// Waits until at most Younger of this wave's loads from memory are on their way. They are counted
/// in order, so all but the last Younger ones have arrived then.
template <int Younger>
KINDEX_DEVICE void wait_for_loads() {
  // Source: AMD Instinct MI300 ISA, S_WAITCNT: vmcnt in bits 15:14 and 3:0; the other counters
  // full.
  __builtin_amdgcn_s_waitcnt(0x0F70 | (Younger & 15) | (Younger >> 4) << 14);
}

/// max(0, value), 0 for NaN. The median needs no canonical operand, which fmaxf would make first.
KINDEX_DEVICE float relu(float value) {
  return __builtin_amdgcn_fmed3f(value, 0.0f, __builtin_inff());
}

/// Relu, and the weights of this lane's four heads; even and odd heads are summed apart.
KINDEX_DEVICE f32x2 add_weighted_relu(f32x4 value, f32x4 weight, f32x2 sum) {
  const f32x2 low = {relu(value.x), relu(value.y)};
  const f32x2 high = {relu(value.z), relu(value.w)};
  sum = __builtin_elementwise_fma(low, weight.xy, sum);
  return __builtin_elementwise_fma(high, weight.zw, sum);
}

/// Adds the four lane groups' shares of every token. partial[i] is this lane's share of token l%16
/// of tile i; the result is the whole sum of token l%16 of tile l/16, that is of token l of the
/// unit.
KINDEX_DEVICE float reduce_lane_groups(const float (&partial)[4]) {
  const int group = lane_id() / 16;
  const bool upper = group >= 2;
  // Halve twice: keep the tiles of the own half and send the others, first across 32 lanes.
  const float keep0 = upper ? partial[2] : partial[0];
  const float keep1 = upper ? partial[3] : partial[1];
  const float send0 = upper ? partial[0] : partial[2];
  const float send1 = upper ? partial[1] : partial[3];
  const float sum0 = keep0 + shuffle_xor(send0, 32);
  const float sum1 = keep1 + shuffle_xor(send1, 32);
  const bool odd = (group & 1) != 0;
  return (odd ? sum1 : sum0) + shuffle_xor(odd ? sum0 : sum1, 16);
}

#endif  // KINDEX_TARGET_CDNA

}  // namespace detail::gfx9
KINDEX_NAMESPACE_END
