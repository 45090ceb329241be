// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Stands between the tests and the three operations: what the mutant has a kernel for goes to the
// mutant, everything else to the library as it is. The linker redirects the tests' calls here
// (--wrap); check.sh passes the symbols of the operations.
#include <hip/hip_runtime_api.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include <kindex/params.hpp>

#include "registry.hpp"

namespace {

using kindex_test::mutant_operation;

bool none(const void*, hipStream_t, hipError_t&) { return false; }

// Constant initialisation: registrations come before any dynamic one of this file.
mutant_operation mutant_store = none;
mutant_operation mutant_gather = none;
mutant_operation mutant_logits = none;

// How often a mutated kernel was called: said when the program ends, so that a survivor which no
// test ever called is told from one that no test noticed.
struct call_counter {
  std::atomic<long> calls{0};
  ~call_counter() { std::fprintf(stderr, "mutant: %ld calls\n", calls.load()); }
} counter;

template <class Params>
hipError_t mutant_or_library(mutant_operation mutant,
                             hipError_t (*library)(const Params&, hipStream_t),
                             const Params& params, hipStream_t stream) {
  hipError_t status = hipSuccess;
  if (!mutant(&params, stream, status)) return library(params, stream);
  ++counter.calls;
  return status;
}

}  // namespace

kindex_test::mutant_registration::mutant_registration(int number, mutant_operation store,
                                                      mutant_operation gather,
                                                      mutant_operation logits) {
  const char* chosen = std::getenv("KINDEX_MUTANT");
  if (chosen == nullptr || std::atoi(chosen) != number) return;
  mutant_store = store;
  mutant_gather = gather;
  mutant_logits = logits;
}

#define WRAP(operation, params_type, symbol)                                              \
  hipError_t library_##operation(const kindex::params_type&,                              \
                                 hipStream_t) __asm__("__real_" symbol);                  \
  hipError_t wrapped_##operation(const kindex::params_type&,                              \
                                 hipStream_t) __asm__("__wrap_" symbol);                  \
  hipError_t wrapped_##operation(const kindex::params_type& params, hipStream_t stream) { \
    return mutant_or_library(mutant_##operation, library_##operation, params, stream);    \
  }

WRAP(store, store_params, KINDEX_STORE_SYMBOL)
WRAP(gather, gather_params, KINDEX_GATHER_SYMBOL)
WRAP(logits, paged_mqa_logits_params, KINDEX_LOGITS_SYMBOL)
