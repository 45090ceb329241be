// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Vector arithmetic on 16-bit floats and integers.

#include <algorithm>

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

using u32 = uint32_t;

constexpr uint16_t common =
    feature_dpp | feature_sdwa | feature_clamp | feature_output_scale | feature_sign;
constexpr uint16_t three_source = feature_clamp | feature_sign | feature_op_sel;
constexpr uint16_t integer = feature_dpp | feature_sdwa;

double fused(float x, float y, float z) { return static_cast<double>(x) * y + z; }

// Three-source instructions choose the half they write; the other one keeps its value.
void write_half(wave& w, const instruction& i, const u32* result) {
  const u32* old = w.v[i.operands[0].reg];
  const bool high = i.has_op_sel && ((i.op_sel >> 3) & 1);
  alignas(64) u32 merged[lanes_per_wave];
  for (int l = 0; l < lanes_per_wave; ++l) {
    merged[l] = high ? (old[l] & 0xffff) | (result[l] << 16)
                     : (old[l] & 0xffff0000u) | (result[l] & 0xffff);
  }
  write_lanes(w, i, merged);
}

template <auto f>
void three_source_f16(wave& w, const instruction& i) {
  u32 buffer[3][lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f16>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::f16>(w, i, 2, buffer[1]);
  const u32* c = read_lanes<lane_type::f16>(w, i, 3, buffer[2]);
  for (int l = 0; l < lanes_per_wave; ++l) {
    const float x =
        static_cast<float>(f(half_to_float(a[l]), half_to_float(b[l]), half_to_float(c[l])));
    result[l] = float_to_half(finish_float(w, i, x));
  }
  write_half(w, i, result);
}

// A fused multiply-add rounds once, from the exact double sum to half.
void run_fma(wave& w, const instruction& i) {
  u32 buffer[3][lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f16>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::f16>(w, i, 2, buffer[1]);
  const u32* c = read_lanes<lane_type::f16>(w, i, 3, buffer[2]);
  for (int l = 0; l < lanes_per_wave; ++l) {
    const double sum = fused(half_to_float(a[l]), half_to_float(b[l]), half_to_float(c[l]));
    u32 h = bit_cast<uint16_t>(static_cast<_Float16>(sum));
    if (i.clamp) h = float_to_half(finish_float(w, i, half_to_float(h)));
    result[l] = h;
  }
  write_half(w, i, result);
}

void run_fmac(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f16>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::f16>(w, i, 2, buffer[1]);
  const u32* d = w.v[i.operands[0].reg];
  for (int l = 0; l < lanes_per_wave; ++l) {
    const double sum = fused(half_to_float(a[l]), half_to_float(b[l]), half_to_float(d[l]));
    result[l] = bit_cast<uint16_t>(static_cast<_Float16>(sum));
  }
  write_lanes(w, i, result);
}

template <auto f>
void three_source_u16(wave& w, const instruction& i) {
  u32 buffer[3][lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f16>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::f16>(w, i, 2, buffer[1]);
  const u32* c = read_lanes<lane_type::f16>(w, i, 3, buffer[2]);
  for (int l = 0; l < lanes_per_wave; ++l) {
    result[l] = f(a[l] & 0xffff, b[l] & 0xffff, c[l] & 0xffff) & 0xffff;
  }
  write_half(w, i, result);
}

template <auto f>
void two_source_i16_op_sel(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f16>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::f16>(w, i, 2, buffer[1]);
  for (int l = 0; l < lanes_per_wave; ++l) {
    const int sum = f(as_short(a[l]), as_short(b[l]));
    result[l] = static_cast<u32>(i.clamp ? std::clamp(sum, -32768, 32767) : sum) & 0xffff;
  }
  write_half(w, i, result);
}

template <auto f>
void two_source_clamp_u16(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f16>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::f16>(w, i, 2, buffer[1]);
  for (int l = 0; l < lanes_per_wave; ++l) {
    const int x = f(static_cast<int>(a[l] & 0xffff), static_cast<int>(b[l] & 0xffff));
    result[l] = static_cast<u32>(i.clamp ? std::clamp(x, 0, 65535) : x) & 0xffff;
  }
  write_lanes(w, i, result);
}

template <class T>
T middle(T a, T b, T c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

template <auto f>
constexpr auto u16_op =
    [](u32 a, u32 b, u32) { return static_cast<u32>(f(a & 0xffff, b & 0xffff)) & 0xffff; };
template <auto f>
constexpr auto i16_op = [](u32 a, u32 b, u32) {
  return static_cast<u32>(f(static_cast<int>(as_short(a)), static_cast<int>(as_short(b)))) & 0xffff;
};

float fraction(float x) { return std::min(x - std::floor(x), half_to_float(0x3bff)); }

void run_ldexp(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f16>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::bits>(w, i, 2, buffer[1]);
  for (int l = 0; l < lanes_per_wave; ++l) {
    // Exact in single precision for every exponent that leaves a half: one rounding.
    const int exponent = std::clamp<int>(as_short(b[l]), -60, 60);
    result[l] = float_to_half(finish_float(w, i, std::ldexp(half_to_float(a[l]), exponent)));
  }
  write_lanes(w, i, result);
}

float fix_division(float quotient, float denominator, float numerator) {
  const bool negative = std::signbit(denominator) != std::signbit(numerator);
  if (numerator != numerator) return numerator;
  if (denominator != denominator) return denominator;
  if (denominator == 0 && numerator == 0) return NAN;
  if (std::isinf(denominator) && std::isinf(numerator)) return NAN;
  if (denominator == 0 || std::isinf(numerator)) return negative ? -INFINITY : INFINITY;
  if (std::isinf(denominator) || numerator == 0) return negative ? -0.0f : 0.0f;
  return negative ? -std::fabs(quotient) : std::fabs(quotient);
}

constexpr handler_entry table[] = {
    {"v_add_f16", lanewise_f16<2, [](float x, float y, float) { return x + y; }>, common},
    {"v_sub_f16", lanewise_f16<2, [](float x, float y, float) { return x - y; }>, common},
    {"v_subrev_f16", lanewise_f16<2, [](float x, float y, float) { return y - x; }>, common},
    {"v_mul_f16", lanewise_f16<2, [](float x, float y, float) { return x * y; }>, common},
    {"v_max_f16", lanewise_f16<2, [](float x, float y, float) { return max_number(x, y); }>,
     common},
    {"v_min_f16", lanewise_f16<2, [](float x, float y, float) { return min_number(x, y); }>,
     common},
    {"v_fma_f16", run_fma, three_source},
    {"v_fmac_f16", run_fmac, feature_dpp | feature_sign},
    {"v_max3_f16",
     three_source_f16<[](float x, float y, float z) { return max_number(max_number(x, y), z); }>,
     three_source},
    {"v_min3_f16",
     three_source_f16<[](float x, float y, float z) { return min_number(min_number(x, y), z); }>,
     three_source},
    {"v_med3_f16", three_source_f16<[](float x, float y, float z) { return median(x, y, z); }>,
     three_source},
    {"v_div_fixup_f16", three_source_f16<fix_division>, three_source},
    {"v_rcp_f16", lanewise_f16<1, [](float x, float, float) { return 1.0f / x; }>, common},
    {"v_sqrt_f16", lanewise_f16<1, [](float x, float, float) { return std::sqrt(x); }>, common},
    {"v_rsq_f16",
     lanewise_f16<1, [](float x, float, float) { return 1.0 / std::sqrt(static_cast<double>(x)); }>,
     common},
    {"v_exp_f16", lanewise_f16<1, [](float x, float, float) { return std::exp2(x); }>, common},
    {"v_log_f16", lanewise_f16<1, [](float x, float, float) { return std::log2(x); }>, common},
    {"v_sin_f16",
     lanewise_f16<1, [](float x, float, float) { return std::sin(x * 6.283185307179586); }>,
     common},
    {"v_cos_f16",
     lanewise_f16<1, [](float x, float, float) { return std::cos(x * 6.283185307179586); }>,
     common},
    {"v_floor_f16", lanewise_f16<1, [](float x, float, float) { return std::floor(x); }>, common},
    {"v_ceil_f16", lanewise_f16<1, [](float x, float, float) { return std::ceil(x); }>, common},
    {"v_trunc_f16", lanewise_f16<1, [](float x, float, float) { return std::trunc(x); }>, common},
    {"v_rndne_f16", lanewise_f16<1, [](float x, float, float) { return std::rint(x); }>, common},
    {"v_fract_f16", lanewise_f16<1, [](float x, float, float) { return fraction(x); }>, common},
    {"v_ldexp_f16", run_ldexp, common},

    {"v_add_u16", two_source_clamp_u16<[](int a, int b) { return a + b; }>,
     integer | feature_clamp},
    {"v_sub_u16", two_source_clamp_u16<[](int a, int b) { return a - b; }>,
     integer | feature_clamp},
    {"v_subrev_u16", two_source_clamp_u16<[](int a, int b) { return b - a; }>,
     integer | feature_clamp},
    {"v_add_i16", two_source_i16_op_sel<[](int a, int b) { return a + b; }>,
     feature_clamp | feature_op_sel},
    {"v_sub_i16", two_source_i16_op_sel<[](int a, int b) { return a - b; }>,
     feature_clamp | feature_op_sel},
    {"v_mul_lo_u16", lanewise<2, u16_op<[](u32 a, u32 b) { return a * b; }>, lane_type::f16>,
     integer},
    {"v_lshlrev_b16",
     lanewise<2, u16_op<[](u32 a, u32 b) { return b << (a & 15); }>, lane_type::f16>, integer},
    {"v_lshrrev_b16",
     lanewise<2, u16_op<[](u32 a, u32 b) { return (b >> (a & 15)); }>, lane_type::f16>, integer},
    {"v_ashrrev_i16",
     lanewise<2, i16_op<[](int a, int b) { return (b >> (a & 15)); }>, lane_type::f16>, integer},
    {"v_max_u16", lanewise<2, u16_op<[](u32 a, u32 b) { return std::max(a, b); }>, lane_type::f16>,
     integer},
    {"v_min_u16", lanewise<2, u16_op<[](u32 a, u32 b) { return std::min(a, b); }>, lane_type::f16>,
     integer},
    {"v_max_i16", lanewise<2, i16_op<[](int a, int b) { return std::max(a, b); }>, lane_type::f16>,
     integer},
    {"v_min_i16", lanewise<2, i16_op<[](int a, int b) { return std::min(a, b); }>, lane_type::f16>,
     integer},
    {"v_mad_legacy_u16",
     lanewise<3, [](u32 a, u32 b, u32 c) { return ((a & 0xffff) * (b & 0xffff) + c) & 0xffff; },
              lane_type::f16>,
     0},
    {"v_mad_u16", three_source_u16<[](u32 a, u32 b, u32 c) { return a * b + c; }>, feature_op_sel},
    {"v_mad_i16", three_source_u16<[](u32 a, u32 b, u32 c) { return a * b + c; }>, feature_op_sel},
    {"v_min3_u16",
     three_source_u16<[](u32 a, u32 b, u32 c) { return std::min(std::min(a, b), c); }>,
     feature_op_sel},
    {"v_max3_u16",
     three_source_u16<[](u32 a, u32 b, u32 c) { return std::max(std::max(a, b), c); }>,
     feature_op_sel},
    {"v_med3_u16", three_source_u16<[](u32 a, u32 b, u32 c) { return middle(a, b, c); }>,
     feature_op_sel},
    {"v_min3_i16", three_source_u16<[](u32 a, u32 b, u32 c) {
       return static_cast<u32>(std::min(std::min(as_short(a), as_short(b)), as_short(c)));
     }>,
     feature_op_sel},
    {"v_max3_i16", three_source_u16<[](u32 a, u32 b, u32 c) {
       return static_cast<u32>(std::max(std::max(as_short(a), as_short(b)), as_short(c)));
     }>,
     feature_op_sel},
    {"v_med3_i16", three_source_u16<[](u32 a, u32 b, u32 c) {
       return static_cast<u32>(middle(as_short(a), as_short(b), as_short(c)));
     }>,
     feature_op_sel},
    {"v_pack_b32_f16",
     lanewise<2, [](u32 a, u32 b, u32) { return (a & 0xffff) | (b << 16); }, lane_type::f16>,
     feature_op_sel | feature_sign},
};

}  // namespace

handler_list half_handlers() { return table; }

}  // namespace kindex::emulator
