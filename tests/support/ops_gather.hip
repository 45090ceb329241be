// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/instantiate.hpp"

namespace kindex_test {

hipError_t gather(const kindex::gather_params& params, hipStream_t stream) {
  return kindex::gather(params, stream);
}

}  // namespace kindex_test
