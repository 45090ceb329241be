// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How a stage of the ring on Hopper keeps 128 tokens ("a pair" of units): K and scales, in pieces
// that lie in one page each.
//
// K lies there as in its pages. Preshuffled tiles are made of core matrices: where they lie at
// equal distances the matrix unit reads them by itself, else ldmatrix does, without bank conflicts.
// Plain rows of 128 bytes all begin in the same bank: ldmatrix reads each of eight in another
// order.
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

  /// Neighbouring tokens that are kept together: K, then scales. They are sure to share a page,
  /// unless that has one token.
  static constexpr int piece_tokens = page_size == 1                          ? warp_tokens
                                      : page_size != 0 && page_size % 64 == 0 ? 64
                                      : page_size != 0 && page_size % 32 == 0 ? 32
                                                                              : tile_tokens;
  static constexpr int piece_k_bytes = piece_tokens * head_dim;
  static constexpr int piece_scale_bytes = piece_tokens * 4 * num_scales;
  /// Where pages are pieces, scales follow K there and are copied with it, but for preshuffled
  /// pages of 64 tokens, which are no faster then. All others lie behind K of all pieces.
  static constexpr bool one_piece_pages = page_size == piece_tokens;
  static constexpr bool scales_follow = one_piece_pages && (page_size < 64 || !preshuffled);
  static constexpr int piece_bytes = piece_k_bytes + (scales_follow ? piece_scale_bytes : 0);
  static constexpr int num_pieces = pair_tokens / piece_tokens;
  static constexpr int bytes = num_pieces * (piece_k_bytes + piece_scale_bytes);
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
    return (warp * 2 + matrix) * tile_tokens + half * 8 + row;
  }
  /// Rows of a core matrix are read with their units in other orders, unit ^ this, where the same
  /// units would lie in the same banks.
  static KINDEX_HOST_DEVICE constexpr int unit_order(int row) {
    return preshuffled ? 0 : head_dim == 64 ? row / 2 : row;
  }
  static KINDEX_HOST_DEVICE constexpr bool is_valid(const std::uint32_t* valid, int token) {
    const int bit = token / tokens_of_valid_bit;
    return (valid[num_valid_words == 1 ? 0 : bit / 32] >> bit % 32 & 1) != 0;
  }
  /// Where 16 dims of a token are.
  static KINDEX_HOST_DEVICE constexpr int k_offset(int token, int unit) {
    return token / piece_tokens * piece_bytes +
           static_cast<int>(k_offset_in_page(Geometry::layout, head_dim, token % piece_tokens,
                                             unit * unit_bytes));
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
