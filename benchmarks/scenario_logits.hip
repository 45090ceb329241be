// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Logits of the scenario.
#include "kernels.hpp"
#include "typed_calls.hpp"

namespace kindex_bench {

hipError_t paged_mqa_logits(const kindex::paged_mqa_logits_params& params, hipStream_t stream) {
  return with_geometry<preshuffled<64>, plain<64>, plain<1>>(
      params.cache, [&](auto geometry) { return chosen_logits(geometry, params, stream); });
}

}  // namespace kindex_bench
