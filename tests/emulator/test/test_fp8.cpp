// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The 8-bit floats, by a table of every value and by nearest neighbours in it.

#include <algorithm>

#include "assembly.hpp"
#include "catch_any.hpp"
#include "emulator.h"

using namespace emulator_test;

namespace {

// Values from the definition, without the emulator's own decoder.
double value_of(int byte, bool e5m2, bool ocp) {
  const int mantissa_bits = e5m2 ? 2 : 3;
  const int bias = (e5m2 ? 15 : 7) + (ocp ? 0 : 1);
  const int exponent = (byte & 0x7f) >> mantissa_bits;
  const int mantissa = byte & ((1 << mantissa_bits) - 1);
  const double sign = byte & 0x80 ? -1 : 1;
  if (!ocp && byte == 0x80) return NAN;
  if (ocp && !e5m2 && (byte & 0x7f) == 0x7f) return NAN;
  if (ocp && e5m2 && exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * mantissa * std::exp2(1 - bias - mantissa_bits);
  return sign * (1 + mantissa / std::exp2(mantissa_bits)) * std::exp2(exponent - bias);
}

// Nearest, ties to the even code; beyond the midpoint above the largest: overflow.
int nearest_code(double x, bool e5m2, bool ocp, bool saturate) {
  const bool negative = std::signbit(x);
  const int sign = negative ? 0x80 : 0;
  const int largest = ocp ? (e5m2 ? 0x7b : 0x7e) : 0x7f;
  const int overflow = ocp ? (e5m2 ? 0x7c : 0x7f) | sign : 0x80;
  if (std::isnan(x)) return ocp ? 0x7f | sign : 0x80;
  const double a = std::abs(x);
  const double top = value_of(largest, e5m2, ocp);
  const double step = top - value_of(largest - 1, e5m2, ocp);
  // At the midpoint the next code up is even exactly when the largest one is odd.
  const bool tie_overflows = largest & 1;
  if (a > top + step / 2 || (a == top + step / 2 && tie_overflows)) {
    return saturate ? largest | sign : overflow;
  }
  int best = 0;
  for (int code = 1; code <= largest; ++code) {
    const double d = std::abs(value_of(code, e5m2, ocp) - a);
    const double old = std::abs(value_of(best, e5m2, ocp) - a);
    if (d < old || (d == old && code % 2 == 0)) best = code;
  }
  if (best == 0) return ocp ? sign : 0;
  return best | sign;
}

struct mode {
  explicit mode(bool ocp) { kindex_emulator_set_fp8(ocp); }
  ~mode() { kindex_emulator_set_fp8(0); }
};

const char* const decode_body = R"(
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  v_lshlrev_b32 v3, 4, v0
  s_waitcnt vmcnt(0)
  v_cvt_f32_FORMAT_sdwa v4, v2 src0_sel:BYTE_0
  v_cvt_f32_FORMAT_sdwa v5, v2 src0_sel:BYTE_1
  v_cvt_f32_FORMAT_sdwa v6, v2 src0_sel:BYTE_2
  v_cvt_f32_FORMAT_sdwa v7, v2 src0_sel:BYTE_3
  global_store_dwordx4 v3, v[4:7], s[6:7]
  v_cvt_pk_f32_FORMAT_e32 v[4:5], v2
  v_cvt_pk_f32_FORMAT_sdwa v[6:7], v2 src0_sel:WORD_1
  global_store_dwordx4 v3, v[4:7], s[6:7] offset:1024
)";

// 32 bits in: the bits of a single. Out: four bytes by the two packed conversions.
const char* const encode_body = R"(
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_lshl_b32 s8, s2, 6
  v_add_u32 v0, s8, v0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  SETREG
  v_mov_b32 v3, 0
  s_waitcnt vmcnt(0)
  v_cvt_pk_FORMAT_f32 v3, v2, -v2
  v_cvt_pk_FORMAT_f32 v3, |v2|, v2 op_sel:[0,0,1]
  global_store_dword v1, v3, s[6:7]
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
  return text;
}

}  // namespace

TEST_CASE("all 256 bytes decode", "[fp8]") {
  assembly_module module(kernel_list{{"e4m3", replaced(decode_body, "FORMAT", "fp8")},
                                     {"e5m2", replaced(decode_body, "FORMAT", "bf8")}});
  buffer<uint8_t> in(256);
  for (int k = 0; k < 256; ++k) in[static_cast<size_t>(k)] = static_cast<uint8_t>(k);
  for (bool ocp : {false, true}) {
    const mode m(ocp);
    for (bool e5m2 : {false, true}) {
      buffer<float> out(512);
      REQUIRE(module.launch(e5m2 ? "e5m2" : "e4m3", {in.get(), out.get()}) == hipSuccess);
      for (int k = 0; k < 512; ++k) {
        INFO("byte " << k % 256 << " e5m2 " << e5m2 << " ocp " << ocp << " form " << k / 256);
        const double expected = value_of(k % 256, e5m2, ocp);
        const float got = out[static_cast<size_t>(k)];
        const bool same = std::isnan(expected)
                              ? std::isnan(got)
                              : got == expected && std::signbit(got) == std::signbit(expected);
        if (!same) CHECK(got == expected);
      }
    }
  }
}

TEST_CASE("all bf16 patterns and their neighbours encode", "[fp8]") {
  const std::string set = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1";
  std::vector<assembly_kernel> kernels;
  for (const char* format : {"fp8", "bf8"}) {
    const std::string body = replaced(encode_body, "FORMAT", format);
    kernels.push_back({std::string(format) + "_wrap", replaced(body, "SETREG", "")});
    kernels.push_back({std::string(format) + "_saturate", replaced(body, "SETREG", set)});
  }
  assembly_module module(kernels);
  // Every bf16, and the single just above it: values that are no ties.
  const size_t count = 2 * 65536;
  buffer<uint32_t> in(count);
  for (uint32_t k = 0; k < 65536; ++k) {
    in[2 * k] = k << 16;
    in[2 * k + 1] = k << 16 | 1;
  }
  for (bool ocp : {false, true}) {
    const mode m(ocp);
    for (bool e5m2 : {false, true}) {
      for (bool saturate : {false, true}) {
        buffer<uint32_t> out(count);
        const std::string name =
            std::string(e5m2 ? "bf8" : "fp8") + (saturate ? "_saturate" : "_wrap");
        REQUIRE(module.launch(name, {in.get(), out.get()}, count / 64) == hipSuccess);
        int wrong = 0;
        // All of bf16 in the format this project stores; a sample of the neighbours elsewhere.
        for (size_t k = 0; k < count; k += e5m2 ? 17 : 1) {
          const float x = f32(in[k]);
          if (std::isnan(x) && (out[k] & 0x7f) == (nearest_code(x, e5m2, ocp, saturate) & 0x7f)) {
            continue;
          }
          const uint32_t expected =
              static_cast<uint32_t>(nearest_code(x, e5m2, ocp, saturate)) |
              static_cast<uint32_t>(nearest_code(-x, e5m2, ocp, saturate)) << 8 |
              static_cast<uint32_t>(nearest_code(std::abs(x), e5m2, ocp, saturate)) << 16 |
              static_cast<uint32_t>(nearest_code(x, e5m2, ocp, saturate)) << 24;
          if (out[k] != expected && wrong++ < 3) {
            INFO(std::hex << "input " << in[k] << " e5m2 " << e5m2 << " ocp " << ocp << " saturate "
                          << saturate);
            CHECK(out[k] == expected);
          }
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("overflow of fp8 is NaN, not saturation", "[fp8]") {
  assembly_module module(
      kernel_list{{"k", replaced(replaced(encode_body, "FORMAT", "fp8"), "SETREG", "")}});
  buffer<float> in(64);
  const float values[] = {240, 247.9f, 248, 448, 463.9f, 464, 464.1f, 465};
  for (size_t k = 0; k < 64; ++k) in[k] = values[k % 8];
  buffer<uint32_t> out(64);
  REQUIRE(module.launch("k", {in.get(), out.get()}) == hipSuccess);
  const int fnuz[] = {0x7f, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
  for (size_t k = 0; k < 8; ++k) CHECK((out[k] & 255) == static_cast<uint32_t>(fnuz[k]));
  const mode m(true);
  REQUIRE(module.launch("k", {in.get(), out.get()}) == hipSuccess);
  const int fn[] = {0x77, 0x77, 0x78, 0x7e, 0x7e, 0x7e, 0x7f, 0x7f};
  for (size_t k = 0; k < 8; ++k) CHECK((out[k] & 255) == static_cast<uint32_t>(fn[k]));
}

TEST_CASE("stochastic rounding brackets the value", "[fp8]") {
  assembly_module module(kernel_list{{"k", R"(
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v4, 26, v0
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v3, 0
  v_mov_b32 v2, 0x3f860000
  v_cvt_sr_fp8_f32 v3, v2, v4
  global_store_dword v1, v3, s[6:7]
)"}});
  buffer<uint32_t> in(64);
  buffer<uint32_t> out(64);
  REQUIRE(module.launch("k", {in.get(), out.get()}) == hipSuccess);
  // 1.046875 lies three eighths of the way from 1 to 1.125: noise above five eighths rounds up.
  for (size_t l = 0; l < 64; ++l) CHECK(out[l] == (l >= 40 ? 0x41u : 0x40u));
}
