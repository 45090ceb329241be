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
#else
// Narrow headers: rocprim/rocprim.hpp pulls in device-wide code that does not build everywhere.
#include <rocprim/warp/warp_reduce.hpp>
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

KINDEX_DEVICE int lane_id() { return static_cast<int>(threadIdx.x) % wave_size; }

/// The value that another lane of this wave holds. All lanes of the wave take part.
template <class T>
KINDEX_DEVICE T shuffle(T value, int source_lane) {
#if KINDEX_PLATFORM_NVIDIA
  return __shfl_sync(0xFFFFFFFFu, value, source_lane);
#else
  return __shfl(value, source_lane);
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

/// The largest of the values of a group of GroupSize neighbouring lanes (a power of two), in each
/// of them. Every lane of the group takes part.
template <int GroupSize>
KINDEX_DEVICE std::uint32_t group_max(std::uint32_t value) {
#if KINDEX_PLATFORM_NVIDIA
#pragma unroll
  for (int mask = 1; mask < GroupSize; mask *= 2) {
    const std::uint32_t other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
#else
  // All-reduce by DPP; groups this small need no shared memory.
  using reduce = ::rocprim::warp_reduce<std::uint32_t, GroupSize, true>;
  typename reduce::storage_type storage;
  reduce().reduce(value, value, storage, ::rocprim::maximum<std::uint32_t>());
  return value;
#endif
}

/// Sum of the values of this lane and all lower ones. All lanes of the wave take part.
KINDEX_DEVICE std::uint32_t inclusive_prefix_sum(std::uint32_t value) {
  // Neither needs memory for a whole wave.
#if KINDEX_PLATFORM_NVIDIA
  using scan = cub::WarpScan<std::uint32_t>;
  typename scan::TempStorage storage;
  scan(storage).InclusiveSum(value, value);
#else
  using scan = ::rocprim::warp_scan<std::uint32_t, wave_size>;
  typename scan::storage_type storage;
  scan().inclusive_scan(value, value, storage);
#endif
  return value;
}

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail
KINDEX_NAMESPACE_END
