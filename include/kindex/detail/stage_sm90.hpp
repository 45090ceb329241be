// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How a stage of the ring on Hopper keeps 128 tokens ("a pair" of units): K and scales, in pieces
// that lie in one page each.
//
// Preshuffled tiles are made of core matrices, and stay as they are; where they lie at equal
// distances the matrix unit reads them by itself, else ldmatrix does, without bank conflicts. Plain
// rows of 128 bytes all begin in the same bank: they lie in four blocks of 32, each 32 bytes
// further on than the one before, and a core matrix takes two rows of each. That makes one conflict
// instead of seven; gaps of 16 bytes do the same, but bulk copies to places that are no multiples
// of 32 are slower.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

inline constexpr int warpgroup_size = 128;
inline constexpr int warps_per_group = 4;
inline constexpr int pair_tokens = 2 * unit_tokens;
/// Tokens of a pair that one warp loads, or finishes.
inline constexpr int warp_tokens = pair_tokens / warps_per_group;

template <class Geometry>
struct stage_layout {
  static constexpr int page_size = Geometry::page_size;
  static constexpr int head_dim = Geometry::head_dim;
  static constexpr int num_scales = Geometry::num_scales;
  static constexpr bool preshuffled = Geometry::layout == page_layout::preshuffled;
  static constexpr int block_rows = 32;
  static constexpr int num_blocks = pair_tokens / block_rows;

  /// Neighbouring tokens that are kept together: K, then scales. They are sure to share a page,
  /// unless that has one token.
  static constexpr int piece_tokens = page_size == 1                          ? block_rows
                                      : page_size != 0 && page_size % 64 == 0 ? 64
                                      : page_size != 0 && page_size % 32 == 0 ? 32
                                                                              : tile_tokens;
  /// Rows of a piece that lie together, the blocks that they make, and the gap behind each.
  static constexpr int blocks_per_piece =
      preshuffled || piece_tokens <= block_rows ? 1 : piece_tokens / block_rows;
  static constexpr int gap_bytes = preshuffled ? 0 : 32;
  static constexpr int block_bytes = piece_tokens / blocks_per_piece * head_dim;
  static constexpr int piece_k_bytes = blocks_per_piece * (block_bytes + gap_bytes) - gap_bytes;
  static constexpr int piece_scale_bytes = piece_tokens * 4 * num_scales;
  /// Where pages are pieces, scales follow K there and are copied with it, but for preshuffled
  /// pages of 64 tokens, which are no faster then. All others lie behind K of all pieces.
  static constexpr bool one_piece_pages = page_size == piece_tokens;
  static constexpr bool scales_follow = one_piece_pages && (page_size < 64 || !preshuffled);
  static constexpr int piece_bytes =
      piece_k_bytes + (scales_follow ? piece_scale_bytes : 0) + gap_bytes;
  static constexpr int num_pieces = pair_tokens / piece_tokens;
  static constexpr int bytes = num_pieces * (piece_k_bytes + piece_scale_bytes + gap_bytes);
  /// Which tokens have a page that is one: a bit for each piece, or for each token where a page has
  /// one.
  static constexpr int tokens_of_valid_bit = page_size == 1 ? 1 : piece_tokens;
  static constexpr int num_valid_words = page_size == 1 ? warps_per_group : 1;
  /// Preshuffled tiles at equal distances, and how far they are apart.
  static constexpr bool even_tiles = preshuffled && (!scales_follow || piece_tokens == tile_tokens);
  static constexpr int tile_bytes = scales_follow ? piece_bytes : tile_tokens * head_dim;

  /// Which token a warp of computers multiplies in a row (0-7) of one of two core matrices, for one
  /// half of the pair.
  static KINDEX_HOST_DEVICE constexpr int token_of(int warp, int matrix, int half, int row) {
    if constexpr (preshuffled) {
      return (warp * 2 + matrix) * tile_tokens + half * 8 + row;
    } else {
      return row % num_blocks * block_rows + warp * (block_rows / warps_per_group) + matrix * 4 +
             half * 2 + row / num_blocks;
    }
  }
  static KINDEX_HOST_DEVICE constexpr bool is_valid(const std::uint32_t* valid, int token) {
    const int bit = token / tokens_of_valid_bit;
    return (valid[num_valid_words == 1 ? 0 : bit / 32] >> bit % 32 & 1) != 0;
  }
  /// Where 16 dims of a token are: as in a page, but for the gaps.
  static KINDEX_HOST_DEVICE constexpr int k_offset(int token, int unit) {
    const int in_piece = token % piece_tokens;
    return token / piece_tokens * piece_bytes + in_piece / block_rows * gap_bytes +
           static_cast<int>(
               k_offset_in_page(Geometry::layout, head_dim, in_piece, unit * unit_bytes));
  }
  /// Where the scales of a token are.
  static KINDEX_HOST_DEVICE constexpr int scale_offset(int token) {
    constexpr int token_bytes = 4 * num_scales;
    return scales_follow ? token / piece_tokens * piece_bytes + piece_k_bytes +
                               token % piece_tokens * token_bytes
                         : num_pieces * piece_bytes + token * token_bytes;
  }
};

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
