// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "machine.hpp"

#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

namespace hopper_model {
namespace {

constexpr std::size_t stack_bytes = 128 * 1024;

struct thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  std::function<bool()> waits_for;
  bool done = false;
  int copies = 0;
};

struct warp {
  std::uint64_t value[2][lanes];
  unsigned arrived = 0;
  std::uint64_t phase = 0;
};

struct shared_barrier {
  std::int64_t count = 0, pending = 0, bytes = 0;
  std::uint64_t phase = 0;
};

struct block_barrier {
  unsigned arrived = 0;
  std::uint64_t phase = 0;
};

struct deferred {
  std::function<void()> action;
  std::function<bool()> ready;
  unsigned delay;  // in turns of warps
};

struct block {
  unsigned index = 0, num_blocks = 0, size = 0;
  std::vector<thread> threads;
  std::vector<warp> warps;
  block_barrier barriers[16];
  std::unordered_map<const void*, shared_barrier> shared_barriers;
  std::vector<deferred> pending;
  std::vector<char> storage;
  char* shared = nullptr;
  std::mt19937_64 random;
  const std::function<void(char*)>* body = nullptr;
  std::exception_ptr error;
  ucontext_t scheduler;
  unsigned current = 0;
};

block* machine = nullptr;

void enter() {
  try {
    (*machine->body)(machine->shared);
  } catch (...) {
    if (!machine->error) machine->error = std::current_exception();
  }
  machine->threads[machine->current].done = true;
  swapcontext(&machine->threads[machine->current].context, &machine->scheduler);
}

// Runs what can run of a warp, once. True if anything did.
bool run_warp(unsigned w) {
  bool any = false;
  const unsigned first = static_cast<unsigned>(machine->random() % lanes);
  for (unsigned i = 0; i < lanes; ++i) {
    const unsigned t = w * lanes + (first + i) % lanes;
    thread& one = machine->threads[t];
    if (one.done || (one.waits_for && !one.waits_for())) continue;
    one.waits_for = nullptr;
    machine->current = t;
    swapcontext(&machine->scheduler, &one.context);
    any = true;
    if (machine->error) std::rethrow_exception(machine->error);
  }
  return any;
}

// What is due lands, or all that can.
bool land(bool all) {
  bool any = false;
  std::vector<deferred> batch;
  batch.swap(machine->pending);
  for (deferred& one : batch) {
    if (one.delay != 0) --one.delay;
    if ((all || one.delay == 0) && (!one.ready || one.ready())) {
      one.action();
      any = true;
    } else {
      machine->pending.push_back(std::move(one));
    }
  }
  return any;
}

void run_block() {
  block& m = *machine;
  for (unsigned t = 0; t < m.size; ++t) {
    thread& one = m.threads[t];
    one.stack = std::make_unique<char[]>(stack_bytes);
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = one.stack.get();
    one.context.uc_stack.ss_size = stack_bytes;
    one.context.uc_link = nullptr;
    makecontext(&one.context, enter, 0);
  }
  std::vector<unsigned> order(m.warps.size());
  for (unsigned w = 0; w < order.size(); ++w) order[w] = w;
  for (;;) {
    bool any = false;
    std::shuffle(order.begin(), order.end(), m.random);
    for (const unsigned w : order) {
      // Some warps get ahead of others.
      if (m.random() % 4 != 0) any = run_warp(w) || any;
      any = land(false) || any;
    }
    if (std::all_of(m.threads.begin(), m.threads.end(), [](const thread& t) { return t.done; })) {
      break;
    }
    if (any || land(true)) continue;
    for (const unsigned w : order) any = run_warp(w) || any;
    if (!any) {
      std::string who;
      for (unsigned t = 0; t < m.size; t += lanes) {
        if (!m.threads[t].done) who += " " + std::to_string(t / lanes);
      }
      fail("deadlock in block " + std::to_string(m.index) + ": warps" + who + " wait");
    }
  }
  if (!m.pending.empty()) fail("a block ended with copies under way");
}

thread& self() { return machine->threads[machine->current]; }

void finish_phase(shared_barrier& b) {
  if (b.pending < 0) fail("more arrivals at a barrier than it was made for");
  if (b.pending != 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.count;
}

shared_barrier& known(const void* barrier) {
  const auto found = machine->shared_barriers.find(barrier);
  if (found == machine->shared_barriers.end()) fail("a barrier is used before it is there");
  return found->second;
}

}  // namespace

void fail(const std::string& why) { throw fault(why); }

index3 thread_index() { return {machine->current}; }
index3 block_index() { return {machine->index}; }
index3 grid_size() { return {machine->num_blocks, 1, 1}; }
unsigned lane() { return machine->current % lanes; }

void wait_until(std::function<bool()> condition) {
  // Even if it holds: others may come first.
  self().waits_for = std::move(condition);
  swapcontext(&self().context, &machine->scheduler);
}

const std::uint64_t* exchange(std::uint64_t value) {
  warp& w = machine->warps[machine->current / lanes];
  const std::uint64_t phase = w.phase;
  w.value[phase % 2][lane()] = value;
  if (++w.arrived == lanes) {
    w.arrived = 0;
    ++w.phase;
  } else {
    wait_until([&w, phase] { return w.phase != phase; });
  }
  return w.value[phase % 2];
}

void sync_threads(unsigned barrier, unsigned threads) {
  block_barrier& b = machine->barriers[barrier];
  const std::uint64_t phase = b.phase;
  if (++b.arrived == (threads != 0 ? threads : machine->size)) {
    b.arrived = 0;
    ++b.phase;
  } else {
    wait_until([&b, phase] { return b.phase != phase; });
  }
}

void later(std::function<void()> action, std::function<bool()> ready) {
  // Most land soon, some long after what was asked for later.
  const std::uint64_t drawn = machine->random();
  const auto delay = static_cast<unsigned>(drawn >> 8 & (drawn % 16 == 0 ? 0xFFF : 0xF)) + 1;
  machine->pending.push_back({std::move(action), std::move(ready), delay});
}

void init_barrier(const void* barrier, std::uint32_t arrivals) {
  machine->shared_barriers[barrier] = {arrivals, arrivals, 0, 0};
}

void arrive(const void* barrier, std::int64_t expected_bytes) {
  shared_barrier& b = known(barrier);
  b.bytes += expected_bytes;
  --b.pending;
  finish_phase(b);
}

void complete_bytes(const void* barrier, std::int64_t bytes) {
  shared_barrier& b = known(barrier);
  b.bytes -= bytes;
  finish_phase(b);
}

void wait(const void* barrier, std::uint32_t parity) {
  const shared_barrier& b = known(barrier);
  wait_until([&b, parity] { return b.phase % 2 != parity; });
}

int& copies_under_way() { return self().copies; }

std::uint32_t shared_offset(const void* address) {
  const std::ptrdiff_t offset = static_cast<const char*>(address) - machine->shared;
  if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(machine->storage.size())) {
    fail("not an address in the dynamic shared memory");
  }
  return static_cast<std::uint32_t>(offset);
}
const char* shared_at(std::uint32_t offset) { return machine->shared + offset; }

void run_grid(unsigned num_blocks, unsigned block_size, std::size_t dynamic_shared_bytes,
              std::uint64_t seed, const std::function<void(char*)>& body) {
  for (unsigned index = 0; index < num_blocks; ++index) {
    block one;
    one.index = index;
    one.num_blocks = num_blocks;
    one.size = block_size;
    one.threads.resize(block_size);
    one.warps.resize(block_size / lanes);
    one.random.seed(seed + index);
    one.body = &body;
    // Bytes that no one has written are NaN, as fp8 and as float.
    one.storage.assign(dynamic_shared_bytes + 1024, '\xFF');
    one.shared = one.storage.data() +
                 (1024 - reinterpret_cast<std::uintptr_t>(one.storage.data()) % 1024) % 1024;
    machine = &one;
    run_block();
  }
  machine = nullptr;
}

}  // namespace hopper_model
