// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Bit casts and small arithmetic helpers that every part of the emulator uses.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace kindex::emulator {

constexpr int lanes_per_wave = 64;

// One 32-bit register of all lanes.
using lane_row = uint32_t[lanes_per_wave];

template <class To, class From>
inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

inline float as_float(uint32_t bits) { return bit_cast<float>(bits); }
inline uint32_t as_bits(float value) { return bit_cast<uint32_t>(value); }
inline double as_double(uint64_t bits) { return bit_cast<double>(bits); }
inline uint64_t as_bits(double value) { return bit_cast<uint64_t>(value); }
inline float half_to_float(uint32_t bits) {
  return static_cast<float>(bit_cast<_Float16>(static_cast<uint16_t>(bits)));
}
inline uint32_t float_to_half(float value) {
  return bit_cast<uint16_t>(static_cast<_Float16>(value));
}
inline int32_t as_int(uint32_t bits) { return static_cast<int32_t>(bits); }
inline int16_t as_short(uint32_t bits) { return static_cast<int16_t>(bits); }

// The lowest `width` bits set; all of them from 64 on.
inline uint64_t low_mask(unsigned width) {
  return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
}

// Calls `body(lane)` for each set bit, lowest first.
template <class Body>
inline void for_each_lane(uint64_t mask, Body&& body) {
  for (; mask; mask &= mask - 1) body(__builtin_ctzll(mask));
}

}  // namespace kindex::emulator
