// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the emulator counted. Its functions are looked up at run time, so that the same program runs
// on a GPU.
#pragma once

#include <cstddef>

// The C interface has functions with their structs' names.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "emulator/emulator.h"
#pragma GCC diagnostic pop

namespace kindex_bench {

/// Counters of a piece of work, and the traffic to one range of memory meanwhile.
struct emulator_counts {
  struct kindex_emulator_counters total = {};
  struct kindex_emulator_traffic watched = {};
};

/// False on a GPU, and under an emulator without counters.
bool has_emulator_counters();

/// Faults that the emulator found in kernels so far.
unsigned long long emulator_findings();

/// Counts from its making on. One at a time.
class emulator_recording {
 public:
  emulator_recording(const void* watched, std::size_t bytes);
  emulator_recording(const emulator_recording&) = delete;
  emulator_recording& operator=(const emulator_recording&) = delete;
  ~emulator_recording();
  emulator_counts counts() const;

 private:
  int watch_ = -1;
};

}  // namespace kindex_bench
