// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The computers of a block on Hopper: three warpgroups take the stages of the ring in turn,
// multiply them with q in shared memory, and keep relu, weights and the sum over heads in
// registers.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "block_memory_sm90.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_sm90.hpp"
#include "plan_sm90.hpp"
#include "stage_sm90.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

/// One warp of them.
template <class Config>
class computer {
  using geometry = typename Config::geometry;
  using memory_type = block_memory<Config>;
  using args_type = typename memory_type::args_type;
  using layout = stage_layout<geometry>;
  static constexpr int head_dim = geometry::head_dim;
  static constexpr int num_scales = geometry::num_scales;
  static constexpr int heads = Config::heads;  // of one matrix instruction
  static constexpr int steps = head_dim / 32;  // of the matrix instruction
  static constexpr int tokens_between_turns = num_computers * pair_tokens;
  static_assert(tokens_between_turns <= 512, "kindex: max_logits_width leaves no room for a step");
  /// K of a pair stays in registers while heads pass by, and its stage is free at once; 256 dims
  /// take too many.
  static constexpr bool resident_k = head_dim <= 128;
  /// Results of one half of the tokens times `heads` heads, per scale group.
  using products = float[num_scales][heads / 2];
  struct pair_fragments {
    mutable token_fragment half[resident_k ? 2 : 1][steps];
    const char* stage;
  };

 public:
  KINDEX_DEVICE computer(const args_type& args, const memory_type& memory, int warpgroup, int warp)
      : args_(args),
        memory_(memory),
        ring_(memory.ring),
        plan_(args.shared),
        held_(memory.held() + static_cast<int>(threadIdx.x) - warpgroup_size),
        warp_(warp),
        turn_((warpgroup - 1) * pair_tokens),
        position_{warpgroup - 1, 0} {}

  KINDEX_DEVICE void run() {
    for (;;) {
      const int slot = query_position_.stage;
      wait(&ring_.query_full[slot], query_position_.parity);
      const query_piece piece = ring_.pieces[slot];
      if (piece.seq < 0) return;
      fence_async_proxy();  // q was written by ordinary copies
      const query_view query(memory_, args_.num_heads, slot, piece.num_rows);
      int token = piece.first_token + turn_;
      int first_held = token;
      int num_held = 0;  // pairs
      for (; token < piece.end_token; token += tokens_between_turns) {
        compute_pair(query, held_ + num_held * piece.num_rows * held_stride);
        position_.advance(plan_.num_stages, num_computers);
        if (++num_held == plan_.num_held_pairs) {
          write_logits(piece, query, first_held, num_held);
          first_held = token + tokens_between_turns;
          num_held = 0;
        }
      }
      write_logits(piece, query, first_held, num_held);
      const int num_pairs = (piece.end_token - piece.first_token + pair_tokens - 1) / pair_tokens;
      turn_ = token - piece.first_token - num_pairs * pair_tokens;
      arrive(&ring_.query_empty[slot]);
      query_position_.advance(plan_.num_query_slots);
    }
  }

 private:
  /// Where q of a piece is.
  struct query_view {
    int num_columns;
    operand q;             // of the first columns and dims
    const float* weights;  // of this lane's first columns
    const int* visible;    // of each row

    KINDEX_DEVICE query_view(const memory_type& memory, int num_heads, int slot, int num_rows)
        : num_columns(num_rows * num_heads),
          q(operand_at(memory.query_of(slot),
                       static_cast<std::uint32_t>(num_columns) * unit_bytes)),
          weights(memory.weights_of(slot) + lane_id() % 4 * 2),
          visible(memory.visible_of(slot, num_rows)) {}
  };

  /// After the quad's exchange, each lane finishes one token of a pair.
  KINDEX_DEVICE int own_token() const {
    const int lane = lane_id();
    return layout::token_of(warp_, lane % 2, lane / 2 % 2, lane / 4);
  }

  /// Logits of this lane's own token of a pair in all rows, to held[row * held_stride].
  KINDEX_DEVICE void compute_pair(const query_view& query, float* held) {
    const int own = own_token();

    wait(&ring_.full[position_.stage], position_.parity);
    const char* const stage = memory_.stage(position_.stage);
    const auto scales_of = [&](int token) {
      return reinterpret_cast<const float*>(stage + layout::scale_offset(token));
    };
    const bool valid =
        (ring_.valid[position_.stage][own / warp_tokens] >> own % warp_tokens & 1) != 0;
    float own_scale = 1.0f;
    float group_scale[4][num_scales] = {};  // of the four tokens that this lane multiplies
    if constexpr (num_scales == 1) {
      own_scale = *scales_of(own);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = layout::token_of(warp_, i % 2, i / 2, lane_id() / 4);
#pragma unroll
        for (int g = 0; g < num_scales; ++g) group_scale[i][g] = scales_of(t)[g];
      }
    }

    pair_fragments tokens;
    if constexpr (resident_k) {
      load_half(stage, 0, tokens.half[0]);
      load_half(stage, 1, tokens.half[1]);
      release_stage();
    } else {
      tokens.stage = stage;
    }
    // Heads pass by in blocks of one matrix instruction, row after row.
    float sum[4] = {};
    int row_end = args_.num_heads;
    const auto finish_block = [&](int column) {
      if (column + heads != row_end) return;
      const float logit = exchange_in_quad(sum) * own_scale;
      *held = valid ? logit : -__builtin_inff();
      held += held_stride;
#pragma unroll
      for (float& s : sum) s = 0;
      row_end += args_.num_heads;
    };
    int column = 0;
    for (; column + heads < query.num_columns; column += 2 * heads) {
      add_blocks<2>(tokens, query, column, group_scale, sum, finish_block);
    }
    if (column < query.num_columns) {
      add_blocks<1>(tokens, query, column, group_scale, sum, finish_block);
    }
    if constexpr (!resident_k) release_stage();
  }

  /// Writes what a thread has held back: logits of its own token of every third pair.
  KINDEX_DEVICE void write_logits(const query_piece& piece, const query_view& query,
                                  int first_token, int num_pairs) const {
    const int first_own = first_token + own_token();
    const std::int64_t first_row = std::int64_t{piece.seq} * args_.next_n + piece.first_row;
    KINDEX_PLAIN_LOOP
    for (int row = 0; row < piece.num_rows; ++row) {
      const int visible = query.visible[row];
      const int end = visible < piece.end_token ? visible : piece.end_token;
      float* const logits = args_.logits + (first_row + row) * args_.logits_row_stride;
      const float* value = held_ + row * held_stride;
#pragma unroll 4
      for (int i = 0; i < num_pairs; ++i) {
        const int token = first_own + i * tokens_between_turns;
        if (token < end) logits[token] = *value;
        value += piece.num_rows * held_stride;
      }
    }
  }

  /// Adds Blocks blocks of heads to the sums of this lane's four tokens. While one half of the
  /// tokens is summed up, the matrix unit is at the next; two scales a token take twice the
  /// registers, and have none left for that.
  template <int Blocks, class FinishBlock>
  KINDEX_DEVICE void add_blocks(const pair_fragments& tokens, const query_view& query, int column,
                                const float (&group_scale)[4][num_scales], float (&sum)[4],
                                const FinishBlock& finish_block) {
    constexpr int ahead = num_scales == 1 ? 1 : 0;
    constexpr int num_halves = 2 * Blocks;
    products dot[1 + ahead];
    float2 weight[heads / 8];
    if constexpr (ahead != 0) multiply_half(tokens, query, column, 0, dot[0]);
#pragma unroll
    for (int i = 0; i < num_halves; ++i) {
      const int next = i + ahead;
      if (next < num_halves) {
        multiply_half(tokens, query, column + next / 2 * heads, next % 2, dot[next % (1 + ahead)]);
      }
      if (i % 2 == 0) {
#pragma unroll
        for (int j = 0; j < heads / 8; ++j) {
          weight[j] =
              *reinterpret_cast<const float2*>(query.weights + column + i / 2 * heads + 8 * j);
        }
      }
      if (next < num_halves) {
        wait_multiply<ahead>();
      } else {
        wait_multiply<0>();
      }
      add_half(dot[i % (1 + ahead)], weight, group_scale, i % 2, sum);
      if (i % 2 == 1) finish_block(column + i / 2 * heads);
    }
  }

  /// K of one half of the warp's tokens.
  KINDEX_DEVICE void load_half(const char* stage, int half, token_fragment (&tokens)[steps]) const {
    const int matrix = lane_id() / 8;
    const int token = layout::token_of(warp_, matrix % 2, half, lane_id() % 8);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      tokens[step] = load_fragment(stage + layout::k_offset(token, step * 2 + matrix / 2));
    }
  }

  /// Begins q . k of `heads` columns of q with one half of the tokens.
  KINDEX_DEVICE void multiply_half(const pair_fragments& tokens, const query_view& query,
                                   int column, int half, products& dot) {
    // In steps of 16 bytes: one a column, all columns for 16 dims.
    const operand q = query.q + static_cast<operand>(column);
    const auto q_step = static_cast<operand>(2 * query.num_columns);
    if constexpr (!resident_k) load_half(tokens.stage, half, tokens.half[0]);
    begin_multiply();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      multiply<heads>(dot[step / (steps / num_scales)], tokens.half[resident_k ? half : 0][step],
                      q + static_cast<operand>(step) * q_step, step % (steps / num_scales) != 0);
    }
    commit_multiply();
  }

  /// Adds relu(q . k) * w of a half to the sums of this lane's two tokens in it: row lane/4 of both
  /// matrices.
  KINDEX_DEVICE void add_half(const products& dot, const float2 (&weight)[heads / 8],
                              const float (&group_scale)[4][num_scales], int half,
                              float (&sum)[4]) {
#pragma unroll
    for (int j = 0; j < heads / 8; ++j) {
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        const int i = 2 * half + t;
        float value0 = dot[0][4 * j + 2 * t];
        float value1 = dot[0][4 * j + 2 * t + 1];
        if constexpr (num_scales == 2) {
          const float s0 = group_scale[i][0], s1 = group_scale[i][1];
          value0 = fmaf(dot[1][4 * j + 2 * t], s1, value0 * s0);
          value1 = fmaf(dot[1][4 * j + 2 * t + 1], s1, value1 * s0);
        }
        sum[i] = fmaf(fmaxf(value0, 0.0f), weight[j].x, sum[i]);
        sum[i] = fmaf(fmaxf(value1, 0.0f), weight[j].y, sum[i]);
      }
    }
  }

  /// The quad's sums of this lane's own token (own_token says which): two tokens', then one's.
  static KINDEX_DEVICE float exchange_in_quad(const float (&sum)[4]) {
    const bool odd = lane_id() % 2 != 0;
    const bool upper = lane_id() / 2 % 2 != 0;
    const float low = (odd ? sum[1] : sum[0]) + shuffle_xor(odd ? sum[0] : sum[1], 1);
    const float high = (odd ? sum[3] : sum[2]) + shuffle_xor(odd ? sum[2] : sum[3], 1);
    return (upper ? high : low) + shuffle_xor(upper ? low : high, 2);
  }

  /// This thread has read what it needs of the stage.
  KINDEX_DEVICE void release_stage() { arrive(&ring_.empty[position_.stage]); }

  const args_type& args_;
  const memory_type& memory_;
  typename memory_type::ring_state& ring_;
  const shared_plan& plan_;
  float* const held_;  // of this thread: logits that wait, held_stride from one to the next
  const int warp_;     // of its warpgroup
  int turn_;           // the next pair of this warpgroup is so many tokens away
  ring_position position_;
  ring_position query_position_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
