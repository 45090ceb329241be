// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// 16-bit floats and integers, and packed instructions.

#include <algorithm>

#include "assembly.hpp"
#include "catch_any.hpp"

using namespace emulator_test;

namespace {

using u = uint32_t;

float low(u x) { return f16(x); }
float high(u x) { return f16(x >> 16); }
int s16(u x) { return static_cast<int16_t>(x); }

row one(const char* text, std::function<u(u, u, u)> f) {
  return {text,
          [f](const inputs& in, int l, u* out) { out[0] = f(in.v[1][l], in.v[2][l], in.v[3][l]); }};
}

u pack(double a, double b) { return h16(a) | h16(b) << 16; }

}  // namespace

TEST_CASE("half precision arithmetic", "[half]") {
  check_rows(
      {
          one("v_add_f16 v10, v1, v2", [](u a, u b, u) { return h16(low(a) + low(b)); }),
          one("v_sub_f16 v10, v1, v2", [](u a, u b, u) { return h16(low(a) - low(b)); }),
          one("v_mul_f16 v10, v1, v2", [](u a, u b, u) { return h16(low(a) * low(b)); }),
          one("v_mul_f16 v10, 0.5, v2", [](u, u b, u) { return h16(0.5 * low(b)); }),
          one("v_mov_b32 v10, 0\n  v_fma_f16 v10, v1, v2, v3",
              [](u a, u b, u c) { return h16(static_cast<double>(low(a)) * low(b) + low(c)); }),
          one("v_add_f16_sdwa v10, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 "
              "src1_sel:WORD_1",
              [](u a, u b, u) { return h16(high(a) + high(b)); }),
          one("v_pack_b32_f16 v10, v1, v2", [](u a, u b, u) { return (a & 0xffff) | b << 16; }),
          one("v_pack_b32_f16 v10, v1, v2 op_sel:[1,0]",
              [](u a, u b, u) { return a >> 16 | b << 16; }),
      },
      input_kind::halves, compare::f16);
}

TEST_CASE("16-bit integers", "[half]") {
  check_rows(
      {
          one("v_add_u16 v10, v1, v2", [](u a, u b, u) { return (a + b) & 0xffff; }),
          one("v_sub_u16 v10, v1, v2", [](u a, u b, u) { return (a - b) & 0xffff; }),
          one("v_add_u16_e64 v10, v1, v2 clamp",
              [](u a, u b, u) { return std::min((a & 0xffff) + (b & 0xffff), 65535u); }),
          one("v_mul_lo_u16 v10, v1, v2", [](u a, u b, u) { return (a * b) & 0xffff; }),
          one("v_mad_legacy_u16 v10, v1, v2, v3",
              [](u a, u b, u c) { return (a * b + c) & 0xffff; }),
          one("v_lshlrev_b16 v10, v1, v2", [](u a, u b, u) { return (b << (a & 15)) & 0xffff; }),
          one("v_lshrrev_b16 v10, v1, v2", [](u a, u b, u) { return (b & 0xffff) >> (a & 15); }),
          one("v_ashrrev_i16 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(s16(b) >> (a & 15)) & 0xffff; }),
          one("v_max_i16 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(std::max(s16(a), s16(b))) & 0xffff; }),
          one("v_min_u16 v10, v1, v2",
              [](u a, u b, u) { return std::min(a & 0xffff, b & 0xffff); }),
          one("v_pk_add_u16 v10, v1, v2",
              [](u a, u b, u) { return ((a + b) & 0xffff) | ((a >> 16) + (b >> 16)) << 16; }),
          one("v_pk_sub_i16 v10, v1, v2 clamp",
              [](u a, u b, u) {
                const auto cut = [](int x) {
                  return static_cast<u>(std::clamp(x, -32768, 32767)) & 0xffff;
                };
                return cut(s16(a) - s16(b)) | cut(s16(a >> 16) - s16(b >> 16)) << 16;
              }),
          one("v_pk_mul_lo_u16 v10, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]",
              [](u a, u b, u) {
                return (((a >> 16) * b) & 0xffff) | ((a & 0xffff) * (b >> 16)) << 16;
              }),
          one("v_pk_mad_u16 v10, v1, v2, v3",
              [](u a, u b, u c) {
                return ((a * b + c) & 0xffff) | ((a >> 16) * (b >> 16) + (c >> 16)) << 16;
              }),
          one("v_pk_lshlrev_b16 v10, v1, v2",
              [](u a, u b, u) {
                return ((b << (a & 15)) & 0xffff) | ((b >> 16) << (a >> 16 & 15)) << 16;
              }),
          one("v_pk_max_i16 v10, v1, v2",
              [](u a, u b, u) {
                return (static_cast<u>(std::max(s16(a), s16(b))) & 0xffff) |
                       static_cast<u>(std::max(s16(a >> 16), s16(b >> 16))) << 16;
              }),
      },
      input_kind::integers);
}

TEST_CASE("packed halves", "[half]") {
  check_rows(
      {
          one("v_pk_add_f16 v10, v1, v2",
              [](u a, u b, u) { return pack(low(a) + low(b), high(a) + high(b)); }),
          one("v_pk_mul_f16 v10, v1, v2 neg_lo:[1,0] neg_hi:[0,1]",
              [](u a, u b, u) { return pack(-low(a) * low(b), high(a) * -high(b)); }),
          one("v_pk_fma_f16 v10, v1, v2, v3 op_sel:[0,1,0] op_sel_hi:[1,0,1]",
              [](u a, u b, u c) {
                return pack(static_cast<double>(low(a)) * high(b) + low(c),
                            static_cast<double>(high(a)) * low(b) + high(c));
              }),
          one("v_pk_max_f16 v10, v1, v2",
              [](u a, u b, u) {
                return pack(std::fmax(low(a), low(b)), std::fmax(high(a), high(b)));
              }),
      },
      input_kind::halves, compare::f16);
  check_rows(
      {
          {"v_fma_mix_f32 v10, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[1,1,0]",
           [](const inputs& in, int l, u* out) {
             out[0] = u32(std::fma(high(in.v[1][l]), low(in.v[2][l]), f32(in.v[3][l])));
           }},
          {"v_fma_mixlo_f16 v10, v1, v2, v3 op_sel_hi:[1,1,1]",
           [](const inputs& in, int l, u* out) {
             out[0] = (preset[0] & 0xffff0000u) |
                      h16(std::fma(low(in.v[1][l]), low(in.v[2][l]), low(in.v[3][l])));
           }},
          {"v_fma_mixhi_f16 v10, v1, v2, -v3 op_sel_hi:[0,0,0]",
           [](const inputs& in, int l, u* out) {
             out[0] = (preset[0] & 0xffffu) |
                      h16(std::fma(f32(in.v[1][l]), f32(in.v[2][l]), -f32(in.v[3][l]))) << 16;
           }},
          {"v_dot2_f32_f16 v10, v1, v2, v3",
           [](const inputs& in, int l, u* out) {
             out[0] = u32(low(in.v[1][l]) * low(in.v[2][l]) + high(in.v[1][l]) * high(in.v[2][l]) +
                          f32(in.v[3][l]));
           }},
      },
      input_kind::small_floats, compare::f32);
}

TEST_CASE("packed singles", "[half]") {
  // v[30:31], v[32:33], v[34:35] from v1..v6; s[16:17] a scalar pair.
  static const std::string pairs =
      "v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n  v_mov_b32 v32, v3\n  v_mov_b32 v33, v4\n"
      "  v_mov_b32 v34, v5\n  v_mov_b32 v35, v6\n  ";
  struct packed_case {
    std::string text;
    std::function<std::pair<float, float>(const float*, const float*, const float*, const float*)>
        f;
  };
  static const packed_case cases[] = {
      {"v_pk_fma_f32 v[10:11], v[30:31], v[32:33], v[34:35]",
       [](auto a, auto b, auto c, auto) {
         return std::pair(std::fma(a[0], b[0], c[0]), std::fma(a[1], b[1], c[1]));
       }},
      {"v_pk_fma_f32 v[10:11], v[30:31], v[32:33], v[34:35] op_sel:[1,0,1] op_sel_hi:[0,1,0]",
       [](auto a, auto b, auto c, auto) {
         return std::pair(std::fma(a[1], b[0], c[1]), std::fma(a[0], b[1], c[0]));
       }},
      {"v_pk_fma_f32 v[10:11], v[30:31], v[32:33], v[34:35] op_sel_hi:[1,0,1] neg_lo:[0,0,1] "
       "neg_hi:[1,0,0]",
       [](auto a, auto b, auto c, auto) {
         return std::pair(std::fma(a[0], b[0], -c[0]), std::fma(-a[1], b[0], c[1]));
       }},
      {"v_pk_mul_f32 v[10:11], v[30:31], v[32:33]",
       [](auto a, auto b, auto, auto) { return std::pair(a[0] * b[0], a[1] * b[1]); }},
      {"v_pk_mul_f32 v[10:11], v[30:31], s[16:17]",
       [](auto a, auto, auto, auto s) { return std::pair(a[0] * s[0], a[1] * s[1]); }},
      {"v_pk_mul_f32 v[10:11], v[30:31], s[16:17] op_sel_hi:[1,0]",
       [](auto a, auto, auto, auto s) { return std::pair(a[0] * s[0], a[1] * s[0]); }},
      {"v_pk_mul_f32 v[10:11], v[30:31], 2.0 op_sel_hi:[1,0]",
       [](auto a, auto, auto, auto) { return std::pair(a[0] * 2, a[1] * 2); }},
      {"v_pk_add_f32 v[10:11], v[30:31], v[32:33] neg_lo:[0,1] neg_hi:[0,1]",
       [](auto a, auto b, auto, auto) { return std::pair(a[0] - b[0], a[1] - b[1]); }},
      {"v_pk_mov_b32 v[10:11], v[30:31], v[32:33] op_sel:[1,0]",
       [](auto a, auto b, auto, auto) { return std::pair(a[1], b[0]); }},
      {"v_pk_mov_b32 v[10:11], v[30:31], v[32:33] op_sel:[0,1]",
       [](auto a, auto b, auto, auto) { return std::pair(a[0], b[1]); }},
  };
  static std::vector<std::string>& texts = *new std::vector<std::string>;
  texts.reserve(100);
  std::vector<row> rows;
  for (const packed_case& c : cases) {
    texts.push_back(pairs + c.text);
    rows.push_back({texts.back().c_str(), [&c](const inputs& in, int l, u* out) {
                      float v[6];
                      for (int k = 0; k < 6; ++k) v[k] = f32(in.v[k + 1][l]);
                      const float s[2] = {f32(in.s[16]), f32(in.s[17])};
                      const auto r = c.f(v, v + 2, v + 4, s);
                      out[0] = u32(r.first);
                      out[1] = u32(r.second);
                    }});
  }
  check_rows(rows, input_kind::small_floats, compare::f32);
}
