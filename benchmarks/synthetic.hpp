// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// K, q and weights of a realistic scale, each value a function of its index alone: host and device
// compute the same bits, so that gigabytes of K are made where they are needed and any row can be
// made again for a check.
#pragma once

#include <cstdint>
#include <cstring>

#include <kindex/config.hpp>

namespace kindex_bench {

/// Dims of every benchmark.
inline constexpr int head_dim = 128;

/// A hash of 32 bits whose output bits each depend on all input bits.
KINDEX_HOST_DEVICE inline std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  x ^= x >> 16;
  return x;
}

/// Roughly normal, in [-510, 510] with a standard deviation of 147.8: a sum of four bytes.
KINDEX_HOST_DEVICE inline int roughly_normal(std::uint32_t bits) {
  const std::uint32_t pairs = (bits & 0x00FF00FFu) + ((bits >> 8) & 0x00FF00FFu);
  return static_cast<int>((pairs & 0xFFFFu) + (pairs >> 16)) - 510;
}

/// What the elements of one token share.
struct k_row {
  std::uint32_t seed;
  float scale;  ///< from 1/1024 to 1/64: tokens differ sixteenfold in magnitude
};

KINDEX_HOST_DEVICE inline k_row make_k_row(std::int64_t token) {
  const auto id = static_cast<std::uint64_t>(token);
  const std::uint32_t seed =
      mix(static_cast<std::uint32_t>(id) ^ mix(static_cast<std::uint32_t>(id >> 32) + 0x9E3779B9u));
  // 2^(-10..-7) * [1, 2): a float put together, so that no library function is involved.
  const std::uint32_t bits = mix(seed + 0x85EBCA6Bu);
  const std::uint32_t scale_bits = (117u + (bits & 3u)) << 23 | (bits >> 9);
  float scale;
  std::memcpy(&scale, &scale_bits, sizeof scale);
  return {seed, scale};
}

/// Element `dim` of a token's K, as bf16.
KINDEX_HOST_DEVICE inline std::uint16_t k_element(const k_row& row, int dim) {
  const float value = row.scale * static_cast<float>(roughly_normal(mix(
                                      row.seed + static_cast<std::uint32_t>(dim) * 0x9E3779B9u)));
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  // To nearest, ties to even.
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace kindex_bench
