// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Movement between lanes: DPP, swizzle, permutes, lane reads and writes.

#include <bit>

#include "assembly.hpp"
#include "catch_any.hpp"

using namespace emulator_test;

namespace {

using u = uint32_t;

// v_mov_b32_dpp from v1 into v10; source(lane) < 0: no lane to read from.
row dpp(const char* text, std::function<int(int)> source, bool zero_when_invalid = false) {
  return {text, [=](const inputs& in, int l, u* out) {
            const int from = source(l);
            if (from >= 0) {
              out[0] = in.v[1][from];
            } else if (zero_when_invalid) {
              out[0] = 0;
            }
          }};
}

}  // namespace

TEST_CASE("data-parallel primitives", "[lanes]") {
  check_rows(
      {
          dpp("v_mov_b32_dpp v10, v1 quad_perm:[3,0,2,1] row_mask:0xf bank_mask:0xf",
              [](int l) {
                const int q[] = {3, 0, 2, 1};
                return l / 4 * 4 + q[l % 4];
              }),
          dpp("v_mov_b32_dpp v10, v1 row_shl:3 row_mask:0xf bank_mask:0xf",
              [](int l) { return l % 16 + 3 < 16 ? l + 3 : -1; }),
          dpp("v_mov_b32_dpp v10, v1 row_shr:1 row_mask:0xf bank_mask:0xf",
              [](int l) { return l % 16 >= 1 ? l - 1 : -1; }),
          dpp(
              "v_mov_b32_dpp v10, v1 row_shr:8 row_mask:0xf bank_mask:0xf bound_ctrl:0",
              [](int l) { return l % 16 >= 8 ? l - 8 : -1; }, true),
          dpp("v_mov_b32_dpp v10, v1 row_ror:4 row_mask:0xf bank_mask:0xf",
              [](int l) { return l / 16 * 16 + (l + 12) % 16; }),
          dpp("v_mov_b32_dpp v10, v1 row_mirror row_mask:0xf bank_mask:0xf",
              [](int l) { return l / 16 * 16 + 15 - l % 16; }),
          dpp("v_mov_b32_dpp v10, v1 row_half_mirror row_mask:0xf bank_mask:0xf",
              [](int l) { return l / 8 * 8 + 7 - l % 8; }),
          dpp("v_mov_b32_dpp v10, v1 row_bcast:15 row_mask:0xf bank_mask:0xf",
              [](int l) { return l < 16 ? -1 : l / 16 * 16 - 1; }),
          dpp("v_mov_b32_dpp v10, v1 row_bcast:15 row_mask:0xa bank_mask:0xf",
              [](int l) { return l / 16 % 2 ? l / 16 * 16 - 1 : -1; }),
          dpp("v_mov_b32_dpp v10, v1 row_bcast:31 row_mask:0xc bank_mask:0xf",
              [](int l) { return l < 32 ? -1 : 31; }),
          dpp("v_mov_b32_dpp v10, v1 row_newbcast:5 row_mask:0xf bank_mask:0xf",
              [](int l) { return l / 16 * 16 + 5; }),
          dpp("v_mov_b32_dpp v10, v1 wave_shr:1 row_mask:0xf bank_mask:0xf",
              [](int l) { return l - 1; }),
          dpp("v_mov_b32_dpp v10, v1 wave_ror:1 row_mask:0xf bank_mask:0xf",
              [](int l) { return (l + 63) % 64; }),
          dpp("v_mov_b32_dpp v10, v1 row_mirror row_mask:0xf bank_mask:0x3",
              [](int l) { return l / 4 % 4 < 2 ? l / 16 * 16 + 15 - l % 16 : -1; }),
          {"v_add_f32_dpp v10, v1, v2 row_shr:4 row_mask:0xf bank_mask:0xf bound_ctrl:0",
           [](const inputs& in, int l, u* out) {
             out[0] = u32((l % 16 >= 4 ? f32(in.v[1][l - 4]) : 0.0f) + f32(in.v[2][l]));
           }},
          {"v_max_f32_dpp v10, -v1, v2 row_ror:8 row_mask:0xf bank_mask:0xf",
           [](const inputs& in, int l, u* out) {
             out[0] = u32(std::fmax(-f32(in.v[1][l / 16 * 16 + (l + 8) % 16]), f32(in.v[2][l])));
           }},
          // A lane that is off is no source.
          {"s_mov_b32 exec_lo, 0xfffffffe\n"
           "  v_mov_b32_dpp v10, v1 row_shr:1 row_mask:0xf bank_mask:0xf",
           [](const inputs& in, int l, u* out) {
             if (l % 16 >= 1 && l > 1) out[0] = in.v[1][l - 1];
           }},
      },
      input_kind::small_floats, compare::f32);
}

TEST_CASE("swizzles and permutes", "[lanes]") {
  const auto swizzle = [](const char* text, std::function<int(int)> source) {
    return row{text, [=](const inputs& in, int l, u* out) { out[0] = in.v[1][source(l)]; }};
  };
  check_rows(
      {
          swizzle("ds_swizzle_b32 v10, v1 offset:swizzle(SWAP,1)", [](int l) { return l ^ 1; }),
          swizzle("ds_swizzle_b32 v10, v1 offset:swizzle(SWAP,16)", [](int l) { return l ^ 16; }),
          swizzle("ds_swizzle_b32 v10, v1 offset:swizzle(REVERSE,8)", [](int l) { return l ^ 7; }),
          swizzle("ds_swizzle_b32 v10, v1 offset:swizzle(BROADCAST,8,3)",
                  [](int l) { return l / 8 * 8 + 3; }),
          swizzle("ds_swizzle_b32 v10, v1 offset:swizzle(QUAD_PERM,1,0,3,2)",
                  [](int l) { return l ^ 1; }),
          swizzle("ds_swizzle_b32 v10, v1 offset:swizzle(BITMASK_PERM,\"01pip\")",
                  [](int l) { return (l & 32) | (((l & 7) | 8) ^ 2); }),
          {"v_lshlrev_b32 v30, 2, v2\n  ds_bpermute_b32 v10, v30, v1",
           [](const inputs& in, int l, u* out) { out[0] = in.v[1][in.v[2][l] & 63]; }},
          {"v_xor_b32 v30, 63, v0\n  v_lshlrev_b32 v30, 2, v30\n"
           "  ds_permute_b32 v10, v30, v1",
           [](const inputs& in, int l, u* out) { out[0] = in.v[1][63 - l]; }},
          {"v_lshlrev_b32 v30, 2, v0\n  ds_bpermute_b32 v10, v30, v1 offset:8",
           [](const inputs& in, int l, u* out) { out[0] = in.v[1][(l + 2) % 64]; }},
          // Lanes that are off supply zero.
          {"v_lshrrev_b32 v31, 1, v0\n  v_lshlrev_b32 v30, 2, v0\n  v_xor_b32 v30, 4, v30\n"
           "  s_mov_b32 s30, 0x55555555\n  s_mov_b32 s31, s30\n  s_mov_b64 exec, s[30:31]\n"
           "  ds_bpermute_b32 v10, v30, v1",
           [](const inputs&, int l, u* out) {
             if (l % 2 == 0) out[0] = 0;
           }},
      },
      input_kind::integers);
}

TEST_CASE("lanes and scalar registers", "[lanes]") {
  check_rows(
      {
          {"v_readlane_b32 s30, v1, 5\n  v_mov_b32 v10, s30",
           [](const inputs& in, int, u* out) { out[0] = in.v[1][5]; }},
          {"s_and_b32 s31, s16, 63\n  v_readlane_b32 s30, v1, s31\n  v_mov_b32 v10, s30",
           [](const inputs& in, int, u* out) { out[0] = in.v[1][in.s[16] & 63]; }},
          {"v_readfirstlane_b32 s30, v1\n  v_mov_b32 v10, s30",
           [](const inputs& in, int, u* out) { out[0] = in.v[1][0]; }},
          {"s_mov_b64 exec, 0xf0\n  v_readfirstlane_b32 s30, v1\n  s_mov_b64 exec, -1\n"
           "  v_mov_b32 v10, s30",
           [](const inputs& in, int, u* out) { out[0] = in.v[1][4]; }},
          {"v_writelane_b32 v10, s16, 9\n  v_writelane_b32 v10, 7, 63",
           [](const inputs& in, int l, u* out) {
             if (l == 9) out[0] = in.s[16];
             if (l == 63) out[0] = 7;
           }},
          {"v_mbcnt_lo_u32_b32 v10, s16, 0\n  v_mbcnt_hi_u32_b32 v10, s17, v10",
           [](const inputs& in, int l, u* out) {
             const uint64_t mask = in.s[16] | static_cast<uint64_t>(in.s[17]) << 32;
             const uint64_t below = (uint64_t{1} << l) - 1;
             out[0] = static_cast<u>(std::popcount(mask & below));
           }},
          {"v_mbcnt_lo_u32_b32 v10, -1, v2\n  v_mbcnt_hi_u32_b32 v10, -1, v10",
           [](const inputs& in, int l, u* out) { out[0] = in.v[2][l] + static_cast<u>(l); }},
      },
      input_kind::integers);
}
