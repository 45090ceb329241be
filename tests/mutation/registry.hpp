// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The mutants of a program. The variable KINDEX_MUTANT picks the one that runs.
#pragma once

#include <hip/hip_runtime_api.h>

namespace kindex_test {

/// Runs an operation, whose params the pointer is to, if the mutant has the kernel for it.
using mutant_operation = bool (*)(const void* params, hipStream_t stream, hipError_t& status);

struct mutant_registration {
  mutant_registration(int number, mutant_operation store, mutant_operation gather,
                      mutant_operation logits);
};

}  // namespace kindex_test
