// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// <hip/hip_runtime.h> for the model: what the kernel of the logits and its launcher use of it.
#pragma once

#include <cmath>
#include <cstring>

#include "hip_runtime_api.h"
#include "machine.hpp"

#define __host__
#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::hopper_model::thread_index())
#define blockIdx (::hopper_model::block_index())
#define gridDim (::hopper_model::grid_size())

struct float2 {
  float x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};

template <class T>
T __shfl_sync(unsigned, T value, int source_lane) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const std::uint64_t* all = hopper_model::exchange(bits);
  std::memcpy(&value, &all[static_cast<unsigned>(source_lane) % hopper_model::lanes], sizeof(T));
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
  return __shfl_sync(mask, value, static_cast<int>(hopper_model::lane()) ^ lane_mask);
}
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
  const std::uint64_t* all = hopper_model::exchange(predicate);
  unsigned bits = 0;
  for (unsigned i = 0; i < hopper_model::lanes; ++i) bits |= static_cast<unsigned>(all[i]) << i;
  return bits;
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
  const std::uint64_t* all = hopper_model::exchange(value);
  unsigned sum = 0;
  for (unsigned i = 0; i < hopper_model::lanes; ++i) sum += static_cast<unsigned>(all[i]);
  return sum;
}
inline void __syncwarp() { hopper_model::sync_warp(); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __ffsll(unsigned long long value) {
  return __builtin_ffsll(static_cast<long long>(value));
}
