// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// MFMA against a plain matrix product, with the lane layouts written down here once more.

#include <random>

#include "assembly.hpp"
#include "catch_any.hpp"
#include "emulator.h"

using namespace emulator_test;

namespace {

struct element_type {
  const char* name;
  int bits;
  double (*value)(uint64_t);
};

double e4m3fnuz(uint64_t x) {
  const int e = static_cast<int>(x >> 3 & 15);
  const int m = static_cast<int>(x & 7);
  const double a = e ? (8 + m) * std::exp2(e - 11) : m * std::exp2(-10);
  return x & 0x80 ? -a : a;
}
double e4m3fn(uint64_t x) { return e4m3fnuz(x) * 2; }
double e5m2fnuz(uint64_t x) {
  const int e = static_cast<int>(x >> 2 & 31);
  const int m = static_cast<int>(x & 3);
  const double a = e ? (4 + m) * std::exp2(e - 18) : m * std::exp2(-17);
  return x & 0x80 ? -a : a;
}
double half_value(uint64_t x) { return f16(static_cast<uint32_t>(x)); }
double bf16_value(uint64_t x) { return f32(static_cast<uint32_t>(x) << 16); }
double single_value(uint64_t x) { return f32(static_cast<uint32_t>(x)); }
double xf32_value(uint64_t x) { return f32(static_cast<uint32_t>(x) & 0xffffe000u); }
double byte_value(uint64_t x) { return static_cast<int8_t>(x); }
double double_value(uint64_t x) { return bits<double>(x); }

struct shape {
  const char* mnemonic;
  int m, n, k, blocks;
  element_type a, b;
  bool ocp = false;
};

const element_type fp8 = {"fp8", 8, e4m3fnuz};
const element_type fn8 = {"fp8", 8, e4m3fn};
const element_type bf8 = {"bf8", 8, e5m2fnuz};
const element_type half = {"f16", 16, half_value};
const element_type bf16 = {"bf16", 16, bf16_value};
const element_type single = {"f32", 32, single_value};
const element_type xf32 = {"xf32", 32, xf32_value};
const element_type i8 = {"i8", 8, byte_value};
const element_type real64 = {"f64", 64, double_value};

// Small values, so that sums are exact in single precision whatever the order.
uint64_t random_element(const element_type& t, std::mt19937& random) {
  const int small = static_cast<int>(random() % 17) - 8;
  switch (t.bits) {
    case 64:
      return bits<uint64_t>(small * 0.5);
    case 32:
      return u32(static_cast<float>(small) * 0.25f);
    case 16:
      return std::string(t.name) == "f16" ? h16(small * 0.25)
                                          : u32(static_cast<float>(small) * 0.25f) >> 16;
    default:
      break;
  }
  if (std::string(t.name) == "i8") return random() & 255;
  // Bytes whose value is a multiple of 1/16 below 16; 0x80 is NaN in one of the formats.
  for (;;) {
    const uint64_t x = random() & 255;
    const double v = t.value(x);
    if (x != 0x80 && std::abs(v) < 16 && v * 16 == std::floor(v * 16)) return x;
  }
}

}  // namespace

TEST_CASE("matrix shapes and layouts", "[mfma]") {
  const std::vector<shape> shapes = {
      {"v_mfma_f32_16x16x32_fp8_fp8", 16, 16, 32, 1, fp8, fp8},
      {"v_mfma_f32_16x16x32_fp8_bf8", 16, 16, 32, 1, fp8, bf8},
      {"v_mfma_f32_16x16x32_bf8_fp8", 16, 16, 32, 1, bf8, fp8},
      {"v_mfma_f32_16x16x32_bf8_bf8", 16, 16, 32, 1, bf8, bf8},
      {"v_mfma_f32_32x32x16_fp8_fp8", 32, 32, 16, 1, fp8, fp8},
      {"v_mfma_f32_32x32x16_bf8_fp8", 32, 32, 16, 1, bf8, fp8},
      {"v_mfma_f32_16x16x32_fp8_fp8", 16, 16, 32, 1, fn8, fn8, true},
      {"v_mfma_f32_32x32x16_fp8_fp8", 32, 32, 16, 1, fn8, fn8, true},
      {"v_mfma_f32_16x16x4_f32", 16, 16, 4, 1, single, single},
      {"v_mfma_f32_32x32x2_f32", 32, 32, 2, 1, single, single},
      {"v_mfma_f32_4x4x1_16b_f32", 4, 4, 1, 16, single, single},
      {"v_mfma_f32_16x16x1_4b_f32", 16, 16, 1, 4, single, single},
      {"v_mfma_f32_32x32x1_2b_f32", 32, 32, 1, 2, single, single},
      {"v_mfma_f32_16x16x8_xf32", 16, 16, 8, 1, xf32, xf32},
      {"v_mfma_f32_32x32x4_xf32", 32, 32, 4, 1, xf32, xf32},
      {"v_mfma_f32_16x16x16_f16", 16, 16, 16, 1, half, half},
      {"v_mfma_f32_32x32x8_f16", 32, 32, 8, 1, half, half},
      {"v_mfma_f32_4x4x4_16b_f16", 4, 4, 4, 16, half, half},
      {"v_mfma_f32_16x16x4_4b_f16", 16, 16, 4, 4, half, half},
      {"v_mfma_f32_32x32x4_2b_f16", 32, 32, 4, 2, half, half},
      {"v_mfma_f32_16x16x16_bf16", 16, 16, 16, 1, bf16, bf16},
      {"v_mfma_f32_32x32x8_bf16", 32, 32, 8, 1, bf16, bf16},
      {"v_mfma_i32_16x16x32_i8", 16, 16, 32, 1, i8, i8},
      {"v_mfma_i32_32x32x16_i8", 32, 32, 16, 1, i8, i8},
      {"v_mfma_f64_16x16x4_f64", 16, 16, 4, 1, real64, real64},
      {"v_mfma_f64_4x4x4_4b_f64", 4, 4, 4, 4, real64, real64},
  };
  std::vector<assembly_kernel> kernels;
  for (size_t s = 0; s < shapes.size(); ++s) {
    const shape& h = shapes[s];
    const int words = h.k * h.m * h.blocks / 64 * h.a.bits / 32;
    const bool wide = h.a.bits == 64;
    const int results = std::max(wide ? 2 : 4, h.m * h.n * h.blocks / 64 * (wide ? 2 : 1));
    const auto range = [](int first, int count) {
      return count == 1
                 ? "v" + std::to_string(first)
                 : "v[" + std::to_string(first) + ":" + std::to_string(first + count - 1) + "]";
    };
    const auto accumulators = [](int count) { return "a[0:" + std::to_string(count - 1) + "]"; };
    std::string body =
        "  s_load_dwordx4 s[4:7], s[0:1], 0x0\n  s_load_dwordx4 s[8:11], s[0:1], 0x10\n"
        "  v_lshlrev_b32 v1, 2, v0\n  s_waitcnt lgkmcnt(0)\n";
    const auto load = [&](int reg, int count, const char* base) {
      for (int k = 0; k < count; ++k) {
        body += "  global_load_dword v" + std::to_string(reg + k) + ", v1, " + base +
                " offset:" + std::to_string(256 * k) + "\n";
      }
    };
    load(4, words, "s[4:5]");
    load(12, words, "s[6:7]");
    body += "  v_mov_b32 v3, v1\n";
    for (int k = 0; k < results; ++k) {
      body += "  global_load_dword v" + std::to_string(64 + k) + ", v3, s[8:9]\n" +
              "  v_add_u32 v3, 0x100, v3\n";
    }
    body += "  s_waitcnt vmcnt(0)\n";
    // Half of the shapes accumulate in the accumulation registers.
    if (s % 2) {
      for (int k = 0; k < results; ++k) {
        body +=
            "  v_accvgpr_write_b32 a" + std::to_string(k) + ", v" + std::to_string(64 + k) + "\n";
      }
      body += std::string("  s_nop 7\n  ") + h.mnemonic + " " + accumulators(results) + ", " +
              range(4, words) + ", " + range(12, words) + ", " + accumulators(results) +
              "\n  s_nop 15\n  s_nop 15\n";
      for (int k = 0; k < results; ++k) {
        body +=
            "  v_accvgpr_read_b32 v" + std::to_string(64 + k) + ", a" + std::to_string(k) + "\n";
      }
    } else {
      body += std::string("  s_nop 7\n  ") + h.mnemonic + " " + range(64, results) + ", " +
              range(4, words) + ", " + range(12, words) + ", " + range(64, results) +
              "\n  s_nop 15\n  s_nop 15\n";
    }
    body += "  v_mov_b32 v3, v1\n";
    for (int k = 0; k < results; ++k) {
      body += "  global_store_dword v3, v" + std::to_string(64 + k) + ", s[10:11]\n" +
              "  v_add_u32 v3, 0x100, v3\n";
    }
    kernels.push_back({"shape" + std::to_string(s), body});
  }
  assembly_module module(kernels);
  std::mt19937 random(11);
  for (size_t s = 0; s < shapes.size(); ++s) {
    const shape& h = shapes[s];
    INFO(h.mnemonic << " ocp " << h.ocp);
    kindex_emulator_set_fp8(h.ocp);
    const int slices = 64 / (h.m * h.blocks);
    const int per_lane = h.k / slices;
    const bool wide = h.a.bits == 64;
    const bool integer = std::string(h.a.name) == "i8";
    const size_t lane_words = static_cast<size_t>(per_lane * h.a.bits / 32);
    const size_t results =
        static_cast<size_t>(std::max(wide ? 2 : 4, h.m * h.n * h.blocks / 64 * (wide ? 2 : 1)));
    buffer<uint32_t> a(64 * lane_words);
    buffer<uint32_t> b(64 * lane_words);
    buffer<uint32_t> c(64 * results);
    buffer<uint32_t> d(64 * results);
    std::vector<double> left(static_cast<size_t>(h.blocks * h.m * h.k));
    std::vector<double> right(static_cast<size_t>(h.blocks * h.n * h.k));
    const auto fill = [&](buffer<uint32_t>& to, std::vector<double>& values, int rows,
                          const element_type& t) {
      for (size_t w = 0; w < to.size(); ++w) to[w] = 0;
      for (int lane = 0; lane < 64; ++lane) {
        const int row = lane % rows;
        const int block = lane / rows % h.blocks;
        const int slice = lane / (rows * h.blocks);
        for (int e = 0; e < per_lane; ++e) {
          const uint64_t x = random_element(t, random);
          values[static_cast<size_t>((block * rows + row) * h.k + slice * per_lane + e)] =
              t.value(x);
          const int bit = e * t.bits;
          if (t.bits == 64) {
            to[static_cast<size_t>(lane)] = static_cast<uint32_t>(x);
            to[static_cast<size_t>(64 + lane)] = static_cast<uint32_t>(x >> 32);
          } else {
            to[static_cast<size_t>(64 * (bit / 32) + lane)] |= static_cast<uint32_t>(x)
                                                               << (bit % 32);
          }
        }
      }
    };
    fill(a, left, h.m, h.a);
    fill(b, right, h.n, h.b);
    for (size_t w = 0; w < c.size(); ++w) {
      const int small = static_cast<int>(random() % 100) - 50;
      if (wide) {
        c[w] = w / 64 % 2 ? static_cast<uint32_t>(bits<uint64_t>(static_cast<double>(small)) >> 32)
                          : 0;
      } else {
        c[w] = integer ? static_cast<uint32_t>(small) : u32(static_cast<float>(small));
      }
    }
    REQUIRE(module.launch(kernels[s].name, {a.get(), b.get(), c.get(), d.get()}) == hipSuccess);
    int wrong = 0;
    for (int block = 0; block < h.blocks; ++block) {
      for (int row = 0; row < h.m; ++row) {
        for (int column = 0; column < h.n; ++column) {
          // Where the element lives: register and lane.
          int reg = 0;
          int lane = 0;
          if (wide) {
            reg = h.m == 16 ? row / 4 : 0;
            lane = h.m == 16 ? row % 4 * 16 + column : row * 16 + block * 4 + column;
          } else if (h.m == 32) {
            reg = block * 16 + row / 8 * 4 + row % 4;
            lane = row / 4 % 2 * 32 + column;
          } else if (h.m == 16) {
            reg = block * 4 + row % 4;
            lane = row / 4 * 16 + column;
          } else {
            reg = row;
            lane = block * 4 + column;
          }
          double sum = 0;
          for (int k = 0; k < h.k; ++k) {
            sum += left[static_cast<size_t>((block * h.m + row) * h.k + k)] *
                   right[static_cast<size_t>((block * h.n + column) * h.k + k)];
          }
          const auto at = [&](buffer<uint32_t>& x, int r) {
            return x[static_cast<size_t>(64 * r + lane)];
          };
          bool same;
          if (wide) {
            const auto read = [&](buffer<uint32_t>& x) {
              return emulator_test::f64(at(x, 2 * reg), at(x, 2 * reg + 1));
            };
            same = read(d) == read(c) + sum;
          } else if (integer) {
            same = static_cast<int32_t>(at(d, reg)) == static_cast<int32_t>(at(c, reg)) + sum;
          } else {
            same = f32(at(d, reg)) == f32(at(c, reg)) + sum;
          }
          wrong += !same;
        }
      }
    }
    CHECK(wrong == 0);
  }
  kindex_emulator_set_fp8(0);
}

TEST_CASE("matrix operands that are constants, and NaN", "[mfma]") {
  // C = 0 inline; a byte 0x80 in A makes its row NaN in the fnuz format only.
  assembly_module module(kernel_list{{"k", R"(
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 3, v0
  v_lshlrev_b32 v8, 4, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx2 v[2:3], v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_mov_b32 v4, 0x38383838
  v_mov_b32 v5, 0x38383838
  v_mfma_f32_16x16x32_fp8_fp8 v[12:15], v[2:3], v[4:5], 0
  s_nop 15
  global_store_dwordx4 v8, v[12:15], s[6:7]
)"}});
  buffer<uint64_t> in(64);
  for (size_t l = 0; l < 64; ++l) in[l] = 0x3838383838383838ull;
  in[16 + 5] = 0x3838388038383838ull;  // row 5
  buffer<float> out(256);
  REQUIRE(module.launch("k", {in.get(), out.get()}) == hipSuccess);
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      const float x = out[static_cast<size_t>((row / 4 * 16 + column) * 4 + row % 4)];
      if (row == 5) {
        CHECK(std::isnan(x));
      } else {
        CHECK(x == 32 * 0.25f);
      }
    }
  }
  kindex_emulator_set_fp8(1);
  REQUIRE(module.launch("k", {in.get(), out.get()}) == hipSuccess);
  kindex_emulator_set_fp8(0);
  CHECK(out[0] == 32.0f);
  CHECK(out[(1 * 16 + 0) * 4 + 1] == 31.0f);  // 0x80 is -0
}
