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
#include "query_layout_sm90.hpp"
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
  /// K that the matrix unit does not read by itself stays in registers while heads pass by, and its
  /// stage is free at once; or, of 256 dims, which take too many, is loaded for every block of
  /// heads and leaves no registers for the products of two.
  static constexpr bool resident_k = !layout::even_tiles && head_dim <= 128;
  static constexpr bool reloaded_k = !layout::even_tiles && !resident_k;
  /// K of a pair as the matrix unit takes it: where it lies, or by halves in registers.
  struct pair_k {
    const char* stage;
    token_fragment half[resident_k ? 2 : 1][steps];
  };
  /// Results of one half of the tokens times so many blocks of heads, per scale group.
  template <int Blocks>
  using products = float[num_scales][Blocks * heads / 2];

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
      if (piece.last) return;
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
    operand q;             // the slot
    const float* weights;  // of this lane's first columns
    const int* visible;    // of each row

    KINDEX_DEVICE query_view(const memory_type& memory, int num_heads, int slot, int num_rows)
        : num_columns(num_rows * num_heads),
          q(operand_at(memory.query_of(slot))),
          weights(memory.weights_of(slot) + lane_id() % 4 * memory_type::weights_at_once),
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
    const bool valid = layout::is_valid(ring_.valid[position_.stage], own);
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

    pair_k k;
    k.stage = stage;
    if constexpr (resident_k) {
      load_half(stage, 0, k.half[0]);
      load_half(stage, 1, k.half[1]);
      release_stage();
    }
    // Heads pass by in blocks, row after row.
    const auto finish_row = [&](const float(&sum)[4]) {
      const float logit = exchange_in_quad(sum) * own_scale;
      *held = valid ? logit : -__builtin_inff();
      held += held_stride;
    };
    int column = 0;
    if (!reloaded_k && args_.num_heads == heads) {
      // A row is a block: two at once, whose exchanges, which take long, overlap as well.
      for (; column + heads < query.num_columns; column += 2 * heads) {
        float sum[2][4] = {};
        add_blocks<2>(k, query, column, group_scale, sum);
        finish_row(sum[0]);
        finish_row(sum[1]);
      }
    }
    float sum[1][4] = {};
    int row_end = column + args_.num_heads;
    for (; column < query.num_columns; column += heads) {
      add_blocks<1>(k, query, column, group_scale, sum);
      if (column + heads != row_end) continue;
      finish_row(sum[0]);
#pragma unroll
      for (float& s : sum[0]) s = 0;
      row_end += args_.num_heads;
    }
  }

  /// Writes what a thread has held back: logits of its own token of every third pair.
  KINDEX_DEVICE void write_logits(const query_piece& piece, const query_view& query,
                                  int first_token, int num_pairs) const {
    const int first_own = first_token + own_token();
    const std::int64_t first_row = row_index(args_, piece.seq, piece.first_row);
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

  /// Adds blocks of heads, which one matrix instruction takes together, to their sums of this
  /// lane's four tokens. There are registers for the products of one half of the tokens with two
  /// blocks, or of both halves with one: then one half is summed up while the other is multiplied.
  template <int Blocks>
  KINDEX_DEVICE void add_blocks(pair_k& k, const query_view& query, int column,
                                const float (&group_scale)[4][num_scales],
                                float (&sum)[Blocks][4]) {
    constexpr int at_once = Blocks == 1 && num_scales == 1 ? 2 : 1;  // halves
    products<Blocks> dot[at_once];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half % at_once == 0) {
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          multiply_half<Blocks>(k, query, column, half + i, dot[i]);
        }
      }
      if (half % at_once < at_once - 1) {
        wait_multiply<1>();
      } else {
        wait_multiply<0>();
      }
      if (!resident_k && half == 1 && column + Blocks * heads >= query.num_columns) release_stage();
      add_half<Blocks>(dot[half % at_once], query.weights + column, group_scale, half, sum);
    }
  }

  /// K of one half of the warp's tokens. Plain rows begin in the same bank: each of eight is read
  /// in another order of its 16-byte units, and put in order in registers.
  KINDEX_DEVICE void load_half(const char* stage, int half, token_fragment (&tokens)[steps]) const {
    const int matrix = lane_id() / 8;
    const int row = lane_id() % 8;
    const int token = layout::token_of(warp_, matrix % 2, half, row);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int unit = (step * 2 + matrix / 2) ^ layout::unit_order(row);
      tokens[step] = load_fragment(stage + layout::k_offset(token, unit));
    }
    if constexpr (!layout::preshuffled) reorder_units(layout::unit_order(lane_id() / 4), tokens);
  }

  /// Undoes an order of units in which the bits `order` of each one's number were flipped.
  static KINDEX_DEVICE void reorder_units(int order, token_fragment (&tokens)[steps]) {
    const auto word = [&](int unit, int matrix) -> std::uint32_t& {
      return tokens[unit / 2].word[unit % 2 * 2 + matrix];
    };
#pragma unroll
    for (int bit = 1; bit < 8 && bit < 2 * steps; bit *= 2) {
      const bool swapped = (order & bit) != 0;
#pragma unroll
      for (int i = 0; i < 4 * steps; ++i) {
        const int unit = i / 2;
        if ((unit & bit) != 0) continue;
        std::uint32_t& low = word(unit, i % 2);
        std::uint32_t& high = word(unit | bit, i % 2);
        const std::uint32_t was = low;
        low = swapped ? high : was;
        high = swapped ? was : high;
      }
    }
  }

  /// Begins q . k of some blocks of columns of q with one half of the tokens.
  template <int Blocks>
  KINDEX_DEVICE void multiply_half(pair_k& k, const query_view& query, int column, int half,
                                   products<Blocks>& dot) {
    if constexpr (reloaded_k) load_half(k.stage, half, k.half[0]);
    begin_multiply();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      auto& d = dot[step / (steps / num_scales)];
      const descriptor columns = query_layout<head_dim>::columns_at(query.q, column, step);
      const int accumulate = step % (steps / num_scales) != 0;
      if constexpr (layout::even_tiles) {
        // In steps of 16 bytes: one a token, 8 a half, 16 for 16 dims.
        const auto at = static_cast<descriptor>(half * 8 + step * 2 * tile_tokens);
        const descriptor first =
            descriptor_of(operand_at(k.stage, tile_tokens * unit_bytes), layout::tile_bytes);
        multiply<Blocks * heads>(d, first + at, columns, accumulate);
      } else {
        multiply<Blocks * heads>(d, k.half[resident_k ? half : 0][step], columns, accumulate);
      }
    }
    commit_multiply();
  }

  /// Adds relu(q . k) * w of a half to each block's sums of this lane's two tokens in it: row
  /// lane/4 of both matrices.
  template <int Blocks>
  KINDEX_DEVICE void add_half(const products<Blocks>& dot, const float* weights,
                              const float (&group_scale)[4][num_scales], int half,
                              float (&sum)[Blocks][4]) {
    constexpr int weights_at_once = memory_type::weights_at_once;
    struct alignas(4 * weights_at_once) lane_weights {
      float of[weights_at_once];
    };
#pragma unroll
    for (int first = 0; first < heads; first += 4 * weights_at_once) {
#pragma unroll
      for (int block = 0; block < Blocks; ++block) {
        const auto weight = *reinterpret_cast<const lane_weights*>(weights + block * heads + first);
#pragma unroll
        for (int w = 0; w < weights_at_once; ++w) {
          const int of_columns = (block * heads + first + w / 2 * 8) / 2 + w % 2;
#pragma unroll
          for (int t = 0; t < 2; ++t) {
            const int i = 2 * half + t;
            float value = dot[0][of_columns + 2 * t];
            if constexpr (num_scales == 2) {
              value =
                  fmaf(dot[1][of_columns + 2 * t], group_scale[i][1], value * group_scale[i][0]);
            }
            sum[block][i] = fmaf(fmaxf(value, 0.0f), weight.of[w], sum[block][i]);
          }
        }
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
