// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How K and scales of one sequence get into the stages of the ring on Hopper: pages by bulk copies,
// whole units where they allow, pages of one token by 4-byte copies.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_sm90.hpp"
#include "page_ids.hpp"
#include "stage_sm90.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

/// One stage of the ring.
struct stage_view {
  char* data;
  std::uint32_t* valid;  ///< which tokens have a page (stage_layout)
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
  using layout = stage_layout<Geometry>;

 public:
  static constexpr bool bulk = !per_token_pages;
  /// Of a warpgroup, those that load.
  static constexpr int num_warps = bulk ? 1 : warps_per_group;
  /// Arrivals that fill a stage: of every thread that writes to it, and of each one's copies if
  /// they are not bulk copies, which count their bytes instead.
  static constexpr int num_arrivals = bulk ? 1 : 2 * num_warps * wave_size;

  KINDEX_DEVICE page_stream(const args_type& args, int warp) : args_(args), warp_(warp) {}

  /// Turns to tokens first_token, first_token + pair_tokens, … below end_token of a sequence.
  KINDEX_DEVICE void start(std::uint32_t seq, int first_token, int end_token) {
    end_token_ = end_token;
    const std::int32_t* const table_row =
        args_.block_table + std::int64_t{seq} * args_.block_table_stride;
    const int num_entries = entry_of(end_token - 1) + 1;
    if constexpr (per_token_pages) {
      // A warp's own 32 tokens of every pair.
      ids_.start(table_row, num_entries, first_token + warp_ * warp_tokens, pair_tokens);
    } else {
      // Pages of 64 tokens: chunks begin where pairs do. Others may straddle two.
      ids_.start(table_row, num_entries, entry_of(first_token),
                 page_size == unit_tokens ? wave_size : wave_size - pair_tokens / tile_tokens);
    }
  }

  /// A short sequence is done before the first page id of the next one would have come.
  KINDEX_DEVICE void prefetch_next(std::uint32_t seq) const {
    if (seq + 1 < static_cast<std::uint32_t>(args_.num_seqs) && lane_id() == 0)
      prefetch(args_.block_table + std::int64_t{seq + 1} * args_.block_table_stride);
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
  KINDEX_DEVICE void load(int token, const stage_view& to,
                          [[maybe_unused]] cache_policy policy) const {
    if constexpr (bulk) {
      load_in_bulk(token, to, policy);
    } else {
      load_tokens(token, to);
      arrive_when_copied(to.full);
      arrive(to.full);
    }
  }

 private:
  /// One lane begins all copies. What it needs is the same in all lanes.
  KINDEX_DEVICE void load_in_bulk(int token, const stage_view& to, cache_policy policy) const {
    constexpr std::uint32_t bytes = layout::piece_k_bytes + layout::piece_scale_bytes;
    std::uint32_t id[layout::num_pieces];
    std::uint32_t wanted = 0;  // one bit for each piece
#pragma unroll
    for (int piece = 0; piece < layout::num_pieces; ++piece) {
      const int first = token + piece * layout::piece_tokens;
      id[piece] = ids_.uniform_at(entry_of(first));
      if (first < end_token_ && id[piece] < args_.num_pages) wanted |= 1u << piece;
    }
    if (!elected()) return;
    *to.valid = wanted;
    arrive_expecting(to.full, static_cast<std::uint32_t>(__popc(wanted)) * bytes);
#pragma unroll
    for (int piece = 0; piece < layout::num_pieces; ++piece) {
      if ((wanted >> piece & 1) == 0) continue;
      const int first = token + piece * layout::piece_tokens;
      copy_piece(page_address(id[piece]),
                 layout::one_piece_pages ? 0 : first - entry_of(first) * args_.pages.page_size(),
                 piece, to, policy);
    }
  }

  /// Where scales follow K they come with it.
  KINDEX_DEVICE void copy_piece(const char* page, int token_in_page, int piece,
                                const stage_view& to, cache_policy policy) const {
    copy_bulk(to.data + piece * layout::piece_bytes, page + token_in_page * head_dim,
              layout::piece_bytes, to.full, policy);
    if constexpr (!layout::scales_follow) {
      copy_bulk(to.data + layout::scale_offset(piece * layout::piece_tokens),
                page + scale_offset(token_in_page), layout::piece_scale_bytes, to.full, policy);
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
        copy_async(to.data + layout::scale_offset(own) + g * 4, scales + g * 4);
      }
    }
#pragma unroll 4
    for (int i = 0; i < warp_tokens; ++i) {
      if ((valid_tokens >> i & 1) == 0) continue;
      const int t = warp_ * warp_tokens + i;
      const char* const page = page_address(ids_.at(token + t));
      char* const row = to.data + layout::k_offset(t, 0);
#pragma unroll
      for (int word = lane_id(); word < head_dim / 4; word += wave_size) {
        copy_async(row + word * 4, page + word * 4);
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
