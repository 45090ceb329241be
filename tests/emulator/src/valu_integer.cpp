// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Vector integer and bit instructions on 32 and 64 bits.

#include <algorithm>

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

using u32 = uint32_t;
using u64 = uint64_t;
using i64 = int64_t;

constexpr uint16_t movable = feature_dpp | feature_sdwa;
constexpr uint16_t three_source = feature_none;

u32 low24(u32 a) { return a & 0xffffff; }
int32_t signed24(u32 a) { return as_int(a << 8) >> 8; }

// As `lanewise`, or the saturating form under the clamp modifier.
template <auto wrap, auto saturate>
void lanewise_clamp(wave& w, const instruction& i) {
  if (i.clamp) {
    lanewise<2, saturate>(w, i);
  } else {
    lanewise<2, wrap>(w, i);
  }
}

u32 saturate_signed(i64 x) { return static_cast<u32>(std::clamp<i64>(x, INT32_MIN, INT32_MAX)); }

u32 reverse_bits(u32 a) {
  a = ((a >> 1) & 0x55555555u) | ((a & 0x55555555u) << 1);
  a = ((a >> 2) & 0x33333333u) | ((a & 0x33333333u) << 2);
  a = ((a >> 4) & 0x0f0f0f0fu) | ((a & 0x0f0f0f0fu) << 4);
  return __builtin_bswap32(a);
}

u32 leading_sign(u32 a) {
  const u32 folded = as_int(a) < 0 ? ~a : a;
  return folded ? static_cast<u32>(__builtin_clz(folded)) : ~0u;
}

// Bytes of a:b by selector; 8..11 replicate a sign, 12 is 0x00, from 13 on 0xff.
u32 permute_bytes(u32 a, u32 b, u32 selector) {
  const u64 bytes = (static_cast<u64>(a) << 32) | b;
  u32 result = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 s = (selector >> (8 * k)) & 255;
    u32 byte;
    if (s >= 13) {
      byte = 0xff;
    } else if (s == 12) {
      byte = 0;
    } else if (s >= 8) {
      byte = (bytes >> (16 * (s - 8) + 15)) & 1 ? 0xff : 0;
    } else {
      byte = (bytes >> (8 * s)) & 255;
    }
    result |= byte << (8 * k);
  }
  return result;
}

u32 extract_signed(u32 a, u32 b, u32 c) {
  const int offset = b & 31;
  const int width = c & 31;
  if (width == 0) return 0;
  const i64 shifted = static_cast<i64>(as_int(a)) >> offset;
  return static_cast<u32>(static_cast<i64>(static_cast<u64>(shifted) << (64 - width)) >>
                          (64 - width));
}

template <class T>
T middle(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

u32 absolute_difference_bytes(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 32; k += 8) {
    const u32 x = (a >> k) & 255;
    const u32 y = (b >> k) & 255;
    c += x > y ? x - y : y - x;
  }
  return c;
}

template <int bits, bool is_signed>
u32 dot_product(u32 a, u32 b, u32 c) {
  i64 sum = is_signed ? as_int(c) : static_cast<i64>(c);
  for (int k = 0; k < 32; k += bits) {
    const u32 x = (a >> k) & static_cast<u32>(low_mask(bits));
    const u32 y = (b >> k) & static_cast<u32>(low_mask(bits));
    if (is_signed) {
      sum += static_cast<i64>(as_int(x << (32 - bits)) >> (32 - bits)) *
             (as_int(y << (32 - bits)) >> (32 - bits));
    } else {
      sum += static_cast<i64>(x) * y;
    }
  }
  return static_cast<u32>(sum);
}

// The accumulating forms add to the destination.
template <int bits>
void accumulate_dot(wave& w, const instruction& i) {
  alignas(64) u32 buffer[2][lanes_per_wave];
  alignas(64) u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::bits>(w, i, 2, buffer[1]);
  const u32* d = w.v[i.operands[0].reg];
  for (int l = 0; l < lanes_per_wave; ++l) result[l] = dot_product<bits, true>(a[l], b[l], d[l]);
  write_lanes(w, i, result);
}

enum class carry_form { add, subtract, subtract_reversed };

template <carry_form form, bool carry_in>
void run_carry(wave& w, const instruction& i) {
  alignas(64) u32 buffer[2][lanes_per_wave];
  alignas(64) u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 2, buffer[0]);
  const u32* b = read_lanes<lane_type::bits>(w, i, 3, buffer[1]);
  const u64 carries = carry_in ? read_scalar_wide(w, i.operands[4]) : 0;
  alignas(64) u32 out[lanes_per_wave];
  for (int l = 0; l < lanes_per_wave; ++l) {
    const u64 x = form == carry_form::subtract_reversed ? b[l] : a[l];
    const u64 y = form == carry_form::subtract_reversed ? a[l] : b[l];
    const u64 c = carry_in ? (carries >> l) & 1 : 0;
    const u64 r = form == carry_form::add ? x + y + c : x - y - c;
    result[l] = static_cast<u32>(r);
    out[l] = static_cast<u32>(r >> 32) != 0;
  }
  const u64 mask = write_mask(w, i);
  u64 carry_out = 0;
  for (int l = 0; l < lanes_per_wave; ++l) carry_out |= static_cast<u64>(out[l]) << l;
  if (i.operands[1].kind == operand_kind::scalar) {
    w.set_scalar_pair(i.operands[1].reg, carry_out & mask);
  }
  write_lanes(w, i, result);
}

void run_mad_u64_u32(wave& w, const instruction& i) {
  alignas(64) u32 buffer[2][lanes_per_wave];
  alignas(64) u64 sum[lanes_per_wave];
  alignas(64) uint8_t carry[lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 2, buffer[0]);
  const u32* b = read_lanes<lane_type::bits>(w, i, 3, buffer[1]);
  read_lanes_wide(w, i, 4, wide_type::unsigned_bits, sum);
  for (int l = 0; l < lanes_per_wave; ++l) {
    const u64 addend = sum[l];
    sum[l] = static_cast<u64>(a[l]) * b[l] + addend;
    carry[l] = sum[l] < addend;
  }
  u64 carry_out = 0;
  for (int l = 0; l < lanes_per_wave; ++l) carry_out |= static_cast<u64>(carry[l]) << l;
  const u64 mask = w.exec();
  write_lanes_wide(w, i, sum, mask);
  if (i.operands[1].kind == operand_kind::scalar) {
    w.set_scalar_pair(i.operands[1].reg, carry_out & mask);
  }
}

void run_mad_i64_i32(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 2, buffer[0]);
  const u32* b = read_lanes<lane_type::bits>(w, i, 3, buffer[1]);
  u64 carry_out = 0;
  for_each_lane(w.exec(), [&](int l) {
    const i64 addend = static_cast<i64>(read_wide(w, i, 4, l, wide_type::signed_bits));
    i64 sum;
    if (__builtin_add_overflow(static_cast<i64>(as_int(a[l])) * as_int(b[l]), addend, &sum)) {
      carry_out |= u64{1} << l;
    }
    write_wide(w, i, 0, l, static_cast<u64>(sum));
  });
  if (i.operands[1].kind == operand_kind::scalar) {
    w.set_scalar_pair(i.operands[1].reg, carry_out);
  }
}

// Narrow shift amount first, wide value second.
template <auto f, wide_type type>
void run_shift_wide(wave& w, const instruction& i) {
  alignas(64) u32 buffer[lanes_per_wave];
  alignas(64) u64 value[lanes_per_wave];
  const u32* amount = read_lanes<lane_type::bits>(w, i, 1, buffer);
  read_lanes_wide(w, i, 2, type, value);
  for (int l = 0; l < lanes_per_wave; ++l) value[l] = f(value[l], amount[l] & 63);
  write_lanes_wide(w, i, value, w.exec());
}

void run_lshl_add_u64(wave& w, const instruction& i) {
  alignas(64) u32 buffer[lanes_per_wave];
  alignas(64) u64 value[lanes_per_wave];
  alignas(64) u64 addend[lanes_per_wave];
  read_lanes_wide(w, i, 1, wide_type::unsigned_bits, value);
  const u32* amount = read_lanes<lane_type::bits>(w, i, 2, buffer);
  read_lanes_wide(w, i, 3, wide_type::unsigned_bits, addend);
  for (int l = 0; l < lanes_per_wave; ++l) value[l] = (value[l] << (amount[l] & 7)) + addend[l];
  write_lanes_wide(w, i, value, w.exec());
}

void run_mov_b64(wave& w, const instruction& i) {
  if (i.dpp != dpp_control::none) {
    u32 low[lanes_per_wave];
    u32 high[lanes_per_wave];
    const u64 exec = w.exec();
    const int reg = i.operands[1].reg;
    for (int l = 0; l < lanes_per_wave; ++l) {
      const int from = dpp_source(i, l);
      const bool invalid = from < 0 || !((exec >> from) & 1);
      low[l] = invalid ? 0 : w.v[reg][from];
      high[l] = invalid ? 0 : w.v[reg + 1][from];
    }
    const u64 mask = dpp_write_mask(w, i);
    merge_lanes(w.v[i.operands[0].reg], low, mask);
    merge_lanes(w.v[i.operands[0].reg + 1], high, mask);
    return;
  }
  for_each_lane(w.exec(), [&](int l) {
    write_wide(w, i, 0, l, read_wide(w, i, 1, l, wide_type::unsigned_bits));
  });
}

void run_cndmask(wave& w, const instruction& i) {
  alignas(64) u32 buffer[2][lanes_per_wave];
  alignas(64) u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f32>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::f32>(w, i, 2, buffer[1]);
  std::memcpy(result, a, sizeof result);
  merge_lanes(result, b, read_scalar_wide(w, i.operands[3]));
  write_lanes(w, i, result);
}

void run_swap(wave& w, const instruction& i) {
  for_each_lane(w.exec(),
                [&](int l) { std::swap(w.v[i.operands[0].reg][l], w.v[i.operands[1].reg][l]); });
}

template <bool high>
void run_mbcnt(wave& w, const instruction& i) {
  alignas(64) u32 buffer[2][lanes_per_wave];
  alignas(64) u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::bits>(w, i, 2, buffer[1]);
  for (int l = 0; l < lanes_per_wave; ++l) {
    const u64 below = low_mask(static_cast<unsigned>(l));
    const u32 mask = static_cast<u32>(high ? below >> 32 : below);
    result[l] = static_cast<u32>(__builtin_popcount(a[l] & mask)) + b[l];
  }
  write_lanes(w, i, result);
}

constexpr handler_entry table[] = {
    {"v_mov_b32", lanewise<1, [](u32 a, u32, u32) { return a; }>, movable},
    {"v_mov_b64", run_mov_b64, feature_dpp},
    {"v_accvgpr_read_b32", lanewise<1, [](u32 a, u32, u32) { return a; }>, 0},
    {"v_accvgpr_write_b32", lanewise<1, [](u32 a, u32, u32) { return a; }>, 0},
    {"v_accvgpr_mov_b32", lanewise<1, [](u32 a, u32, u32) { return a; }>, 0},
    {"v_swap_b32", run_swap, 0},
    {"v_cndmask_b32", run_cndmask, movable | feature_sign},
    {"v_not_b32", lanewise<1, [](u32 a, u32, u32) { return ~a; }>, movable},
    {"v_bfrev_b32", lanewise<1, [](u32 a, u32, u32) { return reverse_bits(a); }>, movable},
    {"v_ffbh_u32",
     lanewise<1, [](u32 a, u32, u32) { return a ? static_cast<u32>(__builtin_clz(a)) : ~0u; }>,
     movable},
    {"v_ffbl_b32",
     lanewise<1, [](u32 a, u32, u32) { return a ? static_cast<u32>(__builtin_ctz(a)) : ~0u; }>,
     movable},
    {"v_ffbh_i32", lanewise<1, [](u32 a, u32, u32) { return leading_sign(a); }>, movable},
    {"v_bcnt_u32_b32",
     lanewise<2, [](u32 a, u32 b, u32) { return static_cast<u32>(__builtin_popcount(a)) + b; }>, 0},
    {"v_mbcnt_lo_u32_b32", run_mbcnt<false>, 0},
    {"v_mbcnt_hi_u32_b32", run_mbcnt<true>, 0},

    {"v_add_u32",
     lanewise_clamp<[](u32 a, u32 b, u32) { return a + b; },
                    [](u32 a, u32 b, u32) { return a + b < a ? ~0u : a + b; }>,
     movable | feature_clamp},
    {"v_sub_u32",
     lanewise_clamp<[](u32 a, u32 b, u32) { return a - b; },
                    [](u32 a, u32 b, u32) { return a < b ? 0u : a - b; }>,
     movable | feature_clamp},
    {"v_subrev_u32",
     lanewise_clamp<[](u32 a, u32 b, u32) { return b - a; },
                    [](u32 a, u32 b, u32) { return b < a ? 0u : b - a; }>,
     movable | feature_clamp},
    {"v_add_i32",
     lanewise_clamp<[](u32 a, u32 b, u32) { return a + b; },
                    [](u32 a, u32 b, u32) {
                      return saturate_signed(static_cast<i64>(as_int(a)) + as_int(b));
                    }>,
     feature_clamp},
    {"v_sub_i32",
     lanewise_clamp<[](u32 a, u32 b, u32) { return a - b; },
                    [](u32 a, u32 b, u32) {
                      return saturate_signed(static_cast<i64>(as_int(a)) - as_int(b));
                    }>,
     feature_clamp},
    {"v_add_co_u32", run_carry<carry_form::add, false>, movable},
    {"v_sub_co_u32", run_carry<carry_form::subtract, false>, movable},
    {"v_subrev_co_u32", run_carry<carry_form::subtract_reversed, false>, movable},
    {"v_addc_co_u32", run_carry<carry_form::add, true>, movable},
    {"v_subb_co_u32", run_carry<carry_form::subtract, true>, movable},
    {"v_subbrev_co_u32", run_carry<carry_form::subtract_reversed, true>, movable},
    {"v_mul_lo_u32", lanewise<2, [](u32 a, u32 b, u32) { return a * b; }>, 0},
    {"v_mul_hi_u32",
     lanewise<2, [](u32 a, u32 b,
                    u32) { return (static_cast<u32>((static_cast<u64>(a) * b) >> 32)); }>,
     0},
    {"v_mul_hi_i32",
     lanewise<2,
              [](u32 a, u32 b, u32) {
                return (static_cast<u32>((static_cast<i64>(as_int(a)) * as_int(b)) >> 32));
              }>,
     0},
    {"v_mul_u32_u24", lanewise<2, [](u32 a, u32 b, u32) { return low24(a) * low24(b); }>, movable},
    {"v_mul_i32_i24",
     lanewise<2, [](u32 a, u32 b,
                    u32) { return static_cast<u32>(signed24(a)) * static_cast<u32>(signed24(b)); }>,
     movable},
    {"v_mul_hi_u32_u24",
     lanewise<2,
              [](u32 a, u32 b, u32) {
                return (static_cast<u32>((static_cast<u64>(low24(a)) * low24(b)) >> 32));
              }>,
     movable},
    {"v_mul_hi_i32_i24",
     lanewise<2,
              [](u32 a, u32 b, u32) {
                return (static_cast<u32>((static_cast<i64>(signed24(a)) * signed24(b)) >> 32));
              }>,
     movable},
    {"v_mad_u32_u24", lanewise<3, [](u32 a, u32 b, u32 c) { return low24(a) * low24(b) + c; }>,
     three_source},
    {"v_mad_i32_i24",
     lanewise<3,
              [](u32 a, u32 b, u32 c) {
                return static_cast<u32>(signed24(a)) * static_cast<u32>(signed24(b)) + c;
              }>,
     three_source},
    {"v_mad_u64_u32", run_mad_u64_u32, 0},
    {"v_mad_i64_i32", run_mad_i64_i32, 0},

    {"v_lshlrev_b32", lanewise<2, [](u32 a, u32 b, u32) { return b << (a & 31); }>, movable},
    {"v_lshrrev_b32", lanewise<2, [](u32 a, u32 b, u32) { return (b >> (a & 31)); }>, movable},
    {"v_ashrrev_i32",
     lanewise<2, [](u32 a, u32 b, u32) { return (static_cast<u32>(as_int(b) >> (a & 31))); }>,
     movable},
    {"v_lshlrev_b64", run_shift_wide<[](u64 x, u32 n) { return x << n; }, wide_type::unsigned_bits>,
     0},
    {"v_lshrrev_b64",
     run_shift_wide<[](u64 x, u32 n) { return (x >> n); }, wide_type::unsigned_bits>, 0},
    {"v_ashrrev_i64",
     run_shift_wide<[](u64 x, u32 n) { return (static_cast<u64>(static_cast<i64>(x) >> n)); },
                    wide_type::signed_bits>,
     0},
    {"v_lshl_add_u64", run_lshl_add_u64, 0},
    {"v_and_b32", lanewise<2, [](u32 a, u32 b, u32) { return a & b; }>, movable},
    {"v_or_b32", lanewise<2, [](u32 a, u32 b, u32) { return a | b; }>, movable},
    {"v_xor_b32", lanewise<2, [](u32 a, u32 b, u32) { return a ^ b; }>, movable},
    {"v_xnor_b32", lanewise<2, [](u32 a, u32 b, u32) { return ~(a ^ b); }>, movable},
    {"v_bfe_u32",
     lanewise<3, [](u32 a, u32 b, u32 c) { return ((a >> (b & 31)) & ((1u << (c & 31)) - 1)); }>,
     0},
    {"v_bfe_i32", lanewise<3, [](u32 a, u32 b, u32 c) { return extract_signed(a, b, c); }>, 0},
    {"v_bfi_b32", lanewise<3, [](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); }>, 0},
    {"v_bfm_b32", lanewise<2, [](u32 a, u32 b, u32) { return ((1u << (a & 31)) - 1) << (b & 31); }>,
     0},
    {"v_alignbit_b32",
     lanewise<3,
              [](u32 a, u32 b, u32 c) {
                return (static_cast<u32>(((static_cast<u64>(a) << 32) | b) >> (c & 31)));
              }>,
     0},
    {"v_alignbyte_b32",
     lanewise<3,
              [](u32 a, u32 b, u32 c) {
                return (static_cast<u32>(((static_cast<u64>(a) << 32) | b) >> (8 * (c & 3))));
              }>,
     0},
    {"v_perm_b32", lanewise<3, [](u32 a, u32 b, u32 c) { return permute_bytes(a, b, c); }>, 0},
    {"v_lshl_add_u32", lanewise<3, [](u32 a, u32 b, u32 c) { return (a << (b & 31)) + c; }>, 0},
    {"v_add_lshl_u32", lanewise<3, [](u32 a, u32 b, u32 c) { return (a + b) << (c & 31); }>, 0},
    {"v_lshl_or_b32", lanewise<3, [](u32 a, u32 b, u32 c) { return (a << (b & 31)) | c; }>, 0},
    {"v_and_or_b32", lanewise<3, [](u32 a, u32 b, u32 c) { return (a & b) | c; }>, 0},
    {"v_or3_b32", lanewise<3, [](u32 a, u32 b, u32 c) { return a | b | c; }>, 0},
    {"v_add3_u32", lanewise<3, [](u32 a, u32 b, u32 c) { return a + b + c; }>, 0},
    {"v_xad_u32", lanewise<3, [](u32 a, u32 b, u32 c) { return (a ^ b) + c; }>, 0},

    {"v_min_u32", lanewise<2, [](u32 a, u32 b, u32) { return std::min(a, b); }>, movable},
    {"v_max_u32", lanewise<2, [](u32 a, u32 b, u32) { return std::max(a, b); }>, movable},
    {"v_min_i32",
     lanewise<2,
              [](u32 a, u32 b, u32) { return static_cast<u32>(std::min(as_int(a), as_int(b))); }>,
     movable},
    {"v_max_i32",
     lanewise<2,
              [](u32 a, u32 b, u32) { return static_cast<u32>(std::max(as_int(a), as_int(b))); }>,
     movable},
    {"v_min3_u32", lanewise<3, [](u32 a, u32 b, u32 c) { return std::min(std::min(a, b), c); }>, 0},
    {"v_max3_u32", lanewise<3, [](u32 a, u32 b, u32 c) { return std::max(std::max(a, b), c); }>, 0},
    {"v_med3_u32", lanewise<3, [](u32 a, u32 b, u32 c) { return middle(a, b, c); }>, 0},
    {"v_min3_i32",
     lanewise<3,
              [](u32 a, u32 b, u32 c) {
                return static_cast<u32>(std::min(std::min(as_int(a), as_int(b)), as_int(c)));
              }>,
     0},
    {"v_max3_i32",
     lanewise<3,
              [](u32 a, u32 b, u32 c) {
                return static_cast<u32>(std::max(std::max(as_int(a), as_int(b)), as_int(c)));
              }>,
     0},
    {"v_med3_i32",
     lanewise<3, [](u32 a, u32 b,
                    u32 c) { return static_cast<u32>(middle(as_int(a), as_int(b), as_int(c))); }>,
     0},
    {"v_sad_u32", lanewise<3, [](u32 a, u32 b, u32 c) { return ((a > b ? a - b : b - a) + c); }>,
     0},
    {"v_sad_u8",
     lanewise<3, [](u32 a, u32 b, u32 c) { return absolute_difference_bytes(a, b, c); }>, 0},
    {"v_dot4_i32_i8", lanewise<3, dot_product<8, true>>, 0},
    {"v_dot4_u32_u8", lanewise<3, dot_product<8, false>>, 0},
    {"v_dot8_i32_i4", lanewise<3, dot_product<4, true>>, 0},
    {"v_dot8_u32_u4", lanewise<3, dot_product<4, false>>, 0},
    {"v_dot2_i32_i16", lanewise<3, dot_product<16, true>>, 0},
    {"v_dot2_u32_u16", lanewise<3, dot_product<16, false>>, 0},
    {"v_dot4c_i32_i8", accumulate_dot<8>, feature_dpp},
    {"v_dot8c_i32_i4", accumulate_dot<4>, feature_dpp},
    {"v_dot2c_i32_i16", accumulate_dot<16>, feature_dpp},
};

}  // namespace

handler_list integer_handlers() { return table; }

}  // namespace kindex::emulator
