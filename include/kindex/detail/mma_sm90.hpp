// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Hopper's machinery in the role that the logits need: warpgroup matrix instructions on operands in
// shared memory, bulk copies, and the barriers that tie the two together.
//
// Operands are sets of core matrices, 8 rows x 16 bytes, 128 bytes in a row. A preshuffled tile of
// 16 tokens x D bytes is made of exactly these: for dims 16u..+15, tokens 0-7 and then tokens 8-15.
// Source: PTX ISA, sections on wgmma, mbarrier and cp.async.bulk.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

#include "../config.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

#if KINDEX_TARGET_SM90A

KINDEX_DEVICE std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers ----------------------------------------------------------------------------------------

using barrier = std::uint64_t;

KINDEX_DEVICE void init_barrier(barrier* b, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals));
}
KINDEX_DEVICE void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
KINDEX_DEVICE void arrive(barrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
KINDEX_DEVICE void arrive_expecting(barrier* b, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
}
KINDEX_DEVICE void wait(barrier* b, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
/// So many threads of the block, whole warps, meet, each wherever it is in the code. Barrier 0 is
/// that of __syncthreads.
template <int Barrier, int Threads>
KINDEX_DEVICE void sync_threads() {
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(Barrier), "n"(Threads) : "memory");
}
/// The same for a warp that others wait for, and that waits for nobody.
template <int Barrier, int Threads>
KINDEX_DEVICE void announce() {
  asm volatile("barrier.cta.arrive %0, %1;" ::"n"(Barrier), "n"(Threads) : "memory");
}
/// Orders ordinary accesses to shared memory before those of the matrix unit and the copy engine.
KINDEX_DEVICE void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Moves registers between warpgroups: every thread of one has at most this many from here on.
template <int Registers, bool More>
KINDEX_DEVICE void set_max_registers() {
  if constexpr (More) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
  }
}

// Copies to shared memory -------------------------------------------------------------------------

/// Multiples of 16 bytes, 16-byte aligned; completes on the barrier that expects the bytes.
KINDEX_DEVICE void copy_bulk(void* to, const void* from, std::uint32_t bytes, barrier* b) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(b))
      : "memory");
}
/// 16 or 4 bytes of one thread.
template <int Bytes>
KINDEX_DEVICE void copy_async(void* to, const void* from) {
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
                 : "memory");
  }
}
/// Until this thread's copy_async so far are complete.
KINDEX_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/// One arrival on the barrier, once this thread's copy_async so far are complete.
KINDEX_DEVICE void arrive_when_copied(barrier* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(b))
               : "memory");
}

// Matrix instructions -----------------------------------------------------------------------------

/// Operand in shared memory without swizzle, whose core matrices of neighbouring heads lie side by
/// side: the half of its descriptor that is not the same for all. Adding n moves it by 16 n bytes.
using operand = std::uint32_t;

/// `dim_step_bytes`: from a core matrix to that of the next 16 dims.
KINDEX_DEVICE operand operand_at(const void* start, std::uint32_t dim_step_bytes) {
  return (shared_address(start) & 0x3FFFFu) >> 4 | dim_step_bytes >> 4 << 16;
}

KINDEX_DEVICE void begin_multiply() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KINDEX_DEVICE void commit_multiply() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most Pending committed groups are unfinished.
template <int Pending>
KINDEX_DEVICE void wait_multiply() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// A warp's share of 64 tokens x 32 dims, in registers: 16 tokens.
struct token_fragment {
  std::uint32_t word[4];
};

/// Loads four core matrices from shared memory; lane l names row l%8 of matrix l/8. The first two
/// are tokens 0-7 and 8-15 of the warp for 16 dims, the other two for the next 16 dims.
KINDEX_DEVICE token_fragment load_fragment(const void* row) {
  token_fragment a;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a.word[0]), "=r"(a.word[1]), "=r"(a.word[2]), "=r"(a.word[3])
               : "r"(shared_address(row))
               : "memory");
  return a;
}

/// d (+)= a x b: 64 tokens x Columns heads over 32 dims. Thread: tokens 16*warp + lane/4 (d[4j],
/// d[4j+1]) and 8 more (d[4j+2], d[4j+3]); columns 8j + 2*(lane%4) and 1 more.
template <int Columns>
KINDEX_DEVICE void multiply(float (&d)[Columns / 2], const token_fragment& a, operand heads,
                            int accumulate) {
  static_assert(Columns == 8 || Columns == 16 || Columns == 32 || Columns == 64,
                "kindex: on Hopper a Config's heads are 8, 16, 32 or 64");
  constexpr std::uint64_t core_matrix_bytes = 128;
  const std::uint64_t b = core_matrix_bytes >> 4 << 32 | heads;
  if constexpr (Columns == 8) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %9, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "%8, p, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(accumulate));
  } else if constexpr (Columns == 16) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, p, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7])
        : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(accumulate));
  } else if constexpr (Columns == 32) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15])
        : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(accumulate));
  } else if constexpr (Columns == 64) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
          "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
          "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
          "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b), "r"(accumulate));
  }
}

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
