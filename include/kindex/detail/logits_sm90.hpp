// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The inner loop of the logits on Hopper. One block fills a multiprocessor: a warpgroup of loaders
// keeps a ring of K and scales in shared memory full, 128 tokens ("a pair" of units) a stage; three
// warpgroups of computers take the stages in turn, multiply them with q in shared memory, and keep
// relu, weights and the sum over heads in registers. The ring carries on across sequences.
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
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

inline constexpr int warpgroup_size = 128;
inline constexpr int num_computers = 3;  // warpgroups
inline constexpr int block_size = (1 + num_computers) * warpgroup_size;
inline constexpr int pair_tokens = 2 * unit_tokens;
inline constexpr int pair_tiles = pair_tokens / tile_tokens;
/// Tokens of a pair that one warp loads, or finishes.
inline constexpr int warp_tokens = pair_tokens / 4;

/// Shared memory of a multiprocessor less what the compiler and the work division take.
inline constexpr int max_dynamic_shared_bytes = 224 * 1024;
inline constexpr int max_query_bytes = 96 * 1024;
/// Enough in flight to hide the memory's latency; more would let some multiprocessors take
/// bandwidth from others, and the slowest decides. A multiple of num_computers: a stage always
/// serves the same warpgroup, which therefore never waits for a phase before the last one has
/// ended.
inline constexpr int max_stages = 6;

/// Registers of a thread by role; together those of the multiprocessor.
inline constexpr int loader_registers = 56;
inline constexpr int computer_registers = 152;

/// What lies in dynamic shared memory: q and weights of as many rows as fit, then the ring.
template <int HeadDim>
struct shared_layout {
  static constexpr int stage_k_bytes = pair_tokens * HeadDim;
  static constexpr int stage_scale_bytes = pair_tokens * 4 * scales_per_token(HeadDim);

  int rows_at_once;  // of the N rows of a sequence
  int query_bytes;   // a multiple of 128
  int weight_bytes;  // the rows' lengths follow the weights
  int num_stages;

  KINDEX_HOST_DEVICE constexpr shared_layout(int next_n, int num_heads)
      : rows_at_once(0), query_bytes(0), weight_bytes(0), num_stages(0) {
    const int row_bytes = num_heads * (HeadDim + 4);
    rows_at_once = next_n * row_bytes <= max_query_bytes ? next_n : max_query_bytes / row_bytes;
    query_bytes = rows_at_once * num_heads * HeadDim;
    weight_bytes = (rows_at_once * (num_heads + 1) * 4 + 127) / 128 * 128;
    num_stages = (max_dynamic_shared_bytes - query_bytes - weight_bytes) /
                 (stage_k_bytes + stage_scale_bytes);
    num_stages = num_stages < max_stages ? num_stages / num_computers * num_computers : max_stages;
  }

  KINDEX_HOST_DEVICE constexpr int total_bytes() const {
    return query_bytes + weight_bytes + num_stages * (stage_k_bytes + stage_scale_bytes);
  }
};

/// Dynamic shared memory of a launch.
template <class Config>
constexpr unsigned dynamic_shared_bytes(std::int64_t next_n, std::int64_t num_heads) {
  return static_cast<unsigned>(shared_layout<Config::geometry::head_dim>(
                                   static_cast<int>(next_n), static_cast<int>(num_heads))
                                   .total_bytes());
}

/// What beginning a sequence costs a block, in units.
inline constexpr int sequence_start_cost = 3;

/// Units that a block computes at once.
inline constexpr int units_per_step = 2;

inline constexpr int blocks_per_compute_unit = 1;

/// Calls `use` with the configuration for a number of heads: the largest matrix instruction that
/// divides it.
template <class Geometry, class Use>
hipError_t with_logits_config(std::int64_t, std::int64_t num_heads, Use use) {
  // 256 dims take twice the registers: half the heads at once.
  if constexpr (Geometry::head_dim <= 128) {
    if (num_heads % 64 == 0)
      return use(paged_mqa_logits_config<Geometry, query_source::shared, 64>{});
  }
  if (num_heads % 32 == 0)
    return use(paged_mqa_logits_config<Geometry, query_source::shared, 32>{});
  if (num_heads % 16 == 0)
    return use(paged_mqa_logits_config<Geometry, query_source::shared, 16>{});
  return use(paged_mqa_logits_config<Geometry, query_source::shared, 8>{});
}

#if KINDEX_TARGET_SM90A

/// Place in the ring: stage, and parity of the barrier phase that belongs to it.
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

/// Page ids of one sequence, 32 table entries at a time, one a lane, and the next 32 on their way.
class page_ids {
 public:
  KINDEX_DEVICE void start(const std::int32_t* table_row, int num_entries, int first_entry,
                           int chunk) {
    table_row_ = table_row;
    num_entries_ = num_entries;
    first_ = first_entry;
    chunk_ = chunk;
    ids_ = load(first_);
    next_ids_ = load(first_ + chunk_);
  }

  /// Makes the entries up to last_entry available; pairs come in order.
  KINDEX_DEVICE void advance(int last_entry) {
    if (last_entry - first_ >= wave_size) {
      first_ += chunk_;
      ids_ = next_ids_;
      next_ids_ = load(first_ + chunk_);
    }
  }

  /// The id in an entry; all lanes take part. Past the last page of the sequence: -1.
  KINDEX_DEVICE std::uint32_t at(int entry) const {
    return static_cast<std::uint32_t>(shuffle(ids_, entry - first_));
  }

 private:
  KINDEX_DEVICE int load(int first) const {
    const int entry = first + lane_id();
    return entry < num_entries_ ? table_row_[entry] : -1;
  }

  const std::int32_t* table_row_;
  int num_entries_;
  int first_;
  int chunk_;
  int ids_;
  int next_ids_;
};

template <class Config>
class unit_engine {
  using geometry = typename Config::geometry;
  using args_type = logits_args<geometry::page_size>;
  static constexpr int page_size = geometry::page_size;
  static constexpr int head_dim = geometry::head_dim;
  static constexpr int num_scales = geometry::num_scales;
  static constexpr int heads = Config::heads;  // of one matrix instruction
  static constexpr bool per_token_pages = page_size == 1;
  static constexpr bool unit_in_page = page_size != 0 && page_size % unit_tokens == 0;
  static constexpr bool bulk = geometry::layout == page_layout::preshuffled;
  /// Neighbouring tokens that are sure to share a page.
  static constexpr int piece_tokens = unit_in_page ? unit_tokens : tile_tokens;
  static constexpr int steps = head_dim / 32;  // of the matrix instruction
  /// K of a pair stays in registers while heads pass by, and its stage is free at once; 256 dims
  /// take too many.
  static constexpr bool resident_k = head_dim <= 128;
  struct pair_fragments {
    mutable token_fragment half[resident_k ? 2 : 1][steps];
    const char* k;
  };
  static constexpr int stage_k_bytes = shared_layout<head_dim>::stage_k_bytes;
  static constexpr int stage_scale_bytes = shared_layout<head_dim>::stage_scale_bytes;

 public:
  struct shared_state {
    barrier full[max_stages];
    barrier empty[max_stages];
  };

  /// All threads of the block take part.
  KINDEX_DEVICE unit_engine(const args_type& args, char* storage, shared_state& ring)
      : args_(args), ring_(ring), shared_(args.next_n, args.num_heads) {
    query_ = storage;
    weights_ = reinterpret_cast<float*>(storage + shared_.query_bytes);
    stage_k_ = storage + shared_.query_bytes + shared_.weight_bytes;
    stage_scale_ = stage_k_ + shared_.num_stages * stage_k_bytes;
    // The compiler must see that a warp does not diverge around the matrix instructions.
    warpgroup_ = shuffle(static_cast<int>(threadIdx.x) / warpgroup_size, 0);
    warp_ = static_cast<int>(threadIdx.x) % warpgroup_size / wave_size;
    if (threadIdx.x == block_size - 1) {
      for (int i = 0; i < shared_.num_stages; ++i) {
        init_barrier(&ring_.full[i], bulk ? 1 : warpgroup_size);
        init_barrier(&ring_.empty[i], 4);
      }
      publish_barriers();
    }
  }

  /// All of a block's work, by all of its threads.
  KINDEX_DEVICE void run(const block_work& work) {
    __syncthreads();  // the barriers are there
    if (warpgroup_ == 0) {
      set_max_registers<loader_registers, false>();
      if (bulk && warp_ != 0) return;
      for_each_piece(args_, work, sequence_start_cost,
                     [&](int seq, int num_tokens, int first, int end) {
                       const int end_token = piece_end(num_tokens, end);
                       for (int row = 0; row < args_.next_n; row += shared_.rows_at_once) {
                         load_pairs(seq, end_token, first * unit_tokens);
                       }
                     });
    } else {
      set_max_registers<computer_registers, true>();
      for_each_piece(args_, work, sequence_start_cost,
                     [&](int seq, int num_tokens, int first, int end) {
                       const int end_token = piece_end(num_tokens, end);
                       for (int row = 0; row < args_.next_n; row += shared_.rows_at_once) {
                         const int rest = args_.next_n - row;
                         compute_pairs(seq, end_token, first * unit_tokens, row,
                                       rest < shared_.rows_at_once ? rest : shared_.rows_at_once);
                       }
                     });
    }
  }

 private:
  // Loaders ---------------------------------------------------------------------------------------

  KINDEX_DEVICE void load_pairs(std::int64_t seq, int end_token, int first_token) {
    const std::int32_t* const table_row = args_.block_table + seq * args_.block_table_stride;
    const int num_entries = entry_of(end_token - 1) + 1;
    page_ids ids;
    if constexpr (per_token_pages) {
      // A warp's own 32 tokens of every pair.
      ids.start(table_row, num_entries, first_token + warp_ * warp_tokens, pair_tokens);
    } else {
      ids.start(table_row, num_entries, entry_of(first_token), unit_in_page ? 32 : 32 - pair_tiles);
    }
    for (int token = first_token; token < end_token; token += pair_tokens) {
      if constexpr (per_token_pages) {
        ids.advance(token + (warp_ + 1) * warp_tokens - 1);
      } else {
        ids.advance(entry_of(token + pair_tokens - 1));
      }
      wait(&ring_.empty[position_.stage], position_.parity ^ 1);
      char* const k = stage_k_ + position_.stage * stage_k_bytes;
      char* const scale = stage_scale_ + position_.stage * stage_scale_bytes;
      barrier* const full = &ring_.full[position_.stage];
      if constexpr (bulk) {
        load_pair_in_bulk(ids, token, end_token, k, scale, full);
      } else if constexpr (per_token_pages) {
        load_tokens(ids, token, end_token, k, scale);
        arrive_when_copied(full);
      } else {
        load_rows(ids, token, end_token, k, scale);
        arrive_when_copied(full);
      }
      position_.advance(shared_.num_stages);
    }
  }

  /// A lane copies one piece: 64 tokens of one page, or 16.
  KINDEX_DEVICE void load_pair_in_bulk(const page_ids& ids, int token, int end_token, char* k,
                                       char* scale, barrier* full) {
    constexpr int pieces = pair_tokens / piece_tokens;
    const int piece = lane_id() % pieces;
    const int first = token + piece * piece_tokens;
    const int entry = entry_of(first);
    const std::uint32_t id = ids.at(entry);
    const bool wanted = lane_id() < pieces && first < end_token && id < args_.num_pages;
    const auto num_pieces = static_cast<std::uint32_t>(__popcll(ballot(wanted)));
    constexpr std::uint32_t k_bytes = piece_tokens * head_dim;
    constexpr std::uint32_t scale_bytes = piece_tokens * 4 * num_scales;
    if (lane_id() == 0) arrive_expecting(full, num_pieces * (k_bytes + scale_bytes));
    __syncwarp();
    if (wanted) {
      const int token_in_page = first - entry * args_.pages.page_size();
      const char* const page = page_address(id);
      copy_bulk(k + piece * k_bytes, page + token_in_page * head_dim, k_bytes, full);
      copy_bulk(scale + piece * scale_bytes, page + scale_offset(token_in_page), scale_bytes, full);
    }
  }

  /// Plain pages: a warp copies its two tiles, whole rows at once.
  KINDEX_DEVICE void load_rows(const page_ids& ids, int token, int end_token, char* k,
                               char* scale) {
    constexpr int units = head_dim / unit_bytes;
    constexpr int rows_at_once = wave_size / units;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int tile = warp_ * 2 + i;
      const int first = token + tile * tile_tokens;
      const int entry = entry_of(first);
      const std::uint32_t id = ids.at(entry);
      if (first >= end_token || id >= args_.num_pages) continue;
      const int token_in_page = first - entry * args_.pages.page_size();
      const char* const page = page_address(id);
      const int unit = lane_id() % units;
#pragma unroll
      for (int r = 0; r < tile_tokens; r += rows_at_once) {
        const int row = r + lane_id() / units;
        copy_async<16>(k + k_offset_in_stage(tile, row, unit),
                       page + (token_in_page + row) * head_dim + unit * unit_bytes);
      }
      constexpr int scale_units = tile_tokens * 4 * num_scales / unit_bytes;
      if (lane_id() < scale_units) {
        copy_async<16>(scale + tile * tile_tokens * 4 * num_scales + lane_id() * unit_bytes,
                       page + scale_offset(token_in_page) + lane_id() * unit_bytes);
      }
    }
  }

  /// Pages of one token: 4-byte copies, the only ones that their alignment allows.
  KINDEX_DEVICE void load_tokens(const page_ids& ids, int token, int end_token, char* k,
                                 char* scale) {
#pragma unroll 4
    for (int i = 0; i < warp_tokens; ++i) {
      const int t = warp_ * warp_tokens + i;
      const std::uint32_t id = ids.at(token + t);
      if (token + t >= end_token || id >= args_.num_pages) continue;
      const char* const page = page_address(id);
#pragma unroll
      for (int word = lane_id(); word < head_dim / 4; word += wave_size) {
        copy_async<4>(
            k + k_offset_in_stage(t / tile_tokens, t % tile_tokens, word / 4) + word % 4 * 4,
            page + word * 4);
      }
      if (lane_id() < num_scales) {
        copy_async<4>(scale + (t * num_scales + lane_id()) * 4, page + head_dim + lane_id() * 4);
      }
    }
  }

  // Computers -------------------------------------------------------------------------------------

  KINDEX_DEVICE void compute_pairs(std::int64_t seq, int end_token, int first_token, int first_row,
                                   int num_rows) {
    load_query(seq, first_row, num_rows);
    for (int token = first_token; token < end_token; token += pair_tokens) {
      if (turn_ == warpgroup_ - 1) compute_pair(seq, token, end_token, first_row, num_rows);
      turn_ = turn_ + 1 == num_computers ? 0 : turn_ + 1;
      position_.advance(shared_.num_stages);
    }
  }

  /// q as [D/16][rows * heads][16 bytes], the weights as they are.
  KINDEX_DEVICE void load_query(std::int64_t seq, int first_row, int num_rows) {
    constexpr int num_threads = num_computers * warpgroup_size;
    named_barrier(1, num_threads);  // nobody reads the previous ones any more
    const int thread = static_cast<int>(threadIdx.x) - warpgroup_size;
    const int num_columns = num_rows * args_.num_heads;
    // All copies are on their way before the first is waited for.
    constexpr int units = head_dim / unit_bytes;
    for (int i = thread; i < num_columns * units; i += num_threads) {
      const int column = i / units;
      const int unit = i % units;
      const int row = column / args_.num_heads;
      const int head = column - row * args_.num_heads;
      copy_async<16>(query_ + (unit * num_columns + column) * unit_bytes,
                     args_.q + seq * args_.q_batch_stride +
                         (first_row + row) * args_.q_next_n_stride + head * args_.q_head_stride +
                         unit * unit_bytes);
    }
    for (int column = thread; column < num_columns; column += num_threads) {
      const int row = column / args_.num_heads;
      copy_async<4>(weights_ + column,
                    args_.weights +
                        (seq * args_.next_n + first_row + row) * args_.weights_row_stride + column -
                        row * args_.num_heads);
    }
    if (thread < num_rows) {
      visible_of(num_rows)[thread] = visible_tokens(args_, seq, first_row + thread);
    }
    wait_copies();
    fence_async_proxy();
    named_barrier(1, num_threads);
    query_step_bytes_ = static_cast<std::uint32_t>(num_columns) * unit_bytes;
  }

  KINDEX_DEVICE void compute_pair(std::int64_t seq, int token, int end_token, int first_row,
                                  int num_rows) {
    // After the quad's exchange, lane l finishes one token of the warp's 32: of tile 2*warp + (l &
    // 1), number 8 * (l>>1 & 1) + l/4. A warp's logits are 128 bytes in a row.
    const int lane = lane_id();
    const int own = warp_ * warp_tokens + lane % 2 * tile_tokens + lane / 2 % 2 * 8 + lane / 4;
    const int own_token = token + own;
    bool valid = false;
    if (own_token < end_token) {
      const std::int32_t id =
          args_.block_table[seq * args_.block_table_stride + entry_of(own_token)];
      valid = static_cast<std::uint32_t>(id) < args_.num_pages;
    }

    wait(&ring_.full[position_.stage], position_.parity);
    const char* const k = stage_k_ + position_.stage * stage_k_bytes;
    const auto* const scale =
        reinterpret_cast<const float*>(stage_scale_ + position_.stage * stage_scale_bytes);
    float own_scale = 1.0f;
    float group_scale[4][num_scales] = {};  // of the four tokens that this lane multiplies
    if constexpr (num_scales == 1) {
      own_scale = scale[own];
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = warp_ * warp_tokens + i % 2 * tile_tokens + i / 2 * 8 + lane / 4;
#pragma unroll
        for (int g = 0; g < num_scales; ++g) group_scale[i][g] = scale[t * num_scales + g];
      }
    }

    pair_fragments tokens;
    if constexpr (resident_k) {
      load_half(k, 0, tokens.half[0]);
      load_half(k, 1, tokens.half[1]);
      release_stage();
    } else {
      tokens.k = k;
    }
    // Heads pass by in blocks of one matrix instruction, row after row.
    float sum[4] = {};
    int row = 0;
    int row_end = args_.num_heads;
    const auto finish_block = [&](int column) {
      if (column + heads != row_end) return;
      const float logit = exchange_in_quad(sum) * own_scale;
      if (own_token < end_token && own_token < visible_of(num_rows)[row]) {
        const std::int64_t r = seq * args_.next_n + first_row + row;
        args_.logits[r * args_.logits_row_stride + own_token] = valid ? logit : -__builtin_inff();
      }
#pragma unroll
      for (float& s : sum) s = 0;
      ++row;
      row_end += args_.num_heads;
    };
    const int num_columns = num_rows * args_.num_heads;
    int column = 0;
    for (; column + heads < num_columns; column += 2 * heads) {
      add_blocks<2>(tokens, column, group_scale, sum, finish_block);
    }
    if (column < num_columns) add_blocks<1>(tokens, column, group_scale, sum, finish_block);
    if constexpr (!resident_k) release_stage();
  }

  /// Adds Blocks blocks of heads to the sums of this lane's four tokens. While one half of the
  /// tokens is summed up, the matrix unit is at the next; two scales a token take twice the
  /// registers, and have none left for that.
  template <int Blocks, class FinishBlock>
  KINDEX_DEVICE void add_blocks(const pair_fragments& tokens, int column,
                                const float (&group_scale)[4][num_scales], float (&sum)[4],
                                const FinishBlock& finish_block) {
    constexpr int ahead = num_scales == 1 ? 1 : 0;
    constexpr int num_halves = 2 * Blocks;
    products dot[1 + ahead];
    if constexpr (ahead != 0) multiply_half(tokens, column, 0, dot[0]);
#pragma unroll
    for (int i = 0; i < num_halves; ++i) {
      const int next = i + ahead;
      if (next < num_halves) {
        multiply_half(tokens, column + next / 2 * heads, next % 2, dot[next % (1 + ahead)]);
      }
      float2 weight[heads / 8];
#pragma unroll
      for (int j = 0; j < heads / 8; ++j) {
        weight[j] = *reinterpret_cast<const float2*>(weights_ + column + i / 2 * heads + 8 * j +
                                                     lane_id() % 4 * 2);
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

  /// Results of one half of the tokens times `heads` heads, per scale group.
  using products = float[num_scales][heads / 2];

  /// K of the warp's tokens: the first (second) eight of tiles 2*warp and 2*warp + 1.
  KINDEX_DEVICE void load_half(const char* k, int half, token_fragment (&tokens)[steps]) const {
    const int matrix = lane_id() / 8;
    const int tile = warp_ * 2 + matrix % 2;
    const int row = half * 8 + lane_id() % 8;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      tokens[step] = load_fragment(k + k_offset_in_stage(tile, row, step * 2 + matrix / 2));
    }
  }

  /// Begins q . k of `heads` columns of q with one half of the tokens.
  KINDEX_DEVICE void multiply_half(const pair_fragments& tokens, int column, int half,
                                   products& dot) {
    const std::uint64_t q =
        operand(query_ + column * unit_bytes, query_step_bytes_, 8 * unit_bytes);
    const std::uint64_t q_step = 2 * query_step_bytes_ >> 4;
    if constexpr (!resident_k) load_half(tokens.k, half, tokens.half[0]);
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

  /// This warp has read what it needs of the stage.
  KINDEX_DEVICE void release_stage() {
    __syncwarp();
    if (lane_id() == 0) arrive(&ring_.empty[position_.stage]);
  }

  // ------------------------------------------------------------------------------------------------

  /// Where a stage keeps 16 dims of a token. Preshuffled: as in the page. Plain: rows, whose units
  /// change places so that the same unit of eight neighbouring rows lies in different banks.
  static KINDEX_DEVICE int k_offset_in_stage(int tile, int row, int unit) {
    constexpr int rows_per_line = head_dim < 128 ? 128 / head_dim : 1;  // of 32 banks
    constexpr int mask = head_dim < 128 ? head_dim / unit_bytes - 1 : 7;
    const int place = bulk ? unit * 256 + row * unit_bytes
                           : row * head_dim + (unit ^ (row / rows_per_line & mask)) * unit_bytes;
    return tile * tile_tokens * head_dim + place;
  }
  static KINDEX_DEVICE int piece_end(int num_tokens, int end_unit) {
    const std::int64_t end_token = std::int64_t{end_unit} * unit_tokens;
    return num_tokens < end_token ? num_tokens : static_cast<int>(end_token);
  }
  KINDEX_DEVICE int entry_of(int token) const {
    return static_cast<int>(args_.pages.page(static_cast<std::uint32_t>(token)));
  }
  /// Lengths of the rows at hand, behind their weights.
  KINDEX_DEVICE int* visible_of(int num_rows) const {
    return reinterpret_cast<int*>(weights_ + num_rows * args_.num_heads);
  }
  KINDEX_DEVICE const char* page_address(std::uint32_t id) const {
    return args_.data + static_cast<std::int64_t>(id) * args_.page_stride_bytes;
  }
  KINDEX_DEVICE std::int64_t scale_offset(int token_in_page) const {
    return scale_offset_in_page(args_.pages.page_size(), head_dim, token_in_page, 0);
  }

  const args_type& args_;
  shared_state& ring_;
  const shared_layout<head_dim> shared_;
  char* query_;
  float* weights_;
  char* stage_k_;
  char* stage_scale_;
  int warpgroup_;
  int warp_;  // of its warpgroup
  int turn_ = 0;
  std::uint32_t query_step_bytes_ = 0;
  ring_position position_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
