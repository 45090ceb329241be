// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The inner loop of the logits on Hopper. One block fills a multiprocessor: a warpgroup of loaders
// keeps a ring of K and scales in shared memory full, 128 tokens ("a pair" of units) a stage; three
// warpgroups of computers take the stages in turn, multiply them with q in shared memory, and keep
// relu, weights and the sum over heads in registers. The ring carries on across sequences: q of the
// next one is fetched while the last is computed. Only the loaders know how the work is divided;
// what a computer needs to know lies beside q.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_sm90.hpp"
#include "page_stream_sm90.hpp"
#include "plan_sm90.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

/// Place in a ring: stage, and parity of the barrier phase that belongs to it.
struct ring_position {
  int stage = 0;
  std::uint32_t parity = 0;

  KINDEX_DEVICE void advance(int num_stages) {
    if (++stage == num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// What computers do with one filling of a slot for q: rows of one sequence, tokens of it.
struct query_piece {
  int seq;  // negative: there is no more work
  int first_token;
  int end_token;
  int first_row;
  int num_rows;
};

template <class Config>
class unit_engine {
  using geometry = typename Config::geometry;
  using args_type = logits_args<geometry::page_size>;
  using stream_type = page_stream<geometry>;
  static constexpr int head_dim = geometry::head_dim;
  static constexpr int num_scales = geometry::num_scales;
  static constexpr int heads = Config::heads;  // of one matrix instruction
  static constexpr int steps = head_dim / 32;  // of the matrix instruction
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
  /// Loaders of q: those that do not load K, or all.
  static constexpr int first_query_warp = stream_type::num_warps % warps_per_group;
  static constexpr int num_query_threads = warpgroup_size - first_query_warp * wave_size;

  struct shared_state {
    barrier full[max_stages];
    barrier empty[max_stages];
    barrier query_full[max_query_slots];
    barrier query_empty[max_query_slots];
    query_piece pieces[max_query_slots];
    /// One bit for each token of a stage, a word for each warp: its page is one.
    std::uint32_t valid[max_stages][warps_per_group];
  };

  /// All threads of the block take part.
  KINDEX_DEVICE unit_engine(const args_type& args, char* storage, shared_state& ring)
      : args_(args), ring_(ring), shared_(args.shared) {
    query_ = storage;
    weights_ = storage + shared_.num_query_slots * shared_.query_bytes;
    stages_ = weights_ + shared_.num_query_slots * shared_.weight_bytes;
    held_ = reinterpret_cast<float*>(stages_ + shared_.num_stages * stage_bytes<head_dim>) +
            static_cast<int>(threadIdx.x) - warpgroup_size;
    // The compiler must see that a warp does not diverge around the matrix instructions.
    warpgroup_ = shuffle(static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    warp_ = static_cast<int>(threadIdx.x) % warpgroup_size / wave_size;
  }

  /// All of a block's work, by all of its threads.
  KINDEX_DEVICE void run() {
    if (warpgroup_ > 0) {
      if (threadIdx.x >= block_size - wave_size) init_barriers();
      wait_for_barriers();
      set_max_registers<computer_registers, true>();
      compute_pieces();
      return;
    }
    set_max_registers<loader_registers, false>();
    // A launch begins with cold instruction caches: a warp that loads K, and nothing else, executes
    // no instruction that only others need, and waits for none of them.
    if (stream_type::bulk && warp_ < first_query_warp) {
      const block_work work = divide_work(args_, sequence_start_cost);
      sync_threads<k_loader, 2 * wave_size>();
      load_pieces<true, false>(work);
    } else {
      load_probable_query();
      const block_work work = divide_work(args_, sequence_start_cost);
      wait_for_barriers();
      load_pieces<!stream_type::bulk, true>(work);
    }
  }

 private:
  /// Loaders and computers wait at two places in the code, which __syncthreads does not allow.
  static constexpr int everyone = 1;
  /// A warp that only loads K, and the one that makes the barriers.
  static constexpr int k_loader = 2;

  /// By one warp of computers.
  KINDEX_DEVICE void init_barriers() {
    if (lane_id() == 0) {
#pragma unroll
      for (int i = 0; i < max_stages; ++i) {
        init_barrier(&ring_.full[i], stream_type::num_arrivals);
        init_barrier(&ring_.empty[i], warpgroup_size);
      }
#pragma unroll
      for (int i = 0; i < max_query_slots; ++i) {
        // Of each loader: its copies, and what it wrote itself.
        init_barrier(&ring_.query_full[i], 2 * num_query_threads);
        init_barrier(&ring_.query_empty[i], num_computers * warpgroup_size);
      }
      publish_barriers();
    }
    __syncwarp();
    if constexpr (stream_type::bulk) announce<k_loader, 2 * wave_size>();
  }

  static KINDEX_DEVICE void wait_for_barriers() {
    sync_threads<everyone, stream_type::bulk ? block_size - wave_size : block_size>();
  }

  // Loaders ---------------------------------------------------------------------------------------

  /// What a warp loads of a block's work.
  template <bool LoadsK, bool LoadsQuery>
  KINDEX_DEVICE void load_pieces(const block_work& work) {
    stream_type stream(args_, warp_);
    for_each_piece(
        args_, work, sequence_start_cost, [&](int seq, int num_tokens, int first, int end) {
          const std::int64_t end_unit_token = std::int64_t{end} * unit_tokens;
          const int end_token =
              num_tokens < end_unit_token ? num_tokens : static_cast<int>(end_unit_token);
          KINDEX_PLAIN_LOOP
          for (int row = 0; row < args_.next_n; row += shared_.rows_at_once) {
            const int rest = args_.next_n - row;
            if constexpr (LoadsQuery) {
              load_query({seq, first * unit_tokens, end_token, row,
                          rest < shared_.rows_at_once ? rest : shared_.rows_at_once});
            }
            if constexpr (LoadsK) load_pairs(stream, seq, first * unit_tokens, end_token);
          }
        });
    if constexpr (LoadsQuery) load_query({-1, 0, 0, 0, 0});
  }

  /// Asks for q of the sequence that the block would begin with if all were equally long, before
  /// anything is known: where many blocks share a sequence, they all want the same lines, which
  /// takes longest of all.
  KINDEX_DEVICE void load_probable_query() {
    // A product that wraps makes a bad guess, but never a sequence that is not there.
    probable_seq_ = static_cast<int>(
        args_.num_blocks.divide(static_cast<std::uint32_t>(args_.num_seqs) * blockIdx.x));
    copy_query({probable_seq_, 0, 0, 0, shared_.rows_at_once});
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
      visible_of(slot, piece.num_rows * args_.num_heads)[thread] = visible;
    }
    if (thread == 0) ring_.pieces[slot] = piece;
    arrive(full);
    query_position_.advance(shared_.num_query_slots);
  }

  static KINDEX_DEVICE int query_thread() {
    return static_cast<int>(threadIdx.x) - first_query_warp * wave_size;
  }

  /// q as [D/16][rows * heads][16 bytes], the weights as they are, to the next slot.
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
    const int unit = thread % units;
    const char* q = args_.q + seq * args_.q_batch_stride + piece.first_row * args_.q_next_n_stride +
                    unit * unit_bytes;
    char* query = query_ + slot * shared_.query_bytes + unit * num_columns * unit_bytes;
    const float* w =
        args_.weights + (seq * args_.next_n + piece.first_row) * args_.weights_row_stride;
    float* weights = weights_of(slot);
    KINDEX_PLAIN_LOOP
    for (int row = 0; row < piece.num_rows; ++row) {
#pragma unroll 2
      for (int i = thread / units; i < args_.num_heads; i += heads_at_once) {
        const int rotated = i + rotation;
        const int head = rotated < args_.num_heads ? rotated : rotated - args_.num_heads;
        copy_async<16>(query + head * unit_bytes, q + head * args_.q_head_stride);
      }
      KINDEX_PLAIN_LOOP
      for (int head = thread; head < args_.num_heads; head += num_query_threads) {
        copy_async<4>(weights + head, w + head);
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
      stream.load(
          token, {stages_ + stage * stage_bytes<head_dim>, ring_.valid[stage], &ring_.full[stage]});
      position_.advance(shared_.num_stages);
    }
    started_ = true;
  }

  // Computers -------------------------------------------------------------------------------------

  KINDEX_DEVICE void compute_pieces() {
    for (;;) {
      const int slot = query_position_.stage;
      wait(&ring_.query_full[slot], query_position_.parity);
      const query_piece piece = ring_.pieces[slot];
      if (piece.seq < 0) return;
      fence_async_proxy();  // q was written by ordinary copies
      const query_view query(*this, slot, piece.num_rows);
      int first_held = 0;  // token
      int num_held = 0;    // pairs
      for (int token = piece.first_token; token < piece.end_token; token += pair_tokens) {
        if (turn_ == warpgroup_ - 1) {
          if (num_held == 0) first_held = token;
          compute_pair(query, held_ + num_held * piece.num_rows * held_stride);
          if (++num_held == shared_.num_held_pairs) {
            write_logits(piece, query, first_held, num_held);
            num_held = 0;
          }
        }
        turn_ = turn_ + 1 == num_computers ? 0 : turn_ + 1;
        position_.advance(shared_.num_stages);
      }
      write_logits(piece, query, first_held, num_held);
      arrive(&ring_.query_empty[slot]);
      query_position_.advance(shared_.num_query_slots);
    }
  }

  /// Where q of a piece is.
  struct query_view {
    const char* q;
    const float* weights;
    int num_columns;
    const int* visible;        // of each row
    std::uint32_t step_bytes;  // from 16 dims to the next

    KINDEX_DEVICE query_view(const unit_engine& engine, int slot, int num_rows)
        : q(engine.query_ + slot * engine.shared_.query_bytes),
          weights(engine.weights_of(slot)),
          num_columns(num_rows * engine.args_.num_heads),
          visible(engine.visible_of(slot, num_columns)),
          step_bytes(static_cast<std::uint32_t>(num_columns) * unit_bytes) {}
  };

  /// After the quad's exchange, lane l finishes one token of the warp's 32: of tile 2*warp + (l &
  /// 1), number 8 * (l>>1 & 1) + l/4.
  static KINDEX_DEVICE int own_token_of_warp() {
    const int lane = lane_id();
    return lane % 2 * tile_tokens + lane / 2 % 2 * 8 + lane / 4;
  }

  /// Logits of this lane's own token of a pair in all rows, to held[row * held_stride].
  KINDEX_DEVICE void compute_pair(const query_view& query, float* held) {
    const int lane = lane_id();
    const int own_of_warp = own_token_of_warp();
    const int own = warp_ * warp_tokens + own_of_warp;

    wait(&ring_.full[position_.stage], position_.parity);
    const char* const stage = stages_ + position_.stage * stage_bytes<head_dim>;
    const auto scales_of = [&](int token) {
      return reinterpret_cast<const float*>(stage + stream_type::scale_offset_in_stage(token));
    };
    const bool valid = (ring_.valid[position_.stage][warp_] >> own_of_warp & 1) != 0;
    float own_scale = 1.0f;
    float group_scale[4][num_scales] = {};  // of the four tokens that this lane multiplies
    if constexpr (num_scales == 1) {
      own_scale = *scales_of(own);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = warp_ * warp_tokens + i % 2 * tile_tokens + i / 2 * 8 + lane / 4;
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

  /// Writes what a thread has held back: logits of its own token of every third pair. A warp's are
  /// 128 bytes in a row.
  KINDEX_DEVICE void write_logits(const query_piece& piece, const query_view& query,
                                  int first_token, int num_pairs) const {
    const int own_token = first_token + warp_ * warp_tokens + own_token_of_warp();
    const std::int64_t first_row = std::int64_t{piece.seq} * args_.next_n + piece.first_row;
    KINDEX_PLAIN_LOOP
    for (int row = 0; row < piece.num_rows; ++row) {
      const int visible = query.visible[row];
      const int end = visible < piece.end_token ? visible : piece.end_token;
      float* const logits = args_.logits + (first_row + row) * args_.logits_row_stride;
      const float* value = held_ + row * held_stride;
#pragma unroll 4
      for (int i = 0; i < num_pairs; ++i) {
        const int token = own_token + i * num_computers * pair_tokens;
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
          weight[j] = *reinterpret_cast<const float2*>(query.weights + column + i / 2 * heads +
                                                       8 * j + lane_id() % 4 * 2);
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

  /// K of the warp's tokens: the first (second) eight of tiles 2*warp and 2*warp + 1.
  KINDEX_DEVICE void load_half(const char* stage, int half, token_fragment (&tokens)[steps]) const {
    const int matrix = lane_id() / 8;
    const int tile = warp_ * 2 + matrix % 2;
    const int row = half * 8 + lane_id() % 8;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      tokens[step] =
          load_fragment(stage + stream_type::k_offset_in_stage(tile, row, step * 2 + matrix / 2));
    }
  }

  /// Begins q . k of `heads` columns of q with one half of the tokens.
  KINDEX_DEVICE void multiply_half(const pair_fragments& tokens, const query_view& query,
                                   int column, int half, products& dot) {
    const std::uint64_t q =
        operand(query.q + column * unit_bytes, query.step_bytes, 8 * unit_bytes);
    const std::uint64_t q_step = 2 * query.step_bytes >> 4;
    if constexpr (!resident_k) load_half(tokens.stage, half, tokens.half[0]);
    begin_multiply();
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      multiply<heads>(dot[step / (steps / num_scales)], tokens.half[resident_k ? half : 0][step],
                      q + step * q_step, step % (steps / num_scales) != 0);
    }
    commit_multiply();
  }

  /// Adds relu(q . k) * w of a half to the sums of this lane's two tokens in it: token lane/4 of
  /// the half, in tiles 2*warp and 2*warp + 1.
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

  /// The quad's sums of this lane's own token (compute_pair says which): two tokens', then one's.
  static KINDEX_DEVICE float exchange_in_quad(const float (&sum)[4]) {
    const bool odd = lane_id() % 2 != 0;
    const bool upper = lane_id() / 2 % 2 != 0;
    const float low = (odd ? sum[1] : sum[0]) + shuffle_xor(odd ? sum[0] : sum[1], 1);
    const float high = (odd ? sum[3] : sum[2]) + shuffle_xor(odd ? sum[2] : sum[3], 1);
    return (upper ? high : low) + shuffle_xor(upper ? low : high, 2);
  }

  /// This thread has read what it needs of the stage.
  KINDEX_DEVICE void release_stage() { arrive(&ring_.empty[position_.stage]); }

  // ------------------------------------------------------------------------------------------------

  KINDEX_DEVICE float* weights_of(int slot) const {
    return reinterpret_cast<float*>(weights_ + slot * shared_.weight_bytes);
  }
  /// Lengths of a slot's rows, behind their weights.
  KINDEX_DEVICE int* visible_of(int slot, int num_columns) const {
    return reinterpret_cast<int*>(weights_of(slot) + num_columns);
  }

  const args_type& args_;
  shared_state& ring_;
  const shared_plan& shared_;
  char* query_;
  char* weights_;
  char* stages_;
  float* held_;  // of this thread, a computer: logits that wait, held_stride from one to the next
  int warpgroup_;
  int warp_;  // of its warpgroup
  int turn_ = 0;
  int probable_seq_ = -1;  // whose q was asked for, and may be the wrong one
  bool started_ = false;   // the first piece's K is on its way
  ring_position position_;
  ring_position query_position_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
