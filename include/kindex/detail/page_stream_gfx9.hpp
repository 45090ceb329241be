// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How a wave reads the K and the scales of one sequence, unit by unit, straight into registers.
//
// Page ids come 64 at a time, one per lane, a chunk ahead of their use, and are then picked by lane
// exchanges: no memory access stands between a unit and the addresses of its K. Where a unit lies
// in one page, K goes through a buffer descriptor that is made anew for each unit (its base has 48
// bits, so no offset ever wraps) and ends where the visible tiles end: past that, and for page ids
// that are none, the hardware returns zeros without touching memory. Elsewhere every lane has an
// address of its own, and lanes without a token read zeros from the code object.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_gfx9.hpp"
#include "page_ids.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::gfx9 {

#if KINDEX_TARGET_CDNA

/// A raw buffer, uniform: offsets at or past the size load zeros and store nothing.
struct raw_buffer {
  const void* base;
  int size_bytes;

  KINDEX_DEVICE __amdgpu_buffer_rsrc_t descriptor() const {
    // Data format 32 bit, no stride, no swizzle.
    return __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, size_bytes, 0x00020000);
  }
  KINDEX_DEVICE u32x4 load_unit(int offset) const {
    return __builtin_amdgcn_raw_buffer_load_b128(descriptor(), offset, 0, 0);
  }
  KINDEX_DEVICE std::uint32_t load_word(int offset) const {
    return __builtin_amdgcn_raw_buffer_load_b32(descriptor(), offset, 0, 0);
  }
  KINDEX_DEVICE f32x2 load_float2(int offset) const {
    return __builtin_bit_cast(f32x2,
                              __builtin_amdgcn_raw_buffer_load_b64(descriptor(), offset, 0, 0));
  }
  KINDEX_DEVICE void store_float(int offset, float value) const {
    __builtin_amdgcn_raw_buffer_store_b32(__builtin_bit_cast(std::uint32_t, value), descriptor(),
                                          offset, 0, 0);
  }
};

/// Loads from an address of which the compiler cannot tell that it is no shared memory.
template <class T>
KINDEX_DEVICE T load_global(const void* address) {
  using aligned_to_4 __attribute__((aligned(4))) = T;
  return *(const __attribute__((address_space(1))) aligned_to_4*)address;
}

/// Zeros to read, as many as a lane's loads of a block may span.
template <int Bytes>
KINDEX_DEVICE const char* readable_zeros() {
  static const u32x4 zeros[Bytes / unit_bytes] = {};
  return reinterpret_cast<const char*>(zeros);
}

/// How page ids come on gfx9. Past the last page of the sequence: any.
template <int PageSize>
struct page_id_loads {
  static constexpr bool each_step_advances = PageSize == 1;

  static KINDEX_DEVICE int load(const std::int32_t* table_row, int num_entries, int first) {
    const int rest = num_entries - first;
    const int entries = uniform(rest < 0 ? 0 : rest < wave_size ? rest : wave_size);
    const raw_buffer chunk = {table_row + first, entries * 4};
    return static_cast<int>(chunk.load_word(lane_id() * 4));
  }
  /// The copy is over before the next load starts: the compiler would otherwise load into a third
  /// register and wait for that to copy it.
  static KINDEX_DEVICE int arrived(int ids) {
    asm volatile("" : "+v"(ids));
    return ids;
  }
};

/// Scales of a unit as one lane needs them. One scale a token: that of token l of the unit, applied
/// to the finished sum. Several: those of token l%32 of each block, applied before the relu.
template <int NumScales>
struct unit_scales {
  static_assert(NumScales == 2, "kindex: one or two scales a token");
  f32x2 value[blocks_per_unit];

  KINDEX_DEVICE void wait() const {
#pragma unroll
    for (int b = 0; b < blocks_per_unit; ++b) asm volatile("" ::"v"(value[b]));
  }
};
template <>
struct unit_scales<1> {
  float value;

  KINDEX_DEVICE void wait() const { asm volatile("" ::"v"(value)); }
};

/// K, scales and validity of one unit on their way into registers.
template <class Geometry>
class page_stream {
  static constexpr int page_size = Geometry::page_size;
  static constexpr int head_dim = Geometry::head_dim;
  static constexpr int num_scales = Geometry::num_scales;
  static constexpr bool unit_in_page = page_size != 0 && page_size % unit_tokens == 0;
  static constexpr bool is_plain = Geometry::layout == page_layout::plain;
  /// From load to load of a lane: 32 dims on.
  static constexpr int load_stride = is_plain ? 32 : 2 * 256;
  using args_type = logits_args<page_size>;

 public:
  using block = fragment<head_dim>;
  using scales = unit_scales<num_scales>;

  KINDEX_DEVICE explicit page_stream(const args_type& args) : args_(args) {
    const unsigned lane = fresh_lane_id();
    const int token = static_cast<int>(lane % block_tokens);
    const int dim = static_cast<int>(lane / block_tokens) * unit_bytes;
    lane_offset_ = static_cast<int>(
        k_offset_in_page(Geometry::layout, head_dim, unit_in_page ? token : 0, dim));
    if constexpr (unit_in_page) {
#pragma unroll
      for (int b = 0; b < blocks_per_unit; ++b) {
        block_offset_[b] = lane_offset_ + b * block_tokens * head_dim;
      }
    }
  }

  /// Turns to units first, first + step, … below end of a sequence with num_tokens > 0 tokens.
  KINDEX_DEVICE void start(std::int64_t seq, int num_tokens, int first_unit, int end_unit,
                           int unit_step) {
    num_tokens_ = end_of_tokens(num_tokens, end_unit);
    const auto last_token = static_cast<std::uint32_t>(num_tokens_ - 1);
    // Pages of one token: the next chunk is the next unit. Small ones: a unit may straddle two.
    constexpr int most_chunk = unit_in_page ? wave_size : wave_size - unit_tokens / tile_tokens;
    ids_.start(
        args_.block_table + seq * args_.block_table_stride,
        static_cast<int>(args_.pages.page(last_token)) + 1,
        static_cast<int>(args_.pages.page(static_cast<std::uint32_t>(first_unit) * unit_tokens)),
        page_size == 1 ? unit_step * unit_tokens : most_chunk);
  }

  /// Makes the addresses of a unit. Past the last one: a unit without tokens.
  KINDEX_DEVICE void prepare(int unit) {
    if constexpr (unit_in_page) {
      constexpr int units_per_page = page_size / unit_tokens;
      const int entry = unit / units_per_page;
      ids_.advance(entry);
      const std::uint32_t id = ids_.uniform_at(entry);
      lane_valid_ = id < args_.num_pages;
      int tokens = lane_valid_ ? num_tokens_ - unit * unit_tokens : 0;
      tokens = tokens < unit_tokens ? tokens : unit_tokens;
      tokens = tokens > 0 ? tokens : 0;
      const int token_in_page = unit % units_per_page * unit_tokens;
      const char* const page = page_address(id);
      k_source_ = {page + token_in_page * head_dim,
                   ((tokens + tile_tokens - 1) & -tile_tokens) * head_dim};
      scale_source_ = {page + scale_offset_in_page(page_size, head_dim, token_in_page, 0),
                       tokens * 4 * num_scales};
      // The compiler would otherwise keep each sum of these and a constant in a register of its
      // own, where the constant fits the instruction.
#pragma unroll
      for (int b = 0; b < blocks_per_unit; ++b) asm volatile("" : "+v"(block_offset_[b]));
    } else {
      prepare_lanes(unit);
    }
  }

  /// Issues load j of block b of the prepared unit.
  KINDEX_DEVICE u32x4 load_k(int b, int j) const {
    if constexpr (unit_in_page) {
      return k_source_.load_unit(block_offset_[b] + j * load_stride);
    } else {
      return load_global<u32x4>(k_address_[b] + j * load_stride);
    }
  }

  /// Issues the loads of the prepared unit's scales.
  KINDEX_DEVICE void load_scales(scales& loaded) const {
    if constexpr (num_scales == 1) {
      if constexpr (unit_in_page) {
        loaded.value = __builtin_bit_cast(float, scale_source_.load_word(lane_id() * 4));
      } else {
        loaded.value = load_global<float>(scale_address_[0]);
      }
    } else {
#pragma unroll
      for (int b = 0; b < blocks_per_unit; ++b) {
        if constexpr (unit_in_page) {
          const int token = b * block_tokens + lane_id() % block_tokens;
          loaded.value[b] = scale_source_.load_float2(token * num_scales * 4);
        } else {
          loaded.value[b] = load_global<f32x2>(scale_address_[b]);
        }
      }
    }
  }

  /// True if the page of token l of the prepared unit is one.
  KINDEX_DEVICE bool lane_valid() const { return lane_valid_; }

 private:
  KINDEX_DEVICE const char* page_address(std::uint32_t id) const {
    return args_.data + static_cast<std::int64_t>(id) * args_.page_stride_bytes;
  }

  /// Addresses lane by lane: a unit's tokens may lie in up to 64 pages.
  KINDEX_DEVICE void prepare_lanes(int unit) {
    const char* const zeros = readable_zeros<block::num_loads * load_stride>();
    const int page_tokens = args_.pages.page_size();
    const auto first_token = static_cast<std::uint32_t>(unit) * unit_tokens;
    ids_.advance(static_cast<int>(args_.pages.page(first_token + unit_tokens - 1)));
    // Two scale groups leave no register for what would be known from the kernel's start on.
    const int lane = num_scales == 1 ? lane_id() : static_cast<int>(fresh_lane_id());
    bool valid[blocks_per_unit];
    const char* scales[blocks_per_unit];
#pragma unroll
    for (int b = 0; b < blocks_per_unit; ++b) {
      const std::uint32_t token = first_token + b * block_tokens + lane % block_tokens;
      const std::uint32_t entry = args_.pages.page(token);
      const int token_in_page = static_cast<int>(token - entry * page_tokens);
      const std::uint32_t id = ids_.at(static_cast<int>(entry));
      valid[b] = id < args_.num_pages;
      // A tile is read to its end if any of its tokens is visible.
      const bool readable =
          valid[b] && static_cast<int>(token - token_in_page % tile_tokens) < num_tokens_;
      const char* const page = page_address(id);
      k_address_[b] = readable ? page + lane_offset_ +
                                     k_offset_in_page(Geometry::layout, head_dim, token_in_page, 0)
                               : zeros;
      scales[b] =
          readable ? page + scale_offset_in_page(page_tokens, head_dim, token_in_page, 0) : zeros;
    }
    const bool upper = lane >= block_tokens;
    lane_valid_ = upper ? valid[1] : valid[0];
    if constexpr (num_scales == 1) {
      scale_address_[0] = upper ? scales[1] : scales[0];
    } else {
#pragma unroll
      for (int b = 0; b < blocks_per_unit; ++b) {
        scale_address_[b] = scales[b];
      }
    }
  }

  const args_type& args_;
  int lane_offset_;
  int num_tokens_;
  page_ids<page_id_loads<page_size>> ids_;
  bool lane_valid_;
  // A unit in one page.
  raw_buffer k_source_;
  raw_buffer scale_source_;
  int block_offset_[blocks_per_unit];
  // Elsewhere.
  const char* k_address_[blocks_per_unit];
  const char* scale_address_[num_scales == 1 ? 1 : blocks_per_unit];
};

#endif  // KINDEX_TARGET_CDNA

}  // namespace detail::gfx9
KINDEX_NAMESPACE_END
