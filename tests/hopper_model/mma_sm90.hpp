// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What include/kindex/detail/mma_sm90.hpp says in PTX, for the model: the same names, in its place.
// Source: PTX ISA, sections on wgmma, mbarrier, ldmatrix and cp.async.bulk.
#pragma once

#include <array>
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
inline void arrive_expecting(barrier* b, std::uint32_t bytes) { hopper_model::arrive(b, bytes); }
inline void wait(barrier* b, std::uint32_t parity) { hopper_model::wait(b, parity); }
template <int Barrier, int Threads>
void sync_threads() {
  hopper_model::sync_threads(Barrier, Threads);
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

inline void copy_bulk(void* to, const void* from, std::uint32_t bytes, barrier* b) {
  check_alignment(to, from, bytes, 16);
  hopper_model::shared_offset(to);
  hopper_model::shared_offset(static_cast<char*>(to) + bytes - 1);
  hopper_model::later([=] {
    std::memcpy(to, from, bytes);
    hopper_model::complete_bytes(b, bytes);
  });
}
template <int Bytes>
void copy_async(void* to, const void* from) {
  check_alignment(to, from, Bytes, Bytes);
  hopper_model::shared_offset(to);
  int& under_way = hopper_model::copies_under_way();
  ++under_way;
  hopper_model::later([to, from, &under_way] {
    std::memcpy(to, from, Bytes);
    --under_way;
  });
}
/// Later copies of the thread delay it as well, which the hardware need not do.
inline void arrive_when_copied(barrier* b) {
  int& under_way = hopper_model::copies_under_way();
  hopper_model::later([b] { hopper_model::arrive(b); }, [&under_way] { return under_way == 0; });
}

inline std::uint64_t operand(const void* start, std::uint32_t dim_step_bytes,
                             std::uint32_t row_step_bytes) {
  return (hopper_model::shared_offset(start) & 0x3FFFFu) >> 4 |
         static_cast<std::uint64_t>(dim_step_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(row_step_bytes >> 4) << 32;
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
  hopper_model::sync_warp();
  return a;
}

/// A matrix instruction that has not taken effect.
struct matrix_instruction {
  float* d;
  int columns;
  token_fragment a;
  std::uint64_t b;
  bool accumulate;
  bool last_of_group;
};
using matrix_queue = std::deque<matrix_instruction>;

inline matrix_queue& queue_of(unsigned thread) {
  static std::array<matrix_queue, 1024> queues;
  return queues[thread];
}

inline void begin_multiply() {}

template <int Columns>
void multiply(float (&d)[Columns / 2], const token_fragment& a, std::uint64_t b, int accumulate) {
  queue_of(hopper_model::thread_index().x).push_back({d, Columns, a, b, accumulate != 0, false});
}
inline void commit_multiply() {
  queue_of(hopper_model::thread_index().x).back().last_of_group = true;
}

/// The results of this thread, whose tokens' K the four lanes of its quad hold.
inline void execute(const matrix_instruction& one, const token_fragment (&quad)[4]) {
  static const auto table = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; ++i) {
      values[static_cast<std::size_t>(i)] =
          static_cast<float>(fp8_decode(fp8_format::e4m3fn, static_cast<std::uint8_t>(i)));
    }
    return values;
  }();
  const auto start = static_cast<std::uint32_t>(one.b & 0x3FFF) << 4;
  const auto dim_step = static_cast<std::uint32_t>(one.b >> 16 & 0x3FFF) << 4;
  const auto row_step = static_cast<std::uint32_t>(one.b >> 32 & 0x3FFF) << 4;
  for (int j = 0; j < one.columns / 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      const unsigned column = static_cast<unsigned>(8 * j + i % 2) + hopper_model::lane() % 4 * 2;
      float sum = one.accumulate ? one.d[4 * j + i] : 0.0f;
      for (unsigned k = 0; k < 32; ++k) {
        const std::uint32_t word = quad[k % 16 / 4].word[k / 16 * 2 + static_cast<unsigned>(i) / 2];
        const char b = *hopper_model::shared_at(start + column / 8 * row_step + k / 16 * dim_step +
                                                column % 8 * 16 + k % 16);
        sum += table[word >> (k % 4 * 8) & 0xFF] * table[static_cast<unsigned char>(b)];
      }
      one.d[4 * j + i] = sum;
    }
  }
}

template <int Pending>
void wait_multiply() {
  hopper_model::sync_warp();  // all lanes have handed in theirs
  const unsigned thread = hopper_model::thread_index().x;
  matrix_queue& queue = queue_of(thread);
  std::size_t groups = 0;
  for (const matrix_instruction& one : queue) groups += one.last_of_group;
  std::size_t done = 0;
  for (std::size_t group = 0; group + Pending < groups; done += 1) {
    token_fragment quad[4];
    for (unsigned c = 0; c < 4; ++c) quad[c] = queue_of(thread / 4 * 4 + c)[done].a;
    execute(queue[done], quad);
    group += queue[done].last_of_group;
  }
  hopper_model::sync_warp();  // and have read those of their neighbours
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace detail::sm90
KINDEX_NAMESPACE_END
