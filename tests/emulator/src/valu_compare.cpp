// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Vector compares: a lane mask into a scalar pair, and into EXEC for the v_cmpx forms.

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

using u32 = uint32_t;

void write_compare(wave& w, const instruction& i, uint64_t result, bool to_exec) {
  if (to_exec) w.set_scalar_pair(exec_register, result);
  write_scalar_wide(w, i.operands[0], result);
}

struct type_u32 {
  static constexpr lane_type lanes = lane_type::bits;
  static u32 convert(u32 a) { return a; }
};
struct type_i32 {
  static constexpr lane_type lanes = lane_type::bits;
  static int32_t convert(u32 a) { return as_int(a); }
};
struct type_u16 {
  static constexpr lane_type lanes = lane_type::f16;
  static u32 convert(u32 a) { return a & 0xffff; }
};
struct type_i16 {
  static constexpr lane_type lanes = lane_type::f16;
  static int32_t convert(u32 a) { return as_short(a); }
};
struct type_f32 {
  static constexpr lane_type lanes = lane_type::f32;
  static float convert(u32 a) { return as_float(a); }
};
struct type_f16 {
  static constexpr lane_type lanes = lane_type::f16;
  static float convert(u32 a) { return half_to_float(a); }
};

struct type_u64 {
  static constexpr wide_type wide = wide_type::unsigned_bits;
  static uint64_t convert(uint64_t a) { return a; }
};
struct type_i64 {
  static constexpr wide_type wide = wide_type::signed_bits;
  static int64_t convert(uint64_t a) { return static_cast<int64_t>(a); }
};
struct type_f64 {
  static constexpr wide_type wide = wide_type::f64;
  static double convert(uint64_t a) { return as_double(a); }
};

template <class Type, auto predicate, bool to_exec>
void compare(wave& w, const instruction& i) {
  alignas(64) u32 buffer[2][lanes_per_wave];
  const u32* a = read_lanes<Type::lanes>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<Type::lanes>(w, i, 2, buffer[1]);
  alignas(64) uint8_t holds[lanes_per_wave];
  for (int l = 0; l < lanes_per_wave; ++l) {
    holds[l] = predicate(Type::convert(a[l]), Type::convert(b[l]));
  }
  // Gathers the lowest bit of eight bytes at a time.
  uint64_t result = 0;
  for (int group = 0; group < 8; ++group) {
    uint64_t bytes;
    std::memcpy(&bytes, holds + 8 * group, 8);
    result |= ((bytes * 0x0102040810204080ull) >> 56) << (8 * group);
  }
  write_compare(w, i, result & w.exec(), to_exec);
}

template <class Type, auto predicate, bool to_exec>
void compare_wide(wave& w, const instruction& i) {
  uint64_t result = 0;
  for_each_lane(w.exec(), [&](int l) {
    if (predicate(Type::convert(read_wide(w, i, 1, l, Type::wide)),
                  Type::convert(read_wide(w, i, 2, l, Type::wide)))) {
      result |= uint64_t{1} << l;
    }
  });
  write_compare(w, i, result, to_exec);
}

// Classes of v_cmp_class, one bit each.
u32 classify(bool nan, bool quiet, bool negative, bool infinite, bool zero, bool denormal) {
  if (nan) return quiet ? 2 : 1;
  if (infinite) return negative ? 1u << 2 : 1u << 9;
  if (zero) return negative ? 1u << 5 : 1u << 6;
  if (denormal) return negative ? 1u << 4 : 1u << 7;
  return negative ? 1u << 3 : 1u << 8;
}

template <int exponent_bits, int mantissa_bits>
u32 class_of(uint64_t bits) {
  const uint64_t mantissa = bits & low_mask(mantissa_bits);
  const uint64_t exponent = (bits >> mantissa_bits) & low_mask(exponent_bits);
  const bool negative = (bits >> (mantissa_bits + exponent_bits)) & 1;
  const bool special = exponent == low_mask(exponent_bits);
  return classify(special && mantissa, (mantissa >> (mantissa_bits - 1)) & 1, negative, special,
                  !exponent && !mantissa, !exponent);
}

template <lane_type type, bool to_exec>
void compare_class(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  const u32* a = read_lanes<type>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::bits>(w, i, 2, buffer[1]);
  uint64_t result = 0;
  for_each_lane(w.exec(), [&](int l) {
    const u32 c = type == lane_type::f16 ? class_of<5, 10>(a[l]) : class_of<8, 23>(a[l]);
    if (c & b[l]) result |= uint64_t{1} << l;
  });
  write_compare(w, i, result, to_exec);
}

template <bool to_exec>
void compare_class_wide(wave& w, const instruction& i) {
  u32 buffer[lanes_per_wave];
  const u32* b = read_lanes<lane_type::bits>(w, i, 2, buffer);
  uint64_t result = 0;
  for_each_lane(w.exec(), [&](int l) {
    if (class_of<11, 52>(read_wide(w, i, 1, l, wide_type::f64)) & b[l]) {
      result |= uint64_t{1} << l;
    }
  });
  write_compare(w, i, result, to_exec);
}

constexpr uint16_t features = feature_sdwa_source | feature_sign;

// The macros only spell out names; every row is one predicate for v_cmp and v_cmpx.
#define ROW(name, suffix, kernel, type, predicate)                        \
  {"v_cmp_" name "_" suffix, kernel<type, predicate, false>, features}, { \
    "v_cmpx_" name "_" suffix, kernel<type, predicate, true>, features    \
  }

#define COMMON_ROWS(suffix, kernel, type)                                       \
  ROW("lt", suffix, kernel, type, ([](auto x, auto y) { return x < y; })),      \
      ROW("eq", suffix, kernel, type, ([](auto x, auto y) { return x == y; })), \
      ROW("le", suffix, kernel, type, ([](auto x, auto y) { return x <= y; })), \
      ROW("gt", suffix, kernel, type, ([](auto x, auto y) { return x > y; })),  \
      ROW("ge", suffix, kernel, type, ([](auto x, auto y) { return x >= y; }))

#define INTEGER_ROWS(suffix, kernel, type)                                      \
  COMMON_ROWS(suffix, kernel, type),                                            \
      ROW("ne", suffix, kernel, type, ([](auto x, auto y) { return x != y; })), \
      ROW("f", suffix, kernel, type, ([](auto, auto) { return false; })),       \
      ROW("t", suffix, kernel, type, ([](auto, auto) { return true; }))

#define FLOAT_ROWS(suffix, kernel, type)                                                    \
  COMMON_ROWS(suffix, kernel, type),                                                        \
      ROW("lg", suffix, kernel, type, ([](auto x, auto y) { return x < y || x > y; })),     \
      ROW("o", suffix, kernel, type, ([](auto x, auto y) { return x == x && y == y; })),    \
      ROW("u", suffix, kernel, type, ([](auto x, auto y) { return x != x || y != y; })),    \
      ROW("nge", suffix, kernel, type, ([](auto x, auto y) { return !(x >= y); })),         \
      ROW("nlg", suffix, kernel, type, ([](auto x, auto y) { return !(x < y || x > y); })), \
      ROW("ngt", suffix, kernel, type, ([](auto x, auto y) { return !(x > y); })),          \
      ROW("nle", suffix, kernel, type, ([](auto x, auto y) { return !(x <= y); })),         \
      ROW("neq", suffix, kernel, type, ([](auto x, auto y) { return !(x == y); })),         \
      ROW("nlt", suffix, kernel, type, ([](auto x, auto y) { return !(x < y); })),          \
      ROW("f", suffix, kernel, type, ([](auto, auto) { return false; })),                   \
      ROW("tru", suffix, kernel, type, ([](auto, auto) { return true; }))

constexpr handler_entry table[] = {
    INTEGER_ROWS("u32", compare, type_u32),
    INTEGER_ROWS("i32", compare, type_i32),
    INTEGER_ROWS("u16", compare, type_u16),
    INTEGER_ROWS("i16", compare, type_i16),
    FLOAT_ROWS("f32", compare, type_f32),
    FLOAT_ROWS("f16", compare, type_f16),
    INTEGER_ROWS("u64", compare_wide, type_u64),
    INTEGER_ROWS("i64", compare_wide, type_i64),
    FLOAT_ROWS("f64", compare_wide, type_f64),
    {"v_cmp_class_f32", compare_class<lane_type::f32, false>, features},
    {"v_cmpx_class_f32", compare_class<lane_type::f32, true>, features},
    {"v_cmp_class_f16", compare_class<lane_type::f16, false>, features},
    {"v_cmpx_class_f16", compare_class<lane_type::f16, true>, features},
    {"v_cmp_class_f64", compare_class_wide<false>, features},
    {"v_cmpx_class_f64", compare_class_wide<true>, features},
};

#undef FLOAT_ROWS
#undef INTEGER_ROWS
#undef COMMON_ROWS
#undef ROW

}  // namespace

handler_list compare_handlers() { return table; }

}  // namespace kindex::emulator
