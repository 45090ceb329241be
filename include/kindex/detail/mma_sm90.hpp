// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Hopper's machinery in the role that the logits need: warpgroup matrix instructions on operands in
// shared memory, bulk copies, and the barriers that tie the two together.
//
// Operands without swizzle are sets of core matrices, 8 rows x 16 bytes, 128 bytes in a row. A
// preshuffled tile of 16 tokens x D bytes is made of exactly these: for dims 16u..+15, tokens 0-7
// and then tokens 8-15.
// Source: PTX ISA, sections on wgmma, mbarrier, cp.async.bulk, createpolicy and elect.sync.
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
/// The phase does not end before so many bytes have come, nor without the arrivals.
KINDEX_DEVICE void expect(barrier* b, std::uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
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
/// True for one lane of a warp that is all together. The compiler knows that it is one: what it
/// does alone needs no loop over lanes, which each bulk copy of lanes that differ is made into.
KINDEX_DEVICE bool elected() {
  std::uint32_t one;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xFFFFFFFF;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(one));
  return one != 0;
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

/// When L2 drops what a copy reads. Volatile: a launch need not wait for it before it is used.
using cache_policy = std::uint64_t;

KINDEX_DEVICE cache_policy evict_normal() {
  cache_policy policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
KINDEX_DEVICE cache_policy evict_first() {
  cache_policy policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Multiples of 16 bytes, 16-byte aligned; completes on the barrier that expects the bytes.
KINDEX_DEVICE void copy_bulk(void* to, const void* from, std::uint32_t bytes, barrier* b,
                             cache_policy policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(b)), "l"(policy)
      : "memory");
}
/// 4 bytes of one thread.
KINDEX_DEVICE void copy_async(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
/// One arrival on the barrier, once this thread's copy_async so far are complete.
KINDEX_DEVICE void arrive_when_copied(barrier* b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(b))
               : "memory");
}

// Matrix instructions -----------------------------------------------------------------------------

/// Operand in shared memory: where it begins, and without swizzle how far it is to the core
/// matrices of the next 16 dims. Adding n moves it by 16 n bytes.
using operand = std::uint32_t;
/// The same, how far it is to the next 8 rows, and how they lie.
using descriptor = std::uint64_t;
/// Rows of 128 or 64 bytes whose 16-byte units are in another order: bits 4-6 of an address, or 4
/// and 5, are inverted where those three places higher are set.
enum class swizzle : std::uint8_t { none = 0, of_128_bytes = 1, of_64_bytes = 2 };

KINDEX_DEVICE operand operand_at(const void* start, std::uint32_t dim_step_bytes = 0) {
  return (shared_address(start) & 0x3FFFFu) >> 4 | dim_step_bytes >> 4 << 16;
}
KINDEX_DEVICE descriptor descriptor_of(operand rows, std::uint32_t row_step_bytes,
                                       swizzle order = swizzle::none) {
  return descriptor{static_cast<unsigned>(order)} << 62 | descriptor{row_step_bytes >> 4} << 32 |
         rows;
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

#define KINDEX_NAMES_4 "%0, %1, %2, %3"
#define KINDEX_NAMES_8 KINDEX_NAMES_4 ", %4, %5, %6, %7"
#define KINDEX_NAMES_16 KINDEX_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define KINDEX_NAMES_32 \
  KINDEX_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KINDEX_NAMES_64                                                              \
  KINDEX_NAMES_32                                                                    \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KINDEX_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KINDEX_SUMS_8(i) KINDEX_SUMS_4(i), KINDEX_SUMS_4(i + 4)
#define KINDEX_SUMS_16(i) KINDEX_SUMS_8(i), KINDEX_SUMS_8(i + 8)
#define KINDEX_SUMS_32(i) KINDEX_SUMS_16(i), KINDEX_SUMS_16(i + 16)
#define KINDEX_SUMS_64(i) KINDEX_SUMS_32(i), KINDEX_SUMS_32(i + 32)
/// One instruction; `sums` is half of `columns`, and then come the names and values of what else it
/// reads.
#define KINDEX_WGMMA(columns, sums, tokens, heads, accumulate, ...)                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate                                      \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" #columns                                        \
               "k32.f32.e4m3.e4m3 {" KINDEX_NAMES_##sums "}, " tokens ", " heads ", p, 1, 1;\n}\n" \
               : KINDEX_SUMS_##sums(0)                                                             \
               : __VA_ARGS__)

/// d (+)= tokens x heads: 64 tokens x Columns heads over 32 dims. Thread: tokens 16*warp + lane/4
/// (d[4j], d[4j+1]) and 8 more (d[4j+2], d[4j+3]); columns 8j + 2*(lane%4) and 1 more.
template <int Columns>
KINDEX_DEVICE void multiply(float (&d)[Columns / 2], const token_fragment& tokens, descriptor b,
                            int accumulate) {
  const std::uint32_t(&a)[4] = tokens.word;
#define KINDEX_INPUTS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)
  if constexpr (Columns == 8) {
    KINDEX_WGMMA(8, 4, "{%4, %5, %6, %7}", "%8", "%9", KINDEX_INPUTS);
  } else if constexpr (Columns == 16) {
    KINDEX_WGMMA(16, 8, "{%8, %9, %10, %11}", "%12", "%13", KINDEX_INPUTS);
  } else if constexpr (Columns == 32) {
    KINDEX_WGMMA(32, 16, "{%16, %17, %18, %19}", "%20", "%21", KINDEX_INPUTS);
  } else if constexpr (Columns == 64) {
    KINDEX_WGMMA(64, 32, "{%32, %33, %34, %35}", "%36", "%37", KINDEX_INPUTS);
  } else {
    static_assert(Columns == 128, "kindex: on Hopper a Config's heads are 8, 16, 32 or 64");
    KINDEX_WGMMA(128, 64, "{%64, %65, %66, %67}", "%68", "%69", KINDEX_INPUTS);
  }
#undef KINDEX_INPUTS
}

/// The same with tokens where they lie in shared memory.
template <int Columns>
KINDEX_DEVICE void multiply(float (&d)[Columns / 2], descriptor a, descriptor b, int accumulate) {
#define KINDEX_INPUTS "l"(a), "l"(b), "r"(accumulate)
  if constexpr (Columns == 8) {
    KINDEX_WGMMA(8, 4, "%4", "%5", "%6", KINDEX_INPUTS);
  } else if constexpr (Columns == 16) {
    KINDEX_WGMMA(16, 8, "%8", "%9", "%10", KINDEX_INPUTS);
  } else if constexpr (Columns == 32) {
    KINDEX_WGMMA(32, 16, "%16", "%17", "%18", KINDEX_INPUTS);
  } else if constexpr (Columns == 64) {
    KINDEX_WGMMA(64, 32, "%32", "%33", "%34", KINDEX_INPUTS);
  } else {
    static_assert(Columns == 128, "kindex: on Hopper a Config's heads are 8, 16, 32 or 64");
    KINDEX_WGMMA(128, 64, "%64", "%65", "%66", KINDEX_INPUTS);
  }
#undef KINDEX_INPUTS
}

#undef KINDEX_WGMMA
#undef KINDEX_SUMS_64
#undef KINDEX_SUMS_32
#undef KINDEX_SUMS_16
#undef KINDEX_SUMS_8
#undef KINDEX_SUMS_4
#undef KINDEX_NAMES_64
#undef KINDEX_NAMES_32
#undef KINDEX_NAMES_16
#undef KINDEX_NAMES_8
#undef KINDEX_NAMES_4

#endif  // KINDEX_TARGET_SM90A

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
