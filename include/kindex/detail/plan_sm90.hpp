// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How a block of the logits on Hopper divides a multiprocessor: who does what, with how many
// registers, and what lies in shared memory.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../cache_view.hpp"
#include "../config.hpp"
#include "logits_work.hpp"
#include "stage_sm90.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

inline constexpr int num_computers = 3;  // warpgroups
inline constexpr int block_size = (1 + num_computers) * warpgroup_size;

/// Shared memory of a multiprocessor less what the compiler and the work division take.
inline constexpr int max_dynamic_shared_bytes = 224 * 1024;
/// The slots for q come first (query_layout_sm90.hpp).
inline constexpr int shared_alignment = 1024;
/// Two slots for q take no more, so that a whole ring has room beside them. One slot may leave room
/// for half a ring: that K is read once for all rows is worth more.
inline constexpr int max_paired_query_bytes = 96 * 1024;
/// Enough in flight to hide the memory's latency; more would let some multiprocessors take
/// bandwidth from others, and the slowest decides. A multiple of num_computers: a stage always
/// serves the same warpgroup, which therefore never waits for a phase before the last one has
/// ended.
inline constexpr int max_stages = 6;
/// A block's last pairs would all be under way together. Only so many are at a time, for the same
/// reason: multiprocessors that got less bandwidth catch up. Half of the stages, or all.
inline constexpr int max_last_stages = 3;
/// Two if they fit: while one is in use, the next sequence's q is fetched into the other.
inline constexpr int max_query_slots = 2;

/// Pairs of a warpgroup whose logits wait in shared memory to be written together. Memory that
/// turns from reading to writing and back loses far more than the bytes take.
inline constexpr int max_held_pairs = 8;
/// Every computer holds one of each row of a pair.
inline constexpr int held_stride = num_computers * warpgroup_size;

/// Whether L2, of 50 MB and more, has room for the logits of so many units beside what it is used
/// for meanwhile. That more than 24 MiB of them do not is a measurement (docs/h200.md).
KINDEX_HOST_DEVICE constexpr bool l2_keeps_logits(std::uint32_t units, int next_n) {
  constexpr std::uint32_t row_bytes = unit_tokens * sizeof(float);
  return std::uint64_t{units} * static_cast<std::uint32_t>(next_n) <= (24u << 20) / row_bytes;
}

/// Registers of a thread by role; together those of the multiprocessor. Loaders of pages of one
/// token make the addresses of several pairs at once.
inline constexpr int loader_registers = 104;
inline constexpr int computer_registers = 136;

/// Dynamic shared memory of a launch: slots for q and weights of as many rows as fit, then the ring
/// of K and scales, then logits that wait.
template <class Config>
constexpr shared_plan plan_shared_memory(std::int64_t next_n, std::int64_t num_heads) {
  constexpr int head_dim = Config::geometry::head_dim;
  constexpr int stage_bytes = stage_layout<typename Config::geometry>::bytes;
  const int heads = static_cast<int>(num_heads);
  const int rows = static_cast<int>(next_n);
  constexpr int held_row_bytes = held_stride * 4;
  constexpr int most_slot_bytes = max_dynamic_shared_bytes - num_computers * stage_bytes;
  const int most_rows = (most_slot_bytes - 128) / (heads * (head_dim + 4) + 4 + held_row_bytes);
  shared_plan plan = {};
  plan.rows_at_once = rows < most_rows ? rows : most_rows;
  plan.query_bytes = plan.rows_at_once * heads * head_dim;
  plan.weight_bytes = (plan.rows_at_once * (heads + 1) * 4 + 127) / 128 * 128;
  int slot_bytes = plan.query_bytes + plan.weight_bytes;
  const int held_pair_bytes = plan.rows_at_once * held_row_bytes;
  const bool paired = max_query_slots * slot_bytes <= max_paired_query_bytes &&
                      max_query_slots * slot_bytes + held_pair_bytes <= most_slot_bytes;
  plan.num_query_slots = paired ? max_query_slots : 1;
  slot_bytes *= plan.num_query_slots;
  const int stages = (max_dynamic_shared_bytes - slot_bytes - held_pair_bytes) / stage_bytes;
  plan.num_stages = stages < max_stages ? stages / num_computers * num_computers : max_stages;
  plan.total_bytes = slot_bytes + plan.num_stages * stage_bytes;
  const int held = (max_dynamic_shared_bytes - plan.total_bytes) / held_pair_bytes;
  plan.num_held_pairs = held < max_held_pairs ? held : max_held_pairs;
  plan.total_bytes += plan.num_held_pairs * held_pair_bytes;
  return plan;
}

/// What beginning a sequence costs a block, in units.
inline constexpr int sequence_start_cost = 2;

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

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
