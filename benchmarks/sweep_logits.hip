// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Logits of the sweep: every page format with 64 heads and one row; the main one in other shapes.
#include "kernels.hpp"
#include "typed_calls.hpp"

namespace kindex_bench {
namespace {

/// More than one row a sequence: q in shared memory, as kindex::paged_mqa_logits has it.
template <class Geometry>
hipError_t shared_logits(Geometry, const kindex::paged_mqa_logits_params& params,
                         hipStream_t stream) {
  using config = kindex::paged_mqa_logits_config<Geometry, kindex::query_source::shared>;
  return kindex::paged_mqa_logits<config>(params, stream);
}

}  // namespace

hipError_t paged_mqa_logits(const kindex::paged_mqa_logits_params& params, hipStream_t stream) {
  if (params.next_n == 1 && params.num_heads == 64) {
    return with_geometry<preshuffled<64>, preshuffled<16>, preshuffled<256>, plain<64>, plain<1>>(
        params.cache, [&](auto geometry) { return resident_logits<64>(geometry, params, stream); });
  }
  return with_geometry<preshuffled<64>>(params.cache, [&](auto geometry) {
    return params.next_n == 1 && params.num_heads == 32
               ? resident_logits<32>(geometry, params, stream)
               : shared_logits(geometry, params, stream);
  });
}

}  // namespace kindex_bench
