// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Page ids of one sequence on their way from the table to the lanes that need them.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail {

#if KINDEX_DEVICE_COMPILER

/// A chunk of a sequence's row of the block table, one entry a lane, and the next chunk on its way.
/// Target, of each target:
///   int load(table_row, num_entries, first)   the entry `first` + lane; none beyond num_entries
///   int arrived(ids)                          what was loaded, before the next load begins
///   bool each_step_advances                   what the compiler may expect
template <class Target>
class page_ids {
 public:
  /// Chunks begin `chunk` entries apart, from first_entry on: fewer than lanes where the entries of
  /// one step may straddle two, so that they overlap by what a step can need beyond its first
  /// entry.
  KINDEX_DEVICE void start(const std::int32_t* table_row, int num_entries, int first_entry,
                           int chunk) {
    table_row_ = table_row;
    num_entries_ = num_entries;
    first_ = first_entry;
    chunk_ = chunk;
    ids_ = Target::load(table_row_, num_entries_, first_);
    next_ids_ = Target::load(table_row_, num_entries_, first_ + chunk_);
  }

  /// Makes the entries of a step, up to last_entry, available. Steps come in order.
  KINDEX_DEVICE void advance(int last_entry) {
    if (__builtin_expect(last_entry - first_ >= wave_size, Target::each_step_advances)) {
      first_ += chunk_;
      ids_ = Target::arrived(next_ids_);
      next_ids_ = Target::load(table_row_, num_entries_, first_ + chunk_);
    }
  }

  /// The id in an entry that is the same for all lanes.
  KINDEX_DEVICE std::uint32_t uniform_at(int entry) const {
    return static_cast<std::uint32_t>(broadcast(ids_, entry - first_));
  }

  /// The id in an entry that may differ from lane to lane; all lanes take part.
  KINDEX_DEVICE std::uint32_t at(int entry) const {
    return static_cast<std::uint32_t>(shuffle(ids_, entry - first_));
  }

 private:
  const std::int32_t* table_row_;
  int num_entries_;
  int first_;
  int chunk_;
  int ids_;
  int next_ids_;
};

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail
KINDEX_NAMESPACE_END
