// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// 16-byte units: the grain in which K moves. Loads and stores that state their alignment.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail {

/// Bytes of a unit: 16 dims of one token, what one lane moves at once.
inline constexpr int unit_bytes = 16;

#if KINDEX_DEVICE_COMPILER

#if KINDEX_PLATFORM_NVIDIA
using u32x4 = uint4;
#else
using u32x4 = __attribute__((ext_vector_type(4))) std::uint32_t;
using f32x2 = __attribute__((ext_vector_type(2))) float;
using f32x4 = __attribute__((ext_vector_type(4))) float;
#endif

/// Loads one unit from an address that is a multiple of Alignment bytes.
template <int Alignment>
KINDEX_DEVICE u32x4 load_unit(const void* address) {
  if constexpr (Alignment >= 16) {
    return *static_cast<const u32x4*>(address);
#if !KINDEX_PLATFORM_NVIDIA
  } else if constexpr (Alignment >= 2) {
    // The loads of gfx9 take any address.
    using less_aligned = __attribute__((ext_vector_type(4), aligned(Alignment))) std::uint32_t;
    return *static_cast<const less_aligned*>(address);
#else
  } else if constexpr (Alignment >= 4) {
    const auto* word = static_cast<const std::uint32_t*>(address);
    return u32x4{word[0], word[1], word[2], word[3]};
  } else if constexpr (Alignment >= 2) {
    const auto* half = static_cast<const std::uint16_t*>(address);
    std::uint32_t word[4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      word[i / 2] |= static_cast<std::uint32_t>(half[i]) << (16 * (i % 2));
    }
    return u32x4{word[0], word[1], word[2], word[3]};
#endif
  } else {
    const auto* byte = static_cast<const std::uint8_t*>(address);
    std::uint32_t word[4] = {};
#pragma unroll
    for (int i = 0; i < unit_bytes; ++i) {
      word[i / 4] |= static_cast<std::uint32_t>(byte[i]) << (8 * (i % 4));
    }
    return u32x4{word[0], word[1], word[2], word[3]};
  }
}

/// Stores one unit to an address that is a multiple of Alignment bytes.
template <int Alignment>
KINDEX_DEVICE void store_unit(void* address, u32x4 value) {
  if constexpr (Alignment >= 16) {
    *static_cast<u32x4*>(address) = value;
  } else if constexpr (Alignment >= 4) {
#if KINDEX_PLATFORM_NVIDIA
    auto* word = static_cast<std::uint32_t*>(address);
    word[0] = value.x;
    word[1] = value.y;
    word[2] = value.z;
    word[3] = value.w;
#else
    using dword_aligned = __attribute__((ext_vector_type(4), aligned(4))) std::uint32_t;
    *static_cast<dword_aligned*>(address) = value;
#endif
  } else {
    auto* byte = static_cast<std::uint8_t*>(address);
    const std::uint32_t word[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (int i = 0; i < unit_bytes; ++i) {
      byte[i] = static_cast<std::uint8_t>(word[i / 4] >> (8 * (i % 4)));
    }
  }
}

/// Begins to bring what is at an address nearer, where there is an instruction for that. The
/// address need not be mapped.
KINDEX_DEVICE void prefetch([[maybe_unused]] const void* address) {
#if KINDEX_PLATFORM_NVIDIA && KINDEX_DEVICE_PASS
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

#endif  // KINDEX_DEVICE_COMPILER

/// Alignment that a K unit inside a page is sure to have: pages of one token are 4-byte aligned
/// only.
KINDEX_HOST_DEVICE constexpr int unit_alignment(int page_size) { return page_size == 1 ? 4 : 16; }

}  // namespace detail
KINDEX_NAMESPACE_END
