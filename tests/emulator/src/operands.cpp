// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "operands.hpp"

namespace kindex::emulator {
namespace {

struct mask_table {
  alignas(32) uint32_t words[256][8];
  constexpr mask_table() : words() {
    for (int byte = 0; byte < 256; ++byte) {
      for (int lane = 0; lane < 8; ++lane) words[byte][lane] = (byte >> lane) & 1 ? ~0u : 0u;
    }
  }
};
constexpr mask_table masks;

uint32_t select_part(uint32_t x, int select, bool sign_extend) {
  if (select < 4) {
    const uint32_t byte = (x >> (8 * select)) & 0xff;
    return sign_extend ? static_cast<uint32_t>(static_cast<int8_t>(byte)) : byte;
  }
  if (select < 6) {
    const uint32_t word = (x >> (16 * (select - 4))) & 0xffff;
    return sign_extend ? static_cast<uint32_t>(static_cast<int16_t>(word)) : word;
  }
  return x;
}

}  // namespace

const uint32_t (&lane_mask_table)[256][8] = masks.words;

int dpp_source(const instruction& i, int lane) {
  const int row = lane & ~15;
  const int place = lane & 15;
  const int n = i.dpp_amount;
  switch (i.dpp) {
    case dpp_control::none:
      return lane;
    case dpp_control::quad_perm:
      return (lane & ~3) | i.quad[lane & 3];
    case dpp_control::row_shl:
      return place + n < 16 ? lane + n : -1;
    case dpp_control::row_shr:
      return place - n >= 0 ? lane - n : -1;
    case dpp_control::row_ror:
      return row + ((place - n) & 15);
    case dpp_control::row_mirror:
      return row + 15 - place;
    case dpp_control::row_half_mirror:
      return (lane & ~7) | (7 - (lane & 7));
    case dpp_control::row_bcast15:
      return row >= 16 ? row - 1 : -1;
    case dpp_control::row_bcast31:
      return lane >= 32 ? 31 : -1;
    case dpp_control::row_newbcast:
      return row + n;
    case dpp_control::wave_shr:
      return lane - 1;
    case dpp_control::wave_shl:
      return lane + 1 < lanes_per_wave ? lane + 1 : -1;
    case dpp_control::wave_ror:
      return (lane - 1) & 63;
    case dpp_control::wave_rol:
      return (lane + 1) & 63;
  }
  return lane;
}

uint64_t dpp_write_mask(const wave& w, const instruction& i) {
  const uint64_t exec = w.exec();
  uint64_t result = 0;
  for_each_lane(exec, [&](int lane) {
    if (!((i.row_mask >> (lane >> 4)) & 1) || !((i.bank_mask >> ((lane >> 2) & 3)) & 1)) return;
    const int source = dpp_source(i, lane);
    const bool invalid = source < 0 || !((exec >> source) & 1);
    if (!invalid || i.bound_control) result |= uint64_t{1} << lane;
  });
  return result;
}

const uint32_t* read_lanes_indirect(const wave& w, const instruction& i, int index, lane_type type,
                                    uint32_t* buffer) {
  const operand& o = i.operands[index];
  const int source = index - i.destination_count;
  const uint32_t* lanes = buffer;
  if (o.kind == operand_kind::vector) {
    lanes = w.v[o.reg];
  } else {
    uint32_t value = read_scalar(w, o);
    if (type == lane_type::f16 && o.kind == operand_kind::real) {
      value = float_to_half(static_cast<float>(o.real)) * 0x10001u;
    }
    for (int l = 0; l < lanes_per_wave; ++l) buffer[l] = value;
  }
  if (i.dpp != dpp_control::none && source == 0) {
    uint32_t moved[lanes_per_wave];
    const uint64_t exec = w.exec();
    for (int l = 0; l < lanes_per_wave; ++l) {
      const int from = dpp_source(i, l);
      moved[l] = from < 0 || !((exec >> from) & 1) ? 0 : lanes[from];
    }
    std::memcpy(buffer, moved, sizeof moved);
    lanes = buffer;
  }
  if (i.sdwa && source >= 0 && source < 2 && (i.source_select[source] != 6 || o.sign_extend)) {
    const int select = i.source_select[source];
    for (int l = 0; l < lanes_per_wave; ++l) {
      buffer[l] = select_part(lanes[l], select, o.sign_extend);
    }
    lanes = buffer;
  }
  if (type == lane_type::f16 && i.has_op_sel && source >= 0 && ((i.op_sel >> source) & 1)) {
    for (int l = 0; l < lanes_per_wave; ++l) buffer[l] = lanes[l] >> 16;
    lanes = buffer;
  }
  if ((o.negate || o.absolute) && type != lane_type::bits) {
    const uint32_t sign = type == lane_type::f32 ? 0x80000000u : 0x8000u;
    const uint32_t keep = o.absolute ? ~sign : ~0u;
    const uint32_t flip = o.negate ? sign : 0;
    for (int l = 0; l < lanes_per_wave; ++l) buffer[l] = (lanes[l] & keep) ^ flip;
    lanes = buffer;
  }
  return lanes;
}

void merge_lanes_sdwa(uint32_t* destination, const uint32_t* result, uint64_t mask,
                      const instruction& i) {
  const int select = i.destination_select;
  const int bits = select < 4 ? 8 : 16;
  const int shift = select < 4 ? 8 * select : 16 * (select - 4);
  const uint32_t field = (1u << bits) - 1;
  for_each_lane(mask, [&](int l) {
    const uint32_t x = result[l] & field;
    uint32_t& d = destination[l];
    switch (i.unused) {
      case unused_policy::preserve:
        d = (d & ~(field << shift)) | (x << shift);
        break;
      case unused_policy::sign_extend:
        d = static_cast<uint32_t>(static_cast<int32_t>(x << (32 - bits)) >> (32 - bits)) << shift;
        break;
      case unused_policy::pad:
        d = x << shift;
        break;
    }
  });
}

}  // namespace kindex::emulator
