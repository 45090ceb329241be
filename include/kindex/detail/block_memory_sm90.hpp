// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What lies in a block's shared memory on Hopper, and the barriers by which loaders and computers
// tell each other what is there and what is free.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "logits_work.hpp"
#include "mma_sm90.hpp"
#include "page_stream_sm90.hpp"
#include "plan_sm90.hpp"
#include "stage_sm90.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

/// Place in a ring: stage, and parity of the barrier phase that belongs to it.
struct ring_position {
  int stage = 0;
  std::uint32_t parity = 0;

  /// By a step that divides the number of stages.
  KINDEX_DEVICE void advance(int num_stages, int step = 1) {
    stage += step;
    if (stage >= num_stages) {
      stage -= num_stages;
      parity ^= 1;
    }
  }
  /// The place so many steps before, num_stages at most. Where there was none yet a wait for it
  /// ends at once.
  KINDEX_DEVICE ring_position earlier(int num_stages, int steps) const {
    return stage >= steps ? ring_position{stage - steps, parity}
                          : ring_position{stage - steps + num_stages, parity ^ 1};
  }
};

/// What computers do with one filling of a slot for q: rows of one sequence, tokens of it.
struct query_piece {
  int seq;
  int first_token;
  int end_token;
  int first_row;
  int num_rows;
  bool last;  // there is no more work
};

/// Every thread that writes or reads something arrives for itself. One lane could arrive for its
/// warp, but that is slower, and compute-sanitizer does not follow it.
template <class Config>
class block_memory {
  using stream_type = page_stream<typename Config::geometry>;
  using layout = stage_layout<typename Config::geometry>;

 public:
  using args_type = logits_args<Config::geometry::page_size>;
  /// The warp that copies q, and those that put it in order: those that do nothing else, or all.
  static constexpr int query_copier = stream_type::num_warps % warps_per_group;
  static constexpr int first_query_orderer = stream_type::bulk ? query_copier + 1 : 0;
  static constexpr int num_query_orderers = warps_per_group - first_query_orderer;

  /// Weights of a row lie in the order of the lanes that need them. A lane has two neighbouring
  /// columns of every 8 (mma_sm90.hpp): those of 16 lie together, for one load.
  static constexpr int weights_at_once = Config::heads % 16 == 0 ? 4 : 2;
  static KINDEX_DEVICE int place_of_weight(int head) {
    if constexpr (weights_at_once == 2) return head;
    const int pair = head / 2 % 4;
    const int matrix = head / 8 % 2;
    return head / 16 * 16 + pair * 4 + matrix * 2 + head % 2;
  }

  /// The part of a fixed size.
  struct ring_state {
    barrier full[max_stages];
    barrier empty[max_stages];
    barrier query_copied[max_query_slots];  // as it lies in memory
    barrier query_full[max_query_slots];
    barrier query_empty[max_query_slots];
    query_piece pieces[max_query_slots];
    block_work work;
    std::uint32_t num_fill_pieces_taken;  // of those that are this block's to fill
    std::uint32_t valid[max_stages][layout::num_valid_words];
  };

  ring_state& ring;

  KINDEX_DEVICE block_memory(const args_type& args, char* storage, ring_state& state)
      : ring(state), plan_(args.shared), num_heads_(args.num_heads) {
    query_ = storage;
    weights_ = storage + plan_.num_query_slots * plan_.query_bytes;
    stages_ = weights_ + plan_.num_query_slots * plan_.weight_bytes;
  }

  /// q of a slot (query_layout_sm90.hpp).
  KINDEX_DEVICE char* query_of(int slot) const { return query_ + slot * plan_.query_bytes; }
  /// The weights of its rows.
  KINDEX_DEVICE float* weights_of(int slot) const {
    return reinterpret_cast<float*>(weights_ + slot * plan_.weight_bytes);
  }
  /// Tokens that each of its rows sees; they lie behind the weights.
  KINDEX_DEVICE int* visible_of(int slot, int num_rows) const {
    return reinterpret_cast<int*>(weights_of(slot) + num_rows * num_heads_);
  }
  /// K and scales of a pair.
  KINDEX_DEVICE char* stage(int index) const { return stages_ + index * layout::bytes; }
  /// Logits that wait: a computer's own are held_stride apart.
  KINDEX_DEVICE float* held() const { return reinterpret_cast<float*>(stage(plan_.num_stages)); }

  /// By the warp that copies q, which does not wait for the others to do so.
  KINDEX_DEVICE void init_copy_barriers() const {
    if (lane_id() == 0) {
#pragma unroll
      for (int i = 0; i < max_query_slots; ++i) init_barrier(&ring.query_copied[i], 1);
      publish_barriers();
    }
    __syncwarp();
  }
  /// The others, by one warp of computers.
  KINDEX_DEVICE void init_barriers() const {
    if (lane_id() == 0) {
      ring.num_fill_pieces_taken = 0;
#pragma unroll
      for (int i = 0; i < max_stages; ++i) {
        init_barrier(&ring.full[i], stream_type::num_arrivals);
        init_barrier(&ring.empty[i], warpgroup_size);
      }
#pragma unroll
      for (int i = 0; i < max_query_slots; ++i) {
        // The copier's lanes: their copies, and what they wrote themselves.
        init_barrier(&ring.query_full[i], (2 + num_query_orderers) * wave_size);
        init_barrier(&ring.query_empty[i], num_computers * warpgroup_size);
      }
      publish_barriers();
    }
    __syncwarp();
    if constexpr (stream_type::bulk) announce<k_loader, 2 * wave_size>();
  }
  /// By all, but for a warp that loads nothing but K.
  static KINDEX_DEVICE void wait_for_barriers() {
    sync_threads<everyone, stream_type::bulk ? block_size - wave_size : block_size>();
  }
  /// By that warp.
  static KINDEX_DEVICE void wait_for_barriers_as_k_loader() {
    sync_threads<k_loader, 2 * wave_size>();
  }

  /// By the warp that loads K: it alone divides the work. If every loader did it for itself, K
  /// would come later where a launch begins before the last one has ended.
  KINDEX_DEVICE void tell_work(const block_work& work) const {
    if (lane_id() == 0) ring.work = work;
    __syncwarp();
    announce<work_is_known, 2 * wave_size>();
  }
  /// By the copier of q.
  KINDEX_DEVICE block_work hear_of_work() const {
    sync_threads<work_is_known, 2 * wave_size>();
    return ring.work;
  }

  /// By a warp, for itself: how many of the block's pieces to fill had been taken.
  KINDEX_DEVICE std::uint32_t take_fill_piece() const {
    const std::uint32_t before = lane_id() == 0 ? atomicAdd(&ring.num_fill_pieces_taken, 1u) : 0;
    return shuffle(before, 0);
  }

 private:
  // Barriers of the block. Not __syncthreads, which would have to be at one place in the code.
  static constexpr int everyone = 1;
  static constexpr int k_loader = 2;
  static constexpr int work_is_known = 3;

  const shared_plan& plan_;
  int num_heads_;
  char* query_;
  char* weights_;
  char* stages_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
