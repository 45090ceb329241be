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
  static constexpr int first_query_warp = memory_type::first_query_warp;
  static constexpr int num_query_threads = memory_type::num_query_threads;

 public:
  KINDEX_DEVICE loader(const args_type& args, const memory_type& memory, int warp)
      : args_(args), memory_(memory), ring_(memory.ring), plan_(args.shared), warp_(warp) {}

  KINDEX_DEVICE void run() {
    // A launch begins with cold instruction caches: a warp that loads K, and nothing else, executes
    // no instruction that only others need, and waits for none of them.
    if constexpr (stream_type::bulk) {
      if (warp_ < first_query_warp) {
        const block_work work = divide_work(args_, sequence_start_cost);
        memory_.tell_work(work);
        memory_.wait_for_barriers_as_k_loader();
        load_pieces<true, false>(work);
      } else {
        load_probable_query();
        memory_.wait_for_barriers();
        load_pieces<false, true>(memory_.hear_of_work());
      }
    } else {
      load_probable_query();
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
    for_each_piece(args_, work, sequence_start_cost,
                   [&](int seq, int num_tokens, int first, int end) {
                     const int end_token = end_of_tokens(num_tokens, end);
                     KINDEX_PLAIN_LOOP
                     for (int row = 0; row < args_.next_n; row += plan_.rows_at_once) {
                       const int rest = args_.next_n - row;
                       if constexpr (LoadsQuery) {
                         load_query({seq, first * unit_tokens, end_token, row,
                                     rest < plan_.rows_at_once ? rest : plan_.rows_at_once});
                       }
                       if constexpr (LoadsK)
                         load_pairs(stream, seq, first * unit_tokens, end_token);
                     }
                   });
    if constexpr (LoadsQuery) load_query({-1, 0, 0, 0, 0});
  }

  /// Asks for q before anything is known: where many blocks share a sequence, they all want the
  /// same lines, which takes longest of all.
  KINDEX_DEVICE void load_probable_query() {
    probable_seq_ = static_cast<int>(guess_start(args_).seq);
    copy_query({probable_seq_, 0, 0, 0, plan_.rows_at_once});
  }

  /// q, the weights, what the rows see. Nothing is waited for but a free slot.
  KINDEX_DEVICE void load_query(const query_piece& piece) {
    const int slot = query_position_.stage;
    barrier* const full = &ring_.query_full[slot];
    wait(&ring_.query_empty[slot], query_position_.parity ^ 1);
    const int thread = query_thread();
    const int visible =
        thread < piece.num_rows ? visible_tokens(args_, piece.seq, piece.first_row + thread) : 0;
    if (piece.seq != probable_seq_) {
      if (probable_seq_ >= 0) wait_for_copies();  // to the same place
      copy_query(piece);
    }
    probable_seq_ = -1;
    arrive_when_copied(full);
    if (thread < piece.num_rows) {
      memory_.visible_of(slot, piece.num_rows)[thread] = visible;
    }
    if (thread == 0) ring_.pieces[slot] = piece;
    arrive(full);
    query_position_.advance(plan_.num_query_slots);
  }

  static KINDEX_DEVICE int query_thread() {
    return static_cast<int>(threadIdx.x) - first_query_warp * wave_size;
  }

  /// q as [D/16][rows * heads][16 bytes] and the weights in their order, to the next slot.
  KINDEX_DEVICE void copy_query(const query_piece& piece) {
    constexpr int units = head_dim / unit_bytes;
    const int slot = query_position_.stage;
    const int thread = query_thread();
    const int num_columns = piece.num_rows * args_.num_heads;
    // This is on the way to the first logit, and every instruction of it is executed cold: threads
    // walk down the heads, each with one place of 16 dims, instead of dividing.
    constexpr int heads_at_once = num_query_threads / units;
    const std::int64_t seq = piece.seq;
    // Blocks that share a sequence begin with other heads, not all at the same addresses.
    const int rotation = static_cast<int>(blockIdx.x % 8) * (args_.num_heads / 8);
    const int unit = static_cast<int>(static_cast<unsigned>(thread) % units);
    const int first_head = static_cast<int>(static_cast<unsigned>(thread) / units);
    const char* q = args_.q + seq * args_.q_batch_stride + piece.first_row * args_.q_next_n_stride +
                    unit * unit_bytes;
    char* query = memory_.query_of(slot) + unit * num_columns * unit_bytes;
    const float* w =
        args_.weights + (seq * args_.next_n + piece.first_row) * args_.weights_row_stride;
    float* weights = memory_.weights_of(slot);
    KINDEX_PLAIN_LOOP
    for (int row = 0; row < piece.num_rows; ++row) {
#pragma unroll 2
      for (int i = first_head; i < args_.num_heads; i += heads_at_once) {
        const int rotated = i + rotation;
        const int head = rotated < args_.num_heads ? rotated : rotated - args_.num_heads;
        copy_async<16>(query + head * unit_bytes, q + head * args_.q_head_stride);
      }
      KINDEX_PLAIN_LOOP
      for (int head = thread; head < args_.num_heads; head += num_query_threads) {
        copy_async<4>(weights + memory_type::place_of_weight(head), w + head);
      }
      q += args_.q_next_n_stride;
      query += args_.num_heads * unit_bytes;
      w += args_.weights_row_stride;
      weights += args_.num_heads;
    }
  }

  KINDEX_DEVICE void load_pairs(stream_type& stream, std::int64_t seq, int first_token,
                                int end_token) {
    stream.start(seq, first_token, end_token);
    // Bulk copies are few; of the others' addresses the compiler makes more at once.
#pragma unroll(stream_type::bulk ? 1 : 4)
    for (int token = first_token; token < end_token; token += pair_tokens) {
      stream.prepare(token);
      if (stream_type::bulk && !started_ && token == first_token + initial_pairs * pair_tokens) {
        wait(&ring_.query_full[0], 0);
      }
      const int stage = position_.stage;
      wait(&ring_.empty[stage], position_.parity ^ 1);
      stream.load(token, {memory_.stage(stage), ring_.valid[stage], &ring_.full[stage]});
      position_.advance(plan_.num_stages);
    }
    started_ = true;
  }

  const args_type& args_;
  const memory_type& memory_;
  typename memory_type::ring_state& ring_;
  const shared_plan& plan_;
  const int warp_;
  int probable_seq_ = -1;  // whose q was asked for, and may be the wrong one
  bool started_ = false;   // the first piece's K is on its way
  ring_position position_;
  ring_position query_position_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
