// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How K and scales of one sequence get into shared memory on Hopper, 128 tokens ("a pair" of units)
// a stage.
//
// Pages come by bulk copies, whole units where they allow, pages of one token by 4-byte copies.
// Preshuffled tiles are made of the core matrices that ldmatrix reads without bank conflicts. Plain
// rows of 128 bytes all begin in the same bank: they lie in four blocks of 32, each 16 bytes
// further on, and ldmatrix takes two rows of each, which makes two conflicts of seven.
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

/// Rows of plain K that lie in the stage without a gap, and the gap behind them.
inline constexpr int block_rows = 32;
inline constexpr int block_gap_bytes = 32;
inline constexpr int pair_blocks = pair_tokens / block_rows;

/// K and scales of a pair, with room for the gaps of small pages.
template <int HeadDim>
inline constexpr int stage_bytes =
    pair_tokens * (HeadDim + 4 * scales_per_token(HeadDim)) + pair_tiles * block_gap_bytes;

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
  static constexpr bool bulk = !per_token_pages;
  /// Neighbouring tokens that are kept together in the stage: K, then scales. If bulk, they are
  /// sure to share a page.
  static constexpr int piece_tokens = per_token_pages                         ? block_rows
                                      : page_size != 0 && page_size % 64 == 0 ? 64
                                      : page_size != 0 && page_size % 32 == 0 ? 32
                                                                              : tile_tokens;
  /// Small pages take one copy, which costs some 80 cycles, and not two. Those of 64 tokens are no
  /// faster then.
  static constexpr bool whole_pages = page_size == piece_tokens && page_size < 64;
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
      load_tokens(token, to);
      arrive_when_copied(to.full);
      arrive(to.full);
    }
  }

  /// Of the tokens that a warp of computers multiplies, which one: row 0-7 of two core matrices for
  /// each half of the pair.
  static KINDEX_DEVICE int token_of(int warp, int matrix, int half, int row) {
    if constexpr (preshuffled) {
      return (warp * 2 + matrix) * tile_tokens + half * 8 + row;
    } else {
      return row % pair_blocks * block_rows + warp * (block_rows / warps_per_group) + matrix * 4 +
             half * 2 + row / pair_blocks;
    }
  }
  /// Where a stage keeps 16 dims of a token.
  static KINDEX_DEVICE int k_offset_in_stage(int token, int unit) {
    const int piece = token / piece_tokens;
    const int in_piece = token % piece_tokens;
    int place;
    if constexpr (preshuffled) {
      place = in_piece / tile_tokens * tile_tokens * head_dim + unit * 256 +
              in_piece % tile_tokens * unit_bytes;
    } else {
      place = in_piece * head_dim + in_piece / block_rows * gap_bytes + unit * unit_bytes;
    }
    return piece * piece_bytes + place;
  }
  /// Where it keeps the scales of a token.
  static KINDEX_DEVICE int scale_offset_in_stage(int token) {
    return token / piece_tokens * piece_bytes + piece_k_bytes +
           token % piece_tokens * 4 * num_scales;
  }

 private:
  static constexpr bool preshuffled = Geometry::layout == page_layout::preshuffled;
  static constexpr int gap_bytes = preshuffled ? 0 : block_gap_bytes;
  /// Blocks of rows that need a gap between them.
  static constexpr int piece_blocks =
      preshuffled || piece_tokens <= block_rows ? 1 : piece_tokens / block_rows;
  static constexpr int block_bytes = piece_tokens / piece_blocks * head_dim;
  static constexpr int piece_k_bytes = piece_blocks * (block_bytes + gap_bytes) - gap_bytes;
  static constexpr int piece_scale_bytes = piece_tokens * 4 * num_scales;
  static constexpr int piece_bytes = piece_k_bytes + piece_scale_bytes + gap_bytes;
  static_assert(pair_tokens / piece_tokens * piece_bytes <= stage_bytes<head_dim>);

  /// One warp; a lane copies one piece.
  KINDEX_DEVICE void load_in_bulk(int token, const stage_view& to) const {
    constexpr int pieces = pair_tokens / piece_tokens;
    constexpr std::uint32_t bytes = piece_tokens * head_dim + piece_scale_bytes;
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
      char* const data = to.data + piece * piece_bytes;
      if constexpr (whole_pages) {
        copy_bulk(data, page, bytes, to.full);
      } else {
        const int token_in_page = first - entry * args_.pages.page_size();
        const char* const k = page + token_in_page * head_dim;
#pragma unroll
        for (int block = 0; block < piece_blocks - 1; ++block) {
          copy_bulk(data + block * (block_bytes + gap_bytes), k + block * block_bytes, block_bytes,
                    to.full);
        }
        constexpr int last = piece_blocks - 1;
        if constexpr (page_size == piece_tokens && !preshuffled) {
          // Scales follow K.
          copy_bulk(data + last * (block_bytes + gap_bytes), k + last * block_bytes,
                    block_bytes + piece_scale_bytes, to.full);
        } else {
          copy_bulk(data + last * (block_bytes + gap_bytes), k + last * block_bytes, block_bytes,
                    to.full);
          copy_bulk(data + piece_k_bytes, page + scale_offset(token_in_page), piece_scale_bytes,
                    to.full);
        }
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
      char* const row = to.data + k_offset_in_stage(t, 0);
#pragma unroll
      for (int word = lane_id(); word < head_dim / 4; word += wave_size) {
        copy_async<4>(row + word * 4, page + word * 4);
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
