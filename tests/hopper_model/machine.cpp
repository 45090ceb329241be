// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "machine.hpp"

#include <ucontext.h>

#ifdef HOPPER_MODEL_TSAN
#include <sanitizer/tsan_interface.h>
extern "C" {
void __tsan_read_range(void* address, unsigned long bytes);
void __tsan_write_range(void* address, unsigned long bytes);
}
#endif

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

namespace hopper_model {
namespace {

constexpr std::size_t stack_bytes = 128 * 1024;

// What ThreadSanitizer is told. This file is not instrumented: it sees the kernel's accesses, and
// these.
#ifdef HOPPER_MODEL_TSAN
void* create_identity() { return __tsan_create_fiber(0); }
void* own_identity() { return __tsan_get_current_fiber(); }
void become(void* identity) { __tsan_switch_to_fiber(identity, __tsan_switch_to_fiber_no_sync); }
void release(const void* token) { __tsan_release(const_cast<void*>(token)); }
void acquire(const void* token) { __tsan_acquire(const_cast<void*>(token)); }
void tell_copy(void* to, const void* from, std::size_t bytes) {
  __tsan_read_range(const_cast<void*>(from), bytes);
  __tsan_write_range(to, bytes);
}
#else
void* create_identity() { return nullptr; }
void* own_identity() { return nullptr; }
void become(void*) {}
void release(const void*) {}
void acquire(const void*) {}
void tell_copy(void*, const void*, std::size_t) {}
#endif

// That a phase is another than this, or of the other parity.
struct condition {
  const std::uint64_t* phase = nullptr;
  std::uint64_t value = 0;
  bool of_parity = false;
  bool holds() const { return phase == nullptr || (of_parity ? *phase % 2 : *phase) != value; }
};

struct thread {
  ucontext_t context;
  condition waits_for;
  bool done = false;
  int copies = 0;  // that no barrier is told of
  char asked = 0;  // a token: what the thread did before its copies
};

// What outlives blocks: identities of threads and of what copies for each, and stacks.
struct identities {
  std::vector<void*> thread, copier;
  std::vector<std::unique_ptr<char[]>> stack;
  void* scheduler = nullptr;
} known_as;

struct warp {
  std::uint64_t value[2][lanes];
  char met[2];  // tokens
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

// A copy, or an arrival once the thread's copies have landed.
struct deferred {
  unsigned thread;
  unsigned delay;  // in turns of warps
  void* to;        // null: an arrival
  const void* from;
  std::uint32_t bytes;
  const void* barrier;
};
constexpr std::size_t most_deferred = 1 << 16;
constexpr std::size_t most_barriers = 64;

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

void resume(unsigned t) {
  machine->current = t;
  become(known_as.thread[t]);
  swapcontext(&machine->scheduler, &machine->threads[t].context);
}
void suspend() {
  thread& one = machine->threads[machine->current];
  become(known_as.scheduler);
  swapcontext(&one.context, &machine->scheduler);
}

// Even if it holds: others may come first.
void wait_until(const condition& what) {
  machine->threads[machine->current].waits_for = what;
  suspend();
}

void enter() {
  acquire(machine);
  try {
    (*machine->body)(machine->shared);
  } catch (...) {
    if (!machine->error) machine->error = std::current_exception();
  }
  machine->threads[machine->current].done = true;
  release(machine->barriers);
  suspend();
}

// Runs what can run of a warp, once. True if anything did.
bool run_warp(unsigned w) {
  bool any = false;
  const unsigned first = static_cast<unsigned>(machine->random() % lanes);
  for (unsigned i = 0; i < lanes; ++i) {
    const unsigned t = w * lanes + (first + i) % lanes;
    thread& one = machine->threads[t];
    if (one.done || !one.waits_for.holds()) continue;
    resume(t);
    any = true;
    if (machine->error) std::rethrow_exception(machine->error);
  }
  return any;
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

void later(deferred what) {
  if (machine->pending.size() == most_deferred) fail("too many copies under way");
  // Most land soon, some long after what was asked for later.
  const std::uint64_t drawn = machine->random();
  what.delay = static_cast<unsigned>(drawn >> 8 & (drawn % 16 == 0 ? 0xFFF : 0xF)) + 1;
  machine->pending.push_back(what);
}

void carry_out(const deferred& what) {
  thread& owner = machine->threads[what.thread];
  become(known_as.copier[what.thread]);
  if (what.to == nullptr) {
    arrive(what.barrier);
  } else {
    acquire(&owner.asked);
    tell_copy(what.to, what.from, what.bytes);
    std::memcpy(what.to, what.from, what.bytes);
    if (what.barrier == nullptr) {
      --owner.copies;
    } else {
      release(what.barrier);
      shared_barrier& b = known(what.barrier);
      b.bytes -= what.bytes;
      finish_phase(b);
    }
  }
  become(known_as.scheduler);
}

// What is due lands, or all that can.
bool land(bool all) {
  std::size_t kept = 0;
  const std::size_t before = machine->pending.size();
  for (std::size_t i = 0; i < before; ++i) {
    deferred one = machine->pending[i];
    if (one.delay != 0) --one.delay;
    if ((all || one.delay == 0) &&
        (one.to != nullptr || machine->threads[one.thread].copies == 0)) {
      carry_out(one);
    } else {
      machine->pending[kept++] = one;
    }
  }
  machine->pending.resize(kept);
  return kept != before;
}

void run_block() {
  block& m = *machine;
  known_as.scheduler = own_identity();
  while (known_as.thread.size() < m.size) {
    known_as.thread.push_back(create_identity());
    known_as.copier.push_back(create_identity());
    known_as.stack.emplace_back(new char[stack_bytes]);
  }
  for (unsigned t = 0; t < m.size; ++t) {
    thread& one = m.threads[t];
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = known_as.stack[t].get();
    one.context.uc_stack.ss_size = stack_bytes;
    one.context.uc_link = nullptr;
    makecontext(&one.context, enter, 0);
  }
  release(machine);
  std::vector<unsigned> order(m.warps.size());
  for (unsigned w = 0; w < order.size(); ++w) order[w] = w;
  // Of 16 turns, how many a warp takes. Some warps are slow throughout.
  std::vector<unsigned> pace(m.warps.size());
  for (unsigned& turns : pace) turns = m.random() % 8 == 0 ? 1 : 12;
  for (;;) {
    bool any = false;
    std::shuffle(order.begin(), order.end(), m.random);
    for (const unsigned w : order) {
      if (m.random() % 16 < pace[w]) any = run_warp(w) || any;
      any = land(false) || any;
    }
    if (std::all_of(m.threads.begin(), m.threads.end(), [](const thread& t) { return t.done; })) {
      break;
    }
    if (any) continue;
    // Copies hurry only where nothing else can happen, not where nobody's turn came.
    for (const unsigned w : order) any = run_warp(w) || any;
    if (any || land(true)) continue;
    std::string who;
    for (unsigned t = 0; t < m.size; t += lanes) {
      if (!m.threads[t].done) who += " " + std::to_string(t / lanes);
    }
    fail("deadlock in block " + std::to_string(m.index) + ": warps" + who + " wait");
  }
  if (!m.pending.empty()) fail("a block ended with copies under way");
  acquire(m.barriers);
}

}  // namespace

void fail(const std::string& why) { throw fault(why); }

index3 thread_index() { return {machine->current}; }
index3 block_index() { return {machine->index}; }
index3 grid_size() { return {machine->num_blocks, 1, 1}; }
unsigned lane() { return machine->current % lanes; }

const std::uint64_t* exchange(std::uint64_t value) {
  warp& w = machine->warps[machine->current / lanes];
  const std::uint64_t phase = w.phase;
  w.value[phase % 2][lane()] = value;
  if (++w.arrived == lanes) {
    w.arrived = 0;
    ++w.phase;
  } else {
    wait_until({&w.phase, phase, false});
  }
  return w.value[phase % 2];
}

void sync_warp() {
  warp& w = machine->warps[machine->current / lanes];
  const char* const token = &w.met[w.phase % 2];
  release(token);
  exchange(0);
  acquire(token);
}

void announce(unsigned barrier, unsigned threads) {
  block_barrier& b = machine->barriers[barrier];
  release(&b);
  if (++b.arrived == threads) {
    b.arrived = 0;
    ++b.phase;
  }
}

void sync_threads(unsigned barrier, unsigned threads) {
  const block_barrier& b = machine->barriers[barrier];
  const std::uint64_t phase = b.phase;
  announce(barrier, threads);
  if (b.phase == phase) wait_until({&b.phase, phase, false});
  acquire(&b);
}

void init_barrier(const void* barrier, std::uint32_t arrivals) {
  machine->shared_barriers[barrier] = {arrivals, arrivals, 0, 0};
}

void expect(const void* barrier, std::uint32_t bytes) { known(barrier).bytes += bytes; }

void arrive(const void* barrier) {
  release(barrier);
  shared_barrier& b = known(barrier);
  --b.pending;
  finish_phase(b);
}

void wait(const void* barrier, std::uint32_t parity) {
  const shared_barrier& b = known(barrier);
  wait_until({&b.phase, parity, true});
  acquire(barrier);
}

void copy(void* to, const void* from, std::uint32_t bytes, const void* barrier) {
  shared_offset(to);
  shared_offset(static_cast<char*>(to) + bytes - 1);
  release(&self().asked);
  if (barrier == nullptr) ++self().copies;
  later({machine->current, 0, to, from, bytes, barrier});
}

void arrive_when_copied(const void* barrier) {
  later({machine->current, 0, nullptr, nullptr, 0, barrier});
}

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
    // What grows while threads run would be seen as theirs.
    one.pending.reserve(most_deferred);
    one.shared_barriers.reserve(most_barriers);
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
