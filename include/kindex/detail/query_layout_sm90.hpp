// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How q lies in shared memory on Hopper: [rows * heads][D] as in memory, but for the order of the
// 16-byte units within 8 neighbouring heads ("a group"), which the matrix unit reads without bank
// conflicts. So q can be copied in bulk, and put in order in place.
// Source: PTX ISA, wgmma, shared memory layouts with swizzle.
#pragma once

#include <hip/hip_runtime.h>

#include "../config.hpp"
#include "memory.hpp"
#include "mma_sm90.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

template <int HeadDim>
struct query_layout {
  static constexpr int group_heads = 8;
  static constexpr int group_bytes = group_heads * HeadDim;
  /// Dims beyond 128 lie behind the first ones of all 8 heads.
  static constexpr int row_bytes = HeadDim < 128 ? HeadDim : 128;
  static constexpr int row_units = row_bytes / unit_bytes;
  static constexpr int head_units = HeadDim / unit_bytes;
  /// Where slots begin: the hardware takes the order from the address.
  static constexpr int alignment = 8 * row_bytes;

  /// The place in its group of unit `unit` of a group that is as in memory.
  static KINDEX_DEVICE int place_of(int unit) {
    const int head = unit / head_units;
    const int row = unit % head_units / row_units * group_heads + head;
    const int swizzled = unit % row_units ^ head / (128 / row_bytes);
    return row * row_units + swizzled;
  }

  /// Columns from `column` on, a multiple of 8, in the 32 dims of a step, as the matrix unit takes
  /// them.
  static KINDEX_DEVICE descriptor columns_at(operand slot, int column, int step) {
    constexpr int steps_per_row = row_bytes / 32;
    const int rows = step / steps_per_row * group_heads;
    const int unit = column * head_units + rows * row_units + step % steps_per_row * 2;
    return descriptor_of(slot + static_cast<operand>(unit), group_bytes,
                         row_bytes == 128 ? swizzle::of_128_bytes : swizzle::of_64_bytes);
  }
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
