// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The loaders of a block on Hopper: they divide the work, and keep the ring of K and the slots of q
// full.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "block_memory_sm90.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_sm90.hpp"
#include "page_stream_sm90.hpp"
#include "plan_sm90.hpp"
#include "query_layout_sm90.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

/// Where a block begins if all sequences are equally long, which is all that it can know before it
/// has read the lengths: share / gridDim.x into a sequence. Products here may wrap: that makes a
/// bad guess, but never a sequence that is not there.
struct probable_start {
  std::uint32_t seq;
  std::uint32_t share;
};

template <class Args>
KINDEX_DEVICE probable_start guess_start(const Args& args) {
  const std::uint32_t shares_before = static_cast<std::uint32_t>(args.num_seqs) * blockIdx.x;
  const std::uint32_t seq = args.num_blocks.divide(shares_before);
  return {seq, shares_before - seq * gridDim.x};
}

/// By one warp that has nothing else to do: asks for page ids, of a short sequence all, of a long
/// one as many as a warp's lanes can ask for.
template <class Args>
KINDEX_DEVICE void prefetch_probable_page_ids(const Args& args) {
  if (args.max_visible == 0) return;
  constexpr std::uint32_t line_entries = 128 / sizeof(std::int32_t);
  const probable_start start = guess_start(args);
  const auto last_token = static_cast<std::uint32_t>(args.max_visible) - 1;
  const std::uint32_t last_line = args.pages.page(last_token) / line_entries;
  const std::uint32_t first_line =
      last_line < wave_size ? 0 : args.num_blocks.divide(last_line * start.share);
  const std::uint32_t line = first_line + static_cast<std::uint32_t>(lane_id());
  if (line <= last_line) {
    prefetch(args.block_table + start.seq * args.block_table_stride + line * line_entries);
  }
}

/// One warp of them.
template <class Config>
class loader {
  using memory_type = block_memory<Config>;
  using args_type = typename memory_type::args_type;
  using stream_type = page_stream<typename Config::geometry>;
  static constexpr int head_dim = Config::geometry::head_dim;
  static constexpr int query_copier = memory_type::query_copier;
  static constexpr int first_query_orderer = memory_type::first_query_orderer;

 public:
  KINDEX_DEVICE loader(const args_type& args, const memory_type& memory, int warp)
      : args_(args), memory_(memory), ring_(memory.ring), plan_(args.shared), warp_(warp) {}

  KINDEX_DEVICE void run() {
    // A launch begins with cold instruction caches: a warp that loads K, and nothing else, executes
    // no instruction that only others need, and waits for none of them.
    if constexpr (stream_type::bulk) {
      if (warp_ < query_copier) {
        const block_work work = divide_work(args_, sequence_start_cost);
        memory_.tell_work(work);
        memory_.wait_for_barriers_as_k_loader();
        load_pieces<true, false>(work);
      } else if (warp_ == query_copier) {
        copy_probable_query();
        memory_.wait_for_barriers();
        load_pieces<false, true>(memory_.hear_of_work());
      } else {
        memory_.wait_for_barriers();
        while (!put_next_in_order()) {
        }
      }
    } else {
      copy_probable_query();
      const block_work work = divide_work(args_, sequence_start_cost);
      memory_.wait_for_barriers();
      load_pieces<true, true>(work);
    }
  }

 private:
  /// What a warp loads of a block's work.
  template <bool LoadsK, bool LoadsQuery>
  KINDEX_DEVICE void load_pieces(const block_work& work) {
    stream_type stream(args_, warp_);
    pairs_left_ = static_cast<int>(work.cost) / units_per_step;
    bool none = true;
    for_each_piece(args_, work, sequence_start_cost,
                   [&](int seq, int num_tokens, int first, int end, bool last) {
                     none = false;
                     const int end_token = end_of_tokens(num_tokens, end);
                     KINDEX_PLAIN_LOOP
                     for (int row = 0; row < args_.next_n; row += plan_.rows_at_once) {
                       const int rest = args_.next_n - row;
                       const bool fits = rest <= plan_.rows_at_once;
                       if constexpr (LoadsQuery) {
                         load_query({seq, first * unit_tokens, end_token, row,
                                     fits ? rest : plan_.rows_at_once, last && fits});
                       }
                       if constexpr (LoadsK)
                         load_pairs(stream, static_cast<std::uint32_t>(seq), first * unit_tokens,
                                    end_token, work.cost);
                     }
                   });
    if constexpr (LoadsQuery) {
      if (none) load_query({-1, 0, 0, 0, 0, true});
    }
  }

  /// K is read once. Dropped first, it leaves L2 to the logits, which wait there until what the
  /// engine reads next drives them out together: written between reads of K they would cost memory
  /// more time. Not where they would fill L2, and have to go before new ones come.
  KINDEX_DEVICE cache_policy policy_for_k(std::uint32_t units_of_block) const {
    return l2_keeps_logits(units_of_block * gridDim.x, args_.next_n) && !args_.fill_neg_infinity
               ? evict_first()
               : evict_normal();
  }

  /// Asks for q before anything is known.
  KINDEX_DEVICE void copy_probable_query() {
    probable_seq_ = static_cast<int>(guess_start(args_).seq);
    if (warp_ != query_copier) return;
    memory_.init_copy_barriers();
    copy_to_next_slot({probable_seq_, 0, 0, 0, plan_.rows_at_once, false});
  }

  /// q of a piece, the weights, what the rows see.
  KINDEX_DEVICE void load_query(const query_piece& piece) {
    const bool guessed = probable_seq_ >= 0;
    const bool right = guessed && piece.seq == probable_seq_;
    probable_seq_ = -1;
    // A wrong guess is a piece of no tokens.
    if (guessed && !right) hand_over({-1, 0, 0, 0, 0, false});
    if (!right && warp_ == query_copier) {
      wait(&ring_.query_empty[query_position_.stage], query_position_.parity ^ 1);
      copy_to_next_slot(piece);
    }
    hand_over(piece);
  }

  /// The next slot, whose copies have begun, to those that put it in order.
  KINDEX_DEVICE void hand_over(const query_piece& piece) {
    if (warp_ == query_copier) publish_next(piece);
    if (warp_ >= first_query_orderer) {
      put_next_in_order();
    } else {
      query_position_.advance(plan_.num_query_slots);
    }
  }

  /// By the copier: beside q lies what is to be done with it.
  KINDEX_DEVICE void publish_next(const query_piece& piece) {
    const int slot = query_position_.stage;
    if (elected()) {
      ring_.pieces[slot] = piece;
      arrive(&ring_.query_copied[slot]);
    }
    barrier* const full = &ring_.query_full[slot];
    arrive_when_copied(full);
    int* const visible = memory_.visible_of(slot, piece.num_rows);
    KINDEX_PLAIN_LOOP
    for (int row = lane_id(); row < piece.num_rows; row += wave_size) {
      visible[row] = visible_tokens(args_, piece.seq, piece.first_row + row);
    }
    arrive(full);
  }

  /// By those that put q in order. True if there is no more.
  KINDEX_DEVICE bool put_next_in_order() {
    const int slot = query_position_.stage;
    wait(&ring_.query_copied[slot], query_position_.parity);
    const query_piece piece = ring_.pieces[slot];
    put_in_order(memory_.query_of(slot), piece.num_rows * args_.num_heads);
    arrive(&ring_.query_full[slot]);
    query_position_.advance(plan_.num_query_slots);
    return piece.last;
  }

  /// By the copier.
  KINDEX_DEVICE void copy_to_next_slot(const query_piece& piece) {
    copy_query(piece);
    copy_weights(piece);
  }

  /// q to the next slot, as it lies in memory. Bulk copies, because blocks that share a sequence
  /// want the same lines, and keep each other waiting if they ask for 16 bytes at a time.
  KINDEX_DEVICE void copy_query(const query_piece& piece) {
    const int heads_at_once = args_.q_head_stride == head_dim ? args_.num_heads : 1;
    const char* q = args_.q + std::int64_t{piece.seq} * args_.q_batch_stride +
                    piece.first_row * args_.q_next_n_stride;
    char* query = memory_.query_of(query_position_.stage);
    barrier* const copied = &ring_.query_copied[query_position_.stage];
    if (!elected()) return;
    expect(copied, static_cast<std::uint32_t>(piece.num_rows * args_.num_heads * head_dim));
    KINDEX_PLAIN_LOOP
    for (int row = 0; row < piece.num_rows; ++row) {
      KINDEX_PLAIN_LOOP
      for (int head = 0; head < args_.num_heads; head += heads_at_once) {
        copy_bulk(query + head * head_dim, q + head * args_.q_head_stride,
                  static_cast<std::uint32_t>(heads_at_once * head_dim), copied, evict_normal());
      }
      q += args_.q_next_n_stride;
      query += args_.num_heads * head_dim;
    }
  }

  /// Each warp takes groups of heads.
  KINDEX_DEVICE void put_in_order(char* query, int num_columns) const {
    using layout = query_layout<head_dim>;
    static_assert(shared_alignment % layout::alignment == 0,
                  "kindex: slots for q must begin where the matrix unit's order does");
    constexpr int units_per_lane = layout::group_bytes / unit_bytes / wave_size;
    const int num_groups = num_columns / layout::group_heads;
    KINDEX_PLAIN_LOOP
    for (int group = warp_ - first_query_orderer; group < num_groups;
         group += memory_type::num_query_orderers) {
      char* const units = query + group * layout::group_bytes;
      u32x4 unit[units_per_lane];
#pragma unroll
      for (int i = 0; i < units_per_lane; ++i) {
        unit[i] = load_unit<16>(units + (i * wave_size + lane_id()) * unit_bytes);
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < units_per_lane; ++i) {
        store_unit<16>(units + layout::place_of(i * wave_size + lane_id()) * unit_bytes, unit[i]);
      }
    }
    fence_async_proxy();
  }

  /// The weights, in their order, to the next slot.
  KINDEX_DEVICE void copy_weights(const query_piece& piece) {
    const float* w =
        args_.weights + row_index(args_, piece.seq, piece.first_row) * args_.weights_row_stride;
    float* weights = memory_.weights_of(query_position_.stage);
    KINDEX_PLAIN_LOOP
    for (int row = 0; row < piece.num_rows; ++row) {
      KINDEX_PLAIN_LOOP
      for (int head = lane_id(); head < args_.num_heads; head += wave_size) {
        copy_async(weights + memory_type::place_of_weight(head), w + head);
      }
      w += args_.weights_row_stride;
      weights += args_.num_heads;
    }
  }

  KINDEX_DEVICE void load_pairs(stream_type& stream, std::uint32_t seq, int first_token,
                                int end_token, std::uint32_t units_of_block) {
    stream.start(seq, first_token, end_token);
    // After page ids have been asked for, which need not wait for it.
    const cache_policy policy = policy_for_k(units_of_block);
    // Bulk copies are few; of the others' addresses the compiler makes more at once.
#pragma unroll(stream_type::bulk ? 1 : 4)
    for (int token = first_token; token < end_token; token += pair_tokens) {
      stream.prepare(token);
      const int stage = position_.stage;
      wait(&ring_.empty[stage], position_.parity ^ 1);
      if constexpr (stream_type::bulk) {
        if (token == first_token) stream.prefetch_next(seq);
        // The rest fits into the ring.
        if (--pairs_left_ < plan_.num_stages - 1) {
          const ring_position landed = position_.earlier(plan_.num_stages, max_last_stages);
          wait(&ring_.full[landed.stage], landed.parity);
        }
      }
      stream.load(token, {memory_.stage(stage), ring_.valid[stage], &ring_.full[stage]}, policy);
      position_.advance(plan_.num_stages);
    }
  }

  const args_type& args_;
  const memory_type& memory_;
  typename memory_type::ring_state& ring_;
  const shared_plan& plan_;
  const int warp_;
  int probable_seq_ = -1;  // whose q was asked for, and may be the wrong one
  int pairs_left_ = 0;     // about so many of the block's
  ring_position position_;
  ring_position query_position_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
