// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Vector instructions in single and double precision.

#include <algorithm>

#include "assembly.hpp"
#include "catch_any.hpp"

using namespace emulator_test;

namespace {

using u = uint32_t;

row one(const char* text, std::function<float(float, float, float)> f) {
  return {text, [f](const inputs& in, int l, u* out) {
            out[0] = u32(f(f32(in.v[1][l]), f32(in.v[2][l]), f32(in.v[3][l])));
          }};
}

row to_bits(const char* text, std::function<u(float, float, float)> f) {
  return {text, [f](const inputs& in, int l, u* out) {
            out[0] = f(f32(in.v[1][l]), f32(in.v[2][l]), f32(in.v[3][l]));
          }};
}

// v_..._f64 of v[2:3]-like pairs: even registers are high halves.
row two(const char* text, std::function<double(double, double, double)> f) {
  return {text, [f](const inputs& in, int l, u* out) {
            const double r = f(f64(in.v[1][l], in.v[2][l]), f64(in.v[3][l], in.v[4][l]),
                               f64(in.v[5][l], in.v[6][l]));
            const auto b = bits<uint64_t>(r);
            out[0] = static_cast<u>(b);
            out[1] = static_cast<u>(b >> 32);
          }};
}

// v1:v2 and so on into aligned pairs v[30:31], v[32:33], v[34:35].
const std::string pairs =
    "v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n  v_mov_b32 v32, v3\n  v_mov_b32 v33, v4\n"
    "  v_mov_b32 v34, v5\n  v_mov_b32 v35, v6\n  ";

std::vector<std::string>& kept() {
  static auto* const texts = new std::vector<std::string>;
  texts->reserve(1000);
  return *texts;
}
const char* keep(std::string text) {
  kept().push_back(std::move(text));
  return kept().back().c_str();
}

float larger(float x, float y) {
  if (std::isnan(x)) return y;
  if (std::isnan(y)) return x;
  if (x == y) return std::signbit(x) ? y : x;
  return x > y ? x : y;
}
float smaller(float x, float y) {
  if (std::isnan(x)) return y;
  if (std::isnan(y)) return x;
  if (x == y) return std::signbit(x) ? x : y;
  return x < y ? x : y;
}
float no_denormal(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
float unit(float x) { return std::isnan(x) || x < 0 ? 0 : x > 1 ? 1 : x; }

}  // namespace

TEST_CASE("single precision arithmetic", "[float]") {
  check_rows(
      {
          one("v_add_f32 v10, v1, v2", [](float x, float y, float) { return x + y; }),
          one("v_sub_f32 v10, v1, v2", [](float x, float y, float) { return x - y; }),
          one("v_subrev_f32 v10, v1, v2", [](float x, float y, float) { return y - x; }),
          one("v_mul_f32 v10, v1, v2", [](float x, float y, float) { return x * y; }),
          one("v_mul_f32 v10, 0x40490fdb, v2",
              [](float, float y, float) { return f32(0x40490fdb) * y; }),
          one("v_add_f32 v10, s16, v2\n  v_add_f32 v10, -v1, |v2|",
              [](float x, float y, float) { return -x + std::abs(y); }),
          one("v_mul_f32 v10, -|v1|, v2", [](float x, float y, float) { return -std::abs(x) * y; }),
          one("v_add_f32_e64 v10, v1, v2 clamp",
              [](float x, float y, float) { return unit(x + y); }),
          one("v_fma_f32 v10, v1, v2, v3",
              [](float x, float y, float z) { return std::fma(x, y, z); }),
          one("v_fma_f32 v10, v1, -v2, |v3|",
              [](float x, float y, float z) { return std::fma(x, -y, std::abs(z)); }),
          one("v_mov_b32 v10, v3\n  v_fmac_f32 v10, v1, v2",
              [](float x, float y, float z) { return std::fma(x, y, z); }),
          one("v_fmamk_f32 v10, v1, 0x3fc00000, v3",
              [](float x, float, float z) { return std::fma(x, 1.5f, z); }),
          one("v_fmaak_f32 v10, v1, v2, 0xc0200000",
              [](float x, float y, float) { return std::fma(x, y, -2.5f); }),
          one("v_max_f32 v10, v1, v2", [](float x, float y, float) { return larger(x, y); }),
          one("v_min_f32 v10, v1, v2", [](float x, float y, float) { return smaller(x, y); }),
          one("v_max3_f32 v10, v1, v2, v3",
              [](float x, float y, float z) { return larger(larger(x, y), z); }),
          one("v_min3_f32 v10, v1, v2, v3",
              [](float x, float y, float z) { return smaller(smaller(x, y), z); }),
          one("v_med3_f32 v10, v1, v2, v3",
              [](float x, float y, float z) {
                if (std::isnan(x) || std::isnan(y) || std::isnan(z))
                  return smaller(smaller(x, y), z);
                return larger(smaller(x, y), smaller(larger(x, y), z));
              }),
          one("v_med3_f32 v10, v1, 4.0, -4.0",
              [](float x, float, float) {
                return std::isnan(x) ? -4.0f : std::clamp(x, -4.0f, 4.0f);
              }),
          one("v_floor_f32 v10, v1", [](float x, float, float) { return std::floor(x); }),
          one("v_ceil_f32 v10, v1", [](float x, float, float) { return std::ceil(x); }),
          one("v_trunc_f32 v10, v1", [](float x, float, float) { return std::trunc(x); }),
          one("v_rndne_f32 v10, v1", [](float x, float, float) { return std::nearbyint(x); }),
          one("v_fract_f32 v10, v1",
              [](float x, float, float) { return std::min(x - std::floor(x), 0x1.fffffep-1f); }),
          one("v_rcp_f32 v10, v1", [](float x, float, float) { return 1.0f / no_denormal(x); }),
          one("v_sqrt_f32 v10, v1",
              [](float x, float, float) { return std::sqrt(no_denormal(x)); }),
          one("v_mov_b32 v30, 5\n  v_ldexp_f32 v10, v1, v30",
              [](float x, float, float) { return std::ldexp(x, 5); }),
          one("v_mov_b32 v30, 0xffffff74\n  v_ldexp_f32 v10, v1, v30",
              [](float x, float, float) { return std::ldexp(x, -140); }),
          one("v_frexp_mant_f32 v10, v1",
              [](float x, float, float) {
                int e;
                return std::isfinite(x) ? std::frexp(x, &e) : x;
              }),
          to_bits("v_frexp_exp_i32_f32 v10, v1",
                  [](float x, float, float) {
                    int e = 0;
                    if (std::isfinite(x) && x != 0) std::frexp(x, &e);
                    return static_cast<u>(e);
                  }),
          one("v_accvgpr_write_b32 a5, v1\n  s_nop 1\n  v_accvgpr_read_b32 v10, a5",
              [](float x, float, float) { return x; }),
          one("v_accvgpr_write_b32 a5, v1\n  s_nop 1\n  v_accvgpr_mov_b32 a6, a5\n  s_nop 1\n"
              "  v_accvgpr_read_b32 v10, a6",
              [](float x, float, float) { return x; }),
      },
      input_kind::floats, compare::f32);
}

TEST_CASE("transcendental functions within one unit", "[float]") {
  // Correctly rounded here; checked against double precision with one unit of tolerance.
  const struct {
    const char* text;
    double (*f)(double);
    bool positive;
  } functions[] = {
      {"v_exp_f32 v10, v1", [](double x) { return std::exp2(x); }, false},
      {"v_log_f32 v10, v1", [](double x) { return std::log2(x); }, true},
      {"v_rsq_f32 v10, v1", [](double x) { return 1 / std::sqrt(x); }, true},
      {"v_sin_f32 v10, v1", [](double x) { return std::sin(x * 2 * M_PI); }, false},
      {"v_cos_f32 v10, v1", [](double x) { return std::cos(x * 2 * M_PI); }, false},
  };
  for (const auto& f : functions) {
    const auto expect = [&f](const inputs& in, int l, u* out) {
      double x = f32(in.v[1][l]);
      if (f.positive) x = std::abs(x);
      out[0] = u32(static_cast<float>(f.f(x)));
    };
    const std::string text =
        f.positive ? std::string("v_and_b32 v1, 0x7fffffff, v1\n  ") + f.text : f.text;
    check_rows({{keep(text), expect}}, input_kind::small_floats);
  }
}

TEST_CASE("division by scale, refinement and fixup", "[float]") {
  // The sequence compilers emit for a correctly rounded quotient of v1 and v2.
  const std::string divide =
      "v_div_scale_f32 v30, s[30:31], v2, v2, v1\n  v_div_scale_f32 v31, vcc, v1, v2, v1\n"
      "  v_rcp_f32 v32, v30\n  v_fma_f32 v33, -v30, v32, 1.0\n  v_fma_f32 v32, v33, v32, v32\n"
      "  v_mul_f32 v34, v31, v32\n  v_fma_f32 v35, -v30, v34, v31\n"
      "  v_fma_f32 v34, v35, v32, v34\n  v_fma_f32 v30, -v30, v34, v31\n"
      "  v_div_fmas_f32 v30, v30, v32, v34\n  v_div_fixup_f32 v10, v30, v2, v1";
  check_rows({one(divide.c_str(), [](float x, float y, float) { return x / y; })},
             input_kind::floats, compare::f32);
  check_rows({one(divide.c_str(), [](float x, float y, float) { return x / y; })},
             input_kind::small_floats, compare::f32);

  const std::string wide =
      pairs +
      "v_div_scale_f64 v[40:41], s[30:31], v[32:33], v[32:33], v[30:31]\n"
      "  v_rcp_f64 v[42:43], v[40:41]\n  v_fma_f64 v[44:45], -v[40:41], v[42:43], 1.0\n"
      "  v_fma_f64 v[42:43], v[42:43], v[44:45], v[42:43]\n"
      "  v_fma_f64 v[44:45], -v[40:41], v[42:43], 1.0\n"
      "  v_fma_f64 v[42:43], v[42:43], v[44:45], v[42:43]\n"
      "  v_div_scale_f64 v[44:45], vcc, v[30:31], v[32:33], v[30:31]\n"
      "  v_mul_f64 v[46:47], v[44:45], v[42:43]\n"
      "  v_fma_f64 v[40:41], -v[40:41], v[46:47], v[44:45]\n"
      "  v_div_fmas_f64 v[40:41], v[40:41], v[42:43], v[46:47]\n"
      "  v_div_fixup_f64 v[10:11], v[40:41], v[32:33], v[30:31]";
  check_rows({two(wide.c_str(), [](double x, double y, double) { return x / y; })},
             input_kind::doubles, compare::f64);
}

TEST_CASE("double precision arithmetic", "[float]") {
  const auto t = [](const char* text) { return keep(pairs + text); };
  check_rows(
      {
          two(t("v_add_f64 v[10:11], v[30:31], v[32:33]"),
              [](double x, double y, double) { return x + y; }),
          two(t("v_add_f64 v[10:11], v[30:31], -v[32:33]"),
              [](double x, double y, double) { return x - y; }),
          two(t("v_mul_f64 v[10:11], |v[30:31]|, 0.5"),
              [](double x, double, double) { return std::abs(x) * 0.5; }),
          two(t("v_fma_f64 v[10:11], v[30:31], v[32:33], v[34:35]"),
              [](double x, double y, double z) { return std::fma(x, y, z); }),
          two(t("v_mov_b64 v[10:11], v[34:35]\n  v_fmac_f64 v[10:11], v[30:31], v[32:33]"),
              [](double x, double y, double z) { return std::fma(x, y, z); }),
          two(t("v_max_f64 v[10:11], v[30:31], v[32:33]"),
              [](double x, double y, double) { return std::fmax(x, y); }),
          two(t("v_floor_f64 v[10:11], v[30:31]"),
              [](double x, double, double) { return std::floor(x); }),
          two(t("v_rndne_f64 v[10:11], v[30:31]"),
              [](double x, double, double) { return std::nearbyint(x); }),
          two(t("v_ldexp_f64 v[10:11], v[30:31], -7"),
              [](double x, double, double) { return std::ldexp(x, -7); }),
          two(t("v_sqrt_f64 v[10:11], v[30:31]"),
              [](double x, double, double) { return std::sqrt(x); }),
          two(t("v_cvt_f64_f32 v[10:11], v1"),
              [](double x, double, double) {
                return static_cast<double>(f32(static_cast<u>(bits<uint64_t>(x))));
              }),
          two(t("v_cvt_f64_i32 v[10:11], v1"),
              [](double x, double, double) {
                return static_cast<double>(static_cast<int32_t>(bits<uint64_t>(x)));
              }),
          two(t("v_cvt_f64_u32 v[10:11], v1"),
              [](double x, double, double) {
                return static_cast<double>(static_cast<u>(bits<uint64_t>(x)));
              }),
          {t("v_cvt_i32_f64 v10, v[30:31]"),
           [](const inputs& in, int l, u* out) {
             const double x = f64(in.v[1][l], in.v[2][l]);
             out[0] = std::isnan(x)        ? 0
                      : x >= 2147483647.0  ? 0x7fffffffu
                      : x <= -2147483648.0 ? 0x80000000u
                                           : static_cast<u>(static_cast<int32_t>(x));
           }},
      },
      input_kind::doubles, compare::f64);
}

TEST_CASE("conversions of single precision", "[float]") {
  check_rows(
      {
          to_bits("v_cvt_u32_f32 v10, v1",
                  [](float x, float, float) {
                    return !(x > 0) ? 0u : x >= 4294967296.0f ? ~0u : static_cast<u>(x);
                  }),
          to_bits("v_cvt_i32_f32 v10, v1",
                  [](float x, float, float) {
                    if (std::isnan(x)) return 0u;
                    if (x >= 2147483648.0f) return 0x7fffffffu;
                    if (x <= -2147483648.0f) return 0x80000000u;
                    return static_cast<u>(static_cast<int32_t>(x));
                  }),
          to_bits("v_cvt_flr_i32_f32 v10, v1",
                  [](float x, float, float) {
                    const float y = std::floor(x);
                    if (std::isnan(y)) return 0u;
                    if (y >= 2147483648.0f) return 0x7fffffffu;
                    if (y <= -2147483648.0f) return 0x80000000u;
                    return static_cast<u>(static_cast<int32_t>(y));
                  }),
          to_bits("v_cvt_f32_u32 v10, v1",
                  [](float x, float, float) { return u32(static_cast<float>(u32(x))); }),
          to_bits("v_cvt_f32_i32 v10, v1",
                  [](float x, float, float) {
                    return u32(static_cast<float>(static_cast<int32_t>(u32(x))));
                  }),
          to_bits("v_cvt_f32_ubyte0 v10, v1",
                  [](float x, float, float) { return u32(static_cast<float>(u32(x) & 255)); }),
          to_bits(
              "v_cvt_f32_ubyte2 v10, v1",
              [](float x, float, float) { return u32(static_cast<float>(u32(x) >> 16 & 255)); }),
          to_bits("v_cvt_f32_ubyte3 v10, v1",
                  [](float x, float, float) { return u32(static_cast<float>(u32(x) >> 24)); }),
          to_bits("v_cvt_f32_f16 v10, v1", [](float x, float, float) { return u32(f16(u32(x))); }),
          to_bits("v_cvt_f16_f32 v10, v1", [](float x, float, float) { return h16(x); }),
      },
      input_kind::floats, compare::f32);
  check_rows({to_bits("v_cvt_pkrtz_f16_f32 v10, v1, v2",
                      [](float x, float y, float) {
                        // Towards zero: drop the bits that a half has no room for.
                        const auto cut = [](float a) {
                          u h = h16(a);
                          if (std::abs(f16(h)) > std::abs(a)) --h;
                          return h;
                        };
                        return cut(x) | cut(y) << 16;
                      })},
             input_kind::small_floats);
}

TEST_CASE("float compares and classes", "[float]") {
  std::vector<row> rows;
  const auto add = [&](const std::string& text, std::function<bool(float, float)> f) {
    rows.push_back(
        to_bits(keep(text + "\n  v_mov_b32 v10, 0\n  s_nop 1\n  v_cndmask_b32 v10, 0, 1, s[30:31]"),
                [f](float x, float y, float) { return f(x, y) ? 1u : 0u; }));
  };
  add("v_cmp_lt_f32 s[30:31], v1, v2", [](float x, float y) { return x < y; });
  add("v_cmp_eq_f32 s[30:31], v1, v2", [](float x, float y) { return x == y; });
  add("v_cmp_le_f32 s[30:31], v1, v2", [](float x, float y) { return x <= y; });
  add("v_cmp_gt_f32 s[30:31], v1, |v2|", [](float x, float y) { return x > std::abs(y); });
  add("v_cmp_lg_f32 s[30:31], v1, v2", [](float x, float y) { return x < y || x > y; });
  add("v_cmp_ge_f32 s[30:31], v1, v2", [](float x, float y) { return x >= y; });
  add("v_cmp_o_f32 s[30:31], v1, v2",
      [](float x, float y) { return !std::isnan(x) && !std::isnan(y); });
  add("v_cmp_u_f32 s[30:31], v1, v2",
      [](float x, float y) { return std::isnan(x) || std::isnan(y); });
  add("v_cmp_nge_f32 s[30:31], v1, v2", [](float x, float y) { return !(x >= y); });
  add("v_cmp_nlg_f32 s[30:31], v1, v2", [](float x, float y) { return !(x < y || x > y); });
  add("v_cmp_ngt_f32 s[30:31], v1, v2", [](float x, float y) { return !(x > y); });
  add("v_cmp_nle_f32 s[30:31], v1, v2", [](float x, float y) { return !(x <= y); });
  add("v_cmp_neq_f32 s[30:31], v1, v2", [](float x, float y) { return !(x == y); });
  add("v_cmp_nlt_f32 s[30:31], v1, v2", [](float x, float y) { return !(x < y); });
  const struct {
    int bit;
    std::function<bool(float)> f;
  } classes[] = {
      {2, [](float x) { return std::isinf(x) && x < 0; }},
      {3, [](float x) { return std::isnormal(x) && x < 0; }},
      {4, [](float x) { return std::fpclassify(x) == FP_SUBNORMAL && x < 0; }},
      {5, [](float x) { return x == 0 && std::signbit(x); }},
      {6, [](float x) { return x == 0 && !std::signbit(x); }},
      {7, [](float x) { return std::fpclassify(x) == FP_SUBNORMAL && x > 0; }},
      {8, [](float x) { return std::isnormal(x) && x > 0; }},
      {9, [](float x) { return std::isinf(x) && x > 0; }},
  };
  for (const auto& c : classes) {
    add("v_mov_b32 v30, " + std::to_string(1 << c.bit) + "\n  v_cmp_class_f32 s[30:31], v1, v30",
        [f = c.f](float x, float) { return f(x); });
  }
  add("v_cmp_class_f32 s[30:31], v1, 3", [](float x, float) { return std::isnan(x); });
  check_rows(rows, input_kind::floats);
}

TEST_CASE("flushed denormals", "[float]") {
  // MODE[5:4] = 0: inputs and outputs of single precision are flushed, and the scale works.
  check_rows({one("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\n  v_mul_f32 v10, 1.0, v1",
                  [](float x, float, float) { return no_denormal(x); })},
             input_kind::floats, compare::f32);
  check_rows(
      {one("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\n"
           "  v_mul_f32_e64 v10, v1, v2 mul:4",
           [](float x, float y, float) { return x * y * 4; }),
       one("v_mul_f32_e64 v10, v1, v2 mul:4", [](float x, float y, float) { return x * y; })},
      input_kind::small_floats, compare::f32);
}
