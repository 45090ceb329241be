// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Introspection of the gfx942 emulator. Nothing here is linked against: a program looks the
// functions up with dlsym(RTLD_DEFAULT, "kindex_emulator_counters") and so on, finds nothing when
// a real HIP runtime is loaded, and runs either way.

#ifndef KINDEX_TESTS_EMULATOR_EMULATOR_H_
#define KINDEX_TESTS_EMULATOR_EMULATOR_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Raised whenever a field or function changes meaning; fields are only ever appended.
#define KINDEX_EMULATOR_VERSION 1

// Sums over all launches since the last reset. An "instruction" is one wave's instruction.
struct kindex_emulator_counters {
  uint64_t launches;
  uint64_t workgroups;
  uint64_t waves;

  // wave_instructions is the sum of the classes below it.
  uint64_t wave_instructions;
  uint64_t valu;  // without mfma and transcendental
  uint64_t salu;
  uint64_t mfma;
  uint64_t transcendental;
  uint64_t vector_loads;  // global, flat, buffer and scratch loads
  uint64_t vector_stores;
  uint64_t vector_atomics;
  uint64_t smem;
  uint64_t lds_ops;  // every ds_ instruction
  uint64_t branch;
  uint64_t waitcnt;
  uint64_t nop;
  uint64_t other;  // barriers, cache control, priorities, end of program

  // Global memory. Lane bytes: access width times active lanes. Segments: distinct aligned 64-byte
  // pieces that one instruction touches, summed over instructions; segment bytes: distinct bytes
  // inside them. 1 - distinct/(64 * segments) is what is fetched in vain.
  uint64_t lane_bytes_loaded;
  uint64_t lane_bytes_stored;
  uint64_t segments_loaded;
  uint64_t segments_stored;
  uint64_t distinct_bytes_loaded;
  uint64_t distinct_bytes_stored;

  // Vector loads by bytes per lane: 1, 2, 4, 8, 12, 16.
  uint64_t loads_by_width[6];

  // Matrix and issue cycles, per SIMD, as if nothing ever stalled.
  uint64_t mfma_flops;
  uint64_t mfma_cycles;
  uint64_t valu_cycles;  // valu and transcendental

  // Passes over the 32 LDS banks, and how many there would be without conflicts.
  uint64_t lds_cycles;
  uint64_t lds_ideal_cycles;

  uint64_t max_lds_bytes;  // largest static plus dynamic LDS of a launch
  uint64_t barriers;

  // Of the most recent kernel.
  uint32_t last_vgprs;
  uint32_t last_agprs;
  uint32_t last_sgprs;
  uint32_t last_scratch_bytes;
};

// Traffic to one watched range of global memory.
struct kindex_emulator_traffic {
  uint64_t loads;   // vector load instructions that touched the range
  uint64_t stores;  // vector store and atomic instructions that did
  uint64_t lane_bytes_loaded;
  uint64_t lane_bytes_stored;
  uint64_t segments_loaded;
  uint64_t segments_stored;
  uint64_t distinct_bytes_loaded;  // distinct within one instruction
  uint64_t distinct_bytes_stored;
  uint64_t scalar_bytes_loaded;  // through s_load
};

#pragma GCC visibility push(default)

int kindex_emulator_version(void);

// 0: fp8 is E4M3FNUZ and E5M2FNUZ, the device is a gfx942. 1: OCP E4M3FN and E5M2, a gfx950.
void kindex_emulator_set_fp8(int ocp);

// Worker threads of later launches; 0 chooses one per processor.
void kindex_emulator_threads(int count);

void kindex_emulator_counters(struct kindex_emulator_counters* out);
void kindex_emulator_counters_reset(void);

// Counts traffic to [base, base + bytes) from now on. Returns an id, or -1 when too many are
// watched. Reset and unwatch take an id, or -1 for all of them.
int kindex_emulator_watch(const void* base, size_t bytes);
int kindex_emulator_watch_read(int id, struct kindex_emulator_traffic* out);
void kindex_emulator_watch_reset(int id);
void kindex_emulator_unwatch(int id);

// Findings (faults in a kernel) so far; the text of the first finding of the latest launch that
// had any, its length is returned. expect_findings(1) keeps them off stderr.
uint64_t kindex_emulator_findings(void);
size_t kindex_emulator_last_finding(char* text, size_t size);
void kindex_emulator_expect_findings(int expected);

// 0 switches the expensive checks off, as the environment variable KINDEX_EMULATOR_CHECKS=0.
void kindex_emulator_checks(int enabled);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif  // KINDEX_TESTS_EMULATOR_EMULATOR_H_
