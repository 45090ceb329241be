// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/instantiate.hpp"
#include "support/ops_logits.hpp"

namespace kindex_test {

hipError_t paged_mqa_logits_d64(const kindex::paged_mqa_logits_params& params, hipStream_t stream) {
  return kindex::detail::dispatch_paged_mqa_logits<64>(params, stream);
}

}  // namespace kindex_test
