// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How K and scales of one sequence get into shared memory on Hopper, 128 tokens ("a pair" of units)
// a stage.
//
// Preshuffled pages come by bulk copies, whole units where pages allow: their tiles are made of the
// core matrices that ldmatrix reads without bank conflicts. Plain ones come by 16-byte copies into
// swizzled rows, pages of one token by 4-byte copies.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_sm90.hpp"
#include "page_ids.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

inline constexpr int warpgroup_size = 128;
inline constexpr int warps_per_group = 4;
inline constexpr int pair_tokens = 2 * unit_tokens;
inline constexpr int pair_tiles = pair_tokens / tile_tokens;
/// Tokens of a pair that one warp loads, or finishes.
inline constexpr int warp_tokens = pair_tokens / warps_per_group;

/// K and scales of a pair.
template <int HeadDim>
inline constexpr int stage_bytes = pair_tokens * (HeadDim + 4 * scales_per_token(HeadDim));

#if KINDEX_TARGET_SM90A

/// One stage of the ring.
struct stage_view {
  char* data;
  std::uint32_t* valid;  ///< one bit for each token, a word for each warp: its page is one
  barrier* full;
};

/// How page ids come on Hopper. Past the last page of the sequence: -1.
template <int PageSize>
struct page_id_loads {
  static constexpr bool each_step_advances = PageSize == 1;

  static KINDEX_DEVICE int load(const std::int32_t* table_row, int num_entries, int first) {
    const int entry = first + lane_id();
    return entry < num_entries ? table_row[entry] : -1;
  }
  static KINDEX_DEVICE int arrived(int ids) { return ids; }
};

template <class Geometry>
class page_stream {
  static constexpr int page_size = Geometry::page_size;
  static constexpr int head_dim = Geometry::head_dim;
  static constexpr int num_scales = Geometry::num_scales;
  static constexpr bool per_token_pages = page_size == 1;
  using args_type = logits_args<page_size>;

 public:
  static constexpr bool bulk = Geometry::layout == page_layout::preshuffled;
  /// Neighbouring tokens that are copied together, and kept in the stage so: K, then scales. If
  /// bulk, they are sure to share a page.
  static constexpr int piece_tokens = !bulk                                   ? pair_tokens
                                      : page_size != 0 && page_size % 64 == 0 ? 64
                                      : page_size != 0 && page_size % 32 == 0 ? 32
                                                                              : tile_tokens;
  /// Small pages take one copy, which costs some 80 cycles, and not two. Those of 64 tokens are no
  /// faster then.
  static constexpr bool whole_pages = page_size == piece_tokens && page_size < 64;
  static constexpr int piece_k_bytes = piece_tokens * head_dim;
  static constexpr int piece_scale_bytes = piece_tokens * 4 * num_scales;
  static constexpr int piece_bytes = piece_k_bytes + piece_scale_bytes;
  /// Of a warpgroup, those that load.
  static constexpr int num_warps = bulk ? 1 : warps_per_group;
  /// Arrivals that fill a stage: of every thread that writes to it, and of each one's copies if
  /// they are not bulk copies, which count their bytes instead.
  static constexpr int num_arrivals = bulk ? warps_per_group : 2 * num_warps * wave_size;

  KINDEX_DEVICE page_stream(const args_type& args, int warp) : args_(args), warp_(warp) {}

  /// Turns to tokens first_token, first_token + pair_tokens, … below end_token of a sequence.
  KINDEX_DEVICE void start(std::int64_t seq, int first_token, int end_token) {
    end_token_ = end_token;
    const std::int32_t* const table_row = args_.block_table + seq * args_.block_table_stride;
    const int num_entries = entry_of(end_token - 1) + 1;
    if constexpr (per_token_pages) {
      // A warp's own 32 tokens of every pair.
      ids_.start(table_row, num_entries, first_token + warp_ * warp_tokens, pair_tokens);
    } else {
      // Pages of 64 tokens: chunks begin where pairs do. Others may straddle two.
      ids_.start(table_row, num_entries, entry_of(first_token),
                 page_size == unit_tokens ? wave_size : wave_size - pair_tiles);
    }
  }

  /// Makes the page ids of a pair available, before its stage is waited for.
  KINDEX_DEVICE void prepare(int token) {
    if constexpr (per_token_pages) {
      ids_.advance(token + (warp_ + 1) * warp_tokens - 1);
    } else {
      ids_.advance(entry_of(token + pair_tokens - 1));
    }
  }

  /// Begins to fill a stage with the prepared pair. Tokens without a page leave it as it is.
  KINDEX_DEVICE void load(int token, const stage_view& to) const {
    if constexpr (bulk) {
      load_in_bulk(token, to);
    } else {
      if constexpr (per_token_pages) {
        load_tokens(token, to);
      } else {
        load_rows(token, to);
      }
      arrive_when_copied(to.full);
      arrive(to.full);
    }
  }

  /// Where a stage keeps 16 dims of a token. Preshuffled: as in the page. Plain: rows, whose units
  /// change places so that the same unit of eight neighbouring rows lies in different banks.
  static KINDEX_DEVICE int k_offset_in_stage(int tile, int row, int unit) {
    constexpr int tiles = piece_tokens / tile_tokens;
    const int piece = tiles == pair_tiles ? 0 : tile / tiles;
    constexpr int rows_per_line = head_dim < 128 ? 128 / head_dim : 1;  // of 32 banks
    constexpr int mask = head_dim < 128 ? head_dim / unit_bytes - 1 : 7;
    const int place = bulk ? unit * 256 + row * unit_bytes
                           : row * head_dim + (unit ^ (row / rows_per_line & mask)) * unit_bytes;
    return piece * piece_bytes + (tile - piece * tiles) * tile_tokens * head_dim + place;
  }
  /// Where it keeps the scales of a token.
  static KINDEX_DEVICE int scale_offset_in_stage(int token) {
    const int piece = piece_tokens == pair_tokens ? 0 : token / piece_tokens;
    return piece * piece_bytes + piece_k_bytes + (token - piece * piece_tokens) * 4 * num_scales;
  }

 private:
  /// One warp; a lane copies one piece.
  KINDEX_DEVICE void load_in_bulk(int token, const stage_view& to) const {
    constexpr int pieces = pair_tokens / piece_tokens;
    constexpr std::uint32_t bytes = piece_bytes;
    const int piece = lane_id() % pieces;
    const int first = token + piece * piece_tokens;
    const int entry = entry_of(first);
    const std::uint32_t id = ids_.at(entry);
    const bool wanted = lane_id() < pieces && first < end_token_ && id < args_.num_pages;
    const auto wanted_pieces = static_cast<std::uint32_t>(ballot(wanted));
    if (lane_id() < warps_per_group) {
      to.valid[lane_id()] = tokens_of(wanted_pieces);
      if (lane_id() == 0) {
        arrive_expecting(to.full, static_cast<std::uint32_t>(__popc(wanted_pieces)) * bytes);
      } else {
        arrive(to.full);
      }
    }
    __syncwarp();
    if (wanted) {
      const char* const page = page_address(id);
      char* const data = to.data + piece * bytes;
      if constexpr (whole_pages) {
        copy_bulk(data, page, bytes, to.full);
      } else {
        const int token_in_page = first - entry * args_.pages.page_size();
        copy_bulk(data, page + token_in_page * head_dim, piece_k_bytes, to.full);
        copy_bulk(data + piece_k_bytes, page + scale_offset(token_in_page), piece_scale_bytes,
                  to.full);
      }
    }
  }

  /// The 32 tokens of warp lane_id() of a pair, as bits, from one bit for each piece.
  static KINDEX_DEVICE std::uint32_t tokens_of(std::uint32_t pieces) {
    if constexpr (piece_tokens >= warp_tokens) {
      return (pieces >> (lane_id() / (piece_tokens / warp_tokens)) & 1) != 0 ? 0xFFFFFFFFu : 0u;
    } else {
      const std::uint32_t both = pieces >> (lane_id() * 2);
      return ((both & 1) != 0 ? 0x0000FFFFu : 0u) | ((both & 2) != 0 ? 0xFFFF0000u : 0u);
    }
  }

  /// Plain pages: a warp copies its two tiles, whole rows at once.
  KINDEX_DEVICE void load_rows(int token, const stage_view& to) const {
    constexpr int units = head_dim / unit_bytes;
    constexpr int rows_at_once = wave_size / units;
    std::uint32_t valid_tokens = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int tile = warp_ * 2 + i;
      const int first = token + tile * tile_tokens;
      const int entry = entry_of(first);
      const std::uint32_t id = ids_.at(entry);
      if (first >= end_token_ || id >= args_.num_pages) continue;
      valid_tokens |= 0xFFFFu << (i * tile_tokens);
      const int token_in_page = first - entry * args_.pages.page_size();
      const char* const page = page_address(id);
      const int unit = lane_id() % units;
#pragma unroll
      for (int r = 0; r < tile_tokens; r += rows_at_once) {
        const int row = r + lane_id() / units;
        copy_async<16>(to.data + k_offset_in_stage(tile, row, unit),
                       page + (token_in_page + row) * head_dim + unit * unit_bytes);
      }
      constexpr int scale_units = tile_tokens * 4 * num_scales / unit_bytes;
      if (lane_id() < scale_units) {
        copy_async<16>(to.data + scale_offset_in_stage(tile * tile_tokens) + lane_id() * unit_bytes,
                       page + scale_offset(token_in_page) + lane_id() * unit_bytes);
      }
    }
    if (lane_id() == 0) to.valid[warp_] = valid_tokens;
  }

  /// Pages of one token: 4-byte copies, the only ones that their alignment allows. A warp copies
  /// K of one token at once; the scales of all of its tokens, which all lie in other pages, take
  /// one copy a lane.
  KINDEX_DEVICE void load_tokens(int token, const stage_view& to) const {
    const int own = warp_ * warp_tokens + lane_id();
    const std::uint32_t own_id = ids_.at(token + own);
    const bool wanted = token + own < end_token_ && own_id < args_.num_pages;
    const auto valid_tokens = static_cast<std::uint32_t>(ballot(wanted));
    if (lane_id() == 0) to.valid[warp_] = valid_tokens;
    if (wanted) {
      const char* const scales = page_address(own_id) + head_dim;
#pragma unroll
      for (int g = 0; g < num_scales; ++g) {
        copy_async<4>(to.data + scale_offset_in_stage(own) + g * 4, scales + g * 4);
      }
    }
#pragma unroll 4
    for (int i = 0; i < warp_tokens; ++i) {
      if ((valid_tokens >> i & 1) == 0) continue;
      const int t = warp_ * warp_tokens + i;
      const char* const page = page_address(ids_.at(token + t));
#pragma unroll
      for (int word = lane_id(); word < head_dim / 4; word += wave_size) {
        copy_async<4>(
            to.data + k_offset_in_stage(t / tile_tokens, t % tile_tokens, word / 4) + word % 4 * 4,
            page + word * 4);
      }
    }
  }

  KINDEX_DEVICE int entry_of(int token) const {
    return static_cast<int>(args_.pages.page(static_cast<std::uint32_t>(token)));
  }
  KINDEX_DEVICE const char* page_address(std::uint32_t id) const {
    return args_.data + static_cast<std::int64_t>(id) * args_.page_stride_bytes;
  }
  KINDEX_DEVICE std::int64_t scale_offset(int token_in_page) const {
    return scale_offset_in_page(args_.pages.page_size(), head_dim, token_in_page, 0);
  }

  const args_type& args_;
  const int warp_;
  int end_token_ = 0;
  page_ids<page_id_loads<page_size>> ids_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
