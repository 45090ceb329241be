// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What include/kindex/detail/mma_sm90.hpp says in PTX, for the model: the same names, in its place.
// Source: PTX ISA, sections on wgmma, mbarrier, ldmatrix, cp.async.bulk and elect.sync.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>

#include "../config.hpp"
#include "../fp8.hpp"
#include "machine.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail::sm90 {

using barrier = std::uint64_t;

inline void init_barrier(barrier* b, std::uint32_t arrivals) {
  hopper_model::init_barrier(b, arrivals);
}
inline void publish_barriers() {}
inline void arrive(barrier* b) { hopper_model::arrive(b); }
inline void expect(barrier* b, std::uint32_t bytes) { hopper_model::expect(b, bytes); }
inline void arrive_expecting(barrier* b, std::uint32_t bytes) {
  hopper_model::expect(b, bytes);
  hopper_model::arrive(b);
}
inline void wait(barrier* b, std::uint32_t parity) { hopper_model::wait(b, parity); }
template <int Barrier, int Threads>
void sync_threads() {
  hopper_model::sync_threads(Barrier, Threads);
}
template <int Barrier, int Threads>
void announce() {
  hopper_model::announce(Barrier, Threads);
}
inline bool elected() {
  hopper_model::exchange(0);
  return hopper_model::lane() == 0;
}
inline void fence_async_proxy() {}
template <int Registers, bool More>
void set_max_registers() {}

inline void check_alignment(const void* to, const void* from, std::uint32_t bytes, unsigned grain) {
  if (reinterpret_cast<std::uintptr_t>(to) % grain != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % grain != 0 || bytes % grain != 0) {
    hopper_model::fail("a copy is not aligned");
  }
}

using cache_policy = std::uint64_t;
inline cache_policy evict_normal() { return 0; }
inline cache_policy evict_first() { return 1; }
/// By policy.
inline std::array<std::atomic<std::int64_t>, 2> bytes_copied;
inline void copy_bulk(void* to, const void* from, std::uint32_t bytes, barrier* b,
                      cache_policy policy) {
  bytes_copied[policy] += bytes;
  check_alignment(to, from, bytes, 16);
  hopper_model::copy(to, from, bytes, b);
}
inline void copy_async(void* to, const void* from) {
  check_alignment(to, from, 4, 4);
  hopper_model::copy(to, from, 4);
}
inline void arrive_when_copied(barrier* b) { hopper_model::arrive_when_copied(b); }

using operand = std::uint32_t;
using descriptor = std::uint64_t;

enum class swizzle : std::uint8_t { none = 0, of_128_bytes = 1, of_64_bytes = 2 };

inline operand operand_at(const void* start, std::uint32_t dim_step_bytes = 0) {
  return (hopper_model::shared_offset(start) & 0x3FFFFu) >> 4 | dim_step_bytes >> 4 << 16;
}

inline descriptor descriptor_of(operand rows, std::uint32_t row_step_bytes,
                                swizzle order = swizzle::none) {
  return descriptor{static_cast<unsigned>(order)} << 62 | descriptor{row_step_bytes >> 4} << 32 |
         rows;
}

struct token_fragment {
  std::uint32_t word[4];
};

inline token_fragment load_fragment(const void* row) {
  const std::uint64_t* rows = hopper_model::exchange(reinterpret_cast<std::uintptr_t>(row));
  token_fragment a;
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const unsigned lane = hopper_model::lane();
    const char* from = reinterpret_cast<const char*>(rows[matrix * 8 + lane / 4]);
    if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) hopper_model::fail("ldmatrix alignment");
    std::memcpy(&a.word[matrix], from + lane % 4 * 4, 4);
  }
  hopper_model::exchange(0);
  return a;
}

/// A matrix instruction that has not taken effect. K of this thread's tokens is with the four lanes
/// of its quad, or in shared memory.
struct matrix_instruction {
  float* d;
  int columns;
  token_fragment quad[4];
  descriptor a;  // 0: not in shared memory
  descriptor b;
  bool accumulate;
  bool last_of_group;
};
inline std::deque<matrix_instruction>& own_queue() {
  static std::array<std::deque<matrix_instruction>, 1024> queues;
  return queues[hopper_model::thread_index().x];
}

inline void begin_multiply() {}

template <int Columns>
void multiply(float (&d)[Columns / 2], const token_fragment& a, descriptor b, int accumulate) {
  matrix_instruction one = {d, Columns, {}, 0, b, accumulate != 0, false};
  for (unsigned half = 0; half < 2; ++half) {
    const std::uint64_t* all = hopper_model::exchange(
        a.word[2 * half] | static_cast<std::uint64_t>(a.word[2 * half + 1]) << 32);
    for (unsigned c = 0; c < 4; ++c) {
      const std::uint64_t words = all[hopper_model::lane() / 4 * 4 + c];
      one.quad[c].word[2 * half] = static_cast<std::uint32_t>(words);
      one.quad[c].word[2 * half + 1] = static_cast<std::uint32_t>(words >> 32);
    }
  }
  own_queue().push_back(one);
}
template <int Columns>
void multiply(float (&d)[Columns / 2], descriptor a, descriptor b, int accumulate) {
  own_queue().push_back({d, Columns, {}, a, b, accumulate != 0, false});
}
inline void commit_multiply() { own_queue().back().last_of_group = true; }

/// This thread's results of an instruction.
inline void execute(const matrix_instruction& one) {
  static const auto table = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; ++i) {
      values[static_cast<std::size_t>(i)] =
          static_cast<float>(fp8_decode(fp8_format::e4m3fn, static_cast<std::uint8_t>(i)));
    }
    return values;
  }();
  // One byte of an operand.
  const auto byte_of = [](descriptor rows, unsigned row, unsigned dim) {
    const auto field = [&](int shift) {
      return static_cast<std::uint32_t>(rows >> shift & 0x3FFF) << 4;
    };
    std::uint32_t at = field(0) + row / 8 * field(32);
    switch (static_cast<swizzle>(rows >> 62)) {
      case swizzle::none:
        at += dim / 16 * field(16) + row % 8 * 16 + dim % 16;
        break;
      case swizzle::of_128_bytes:
        at += row % 8 * 128 + dim;
        at ^= (at >> 7 & 7) << 4;
        break;
      case swizzle::of_64_bytes:
        at += row % 8 * 64 + dim;
        at ^= (at >> 7 & 3) << 4;
        break;
    }
    return static_cast<unsigned char>(*hopper_model::shared_at(at));
  };
  const unsigned first_token = hopper_model::thread_index().x / 32 % 4 * 16;
  for (int j = 0; j < one.columns / 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      const unsigned column = static_cast<unsigned>(8 * j + i % 2) + hopper_model::lane() % 4 * 2;
      float sum = one.accumulate ? one.d[4 * j + i] : 0.0f;
      for (unsigned k = 0; k < 32; ++k) {
        const unsigned matrix = static_cast<unsigned>(i) / 2;
        unsigned token = one.quad[k % 16 / 4].word[k / 16 * 2 + matrix] >> (k % 4 * 8) & 0xFF;
        if (one.a != 0) {
          token = byte_of(one.a, first_token + matrix * 8 + hopper_model::lane() / 4, k);
        }
        sum += table[token] * table[byte_of(one.b, column, k)];
      }
      one.d[4 * j + i] = sum;
    }
  }
}

template <int Pending>
void wait_multiply() {
  std::deque<matrix_instruction>& queue = own_queue();
  int groups = 0;
  for (const matrix_instruction& one : queue) groups += one.last_of_group;
  while (groups > Pending) {
    execute(queue.front());
    groups -= queue.front().last_of_group;
    queue.pop_front();
  }
}

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
