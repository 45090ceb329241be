// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Store and gather of the scenario.
#include "kernels.hpp"
#include "typed_calls.hpp"

namespace kindex_bench {

hipError_t store(const kindex::store_params& params, hipStream_t stream) {
  return with_geometry<preshuffled<64>, plain<64>, plain<1>>(
      params.cache, [&](auto geometry) { return bf16_store(geometry, params, stream); });
}

hipError_t gather(const kindex::gather_params& params, hipStream_t stream) {
  return with_geometry<preshuffled<64>>(
      params.cache, [&](auto geometry) { return raw_gather(geometry, params, stream); });
}

}  // namespace kindex_bench
