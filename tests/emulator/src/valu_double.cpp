// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Vector arithmetic in double precision.

#include <algorithm>

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

constexpr uint16_t common = feature_sign | feature_clamp;

double finish(const instruction& i, double x) {
  if (i.clamp) return x != x ? 0.0 : std::clamp(x, 0.0, 1.0);
  return x;
}

double read(const wave& w, const instruction& i, int index, int lane) {
  return as_double(read_wide(w, i, index, lane, wide_type::f64));
}

template <int sources, auto f>
void lanewise_f64(wave& w, const instruction& i) {
  for_each_lane(w.exec(), [&](int l) {
    const double x = read(w, i, 1, l);
    const double y = sources > 1 ? read(w, i, 2, l) : 0;
    const double z = sources > 2 ? read(w, i, 3, l) : 0;
    write_wide(w, i, 0, l, as_bits(finish(i, f(x, y, z))));
  });
}

void run_fmac(wave& w, const instruction& i) {
  for_each_lane(w.exec(), [&](int l) {
    const double sum = std::fma(read(w, i, 1, l), read(w, i, 2, l), read(w, i, 0, l));
    write_wide(w, i, 0, l, as_bits(finish(i, sum)));
  });
}

void run_ldexp(wave& w, const instruction& i) {
  uint32_t buffer[lanes_per_wave];
  const uint32_t* b = read_lanes<lane_type::bits>(w, i, 2, buffer);
  for_each_lane(w.exec(), [&](int l) {
    const int exponent = std::clamp(as_int(b[l]), -8000, 8000);
    write_wide(w, i, 0, l, as_bits(finish(i, std::ldexp(read(w, i, 1, l), exponent))));
  });
}

template <auto f>
void from_f64(wave& w, const instruction& i) {
  uint32_t result[lanes_per_wave] = {};
  for_each_lane(w.exec(), [&](int l) { result[l] = f(read(w, i, 1, l)); });
  write_lanes(w, i, result);
}

template <auto f, lane_type type>
void to_f64(wave& w, const instruction& i) {
  uint32_t buffer[lanes_per_wave];
  const uint32_t* a = read_lanes<type>(w, i, 1, buffer);
  // The destination pair may overlap the source.
  double result[lanes_per_wave];
  for (int l = 0; l < lanes_per_wave; ++l) result[l] = f(a[l]);
  for_each_lane(w.exec(), [&](int l) { write_wide(w, i, 0, l, as_bits(finish(i, result[l]))); });
}

uint32_t exponent_of(double x) {
  int exponent = 0;
  if (std::isfinite(x) && x != 0) std::frexp(x, &exponent);
  return static_cast<uint32_t>(exponent);
}

constexpr handler_entry table[] = {
    {"v_add_f64", lanewise_f64<2, [](double x, double y, double) { return x + y; }>, common},
    {"v_mul_f64", lanewise_f64<2, [](double x, double y, double) { return x * y; }>, common},
    {"v_fma_f64", lanewise_f64<3, [](double x, double y, double z) { return std::fma(x, y, z); }>,
     common},
    {"v_fmac_f64", run_fmac, common},
    {"v_max_f64", lanewise_f64<2, [](double x, double y, double) { return std::fmax(x, y); }>,
     common},
    {"v_min_f64", lanewise_f64<2, [](double x, double y, double) { return std::fmin(x, y); }>,
     common},
    {"v_rcp_f64", lanewise_f64<1, [](double x, double, double) { return 1.0 / x; }>, common},
    {"v_rsq_f64", lanewise_f64<1, [](double x, double, double) { return 1.0 / std::sqrt(x); }>,
     common},
    {"v_sqrt_f64", lanewise_f64<1, [](double x, double, double) { return std::sqrt(x); }>, common},
    {"v_floor_f64", lanewise_f64<1, [](double x, double, double) { return std::floor(x); }>,
     common},
    {"v_ceil_f64", lanewise_f64<1, [](double x, double, double) { return std::ceil(x); }>, common},
    {"v_trunc_f64", lanewise_f64<1, [](double x, double, double) { return std::trunc(x); }>,
     common},
    {"v_rndne_f64", lanewise_f64<1, [](double x, double, double) { return std::rint(x); }>, common},
    {"v_fract_f64",
     lanewise_f64<1, [](double x, double,
                        double) { return std::min(x - std::floor(x), 0x1.fffffffffffffp-1); }>,
     common},
    {"v_frexp_mant_f64",
     lanewise_f64<1,
                  [](double x, double, double) {
                    int exponent;
                    return std::isfinite(x) ? std::frexp(x, &exponent) : x;
                  }>,
     common},
    {"v_frexp_exp_i32_f64", from_f64<exponent_of>, feature_sign},
    {"v_ldexp_f64", run_ldexp, common},
    {"v_cvt_f64_i32",
     to_f64<[](uint32_t a) { return static_cast<double>(as_int(a)); }, lane_type::bits>, common},
    {"v_cvt_f64_u32", to_f64<[](uint32_t a) { return static_cast<double>(a); }, lane_type::bits>,
     common},
    {"v_cvt_f64_f32",
     to_f64<[](uint32_t a) { return static_cast<double>(as_float(a)); }, lane_type::f32>, common},
    {"v_cvt_f32_f64", from_f64<[](double x) { return as_bits(static_cast<float>(x)); }>,
     feature_sign},
    {"v_cvt_i32_f64", from_f64<[](double x) { return to_signed(x); }>, feature_sign},
    {"v_cvt_u32_f64", from_f64<[](double x) { return to_unsigned(x); }>, feature_sign},
};

}  // namespace

handler_list double_handlers() { return table; }

}  // namespace kindex::emulator
