// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The warp's matrix instruction in the role that the logits need: tokens x dims times dims x heads.
//
// mma.sync m16n8k32 on e4m3, A = K (rows are tokens), B = q (columns are heads); lane 4g + t:
//
//     A        registers 0, 1: tokens g, g+8, k = 4t..+3; registers 2, 3: the same, k = 16+4t..+3
//     B        register 0: head g, k = 4t..+3; register 1: the same, k = 16+4t..+3
//     result   0, 1: token g, heads 2t, 2t+1; 2, 3: token g+8, the same heads
//
// A 16-byte load serves two instructions. The k order inside them does not matter as long as q and
// K agree: load j of lane 4g + t is dims 64j + 16t..+15 of its head or token, in both.
// Source: PTX ISA, section on matrix fragments for mma.m16n8k32.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "memory.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

/// Heads of one instruction.
inline constexpr int tile_heads = 8;

/// One lane's share of 8 heads or 8 tokens.
template <int HeadDim>
struct fragment {
  static constexpr int num_loads = HeadDim / 64;
  u32x4 load[num_loads];
};

/// Adds the products of 32 dims. low, high: k = 4t..+3 and 16+4t..+3.
KINDEX_DEVICE void multiply_add(float (&sum)[4], std::uint32_t token_low, std::uint32_t token8_low,
                                std::uint32_t token_high, std::uint32_t token8_high,
                                std::uint32_t head_low, std::uint32_t head_high) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(token_low), "r"(token8_low), "r"(token_high), "r"(token8_high), "r"(head_low),
        "r"(head_high));
}

/// k . q of 16 tokens and 8 heads over scale group g (128 dims, or all 64).
template <int HeadDim>
KINDEX_DEVICE void dot(const fragment<HeadDim> (&k)[2], const fragment<HeadDim>& q, int group,
                       float (&sum)[4]) {
  constexpr int loads_per_group = fragment<HeadDim>::num_loads < 2 ? 1 : 2;
  sum[0] = sum[1] = sum[2] = sum[3] = 0;
#pragma unroll
  for (int i = 0; i < loads_per_group; ++i) {
    const int j = group * loads_per_group + i;
    const u32x4 token = k[0].load[j], token8 = k[1].load[j], head = q.load[j];
    multiply_add(sum, token.x, token8.x, token.y, token8.y, head.x, head.y);
    multiply_add(sum, token.z, token8.z, token.w, token8.w, head.z, head.w);
  }
}

/// The sum over the four lanes that share a token, in each of them.
KINDEX_DEVICE float reduce_heads(float value) {
  value += shuffle_xor(value, 1);
  return value + shuffle_xor(value, 2);
}

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
