// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Lanes: who am I, exchange between lanes, reductions over small lane groups. Wave64 on AMD,
// warps of 32 on NVIDIA; code outside detail/ does not depend on which.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"

#if KINDEX_PLATFORM_NVIDIA
#if KINDEX_DEVICE_COMPILER
#include <cub/warp/warp_scan.cuh>
#endif
#elif !KINDEX_TARGET_GFX950
// The narrow header: rocprim/rocprim.hpp pulls in device-wide code that does not build everywhere.
// Those of ROCm 6 do not build for gfx950, narrow or not.
#include <rocprim/warp/warp_scan.hpp>
#endif

KINDEX_NAMESPACE_BEGIN
namespace detail {

/// Lanes that execute together.
inline constexpr int wave_size = KINDEX_PLATFORM_NVIDIA ? 32 : 64;

#if KINDEX_DEVICE_COMPILER

/// Tells the compiler that a value is the same in all lanes, so that it lives in scalar registers.
KINDEX_DEVICE int uniform(int value) {
#if KINDEX_TARGET_CDNA
  return __builtin_amdgcn_readfirstlane(value);
#else
  return value;
#endif
}
KINDEX_DEVICE std::uint32_t uniform(std::uint32_t value) {
  return static_cast<std::uint32_t>(uniform(static_cast<int>(value)));
}

/// What ballot returns if all lanes agree.
inline constexpr std::uint64_t all_lanes = ~std::uint64_t{0} >> (64 - wave_size);

/// Unsigned division: what is computed from a number that might be negative takes more
/// instructions.
KINDEX_DEVICE int lane_id() {
  return static_cast<int>(static_cast<unsigned>(threadIdx.x) % wave_size);
}

/// The same, but what is computed from it is computed there: the compiler would otherwise do it
/// once, at the start of a kernel, and keep it in registers all along.
KINDEX_DEVICE unsigned fresh_lane_id() {
  auto lane = static_cast<unsigned>(lane_id());
#if KINDEX_TARGET_CDNA
  asm volatile("" : "+v"(lane));
#endif
  return lane;
}

/// Which wave of the block this is.
KINDEX_DEVICE int wave_id() {
  return uniform(static_cast<int>(static_cast<unsigned>(threadIdx.x) / wave_size));
}

/// The value that another lane of this wave holds. All lanes of the wave take part.
template <class T>
KINDEX_DEVICE T shuffle(T value, int source_lane) {
#if KINDEX_PLATFORM_NVIDIA
  return __shfl_sync(0xFFFFFFFFu, value, source_lane);
#else
  return __shfl(value, source_lane);
#endif
}

/// The value that one lane holds, the same lane for all of the wave.
KINDEX_DEVICE int broadcast(int value, int source_lane) {
#if KINDEX_TARGET_CDNA
  return __builtin_amdgcn_readlane(value, source_lane);
#else
  return shuffle(value, source_lane);
#endif
}

/// The value of lane (own lane XOR mask). All lanes of the wave take part.
template <class T>
KINDEX_DEVICE T shuffle_xor(T value, int mask) {
#if KINDEX_PLATFORM_NVIDIA
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
#else
  return __shfl_xor(value, mask);
#endif
}

/// Lanes of this wave for which the predicate holds, lane 0 in bit 0. All lanes take part.
KINDEX_DEVICE std::uint64_t ballot(bool predicate) {
#if KINDEX_PLATFORM_NVIDIA
  return __ballot_sync(0xFFFFFFFFu, predicate);
#else
  return __ballot(predicate);
#endif
}

#if !KINDEX_PLATFORM_NVIDIA
/// The value that the lane holds which a DPP control names: an operand modifier of vector
/// instructions, so that an exchange between near lanes costs no instruction of its own.
template <int Control>
KINDEX_DEVICE std::uint32_t exchange_near(std::uint32_t value) {
  return static_cast<std::uint32_t>(
      __builtin_amdgcn_update_dpp(0, static_cast<int>(value), Control, 0xF, 0xF, true));
}
#endif

/// The largest of the values of a group of 4 or 8 neighbouring lanes, in each of them. Every lane
/// of the group takes part.
template <int GroupSize>
KINDEX_DEVICE std::uint32_t group_max(std::uint32_t value) {
  static_assert(GroupSize == 4 || GroupSize == 8, "kindex: groups of 4 or 8 lanes");
  const auto larger = [](std::uint32_t a, std::uint32_t b) { return a > b ? a : b; };
#if KINDEX_PLATFORM_NVIDIA
#pragma unroll
  for (int mask = 1; mask < GroupSize; mask *= 2) value = larger(value, shuffle_xor(value, mask));
#else
  value = larger(value, exchange_near<0xB1>(value));  // quad_perm: lane XOR 1
  value = larger(value, exchange_near<0x4E>(value));  // quad_perm: lane XOR 2
  if constexpr (GroupSize == 8) {
    value = larger(value, exchange_near<0x141>(value));  // row_half_mirror: 7 - lane, of eight
  }
#endif
  return value;
}

/// Sum of the values of this lane and all lower ones. All lanes of the wave take part.
KINDEX_DEVICE std::uint32_t inclusive_prefix_sum(std::uint32_t value) {
  // Neither needs memory for a whole wave.
#if KINDEX_PLATFORM_NVIDIA
  using scan = cub::WarpScan<std::uint32_t>;
  typename scan::TempStorage storage;
  scan(storage).InclusiveSum(value, value);
#elif KINDEX_TARGET_GFX950
#pragma unroll
  for (int distance = 1; distance < wave_size; distance *= 2) {
    const std::uint32_t lower = __shfl_up(value, distance);
    value += lane_id() >= distance ? lower : 0;
  }
#else
  using scan = ::rocprim::warp_scan<std::uint32_t, wave_size>;
  typename scan::storage_type storage;
  scan().inclusive_scan(value, value, storage);
#endif
  return value;
}

/// Sum of the values of all lanes of the wave. They also say what inclusive_prefix_sum gave them,
/// which Hopper need not wait for.
KINDEX_DEVICE std::uint32_t sum_of_wave([[maybe_unused]] std::uint32_t value,
                                        [[maybe_unused]] std::uint32_t prefix_sum) {
#if KINDEX_PLATFORM_NVIDIA
  return __reduce_add_sync(0xFFFFFFFFu, value);
#else
  return shuffle(prefix_sum, wave_size - 1);
#endif
}

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail
KINDEX_NAMESPACE_END
