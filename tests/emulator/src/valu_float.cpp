// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Vector arithmetic in single precision, and the division helpers of both precisions.

#include <algorithm>

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

constexpr uint16_t common =
    feature_dpp | feature_sdwa | feature_clamp | feature_output_scale | feature_sign;
constexpr uint16_t three_source = feature_clamp | feature_output_scale | feature_sign;

// The transcendental unit does not read denormals.
float flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

// Denormal results stay: the refinement of a correctly rounded division depends on them.
float reciprocal(float x) { return 1.0f / flush(x); }

float reciprocal_root(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(flush(x))));
}

float exponential(float x) { return flush(static_cast<float>(std::exp2(static_cast<double>(x)))); }

float logarithm(float x) { return static_cast<float>(std::log2(static_cast<double>(flush(x)))); }

// The argument is in revolutions.
float sine(float x) { return static_cast<float>(std::sin(x * 6.283185307179586)); }
float cosine(float x) { return static_cast<float>(std::cos(x * 6.283185307179586)); }

float fraction(float x) { return std::min(x - std::floor(x), 0x1.fffffep-1f); }

float mantissa(float x) {
  int exponent;
  return std::isfinite(x) ? std::frexp(x, &exponent) : x;
}

uint32_t exponent_of(float x) {
  int exponent = 0;
  if (std::isfinite(x) && x != 0) std::frexp(x, &exponent);
  return static_cast<uint32_t>(exponent);
}

void run_fmac(wave& w, const instruction& i) {
  alignas(64) uint32_t buffer[2][lanes_per_wave];
  alignas(64) uint32_t result[lanes_per_wave];
  const uint32_t* a = read_lanes<lane_type::f32>(w, i, 1, buffer[0]);
  const uint32_t* b = read_lanes<lane_type::f32>(w, i, 2, buffer[1]);
  const uint32_t* d = w.v[i.operands[0].reg];
  for (int l = 0; l < lanes_per_wave; ++l) {
    result[l] = as_bits(std::fma(as_float(a[l]), as_float(b[l]), as_float(d[l])));
  }
  if (i.clamp || i.output_scale) {
    for (uint32_t& r : result) r = as_bits(finish_float(w, i, as_float(r)));
  }
  write_lanes(w, i, result);
}

void run_ldexp(wave& w, const instruction& i) {
  uint32_t buffer[2][lanes_per_wave];
  uint32_t result[lanes_per_wave] = {};
  const uint32_t* a = read_lanes<lane_type::f32>(w, i, 1, buffer[0]);
  const uint32_t* b = read_lanes<lane_type::bits>(w, i, 2, buffer[1]);
  for_each_lane(w.exec(), [&](int l) {
    // The exponent is clipped so that it stays within what ldexp takes.
    const int exponent = std::clamp(as_int(b[l]), -1000, 1000);
    result[l] = as_bits(finish_float(w, i, std::ldexp(as_float(a[l]), exponent)));
  });
  write_lanes(w, i, result);
}

int biased_exponent(double x, bool single) {
  return single ? static_cast<int>((as_bits(static_cast<float>(x)) >> 23) & 255)
                : static_cast<int>((as_bits(x) >> 52) & 2047);
}

// v_div_scale by the rules of the instruction set manual. Source 0 is returned, scaled; sources 1
// and 2 are denominator and numerator; VCC says that v_div_fmas has to scale back.
double scale_division(double s0, double s1, double s2, bool single, bool* vcc) {
  *vcc = false;
  if (s2 == 0 || s1 == 0) return NAN;
  const auto denormal = [&](double x) {
    return x != 0 && std::fabs(x) < (single ? 0x1p-126 : 0x1p-1022);
  };
  const int scale = single ? 64 : 128;
  const int e1 = biased_exponent(s1, single);
  const int e2 = biased_exponent(s2, single);
  const double quotient =
      single ? static_cast<double>(static_cast<float>(s2) / static_cast<float>(s1)) : s2 / s1;
  // The reciprocal of a single is never denormal in double precision.
  const double inverse = 1.0 / s1;
  const bool inverse_denormal = !single && inverse != 0 && std::fabs(inverse) < 0x1p-1022;
  if (e2 - e1 >= (single ? 96 : 768)) {
    *vcc = true;
    return s0 == s1 ? std::ldexp(s0, scale) : s0;
  }
  if (denormal(s1)) return std::ldexp(s0, scale);
  if (inverse_denormal && denormal(quotient)) {
    *vcc = true;
    return s0 == s1 ? std::ldexp(s0, scale) : s0;
  }
  if (inverse_denormal) return std::ldexp(s0, -scale);
  if (denormal(quotient)) {
    *vcc = true;
    return s0 == s2 ? std::ldexp(s0, scale) : s0;
  }
  if (e2 <= (single ? 23 : 53)) return std::ldexp(s0, scale);
  return s0;
}

// v_div_fixup: the special cases of quotient = numerator / denominator. A quotient far below the
// smallest denormal is zero; one that the refinement made NaN had overflowed.
double fix_division(double quotient, double denominator, double numerator, bool single) {
  const bool negative = std::signbit(denominator) != std::signbit(numerator);
  if (numerator != numerator) return numerator;
  if (denominator != denominator) return denominator;
  if (denominator == 0 && numerator == 0) return NAN;
  if (std::isinf(denominator) && std::isinf(numerator)) return NAN;
  if (denominator == 0 || std::isinf(numerator)) return negative ? -INFINITY : INFINITY;
  if (std::isinf(denominator) || numerator == 0) return negative ? -0.0 : 0.0;
  if (biased_exponent(numerator, single) - biased_exponent(denominator, single) <
      (single ? -150 : -1075)) {
    return negative ? -0.0 : 0.0;
  }
  if (quotient != quotient) return negative ? -INFINITY : INFINITY;
  return negative ? -std::fabs(quotient) : std::fabs(quotient);
}

void run_div_scale_f32(wave& w, const instruction& i) {
  uint32_t buffer[3][lanes_per_wave];
  const uint32_t* a = read_lanes<lane_type::f32>(w, i, 2, buffer[0]);
  const uint32_t* b = read_lanes<lane_type::f32>(w, i, 3, buffer[1]);
  const uint32_t* c = read_lanes<lane_type::f32>(w, i, 4, buffer[2]);
  uint32_t result[lanes_per_wave] = {};
  uint64_t vcc = 0;
  for_each_lane(w.exec(), [&](int l) {
    bool scaled;
    result[l] = as_bits(static_cast<float>(
        scale_division(as_float(a[l]), as_float(b[l]), as_float(c[l]), true, &scaled)));
    if (scaled) vcc |= uint64_t{1} << l;
  });
  w.set_scalar_pair(i.operands[1].reg, vcc);
  write_lanes(w, i, result);
}

void run_div_fmas_f32(wave& w, const instruction& i) {
  uint32_t buffer[3][lanes_per_wave];
  const uint32_t* a = read_lanes<lane_type::f32>(w, i, 1, buffer[0]);
  const uint32_t* b = read_lanes<lane_type::f32>(w, i, 2, buffer[1]);
  const uint32_t* c = read_lanes<lane_type::f32>(w, i, 3, buffer[2]);
  uint32_t result[lanes_per_wave] = {};
  const uint64_t vcc = w.scalar_pair(vcc_register);
  for_each_lane(w.exec(), [&](int l) {
    float r = std::fma(as_float(a[l]), as_float(b[l]), as_float(c[l]));
    if ((vcc >> l) & 1) r = std::ldexp(r, ((c[l] >> 23) & 255) > 127 ? 64 : -64);
    result[l] = as_bits(finish_float(w, i, r));
  });
  write_lanes(w, i, result);
}

void run_div_scale_f64(wave& w, const instruction& i) {
  uint64_t vcc = 0;
  for_each_lane(w.exec(), [&](int l) {
    bool scaled;
    const double r =
        scale_division(as_double(read_wide(w, i, 2, l, wide_type::f64)),
                       as_double(read_wide(w, i, 3, l, wide_type::f64)),
                       as_double(read_wide(w, i, 4, l, wide_type::f64)), false, &scaled);
    write_wide(w, i, 0, l, as_bits(r));
    if (scaled) vcc |= uint64_t{1} << l;
  });
  w.set_scalar_pair(i.operands[1].reg, vcc);
}

void run_div_fmas_f64(wave& w, const instruction& i) {
  const uint64_t vcc = w.scalar_pair(vcc_register);
  for_each_lane(w.exec(), [&](int l) {
    const uint64_t c = read_wide(w, i, 3, l, wide_type::f64);
    double r = std::fma(as_double(read_wide(w, i, 1, l, wide_type::f64)),
                        as_double(read_wide(w, i, 2, l, wide_type::f64)), as_double(c));
    if ((vcc >> l) & 1) r = std::ldexp(r, ((c >> 52) & 2047) > 1023 ? 128 : -128);
    write_wide(w, i, 0, l, as_bits(r));
  });
}

void run_div_fixup_f64(wave& w, const instruction& i) {
  for_each_lane(w.exec(), [&](int l) {
    write_wide(w, i, 0, l,
               as_bits(fix_division(as_double(read_wide(w, i, 1, l, wide_type::f64)),
                                    as_double(read_wide(w, i, 2, l, wide_type::f64)),
                                    as_double(read_wide(w, i, 3, l, wide_type::f64)), false)));
  });
}

constexpr handler_entry table[] = {
    {"v_add_f32", lanewise_f32<2, [](float x, float y, float) { return x + y; }>, common},
    {"v_sub_f32", lanewise_f32<2, [](float x, float y, float) { return x - y; }>, common},
    {"v_subrev_f32", lanewise_f32<2, [](float x, float y, float) { return y - x; }>, common},
    {"v_mul_f32", lanewise_f32<2, [](float x, float y, float) { return x * y; }>, common},
    {"v_mul_legacy_f32",
     lanewise_f32<2, [](float x, float y, float) { return x == 0 || y == 0 ? 0.0f : x * y; }>,
     common},
    {"v_fma_f32", lanewise_f32<3, [](float x, float y, float z) { return std::fma(x, y, z); }>,
     three_source},
    {"v_mad_f32", lanewise_f32<3, [](float x, float y, float z) { return x * y + z; }>,
     three_source},
    {"v_fmac_f32", run_fmac, common},
    {"v_fmamk_f32", lanewise_f32<3, [](float x, float y, float z) { return std::fma(x, y, z); }>,
     0},
    {"v_fmaak_f32", lanewise_f32<3, [](float x, float y, float z) { return std::fma(x, y, z); }>,
     0},
    {"v_max_f32", lanewise_f32<2, [](float x, float y, float) { return max_number(x, y); }>,
     common},
    {"v_min_f32", lanewise_f32<2, [](float x, float y, float) { return min_number(x, y); }>,
     common},
    {"v_max3_f32",
     lanewise_f32<3, [](float x, float y, float z) { return max_number(max_number(x, y), z); }>,
     three_source},
    {"v_min3_f32",
     lanewise_f32<3, [](float x, float y, float z) { return min_number(min_number(x, y), z); }>,
     three_source},
    {"v_med3_f32", lanewise_f32<3, [](float x, float y, float z) { return median(x, y, z); }>,
     three_source},
    {"v_floor_f32", lanewise_f32<1, [](float x, float, float) { return std::floor(x); }>, common},
    {"v_ceil_f32", lanewise_f32<1, [](float x, float, float) { return std::ceil(x); }>, common},
    {"v_trunc_f32", lanewise_f32<1, [](float x, float, float) { return std::trunc(x); }>, common},
    {"v_rndne_f32", lanewise_f32<1, [](float x, float, float) { return std::rint(x); }>, common},
    {"v_fract_f32", lanewise_f32<1, [](float x, float, float) { return fraction(x); }>, common},
    {"v_frexp_mant_f32", lanewise_f32_active<1, [](float x, float, float) { return mantissa(x); }>,
     common},
    {"v_frexp_exp_i32_f32",
     lanewise<1, [](uint32_t a, uint32_t, uint32_t) { return exponent_of(as_float(a)); },
              lane_type::f32>,
     feature_dpp | feature_sdwa | feature_sign},
    {"v_ldexp_f32", run_ldexp, three_source},

    {"v_exp_f32", lanewise_f32_active<1, [](float x, float, float) { return exponential(x); }>,
     common},
    {"v_log_f32", lanewise_f32_active<1, [](float x, float, float) { return logarithm(x); }>,
     common},
    {"v_rcp_f32", lanewise_f32<1, [](float x, float, float) { return reciprocal(x); }>, common},
    {"v_rcp_iflag_f32", lanewise_f32<1, [](float x, float, float) { return reciprocal(x); }>,
     common},
    {"v_rsq_f32", lanewise_f32_active<1, [](float x, float, float) { return reciprocal_root(x); }>,
     common},
    {"v_sqrt_f32", lanewise_f32<1, [](float x, float, float) { return std::sqrt(flush(x)); }>,
     common},
    {"v_sin_f32", lanewise_f32_active<1, [](float x, float, float) { return sine(x); }>, common},
    {"v_cos_f32", lanewise_f32_active<1, [](float x, float, float) { return cosine(x); }>, common},

    {"v_div_scale_f32", run_div_scale_f32, feature_sign},
    {"v_div_fmas_f32", run_div_fmas_f32, three_source},
    {"v_div_fixup_f32",
     lanewise_f32_active<3,
                         [](float x, float y, float z) {
                           return static_cast<float>(fix_division(x, y, z, true));
                         }>,
     three_source},
    {"v_div_scale_f64", run_div_scale_f64, feature_sign},
    {"v_div_fmas_f64", run_div_fmas_f64, feature_sign},
    {"v_div_fixup_f64", run_div_fixup_f64, feature_sign},
};

}  // namespace

handler_list float_handlers() { return table; }

}  // namespace kindex::emulator
