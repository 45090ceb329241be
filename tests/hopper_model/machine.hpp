// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// A multiprocessor of Hopper as far as the protocol of the logits' kernel goes: threads of one
// block, warps whose lanes meet in collectives, barriers in shared memory with phases and
// transaction counts, copies and matrix products that take effect at some later time. Which warp
// runs next, and when a copy lands, is drawn from a seed: an order that the barriers do not enforce
// will show.
//
// No timing and no banks. Stores are seen at once; built with ThreadSanitizer, which is told of
// every thread and of what orders it, the model reports accesses that nothing orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace hopper_model {

inline constexpr unsigned lanes = 32;

struct index3 {
  unsigned x = 0, y = 0, z = 0;
};

/// Of the thread that runs.
index3 thread_index();
index3 block_index();
index3 grid_size();
unsigned lane();

/// What makes a run end: a deadlock, a wrong address, an impossible count.
struct fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs all blocks of a launch, one after the other. The body is the kernel, called by every
/// thread.
void run_grid(unsigned num_blocks, unsigned block_size, std::size_t dynamic_shared_bytes,
              std::uint64_t seed, const std::function<void(char* dynamic_shared)>& body);

/// All lanes of the warp hand in a value and get those of all, readable until the next exchange but
/// one. Does not order accesses to memory.
const std::uint64_t* exchange(std::uint64_t value);
/// All lanes of the warp meet, which orders what they did before.
void sync_warp();
/// So many threads of the block meet at one of 16 barriers.
void sync_threads(unsigned barrier, unsigned threads);
/// The same for one that does not wait.
void announce(unsigned barrier, unsigned threads);

// Barriers in shared memory.
void init_barrier(const void* barrier, std::uint32_t arrivals);
void expect(const void* barrier, std::uint32_t bytes);
void arrive(const void* barrier);
void wait(const void* barrier, std::uint32_t parity);

// Copies into shared memory, which land later. A barrier is told the bytes; without one, of the
// copies of this thread so far an arrival is told.
void copy(void* to, const void* from, std::uint32_t bytes, const void* barrier = nullptr);
/// Later copies of the thread delay it as well, which the hardware need not do.
void arrive_when_copied(const void* barrier);

/// Where an address lies in the dynamic shared memory.
std::uint32_t shared_offset(const void* address);
const char* shared_at(std::uint32_t offset);

[[noreturn]] void fail(const std::string& why);

}  // namespace hopper_model
