// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Scalar instructions. The results travel to v10 and v11, the condition code to v13.

#include <algorithm>
#include <bit>

#include "assembly.hpp"
#include "catch_any.hpp"

using namespace emulator_test;

namespace {

using u64 = uint64_t;
using i64 = int64_t;

// s_INSTRUCTION with result s30 and condition code.
row narrow(const char* text, std::function<uint32_t(uint32_t, uint32_t, int*)> f) {
  static std::vector<std::string>& texts = *new std::vector<std::string>;
  texts.reserve(1000);
  texts.push_back(std::string("s_cmp_eq_u32 s16, s16\n  s_mov_b32 s30, s18\n  ") + text +
                  "\n  s_cselect_b32 s31, 1, 0\n  v_mov_b32 v10, s30\n  v_mov_b32 v13, s31");
  return {texts.back().c_str(), [f](const inputs& in, int, uint32_t* out) {
            int scc = 1;
            out[0] = f(in.s[16], in.s[17], &scc);
            out[3] = static_cast<uint32_t>(scc);
          }};
}

row wide(const char* text, std::function<u64(u64, u64, int*)> f) {
  static std::vector<std::string>& texts = *new std::vector<std::string>;
  texts.reserve(1000);
  texts.push_back(std::string("s_cmp_eq_u32 s16, s16\n  s_mov_b64 s[30:31], s[20:21]\n  ") + text +
                  "\n  s_cselect_b32 s32, 1, 0\n  v_mov_b32 v10, s30\n  v_mov_b32 v11, s31\n"
                  "  v_mov_b32 v13, s32");
  return {texts.back().c_str(), [f](const inputs& in, int, uint32_t* out) {
            int scc = 1;
            const u64 a = in.s[16] | static_cast<u64>(in.s[17]) << 32;
            const u64 b = in.s[18] | static_cast<u64>(in.s[19]) << 32;
            const u64 r = f(a, b, &scc);
            out[0] = static_cast<uint32_t>(r);
            out[1] = static_cast<uint32_t>(r >> 32);
            out[3] = static_cast<uint32_t>(scc);
          }};
}

template <class T>
T flag(T value, int* scc) {
  *scc = value != 0;
  return value;
}

int32_t i32(uint32_t x) { return static_cast<int32_t>(x); }

}  // namespace

TEST_CASE("scalar arithmetic on 32 bits", "[scalar]") {
  using u = uint32_t;
  check_rows(
      {
          narrow("s_mov_b32 s30, s16", [](u a, u, int*) { return a; }),
          narrow("s_mov_b32 s30, 0x12345678", [](u, u, int*) { return 0x12345678u; }),
          narrow("s_mov_b32 s30, -5", [](u, u, int*) { return 0u - 5; }),
          narrow("s_mov_b32 s30, 0.5", [](u, u, int*) { return 0x3f000000u; }),
          narrow("s_movk_i32 s30, 0x8001", [](u, u, int*) { return 0xffff8001u; }),
          narrow("s_add_u32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = a + b < a;
                   return a + b;
                 }),
          narrow("s_addc_u32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = (u64{a} + b + 1) >> 32 != 0;
                   return a + b + 1;
                 }),
          narrow("s_sub_u32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = a < b;
                   return a - b;
                 }),
          narrow("s_subb_u32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = u64{a} < u64{b} + 1;
                   return a - b - 1;
                 }),
          narrow("s_add_i32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = i64{i32(a)} + i32(b) != i64{i32(a + b)};
                   return a + b;
                 }),
          narrow("s_sub_i32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = i64{i32(a)} - i32(b) != i64{i32(a - b)};
                   return a - b;
                 }),
          narrow("s_mov_b32 s30, s16\n  s_addk_i32 s30, 0x7fff",
                 [](u a, u, int* c) {
                   *c = i64{i32(a)} + 0x7fff > INT32_MAX;
                   return a + 0x7fff;
                 }),
          narrow("s_mov_b32 s30, s16\n  s_mulk_i32 s30, 0x8003",
                 [](u a, u, int*) { return a * 0xffff8003u; }),
          narrow("s_mul_i32 s30, s16, s17", [](u a, u b, int*) { return a * b; }),
          narrow("s_mul_hi_u32 s30, s16, s17",
                 [](u a, u b, int*) { return static_cast<u>(u64{a} * b >> 32); }),
          narrow("s_mul_hi_i32 s30, s16, s17",
                 [](u a, u b, int*) { return static_cast<u>(i64{i32(a)} * i32(b) >> 32); }),
          narrow("s_min_i32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = i32(a) < i32(b);
                   return static_cast<u>(std::min(i32(a), i32(b)));
                 }),
          narrow("s_max_u32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = a > b;
                   return std::max(a, b);
                 }),
          narrow("s_min_u32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = a < b;
                   return std::min(a, b);
                 }),
          narrow("s_max_i32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = i32(a) > i32(b);
                   return static_cast<u>(std::max(i32(a), i32(b)));
                 }),
          narrow("s_lshl1_add_u32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = (u64{a} * 2 + b) >> 32 != 0;
                   return a * 2 + b;
                 }),
          narrow("s_lshl4_add_u32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   *c = (u64{a} * 16 + b) >> 32 != 0;
                   return a * 16 + b;
                 }),
          narrow("s_absdiff_i32 s30, s16, s17",
                 [](u a, u b, int* c) {
                   const u d = a - b;
                   return flag(d >> 31 ? 0 - d : d, c);
                 }),
          narrow("s_abs_i32 s30, s16", [](u a, u, int* c) { return flag(a >> 31 ? 0 - a : a, c); }),
          narrow("s_cselect_b32 s30, s16, s17", [](u a, u, int*) { return a; }),
          narrow("s_cmp_lg_u32 s16, s16\n  s_cselect_b32 s30, s16, s17",
                 [](u, u b, int* c) {
                   *c = 0;
                   return b;
                 }),
          narrow("s_cmov_b32 s30, s16", [](u a, u, int*) { return a; }),
          narrow("s_cmovk_i32 s30, 0xfff0", [](u, u, int*) { return 0xfffffff0u; }),
      },
      input_kind::integers);
}

TEST_CASE("scalar bits on 32 bits", "[scalar]") {
  using u = uint32_t;
  check_rows(
      {
          narrow("s_and_b32 s30, s16, s17", [](u a, u b, int* c) { return flag(a & b, c); }),
          narrow("s_or_b32 s30, s16, s17", [](u a, u b, int* c) { return flag(a | b, c); }),
          narrow("s_xor_b32 s30, s16, s16", [](u, u, int* c) { return flag(0u, c); }),
          narrow("s_andn2_b32 s30, s16, s17", [](u a, u b, int* c) { return flag(a & ~b, c); }),
          narrow("s_orn2_b32 s30, s16, s17", [](u a, u b, int* c) { return flag(a | ~b, c); }),
          narrow("s_nand_b32 s30, s16, s17", [](u a, u b, int* c) { return flag(~(a & b), c); }),
          narrow("s_nor_b32 s30, s16, s17", [](u a, u b, int* c) { return flag(~(a | b), c); }),
          narrow("s_xnor_b32 s30, s16, s17", [](u a, u b, int* c) { return flag(~(a ^ b), c); }),
          narrow("s_not_b32 s30, s16", [](u a, u, int* c) { return flag(~a, c); }),
          narrow("s_lshl_b32 s30, s16, s17",
                 [](u a, u b, int* c) { return flag(a << (b & 31), c); }),
          narrow("s_lshr_b32 s30, s16, s17",
                 [](u a, u b, int* c) { return flag(a >> (b & 31), c); }),
          narrow("s_ashr_i32 s30, s16, s17",
                 [](u a, u b, int* c) { return flag(static_cast<u>(i32(a) >> (b & 31)), c); }),
          narrow("s_bfm_b32 s30, 7, 9", [](u, u, int*) { return 0x7fu << 9; }),
          narrow("s_bfe_u32 s30, s16, 0x90005",
                 [](u a, u, int* c) { return flag((a >> 5) & 0x1ff, c); }),
          narrow("s_bfe_i32 s30, s16, 0x90005",
                 [](u a, u, int* c) { return flag(static_cast<u>(i32(a << 18) >> 23), c); }),
          narrow("s_bfe_u32 s30, s16, 0x200000", [](u a, u, int* c) { return flag(a, c); }),
          narrow("s_bfe_i32 s30, s16, 0", [](u, u, int* c) { return flag(0u, c); }),
          narrow("s_brev_b32 s30, s16",
                 [](u a, u, int*) {
                   u r = 0;
                   for (int k = 0; k < 32; ++k) r = r << 1 | ((a >> k) & 1);
                   return r;
                 }),
          narrow("s_bcnt1_i32_b32 s30, s16",
                 [](u a, u, int* c) { return flag(static_cast<u>(std::popcount(a)), c); }),
          narrow("s_bcnt0_i32_b32 s30, s16",
                 [](u a, u, int* c) { return flag(static_cast<u>(32 - std::popcount(a)), c); }),
          narrow("s_ff1_i32_b32 s30, s16",
                 [](u a, u, int*) { return a ? static_cast<u>(std::countr_zero(a)) : ~0u; }),
          narrow("s_ff1_i32_b32 s30, 0", [](u, u, int*) { return ~0u; }),
          narrow("s_ff0_i32_b32 s30, s16",
                 [](u a, u, int*) { return static_cast<u>(std::countr_one(a)); }),
          narrow("s_flbit_i32_b32 s30, s16",
                 [](u a, u, int*) { return static_cast<u>(std::countl_zero(a)); }),
          narrow("s_flbit_i32_b32 s30, 0", [](u, u, int*) { return ~0u; }),
          narrow("s_flbit_i32 s30, s16",
                 [](u a, u, int*) {
                   return static_cast<u>(a >> 31 ? std::countl_one(a) : std::countl_zero(a));
                 }),
          narrow("s_flbit_i32 s30, -1", [](u, u, int*) { return ~0u; }),
          narrow("s_sext_i32_i8 s30, s16",
                 [](u a, u, int*) { return static_cast<u>(i32(a << 24) >> 24); }),
          narrow("s_sext_i32_i16 s30, s16",
                 [](u a, u, int*) { return static_cast<u>(i32(a << 16) >> 16); }),
          narrow("s_pack_ll_b32_b16 s30, s16, s17",
                 [](u a, u b, int*) { return (a & 0xffff) | b << 16; }),
          narrow("s_pack_lh_b32_b16 s30, s16, s17",
                 [](u a, u b, int*) { return (a & 0xffff) | (b & 0xffff0000u); }),
          narrow("s_pack_hh_b32_b16 s30, s16, s17",
                 [](u a, u b, int*) { return a >> 16 | (b & 0xffff0000u); }),
          narrow("s_mov_b32 s30, s16\n  s_bitset1_b32 s30, s17",
                 [](u a, u b, int*) { return a | 1u << (b & 31); }),
          narrow("s_mov_b32 s30, s16\n  s_bitset0_b32 s30, 3",
                 [](u a, u, int*) { return a & ~8u; }),
      },
      input_kind::integers);
}

TEST_CASE("scalar instructions on 64 bits", "[scalar]") {
  check_rows(
      {
          wide("s_mov_b64 s[30:31], s[16:17]", [](u64 a, u64, int*) { return a; }),
          wide("s_mov_b64 s[30:31], -1", [](u64, u64, int*) { return ~u64{0}; }),
          wide("s_and_b64 s[30:31], s[16:17], s[18:19]",
               [](u64 a, u64 b, int* c) { return flag(a & b, c); }),
          wide("s_or_b64 s[30:31], s[16:17], s[18:19]",
               [](u64 a, u64 b, int* c) { return flag(a | b, c); }),
          wide("s_xor_b64 s[30:31], s[16:17], s[18:19]",
               [](u64 a, u64 b, int* c) { return flag(a ^ b, c); }),
          wide("s_andn2_b64 s[30:31], s[16:17], s[18:19]",
               [](u64 a, u64 b, int* c) { return flag(a & ~b, c); }),
          wide("s_orn2_b64 s[30:31], s[16:17], s[18:19]",
               [](u64 a, u64 b, int* c) { return flag(a | ~b, c); }),
          wide("s_nand_b64 s[30:31], s[16:17], s[18:19]",
               [](u64 a, u64 b, int* c) { return flag(~(a & b), c); }),
          wide("s_nor_b64 s[30:31], s[16:17], s[18:19]",
               [](u64 a, u64 b, int* c) { return flag(~(a | b), c); }),
          wide("s_xnor_b64 s[30:31], s[16:17], s[18:19]",
               [](u64 a, u64 b, int* c) { return flag(~(a ^ b), c); }),
          wide("s_not_b64 s[30:31], s[16:17]", [](u64 a, u64, int* c) { return flag(~a, c); }),
          wide("s_lshl_b64 s[30:31], s[16:17], s18",
               [](u64 a, u64 b, int* c) { return flag(a << (b & 63), c); }),
          wide("s_lshr_b64 s[30:31], s[16:17], s18",
               [](u64 a, u64 b, int* c) { return flag(a >> (b & 63), c); }),
          wide("s_ashr_i64 s[30:31], s[16:17], s18",
               [](u64 a, u64 b, int* c) {
                 return flag(static_cast<u64>(static_cast<i64>(a) >> (b & 63)), c);
               }),
          wide("s_bfe_u64 s[30:31], s[16:17], 0x230005",
               [](u64 a, u64, int* c) { return flag((a >> 5) & 0x7ffffffffull, c); }),
          wide("s_bfe_i64 s[30:31], s[16:17], 0x230005",
               [](u64 a, u64, int* c) {
                 return flag(static_cast<u64>(static_cast<i64>(a << 24) >> 29), c);
               }),
          wide("s_bfm_b64 s[30:31], 40, 10",
               [](u64, u64, int*) { return ((u64{1} << 40) - 1) << 10; }),
          wide("s_cselect_b64 s[30:31], s[16:17], s[18:19]", [](u64 a, u64, int*) { return a; }),
          wide("s_cmov_b64 s[30:31], s[16:17]", [](u64 a, u64, int*) { return a; }),
          wide("s_brev_b64 s[30:31], s[16:17]",
               [](u64 a, u64, int*) {
                 u64 r = 0;
                 for (int k = 0; k < 64; ++k) r = r << 1 | ((a >> k) & 1);
                 return r;
               }),
          wide("s_wqm_b64 s[30:31], s[16:17]",
               [](u64 a, u64, int* c) {
                 u64 r = 0;
                 for (int k = 0; k < 64; ++k) r |= ((a >> (k & ~3)) & 15 ? u64{1} : 0) << k;
                 return flag(r, c);
               }),
          wide("s_mov_b32 s31, 0\n  s_bcnt1_i32_b64 s30, s[16:17]",
               [](u64 a, u64, int* c) { return flag(static_cast<u64>(std::popcount(a)), c); }),
          wide("s_mov_b32 s31, 0\n  s_ff1_i32_b64 s30, s[16:17]",
               [](u64 a, u64, int*) { return static_cast<u64>(std::countr_zero(a)); }),
          wide("s_mov_b32 s31, 0\n  s_flbit_i32_b64 s30, s[16:17]",
               [](u64 a, u64, int*) { return static_cast<u64>(std::countl_zero(a)); }),
          wide("s_mov_b32 s31, 0\n  s_flbit_i32_i64 s30, s[16:17]",
               [](u64 a, u64, int*) {
                 return static_cast<u64>(a >> 63 ? std::countl_one(a) : std::countl_zero(a));
               }),
          wide("s_mov_b64 s[30:31], s[16:17]\n  s_bitset1_b64 s[30:31], 45",
               [](u64 a, u64, int*) { return a | u64{1} << 45; }),
          wide("s_bitreplicate_b64_b32 s[30:31], s16",
               [](u64 a, u64, int*) {
                 u64 r = 0;
                 for (int k = 0; k < 64; ++k) r |= ((a >> (k / 2)) & 1) << k;
                 return r;
               }),
      },
      input_kind::integers);
}

TEST_CASE("scalar compares", "[scalar]") {
  using u = uint32_t;
  const auto compares = [](const char* text, std::function<bool(u, u)> f) {
    return narrow(text, [f](u a, u b, int* c) {
      *c = f(a, b);
      return a;
    });
  };
  std::vector<row> rows;
  static std::vector<std::string>& texts = *new std::vector<std::string>;
  texts.reserve(200);
  const auto add = [&](std::string text, std::function<bool(u, u)> f) {
    texts.push_back("s_mov_b32 s30, s16\n  " + text);
    rows.push_back(compares(texts.back().c_str(), f));
  };
  add("s_cmp_eq_i32 s16, s17", [](u a, u b) { return a == b; });
  add("s_cmp_lg_i32 s16, s17", [](u a, u b) { return a != b; });
  add("s_cmp_gt_i32 s16, s17", [](u a, u b) { return i32(a) > i32(b); });
  add("s_cmp_ge_i32 s16, s17", [](u a, u b) { return i32(a) >= i32(b); });
  add("s_cmp_lt_i32 s16, s17", [](u a, u b) { return i32(a) < i32(b); });
  add("s_cmp_le_i32 s16, s16", [](u, u) { return true; });
  add("s_cmp_gt_u32 s16, s17", [](u a, u b) { return a > b; });
  add("s_cmp_ge_u32 s16, s17", [](u a, u b) { return a >= b; });
  add("s_cmp_lt_u32 s16, s17", [](u a, u b) { return a < b; });
  add("s_cmp_le_u32 s16, s17", [](u a, u b) { return a <= b; });
  add("s_cmpk_gt_i32 s16, 0x8000", [](u a, u) { return i32(a) > -32768; });
  add("s_cmpk_lt_u32 s16, 0x8000", [](u a, u) { return a < 0x8000; });
  add("s_cmpk_lg_u32 s16, 0xffff", [](u a, u) { return a != 0xffff; });
  add("s_cmp_eq_u64 s[16:17], s[16:17]", [](u, u) { return true; });
  add("s_cmp_lg_u64 s[16:17], s[18:19]", [](u, u) { return true; });
  add("s_bitcmp1_b32 s16, s17", [](u a, u b) { return (a >> (b & 31)) & 1; });
  add("s_bitcmp0_b32 s16, 7", [](u a, u) { return !((a >> 7) & 1); });
  check_rows(rows, input_kind::integers);
}

TEST_CASE("branches, calls and EXEC", "[scalar]") {
  const auto even = [](const inputs&, int l, uint32_t* out) {
    if (l % 2 == 0) out[0] = 7;
  };
  check_rows(
      {
          {"s_mov_b32 s30, 0\nloop_a:\n  s_add_u32 s30, s30, 1\n  s_cmp_lt_u32 s30, 10\n"
           "  s_cbranch_scc1 loop_a\n  v_mov_b32 v10, s30",
           [](const inputs&, int, uint32_t* out) { out[0] = 10; }},
          {"s_branch over_b\n  v_mov_b32 v10, 1\nover_b:\n  v_mov_b32 v11, 2",
           [](const inputs&, int, uint32_t* out) { out[1] = 2; }},
          {"s_mov_b64 vcc, 0\n  s_cbranch_vccz over_c\n  v_mov_b32 v10, 1\nover_c:\n  s_nop 0",
           [](const inputs&, int, uint32_t*) {}},
          {"s_mov_b64 vcc, 4\n  s_cbranch_vccnz over_d\n  v_mov_b32 v10, 1\nover_d:\n  s_nop 0",
           [](const inputs&, int, uint32_t*) {}},
          {"s_mov_b64 exec, 0\n  s_cbranch_execz over_e\n  s_mov_b64 exec, -1\n"
           "  v_mov_b32 v10, 1\nover_e:\n  s_nop 0",
           [](const inputs&, int, uint32_t*) {}},
          {"s_getpc_b64 s[30:31]\n  s_add_u32 s30, s30, 16\n  s_addc_u32 s31, s31, 0\n"
           "  s_swappc_b64 s[34:35], s[30:31]\n  s_branch done_f\n  v_mov_b32 v10, 9\n"
           "  s_setpc_b64 s[34:35]\ndone_f:\n  v_mov_b32 v11, 3",
           [](const inputs&, int, uint32_t* out) {
             out[0] = 9;
             out[1] = 3;
           }},
          {"s_mov_b32 s30, 0x55555555\n  s_mov_b32 s31, s30\n"
           "  s_and_saveexec_b64 s[32:33], s[30:31]\n  v_mov_b32 v10, 7\n"
           "  s_mov_b64 exec, s[32:33]",
           even},
          {"s_mov_b32 s30, 0xaaaaaaaa\n  s_mov_b32 s31, s30\n"
           "  s_andn2_saveexec_b64 s[32:33], s[30:31]\n  s_mov_b64 exec, s[32:33]\n"
           "  s_xor_b64 exec, exec, s[30:31]\n  v_mov_b32 v10, 7",
           even},
          {"s_mov_b32 s30, 0x55555555\n  s_mov_b32 s31, s30\n  s_mov_b64 exec, 0\n"
           "  s_or_saveexec_b64 s[32:33], s[30:31]\n  v_mov_b32 v10, 7",
           even},
          {"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1\n"
           "  s_getreg_b32 s30, hwreg(HW_REG_MODE, 23, 1)\n  v_mov_b32 v10, s30",
           [](const inputs&, int, uint32_t* out) { out[0] = 1; }},
          {"s_mov_b32 s30, 2\n  s_set_gpr_idx_on s30, gpr_idx(SRC0)\n  v_mov_b32 v10, v1\n"
           "  s_set_gpr_idx_off\n  v_mov_b32 v11, v1",
           [](const inputs& in, int l, uint32_t* out) {
             out[0] = in.v[3][l];
             out[1] = in.v[1][l];
           }},
          {"s_mov_b32 s30, 3\n  s_set_gpr_idx_on s30, gpr_idx(DST)\n  v_mov_b32 v10, v2\n"
           "  s_set_gpr_idx_off",
           [](const inputs& in, int l, uint32_t* out) { out[3] = in.v[2][l]; }},
      },
      input_kind::integers);
}
