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

/// Blocks of the launch for each compute unit, two waves for each SIMD: one computes while the
/// other waits for its results, which counts from two rows on, where there is as much to compute as
/// to read. 20 MB of K on the way over an MI300X hide 3.8 us at the memory's peak.
inline constexpr int blocks_per_compute_unit = 2;

/// What beginning a sequence costs a block, in units.
inline constexpr int sequence_start_cost = 1;

/// Units that a block computes at once.
inline constexpr int units_per_step = block_size / wave_size;

/// LDS of gfx942 less what the work division needs.
inline constexpr int max_dynamic_shared_bytes = 60 * 1024;
inline constexpr int shared_alignment = 128;

/// Dynamic shared memory of a launch: q as fragments, if it is kept there.
template <class Config>
constexpr shared_plan plan_shared_memory(std::int64_t next_n, std::int64_t num_heads) {
  const std::int64_t blocks = next_n * ((num_heads + block_heads - 1) / block_heads);
  shared_plan plan = {};
  if (Config::query == query_source::shared) {
    plan.total_bytes = static_cast<int>(blocks * block_heads * (Config::geometry::head_dim + 4));
  }
  return plan;
}

/// Calls `use` with the configuration for a shape: exactly Heads heads, unless that is 0. q in
/// registers: of one row.
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
  if (plan_shared_memory<shared>(next_n, num_heads).total_bytes <= max_dynamic_shared_bytes) {
    if (num_heads == 64) {
      return use(paged_mqa_logits_config<Geometry, query_source::shared, 64>{});
    }
    return use(shared{});
  }
  return use(paged_mqa_logits_config<Geometry, query_source::global>{});
}

#if KINDEX_TARGET_CDNA

/// q . k of a block of heads and one of tokens, scale group by scale group.
template <class Geometry>
struct block_products {
  f32x16 group[Geometry::num_scales];

  /// Two scale groups leave no registers for zeros that stay.
  KINDEX_DEVICE void begin(const f32x16& zeros) {
    const f32x16 first = Geometry::num_scales == 1 ? zeros : make_zeros();
#pragma unroll
    for (f32x16& sum : group) sum = first;
  }
};

/// Adds load j of a block of K to the products with a block of heads.
template <class Geometry>
KINDEX_DEVICE void multiply_add(const fragment<Geometry::head_dim>& q, u32x4 k, int j,
                                block_products<Geometry>& products) {
  constexpr int loads_per_group = fragment<Geometry::head_dim>::num_loads / Geometry::num_scales;
  f32x16& sum = products.group[j / loads_per_group];
  sum = multiply_add(q.load[j], k, sum);
}

/// Adds a block of heads of block b of the tokens to this lane's sums.
template <class Geometry>
KINDEX_DEVICE f32x2 add_heads(const block_products<Geometry>& products,
                              const block_weights& weights,
                              const unit_scales<Geometry::num_scales>& scales, int b, f32x2 sum,
                              float bound) {
  if constexpr (Geometry::num_scales == 1) {
    return add_weighted_relu(products.group[0], weights, sum, bound);
  } else {
    const f32x2 scale = scales.value[b];
    f32x16 value;
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      const f32x2 low = f32x2{products.group[0][i], products.group[0][i + 1]} * scale.x;
      const f32x2 both = __builtin_elementwise_fma(
          f32x2{products.group[1][i], products.group[1][i + 1]}, f32x2{scale.y, scale.y}, low);
      value[i] = both.x;
      value[i + 1] = both.y;
    }
    return add_weighted_relu(value, weights, sum, bound);
  }
}

/// The 64 logits of a unit, one per lane, from the sums of the two lane groups.
template <class Geometry>
KINDEX_DEVICE float finish_unit(const f32x2 (&sums)[blocks_per_unit],
                                const unit_scales<Geometry::num_scales>& scales, bool lane_valid) {
  float logit = reduce_lane_groups(sums[0].x + sums[0].y, sums[1].x + sums[1].y);
  if constexpr (Geometry::num_scales == 1) logit *= scales.value;
  return lane_valid ? logit : -__builtin_inff();
}

/// Bytes of logits that a row with rest tokens from a unit's first on has in that unit.
KINDEX_DEVICE int logit_bytes(int rest) {
  const int tokens = rest < unit_tokens ? rest : unit_tokens;
  return tokens > 0 ? tokens * 4 : 0;
}

/// Writes a unit's logits of one row up to what the row sees: the buffer ends there.
KINDEX_DEVICE void store_logits(float* logits, int num_bytes, float logit) {
  const raw_buffer out = {logits, num_bytes};
  out.store_float(lane_id() * 4, logit);
}

/// Waits for what is on its way into registers, all at once: the compiler would wait for one after
/// another.
template <int NumLoads>
KINDEX_DEVICE void wait_for(u32x4 (&loads)[NumLoads]) {
  if constexpr (NumLoads == 2) {
    asm volatile("" : "+v"(loads[0]), "+v"(loads[1]));
  } else {
    static_assert(NumLoads % 4 == 0);
#pragma unroll
    for (int i = 0; i < NumLoads; i += 4) {
      asm volatile("" : "+v"(loads[i]), "+v"(loads[i + 1]), "+v"(loads[i + 2]), "+v"(loads[i + 3]));
    }
  }
}
KINDEX_DEVICE void wait_for(block_weights& weights) {
  asm volatile(""
               : "+v"(weights.quad[0]), "+v"(weights.quad[1]), "+v"(weights.quad[2]),
                 "+v"(weights.quad[3]));
}

/// What is written above stays above. The compiler would move loads that are meant to be a unit
/// ahead down to their use, and take registers for results of more than one block.
KINDEX_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }

/// Has the matrix instructions before it issued before what comes behind. Even at the price of
/// copies the compiler would move the last one behind the load into the register that it reads.
KINDEX_DEVICE void issue_here(f32x16& results) { asm volatile("" : "+v"(results)); }

/// Reads a block of heads of a row of q. Heads that do not exist take the bytes of one that does.
template <class Geometry, class Args>
KINDEX_DEVICE void load_heads(const Args& args, std::int64_t seq, int n, int block, int num_heads,
                              unsigned lane, fragment<Geometry::head_dim>& q) {
  // Heads from the block's first on: what depends on the lane is the same for every block.
  const int first = block * block_heads;
  const int head = static_cast<int>(lane % block_heads);
  const char* const source =
      args.q + seq * args.q_batch_stride + n * args.q_next_n_stride + first * args.q_head_stride +
      (first + head < num_heads ? head : 0) * args.q_head_stride + lane / block_heads * unit_bytes;
#pragma unroll
  for (int j = 0; j < fragment<Geometry::head_dim>::num_loads; ++j) {
    q.load[j] = load_unit<16>(source + j * 32);
  }
}

/// The weight of a head of a row; 0 if there is no such head.
template <class Args>
KINDEX_DEVICE float load_weight(const Args& args, std::int64_t seq, int n, int head,
                                int num_heads) {
  const float* const row = args.weights + row_index(args, seq, n) * args.weights_row_stride;
  const float weight = row[head < num_heads ? head : 0];
  return head < num_heads ? weight : 0.0f;
}

/// This lane's weights of a block of heads from shared memory, where they lie in order; the address
/// is that of the lane's first.
KINDEX_DEVICE block_weights read_weights(const char* weights) {
  block_weights loaded;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    loaded.quad[i] = __builtin_bit_cast(f32x4, load_unit<16>(weights + i * 2 * unit_bytes));
  }
  return loaded;
}

/// Heads of a row, known to the compiler if Config names them.
template <class Config, class Args>
KINDEX_DEVICE int heads_of(const Args& args) {
  return Config::heads != 0 ? Config::heads : args.num_heads;
}

/// Piece of a sequence that one wave computes: units first, first + step, … below end.
struct unit_run {
  std::int64_t seq;
  int num_tokens;  // that at least one row sees
  int first;
  int end;
  int step;
};

/// One row whose q stays in registers; its weights are in shared memory. A register of K is loaded
/// again, for the next unit, as soon as the matrix instructions that read it have been issued: a
/// unit's registers keep a whole unit in flight.
template <class Config, class Args>
KINDEX_DEVICE void run_resident(const Args& args, const char* weights, const unit_run& run) {
  using geometry = typename Config::geometry;
  using stream_type = page_stream<geometry>;
  constexpr int head_blocks = (Config::heads + block_heads - 1) / block_heads;
  stream_type stream(args);
  stream.start(run.seq, run.num_tokens, run.first, run.end, run.step);
  stream.prepare(run.first);
  typename stream_type::scales scales, next_scales;
  stream.load_scales(scales);
  bool lane_valid = stream.lane_valid();
  typename stream_type::block k[blocks_per_unit];
#pragma unroll
  for (int b = 0; b < blocks_per_unit; ++b) {
#pragma unroll
    for (int j = 0; j < stream_type::block::num_loads; ++j) k[b].load[j] = stream.load_k(b, j);
  }
  float* const logits = args.logits + run.seq * args.logits_row_stride;
  fragment<geometry::head_dim> q[head_blocks];
#pragma unroll
  for (int m = 0; m < head_blocks; ++m) {
    load_heads<geometry>(args, run.seq, 0, m, Config::heads, fresh_lane_id(), q[m]);
  }

  // q is here before the loop begins: the compiler would otherwise wait for it in every round, and
  // with it, loads being counted in order, for all of K that is on its way.
#pragma unroll
  for (int m = 0; m < head_blocks; ++m) wait_for(q[m].load);

  const f32x16 zeros = make_zeros();
  for (int unit = run.first; unit < run.end; unit += run.step) {
    stream.prepare(unit + run.step);
    stream.load_scales(next_scales);
    const bool next_lane_valid = stream.lane_valid();
    f32x2 sums[blocks_per_unit] = {};
#pragma unroll
    for (int b = 0; b < blocks_per_unit; ++b) {
      block_products<geometry> products[head_blocks];
#pragma unroll
      for (auto& block : products) block.begin(zeros);
#pragma unroll
      for (int j = 0; j < stream_type::block::num_loads; ++j) {
#pragma unroll
        for (int m = 0; m < head_blocks; ++m) {
          multiply_add<geometry>(q[m], k[b].load[j], j, products[m]);
          issue_here(products[m].group[0]);
        }
        keep_order();
        k[b].load[j] = stream.load_k(b, j);
        keep_order();
      }
#pragma unroll
      for (int m = 0; m < head_blocks; ++m) {
        block_weights block = read_weights(weights + m * block_heads * 4);
        wait_for(block);
        sums[b] = add_heads<geometry>(products[m], block, scales, b, sums[b], relu_bound());
      }
      keep_order();
    }
    store_logits(logits + unit * unit_tokens, logit_bytes(run.num_tokens - unit * unit_tokens),
                 finish_unit<geometry>(sums, scales, lane_valid));
    scales = next_scales;
    lane_valid = next_lane_valid;
  }
}

/// q of all rows of a sequence as blocks of heads, with their weights, in shared memory. A block's
/// loads lie there lane after lane, so that reading them has no bank conflicts.
template <class Config>
class shared_query {
  using geometry = typename Config::geometry;
  using q_fragment = fragment<geometry::head_dim>;
  static constexpr int loads = q_fragment::num_loads;
  static constexpr int load_bytes = wave_size * unit_bytes;
  static constexpr int block_bytes = loads * load_bytes + block_heads * 4;

  template <class Args>
  static KINDEX_DEVICE int head_blocks(const Args& args) {
    return (heads_of<Config>(args) + block_heads - 1) / block_heads;
  }

 public:
  KINDEX_DEVICE explicit shared_query(char* storage) : storage_(storage) {}

  /// All threads of the block take part.
  template <int BlockSize, class Args>
  KINDEX_DEVICE void load_sequence(const Args& args, std::int64_t seq, int wave) {
    __syncthreads();  // nobody reads the previous sequence's any more
    for (int n = wave; n < args.next_n; n += BlockSize / wave_size) {
      const unsigned lane = fresh_lane_id();
      char* block = storage_ + n * head_blocks(args) * block_bytes;
      for (int m = 0; m < head_blocks(args); ++m, block += block_bytes) {
        q_fragment q;
        load_heads<geometry>(args, seq, n, m, heads_of<Config>(args), lane, q);
        const float weight =
            load_weight(args, seq, n, m * block_heads + static_cast<int>(lane % block_heads),
                        heads_of<Config>(args));
        wait_for(q.load);
#pragma unroll
        for (int j = 0; j < loads; ++j) {
          store_unit<16>(block + j * load_bytes + lane * unit_bytes, q.load[j]);
        }
        // Twice the same.
        reinterpret_cast<float*>(block + loads * load_bytes)[lane % block_heads] = weight;
      }
    }
    __syncthreads();
  }

  /// What a lane reads.
  class reader {
   public:
    KINDEX_DEVICE reader(const char* storage, int row_bytes, int num_rows)
        : q_(storage + lane_id() * unit_bytes),
          weights_(storage + loads * load_bytes + lane_id() / 32 * unit_bytes),
          row_bytes_(row_bytes),
          end_(row_bytes * num_rows) {}

    /// A row is named by where it lies: the first is 0, and follows the last.
    KINDEX_DEVICE int row_after(int row) const {
      return row + row_bytes_ == end_ ? 0 : row + row_bytes_;
    }

    template <class Args>
    KINDEX_DEVICE void load(const Args&, int row, int m, q_fragment& q) const {
#pragma unroll
      for (int j = 0; j < loads; ++j) {
        q.load[j] = load_unit<16>(q_ + row + m * block_bytes + j * load_bytes);
      }
    }
    template <class Args>
    KINDEX_DEVICE block_weights load_weights(const Args&, int row, int m) const {
      return read_weights(weights_ + row + m * block_bytes);
    }

   private:
    const char* q_;
    const char* weights_;
    int row_bytes_;
    int end_;
  };

  template <class Args>
  KINDEX_DEVICE reader begin(const Args& args, std::int64_t) const {
    return reader(storage_, head_blocks(args) * block_bytes, args.next_n);
  }

 private:
  char* storage_;
};

/// q that is too large for shared memory: every unit reads it again, from the caches.
template <class Config>
class global_query {
  using geometry = typename Config::geometry;

 public:
  KINDEX_DEVICE explicit global_query(char*) {}

  template <int BlockSize, class Args>
  KINDEX_DEVICE void load_sequence(const Args&, std::int64_t, int) {}

  class reader {
   public:
    KINDEX_DEVICE reader(std::int64_t seq, int num_rows) : seq_(seq), num_rows_(num_rows) {}

    KINDEX_DEVICE int row_after(int row) const { return row + 1 == num_rows_ ? 0 : row + 1; }

    template <class Args>
    KINDEX_DEVICE void load(const Args& args, int n, int m, fragment<geometry::head_dim>& q) const {
      load_heads<geometry>(args, seq_, n, m, args.num_heads, fresh_lane_id(), q);
    }
    template <class Args>
    KINDEX_DEVICE block_weights load_weights(const Args& args, int n, int m) const {
      const float* const row = args.weights + row_index(args, seq_, n) * args.weights_row_stride;
      const int first = m * block_heads + static_cast<int>(fresh_lane_id() / 32 * 4);
      block_weights weights;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Heads come by eights, so that four exist together or not at all.
        const int head = first + i * 8;
        const bool exists = head < args.num_heads;
        const u32x4 loaded = load_unit<4>(row + (exists ? head : 0));
        weights.quad[i] = exists ? __builtin_bit_cast(f32x4, loaded) : f32x4{0, 0, 0, 0};
      }
      return weights;
    }

   private:
    std::int64_t seq_;
    int num_rows_;
  };

  template <class Args>
  KINDEX_DEVICE reader begin(const Args& args, std::int64_t seq) const {
    return reader(seq, args.next_n);
  }
};

/// Any number of rows and heads: K of a unit stays in registers while q passes by, a block of heads
/// at a time; the next unit's K is on its way into a second set of registers meanwhile.
template <class Config, class Args, class Query>
KINDEX_DEVICE void run_streamed(const Args& args, const Query& query, const unit_run& run) {
  using geometry = typename Config::geometry;
  using stream_type = page_stream<geometry>;
  constexpr int num_loads = stream_type::block::num_loads;
  // Results of two scale groups take the registers of two blocks.
  constexpr int blocks_at_once = blocks_per_unit / geometry::num_scales;
  struct unit_registers {
    typename stream_type::block k[blocks_per_unit];
    typename stream_type::scales scales;
    bool lane_valid;
  };
  stream_type stream(args);
  const std::int64_t first_row = row_index(args, run.seq, 0);
  // Lane n knows what row n sees.
  const int lane = static_cast<int>(fresh_lane_id());
  const int visible = visible_tokens(args, run.seq, lane < args.next_n ? lane : 0);
  const auto load = [&](int unit, unit_registers& to) {
    stream.prepare(unit);
    stream.load_scales(to.scales);
    to.lane_valid = stream.lane_valid();
#pragma unroll
    for (int b = 0; b < blocks_per_unit; ++b) {
#pragma unroll
      for (int j = 0; j < num_loads; ++j) to.k[b].load[j] = stream.load_k(b, j);
    }
    keep_order();
  };
  const auto blocks = query.begin(args, run.seq);
  constexpr int known_head_blocks = (Config::heads + block_heads - 1) / block_heads;
  const int head_blocks = (heads_of<Config>(args) + block_heads - 1) / block_heads;
  fragment<geometry::head_dim> q;
  blocks.load(args, 0, 0, q);
  const f32x16 zeros = geometry::num_scales == 1 ? make_zeros() : f32x16{};
  const float bound = relu_bound();
  const auto compute = [&](int unit, unit_registers& from) {
  // Wait for this unit here, where the compiler can count what was issued since: it would
  // wait for everything, the next unit included, before a loop that also stores.
#pragma unroll
    for (int b = blocks_per_unit - 1; b >= 0; --b) wait_for(from.k[b].load);
    from.scales.wait();
    keep_order();
    float* logits = args.logits + first_row * args.logits_row_stride +
                    static_cast<std::uint32_t>(unit) * unit_tokens;
    // As logit_bytes; written so that it becomes a median.
    const int rest = visible - unit * unit_tokens;
    const int visible_bytes = (rest < 0 ? 0 : rest < unit_tokens ? rest : unit_tokens) * 4;
    int n = 0;
    int row = 0;
    do {
      f32x2 sums[blocks_per_unit] = {};
      const auto add_block = [&](int m, int next_row, int next_m) {
        wait_for(q.load);
#pragma unroll
        for (int first = 0; first < blocks_per_unit; first += blocks_at_once) {
          block_products<geometry> products[blocks_at_once];
#pragma unroll
          for (auto& block : products) block.begin(zeros);
#pragma unroll
          for (int j = 0; j < num_loads; ++j) {
#pragma unroll
            for (int b = 0; b < blocks_at_once; ++b) {
              multiply_add<geometry>(q, from.k[first + b].load[j], j, products[b]);
            }
          }
          keep_order();
          // Behind the last matrix instructions, whose results take a while; not kept from block to
          // block, for want of registers.
          block_weights weights = blocks.load_weights(args, row, m);
          if (first + blocks_at_once == blocks_per_unit) blocks.load(args, next_row, next_m, q);
          wait_for(weights);
#pragma unroll
          for (int b = 0; b < blocks_at_once; ++b) {
            sums[first + b] = add_heads<geometry>(products[b], weights, from.scales, first + b,
                                                  sums[first + b], bound);
          }
          if (blocks_at_once != blocks_per_unit) keep_order();
        }
        keep_order();
      };
      int next_row;
      if constexpr (known_head_blocks != 0) {
#pragma unroll
        for (int m = 0; m < known_head_blocks - 1; ++m) add_block(m, row, m + 1);
        // Not sooner: it can take the register of `row` now.
        next_row = blocks.row_after(row);
        add_block(known_head_blocks - 1, next_row, 0);
      } else {
        next_row = blocks.row_after(row);
        int m = 0;
        do {
          const bool last = m + 1 == head_blocks;
          add_block(m, last ? next_row : row, last ? 0 : m + 1);
        } while (++m < head_blocks);
      }
      store_logits(logits, broadcast(visible_bytes, n),
                   finish_unit<geometry>(sums, from.scales, from.lane_valid));
      logits += args.logits_row_stride;
      row = next_row;
    } while (++n < args.next_n);
  };

  stream.start(run.seq, run.num_tokens, run.first, run.end, run.step);
  unit_registers even, odd;
  load(run.first, even);
  for (int unit = run.first;;) {
    load(unit + run.step, odd);
    compute(unit, even);
    if ((unit += run.step) >= run.end) break;
    load(unit + run.step, even);
    compute(unit, odd);
    if ((unit += run.step) >= run.end) break;
  }
}

/// The logits' inner loop for one kind of kernel; one per thread.
template <class Config>
class unit_engine {
  using geometry = typename Config::geometry;
  using args_type = logits_args<geometry::page_size>;
  using query_type = std::conditional_t<Config::query == query_source::shared, shared_query<Config>,
                                        global_query<Config>>;
  static constexpr bool is_resident = Config::query == query_source::registers;
  static constexpr int resident_heads =
      is_resident ? (Config::heads + block_heads - 1) / block_heads * block_heads : 1;

 public:
  struct shared_state {
    // Of resident q; every wave has its own, so that no wave waits for another.
    alignas(16) float weights[units_per_step][resident_heads];
  };

  KINDEX_DEVICE unit_engine(const args_type& args, char* storage, shared_state& state)
      : args_(args), query_(storage), wave_(wave_id()), weights_(state.weights[wave_]) {}

  /// All of a block's work, by all of its threads: waves take turns with the units.
  KINDEX_DEVICE void run() {
    for_each_piece(args_, divide_work(args_, sequence_start_cost), sequence_start_cost,
                   [&](int seq, int num_tokens, int first, int end, bool) {
                     const unit_run own = {seq, num_tokens, first + wave_, end, units_per_step};
                     if constexpr (is_resident) {
                       if (own.first < end) run_with_resident_query(own);
                     } else {
                       query_.template load_sequence<block_size>(args_, seq, wave_);
                       if (own.first < end) run_streamed<Config>(args_, query_, own);
                     }
                   });
  }

  /// All waves take turns.
  KINDEX_DEVICE auto pieces_to_fill() const {
    constexpr int waves = block_size / wave_size;
    const std::int64_t turn = std::int64_t{gridDim.x} * waves;
    return [turn, piece = std::int64_t{blockIdx.x} * waves + wave_ - turn]() mutable {
      return piece += turn;
    };
  }

 private:
  KINDEX_DEVICE void run_with_resident_query(const unit_run& run) {
    const unsigned lane = fresh_lane_id();
    const int head = static_cast<int>(lane % resident_heads);
    weights_[head] = load_weight(args_, run.seq, 0, head, Config::heads);
    run_resident<Config>(args_, reinterpret_cast<const char*>(weights_) + lane / 32 * unit_bytes,
                         run);
  }

  const args_type& args_;
  query_type query_;
  int wave_;
  float* weights_;
};

#endif  // KINDEX_TARGET_CDNA

}  // namespace detail::gfx9
KINDEX_NAMESPACE_END
