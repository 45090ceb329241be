// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Reading sources and writing results of vector and scalar instructions.

#pragma once

#include "wave.hpp"

namespace kindex::emulator {

// How neg, abs and half selects apply to a source.
enum class lane_type { bits, f32, f16 };

inline uint32_t constant_bits(const operand& o) {
  return o.kind == operand_kind::real ? as_bits(static_cast<float>(o.real))
                                      : static_cast<uint32_t>(o.integer);
}

// Inline constants widen by the type of the operation, literals fill the upper half for f64.
enum class wide_type { unsigned_bits, signed_bits, f64 };

inline uint64_t constant_wide(const operand& o, wide_type type) {
  if (o.kind == operand_kind::real) return as_bits(o.real);
  if (o.literal && type == wide_type::f64) return o.integer << 32;
  if (o.literal && type == wide_type::unsigned_bits && o.width == 1) {
    return static_cast<uint32_t>(o.integer);
  }
  if (o.literal && o.width == 1) {
    return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(o.integer)));
  }
  return static_cast<uint64_t>(o.integer);
}

inline uint32_t read_scalar(const wave& w, const operand& o) {
  switch (o.kind) {
    case operand_kind::scalar:
      return w.s[o.reg];
    case operand_kind::vector: {
      const uint64_t exec = w.exec();
      return w.v[o.reg][exec ? __builtin_ctzll(exec) : 0];
    }
    case operand_kind::scc:
      return w.scc;
    default:
      return constant_bits(o);
  }
}

inline uint64_t read_scalar_wide(const wave& w, const operand& o,
                                 wide_type type = wide_type::unsigned_bits) {
  if (o.kind == operand_kind::scalar) {
    return o.width == 1 ? w.s[o.reg] : w.scalar_pair(o.reg);
  }
  if (o.kind == operand_kind::scc) return w.scc;
  return constant_wide(o, type);
}

inline void write_scalar(wave& w, const operand& o, uint32_t value) {
  if (o.kind == operand_kind::scalar) w.s[o.reg] = value;
}

inline void write_scalar_wide(wave& w, const operand& o, uint64_t value) {
  if (o.kind == operand_kind::scalar) w.set_scalar_pair(o.reg, value);
}

// The lane that DPP reads for `lane`, or -1.
int dpp_source(const instruction& i, int lane);
// The lanes that a DPP instruction writes.
uint64_t dpp_write_mask(const wave& w, const instruction& i);

// The general way to a source: modifiers, DPP, SDWA, half select, constants.
const uint32_t* read_lanes_indirect(const wave& w, const instruction& i, int index, lane_type type,
                                    uint32_t* buffer);

// The lanes of operand `index`, in place where they can be; `buffer` holds 64 words otherwise.
template <lane_type type>
inline const uint32_t* read_lanes(const wave& w, const instruction& i, int index,
                                  uint32_t* buffer) {
  const operand& o = i.operands[index];
  if (!o.indirect) {
    if (o.kind == operand_kind::vector) return w.v[o.reg];
    uint32_t value;
    if (o.kind == operand_kind::scalar) {
      value = w.s[o.reg];
    } else if (type == lane_type::f16 && o.kind == operand_kind::real) {
      value = float_to_half(static_cast<float>(o.real)) * 0x10001u;
    } else {
      value = o.kind == operand_kind::scc ? w.scc : constant_bits(o);
    }
    for (int l = 0; l < lanes_per_wave; ++l) buffer[l] = value;
    return buffer;
  }
  return read_lanes_indirect(w, i, index, type, buffer);
}

inline uint64_t write_mask(const wave& w, const instruction& i) {
  return i.dpp == dpp_control::none ? w.exec() : dpp_write_mask(w, i);
}

// Eight lanes of all ones or zeros per byte of a lane mask.
extern const uint32_t (&lane_mask_table)[256][8];

inline void merge_lanes(uint32_t* destination, const uint32_t* result, uint64_t mask) {
  if (mask == ~uint64_t{0}) {
    std::memcpy(destination, result, sizeof(lane_row));
    return;
  }
  for (int group = 0; group < 8; ++group) {
    const uint32_t* keep = lane_mask_table[(mask >> (8 * group)) & 255];
    uint32_t* d = destination + 8 * group;
    const uint32_t* r = result + 8 * group;
    for (int l = 0; l < 8; ++l) d[l] = (d[l] & ~keep[l]) | (r[l] & keep[l]);
  }
}

void merge_lanes_sdwa(uint32_t* destination, const uint32_t* result, uint64_t mask,
                      const instruction& i);

// Writes `result` to operand 0 in the lanes the instruction writes.
inline void write_lanes(wave& w, const instruction& i, const uint32_t* result) {
  uint32_t* destination = w.v[i.operands[0].reg];
  if (i.sdwa && i.destination_select != 6) {
    merge_lanes_sdwa(destination, result, write_mask(w, i), i);
  } else {
    merge_lanes(destination, result, write_mask(w, i));
  }
}

inline uint64_t read_wide(const wave& w, const instruction& i, int index, int lane,
                          wide_type type) {
  const operand& o = i.operands[index];
  uint64_t value;
  if (o.kind == operand_kind::vector) {
    value = w.v[o.reg][lane] | (static_cast<uint64_t>(w.v[o.reg + 1][lane]) << 32);
  } else {
    value = read_scalar_wide(w, o, type);
  }
  if (type == wide_type::f64) {
    if (o.absolute) value &= ~(uint64_t{1} << 63);
    if (o.negate) value ^= uint64_t{1} << 63;
  }
  return value;
}

inline void write_wide(wave& w, const instruction& i, int index, int lane, uint64_t value) {
  const int reg = i.operands[index].reg;
  w.v[reg][lane] = static_cast<uint32_t>(value);
  w.v[reg + 1][lane] = static_cast<uint32_t>(value >> 32);
}

// All lanes of a wide source without modifiers.
inline void read_lanes_wide(const wave& w, const instruction& i, int index, wide_type type,
                            uint64_t* out) {
  const operand& o = i.operands[index];
  if (o.kind == operand_kind::vector) {
    const uint32_t* low = w.v[o.reg];
    const uint32_t* high = w.v[o.reg + 1];
    for (int l = 0; l < lanes_per_wave; ++l) {
      out[l] = low[l] | (static_cast<uint64_t>(high[l]) << 32);
    }
  } else {
    const uint64_t value = read_scalar_wide(w, o, type);
    for (int l = 0; l < lanes_per_wave; ++l) out[l] = value;
  }
}

inline void write_lanes_wide(wave& w, const instruction& i, const uint64_t* result, uint64_t mask) {
  alignas(64) uint32_t low[lanes_per_wave];
  alignas(64) uint32_t high[lanes_per_wave];
  for (int l = 0; l < lanes_per_wave; ++l) {
    low[l] = static_cast<uint32_t>(result[l]);
    high[l] = static_cast<uint32_t>(result[l] >> 32);
  }
  merge_lanes(w.v[i.operands[0].reg], low, mask);
  merge_lanes(w.v[i.operands[0].reg + 1], high, mask);
}

// Clamp and output scale of a float result.
inline float finish_float(const wave& w, const instruction& i, float x) {
  // The scale works only while single-precision denormals are flushed.
  if (i.output_scale && !((w.mode >> 5) & 1)) {
    x *= i.output_scale == 1 ? 2.0f : i.output_scale == 2 ? 4.0f : 0.5f;
  }
  if (i.clamp) x = x != x ? 0.0f : x < 0 ? 0.0f : x > 1 ? 1.0f : x;
  return x;
}

// Loops over all lanes whatever EXEC says, so that they vectorise; the result is merged.
template <int sources, auto f, lane_type type = lane_type::bits>
void lanewise(wave& w, const instruction& i) {
  alignas(64) uint32_t buffer[3][lanes_per_wave];
  alignas(64) uint32_t result[lanes_per_wave];
  const uint32_t* a = read_lanes<type>(w, i, 1, buffer[0]);
  const uint32_t* b = sources > 1 ? read_lanes<type>(w, i, 2, buffer[1]) : a;
  const uint32_t* c = sources > 2 ? read_lanes<type>(w, i, 3, buffer[2]) : a;
  for (int l = 0; l < lanes_per_wave; ++l) result[l] = f(a[l], b[l], c[l]);
  write_lanes(w, i, result);
}

template <int sources, auto f>
void lanewise_f32(wave& w, const instruction& i) {
  alignas(64) uint32_t buffer[3][lanes_per_wave];
  alignas(64) uint32_t result[lanes_per_wave];
  const uint32_t* a = read_lanes<lane_type::f32>(w, i, 1, buffer[0]);
  const uint32_t* b = sources > 1 ? read_lanes<lane_type::f32>(w, i, 2, buffer[1]) : a;
  const uint32_t* c = sources > 2 ? read_lanes<lane_type::f32>(w, i, 3, buffer[2]) : a;
  for (int l = 0; l < lanes_per_wave; ++l) {
    result[l] = as_bits(f(as_float(a[l]), as_float(b[l]), as_float(c[l])));
  }
  if (i.clamp || i.output_scale) {
    for (uint32_t& r : result) r = as_bits(finish_float(w, i, as_float(r)));
  }
  write_lanes(w, i, result);
}

// Like lanewise_f32, for a function too costly to run in lanes that are off.
template <int sources, auto f>
void lanewise_f32_active(wave& w, const instruction& i) {
  alignas(64) uint32_t buffer[3][lanes_per_wave];
  alignas(64) uint32_t result[lanes_per_wave] = {};
  const uint32_t* a = read_lanes<lane_type::f32>(w, i, 1, buffer[0]);
  const uint32_t* b = sources > 1 ? read_lanes<lane_type::f32>(w, i, 2, buffer[1]) : a;
  const uint32_t* c = sources > 2 ? read_lanes<lane_type::f32>(w, i, 3, buffer[2]) : a;
  for_each_lane(w.exec(), [&](int l) {
    const float x = f(as_float(a[l]), as_float(b[l]), as_float(c[l]));
    result[l] = as_bits(finish_float(w, i, x));
  });
  write_lanes(w, i, result);
}

template <int sources, auto f>
void lanewise_f16(wave& w, const instruction& i) {
  alignas(64) uint32_t buffer[3][lanes_per_wave];
  alignas(64) uint32_t result[lanes_per_wave];
  const uint32_t* a = read_lanes<lane_type::f16>(w, i, 1, buffer[0]);
  const uint32_t* b = sources > 1 ? read_lanes<lane_type::f16>(w, i, 2, buffer[1]) : a;
  const uint32_t* c = sources > 2 ? read_lanes<lane_type::f16>(w, i, 3, buffer[2]) : a;
  for (int l = 0; l < lanes_per_wave; ++l) {
    const float x =
        static_cast<float>(f(half_to_float(a[l]), half_to_float(b[l]), half_to_float(c[l])));
    result[l] = float_to_half(finish_float(w, i, x));
  }
  write_lanes(w, i, result);
}

// IEEE maxNum and minNum, -0 below +0.
inline float max_number(float x, float y) {
  if (x != x) return y;
  if (y != y) return x;
  if (x == 0 && y == 0) return std::signbit(x) ? y : x;
  return x > y ? x : y;
}
inline float min_number(float x, float y) {
  if (x != x) return y;
  if (y != y) return x;
  if (x == 0 && y == 0) return std::signbit(x) ? x : y;
  return x < y ? x : y;
}
inline float median(float x, float y, float z) {
  if (x != x || y != y || z != z) return min_number(min_number(x, y), z);
  return max_number(min_number(x, y), min_number(max_number(x, y), z));
}

// Saturating conversions as the hardware does them: NaN is 0.
inline uint32_t to_unsigned(double x) {
  if (!(x > -1)) return 0;
  return x >= 4294967296.0 ? 0xffffffffu : static_cast<uint32_t>(x);
}
inline uint32_t to_signed(double x) {
  if (x != x) return 0;
  if (x <= -2147483648.0) return 0x80000000u;
  return x >= 2147483647.0 ? 0x7fffffffu : static_cast<uint32_t>(static_cast<int32_t>(x));
}

}  // namespace kindex::emulator
