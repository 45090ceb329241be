// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/instantiate.hpp"

namespace kindex_test {

hipError_t store(const kindex::store_params& params, hipStream_t stream) {
  return kindex::store(params, stream);
}

}  // namespace kindex_test
