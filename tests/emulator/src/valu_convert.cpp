// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Conversions between number formats.

#include <algorithm>

#include "fp8.hpp"
#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

using u32 = uint32_t;

constexpr uint16_t movable = feature_dpp | feature_sdwa;
constexpr uint16_t to_float = movable | feature_clamp | feature_output_scale;
constexpr uint16_t from_float = movable | feature_sign;

bool saturates(const wave& w) { return (w.mode >> 23) & 1; }  // MODE.FP16_OVFL

template <auto f>
void integer_to_f32(wave& w, const instruction& i) {
  alignas(64) u32 buffer[lanes_per_wave];
  alignas(64) u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 1, buffer);
  for (int l = 0; l < lanes_per_wave; ++l) result[l] = as_bits(static_cast<float>(f(a[l])));
  if (i.clamp || i.output_scale) {
    for (u32& r : result) r = as_bits(finish_float(w, i, as_float(r)));
  }
  write_lanes(w, i, result);
}

template <auto f>
constexpr auto from_f32 = [](u32 a, u32, u32) { return static_cast<u32>(f(as_float(a))); };

void run_cvt_f16_f32(wave& w, const instruction& i) {
  alignas(64) u32 buffer[lanes_per_wave];
  alignas(64) u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f32>(w, i, 1, buffer);
  for (int l = 0; l < lanes_per_wave; ++l) {
    result[l] = float_to_half(finish_float(w, i, as_float(a[l])));
  }
  write_lanes(w, i, result);
}

void run_cvt_f32_f16(wave& w, const instruction& i) {
  alignas(64) u32 buffer[lanes_per_wave];
  alignas(64) u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::f16>(w, i, 1, buffer);
  for (int l = 0; l < lanes_per_wave; ++l) {
    result[l] = as_bits(finish_float(w, i, half_to_float(a[l])));
  }
  write_lanes(w, i, result);
}

u32 truncate_to_half(float x) {
  u32 h = float_to_half(x);
  if (std::isfinite(x) && std::fabs(half_to_float(h)) > std::fabs(x)) --h;
  return h;
}

u32 normalized(float x, float scale) {
  if (x != x) return 0;
  return static_cast<u32>(static_cast<int32_t>(std::rint(x * scale)));
}

// Two floats to two bytes; op_sel chooses the half of the destination, the other one stays.
template <bool is_e5m2>
void run_cvt_pk_fp8(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  const u32* a = read_lanes<lane_type::f32>(w, i, 1, buffer[0]);
  const u32* b = read_lanes<lane_type::f32>(w, i, 2, buffer[1]);
  const bool ocp = w.owner->launch->ocp;
  const fp8_format format = is_e5m2 ? e5m2(ocp) : e4m3(ocp);
  const bool saturate = saturates(w);
  const bool high = i.op_sel & 0xc;
  u32* d = w.v[i.operands[0].reg];
  for_each_lane(write_mask(w, i), [&](int l) {
    const u32 pair = encode_fp8(as_float(a[l]), format, saturate) |
                     static_cast<u32>(encode_fp8(as_float(b[l]), format, saturate) << 8);
    d[l] = high ? (d[l] & 0xffff) | (pair << 16) : (d[l] & 0xffff0000u) | pair;
  });
}

// One float to a byte with stochastic rounding; op_sel[3:2] chooses the byte.
template <bool is_e5m2>
void run_cvt_sr_fp8(wave& w, const instruction& i) {
  u32 buffer[2][lanes_per_wave];
  const u32* a = read_lanes<lane_type::f32>(w, i, 1, buffer[0]);
  const u32* noise = read_lanes<lane_type::bits>(w, i, 2, buffer[1]);
  const bool ocp = w.owner->launch->ocp;
  const fp8_format format = is_e5m2 ? e5m2(ocp) : e4m3(ocp);
  const bool saturate = saturates(w);
  const int shift = 8 * ((i.op_sel >> 2) & 3);
  u32* d = w.v[i.operands[0].reg];
  for_each_lane(w.exec(), [&](int l) {
    const u32 byte = encode_fp8_stochastic(as_float(a[l]), noise[l], format, saturate);
    d[l] = (d[l] & ~(0xffu << shift)) | (byte << shift);
  });
}

template <bool is_e5m2>
void run_cvt_f32_fp8(wave& w, const instruction& i) {
  u32 buffer[lanes_per_wave];
  u32 result[lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 1, buffer);
  const float* table = fp8_table(w.owner->launch->ocp, is_e5m2);
  for (int l = 0; l < lanes_per_wave; ++l) {
    result[l] = as_bits(finish_float(w, i, table[a[l] & 255]));
  }
  write_lanes(w, i, result);
}

template <bool is_e5m2>
void run_cvt_pk_f32_fp8(wave& w, const instruction& i) {
  u32 buffer[lanes_per_wave];
  const u32* a = read_lanes<lane_type::bits>(w, i, 1, buffer);
  const float* table = fp8_table(w.owner->launch->ocp, is_e5m2);
  const int shift = i.has_op_sel && (i.op_sel & 1) ? 16 : 0;
  for_each_lane(write_mask(w, i), [&](int l) {
    const u32 x = a[l] >> shift;
    write_wide(
        w, i, 0, l,
        as_bits(table[x & 255]) | (static_cast<uint64_t>(as_bits(table[(x >> 8) & 255])) << 32));
  });
}

// A byte of source 0 as unsigned integer into a byte of source 2.
u32 pack_u8(u32 a, u32 b, u32 c) {
  const float x = std::trunc(as_float(a));
  const u32 byte = !(x > 0) ? 0 : x > 255 ? 255 : static_cast<u32>(x);
  const int shift = 8 * (b & 3);
  return (c & ~(0xffu << shift)) | (byte << shift);
}

constexpr handler_entry table[] = {
    {"v_cvt_f32_i32", integer_to_f32<[](u32 a) { return as_int(a); }>, to_float},
    {"v_cvt_f32_u32", integer_to_f32<[](u32 a) { return a; }>, to_float},
    {"v_cvt_f32_ubyte0", integer_to_f32<[](u32 a) { return a & 255; }>, to_float},
    {"v_cvt_f32_ubyte1", integer_to_f32<[](u32 a) { return ((a >> 8) & 255); }>, to_float},
    {"v_cvt_f32_ubyte2", integer_to_f32<[](u32 a) { return ((a >> 16) & 255); }>, to_float},
    {"v_cvt_f32_ubyte3", integer_to_f32<[](u32 a) { return (a >> 24); }>, to_float},
    {"v_cvt_off_f32_i4",
     lanewise<1, [](u32 a, u32, u32) { return (as_bits((as_int(a << 28) >> 28) / 16.0f)); }>,
     movable},
    {"v_cvt_u32_f32", lanewise<1, from_f32<to_unsigned>, lane_type::f32>, from_float},
    {"v_cvt_i32_f32", lanewise<1, from_f32<to_signed>, lane_type::f32>, from_float},
    {"v_cvt_rpi_i32_f32",
     lanewise<1,
              from_f32<[](float x) { return to_signed(std::floor(static_cast<double>(x) + 0.5)); }>,
              lane_type::f32>,
     from_float},
    {"v_cvt_flr_i32_f32",
     lanewise<1, from_f32<[](float x) { return to_signed(std::floor(x)); }>, lane_type::f32>,
     from_float},
    {"v_cvt_f16_f32", run_cvt_f16_f32, from_float | feature_clamp | feature_output_scale},
    {"v_cvt_f32_f16", run_cvt_f32_f16, from_float | feature_clamp | feature_output_scale},
    {"v_cvt_pkrtz_f16_f32",
     lanewise<2,
              [](u32 a, u32 b, u32) {
                return truncate_to_half(as_float(a)) | (truncate_to_half(as_float(b)) << 16);
              },
              lane_type::f32>,
     feature_sign},
    {"v_cvt_pknorm_i16_f32",
     lanewise<2,
              [](u32 a, u32 b, u32) {
                const auto one = [](u32 x) {
                  return normalized(std::clamp(as_float(x), -1.0f, 1.0f), 32767.0f) & 0xffff;
                };
                return one(a) | (one(b) << 16);
              },
              lane_type::f32>,
     feature_sign},
    {"v_cvt_pknorm_u16_f32",
     lanewise<2,
              [](u32 a, u32 b, u32) {
                const auto one = [](u32 x) {
                  return normalized(std::clamp(as_float(x), 0.0f, 1.0f), 65535.0f) & 0xffff;
                };
                return one(a) | (one(b) << 16);
              },
              lane_type::f32>,
     feature_sign},
    {"v_cvt_pk_u16_u32",
     lanewise<2,
              [](u32 a, u32 b, u32) { return std::min(a, 65535u) | (std::min(b, 65535u) << 16); }>,
     0},
    {"v_cvt_pk_i16_i32",
     lanewise<2,
              [](u32 a, u32 b, u32) {
                const auto one = [](u32 x) {
                  return static_cast<u32>(std::clamp(as_int(x), -32768, 32767)) & 0xffff;
                };
                return one(a) | (one(b) << 16);
              }>,
     0},
    {"v_cvt_pk_u8_f32", lanewise<3, pack_u8, lane_type::f32>, 0},
    {"v_cvt_u16_f16",
     lanewise<1,
              [](u32 a, u32, u32) {
                const float x = half_to_float(a);
                return (!(x > 0) ? 0u : static_cast<u32>(std::min(x, 65535.0f)));
              },
              lane_type::f16>,
     from_float},
    {"v_cvt_i16_f16",
     lanewise<1,
              [](u32 a, u32, u32) {
                const float x = half_to_float(a);
                if (x != x) return 0u;
                return static_cast<u32>(static_cast<int32_t>(std::clamp(x, -32768.0f, 32767.0f))) &
                       0xffff;
              },
              lane_type::f16>,
     from_float},
    {"v_cvt_f16_u16",
     lanewise<1, [](u32 a, u32, u32) { return float_to_half(static_cast<float>(a & 0xffff)); },
              lane_type::f16>,
     movable},
    {"v_cvt_f16_i16",
     lanewise<1, [](u32 a, u32, u32) { return float_to_half(static_cast<float>(as_short(a))); },
              lane_type::f16>,
     movable},

    {"v_cvt_pk_fp8_f32", run_cvt_pk_fp8<false>, feature_sign | feature_op_sel},
    {"v_cvt_pk_bf8_f32", run_cvt_pk_fp8<true>, feature_sign | feature_op_sel},
    {"v_cvt_sr_fp8_f32", run_cvt_sr_fp8<false>, feature_sign | feature_op_sel},
    {"v_cvt_sr_bf8_f32", run_cvt_sr_fp8<true>, feature_sign | feature_op_sel},
    {"v_cvt_f32_fp8", run_cvt_f32_fp8<false>, movable | feature_clamp | feature_output_scale},
    {"v_cvt_f32_bf8", run_cvt_f32_fp8<true>, movable | feature_clamp | feature_output_scale},
    {"v_cvt_pk_f32_fp8", run_cvt_pk_f32_fp8<false>, movable | feature_op_sel},
    {"v_cvt_pk_f32_bf8", run_cvt_pk_f32_fp8<true>, movable | feature_op_sel},
};

}  // namespace

handler_list convert_handlers() { return table; }

}  // namespace kindex::emulator
