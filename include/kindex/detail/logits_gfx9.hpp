// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The inner loop of the logits on CDNA: a wave takes units of 64 tokens in turn. K streams from
// memory into registers in operand order, a whole unit ahead of its use; relu, weights and the sum
// over heads happen on the accumulators; 64 logits leave in one store.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_gfx9.hpp"
#include "page_stream_gfx9.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::gfx9 {

inline constexpr int block_size = 256;

/// Blocks of the launch for each compute unit, one wave for each SIMD. Its unit of K on the way, 10 MB
/// over an MI300X, hides 1.9 us at the memory's peak; more waves would repeat the division of the work
/// and the fetching of q.
inline constexpr int blocks_per_compute_unit = 1;

/// What beginning a sequence costs a block, in units.
inline constexpr int sequence_start_cost = 1;

/// Units that a block computes at once.
inline constexpr int units_per_step = block_size / wave_size;

/// LDS of gfx942 less what the work division needs.
inline constexpr unsigned max_dynamic_shared_bytes = 60 * 1024;

/// Dynamic shared memory of a launch: q as fragments, if it is kept there.
template <class Config>
constexpr unsigned dynamic_shared_bytes(std::int64_t next_n, std::int64_t num_heads) {
  const std::int64_t fragments = next_n * ((num_heads + 15) / 16);
  return Config::query == query_source::shared
             ? static_cast<unsigned>(fragments * (16 * Config::geometry::head_dim + 64))
             : 0u;
}

/// Calls `use` with the configuration for a shape. q in registers: one row of exactly Heads heads.
template <class Geometry, class Use>
hipError_t with_logits_config(std::int64_t next_n, std::int64_t num_heads, Use use) {
  if constexpr (Geometry::head_dim <= 128) {  // there are registers for both q and K
    if (next_n == 1 && num_heads == 64) {
      return use(paged_mqa_logits_config<Geometry, query_source::registers, 64>{});
    }
    if (next_n == 1 && num_heads == 32) {
      return use(paged_mqa_logits_config<Geometry, query_source::registers, 32>{});
    }
  }
  using shared = paged_mqa_logits_config<Geometry, query_source::shared>;
  if (dynamic_shared_bytes<shared>(next_n, num_heads) <= max_dynamic_shared_bytes)
    return use(shared{});
  return use(paged_mqa_logits_config<Geometry, query_source::global>{});
}

#if KINDEX_TARGET_CDNA

/// Adds 16 heads of one tile to this lane's sums.
template <class Geometry>
KINDEX_DEVICE f32x2 add_heads(const fragment<Geometry::head_dim>& q, f32x4 weight,
                              const fragment<Geometry::head_dim>& k,
                              const unit_scales<Geometry::num_scales>& scales, int tile,
                              f32x2 sum) {
  if constexpr (Geometry::num_scales == 1) {
    return add_weighted_relu(dot(q, k, 0), weight, sum);
  } else {
    const f32x2 scale = scales.value[tile];
    const f32x4 low = dot(q, k, 0) * scale.x;
    const f32x4 value =
        __builtin_elementwise_fma(dot(q, k, 1), f32x4{scale.y, scale.y, scale.y, scale.y}, low);
    return add_weighted_relu(value, weight, sum);
  }
}

/// The 64 logits of a unit, one per lane, from the sums of the four lane groups.
template <class Geometry>
KINDEX_DEVICE float finish_unit(const f32x2 (&sums)[tiles_per_unit],
                                const unit_scales<Geometry::num_scales>& scales, bool lane_valid) {
  const float partial[tiles_per_unit] = {sums[0].x + sums[0].y, sums[1].x + sums[1].y,
                                         sums[2].x + sums[2].y, sums[3].x + sums[3].y};
  float logit = reduce_lane_groups(partial);
  if constexpr (Geometry::num_scales == 1) logit *= scales.value;
  return lane_valid ? logit : -__builtin_inff();
}

/// Writes a unit's logits of one row up to what the row sees: the buffer ends there.
template <class Args>
KINDEX_DEVICE void store_logits(const Args& args, std::int64_t row, int unit, int visible,
                                float logit) {
  const int first = unit * unit_tokens;
  const int tokens = visible - first < unit_tokens ? visible - first : unit_tokens;
  const raw_buffer out = {args.logits + row * args.logits_row_stride + first,
                          tokens > 0 ? tokens * 4 : 0};
  out.store_float(lane_id() * 4, logit);
}

/// Reads 16 heads of a row of q, from head 16 * tile on, and this lane's four weights. Heads that
/// do not exist (8 heads fill half a tile) take the bytes of one that does, and weigh nothing.
template <class Geometry, class Args>
KINDEX_DEVICE void load_heads(const Args& args, std::int64_t seq, int n, int tile, int num_heads,
                              fragment<Geometry::head_dim>& q, f32x4& weight) {
  const int lane = lane_id();
  const int head = tile * 16 + lane % 16;
  const char* const source = args.q + seq * args.q_batch_stride + n * args.q_next_n_stride +
                             (head < num_heads ? head : head - 8) * args.q_head_stride +
                             lane / 16 * unit_bytes;
#pragma unroll
  for (int j = 0; j < fragment<Geometry::head_dim>::num_loads; ++j) {
    q.load[j] = load_unit<16>(source + j * 64);
  }
  const int first_head = tile * 16 + lane / 16 * 4;
  const bool exists = first_head < num_heads;
  const float* const weights = args.weights + (seq * args.next_n + n) * args.weights_row_stride;
  const u32x4 loaded = load_unit<4>(weights + (exists ? first_head : 0));
  weight = exists ? __builtin_bit_cast(f32x4, loaded) : f32x4{0, 0, 0, 0};
}

/// Piece of a sequence that one wave computes: units first, first + step, … below end.
struct unit_run {
  std::int64_t seq;
  int num_tokens;  // that at least one row sees
  int first;
  int end;
  int step;
};

/// One row whose q stays in registers. A tile is loaded again, for the next unit, as soon as the
/// matrix instructions that read it have been issued: four tiles of registers keep four in flight.
template <class Config, class Args>
KINDEX_DEVICE void run_resident(const Args& args, const unit_run& run) {
  using geometry = typename Config::geometry;
  using stream_type = page_stream<geometry>;
  constexpr int head_tiles = Config::heads / 16;
  stream_type stream(args);
  stream.start(run.seq, run.num_tokens, run.first, run.end, run.step);
  stream.prepare(run.first);
  typename stream_type::scales scales, next_scales;
  stream.load_scales(scales);
  bool lane_valid = stream.lane_valid();
  typename stream_type::tile k[tiles_per_unit];
#pragma unroll
  for (int i = 0; i < tiles_per_unit; ++i) stream.load_tile(i, k[i]);
  fragment<geometry::head_dim> q[head_tiles];
  f32x4 weight[head_tiles];
#pragma unroll
  for (int m = 0; m < head_tiles; ++m) {
    load_heads<geometry>(args, run.seq, 0, m, Config::heads, q[m], weight[m]);
  }

  // q is here before the loop begins: the compiler would otherwise wait for it in every round, and
  // with it, loads being counted in order, for all of K that is on its way.
  wait_for_loads<0>();

  for (int unit = run.first; unit < run.end; unit += run.step) {
    stream.prepare(unit + run.step);
    stream.load_scales(next_scales);
    const bool next_lane_valid = stream.lane_valid();
    f32x2 sums[tiles_per_unit] = {};
#pragma unroll
    for (int i = 0; i < tiles_per_unit; ++i) {
#pragma unroll
      for (int m = 0; m < head_tiles; ++m) {
        sums[i] = add_heads<geometry>(q[m], weight[m], k[i], scales, i, sums[i]);
      }
      stream.load_tile(i, k[i]);
      // Tiles stay in order: the compiler would gather the waits for several at one place.
      __builtin_amdgcn_sched_barrier(0);
    }
    store_logits(args, run.seq, unit, run.num_tokens,
                 finish_unit<geometry>(sums, scales, lane_valid));
    scales = next_scales;
    lane_valid = next_lane_valid;
  }
}

/// q of all rows of a sequence as fragments of 16 heads, with their weights, in shared memory. A
/// fragment's loads lie there lane after lane, so that reading them has no bank conflicts.
template <class Geometry>
class shared_query {
  static constexpr int loads = fragment<Geometry::head_dim>::num_loads;
  static constexpr int fragment_bytes = loads * wave_size * unit_bytes;
  static constexpr int weight_bytes = 64;

 public:
  template <class Args>
  KINDEX_DEVICE shared_query(const Args& args, char* storage)
      : fragments_(storage + lane_id() * unit_bytes),
        weights_(storage + args.next_n * ((args.num_heads + 15) / 16) * fragment_bytes +
                 lane_id() / 16 * unit_bytes) {}

  /// All threads of the block take part.
  template <int BlockSize, class Args>
  KINDEX_DEVICE void load_sequence(const Args& args, std::int64_t seq) {
    __syncthreads();  // nobody reads the previous sequence's any more
    const int head_tiles = (args.num_heads + 15) / 16;
    for (int f = uniform(static_cast<int>(threadIdx.x) / wave_size); f < args.next_n * head_tiles;
         f += BlockSize / wave_size) {
      fragment<Geometry::head_dim> q;
      f32x4 weight;
      load_heads<Geometry>(args, seq, f / head_tiles, f % head_tiles, args.num_heads, q, weight);
#pragma unroll
      for (int j = 0; j < loads; ++j) {
        store_unit<16>(fragments_ + f * fragment_bytes + j * wave_size * unit_bytes, q.load[j]);
      }
      // Sixteen lanes hold the same four weights; one writes them.
      if (lane_id() % 16 == 0) {
        store_unit<16>(weights_ + f * weight_bytes, __builtin_bit_cast(u32x4, weight));
      }
    }
    __syncthreads();
  }

  template <class Args>
  KINDEX_DEVICE void load(const Args& args, std::int64_t, int n, int tile,
                          fragment<Geometry::head_dim>& q, f32x4& weight) const {
    const int f = n * ((args.num_heads + 15) / 16) + tile;
#pragma unroll
    for (int j = 0; j < loads; ++j) {
      q.load[j] = load_unit<16>(fragments_ + f * fragment_bytes + j * wave_size * unit_bytes);
    }
    weight = __builtin_bit_cast(f32x4, load_unit<16>(weights_ + f * weight_bytes));
  }

 private:
  char* fragments_;
  char* weights_;
};

/// q that is too large for shared memory: every unit reads it again, from the caches.
template <class Geometry>
class global_query {
 public:
  template <class Args>
  KINDEX_DEVICE global_query(const Args&, char*) {}

  template <int BlockSize, class Args>
  KINDEX_DEVICE void load_sequence(const Args&, std::int64_t) {}

  template <class Args>
  KINDEX_DEVICE void load(const Args& args, std::int64_t seq, int n, int tile,
                          fragment<Geometry::head_dim>& q, f32x4& weight) const {
    load_heads<Geometry>(args, seq, n, tile, args.num_heads, q, weight);
  }
};

/// Any number of rows and heads: K of a unit stays in registers while q passes by, 16 heads at a
/// time; the next unit's K is on its way into a second set of registers meanwhile.
template <class Config, class Args, class Query>
KINDEX_DEVICE void run_streamed(const Args& args, const Query& query, const unit_run& run) {
  using geometry = typename Config::geometry;
  using stream_type = page_stream<geometry>;
  struct unit_registers {
    typename stream_type::tile k[tiles_per_unit];
    typename stream_type::scales scales;
    bool lane_valid;
  };
  stream_type stream(args);
  const int head_tiles = (args.num_heads + 15) / 16;
  // Lane n: what row n sees. Here before the loop begins, for the reason given in run_resident.
  const int visible = lane_id() < args.next_n ? visible_tokens(args, run.seq, lane_id()) : 0;
  wait_for_loads<0>();

  const auto load = [&](int unit, unit_registers& to) {
    stream.prepare(unit);
    stream.load_scales(to.scales);
    to.lane_valid = stream.lane_valid();
#pragma unroll
    for (int i = 0; i < tiles_per_unit; ++i) stream.load_tile(i, to.k[i]);
  };
  const auto compute = [&](int unit, const unit_registers& from) {
    for (int n = 0; n < args.next_n; ++n) {
      f32x2 sums[tiles_per_unit] = {};
      for (int m = 0; m < head_tiles; ++m) {
        fragment<geometry::head_dim> q;
        f32x4 weight;
        query.load(args, run.seq, n, m, q, weight);
#pragma unroll
        for (int i = 0; i < tiles_per_unit; ++i) {
          sums[i] = add_heads<geometry>(q, weight, from.k[i], from.scales, i, sums[i]);
        }
      }
      store_logits(args, run.seq * args.next_n + n, unit, __builtin_amdgcn_readlane(visible, n),
                   finish_unit<geometry>(sums, from.scales, from.lane_valid));
    }
  };

  stream.start(run.seq, run.num_tokens, run.first, run.end, run.step);
  unit_registers even, odd;
  load(run.first, even);
  for (int unit = run.first;;) {
    // A unit must have arrived before the loops over its rows begin, or they would wait for the
    // next one as well.
    load(unit + run.step, odd);
    wait_for_loads<stream_type::loads_per_unit>();
    compute(unit, even);
    if ((unit += run.step) >= run.end) break;
    load(unit + run.step, even);
    wait_for_loads<stream_type::loads_per_unit>();
    compute(unit, odd);
    if ((unit += run.step) >= run.end) break;
  }
}

/// The logits' inner loop for one kind of kernel; one per thread.
template <class Config>
class unit_engine {
  using geometry = typename Config::geometry;
  using args_type = logits_args<geometry::page_size>;
  using query_type = std::conditional_t<Config::query == query_source::shared,
                                        shared_query<geometry>, global_query<geometry>>;

 public:
  struct shared_state {};

  KINDEX_DEVICE unit_engine(const args_type& args, char* storage, shared_state&)
      : args_(args),
        query_(args, storage),
        wave_(uniform(static_cast<int>(threadIdx.x) / wave_size)) {}

  /// All of a block's work, by all of its threads: waves take turns with the units.
  KINDEX_DEVICE void run(const block_work& work) {
    for_each_piece(args_, work, sequence_start_cost,
                   [&](int seq, int num_tokens, int first, int end) {
                     const unit_run own = {seq, num_tokens, first + wave_, end, units_per_step};
                     if constexpr (Config::query == query_source::registers) {
                       if (own.first < end) run_resident<Config>(args_, own);
                     } else {
                       query_.template load_sequence<block_size>(args_, seq);
                       if (own.first < end) run_streamed<Config>(args_, query_, own);
                     }
                   });
  }

 private:
  const args_type& args_;
  query_type query_;
  int wave_;
};

#endif  // KINDEX_TARGET_CDNA

}  // namespace detail::gfx9
KINDEX_NAMESPACE_END
