// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The inner loop of the logits on Hopper. One block fills a multiprocessor: a warpgroup of loaders
// keeps a ring of K and scales in shared memory full, 128 tokens ("a pair" of units) a stage, and
// three warpgroups of computers empty it. The ring carries on across sequences: q of the next one
// is fetched while the last is computed. Only the loaders know how the work is divided; what a
// computer needs to know lies beside q.
#pragma once

#include <hip/hip_runtime.h>

#include "../config.hpp"
#include "block_memory_sm90.hpp"
#include "computer_sm90.hpp"
#include "launch_order.hpp"
#include "loader_sm90.hpp"
#include "mma_sm90.hpp"
#include "plan_sm90.hpp"
#include "wave.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

template <class Config>
class unit_engine {
  using memory_type = block_memory<Config>;
  using args_type = typename memory_type::args_type;

 public:
  using shared_state = typename memory_type::ring_state;

  KINDEX_DEVICE unit_engine(const args_type& args, char* storage, shared_state& ring)
      : args_(args), memory_(args, storage, ring) {}

  /// All of a block's work, by all of its threads.
  KINDEX_DEVICE void run() {
    let_next_launch_begin();
    // The compiler must see that a warp does not diverge around the matrix instructions.
    const auto thread = static_cast<unsigned>(threadIdx.x);
    const int warpgroup = shuffle(static_cast<int>(thread / warpgroup_size), 0);
    if (warpgroup > 0) {
      if (thread >= block_size - wave_size) memory_.init_barriers();
      wait_for_earlier_launches();
      if (thread / wave_size == warps_per_group) prefetch_probable_page_ids(args_);
      memory_.wait_for_barriers();
      set_max_registers<computer_registers, true>();
      const auto warp = static_cast<int>(thread % warpgroup_size / wave_size);
      computer<Config>(args_, memory_, warpgroup, warp).run();
    } else {
      set_max_registers<loader_registers, false>();
      wait_for_earlier_launches();
      // Nor around what one of the loaders' warps does alone: every shuffle after it would be
      // guarded.
      const unsigned warp = shuffle(thread / wave_size, 0) % warps_per_group;
      loader<Config>(args_, memory_, static_cast<int>(warp)).run();
    }
  }

  /// Blocks take turns, and within a block waves take what is next once they have nothing else to
  /// do. So K is still read while most of it is filled, by the loaders of q.
  KINDEX_DEVICE auto pieces_to_fill() const {
    return [this] { return std::int64_t{memory_.take_fill_piece()} * gridDim.x + blockIdx.x; };
  }

 private:
  const args_type& args_;
  memory_type memory_;
};

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
