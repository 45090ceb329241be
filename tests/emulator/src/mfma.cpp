// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Matrix fused multiply-add: D = A * B + C, one matrix product per instruction and block.
//
// Layouts. A: lane l holds row l % M; lanes of equal l / (M * blocks) hold the same slice of the
// depth. B likewise with columns. D and C: N neighbouring lanes of a register hold one row.

#include <algorithm>

#include "fp8.hpp"
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

// Lane that supplies element (block, index) of slice `slice` of an operand.
int a_lane(const instruction& i, int block, int row, int slice) {
  int source_block = block;
  if (i.cbsz) {
    const int group = 1 << i.cbsz;
    source_block = block / group * group + i.abid;
  }
  return row + i.rows * (source_block + i.blocks * slice);
}

// BLGP rearranges the lanes of B.
int b_lane(const instruction& i, int block, int column, int slice) {
  const int lane = column + i.columns * (block + i.blocks * slice);
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

// The elements that one lane holds, as floats. `values` receives `count` of them.
void decode_lane(const wave& w, const operand& o, int lane, matrix_type type, int count, bool ocp,
                 float* values) {
  const auto word = [&](int index) -> uint32_t {
    if (o.kind == operand_kind::vector) return w.v[o.reg + index][lane];
    if (o.kind == operand_kind::scalar) return w.s[o.reg + index];
    return constant_bits(o);
  };
  switch (type) {
    case matrix_type::f32:
      for (int e = 0; e < count; ++e) values[e] = as_float(word(e));
      break;
    case matrix_type::xf32:  // the lower 13 bits of the mantissa are not read
      for (int e = 0; e < count; ++e) values[e] = as_float(word(e) & 0xffffe000u);
      break;
    case matrix_type::f16:
      for (int e = 0; e < count; ++e) values[e] = half_to_float(word(e / 2) >> (16 * (e & 1)));
      break;
    case matrix_type::bf16:
      for (int e = 0; e < count; ++e) values[e] = as_float((word(e / 2) >> (16 * (e & 1))) << 16);
      break;
    case matrix_type::fp8:
    case matrix_type::bf8: {
      const float* table = fp8_table(ocp, type == matrix_type::bf8);
      for (int e = 0; e < count; e += 4) {
        const uint32_t bytes = word(e / 4);
        values[e] = table[bytes & 255];
        values[e + 1] = table[(bytes >> 8) & 255];
        values[e + 2] = table[(bytes >> 16) & 255];
        values[e + 3] = table[bytes >> 24];
      }
      break;
    }
    case matrix_type::i8:
      for (int e = 0; e < count; ++e) {
        values[e] = static_cast<int8_t>((word(e / 4) >> (8 * (e & 3))) & 255);
      }
      break;
    case matrix_type::f64:
      break;
  }
}

// a[block][row][k] and, transposed so that the sum runs over vectors of columns, b[block][k][column].
struct matrix_operands {
  alignas(64) float a[max_elements];
  alignas(64) float b[max_elements];
};

void gather(const wave& w, const instruction& i, matrix_operands* m) {
  const bool ocp = w.owner->launch->ocp;
  const int slices = 64 / (i.rows * i.blocks);
  const int per_lane = i.depth / slices;
  float values[16];
  for (int block = 0; block < i.blocks; ++block) {
    for (int slice = 0; slice < slices; ++slice) {
      for (int row = 0; row < i.rows; ++row) {
        decode_lane(w, i.operands[1], a_lane(i, block, row, slice), i.a_type, per_lane, ocp,
                    m->a + (block * i.rows + row) * i.depth + slice * per_lane);
      }
      for (int column = 0; column < i.columns; ++column) {
        decode_lane(w, i.operands[2], b_lane(i, block, column, slice), i.b_type, per_lane, ocp,
                    values);
        for (int e = 0; e < per_lane; ++e) {
          m->b[(block * i.depth + slice * per_lane + e) * i.columns + column] = values[e];
        }
      }
    }
  }
}

// Four rows at a time hide the latency of the FMA chain.
template <int columns>
void multiply_rows(const float* a, const float* b, int depth, float (*sums)[columns]) {
  alignas(64) float s[4][columns];
  std::memcpy(s, sums, sizeof s);
  for (int k = 0; k < depth; ++k) {
    for (int r = 0; r < 4; ++r) {
      const float x = a[r * depth + k];
      for (int c = 0; c < columns; ++c) s[r][c] = std::fma(x, b[k * columns + c], s[r][c]);
    }
  }
  std::memcpy(sums, s, sizeof s);
}

template <int columns>
void multiply_rows_double(const float* a, const float* b, int depth, float (*sums)[columns]) {
  for (int r = 0; r < 4; ++r) {
    double s[columns];
    for (int c = 0; c < columns; ++c) s[c] = sums[r][c];
    for (int k = 0; k < depth; ++k) {
      const double x = a[r * depth + k];
      for (int c = 0; c < columns; ++c) s[c] += x * b[k * columns + c];
    }
    for (int c = 0; c < columns; ++c) sums[r][c] = static_cast<float>(s[c]);
  }
}

void multiply_rows_integer(const float* a, const float* b, int depth, int columns, int32_t* sums) {
  for (int r = 0; r < 4; ++r) {
    for (int k = 0; k < depth; ++k) {
      const int32_t x = static_cast<int32_t>(a[r * depth + k]);
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
  gather(w, i, &m);
  const operand& c = i.operands[3];
  const bool integer = i.a_type == matrix_type::i8;
  const bool in_double = w.owner->launch->double_sums;
  const uint32_t constant = c.kind == operand_kind::vector ? 0 : read_scalar(w, c);
  for (int block = 0; block < i.blocks; ++block) {
    const float* b = m.b + block * i.depth * columns;
    for (int row = 0; row < i.rows; row += 4) {
      const float* a = m.a + (block * i.rows + row) * i.depth;
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
        multiply_rows_integer(a, b, i.depth, columns, whole);
        std::memcpy(sums, whole, sizeof whole);
      } else if (in_double) {
        multiply_rows_double<columns>(a, b, i.depth, sums);
      } else {
        multiply_rows<columns>(a, b, i.depth, sums);
      }
      for (int r = 0; r < 4; ++r) {
        const row_place p = place_of(i, block, row + r);
        std::memcpy(&results[p.reg][p.lane], sums[r], sizeof sums[r]);
      }
    }
  }
  const int registers = std::max(4, i.rows * i.columns * i.blocks / 64);
  std::memcpy(w.v[i.operands[0].reg], results, static_cast<size_t>(registers) * sizeof(lane_row));
  w.owner->counters.mfma_flops +=
      2ull * static_cast<unsigned>(i.rows) * static_cast<unsigned>(i.columns) *
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
  w.owner->counters.mfma_flops +=
      2ull * static_cast<unsigned>(i.rows) * static_cast<unsigned>(n) *
      static_cast<unsigned>(i.depth) * static_cast<unsigned>(i.blocks);
}

}  // namespace

handler matrix_handler(const instruction& i) {
  if (!i.rows || i.operand_count < 4) return nullptr;
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
