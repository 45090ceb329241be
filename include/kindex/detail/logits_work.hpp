// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Who computes which tokens. The visible tokens of all sequences, in blocks of 64 ("units"), form
// one line; every thread block takes an equal piece of it. The lengths are read here, on the
// device: no schedule tensor, and a launch shape that does not depend on them.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "divider.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN

/// Where a kernel of the logits keeps q while K passes by.
enum class query_source : std::uint8_t {
  registers,  ///< one row, in registers
  shared,     ///< shared memory
  global,     ///< nowhere: the caches serve it
};

/// What a kernel of the logits knows at compile time (paged_mqa_logits.hpp); Heads means what the
/// target's with_logits_config says, 0: any number.
template <class Geometry, query_source Query, int Heads = 0>
struct paged_mqa_logits_config;

namespace detail {

/// Tokens of one unit: what a worker (a wave, on Hopper a warpgroup) computes in one step.
inline constexpr int unit_tokens = 64;
/// Tokens of one matrix tile.
inline constexpr int tile_tokens = 16;

/// What lies in the dynamic shared memory of a launch. gfx9: q, if it is kept there, and nothing
/// else to know but the total. Hopper: plan_sm90.hpp.
struct shared_plan {
  int rows_at_once;  // of the N rows of a sequence
  int num_query_slots;
  int query_bytes;   // of a slot, a multiple of 128
  int weight_bytes;  // of a slot, the same; the rows' lengths follow the weights
  int num_stages;
  int num_held_pairs;  // of each warpgroup, whose logits wait to be written
  int total_bytes;
};

/// paged_mqa_logits_params as the kernels read them.
template <int PageSize>
struct logits_args {
  // In the order of their use: a launch begins with cold caches, constants included.
  const std::int32_t* context_lens;
  std::int64_t context_lens_batch_stride;
  std::int64_t context_lens_next_n_stride;
  std::int32_t lens_per_sequence;  // 1, or next_n
  std::int32_t num_seqs;
  std::int32_t max_visible;  // min(width, W * P)
  std::int32_t next_n;
  divider num_blocks;
  const std::int32_t* block_table;
  std::int64_t block_table_stride;
  const char* data;
  std::int64_t page_stride_bytes;
  std::uint32_t num_pages;
  std::int32_t num_heads;
  bool fill_neg_infinity;
  bool lens_per_row;
  page_splitter<PageSize> pages;
  shared_plan shared;
  const char* q;
  std::int64_t q_batch_stride;
  std::int64_t q_next_n_stride;
  std::int64_t q_head_stride;
  const float* weights;
  std::int64_t weights_row_stride;
  float* logits;
  std::int64_t logits_row_stride;
  std::int64_t logits_width;
};

#if KINDEX_DEVICE_COMPILER

/// Where row n of sequence seq is among all rows, which are fewer than 2^31.
template <class Args>
KINDEX_DEVICE std::int64_t row_index(const Args& args, std::int64_t seq, int n) {
  const auto rows_of_seq = static_cast<std::uint32_t>(args.next_n);
  return static_cast<std::uint32_t>(seq) * rows_of_seq + static_cast<std::uint32_t>(n);
}

/// Tokens that row n of sequence seq sees.
template <class Args>
KINDEX_DEVICE int visible_tokens(const Args& args, std::int64_t seq, int n) {
  int visible = args.context_lens[seq * args.context_lens_batch_stride +
                                  (args.lens_per_row ? n * args.context_lens_next_n_stride : 0)];
  // First up to 0: lengths near INT_MIN must not wrap.
  visible = visible > 0 ? visible : 0;
  if (!args.lens_per_row) visible += n + 1 - args.next_n;
  visible = visible > 0 ? visible : 0;
  return visible < args.max_visible ? visible : args.max_visible;
}

/// Tokens that at least one row of a sequence sees: what has to be read.
template <class Args>
KINDEX_DEVICE int sequence_tokens(const Args& args, std::int64_t seq) {
  const std::int32_t* const lens = args.context_lens + seq * args.context_lens_batch_stride;
  int longest = lens[0];
  // Many copies of this are inlined, and code that is not in the caches costs more.
  KINDEX_PLAIN_LOOP
  for (int n = 1; n < args.lens_per_sequence; ++n) {
    const int visible = lens[n * args.context_lens_next_n_stride];
    longest = visible > longest ? visible : longest;
  }
  longest = longest > 0 ? longest : 0;
  return longest < args.max_visible ? longest : args.max_visible;
}

KINDEX_DEVICE std::uint32_t units_of(int tokens) {
  return (static_cast<std::uint32_t>(tokens) + unit_tokens - 1) / unit_tokens;
}

/// Where the tokens of a sequence's units before end_unit end.
KINDEX_DEVICE int end_of_tokens(int num_tokens, int end_unit) {
  // Below 2^31 tokens their last unit ends at 2^31 or before.
  const std::uint32_t end_token = static_cast<std::uint32_t>(end_unit) * unit_tokens;
  const auto all = static_cast<std::uint32_t>(num_tokens);
  return static_cast<int>(all < end_token ? all : end_token);
}

/// What a sequence weighs in the division: its units, and what it costs to begin one (to fetch q).
/// Without that, one block would get all of many short sequences.
KINDEX_DEVICE std::uint32_t sequence_cost(int tokens, int start_cost) {
  const std::uint32_t units = units_of(tokens);
  return units == 0 ? 0 : units + start_cost;
}

/// The piece of the line that one block takes: `cost` of it, from `offset` within sequence `seq`
/// on, which has `num_tokens` tokens.
struct block_work {
  int seq;
  int num_tokens;
  std::uint32_t offset;
  std::uint32_t cost;
};

/// Every wave of the block finds the same piece by itself; all its lanes take part. Sums fit 32
/// bits: `validate` sees to it. A launch waits for every step that follows another one here.
template <class Args>
KINDEX_DEVICE block_work divide_work(const Args& args, int start_cost) {
  // A lane counts a run of neighbouring sequences, a few at a time, so that their lengths are on
  // their way together. Where runs are longer than that, all lanes then count the run in which the
  // piece begins, and so on.
  constexpr unsigned at_once = 64 / wave_size;
  block_work work = {0, 0, 0, 0};
  auto first = 0u;
  auto end = static_cast<unsigned>(args.num_seqs);
  for (;;) {
    const unsigned per_lane = (end - first + wave_size - 1) / wave_size;
    const unsigned run_first = first + static_cast<unsigned>(lane_id()) * per_lane;
    const unsigned run_end = run_first + per_lane < end ? run_first + per_lane : end;
    int tokens[at_once] = {};
    const auto cost_of = [&](unsigned i) { return sequence_cost(tokens[i], start_cost); };
    std::uint32_t own = 0;
    unsigned passed = 0;
    KINDEX_PLAIN_LOOP
    do {
      // Lanes without a sequence: the stride of one sequence may be anything.
      const unsigned seq = run_first + passed;
      const std::int64_t existing = seq < run_end ? seq : 0;
      const std::int32_t* lens = args.context_lens + existing * args.context_lens_batch_stride;
#pragma unroll
      for (int& longest : tokens) longest = 0;
      int n = 0;
      KINDEX_PLAIN_LOOP
      do {
#pragma unroll
        for (unsigned i = 0; i < at_once; ++i) {
          const int visible = seq + i < run_end ? lens[i * args.context_lens_batch_stride] : 0;
          tokens[i] = visible > tokens[i] ? visible : tokens[i];
        }
        lens += args.context_lens_next_n_stride;
      } while (++n < args.lens_per_sequence);
#pragma unroll
      for (unsigned i = 0; i < at_once; ++i) {
        tokens[i] = tokens[i] < args.max_visible ? tokens[i] : args.max_visible;
        own += cost_of(i);
      }
      passed += at_once;
    } while (passed < per_lane);
    const std::uint32_t through = inclusive_prefix_sum(own);

    // Of all sequences every block takes the same, and the first ones one more until nothing is
    // left. Divided every time, though only the first time counts: without a branch it need not
    // wait for the scan.
    const std::uint32_t total = uniform(sum_of_wave(own, through));
    const std::uint32_t each = args.num_blocks.divide(total);
    const std::uint32_t left = total - each * gridDim.x;
    const std::uint32_t begin = each * blockIdx.x + (blockIdx.x < left ? blockIdx.x : left);
    const std::uint32_t cost = each + (blockIdx.x < left ? 1 : 0);
    const bool counted_all = work.cost == 0;
    work.offset = counted_all ? begin : work.offset;
    work.cost = counted_all ? cost : work.cost;
    if (work.cost == 0) return work;
    // In whose run does it begin? In lanes before and after that one the offset has wrapped, or is
    // too large.
    std::uint32_t offset = work.offset - (through - own);
    const int lane = __ffsll(static_cast<unsigned long long>(ballot(offset < own))) - 1;
    if (per_lane <= at_once) {
      unsigned seq = run_first;
      int num_tokens = tokens[0];
#pragma unroll
      for (unsigned i = 1; i < at_once; ++i) {
        if (offset < cost_of(i - 1)) break;
        offset -= cost_of(i - 1);
        ++seq;
        num_tokens = tokens[i];
      }
      work.seq = uniform(shuffle(static_cast<int>(seq), lane));
      work.num_tokens = uniform(shuffle(num_tokens, lane));
      work.offset = uniform(shuffle(offset, lane));
      return work;
    }
    first = uniform(shuffle(run_first, lane));
    end = uniform(shuffle(run_end, lane));
    work.offset = uniform(shuffle(offset, lane));
  }
}

/// Turns `work` to the beginning of the next sequence that has tokens; every wave finds it for
/// itself. There is one.
template <class Args>
KINDEX_DEVICE void go_to_next_sequence(const Args& args, block_work& work) {
  for (int seq = work.seq + 1; seq < args.num_seqs; seq += wave_size) {
    const int candidate = seq + lane_id();
    const int tokens = candidate < args.num_seqs ? sequence_tokens(args, candidate) : 0;
    const std::uint64_t busy = ballot(tokens > 0);
    if (busy == 0) continue;
    const int lane = __ffsll(static_cast<unsigned long long>(busy)) - 1;
    work.seq = uniform(seq + lane);
    work.num_tokens = uniform(shuffle(tokens, lane));
    work.offset = 0;
    return;
  }
}

/// Walks through a block's work: use(seq, num_tokens, first, end, last) for units [first, end) of
/// each sequence in it, whose longest row sees num_tokens; `last` if there is no more. Uniform over
/// the block.
template <class Args, class Use>
KINDEX_DEVICE void for_each_piece(const Args& args, block_work work, int start_cost, Use use) {
  while (work.cost != 0) {
    const std::uint32_t rest = units_of(work.num_tokens) + start_cost - work.offset;
    const std::uint32_t cost = rest < work.cost ? rest : work.cost;
    const int first = static_cast<int>(work.offset) - start_cost;
    const int end = first + static_cast<int>(cost);
    work.cost -= cost;
    // What is left may be no more than the beginning of a sequence.
    const bool last = work.cost <= static_cast<std::uint32_t>(start_cost);
    if (end > 0) use(work.seq, work.num_tokens, first > 0 ? first : 0, end, last);
    if (work.cost == 0) break;
    go_to_next_sequence(args, work);
  }
}

/// Columns that a wave fills at once.
inline constexpr int fill_columns = 1024;

/// Writes -inf to the columns that rows do not see. Waves, not blocks, take pieces of rows: each
/// begins with a division and a load, which must overlap. next_piece() says which the wave takes.
template <class Args, class NextPiece>
KINDEX_DEVICE void fill_invisible_columns(const Args& args, NextPiece next_piece) {
  const std::int64_t pieces_per_row = (args.logits_width + fill_columns - 1) / fill_columns;
  const std::int64_t num_rows = static_cast<std::int64_t>(args.num_seqs) * args.next_n;
  KINDEX_PLAIN_LOOP
  for (std::int64_t piece = next_piece(); piece < num_rows * pieces_per_row; piece = next_piece()) {
    const std::int64_t row = piece / pieces_per_row;
    const std::int64_t first = (piece - row * pieces_per_row) * fill_columns;
    const std::int64_t end =
        first + fill_columns < args.logits_width ? first + fill_columns : args.logits_width;
    const std::int64_t seq = row / args.next_n;
    const std::int64_t visible =
        visible_tokens(args, seq, static_cast<int>(row - seq * args.next_n));
    float* const logits = args.logits + row * args.logits_row_stride;
    const std::int64_t begin = first > visible ? first : visible;
#pragma unroll 4
    for (std::int64_t t = begin + lane_id(); t < end; t += wave_size) {
      logits[t] = -__builtin_inff();
    }
  }
}

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail
KINDEX_NAMESPACE_END
