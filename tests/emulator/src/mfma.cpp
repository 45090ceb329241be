// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Matrix fused multiply-add: D = A * B + C, one matrix product per instruction and block.
//
// Layouts. A: lane l holds row l % M; lanes of equal l / (M * blocks) hold the same slice of the
// depth. B likewise with columns. D and C: N neighbouring lanes of a register hold one row.

#include <algorithm>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

constexpr int max_elements = 64 * 64;

// Where the row `row` of block `block` of C and D starts: register and first lane.
struct row_place {
  int reg;
  int lane;
};

row_place place_of(const instruction& i, int block, int row) {
  if (i.rows == 4) return {row % 4, block * i.columns};
  const int row_groups = 64 / i.columns;  // groups of four rows side by side in one register
  return {block * (i.rows * i.columns / 64) + (row / (4 * row_groups)) * 4 + row % 4,
          ((row / 4) % row_groups) * i.columns};
}

// CBSZ and ABID: one block of A serves a group of blocks.
int a_block(const instruction& i, int block) {
  if (!i.cbsz) return block;
  const int group = 1 << i.cbsz;
  return block / group * group + i.abid;
}

// BLGP rearranges the lanes of B.
int b_lane(const instruction& i, int lane) {
  switch (i.blgp) {
    case 0:
      return lane;
    case 1:
      return lane & 31;
    case 2:
      return 32 + (lane & 31);
    case 3:
      return (lane + 16) & 63;
    default:
      return (lane & 15) + 16 * (i.blgp - 4);
  }
}

int bits_of(matrix_type type) {
  switch (type) {
    case matrix_type::f64:
      return 64;
    case matrix_type::f32:
    case matrix_type::xf32:
      return 32;
    case matrix_type::f16:
    case matrix_type::bf16:
      return 16;
    default:
      return 8;
  }
}

constexpr float power_of_two(int exponent) {
  float x = 1;
  for (; exponent < 0; ++exponent) x *= 0.5f;
  return x;
}

// E4M3 and E5M2 by arithmetic on the bits, which vectorises. Subnormals are integers times a power
// of two, so that no intermediate value is a subnormal single.
template <int mantissa_bits, bool fnuz>
float decode_byte(uint32_t byte) {
  constexpr int exponent_bits = 7 - mantissa_bits;
  constexpr int bias = (1 << (exponent_bits - 1)) - (fnuz ? 0 : 1);
  const uint32_t magnitude = byte & 0x7f;
  const uint32_t sign = (byte & 0x80) << 24;
  const uint32_t normal = (magnitude << (23 - mantissa_bits)) + ((127u - bias) << 23);
  constexpr float unit = power_of_two(1 - bias - mantissa_bits);
  const uint32_t subnormal = as_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * unit);
  uint32_t bits = magnitude < (1u << mantissa_bits) ? subnormal : normal;
  constexpr uint32_t nan = 0x7fc00000u;
  if (fnuz) {
    bits = byte == 0x80 ? nan : bits;
  } else if (mantissa_bits == 3) {
    bits = magnitude == 0x7f ? nan : bits;
  } else {
    bits = magnitude == 0x7c ? 0x7f800000u : magnitude > 0x7c ? nan : bits;
  }
  return as_float(bits | sign);
}

template <int mantissa_bits, bool fnuz>
void decode_bytes(const uint32_t* words, int shift, float* out) {
  for (int l = 0; l < lanes_per_wave; ++l) {
    out[l] = decode_byte<mantissa_bits, fnuz>((words[l] >> shift) & 255);
  }
}

// Element `element` of every lane of an operand, as float.
void decode_element(const wave& w, const operand& o, matrix_type type, int element, bool ocp,
                    float* out) {
  const int per_word = 32 / bits_of(type);
  const int index = element / per_word;
  const int shift = element % per_word * bits_of(type);
  alignas(64) uint32_t buffer[lanes_per_wave];
  const uint32_t* words = buffer;
  if (o.kind == operand_kind::vector) {
    words = w.v[o.reg + index];
  } else {
    const uint32_t value = o.kind == operand_kind::scalar ? w.s[o.reg + index] : constant_bits(o);
    for (uint32_t& b : buffer) b = value;
  }
  switch (type) {
    case matrix_type::f32:
      for (int l = 0; l < lanes_per_wave; ++l) out[l] = as_float(words[l]);
      break;
    case matrix_type::xf32:  // the lower 13 bits of the mantissa are not read
      for (int l = 0; l < lanes_per_wave; ++l) out[l] = as_float(words[l] & 0xffffe000u);
      break;
    case matrix_type::f16:
      for (int l = 0; l < lanes_per_wave; ++l) out[l] = half_to_float(words[l] >> shift);
      break;
    case matrix_type::bf16:
      for (int l = 0; l < lanes_per_wave; ++l) out[l] = as_float((words[l] >> shift) << 16);
      break;
    case matrix_type::fp8:
      ocp ? decode_bytes<3, false>(words, shift, out) : decode_bytes<3, true>(words, shift, out);
      break;
    case matrix_type::bf8:
      ocp ? decode_bytes<2, false>(words, shift, out) : decode_bytes<2, true>(words, shift, out);
      break;
    case matrix_type::i8:
      for (int l = 0; l < lanes_per_wave; ++l) {
        out[l] = static_cast<float>(as_int(words[l] << (24 - shift)) >> 24);
      }
      break;
    case matrix_type::f64:
      break;
  }
}

// Both operands as [block][k][row or column]: lanes that lie side by side stay so.
struct matrix_operands {
  alignas(64) float a[max_elements];
  alignas(64) float b[max_elements];
};

// `size` is the number of rows, and of columns.
template <int size>
void gather(const wave& w, const instruction& i, matrix_operands* m) {
  const bool ocp = w.owner->launch->ocp;
  const int slices = 64 / (size * i.blocks);
  const int per_lane = i.depth / slices;
  alignas(64) float lanes[lanes_per_wave];
  for (int e = 0; e < per_lane; ++e) {
    decode_element(w, i.operands[1], i.a_type, e, ocp, lanes);
    for (int slice = 0; slice < slices; ++slice) {
      for (int block = 0; block < i.blocks; ++block) {
        const int from = (a_block(i, block) + i.blocks * slice) * size;
        std::memcpy(m->a + (block * i.depth + slice * per_lane + e) * size, lanes + from,
                    size * sizeof(float));
      }
    }
    decode_element(w, i.operands[2], i.b_type, e, ocp, lanes);
    if (i.blgp) {
      float moved[lanes_per_wave];
      for (int l = 0; l < lanes_per_wave; ++l) moved[l] = lanes[b_lane(i, l)];
      std::memcpy(lanes, moved, sizeof moved);
    }
    for (int slice = 0; slice < slices; ++slice) {
      for (int block = 0; block < i.blocks; ++block) {
        const int from = (block + i.blocks * slice) * size;
        std::memcpy(m->b + (block * i.depth + slice * per_lane + e) * size, lanes + from,
                    size * sizeof(float));
      }
    }
  }
}

// Eight singles that stay in a register.
#if defined(__AVX2__) && defined(__FMA__)
struct float8 {
  __m256 v;
  static float8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static float8 repeat(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void add_product(float8 a, float8 b) { v = _mm256_fmadd_ps(a.v, b.v, v); }
};
#else
struct float8 {
  float v[8];
  static float8 load(const float* p) {
    float8 r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  static float8 repeat(float x) { return {{x, x, x, x, x, x, x, x}}; }
  void store(float* p) const { std::memcpy(p, v, sizeof v); }
  void add_product(float8 a, float8 b) {
    for (int k = 0; k < 8; ++k) v[k] = std::fma(a.v[k], b.v[k], v[k]);
  }
};
#endif

// Sums in order of k, one FMA each. Four rows and sixteen columns at a time stay in registers and
// hide the latency of the chain. `stride` is the distance of a's columns.
template <int columns>
void multiply_rows(const float* a, int stride, const float* b, int depth, float (*sums)[columns]) {
  if constexpr (columns % 16 != 0) {
    for (int r = 0; r < 4; ++r) {
      for (int k = 0; k < depth; ++k) {
        for (int c = 0; c < columns; ++c) {
          sums[r][c] = std::fma(a[k * stride + r], b[k * columns + c], sums[r][c]);
        }
      }
    }
  } else {
    for (int first = 0; first < columns; first += 16) {
      float8 left[4];
      float8 right[4];
      for (int r = 0; r < 4; ++r) {
        left[r] = float8::load(sums[r] + first);
        right[r] = float8::load(sums[r] + first + 8);
      }
      for (int k = 0; k < depth; ++k) {
        const float* x = a + k * stride;
        const float8 y0 = float8::load(b + k * columns + first);
        const float8 y1 = float8::load(b + k * columns + first + 8);
#pragma GCC unroll 4
        for (int r = 0; r < 4; ++r) {
          const float8 xr = float8::repeat(x[r]);
          left[r].add_product(xr, y0);
          right[r].add_product(xr, y1);
        }
      }
      for (int r = 0; r < 4; ++r) {
        left[r].store(sums[r] + first);
        right[r].store(sums[r] + first + 8);
      }
    }
  }
}

template <int columns>
void multiply_rows_double(const float* a, int stride, const float* b, int depth,
                          float (*sums)[columns]) {
  for (int r = 0; r < 4; ++r) {
    double s[columns];
    for (int c = 0; c < columns; ++c) s[c] = sums[r][c];
    for (int k = 0; k < depth; ++k) {
      const double x = a[k * stride + r];
      for (int c = 0; c < columns; ++c) s[c] += x * b[k * columns + c];
    }
    for (int c = 0; c < columns; ++c) sums[r][c] = static_cast<float>(s[c]);
  }
}

void multiply_rows_integer(const float* a, int stride, const float* b, int depth, int columns,
                           int32_t* sums) {
  for (int r = 0; r < 4; ++r) {
    for (int k = 0; k < depth; ++k) {
      const int32_t x = static_cast<int32_t>(a[k * stride + r]);
      for (int c = 0; c < columns; ++c) {
        // Products of bytes are exact; the sum wraps.
        sums[r * columns + c] = static_cast<int32_t>(
            static_cast<uint32_t>(sums[r * columns + c]) +
            static_cast<uint32_t>(x * static_cast<int32_t>(b[k * columns + c])));
      }
    }
  }
}

// EXEC is ignored by MFMA. Every result is computed before any register is written: D may
// overlap A, B and C.
template <int columns>
void run_mfma(wave& w, const instruction& i) {
  static thread_local matrix_operands m;
  static thread_local uint32_t results[32][lanes_per_wave];
  gather<columns>(w, i, &m);
  const operand& c = i.operands[3];
  const bool integer = i.a_type == matrix_type::i8;
  const bool in_double = w.owner->launch->double_sums;
  const uint32_t constant = c.kind == operand_kind::vector ? 0 : read_scalar(w, c);
  for (int block = 0; block < i.blocks; ++block) {
    const float* b = m.b + block * i.depth * columns;
    for (int row = 0; row < i.rows; row += 4) {
      const float* a = m.a + block * i.depth * i.rows + row;
      alignas(64) float sums[4][columns];
      for (int r = 0; r < 4; ++r) {
        const row_place p = place_of(i, block, row + r);
        if (c.kind == operand_kind::vector) {
          std::memcpy(sums[r], &w.v[c.reg + p.reg][p.lane], sizeof sums[r]);
        } else {
          for (float& s : sums[r]) s = as_float(constant);
        }
      }
      if (integer) {
        int32_t whole[4 * columns];
        std::memcpy(whole, sums, sizeof whole);
        multiply_rows_integer(a, i.rows, b, i.depth, columns, whole);
        std::memcpy(sums, whole, sizeof whole);
      } else if (in_double) {
        multiply_rows_double<columns>(a, i.rows, b, i.depth, sums);
      } else {
        multiply_rows<columns>(a, i.rows, b, i.depth, sums);
      }
      for (int r = 0; r < 4; ++r) {
        const row_place p = place_of(i, block, row + r);
        std::memcpy(&results[p.reg][p.lane], sums[r], sizeof sums[r]);
      }
    }
  }
  const int registers = std::max(4, i.rows * i.columns * i.blocks / 64);
  std::memcpy(w.v[i.operands[0].reg], results, static_cast<size_t>(registers) * sizeof(lane_row));
  w.owner->counters.mfma_flops += 2ull * static_cast<unsigned>(i.rows) *
                                  static_cast<unsigned>(i.columns) *
                                  static_cast<unsigned>(i.depth) * static_cast<unsigned>(i.blocks);
}

// Double precision, 16x16x4 and 4x4x4 with four blocks: one element of A and B per lane. BLGP
// negates A, B and C instead of rearranging lanes.
void run_mfma_f64(wave& w, const instruction& i) {
  const int n = i.columns;
  const auto read = [&](int index, int reg_offset, int lane) {
    const operand& o = i.operands[index];
    if (o.kind != operand_kind::vector) return as_double(read_scalar_wide(w, o, wide_type::f64));
    return as_double(w.v[o.reg + reg_offset][lane] |
                     (static_cast<uint64_t>(w.v[o.reg + reg_offset + 1][lane]) << 32));
  };
  const double sign_a = i.blgp & 1 ? -1 : 1;
  const double sign_b = i.blgp & 2 ? -1 : 1;
  const double sign_c = i.blgp & 4 ? -1 : 1;
  uint32_t results[8][lanes_per_wave];
  for (int block = 0; block < i.blocks; ++block) {
    for (int row = 0; row < i.rows; ++row) {
      for (int column = 0; column < n; ++column) {
        int pair = row / 4;
        int lane = (row % 4) * n + column;
        if (i.rows == 4) {
          pair = 0;
          lane = block * n + row * i.blocks * n + column;
        }
        double sum = sign_c * read(3, 2 * pair, lane);
        for (int k = 0; k < i.depth; ++k) {
          const double a = sign_a * read(1, 0, row + i.rows * (block + i.blocks * k));
          const double b = sign_b * read(2, 0, column + n * (block + i.blocks * k));
          sum = std::fma(a, b, sum);
        }
        results[2 * pair][lane] = static_cast<uint32_t>(as_bits(sum));
        results[2 * pair + 1][lane] = static_cast<uint32_t>(as_bits(sum) >> 32);
      }
    }
  }
  const size_t registers = i.rows == 4 ? 2 : 8;
  std::memcpy(w.v[i.operands[0].reg], results, registers * sizeof(lane_row));
  w.owner->counters.mfma_flops += 2ull * static_cast<unsigned>(i.rows) * static_cast<unsigned>(n) *
                                  static_cast<unsigned>(i.depth) * static_cast<unsigned>(i.blocks);
}

}  // namespace

handler matrix_handler(const instruction& i) {
  if (!i.rows || i.rows != i.columns || i.operand_count < 4) return nullptr;
  if (i.a_type == matrix_type::f64) {
    return (i.rows == 16 || i.rows == 4) && i.cbsz == 0 ? run_mfma_f64 : nullptr;
  }
  const int slices = 64 / (i.rows * i.blocks);
  if (slices < 1 || i.depth % slices || i.depth / slices > 16) return nullptr;
  if ((i.depth / slices) * bits_of(i.a_type) % 32) return nullptr;
  switch (i.columns) {
    case 4:
      return run_mfma<4>;
    case 16:
      return run_mfma<16>;
    case 32:
      return run_mfma<32>;
    default:
      return nullptr;
  }
}

}  // namespace kindex::emulator
