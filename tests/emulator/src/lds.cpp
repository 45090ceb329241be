// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "lds.hpp"

#include <algorithm>
#include <cstdio>

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

constexpr uint8_t write_atomic = 1;
constexpr uint8_t reads_atomic = 2;

enum class access { load, store, atomic };

bool in_bounds(wave& w, const instruction& i, int lane, uint32_t address, unsigned bytes,
               bool write) {
  const size_t size = w.owner->lds.size();
  if (static_cast<uint64_t>(address) + bytes <= size) return true;
  char text[160];
  std::snprintf(text, sizeof text, "LDS %s out of bounds: %u bytes at %u of %zu",
                write ? "store" : "load", bytes, address, size);
  report(w, i, finding_kind::lds_access, lane, text);
  return false;
}

void report_race(wave& w, const instruction& i, int lane, uint32_t byte, bool write,
                 const lds_shadow& s, bool against_write) {
  char text[200];
  if (against_write) {
    std::snprintf(text, sizeof text,
                  "LDS race: byte %u %s, and written by wave %d without a barrier in between", byte,
                  write ? "written" : "read", s.writer);
  } else {
    std::snprintf(text, sizeof text,
                  "LDS race: byte %u written, and read by waves 0x%x without a barrier in between",
                  byte, s.readers & ~(1u << w.id));
  }
  report(w, i, finding_kind::lds_race, lane, text);
}

void touch(wave& w, const instruction& i, int lane, uint32_t byte, lds_shadow& s, access kind) {
  const uint32_t epoch = w.owner->group.epoch;
  const uint16_t self = static_cast<uint16_t>(1u << w.id);
  const bool writes = kind != access::load;
  const bool reads = kind != access::store;
  const bool is_atomic = kind == access::atomic;
  if (s.write_epoch == epoch && s.writer != w.id && !(is_atomic && (s.flags & write_atomic))) {
    report_race(w, i, lane, byte, writes, s, true);
  }
  if (writes) {
    if (s.read_epoch == epoch && (s.readers & ~self) && !(is_atomic && (s.flags & reads_atomic))) {
      report_race(w, i, lane, byte, true, s, false);
    }
    s.write_epoch = epoch;
    s.writer = static_cast<uint8_t>(w.id);
    s.flags = static_cast<uint8_t>((s.flags & ~write_atomic) | (is_atomic ? write_atomic : 0));
  }
  if (reads) {
    if (s.read_epoch != epoch) {
      s.read_epoch = epoch;
      s.readers = 0;
      s.flags |= reads_atomic;
    }
    s.readers |= self;
    if (!is_atomic) s.flags &= static_cast<uint8_t>(~reads_atomic);
  }
}

// A dword is tracked as a whole until a part of it is accessed, then byte by byte until the next
// barrier.
void track(wave& w, const instruction& i, int lane, uint32_t address, unsigned bytes, access kind) {
  worker& k = *w.owner;
  if (!k.launch->checks || k.group.waves < 2) return;
  const uint32_t epoch = k.group.epoch;
  const uint32_t end = address + bytes;
  for (uint32_t at = address; at < end;) {
    const uint32_t dword = at / 4;
    const uint32_t stop = std::min(end, 4 * dword + 4);
    const bool whole = at == 4 * dword && stop == at + 4;
    if (whole && k.dword_shadow[dword].split_epoch != epoch) {
      touch(w, i, lane, at, k.dword_shadow[dword], kind);
    } else {
      if (k.dword_shadow[dword].split_epoch != epoch) {
        k.dword_shadow[dword].split_epoch = epoch;
        for (int b = 0; b < 4; ++b) k.byte_shadow[4 * dword + b] = k.dword_shadow[dword];
      }
      for (uint32_t b = at; b < stop; ++b) touch(w, i, lane, b, k.byte_shadow[b], kind);
    }
    at = stop;
  }
}

void check_alignment(wave& w, const instruction& i, int lane, uint32_t address) {
  const unsigned size = i.access_size;
  // Two-address instructions access each element on its own.
  const unsigned needed = size == 12 ? 4 : size;
  if (address % needed == 0) return;
  char text[120];
  std::snprintf(text, sizeof text, "misaligned LDS access: %u bytes at %u", size, address);
  report(w, i, finding_kind::misaligned, lane, text);
}

// True when every active lane is within LDS and aligned, so that none needs its own check.
bool all_in_order(const worker& k, const instruction& i, const uint32_t* address, uint64_t mask) {
  const unsigned needed = i.access_size == 12 ? 4 : i.access_size;
  uint32_t high = 0;
  uint32_t bits = 0;
  if (mask == ~uint64_t{0}) {
    for (int l = 0; l < lanes_per_wave; ++l) {
      high = std::max(high, address[l]);
      bits |= address[l];
    }
  } else {
    for_each_lane(mask, [&](int l) {
      high = std::max(high, address[l]);
      bits |= address[l];
    });
  }
  return bits % needed == 0 && static_cast<uint64_t>(high) + i.access_size <= k.lds.size();
}

// `track` for all lanes, with the common case inline: whole dwords that only this wave touches.
template <access kind>
void track_lanes(wave& w, const instruction& i, const uint32_t* address, uint64_t mask) {
  worker& k = *w.owner;
  if (!k.launch->checks || k.group.waves < 2) return;
  const unsigned bytes = i.access_size;
  if (bytes % 4) {
    for_each_lane(mask, [&](int l) { track(w, i, l, address[l], bytes, kind); });
    return;
  }
  const uint32_t epoch = k.group.epoch;
  const uint16_t self = static_cast<uint16_t>(1u << w.id);
  const uint8_t id = static_cast<uint8_t>(w.id);
  for_each_lane(mask, [&](int l) {
    lds_shadow* s = &k.dword_shadow[address[l] / 4];
    for (unsigned d = 0; d < bytes / 4; ++d, ++s) {
      const bool foreign_write = s->write_epoch == epoch && s->writer != id;
      const bool foreign_read =
          kind == access::store && s->read_epoch == epoch && (s->readers & ~self);
      if (__builtin_expect(foreign_write || foreign_read || s->split_epoch == epoch, false)) {
        track(w, i, l, address[l] + 4 * d, 4, kind);
      } else if (kind == access::load) {
        s->readers = s->read_epoch == epoch ? static_cast<uint16_t>(s->readers | self) : self;
        s->read_epoch = epoch;
        s->flags &= static_cast<uint8_t>(~reads_atomic);
      } else {
        s->write_epoch = epoch;
        s->writer = id;
        s->flags &= static_cast<uint8_t>(~write_atomic);
      }
    }
  });
}

template <unsigned size>
void copy_lanes_from(wave& w, int reg, const uint32_t* address, uint64_t mask) {
  const uint8_t* lds = w.owner->lds.data();
  for_each_lane(mask, [&](int l) {
    uint32_t data[size / 4];
    std::memcpy(data, lds + address[l], size);
    for (unsigned k = 0; k < size / 4; ++k) w.v[reg + static_cast<int>(k)][l] = data[k];
  });
}

template <unsigned size>
void copy_lanes_to(wave& w, int reg, const uint32_t* address, uint64_t mask) {
  uint8_t* lds = w.owner->lds.data();
  for_each_lane(mask, [&](int l) {
    uint32_t data[size / 4];
    for (unsigned k = 0; k < size / 4; ++k) data[k] = w.v[reg + static_cast<int>(k)][l];
    std::memcpy(lds + address[l], data, size);
  });
}

// Passes over the 32 banks: lanes go in groups of 32, 16 or 8 by access width; distinct dwords of
// one bank follow each other, equal ones are broadcast.
void count_banks(worker& k, const uint32_t* address, uint64_t mask, unsigned bytes) {
  const int group_lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  const unsigned dwords = (bytes + 3) / 4;
  for (int first = 0; first < lanes_per_wave; first += group_lanes) {
    const uint64_t group = (mask >> first) & low_mask(static_cast<unsigned>(group_lanes));
    if (!group) continue;
    uint32_t used = 0;
    uint32_t owner[32];
    bool conflict = false;
    for_each_lane(group, [&](int l) {
      const uint32_t dword = address[first + l] / 4;
      for (unsigned d = 0; d < dwords; ++d) {
        const uint32_t bank = (dword + d) & 31;
        if (!((used >> bank) & 1)) {
          used |= 1u << bank;
          owner[bank] = dword + d;
        } else if (owner[bank] != dword + d) {
          conflict = true;
        }
      }
    });
    ++k.counters.lds_ideal_cycles;
    if (!conflict) {
      ++k.counters.lds_cycles;
      continue;
    }
    uint32_t distinct[32][32];
    int count[32] = {};
    int worst = 0;
    for_each_lane(group, [&](int l) {
      const uint32_t dword = address[first + l] / 4;
      for (unsigned d = 0; d < dwords; ++d) {
        const uint32_t bank = (dword + d) & 31;
        const uint32_t* end = distinct[bank] + count[bank];
        if (std::find<const uint32_t*>(distinct[bank], end, dword + d) == end) {
          distinct[bank][count[bank]++] = dword + d;
        }
        worst = std::max(worst, count[bank]);
      }
    });
    k.counters.lds_cycles += static_cast<uint64_t>(worst);
  }
}

void write_result(wave& w, const instruction& i, int reg, int lane, const uint32_t* data) {
  const unsigned size = i.access_size;
  if (size >= 4) {
    for (unsigned k = 0; k < size / 4; ++k) w.v[reg + k][lane] = data[k];
    return;
  }
  uint32_t x = data[0];
  if (size == 1) {
    x = i.sign_extend ? static_cast<uint32_t>(static_cast<int8_t>(x)) : x & 0xff;
  } else {
    x = i.sign_extend ? static_cast<uint32_t>(static_cast<int16_t>(x)) : x & 0xffff;
  }
  uint32_t& d = w.v[reg][lane];
  if (i.d16 == 1) {
    d = (d & 0xffff0000u) | (x & 0xffff);
  } else if (i.d16 == 2) {
    d = (d & 0xffff) | (x << 16);
  } else {
    d = x;
  }
}

void lane_addresses(const wave& w, int reg, uint32_t offset, uint32_t* address) {
  const uint32_t* base = w.v[reg];
  for (int l = 0; l < lanes_per_wave; ++l) address[l] = base[l] + offset;
}

}  // namespace

void lds_load(wave& w, const instruction& i, int lane, uint32_t address, unsigned bytes,
              void* data) {
  if (!in_bounds(w, i, lane, address, bytes, false)) return;
  track(w, i, lane, address, bytes, access::load);
  std::memcpy(data, &w.owner->lds[address], bytes);
}

void lds_store(wave& w, const instruction& i, int lane, uint32_t address, unsigned bytes,
               const void* data) {
  if (!in_bounds(w, i, lane, address, bytes, true)) return;
  track(w, i, lane, address, bytes, access::store);
  std::memcpy(&w.owner->lds[address], data, bytes);
}

uint64_t lds_atomic(wave& w, const instruction& i, int lane, uint32_t address,
                    atomic_operation operation, uint64_t value, uint64_t compare, unsigned bytes) {
  uint64_t old = 0;
  if (!in_bounds(w, i, lane, address, bytes, true)) return old;
  track(w, i, lane, address, bytes, access::atomic);
  std::memcpy(&old, &w.owner->lds[address], bytes);
  const uint64_t result = combine_atomic(operation, old, value, compare, bytes);
  std::memcpy(&w.owner->lds[address], &result, bytes);
  return old;
}

void lds_note_write(wave& w, const uint32_t* addresses, uint64_t mask, unsigned bytes) {
  const worker& k = *w.owner;
  if (!k.launch->checks || k.group.waves < 2 || !w.pending_count) return;
  // The instruction itself is the newest pending access.
  pending_access& p = w.pending[w.pending_count - 1];
  if (p.lds_record < 0) {
    if (!w.lds_records) w.lds_records = std::make_unique<lds_record[]>(max_lds_records);
    if (w.lds_records_used == ~0u) return;  // more outstanding than records: the oldest are kept
    p.lds_record = __builtin_ctz(~w.lds_records_used);
    w.lds_records_used |= 1u << p.lds_record;
    w.lds_records[p.lds_record].mask = 0;
  }
  lds_record& r = w.lds_records[p.lds_record];
  r.mask = mask;
  r.bytes = static_cast<int>(bytes);
  std::memcpy(r.address, addresses, sizeof r.address);
}

void lds_carry_pending_writes(wave& w) {
  worker& k = *w.owner;
  for (int p = 0; p < w.pending_count; ++p) {
    const pending_access& access = w.pending[p];
    if (access.lds_record < 0) continue;
    const lds_record& r = w.lds_records[access.lds_record];
    const uint32_t epoch = k.group.epoch;
    for_each_lane(r.mask, [&](int l) {
      const uint32_t begin = r.address[l];
      if (static_cast<uint64_t>(begin) + static_cast<unsigned>(r.bytes) > k.lds.size()) return;
      for (uint32_t b = begin; b < begin + static_cast<unsigned>(r.bytes); ++b) {
        const uint32_t dword = b / 4;
        if (k.dword_shadow[dword].split_epoch != epoch) {
          k.dword_shadow[dword].split_epoch = epoch;
          for (int q = 0; q < 4; ++q) k.byte_shadow[4 * dword + q] = k.dword_shadow[dword];
        }
        lds_shadow& s = k.byte_shadow[b];
        s.write_epoch = epoch;
        s.writer = static_cast<uint8_t>(w.id);
        s.flags &= static_cast<uint8_t>(~write_atomic);
      }
    });
  }
}

void run_lds_read(wave& w, const instruction& i) {
  const uint64_t mask = w.exec();
  const unsigned size = i.access_size;
  const int reg = i.operands[0].reg;
  uint32_t address[2][lanes_per_wave];
  const int count = i.pair ? 2 : 1;
  for (int part = 0; part < count; ++part) {
    const uint32_t offset =
        static_cast<uint32_t>(i.pair ? (part ? i.offset1 : i.offset0) * i.pair_scale : i.offset);
    lane_addresses(w, i.operands[1].reg, offset, address[part]);
  }
  // Address registers may be overwritten by the first half of a pair: both are read by now.
  for (int part = 0; part < count; ++part) {
    const int destination = reg + part * static_cast<int>(size / 4);
    if (size >= 4 && all_in_order(*w.owner, i, address[part], mask)) {
      track_lanes<access::load>(w, i, address[part], mask);
      switch (size) {
        case 4:
          copy_lanes_from<4>(w, destination, address[part], mask);
          break;
        case 8:
          copy_lanes_from<8>(w, destination, address[part], mask);
          break;
        case 12:
          copy_lanes_from<12>(w, destination, address[part], mask);
          break;
        default:
          copy_lanes_from<16>(w, destination, address[part], mask);
          break;
      }
      count_banks(*w.owner, address[part], mask, size);
      continue;
    }
    for_each_lane(mask, [&](int l) {
      uint32_t data[4] = {};
      check_alignment(w, i, l, address[part][l]);
      lds_load(w, i, l, address[part][l], size, data);
      write_result(w, i, destination, l, data);
    });
    count_banks(*w.owner, address[part], mask, size);
  }
}

void run_lds_write(wave& w, const instruction& i) {
  const uint64_t mask = w.exec();
  const unsigned size = i.access_size;
  uint32_t address[lanes_per_wave];
  const int count = i.pair ? 2 : 1;
  for (int part = 0; part < count; ++part) {
    const uint32_t offset =
        static_cast<uint32_t>(i.pair ? (part ? i.offset1 : i.offset0) * i.pair_scale : i.offset);
    lane_addresses(w, i.operands[0].reg, offset, address);
    const int reg = i.operands[1 + part].reg;
    if (part == 0) lds_note_write(w, address, mask, size);
    if (size >= 4 && all_in_order(*w.owner, i, address, mask)) {
      track_lanes<access::store>(w, i, address, mask);
      switch (size) {
        case 4:
          copy_lanes_to<4>(w, reg, address, mask);
          break;
        case 8:
          copy_lanes_to<8>(w, reg, address, mask);
          break;
        case 12:
          copy_lanes_to<12>(w, reg, address, mask);
          break;
        default:
          copy_lanes_to<16>(w, reg, address, mask);
          break;
      }
      count_banks(*w.owner, address, mask, size);
      continue;
    }
    for_each_lane(mask, [&](int l) {
      uint32_t data[4];
      for (unsigned k = 0; k < (size + 3) / 4; ++k) data[k] = w.v[reg + k][l];
      if (i.d16 == 2) data[0] >>= 16;
      check_alignment(w, i, l, address[l]);
      lds_store(w, i, l, address[l], size, data);
    });
    count_banks(*w.owner, address, mask, size);
  }
}

void run_lds_atomic(wave& w, const instruction& i) {
  const uint64_t mask = w.exec();
  const unsigned size = i.access_size;
  const bool wide = size == 8;
  const int first = i.returns ? 1 : 0;
  uint32_t address[lanes_per_wave];
  lane_addresses(w, i.operands[first].reg, static_cast<uint32_t>(i.offset), address);
  const auto read = [&](int index, int lane) {
    const int reg = i.operands[index].reg;
    return wide ? w.v[reg][lane] | (static_cast<uint64_t>(w.v[reg + 1][lane]) << 32)
                : static_cast<uint64_t>(w.v[reg][lane]);
  };
  for_each_lane(mask, [&](int l) {
    uint64_t value = read(first + 1, l);
    uint64_t compare = 0;
    if (i.atomic == atomic_operation::compare_swap) {
      compare = value;
      value = read(first + 2, l);
    }
    check_alignment(w, i, l, address[l]);
    const uint64_t old = lds_atomic(w, i, l, address[l], i.atomic, value, compare, size);
    if (i.returns) {
      w.v[i.operands[0].reg][l] = static_cast<uint32_t>(old);
      if (wide) w.v[i.operands[0].reg + 1][l] = static_cast<uint32_t>(old >> 32);
    }
  });
  count_banks(*w.owner, address, mask, size);
}

}  // namespace kindex::emulator
