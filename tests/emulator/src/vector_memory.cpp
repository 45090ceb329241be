// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Vector memory: global, flat, buffer and scratch loads, stores and atomics, and scalar loads.

#include <algorithm>
#include <cstdio>

#include "handlers.hpp"
#include "lds.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

constexpr uint64_t aperture_mask = 0xffff000000000000ull;

struct lane_addresses {
  alignas(64) uint64_t at[lanes_per_wave];
};

bool accessible(worker& k, uint64_t address, uint64_t bytes, bool write) {
  const uint64_t end = address + bytes;
  if (address >= k.last_region.begin && end <= k.last_region.end && end >= address &&
      (!write || k.last_region.writable)) {
    return true;
  }
  const auto search = [&](const region_list& list) {
    auto it = std::upper_bound(list.begin(), list.end(), address,
                               [](uint64_t a, const region& r) { return a < r.begin; });
    if (it == list.begin()) return false;
    --it;
    if (end > it->end || end < address || (write && !it->writable)) return false;
    k.last_region = *it;
    return true;
  };
  return search(*k.launch->regions) || search(k.launch->extra_regions);
}

void report_address(wave& w, const instruction& i, int lane, uint64_t address, uint64_t bytes,
                    bool write) {
  char text[320];
  std::snprintf(text, sizeof text, "global %s out of bounds: %llu bytes at 0x%llx, %s",
                write ? "store" : "load", static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(address), memory().describe(address).c_str());
  report(w, i, finding_kind::global_access, lane, text);
}

bool check_global(wave& w, const instruction& i, int lane, uint64_t address, uint64_t bytes,
                  bool write) {
  worker& k = *w.owner;
  if (accessible(k, address, bytes, write)) return true;
  report_address(w, i, lane, address, bytes, write);
  return false;
}

void check_alignment(wave& w, const instruction& i, int lane, uint64_t address, unsigned bytes) {
  const unsigned needed = bytes >= 4 ? 4 : bytes;
  if (address % needed == 0 || w.owner->launch->allow_unaligned) return;
  char text[160];
  std::snprintf(text, sizeof text, "misaligned global access: %u bytes at 0x%llx", bytes,
                static_cast<unsigned long long>(address));
  report(w, i, finding_kind::misaligned, lane, text);
}

// Distinct 64-byte segments and distinct bytes of one instruction.
struct footprint {
  uint64_t segments = 0;
  uint64_t bytes = 0;
};

footprint footprint_of(const lane_addresses& a, uint64_t mask, unsigned size) {
  footprint result;
  if (!mask) return result;
  uint64_t low = ~uint64_t{0};
  uint64_t high = 0;
  for_each_lane(mask, [&](int l) {
    low = std::min(low, a.at[l]);
    high = std::max(high, a.at[l]);
  });
  constexpr uint64_t map_segments = 256;
  const uint64_t first = low >> 6;
  const uint64_t count = ((high + size - 1) >> 6) - first + 1;
  if (count <= map_segments) {
    // One bit per byte.
    uint64_t map[map_segments + 1];
    std::memset(map, 0, (count + 1) * sizeof map[0]);
    const uint64_t bits = low_mask(size);
    for_each_lane(mask, [&](int l) {
      const uint64_t segment = (a.at[l] >> 6) - first;
      const unsigned shift = a.at[l] & 63;
      map[segment] |= bits << shift;
      if (shift + size > 64) map[segment + 1] |= bits >> (64 - shift);
    });
    for (uint64_t s = 0; s < count; ++s) {
      result.segments += map[s] != 0;
      result.bytes += static_cast<uint64_t>(__builtin_popcountll(map[s]));
    }
    return result;
  }
  uint64_t sorted[lanes_per_wave];
  int n = 0;
  for_each_lane(mask, [&](int l) { sorted[n++] = a.at[l]; });
  if (!std::is_sorted(sorted, sorted + n)) std::sort(sorted, sorted + n);
  uint64_t end = 0;
  uint64_t last_segment = ~uint64_t{0};
  for (int k = 0; k < n; ++k) {
    const uint64_t begin = std::max(sorted[k], end);
    end = std::max(end, sorted[k] + size);
    result.bytes += end - begin;
    for (uint64_t s = sorted[k] >> 6; s <= (sorted[k] + size - 1) >> 6; ++s) {
      if (s != last_segment && (last_segment == ~uint64_t{0} || s > last_segment)) {
        ++result.segments;
        last_segment = s;
      }
    }
  }
  return result;
}

int width_index(unsigned bytes) {
  switch (bytes) {
    case 1:
      return 0;
    case 2:
      return 1;
    case 4:
      return 2;
    case 8:
      return 3;
    case 12:
      return 4;
    default:
      return 5;
  }
}

void count_traffic(worker& k, const lane_addresses& a, uint64_t mask, unsigned size, bool write) {
  if (!mask) return;
  const footprint f = footprint_of(a, mask, size);
  worker_counters& c = k.counters;
  c.lane_bytes[write] += static_cast<uint64_t>(__builtin_popcountll(mask)) * size;
  c.segments[write] += f.segments;
  c.distinct_bytes[write] += f.bytes;
  for (const watched_range& r : k.launch->watches) {
    uint64_t inside = 0;
    for_each_lane(mask, [&](int l) {
      if (a.at[l] < r.end && a.at[l] + size > r.begin) inside |= uint64_t{1} << l;
    });
    if (!inside) continue;
    const footprint g = inside == mask ? f : footprint_of(a, inside, size);
    kindex_emulator_traffic& t = c.traffic[r.id];
    const uint64_t bytes = static_cast<uint64_t>(__builtin_popcountll(inside)) * size;
    (write ? t.stores : t.loads) += 1;
    (write ? t.lane_bytes_stored : t.lane_bytes_loaded) += bytes;
    (write ? t.segments_stored : t.segments_loaded) += g.segments;
    (write ? t.distinct_bytes_stored : t.distinct_bytes_loaded) += g.bytes;
  }
}

void write_loaded(wave& w, const instruction& i, int reg, int lane, const uint32_t* data) {
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

// Addresses of global and flat instructions; operand `index` is the vector, the next but one
// (after the data of stores, or directly for loads) the scalar base.
void global_addresses(const wave& w, const instruction& i, int vector, int scalar,
                      lane_addresses* a) {
  const operand& v = i.operands[vector];
  const int64_t offset = i.offset;
  const uint32_t* low = w.v[v.reg];
  if (i.space == address_space::global && scalar < i.operand_count &&
      i.operands[scalar].kind == operand_kind::scalar) {
    const uint64_t base = w.scalar_pair(i.operands[scalar].reg) + static_cast<uint64_t>(offset);
    for (int l = 0; l < lanes_per_wave; ++l) a->at[l] = base + low[l];
    return;
  }
  const uint32_t* high = w.v[v.reg + 1];
  for (int l = 0; l < lanes_per_wave; ++l) {
    a->at[l] = ((static_cast<uint64_t>(high[l]) << 32) | low[l]) + static_cast<uint64_t>(offset);
  }
}

void scratch_addresses(const wave& w, const instruction& i, int vector, int scalar,
                       lane_addresses* a) {
  uint32_t base = static_cast<uint32_t>(i.offset);
  if (scalar < i.operand_count && i.operands[scalar].kind == operand_kind::scalar) {
    base += w.s[i.operands[scalar].reg];
  }
  const operand& v = i.operands[vector];
  for (int l = 0; l < lanes_per_wave; ++l) {
    a->at[l] = base + (v.kind == operand_kind::vector ? w.v[v.reg][l] : 0u);
  }
}

// A buffer resource, as four scalar registers describe it.
struct buffer_resource {
  uint64_t base;
  uint32_t stride;
  uint32_t records;
  bool add_lane;
};

bool read_resource(wave& w, const instruction& i, const operand& o, buffer_resource* r) {
  const uint32_t* d = &w.s[o.reg];
  r->base = d[0] | (static_cast<uint64_t>(d[1] & 0xffff) << 32);
  r->stride = (d[1] >> 16) & 0x3fff;
  r->records = d[2];
  r->add_lane = (d[3] >> 23) & 1;
  if (d[1] >> 31) {
    report_unsupported(w, i, "a swizzled buffer resource");
    return false;
  }
  return true;
}

struct buffer_addresses {
  lane_addresses lanes;
  // Per lane: the offset that is compared with the number of records, and the limit.
  uint64_t offset[lanes_per_wave];
  uint64_t limit[lanes_per_wave];
};

// Raw buffers compare byte offset plus scalar offset with num_records. Structured ones compare
// the index, and with an index the offset with the stride.
bool buffer_lane_addresses(wave& w, const instruction& i, int vector, buffer_addresses* a) {
  buffer_resource r;
  if (!read_resource(w, i, i.operands[vector + 1], &r)) return false;
  const operand& v = i.operands[vector];
  const uint32_t scalar_offset = read_scalar(w, i.operands[vector + 2]);
  for (int l = 0; l < lanes_per_wave; ++l) {
    int next = 0;
    uint32_t index = 0;
    uint64_t offset = static_cast<uint32_t>(i.offset);
    if (i.index_enable) index = w.v[v.reg + next++][l];
    if (i.offset_enable) offset += w.v[v.reg + next][l];
    if (r.add_lane) index += static_cast<uint32_t>(l);
    a->lanes.at[l] = r.base + scalar_offset + static_cast<uint64_t>(index) * r.stride + offset;
    if (r.stride == 0) {
      a->offset[l] = offset + scalar_offset;
      a->limit[l] = r.records;
    } else if (index >= r.records) {
      a->offset[l] = 1;
      a->limit[l] = 0;
    } else {
      a->offset[l] = i.index_enable ? offset : 0;
      a->limit[l] = i.index_enable ? r.stride : ~uint64_t{0};
    }
  }
  return true;
}

// Loads and stores of several dwords are checked dword by dword.
bool dword_in_range(const buffer_addresses& a, int lane, unsigned dword, unsigned bytes) {
  return a.offset[lane] + 4 * dword + bytes <= a.limit[lane];
}

bool private_range_ok(wave& w, const instruction& i, int lane, uint64_t address, unsigned bytes,
                      bool write) {
  if (address + bytes <= w.owner->launch->scratch_bytes) return true;
  char text[160];
  std::snprintf(text, sizeof text, "scratch %s out of bounds: %u bytes at %llu of %u",
                write ? "store" : "load", bytes, static_cast<unsigned long long>(address),
                w.owner->launch->scratch_bytes);
  report(w, i, finding_kind::scratch_access, lane, text);
  return false;
}

uint8_t* private_pointer(wave& w, int lane, uint64_t address) {
  return w.scratch.data() + static_cast<size_t>(lane) * w.owner->launch->scratch_bytes + address;
}

// One lane's access through a generic address.
void load_generic(wave& w, const instruction& i, int lane, uint64_t address, unsigned bytes,
                  uint32_t* data) {
  std::memset(data, 0, 16);
  const uint64_t aperture = address & aperture_mask;
  if (aperture == shared_aperture) {
    lds_load(w, i, lane, static_cast<uint32_t>(address), bytes, data);
  } else if (aperture == private_aperture) {
    const uint32_t at = static_cast<uint32_t>(address);
    if (private_range_ok(w, i, lane, at, bytes, false)) {
      std::memcpy(data, private_pointer(w, lane, at), bytes);
    }
  } else {
    check_alignment(w, i, lane, address, bytes);
    if (check_global(w, i, lane, address, bytes, false)) {
      std::memcpy(data, reinterpret_cast<const void*>(address), bytes);
    }
  }
}

void store_generic(wave& w, const instruction& i, int lane, uint64_t address, unsigned bytes,
                   const uint32_t* data) {
  const uint64_t aperture = address & aperture_mask;
  if (aperture == shared_aperture) {
    lds_store(w, i, lane, static_cast<uint32_t>(address), bytes, data);
  } else if (aperture == private_aperture) {
    const uint32_t at = static_cast<uint32_t>(address);
    if (private_range_ok(w, i, lane, at, bytes, true)) {
      std::memcpy(private_pointer(w, lane, at), data, bytes);
    }
  } else {
    check_alignment(w, i, lane, address, bytes);
    if (check_global(w, i, lane, address, bytes, true)) {
      std::memcpy(reinterpret_cast<void*>(address), data, bytes);
    }
  }
}

uint64_t global_lanes(const lane_addresses& a, uint64_t mask) {
  uint64_t result = 0;
  for_each_lane(mask, [&](int l) {
    const uint64_t aperture = a.at[l] & aperture_mask;
    if (aperture != shared_aperture && aperture != private_aperture) result |= uint64_t{1} << l;
  });
  return result;
}

// True when all lanes lie in one live buffer and are aligned, so that no lane needs its own check.
bool all_accessible(wave& w, const lane_addresses& a, uint64_t mask, unsigned size, bool write) {
  uint64_t low = ~uint64_t{0};
  uint64_t high = 0;
  uint64_t bits = 0;
  if (mask == ~uint64_t{0}) {
    for (int l = 0; l < lanes_per_wave; ++l) {
      low = std::min(low, a.at[l]);
      high = std::max(high, a.at[l]);
      bits |= a.at[l];
    }
  } else {
    for_each_lane(mask, [&](int l) {
      low = std::min(low, a.at[l]);
      high = std::max(high, a.at[l]);
      bits |= a.at[l];
    });
  }
  const unsigned needed = size >= 4 ? 4 : size;
  if (bits % needed && !w.owner->launch->allow_unaligned) return false;
  if (high - low > (uint64_t{1} << 40)) return false;
  return accessible(*w.owner, low, high - low + size, write);
}

template <unsigned size>
void copy_lanes(wave& w, int reg, const lane_addresses& a, uint64_t mask) {
  for_each_lane(mask, [&](int l) {
    uint32_t data[size / 4];
    std::memcpy(data, reinterpret_cast<const void*>(a.at[l]), size);
    for (unsigned k = 0; k < size / 4; ++k) w.v[reg + k][l] = data[k];
  });
}

void load_lanes(wave& w, const instruction& i, const lane_addresses& a, uint64_t mask) {
  if (!mask) return;
  const int reg = i.operands[0].reg;
  if (all_accessible(w, a, mask, i.access_size, false)) {
    switch (i.access_size) {
      case 4:
        return copy_lanes<4>(w, reg, a, mask);
      case 8:
        return copy_lanes<8>(w, reg, a, mask);
      case 12:
        return copy_lanes<12>(w, reg, a, mask);
      case 16:
        return copy_lanes<16>(w, reg, a, mask);
      default:
        for_each_lane(mask, [&](int l) {
          uint32_t data[4] = {};
          std::memcpy(data, reinterpret_cast<const void*>(a.at[l]), i.access_size);
          write_loaded(w, i, reg, l, data);
        });
        return;
    }
  }
  for_each_lane(mask, [&](int l) {
    uint32_t data[4];
    load_generic(w, i, l, a.at[l], i.access_size, data);
    write_loaded(w, i, reg, l, data);
  });
}

// Loads that put one dword per lane into LDS: M0 is the base, lanes follow each other.
void store_to_lds(wave& w, const instruction& i, const uint32_t* data, uint64_t mask) {
  const uint32_t base = (w.s[m0_register] & 0xffff) + static_cast<uint32_t>(i.offset);
  lane_row addresses;
  for (int l = 0; l < lanes_per_wave; ++l) addresses[l] = base + 4 * static_cast<uint32_t>(l);
  lds_note_write(w, addresses, mask, 4);
  for_each_lane(mask, [&](int l) { lds_store(w, i, l, addresses[l], 4, &data[l]); });
}

void load_buffer(wave& w, const instruction& i) {
  const int vector = i.to_lds ? 0 : 1;
  buffer_addresses a;
  if (!buffer_lane_addresses(w, i, vector, &a)) return;
  const uint64_t mask = w.exec();
  const unsigned size = i.access_size;
  uint64_t complete = 0;
  uint64_t touched = 0;
  for_each_lane(mask, [&](int l) {
    if (a.offset[l] + size <= a.limit[l]) complete |= uint64_t{1} << l;
    if (dword_in_range(a, l, 0, std::min(size, 4u))) touched |= uint64_t{1} << l;
  });
  if (i.to_lds) {
    uint32_t data[lanes_per_wave] = {};
    for_each_lane(complete, [&](int l) {
      uint32_t loaded[4];
      load_generic(w, i, l, a.lanes.at[l], size, loaded);
      data[l] = loaded[0];
    });
    store_to_lds(w, i, data, mask);
    count_traffic(*w.owner, a.lanes, complete, size, false);
    return;
  }
  load_lanes(w, i, a.lanes, complete);
  for_each_lane(mask & ~complete, [&](int l) {
    uint32_t data[4] = {};
    for (unsigned k = 0; size >= 4 && k < size / 4; ++k) {
      if (!dword_in_range(a, l, k, 4)) continue;
      uint32_t loaded[4];
      load_generic(w, i, l, a.lanes.at[l] + 4 * k, 4, loaded);
      data[k] = loaded[0];
    }
    write_loaded(w, i, i.operands[0].reg, l, data);
  });
  count_traffic(*w.owner, a.lanes, touched, size, false);
}

void read_store_data(const wave& w, const instruction& i, int reg, int lane, uint32_t* data) {
  for (unsigned k = 0; k < (i.access_size + 3u) / 4; ++k) data[k] = w.v[reg + k][lane];
  if (i.d16 == 2) data[0] >>= 16;
}

void store_buffer(wave& w, const instruction& i) {
  buffer_addresses a;
  if (!buffer_lane_addresses(w, i, 1, &a)) return;
  const unsigned size = i.access_size;
  uint64_t touched = 0;
  for_each_lane(w.exec(), [&](int l) {
    uint32_t data[4];
    read_store_data(w, i, i.operands[0].reg, l, data);
    if (a.offset[l] + size <= a.limit[l]) {
      touched |= uint64_t{1} << l;
      store_generic(w, i, l, a.lanes.at[l], size, data);
      return;
    }
    for (unsigned k = 0; size >= 4 && k < size / 4; ++k) {
      if (!dword_in_range(a, l, k, 4)) continue;
      touched |= uint64_t{1} << l;
      store_generic(w, i, l, a.lanes.at[l] + 4 * k, 4, &data[k]);
    }
  });
  count_traffic(*w.owner, a.lanes, touched, size, true);
}

uint64_t combine(atomic_operation operation, uint64_t old, uint64_t value, uint64_t compare,
                 unsigned bytes) {
  const bool wide = bytes == 8;
  const auto narrow = [&](uint64_t x) { return wide ? x : static_cast<uint32_t>(x); };
  const auto as_signed = [&](uint64_t x) {
    return wide ? static_cast<int64_t>(x) : static_cast<int64_t>(static_cast<int32_t>(x));
  };
  switch (operation) {
    case atomic_operation::none:
      return old;
    case atomic_operation::swap:
      return value;
    case atomic_operation::compare_swap:
      return old == compare ? value : old;
    case atomic_operation::add:
      return narrow(old + value);
    case atomic_operation::sub:
      return narrow(old - value);
    case atomic_operation::reverse_sub:
      return narrow(value - old);
    case atomic_operation::min_signed:
      return as_signed(old) < as_signed(value) ? old : value;
    case atomic_operation::max_signed:
      return as_signed(old) > as_signed(value) ? old : value;
    case atomic_operation::min_unsigned:
      return std::min(old, value);
    case atomic_operation::max_unsigned:
      return std::max(old, value);
    case atomic_operation::bit_and:
      return old & value;
    case atomic_operation::bit_or:
      return old | value;
    case atomic_operation::bit_xor:
      return old ^ value;
    case atomic_operation::increment:
      return old >= value ? 0 : old + 1;
    case atomic_operation::decrement:
      return old == 0 || old > value ? value : old - 1;
    case atomic_operation::add_f32:
      return as_bits(as_float(static_cast<uint32_t>(old)) + as_float(static_cast<uint32_t>(value)));
    case atomic_operation::add_f64:
      return as_bits(as_double(old) + as_double(value));
    case atomic_operation::min_f64:
      return as_bits(std::fmin(as_double(old), as_double(value)));
    case atomic_operation::max_f64:
      return as_bits(std::fmax(as_double(old), as_double(value)));
    case atomic_operation::add_packed_f16: {
      const uint32_t a = static_cast<uint32_t>(old);
      const uint32_t b = static_cast<uint32_t>(value);
      return float_to_half(half_to_float(a) + half_to_float(b)) |
             (float_to_half(half_to_float(a >> 16) + half_to_float(b >> 16)) << 16);
    }
    case atomic_operation::add_packed_bf16: {
      const uint32_t a = static_cast<uint32_t>(old);
      const uint32_t b = static_cast<uint32_t>(value);
      const auto round = [](float x) {
        const uint32_t bits = as_bits(x);
        return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      };
      return round(as_float(a << 16) + as_float(b << 16)) |
             (round(as_float(a & 0xffff0000u) + as_float(b & 0xffff0000u)) << 16);
    }
  }
  return old;
}

template <class T>
uint64_t atomic_update(uint64_t address, atomic_operation operation, uint64_t value,
                       uint64_t compare) {
  T* const target = reinterpret_cast<T*>(address);
  T old = __atomic_load_n(target, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(
      target, &old, static_cast<T>(combine(operation, old, value, compare, sizeof(T))), false,
      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return old;
}

uint64_t read_data(const wave& w, int reg, int lane, bool wide) {
  return wide ? w.v[reg][lane] | (static_cast<uint64_t>(w.v[reg + 1][lane]) << 32) : w.v[reg][lane];
}

}  // namespace

uint64_t combine_atomic(atomic_operation operation, uint64_t old, uint64_t value, uint64_t compare,
                        unsigned bytes) {
  return combine(operation, old, value, compare, bytes);
}

void run_vector_load(wave& w, const instruction& i) {
  ++w.owner->counters.loads_by_width[width_index(i.access_size)];
  if (i.space == address_space::buffer) return load_buffer(w, i);
  const uint64_t mask = w.exec();
  lane_addresses a;
  if (i.space == address_space::scratch) {
    scratch_addresses(w, i, 1, 2, &a);
    for_each_lane(mask, [&](int l) {
      uint32_t data[4] = {};
      if (private_range_ok(w, i, l, a.at[l], i.access_size, false)) {
        std::memcpy(data, private_pointer(w, l, a.at[l]), i.access_size);
      }
      write_loaded(w, i, i.operands[0].reg, l, data);
    });
    return;
  }
  if (i.to_lds) {
    // The immediate offset applies to both addresses.
    global_addresses(w, i, 0, 1, &a);
    uint32_t data[lanes_per_wave] = {};
    for_each_lane(mask, [&](int l) {
      uint32_t loaded[4];
      load_generic(w, i, l, a.at[l], i.access_size, loaded);
      data[l] = loaded[0];
    });
    store_to_lds(w, i, data, mask);
    count_traffic(*w.owner, a, mask, i.access_size, false);
    return;
  }
  global_addresses(w, i, 1, 2, &a);
  load_lanes(w, i, a, mask);
  count_traffic(*w.owner, a, i.space == address_space::flat ? global_lanes(a, mask) : mask,
                i.access_size, false);
}

void run_vector_store(wave& w, const instruction& i) {
  if (i.space == address_space::buffer) return store_buffer(w, i);
  const uint64_t mask = w.exec();
  const unsigned size = i.access_size;
  const int reg = i.operands[1].reg;
  lane_addresses a;
  if (i.space == address_space::scratch) {
    scratch_addresses(w, i, 0, 2, &a);
    for_each_lane(mask, [&](int l) {
      uint32_t data[4];
      read_store_data(w, i, reg, l, data);
      if (private_range_ok(w, i, l, a.at[l], size, true)) {
        std::memcpy(private_pointer(w, l, a.at[l]), data, size);
      }
    });
    return;
  }
  global_addresses(w, i, 0, 2, &a);
  if (mask && all_accessible(w, a, mask, size, true)) {
    for_each_lane(mask, [&](int l) {
      uint32_t data[4];
      read_store_data(w, i, reg, l, data);
      std::memcpy(reinterpret_cast<void*>(a.at[l]), data, size);
    });
  } else {
    for_each_lane(mask, [&](int l) {
      uint32_t data[4];
      read_store_data(w, i, reg, l, data);
      store_generic(w, i, l, a.at[l], size, data);
    });
  }
  count_traffic(*w.owner, a, i.space == address_space::flat ? global_lanes(a, mask) : mask, size,
                true);
}

void run_vector_atomic(wave& w, const instruction& i) {
  const unsigned size = i.access_size;
  const bool wide = size == 8;
  const uint64_t mask = w.exec();
  const bool is_buffer = i.space == address_space::buffer;
  buffer_addresses b;
  lane_addresses& a = b.lanes;
  int data_index;
  if (is_buffer) {
    if (!buffer_lane_addresses(w, i, 1, &b)) return;
    data_index = 0;
  } else {
    const int vector = i.returns ? 1 : 0;
    data_index = vector + 1;
    global_addresses(w, i, vector, vector + 2, &a);
  }
  const int reg = i.operands[data_index].reg;
  uint64_t touched = 0;
  for_each_lane(mask, [&](int l) {
    const uint64_t address = a.at[l];
    const uint64_t value = read_data(w, reg, l, wide);
    const uint64_t compare = i.atomic == atomic_operation::compare_swap
                                 ? read_data(w, reg + (wide ? 2 : 1), l, wide)
                                 : 0;
    uint64_t old = 0;
    if (is_buffer && b.offset[l] + size > b.limit[l]) {
      // Out of range: nothing happens and 0 returns.
    } else if ((address & aperture_mask) == shared_aperture) {
      old = lds_atomic(w, i, l, static_cast<uint32_t>(address), i.atomic, value, compare, size);
    } else if ((address & aperture_mask) == private_aperture) {
      const uint32_t at = static_cast<uint32_t>(address);
      if (private_range_ok(w, i, l, at, size, true)) {
        std::memcpy(&old, private_pointer(w, l, at), size);
        const uint64_t result = combine(i.atomic, old, value, compare, size);
        std::memcpy(private_pointer(w, l, at), &result, size);
      }
    } else {
      touched |= uint64_t{1} << l;
      if (address % size) {
        char text[120];
        std::snprintf(text, sizeof text, "misaligned global atomic: %u bytes at 0x%llx", size,
                      static_cast<unsigned long long>(address));
        report(w, i, finding_kind::misaligned, l, text);
      } else if (check_global(w, i, l, address, size, true)) {
        old = wide ? atomic_update<uint64_t>(address, i.atomic, value, compare)
                   : atomic_update<uint32_t>(address, i.atomic, value, compare);
      }
    }
    if (i.returns) {
      w.v[i.operands[0].reg][l] = static_cast<uint32_t>(old);
      if (wide) w.v[i.operands[0].reg + 1][l] = static_cast<uint32_t>(old >> 32);
    }
  });
  count_traffic(*w.owner, a, touched, size, true);
}

void run_scalar_load(wave& w, const instruction& i) {
  const int count = i.operands[0].width;
  const operand& source = i.operands[1];
  const bool is_buffer = source.width == 4;
  uint64_t base;
  uint64_t limit = ~uint64_t{0};
  if (is_buffer) {
    base = w.s[source.reg] | (static_cast<uint64_t>(w.s[source.reg + 1] & 0xffff) << 32);
    const uint32_t stride = (w.s[source.reg + 1] >> 16) & 0x3fff;
    limit = static_cast<uint64_t>(w.s[source.reg + 2]) * (stride ? stride : 1);
  } else {
    base = w.scalar_pair(source.reg);
  }
  int64_t offset = i.offset;
  if (i.operand_count > 2) {
    const operand& o = i.operands[2];
    offset += o.kind == operand_kind::scalar ? static_cast<int64_t>(w.s[o.reg]) : o.integer;
  }
  const uint64_t address = (base + static_cast<uint64_t>(offset)) & ~uint64_t{3};
  uint32_t data[16] = {};
  if (is_buffer) {
    // Dwords beyond the end of the buffer read as zero.
    for (int k = 0; k < count; ++k) {
      if (static_cast<uint64_t>(offset) + 4 * static_cast<uint64_t>(k) + 4 > limit) continue;
      const uint64_t at = address + 4 * static_cast<uint64_t>(k);
      if (check_global(w, i, -1, at, 4, false)) {
        std::memcpy(&data[k], reinterpret_cast<const void*>(at), 4);
      }
    }
  } else {
    const uint64_t bytes = 4 * static_cast<uint64_t>(count);
    if (!check_global(w, i, -1, address, bytes, false)) return;
    std::memcpy(data, reinterpret_cast<const void*>(address), bytes);
  }
  std::memcpy(&w.s[i.operands[0].reg], data, 4 * static_cast<size_t>(count));
  for (const watched_range& r : w.owner->launch->watches) {
    if (address < r.end && address + 4 * static_cast<uint64_t>(count) > r.begin) {
      w.owner->counters.traffic[r.id].scalar_bytes_loaded += 4 * static_cast<uint64_t>(count);
    }
  }
}

}  // namespace kindex::emulator
