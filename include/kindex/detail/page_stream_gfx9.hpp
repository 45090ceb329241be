// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How a wave reads the K and the scales of one sequence, unit by unit, straight into registers.
//
// Page ids come 64 at a time, one per lane, a chunk ahead of their use, and are then picked by
// v_readlane: no memory access stands between a unit and the addresses of its K. K goes through
// buffer descriptors that are made anew for each page (their base has 48 bits, so no offset ever
// wraps) and end where the visible tiles end: past that, and for page ids that are none, the
// hardware returns zeros without touching memory.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_gfx9.hpp"
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
  KINDEX_DEVICE float load_float(int offset) const {
    return __builtin_bit_cast(float,
                              __builtin_amdgcn_raw_buffer_load_b32(descriptor(), offset, 0, 0));
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

/// Page ids of one sequence: two chunks of 64 table entries, one entry a lane.
template <int PageSize>
class page_ids {
 public:
  /// first_entry: of the first unit; units follow unit_step apart.
  KINDEX_DEVICE void start(const std::int32_t* table_row, int num_entries, int first_entry,
                           int unit_step) {
    table_row_ = table_row;
    num_entries_ = num_entries;
    first_ = first_entry;
    // Where a unit may straddle two chunks of 64, they overlap by what a unit can need beyond its
    // first entry. Pages of one token: the next chunk is the next unit.
    constexpr bool aligned = PageSize != 0 && PageSize % unit_tokens == 0;
    chunk_ = PageSize == 1 ? unit_step * unit_tokens : aligned ? 64 : 60;
    ids_ = load(first_);
    next_ids_ = load(first_ + chunk_);
  }

  /// Makes the entries of a unit, up to last_entry, available. Units come in order.
  KINDEX_DEVICE void advance(int last_entry) {
    if (last_entry - first_ >= 64) {
      first_ += chunk_;
      ids_ = next_ids_;
      next_ids_ = load(first_ + chunk_);
    }
  }

  /// The id in an entry, in a scalar register. Past the last page of the sequence: -1.
  KINDEX_DEVICE std::uint32_t uniform_id(int entry) const {
    return static_cast<std::uint32_t>(__builtin_amdgcn_readlane(ids_, entry - first_));
  }

  /// The same for an entry that differs from lane to lane.
  KINDEX_DEVICE std::uint32_t lane_id_at(int entry) const {
    return static_cast<std::uint32_t>(shuffle(ids_, entry - first_));
  }

 private:
  KINDEX_DEVICE int load(int first) const {
    const int entry = first + lane_id();
    return entry < num_entries_ ? table_row_[entry] : -1;
  }

  const std::int32_t* table_row_;
  int num_entries_;
  int first_;
  int chunk_;
  int ids_;
  int next_ids_;
};

/// Scales of the four tiles as one lane needs them. One scale a token: that of token l of the unit,
/// applied to the finished sum. Several: those of token l%16 of each tile, applied before the relu.
template <int NumScales>
struct unit_scales {
  static_assert(NumScales == 2, "kindex: one or two scales a token");
  f32x2 value[tiles_per_unit];
};
template <>
struct unit_scales<1> {
  float value;
};

/// K, scales and validity of one unit on their way into registers.
template <class Geometry>
class page_stream {
  static constexpr int page_size = Geometry::page_size;
  static constexpr int head_dim = Geometry::head_dim;
  static constexpr int num_scales = Geometry::num_scales;
  static constexpr bool per_token_pages = page_size == 1;
  static constexpr bool unit_in_page = page_size != 0 && page_size % unit_tokens == 0;
  static constexpr int num_sources = unit_in_page ? 1 : tiles_per_unit;
  static constexpr int tile_bytes = tile_tokens * head_dim;
  static constexpr int load_stride = Geometry::layout == page_layout::plain ? 64 : 1024;
  using args_type = logits_args<page_size>;

 public:
  using tile = fragment<head_dim>;
  using scales = unit_scales<num_scales>;
  /// Loads that load_tile for all tiles and load_scales issue together.
  static constexpr int loads_per_unit =
      tiles_per_unit * tile::num_loads + (num_scales == 1 ? 1 : tiles_per_unit);

  KINDEX_DEVICE explicit page_stream(const args_type& args) : args_(args) {
    const int lane = lane_id();
    lane_offset_ = Geometry::layout == page_layout::plain
                       ? lane % tile_tokens * head_dim + lane / tile_tokens * unit_bytes
                       : lane * unit_bytes;
  }

  /// Turns to units first, first + step, … below end of a sequence with num_tokens > 0 tokens.
  KINDEX_DEVICE void start(std::int64_t seq, int num_tokens, int first_unit, int end_unit,
                           int unit_step) {
    const std::int64_t end_token = std::int64_t{end_unit} * unit_tokens;
    num_tokens_ = num_tokens < end_token ? num_tokens : static_cast<int>(end_token);
    const auto last_token = static_cast<std::uint32_t>(num_tokens_ - 1);
    ids_.start(
        args_.block_table + seq * args_.block_table_stride,
        static_cast<int>(args_.pages.page(last_token)) + 1,
        static_cast<int>(args_.pages.page(static_cast<std::uint32_t>(first_unit) * unit_tokens)),
        unit_step);
  }

  /// Makes the addresses of a unit. Past the last one: a unit without tokens.
  KINDEX_DEVICE void prepare(int unit) {
    const int first_token = unit * unit_tokens;
    const int tokens = num_tokens_ - first_token;
    if constexpr (per_token_pages) {
      prepare_tokens(first_token);
    } else if constexpr (unit_in_page) {
      constexpr int units_per_page = page_size / unit_tokens;
      const int entry = unit / units_per_page;
      ids_.advance(entry);
      const std::uint32_t id = ids_.uniform_id(entry);
      lane_valid_ = id < args_.num_pages;
      const bool readable = lane_valid_ && tokens > 0;
      const int here = tokens < unit_tokens ? tokens : unit_tokens;
      const int token_in_page = unit % units_per_page * unit_tokens;
      const char* const page = page_address(readable ? id : 0);
      sources_[0] = {page + token_in_page * head_dim,
                     readable ? (here + tile_tokens - 1) / tile_tokens * tile_bytes : 0};
      scale_source_ = {page + scale_offset_in_page(page_size, head_dim, token_in_page, 0),
                       readable ? here * 4 * num_scales : 0};
    } else {
      prepare_tiles(unit, tokens);
    }
  }

  /// Issues the loads of tile i of the prepared unit.
  KINDEX_DEVICE void load_tile(int i, tile& k) const {
#pragma unroll
    for (int j = 0; j < tile::num_loads; ++j) {
      if constexpr (per_token_pages) {
        k.load[j] = load_unit<4>(token_address_[i] + j * load_stride);
      } else {
        const int offset = lane_offset_ + (unit_in_page ? i * tile_bytes : 0) + j * load_stride;
        k.load[j] = sources_[unit_in_page ? 0 : i].load_unit(offset);
      }
    }
  }

  /// Issues the loads of the prepared unit's scales.
  KINDEX_DEVICE void load_scales(scales& loaded) const {
    if constexpr (num_scales == 1) {
      if constexpr (unit_in_page) {
        loaded.value = scale_source_.load_float(lane_id() * 4);
      } else {
        loaded.value = *scale_address_[0];
      }
    } else {
#pragma unroll
      for (int i = 0; i < tiles_per_unit; ++i) {
        if constexpr (unit_in_page) {
          const int token = i * tile_tokens + lane_id() % tile_tokens;
          loaded.value[i] = scale_source_.load_float2(token * num_scales * 4);
        } else {
          loaded.value[i] = f32x2{scale_address_[i][0], scale_address_[i][1]};
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

  /// Four tiles that may lie in four pages.
  KINDEX_DEVICE void prepare_tiles(int unit, int tokens) {
    const int page_tokens = args_.pages.page_size();
    std::uint32_t id[tiles_per_unit];
    int token_in_page[tiles_per_unit];
    const std::uint32_t first_tile = static_cast<std::uint32_t>(unit) * tiles_per_unit;
    ids_.advance(
        static_cast<int>(args_.pages.page((first_tile + tiles_per_unit - 1) * tile_tokens)));
#pragma unroll
    for (int i = 0; i < tiles_per_unit; ++i) {
      const std::uint32_t token = (first_tile + i) * tile_tokens;
      const std::uint32_t entry = args_.pages.page(token);
      id[i] = ids_.uniform_id(static_cast<int>(entry));
      token_in_page[i] = static_cast<int>(token - entry * page_tokens);
      const bool valid = id[i] < args_.num_pages;
      sources_[i] = {
          page_address(valid ? id[i] : 0) + static_cast<std::int64_t>(token_in_page[i]) * head_dim,
          valid && tokens > i * tile_tokens ? tile_bytes : 0};
    }
    // Scales by lane: token l of the unit, or token l%16 of every tile.
    const int own_tile = lane_id() / tile_tokens;
    const std::uint32_t own_id =
        own_tile < 2 ? (own_tile == 0 ? id[0] : id[1]) : (own_tile == 2 ? id[2] : id[3]);
    lane_valid_ = own_id < args_.num_pages;
    if constexpr (num_scales == 1) {
      const int first = own_tile < 2 ? (own_tile == 0 ? token_in_page[0] : token_in_page[1])
                                     : (own_tile == 2 ? token_in_page[2] : token_in_page[3]);
      scale_address_[0] =
          scale_address(own_id, first + lane_id() % tile_tokens, lane_id() < tokens);
    } else {
#pragma unroll
      for (int i = 0; i < tiles_per_unit; ++i) {
        scale_address_[i] = scale_address(id[i], token_in_page[i] + lane_id() % tile_tokens,
                                          i * tile_tokens + lane_id() % tile_tokens < tokens);
      }
    }
  }

  /// 64 tokens in 64 pages; ids past the end of the sequence are -1, so invalid.
  KINDEX_DEVICE void prepare_tokens(int first_token) {
    ids_.advance(first_token + unit_tokens - 1);
    lane_valid_ = ids_.lane_id_at(first_token + lane_id()) < args_.num_pages;
#pragma unroll
    for (int i = 0; i < tiles_per_unit; ++i) {
      const std::uint32_t id =
          ids_.lane_id_at(first_token + i * tile_tokens + lane_id() % tile_tokens);
      const bool valid = id < args_.num_pages;
      // A lane without a token reads something that is sure to be there: a row of q.
      token_address_[i] =
          (valid ? page_address(id) : args_.q) + lane_id() / tile_tokens * unit_bytes;
      if constexpr (num_scales != 1) scale_address_[i] = scale_address(id, 0, valid);
    }
    if constexpr (num_scales == 1) {
      scale_address_[0] = scale_address(ids_.lane_id_at(first_token + lane_id()), 0, lane_valid_);
    }
  }

  /// The scales of a token, or something that is sure to be there: a row of q.
  KINDEX_DEVICE const float* scale_address(std::uint32_t id, int token_in_page,
                                           bool visible) const {
    const char* const address = page_address(id) + scale_offset_in_page(args_.pages.page_size(),
                                                                        head_dim, token_in_page, 0);
    return reinterpret_cast<const float*>(visible && id < args_.num_pages ? address : args_.q);
  }

  const args_type& args_;
  int lane_offset_;
  int num_tokens_;
  page_ids<page_size> ids_;
  bool lane_valid_;
  raw_buffer sources_[num_sources];  // K of the prepared unit, or of each of its tiles
  raw_buffer scale_source_;
  const char* token_address_[tiles_per_unit];
  const float* scale_address_[num_scales == 1 ? 1 : tiles_per_unit];
};

#endif  // KINDEX_TARGET_CDNA

}  // namespace detail::gfx9
KINDEX_NAMESPACE_END
