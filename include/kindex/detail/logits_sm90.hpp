// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The inner loop of the logits on Hopper: a warp takes units of 64 tokens in turn. K of a unit goes
// from memory into registers in operand order and stays there while q, from shared memory, passes
// by, 8 heads at a time; relu, weights and the sum over heads happen on the accumulators.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "logits_work.hpp"
#include "memory.hpp"
#include "mma_sm90.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

/// Bytes of shared memory that q and the weights take, and the most that they may: what a block
/// gets without asking, less what the work division needs.
template <class Config>
constexpr unsigned query_shared_bytes(std::int64_t next_n, std::int64_t num_heads) {
  return Config::query == query_source::global
             ? 0u
             : static_cast<unsigned>(next_n * num_heads * (Config::geometry::head_dim + 4));
}
inline constexpr unsigned max_query_shared_bytes = 47 * 1024;

/// Units that a block computes at once.
template <class Config>
inline constexpr int workers_per_block = Config::block_size / wave_size;

#if KINDEX_TARGET_SM90A

/// Reads 8 heads of a row of q, from head 8 * tile on, and this lane's two weights.
template <class Geometry, class Args>
KINDEX_DEVICE void load_heads(const Args& args, std::int64_t seq, int n, int tile,
                              fragment<Geometry::head_dim>& q, float (&weight)[2]) {
  const int group = lane_id() / 4, part = lane_id() % 4;
  const char* const source = args.q + seq * args.q_batch_stride + n * args.q_next_n_stride +
                             (tile * tile_heads + group) * args.q_head_stride + part * unit_bytes;
#pragma unroll
  for (int j = 0; j < fragment<Geometry::head_dim>::num_loads; ++j) {
    q.load[j] = load_unit<16>(source + j * 64);
  }
  const float* const weights =
      args.weights + (seq * args.next_n + n) * args.weights_row_stride + tile * tile_heads;
  weight[0] = weights[2 * part];
  weight[1] = weights[2 * part + 1];
}

/// q and weights of one sequence in shared memory, in operand order.
template <class Geometry>
class shared_query {
  static constexpr int loads = fragment<Geometry::head_dim>::num_loads;
  static constexpr int load_bytes = wave_size * unit_bytes;

 public:
  template <class Args>
  KINDEX_DEVICE shared_query(const Args& args, char* storage)
      : lane_fragments_(storage + lane_id() * unit_bytes),
        weights_(reinterpret_cast<float*>(storage +
                                          args.next_n * args.num_heads * Geometry::head_dim)) {}

  /// All threads of the block take part.
  template <int BlockSize, class Args>
  KINDEX_DEVICE void load_sequence(const Args& args, std::int64_t seq) {
    __syncthreads();  // nobody reads the previous sequence's any more
    const int tiles = args.num_heads / tile_heads;
    for (int f = static_cast<int>(threadIdx.x) / wave_size; f < args.next_n * tiles;
         f += BlockSize / wave_size) {
      fragment<Geometry::head_dim> q;
      float weight[2];
      load_heads<Geometry>(args, seq, f / tiles, f % tiles, q, weight);
#pragma unroll
      for (int j = 0; j < loads; ++j) {
        store_unit<16>(lane_fragments_ + (f * loads + j) * load_bytes, q.load[j]);
      }
      if (lane_id() < 4) {
        weights_[f * tile_heads + 2 * lane_id()] = weight[0];
        weights_[f * tile_heads + 2 * lane_id() + 1] = weight[1];
      }
    }
    __syncthreads();
  }

  template <class Args>
  KINDEX_DEVICE void load(const Args& args, std::int64_t, int n, int tile,
                          fragment<Geometry::head_dim>& q, float (&weight)[2]) const {
    const int f = n * (args.num_heads / tile_heads) + tile;
#pragma unroll
    for (int j = 0; j < loads; ++j) {
      q.load[j] = load_unit<16>(lane_fragments_ + (f * loads + j) * load_bytes);
    }
    weight[0] = weights_[f * tile_heads + 2 * (lane_id() % 4)];
    weight[1] = weights_[f * tile_heads + 2 * (lane_id() % 4) + 1];
  }

 private:
  char* lane_fragments_;
  float* weights_;
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
                          fragment<Geometry::head_dim>& q, float (&weight)[2]) const {
    load_heads<Geometry>(args, seq, n, tile, q, weight);
  }
};

/// K and scales of one unit: lane 4g + t has tokens g and g+8 of every tile. Tokens without a page
/// are zeros, and not read.
template <class Geometry>
struct unit_registers {
  fragment<Geometry::head_dim> k[tiles_per_unit][2];
  float scale[tiles_per_unit][2][Geometry::num_scales];
  bool valid[tiles_per_unit][2];

  template <class Args>
  KINDEX_DEVICE unit_registers(const Args& args, std::int64_t seq, int num_tokens, int unit) {
    const std::int32_t* const table = args.block_table + seq * args.block_table_stride;
    const int page_size = args.pages.page_size();
#pragma unroll
    for (int i = 0; i < tiles_per_unit; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = unit * unit_tokens + i * tile_tokens + half * 8 + lane_id() / 4;
        const std::uint32_t entry = args.pages.page(static_cast<std::uint32_t>(token));
        const auto id = static_cast<std::uint32_t>(token < num_tokens ? table[entry] : -1);
        valid[i][half] = id < args.num_pages;
        read(args.data +
                 (valid[i][half] ? static_cast<std::int64_t>(id) : 0) * args.page_stride_bytes,
             page_size, token - static_cast<int>(entry) * page_size, i, half);
      }
    }
  }

 private:
  KINDEX_DEVICE void read(const char* page, int page_size, int token_in_page, int i, int half) {
#pragma unroll
    for (int j = 0; j < fragment<Geometry::head_dim>::num_loads; ++j) {
      k[i][half].load[j] = u32x4{0, 0, 0, 0};
      if (!valid[i][half]) continue;
      k[i][half].load[j] = load_unit<unit_alignment(Geometry::page_size)>(
          page + k_offset_in_page(Geometry::layout, Geometry::head_dim, token_in_page,
                                  64 * j + lane_id() % 4 * unit_bytes));
    }
#pragma unroll
    for (int g = 0; g < Geometry::num_scales; ++g) {
      scale[i][half][g] = 0;
      if (!valid[i][half]) continue;
      scale[i][half][g] = *reinterpret_cast<const float*>(
          page + scale_offset_in_page(page_size, Geometry::head_dim, token_in_page, g));
    }
  }
};

/// The logits' inner loop for one kind of kernel; one per thread.
template <class Config>
class unit_engine {
  using geometry = typename Config::geometry;
  using args_type = logits_args<geometry::page_size>;
  using query_type = std::conditional_t<Config::query == query_source::global,
                                        global_query<geometry>, shared_query<geometry>>;

 public:
  static constexpr int waves_per_block = Config::block_size / wave_size;
  static_assert(sizeof(typename work_division<Config::block_size>::storage) +
                        max_query_shared_bytes <=
                    48 * 1024,
                "kindex: more shared memory than a block gets without asking");

  KINDEX_DEVICE unit_engine(const args_type& args, char* storage)
      : args_(args), query_(args, storage) {}

  /// Units [first, end) of one sequence; all threads of the block take part. Waves take turns.
  KINDEX_DEVICE void run(std::int64_t seq, int num_tokens, int first, int end) {
    query_.template load_sequence<Config::block_size>(args_, seq);
    for (int unit = first + static_cast<int>(threadIdx.x) / wave_size; unit < end;
         unit += waves_per_block) {
      const unit_registers<geometry> k(args_, seq, num_tokens, unit);
      for (int n = 0; n < args_.next_n; ++n) compute_row(seq, n, unit, k);
    }
  }

 private:
  /// One row's logits of a unit. The order of every sum is the same for all shapes and geometries.
  KINDEX_DEVICE void compute_row(std::int64_t seq, int n, int unit,
                                 const unit_registers<geometry>& k) const {
    float sum[tiles_per_unit][2] = {};
    for (int tile = 0; tile < args_.num_heads / tile_heads; ++tile) {
      fragment<geometry::head_dim> q;
      float weight[2];
      query_.load(args_, seq, n, tile, q, weight);
#pragma unroll
      for (int i = 0; i < tiles_per_unit; ++i) {
        float product[4];
        dot_scaled(k, i, q, product);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          sum[i][half] = fmaf(weight[0], fmaxf(product[2 * half], 0.0f), sum[i][half]);
          sum[i][half] = fmaf(weight[1], fmaxf(product[2 * half + 1], 0.0f), sum[i][half]);
        }
      }
    }

    // All four lanes of a token have its sum; lane 4g + t writes the logits of tile t.
    const int part = lane_id() % 4;
    const int visible = visible_tokens(args_, seq, n);
    float* const row = args_.logits + (seq * args_.next_n + n) * args_.logits_row_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float logit = 0;
#pragma unroll
      for (int i = 0; i < tiles_per_unit; ++i) {
        float value = reduce_heads(sum[i][half]);
        if constexpr (geometry::num_scales == 1) value *= k.scale[i][half][0];
        if (!k.valid[i][half]) value = -__builtin_inff();
        logit = part == i ? value : logit;
      }
      const int token = unit * unit_tokens + part * tile_tokens + half * 8 + lane_id() / 4;
      if (token < visible) row[token] = logit;
    }
  }

  /// k . q of tile i and 8 heads. Several scales a token are applied here, before the relu.
  static KINDEX_DEVICE void dot_scaled(const unit_registers<geometry>& k, int i,
                                       const fragment<geometry::head_dim>& q, float (&product)[4]) {
    dot(k.k[i], q, 0, product);
    if constexpr (geometry::num_scales == 2) {
      float second[4];
      dot(k.k[i], q, 1, second);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float* const scale = k.scale[i][r / 2];
        product[r] = fmaf(second[r], scale[1], product[r] * scale[0]);
      }
    }
  }

  const args_type& args_;
  query_type query_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
