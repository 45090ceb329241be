// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Vector integer instructions, SDWA forms and compares.

#include <algorithm>
#include <bit>

#include "assembly.hpp"
#include "catch_any.hpp"

using namespace emulator_test;

namespace {

using u = uint32_t;
using u64 = uint64_t;
using i64 = int64_t;

int32_t i32(u x) { return static_cast<int32_t>(x); }
int32_t i24(u x) { return i32(x << 8) >> 8; }
int32_t i16(u x) { return i32(x << 16) >> 16; }
int32_t i8(u x) { return i32(x << 24) >> 24; }

row one(const char* text, std::function<u(u, u, u)> f) {
  return {text,
          [f](const inputs& in, int l, u* out) { out[0] = f(in.v[1][l], in.v[2][l], in.v[3][l]); }};
}

row pair(const char* text, std::function<u64(u64, u64, u64)> f) {
  return {text, [f](const inputs& in, int l, u* out) {
            const auto p = [&](int k) { return in.v[k][l] | u64{in.v[k + 1][l]} << 32; };
            const u64 r = f(p(1), p(3), p(5));
            out[0] = static_cast<u>(r);
            out[1] = static_cast<u>(r >> 32);
          }};
}

// The lane's bit of s[30:31] is copied to v10.
std::string mask_to_v10() {
  return "\n  v_mov_b32 v10, 0\n  s_nop 1\n  v_cndmask_b32 v10, 0, 1, s[30:31]";
}

}  // namespace

TEST_CASE("vector integer arithmetic", "[integer]") {
  check_rows(
      {
          one("v_mov_b32 v10, v1", [](u a, u, u) { return a; }),
          one("v_mov_b32 v10, 0xdeadbeef", [](u, u, u) { return 0xdeadbeefu; }),
          one("v_mov_b32 v10, -16", [](u, u, u) { return 0xfffffff0u; }),
          one("v_mov_b32 v10, 4.0", [](u, u, u) { return 0x40800000u; }),
          one("v_mov_b32 v10, 0.15915494", [](u, u, u) { return 0x3e22f983u; }),
          one("v_add_u32 v10, v1, v2", [](u a, u b, u) { return a + b; }),
          one("v_add_u32 v10, 17, v2", [](u, u b, u) { return 17 + b; }),
          one("v_add_u32_e64 v10, v1, v2 clamp",
              [](u a, u b, u) { return static_cast<u>(std::min(u64{a} + b, u64{0xffffffff})); }),
          one("v_sub_u32 v10, v1, v2", [](u a, u b, u) { return a - b; }),
          one("v_sub_u32_e64 v10, v1, v2 clamp", [](u a, u b, u) { return a < b ? 0 : a - b; }),
          one("v_subrev_u32 v10, v1, v2", [](u a, u b, u) { return b - a; }),
          one("v_add_i32 v10, v1, v2 clamp",
              [](u a, u b, u) {
                return static_cast<u>(
                    std::clamp(i64{i32(a)} + i32(b), i64{INT32_MIN}, i64{INT32_MAX}));
              }),
          one("v_sub_i32 v10, v1, v2", [](u a, u b, u) { return a - b; }),
          one("v_mul_lo_u32 v10, v1, v2", [](u a, u b, u) { return a * b; }),
          one("v_mul_hi_u32 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(u64{a} * b >> 32); }),
          one("v_mul_hi_i32 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(i64{i32(a)} * i32(b) >> 32); }),
          one("v_mul_u32_u24 v10, v1, v2",
              [](u a, u b, u) { return (a & 0xffffff) * (b & 0xffffff); }),
          one("v_mul_i32_i24 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(i64{i24(a)} * i24(b)); }),
          one("v_mul_hi_u32_u24 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(u64{a & 0xffffff} * (b & 0xffffff) >> 32); }),
          one("v_mad_u32_u24 v10, v1, v2, v3",
              [](u a, u b, u c) { return (a & 0xffffff) * (b & 0xffffff) + c; }),
          one("v_mad_i32_i24 v10, v1, v2, v3",
              [](u a, u b, u c) { return static_cast<u>(i64{i24(a)} * i24(b)) + c; }),
          one("v_add3_u32 v10, v1, v2, v3", [](u a, u b, u c) { return a + b + c; }),
          one("v_lshl_add_u32 v10, v1, v2, v3", [](u a, u b, u c) { return (a << (b & 31)) + c; }),
          one("v_add_lshl_u32 v10, v1, v2, v3", [](u a, u b, u c) { return (a + b) << (c & 31); }),
          one("v_xad_u32 v10, v1, v2, v3", [](u a, u b, u c) { return (a ^ b) + c; }),
          one("v_sad_u32 v10, v1, v2, v3",
              [](u a, u b, u c) { return std::max(a, b) - std::min(a, b) + c; }),
          one("v_sad_u8 v10, v1, v2, v3",
              [](u a, u b, u c) {
                for (int k = 0; k < 32; k += 8)
                  c += static_cast<u>(std::abs(i32((a >> k) & 255) - i32((b >> k) & 255)));
                return c;
              }),
          one("v_min_u32 v10, v1, v2", [](u a, u b, u) { return std::min(a, b); }),
          one("v_max_u32 v10, v1, v2", [](u a, u b, u) { return std::max(a, b); }),
          one("v_min_i32 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(std::min(i32(a), i32(b))); }),
          one("v_max_i32 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(std::max(i32(a), i32(b))); }),
          one("v_min3_i32 v10, v1, v2, v3",
              [](u a, u b, u c) { return static_cast<u>(std::min({i32(a), i32(b), i32(c)})); }),
          one("v_max3_u32 v10, v1, v2, v3", [](u a, u b, u c) { return std::max({a, b, c}); }),
          one("v_med3_i32 v10, v1, v2, v3",
              [](u a, u b, u c) {
                int32_t x[] = {i32(a), i32(b), i32(c)};
                std::sort(x, x + 3);
                return static_cast<u>(x[1]);
              }),
          one("v_med3_u32 v10, v1, v2, v3",
              [](u a, u b, u c) {
                u x[] = {a, b, c};
                std::sort(x, x + 3);
                return x[1];
              }),
          one("v_dot4_i32_i8 v10, v1, v2, v3",
              [](u a, u b, u c) {
                i64 s = i32(c);
                for (int k = 0; k < 32; k += 8) s += i8(a >> k) * i8(b >> k);
                return static_cast<u>(s);
              }),
          one("v_mov_b32 v10, v3\n  v_dot4c_i32_i8 v10, v1, v2",
              [](u a, u b, u c) {
                i64 s = i32(c);
                for (int k = 0; k < 32; k += 8) s += i8(a >> k) * i8(b >> k);
                return static_cast<u>(s);
              }),
      },
      input_kind::integers);
}

TEST_CASE("vector bits and shifts", "[integer]") {
  check_rows(
      {
          one("v_and_b32 v10, v1, v2", [](u a, u b, u) { return a & b; }),
          one("v_or_b32 v10, s16, v2\n  v_xor_b32 v10, v10, v1\n  v_xor_b32 v10, v10, v1\n"
              "  v_or_b32 v10, v1, v2",
              [](u a, u b, u) { return a | b; }),
          one("v_xor_b32 v10, v1, v2", [](u a, u b, u) { return a ^ b; }),
          one("v_xnor_b32 v10, v1, v2", [](u a, u b, u) { return ~(a ^ b); }),
          one("v_not_b32 v10, v1", [](u a, u, u) { return ~a; }),
          one("v_lshlrev_b32 v10, v1, v2", [](u a, u b, u) { return b << (a & 31); }),
          one("v_lshrrev_b32 v10, v1, v2", [](u a, u b, u) { return b >> (a & 31); }),
          one("v_ashrrev_i32 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(i32(b) >> (a & 31)); }),
          one("v_bfe_u32 v10, v1, v2, v3",
              [](u a, u b, u c) { return (a >> (b & 31)) & ((1u << (c & 31)) - 1); }),
          one("v_bfe_i32 v10, v1, 5, 9",
              [](u a, u, u) { return static_cast<u>(i32(a << 18) >> 23); }),
          one("v_bfi_b32 v10, v1, v2, v3", [](u a, u b, u c) { return (a & b) | (~a & c); }),
          one("v_bfm_b32 v10, 5, 3", [](u, u, u) { return 31u << 3; }),
          one("v_alignbit_b32 v10, v1, v2, v3",
              [](u a, u b, u c) { return static_cast<u>((u64{a} << 32 | b) >> (c & 31)); }),
          one("v_alignbyte_b32 v10, v1, v2, 3",
              [](u a, u b, u) { return static_cast<u>((u64{a} << 32 | b) >> 24); }),
          one("v_lshl_or_b32 v10, v1, v2, v3", [](u a, u b, u c) { return a << (b & 31) | c; }),
          one("v_and_or_b32 v10, v1, v2, v3", [](u a, u b, u c) { return (a & b) | c; }),
          one("v_or3_b32 v10, v1, v2, v3", [](u a, u b, u c) { return a | b | c; }),
          one("v_bfrev_b32 v10, v1",
              [](u a, u, u) {
                u r = 0;
                for (int k = 0; k < 32; ++k) r = r << 1 | ((a >> k) & 1);
                return r;
              }),
          one("v_ffbh_u32 v10, v1",
              [](u a, u, u) { return a ? static_cast<u>(std::countl_zero(a)) : ~0u; }),
          one("v_ffbl_b32 v10, v1",
              [](u a, u, u) { return a ? static_cast<u>(std::countr_zero(a)) : ~0u; }),
          one("v_ffbh_i32 v10, v1",
              [](u a, u, u) {
                if (a == 0 || a == ~0u) return ~0u;
                return static_cast<u>(a >> 31 ? std::countl_one(a) : std::countl_zero(a));
              }),
          one("v_bcnt_u32_b32 v10, v1, v2",
              [](u a, u b, u) { return static_cast<u>(std::popcount(a)) + b; }),
          one("v_perm_b32 v10, v1, v2, v3\n  v_mov_b32 v3, 0x0c040d03\n"
              "  v_perm_b32 v10, v1, v2, v3",
              [](u a, u b, u) { return b >> 24 | 0xff00u | (a & 255) << 16; }),
          one("v_mov_b32 v3, 0x08090a0b\n  v_perm_b32 v10, v1, v2, v3",
              [](u a, u b, u) {
                const auto sign = [](u x, int bit) { return x >> bit & 1 ? 255u : 0u; };
                return sign(a, 31) | sign(a, 15) << 8 | sign(b, 31) << 16 | sign(b, 15) << 24;
              }),
          one("v_cvt_pk_u16_u32 v10, v1, v2",
              [](u a, u b, u) { return std::min(a, 65535u) | std::min(b, 65535u) << 16; }),
          one("v_cvt_pk_i16_i32 v10, v1, v2",
              [](u a, u b, u) {
                return (static_cast<u>(std::clamp(i32(a), -32768, 32767)) & 0xffff) |
                       static_cast<u>(std::clamp(i32(b), -32768, 32767)) << 16;
              }),
          one("v_mov_b32 v10, v1\n  v_swap_b32 v10, v2\n  v_add_u32 v10, v10, v2",
              [](u a, u b, u) { return a + b; }),
      },
      input_kind::integers);
}

TEST_CASE("vector instructions on 64 bits", "[integer]") {
  check_rows(
      {
          pair("v_mov_b64 v[10:11], v[2:3]\n  v_mov_b64 v[10:11], v[4:5]\n"
               "  v_lshl_add_u64 v[10:11], v[2:3], 0, v[4:5]\n"
               "  v_mov_b32 v10, v1\n  v_mov_b32 v11, v2",
               [](u64 a, u64, u64) { return a; }),
          pair("v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n  v_mov_b32 v32, v3\n"
               "  v_mov_b32 v33, v4\n  v_lshl_add_u64 v[10:11], v[30:31], 3, v[32:33]",
               [](u64 a, u64 b, u64) { return (a << 3) + b; }),
          pair("v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n  v_lshlrev_b64 v[10:11], v3, v[30:31]",
               [](u64 a, u64 b, u64) { return a << (b & 63); }),
          pair("v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n  v_lshrrev_b64 v[10:11], v3, v[30:31]",
               [](u64 a, u64 b, u64) { return a >> (b & 63); }),
          pair("v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n  v_ashrrev_i64 v[10:11], v3, v[30:31]",
               [](u64 a, u64 b, u64) { return static_cast<u64>(static_cast<i64>(a) >> (b & 63)); }),
          pair("v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n"
               "  v_mad_u64_u32 v[10:11], s[30:31], v3, v4, v[30:31]",
               [](u64 a, u64 b, u64) { return (b & 0xffffffff) * (b >> 32) + a; }),
          pair("v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n"
               "  v_mad_i64_i32 v[10:11], s[30:31], v3, v4, v[30:31]",
               [](u64 a, u64 b, u64) {
                 return static_cast<u64>(i64{i32(static_cast<u>(b))} *
                                         i32(static_cast<u>(b >> 32))) +
                        a;
               }),
          pair("v_add_co_u32 v10, vcc, v1, v3\n  s_nop 1\n"
               "  v_addc_co_u32 v11, vcc, v2, v4, vcc",
               [](u64 a, u64 b, u64) { return a + b; }),
          pair("v_sub_co_u32 v10, s[30:31], v1, v3\n  s_nop 1\n"
               "  v_subb_co_u32 v11, s[30:31], v2, v4, s[30:31]",
               [](u64 a, u64 b, u64) { return a - b; }),
          pair("v_subrev_co_u32 v10, vcc, v1, v3\n  s_nop 1\n"
               "  v_subbrev_co_u32 v11, vcc, v2, v4, vcc",
               [](u64 a, u64 b, u64) { return b - a; }),
          pair("v_mov_b64 v[10:11], s[16:17]\n  v_mov_b64 v[10:11], -2",
               [](u64, u64, u64) { return ~u64{1}; }),
      },
      input_kind::integers);
}

TEST_CASE("sub-dword addressing", "[integer]") {
  check_rows(
      {
          one("v_add_u32_sdwa v10, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 "
              "src1_sel:WORD_1",
              [](u a, u b, u) { return ((a >> 8) & 255) + (b >> 16); }),
          one("v_add_u32_sdwa v10, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD "
              "src0_sel:BYTE_3 src1_sel:DWORD",
              [](u a, u b, u) { return static_cast<u>(i8(a >> 24)) + b; }),
          one("v_and_b32_sdwa v10, v1, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PAD src0_sel:DWORD "
              "src1_sel:DWORD",
              [](u a, u b, u) { return (a & b & 255) << 16; }),
          one("v_or_b32_sdwa v10, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE "
              "src0_sel:WORD_0 src1_sel:WORD_1",
              [](u a, u b, u) { return (preset[0] & 0xffff) | ((a & 0xffff) | b >> 16) << 16; }),
          one("v_mov_b32_sdwa v10, v1 dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:WORD_1",
              [](u a, u, u) { return static_cast<u>(i16(a >> 16)); }),
          one("v_lshlrev_b32_sdwa v10, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD "
              "src1_sel:BYTE_0",
              [](u a, u b, u) { return (b & 255) << (a & 31); }),
      },
      input_kind::integers);
}

TEST_CASE("integer compares and selection", "[integer]") {
  static std::vector<std::string>& texts = *new std::vector<std::string>;
  texts.reserve(100);
  std::vector<row> rows;
  const auto add = [&](const std::string& text, std::function<bool(u, u)> f) {
    texts.push_back(text + mask_to_v10());
    rows.push_back(one(texts.back().c_str(), [f](u a, u b, u) { return f(a, b) ? 1u : 0u; }));
  };
  add("v_cmp_lt_u32 s[30:31], v1, v2", [](u a, u b) { return a < b; });
  add("v_cmp_le_u32 s[30:31], v1, v2", [](u a, u b) { return a <= b; });
  add("v_cmp_eq_u32 s[30:31], v1, v2", [](u a, u b) { return a == b; });
  add("v_cmp_ne_u32 s[30:31], v1, v2", [](u a, u b) { return a != b; });
  add("v_cmp_gt_u32 s[30:31], v1, v2", [](u a, u b) { return a > b; });
  add("v_cmp_ge_u32 s[30:31], v1, v2", [](u a, u b) { return a >= b; });
  add("v_cmp_lt_i32 s[30:31], v1, v2", [](u a, u b) { return i32(a) < i32(b); });
  add("v_cmp_le_i32 s[30:31], v1, v2", [](u a, u b) { return i32(a) <= i32(b); });
  add("v_cmp_gt_i32 s[30:31], v1, v2", [](u a, u b) { return i32(a) > i32(b); });
  add("v_cmp_ge_i32 s[30:31], 0, v2", [](u, u b) { return 0 >= i32(b); });
  add("v_cmp_gt_u16 s[30:31], v1, v2", [](u a, u b) { return (a & 0xffff) > (b & 0xffff); });
  add("v_cmp_lt_i16 s[30:31], v1, v2", [](u a, u b) { return i16(a) < i16(b); });
  add("v_cmp_eq_u32_sdwa s[30:31], v1, v2 src0_sel:BYTE_0 src1_sel:BYTE_0",
      [](u a, u b) { return (a & 255) == (b & 255); });
  add("v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n  v_mov_b32 v32, v2\n  v_mov_b32 v33, v2\n"
      "  v_cmp_gt_u64 s[30:31], v[30:31], v[32:33]",
      [](u a, u b) { return (u64{b} << 32 | a) > (u64{b} << 32 | b); });
  add("v_mov_b32 v30, v1\n  v_mov_b32 v31, v2\n  v_cmp_lt_i64 s[30:31], v[30:31], 0",
      [](u, u b) { return i32(b) < 0; });
  add("v_cmpx_lt_u32 exec, v1, v2\n  s_mov_b64 s[30:31], exec\n  s_mov_b64 exec, -1",
      [](u a, u b) { return a < b; });
  add("v_cmp_lt_u32 vcc, v1, v2\n  s_mov_b64 s[30:31], vcc", [](u a, u b) { return a < b; });
  check_rows(rows, input_kind::integers);

  check_rows({one("v_cmp_lt_u32 vcc, v1, v2\n  s_nop 1\n  v_cndmask_b32 v10, v1, v2, vcc",
                  [](u a, u b, u) { return a < b ? b : a; })},
             input_kind::integers);

  // Lanes that are off keep their value and do not take part in a compare.
  check_rows({{"s_mov_b64 exec, 0xff\n  v_cmp_ge_u32 s[30:31], v1, v1\n  v_mov_b32 v10, 5\n"
               "  s_mov_b64 exec, -1\n  v_mov_b32 v11, s30\n  v_mov_b32 v12, s31",
               [](const inputs&, int l, u* out) {
                 if (l < 8) out[0] = 5;
                 out[1] = 0xff;
                 out[2] = 0;
               }}},
             input_kind::integers);
}
