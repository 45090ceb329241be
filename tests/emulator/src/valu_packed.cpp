// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Packed instructions (VOP3P): two halves or two singles at a time, and mixed-precision FMA.

#include <algorithm>

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

using u32 = uint32_t;

bool selects_high(const instruction& i, int source, bool high_result) {
  return ((high_result ? i.op_sel_hi : i.op_sel) >> source) & 1;
}
bool negates(const instruction& i, int source, bool high_result) {
  return ((high_result ? i.neg_hi : i.neg_lo) >> source) & 1;
}

// The 16-bit lanes of one source for one half of the result.
void read_half(const wave& w, const instruction& i, int source, bool high_result, bool is_float,
               u32* out) {
  const operand& o = i.operands[source + 1];
  const bool high = selects_high(i, source, high_result);
  if (o.kind == operand_kind::vector) {
    const u32* lanes = w.v[o.reg];
    const int shift = high ? 16 : 0;
    for (int l = 0; l < lanes_per_wave; ++l) out[l] = (lanes[l] >> shift) & 0xffff;
  } else {
    u32 value = read_scalar(w, o);
    if (is_float && o.kind == operand_kind::real) value = float_to_half(static_cast<float>(o.real));
    value = high ? value >> 16 : value & 0xffff;
    for (int l = 0; l < lanes_per_wave; ++l) out[l] = value;
  }
  if (is_float && negates(i, source, high_result)) {
    for (int l = 0; l < lanes_per_wave; ++l) out[l] ^= 0x8000;
  }
}

template <int sources, bool is_float, auto f>
void packed_half(wave& w, const instruction& i) {
  alignas(64) u32 a[lanes_per_wave];
  alignas(64) u32 b[lanes_per_wave];
  alignas(64) u32 c[lanes_per_wave];
  alignas(64) u32 halves[2][lanes_per_wave];
  for (int half = 0; half < 2; ++half) {
    read_half(w, i, 0, half, is_float, a);
    read_half(w, i, 1, half, is_float, b);
    if (sources > 2) {
      read_half(w, i, 2, half, is_float, c);
    } else {
      std::memcpy(c, b, sizeof c);
    }
    for (int l = 0; l < lanes_per_wave; ++l)
      halves[half][l] = f(a[l], b[l], c[l], i.clamp) & 0xffff;
    if (is_float && i.clamp) {
      for (u32& h : halves[half]) h = float_to_half(finish_float(w, i, half_to_float(h)));
    }
  }
  for (int l = 0; l < lanes_per_wave; ++l) halves[0][l] |= halves[1][l] << 16;
  write_lanes(w, i, halves[0]);
}

// The single-precision lanes of one source for one half of the result: a register of the pair.
const u32* read_single(const wave& w, const instruction& i, int source, bool high_result,
                       u32* buffer) {
  const operand& o = i.operands[source + 1];
  const bool high = selects_high(i, source, high_result);
  const u32* lanes = buffer;
  if (o.kind == operand_kind::vector) {
    lanes = w.v[o.reg + (high ? 1 : 0)];
  } else {
    u32 value;
    if (o.kind == operand_kind::scalar) {
      value = w.s[o.reg + (o.width > 1 && high ? 1 : 0)];
    } else {
      value = constant_bits(o);
    }
    for (int l = 0; l < lanes_per_wave; ++l) buffer[l] = value;
  }
  if (negates(i, source, high_result)) {
    for (int l = 0; l < lanes_per_wave; ++l) buffer[l] = lanes[l] ^ 0x80000000u;
    lanes = buffer;
  }
  return lanes;
}

template <int sources, auto f>
void packed_f32(wave& w, const instruction& i) {
  alignas(64) u32 buffer[3][lanes_per_wave];
  alignas(64) u32 halves[2][lanes_per_wave];
  for (int half = 0; half < 2; ++half) {
    const u32* a = read_single(w, i, 0, half, buffer[0]);
    const u32* b = read_single(w, i, 1, half, buffer[1]);
    const u32* c = sources > 2 ? read_single(w, i, 2, half, buffer[2]) : b;
    for (int l = 0; l < lanes_per_wave; ++l) {
      halves[half][l] = as_bits(f(as_float(a[l]), as_float(b[l]), as_float(c[l])));
    }
    if (i.clamp) {
      for (u32& h : halves[half]) h = as_bits(finish_float(w, i, as_float(h)));
    }
  }
  const uint64_t mask = w.exec();
  const int reg = i.operands[0].reg;
  merge_lanes(w.v[reg], halves[0], mask);
  merge_lanes(w.v[reg + 1], halves[1], mask);
}

void run_pk_mov(wave& w, const instruction& i) {
  alignas(64) u32 buffer[2][lanes_per_wave];
  alignas(64) u32 low[lanes_per_wave];
  alignas(64) u32 high[lanes_per_wave];
  // The low result comes from source 0, the high one from source 1; op_sel picks the register.
  const u32* a = read_single(w, i, 0, false, buffer[0]);
  const u32* b = read_single(w, i, 1, false, buffer[1]);
  std::memcpy(low, a, sizeof low);
  std::memcpy(high, b, sizeof high);
  const uint64_t mask = w.exec();
  merge_lanes(w.v[i.operands[0].reg], low, mask);
  merge_lanes(w.v[i.operands[0].reg + 1], high, mask);
}

// Sources are single, or half when op_sel_hi says so; op_sel then picks the half.
float read_mixed(const wave& w, const instruction& i, int source, int lane) {
  const operand& o = i.operands[source + 1];
  const u32 bits = o.kind == operand_kind::vector ? w.v[o.reg][lane] : read_scalar(w, o);
  float x;
  if (i.has_op_sel_hi && ((i.op_sel_hi >> source) & 1)) {
    if (o.kind == operand_kind::real) {
      x = static_cast<float>(o.real);
    } else {
      x = half_to_float((i.op_sel >> source) & 1 ? bits >> 16 : bits);
    }
  } else {
    x = as_float(bits);
  }
  if (o.absolute) x = std::fabs(x);
  if (o.negate) x = -x;
  return x;
}

enum class mixed_result { single, low_half, high_half };

template <mixed_result form>
void run_fma_mix(wave& w, const instruction& i) {
  u32* d = w.v[i.operands[0].reg];
  for_each_lane(w.exec(), [&](int l) {
    const float sum = finish_float(
        w, i, std::fma(read_mixed(w, i, 0, l), read_mixed(w, i, 1, l), read_mixed(w, i, 2, l)));
    switch (form) {
      case mixed_result::single:
        d[l] = as_bits(sum);
        break;
      case mixed_result::low_half:
        d[l] = (d[l] & 0xffff0000u) | float_to_half(sum);
        break;
      case mixed_result::high_half:
        d[l] = (d[l] & 0xffffu) | (float_to_half(sum) << 16);
        break;
    }
  });
}

float dot_f16(u32 a, u32 b, float c) {
  return half_to_float(a) * half_to_float(b) + half_to_float(a >> 16) * half_to_float(b >> 16) + c;
}

void run_dot2c_f32_f16(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::bits>(w, i, 2, buffer[1]);
  const u32* d = w.v[i.operands[0].reg];
  for (int l = 0; l < lanes_per_wave; ++l) {
    result[l] = as_bits(dot_f16(a[l], b[l], as_float(d[l])));
  }
  write_lanes(w, i, result);
}

u32 fused_half(u32 a, u32 b, u32 c) {
  const double sum = static_cast<double>(half_to_float(a)) * half_to_float(b) + half_to_float(c);
  return bit_cast<uint16_t>(static_cast<_Float16>(sum));
}

u32 limit_unsigned(int x, bool clamp) {
  return static_cast<u32>(clamp ? std::clamp(x, 0, 65535) : x);
}
u32 limit_signed(int x, bool clamp) {
  return static_cast<u32>(clamp ? std::clamp(x, -32768, 32767) : x);
}
int whole(u32 a) { return static_cast<int>(a); }
int with_sign(u32 a) { return as_short(a); }

constexpr uint16_t floats = feature_packed | feature_clamp;
constexpr uint16_t clamped = feature_packed | feature_clamp;

constexpr handler_entry table[] = {
    {"v_pk_add_f16",
     packed_half<2, true,
                 [](u32 a, u32 b, u32, bool) {
                   return float_to_half(half_to_float(a) + half_to_float(b));
                 }>,
     floats},
    {"v_pk_mul_f16",
     packed_half<2, true,
                 [](u32 a, u32 b, u32, bool) {
                   return float_to_half(half_to_float(a) * half_to_float(b));
                 }>,
     floats},
    {"v_pk_fma_f16",
     packed_half<3, true, [](u32 a, u32 b, u32 c, bool) { return fused_half(a, b, c); }>, floats},
    {"v_pk_max_f16",
     packed_half<2, true,
                 [](u32 a, u32 b, u32, bool) {
                   return float_to_half(max_number(half_to_float(a), half_to_float(b)));
                 }>,
     floats},
    {"v_pk_min_f16",
     packed_half<2, true,
                 [](u32 a, u32 b, u32, bool) {
                   return float_to_half(min_number(half_to_float(a), half_to_float(b)));
                 }>,
     floats},
    {"v_pk_add_u16",
     packed_half<2, false,
                 [](u32 a, u32 b, u32, bool clamp) {
                   return limit_unsigned(whole(a) + whole(b), clamp);
                 }>,
     clamped},
    {"v_pk_sub_u16",
     packed_half<2, false,
                 [](u32 a, u32 b, u32, bool clamp) {
                   return limit_unsigned(whole(a) - whole(b), clamp);
                 }>,
     clamped},
    {"v_pk_add_i16",
     packed_half<2, false,
                 [](u32 a, u32 b, u32, bool clamp) {
                   return limit_signed(with_sign(a) + with_sign(b), clamp);
                 }>,
     clamped},
    {"v_pk_sub_i16",
     packed_half<2, false,
                 [](u32 a, u32 b, u32, bool clamp) {
                   return limit_signed(with_sign(a) - with_sign(b), clamp);
                 }>,
     clamped},
    {"v_pk_mul_lo_u16", packed_half<2, false, [](u32 a, u32 b, u32, bool) { return a * b; }>,
     feature_packed},
    {"v_pk_mad_u16", packed_half<3, false, [](u32 a, u32 b, u32 c, bool) { return a * b + c; }>,
     feature_packed},
    {"v_pk_mad_i16", packed_half<3, false, [](u32 a, u32 b, u32 c, bool) { return a * b + c; }>,
     feature_packed},
    {"v_pk_max_u16", packed_half<2, false, [](u32 a, u32 b, u32, bool) { return std::max(a, b); }>,
     feature_packed},
    {"v_pk_min_u16", packed_half<2, false, [](u32 a, u32 b, u32, bool) { return std::min(a, b); }>,
     feature_packed},
    {"v_pk_max_i16",
     packed_half<2, false,
                 [](u32 a, u32 b, u32, bool) {
                   return static_cast<u32>(std::max(with_sign(a), with_sign(b)));
                 }>,
     feature_packed},
    {"v_pk_min_i16",
     packed_half<2, false,
                 [](u32 a, u32 b, u32, bool) {
                   return static_cast<u32>(std::min(with_sign(a), with_sign(b)));
                 }>,
     feature_packed},
    {"v_pk_lshlrev_b16",
     packed_half<2, false, [](u32 a, u32 b, u32, bool) { return b << (a & 15); }>, feature_packed},
    {"v_pk_lshrrev_b16",
     packed_half<2, false, [](u32 a, u32 b, u32, bool) { return (b >> (a & 15)); }>,
     feature_packed},
    {"v_pk_ashrrev_i16",
     packed_half<2, false,
                 [](u32 a, u32 b, u32, bool) {
                   return (static_cast<u32>(with_sign(b) >> (a & 15)));
                 }>,
     feature_packed},

    {"v_pk_fma_f32", packed_f32<3, [](float x, float y, float z) { return std::fma(x, y, z); }>,
     floats},
    {"v_pk_mul_f32", packed_f32<2, [](float x, float y, float) { return x * y; }>, floats},
    {"v_pk_add_f32", packed_f32<2, [](float x, float y, float) { return x + y; }>, floats},
    {"v_pk_mov_b32", run_pk_mov, feature_packed},

    {"v_fma_mix_f32", run_fma_mix<mixed_result::single>,
     feature_packed | feature_sign | feature_clamp},
    {"v_fma_mixlo_f16", run_fma_mix<mixed_result::low_half>,
     feature_packed | feature_sign | feature_clamp},
    {"v_fma_mixhi_f16", run_fma_mix<mixed_result::high_half>,
     feature_packed | feature_sign | feature_clamp},
    {"v_dot2_f32_f16",
     lanewise<3, [](u32 a, u32 b, u32 c) { return as_bits(dot_f16(a, b, as_float(c))); }>, 0},
    {"v_dot2c_f32_f16", run_dot2c_f32_f16, feature_dpp},
};

}  // namespace

handler_list packed_handlers() { return table; }

}  // namespace kindex::emulator
