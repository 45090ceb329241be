// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "executor.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "code_object.hpp"
#include "float_mode.hpp"
#include "hazards.hpp"
#include "lds.hpp"

namespace kindex::emulator {
namespace {

constexpr size_t max_findings_kept = 64;
constexpr unsigned char lds_fill = 0xcd;

// State that a worker thread keeps from launch to launch.
struct executor_thread {
  worker state;
  std::vector<std::unique_ptr<wave>> waves;
};

// Relative register indexing: a copy of the instruction with the index added to its registers.
void run_indexed(wave& w, const instruction& i) {
  instruction moved = i;
  const uint32_t m0 = w.s[m0_register];
  const int index = static_cast<int>(m0 & 0xff);
  for (int k = 0; k < moved.operand_count; ++k) {
    operand& o = moved.operands[k];
    if (o.kind != operand_kind::vector) continue;
    const int source = k - moved.destination_count;
    const int bit = source < 0 ? 15 : 12 + source;
    if (bit > 15 || !((m0 >> bit) & 1)) continue;
    o.reg = static_cast<int16_t>(o.reg + index);
    if (o.reg + o.width > vector_registers) {
      report(w, i, finding_kind::control_flow, -1, "indexed register out of range");
      w.done = true;
      return;
    }
  }
  moved.run(w, moved);
}

// Until the next barrier or the end of the program.
void run_wave(wave& w) {
  worker& k = *w.owner;
  worker_counters& c = k.counters;
  const bool checks = k.launch->checks;
  const uint64_t limit = k.launch->instruction_limit;
  apply_float_mode(w.mode);
  while (!w.done && !w.at_barrier) {
    const instruction& i = *w.next++;
    const int kind = static_cast<int>(i.kind);
    ++c.by_class[kind];
    c.cycles_by_class[kind] += i.cycles;
    if (checks) {
      if (w.pending_count) {
        check_hazards(w, i);
        if (i.kind == instruction_class::waitcnt) run_waitcnt(w, i);
      }
      if (i.counts_vector || i.counts_scalar) add_pending(w, i);
    }
    if (__builtin_expect(w.index_mode, false) &&
        (i.kind == instruction_class::valu || i.kind == instruction_class::transcendental)) {
      run_indexed(w, i);
    } else {
      i.run(w, i);
    }
    if (__builtin_expect(++w.executed > limit, false)) {
      report(w, i, finding_kind::limit, -1,
             "more instructions than KINDEX_EMULATOR_LIMIT allows: an endless loop?");
      w.done = true;
      k.abort = true;
    }
  }
}

void reserve_registers(worker& k, uint32_t waves) {
  const size_t rows = static_cast<size_t>(waves) * vector_registers;
  if (k.register_capacity >= rows) return;
  k.register_storage = std::make_unique<uint32_t[]>((rows + 1) * lanes_per_wave);
  const uint64_t raw = reinterpret_cast<uint64_t>(k.register_storage.get());
  k.registers = reinterpret_cast<lane_row*>((raw + 63) & ~uint64_t{63});
  k.register_capacity = rows;
}

void fill_rows(lane_row* rows, uint32_t count, uint32_t value) {
  if (value == 0) {
    std::memset(rows, 0, count * sizeof(lane_row));
  } else {
    std::fill_n(&rows[0][0], static_cast<size_t>(count) * lanes_per_wave, value);
  }
}

void start_wave(wave& w, worker& k, int id) {
  const launch_state& launch = *k.launch;
  w.owner = &k;
  w.id = id;
  w.v = k.registers + static_cast<size_t>(id) * vector_registers;
  fill_rows(w.v, launch.vector_rows, launch.register_fill);
  fill_rows(w.v + accumulator_base, launch.accumulator_rows, launch.register_fill);
  std::fill(std::begin(w.s), std::end(w.s), launch.register_fill);
  w.scc = w.done = w.at_barrier = w.index_mode = false;
  w.mode = launch.mode;
  w.next = launch.entry;
  w.executed = 0;
  w.pending_count = w.pending_vector = 0;
  w.lds_records_used = 0;
  std::memset(w.pending_by_vector, 0, sizeof w.pending_by_vector);
  std::memset(w.pending_by_scalar, 0, sizeof w.pending_by_scalar);
  if (launch.scratch_bytes) {
    w.scratch.assign(static_cast<size_t>(launch.scratch_bytes) * lanes_per_wave, lds_fill);
  }
  int s = 0;
  for (uint32_t value : launch.user_scalars) w.s[s++] = value;
  for (int axis = 0; axis < 3; ++axis) {
    if ((launch.resources2 >> (7 + axis)) & 1) w.s[s++] = k.group.id[axis];
  }
  w.set_scalar_pair(vcc_register, 0);
  w.s[m0_register] = 0xffffffffu;
  // Work-item ids come packed into v0, ten bits per axis.
  const uint32_t* block = launch.block;
  const uint32_t total = block[0] * block[1] * block[2];
  const uint32_t first = static_cast<uint32_t>(id) * lanes_per_wave;
  const uint32_t active = std::min<uint32_t>(lanes_per_wave, total - first);
  w.set_scalar_pair(exec_register, low_mask(active));
  for (uint32_t l = 0; l < active; ++l) {
    const uint32_t item = first + l;
    w.v[0][l] = (item % block[0]) | ((item / block[0]) % block[1]) << 10 |
                (item / (block[0] * block[1])) << 20;
  }
}

void run_workgroup(executor_thread& t, uint64_t index) {
  worker& k = t.state;
  const launch_state& launch = *k.launch;
  k.group.index = index;
  k.group.id[0] = static_cast<uint32_t>(index % launch.grid[0]);
  k.group.id[1] = static_cast<uint32_t>(index / launch.grid[0] % launch.grid[1]);
  k.group.id[2] = static_cast<uint32_t>(index / launch.grid[0] / launch.grid[1]);
  const uint32_t items = launch.block[0] * launch.block[1] * launch.block[2];
  const uint32_t waves = (items + lanes_per_wave - 1) / lanes_per_wave;
  k.group.waves = waves;
  // Epochs run on from workgroup to workgroup, so that the shadow need not be cleared.
  ++k.group.epoch;
  k.lds.assign(launch.lds_bytes, lds_fill);
  while (t.waves.size() < waves) t.waves.push_back(std::make_unique<wave>());
  for (uint32_t id = 0; id < waves; ++id) start_wave(*t.waves[id], k, static_cast<int>(id));
  for (bool running = true; running;) {
    running = false;
    for (uint32_t id = 0; id < waves; ++id) {
      wave& w = *t.waves[id];
      if (w.done) continue;
      run_wave(w);
      if (!w.done) running = true;
    }
    // Every wave is at the barrier or has ended, which also opens it.
    ++k.group.epoch;
    for (uint32_t id = 0; id < waves; ++id) {
      wave& w = *t.waves[id];
      w.at_barrier = false;
      if (running && !w.done && w.lds_records_used) lds_carry_pending_writes(w);
    }
    if (k.abort) break;
  }
  k.counters.waves += waves;
  ++k.counters.workgroups;
}

// Shared by the workers of one launch.
struct job {
  const launch_state* launch = nullptr;
  uint64_t workgroups = 0;
  uint64_t chunk = 1;
  std::atomic<uint64_t> next{0};
  std::atomic<bool> abort{false};
};

void run_share(executor_thread& t, job& j) {
  const float_mode_guard guard;
  worker& k = t.state;
  k.launch = j.launch;
  k.counters = worker_counters();
  k.findings.clear();
  k.reported.clear();
  k.finding_total = 0;
  k.abort = false;
  k.last_region = region{1, 0, false};
  const uint32_t items = j.launch->block[0] * j.launch->block[1] * j.launch->block[2];
  reserve_registers(k, (items + lanes_per_wave - 1) / lanes_per_wave);
  if (j.launch->checks) {
    const size_t dwords = (j.launch->lds_bytes + 3) / 4;
    if (k.dword_shadow.size() < dwords) {
      k.dword_shadow.resize(dwords);
      k.byte_shadow.resize(4 * dwords);
    }
    // Long before the counter wraps, start over.
    if (k.group.epoch > 0x80000000u) {
      std::fill(k.dword_shadow.begin(), k.dword_shadow.end(), lds_shadow());
      std::fill(k.byte_shadow.begin(), k.byte_shadow.end(), lds_shadow());
      k.group.epoch = 1;
    }
  }
  while (!j.abort.load(std::memory_order_relaxed)) {
    const uint64_t begin = j.next.fetch_add(j.chunk);
    if (begin >= j.workgroups) break;
    const uint64_t end = std::min(j.workgroups, begin + j.chunk);
    for (uint64_t index = begin; index < end && !k.abort; ++index) run_workgroup(t, index);
    if (k.abort) j.abort = true;
  }
}

class thread_pool {
 public:
  // Runs `j` on `count` threads, the caller included.
  void run(job& j, unsigned count) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      while (threads_.size() < count) threads_.push_back(std::make_unique<executor_thread>());
      while (started_ + 1 < count) {
        std::thread(&thread_pool::loop, this, started_ + 1).detach();
        ++started_;
      }
      job_ = &j;
      wanted_ = count - 1;
      running_ = count - 1;
      ++generation_;
    }
    if (count > 1) wake_.notify_all();
    run_share(*threads_[0], j);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return running_ == 0; });
    job_ = nullptr;
  }

  executor_thread& thread(unsigned index) { return *threads_[index]; }

 private:
  void loop(unsigned index) {
    uint64_t seen = 0;
    for (;;) {
      job* mine;
      executor_thread* state;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return generation_ != seen && job_ && index <= wanted_; });
        seen = generation_;
        mine = job_;
        state = threads_[index].get();
      }
      run_share(*state, *mine);
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        --running_;
      }
      done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<std::unique_ptr<executor_thread>> threads_;
  unsigned started_ = 0;
  unsigned wanted_ = 0;
  unsigned running_ = 0;
  uint64_t generation_ = 0;
  job* job_ = nullptr;
};

thread_pool& pool() {
  // Never destroyed: its threads wait until the process ends.
  static thread_pool* const instance = new thread_pool;
  return *instance;
}

std::atomic<int> requested_threads{0};

void merge(worker_counters* sum, const worker_counters& c) {
  for (int k = 0; k < instruction_classes; ++k) {
    sum->by_class[k] += c.by_class[k];
    sum->cycles_by_class[k] += c.cycles_by_class[k];
  }
  sum->waves += c.waves;
  sum->workgroups += c.workgroups;
  sum->barriers += c.barriers;
  sum->mfma_flops += c.mfma_flops;
  sum->lds_cycles += c.lds_cycles;
  sum->lds_ideal_cycles += c.lds_ideal_cycles;
  for (int k = 0; k < 2; ++k) {
    sum->lane_bytes[k] += c.lane_bytes[k];
    sum->segments[k] += c.segments[k];
    sum->distinct_bytes[k] += c.distinct_bytes[k];
  }
  for (int k = 0; k < 6; ++k) sum->loads_by_width[k] += c.loads_by_width[k];
  for (int k = 0; k < max_watches; ++k) {
    kindex_emulator_traffic& s = sum->traffic[k];
    const kindex_emulator_traffic& t = c.traffic[k];
    s.loads += t.loads;
    s.stores += t.stores;
    s.lane_bytes_loaded += t.lane_bytes_loaded;
    s.lane_bytes_stored += t.lane_bytes_stored;
    s.segments_loaded += t.segments_loaded;
    s.segments_stored += t.segments_stored;
    s.distinct_bytes_loaded += t.distinct_bytes_loaded;
    s.distinct_bytes_stored += t.distinct_bytes_stored;
    s.scalar_bytes_loaded += t.scalar_bytes_loaded;
  }
}

}  // namespace

void report(wave& w, const instruction& i, finding_kind kind, int lane,
            const std::string& message) {
  worker& k = *w.owner;
  ++k.finding_total;
  // One report per place and kind says enough.
  const uint64_t key = i.pc * 16 + static_cast<uint64_t>(kind);
  if (k.findings.size() >= max_findings_kept ||
      std::find(k.reported.begin(), k.reported.end(), key) != k.reported.end()) {
    return;
  }
  k.reported.push_back(key);
  finding f;
  f.kind = kind;
  f.workgroup = k.group.index;
  std::copy(std::begin(k.group.id), std::end(k.group.id), std::begin(f.group_id));
  f.wave = w.id;
  f.lane = lane;
  f.pc = i.pc;
  f.text = i.text;
  f.message = message;
  k.findings.push_back(std::move(f));
}

void report_unsupported(wave& w, const instruction& i, const std::string& what) {
  report(w, i, finding_kind::unsupported, -1,
         "unsupported instruction: " + what + " is not emulated");
  w.done = true;
  w.owner->abort = true;
}

void run_unsupported(wave& w, const instruction& i) { report_unsupported(w, i, i.text); }

std::string format_finding(const finding& f, const std::string& kernel) {
  char place[200];
  std::snprintf(place, sizeof place, " | pc 0x%llx, workgroup (%u,%u,%u), wave %d",
                static_cast<unsigned long long>(f.pc), f.group_id[0], f.group_id[1], f.group_id[2],
                f.wave);
  std::string text = f.message + " | " + kernel + place;
  if (f.lane >= 0) text += ", lane " + std::to_string(f.lane);
  return text + " | " + f.text;
}

void set_worker_threads(int count) { requested_threads = count; }

launch_outcome run_launch(const launch_state& launch) {
  job j;
  j.launch = &launch;
  j.workgroups = static_cast<uint64_t>(launch.grid[0]) * launch.grid[1] * launch.grid[2];
  int wanted = requested_threads;
  if (wanted <= 0) wanted = static_cast<int>(std::thread::hardware_concurrency());
  wanted = std::max(1, std::min(wanted, 256));
  const unsigned count =
      static_cast<unsigned>(std::min<uint64_t>(static_cast<uint64_t>(wanted), j.workgroups));
  j.chunk = std::max<uint64_t>(1, std::min<uint64_t>(16, j.workgroups / (count * 8)));
  pool().run(j, count);

  launch_outcome outcome;
  for (unsigned k = 0; k < count; ++k) {
    const worker& state = pool().thread(k).state;
    merge(&outcome.counters, state.counters);
    outcome.finding_total += state.finding_total;
    outcome.findings.insert(outcome.findings.end(), state.findings.begin(), state.findings.end());
  }
  std::stable_sort(outcome.findings.begin(), outcome.findings.end(),
                   [](const finding& a, const finding& b) { return a.workgroup < b.workgroup; });
  // Workers report independently; keep the first of equal places.
  std::vector<finding> unique;
  for (finding& f : outcome.findings) {
    const bool known = std::any_of(unique.begin(), unique.end(), [&](const finding& u) {
      return u.pc == f.pc && u.kind == f.kind;
    });
    if (!known) unique.push_back(std::move(f));
  }
  outcome.findings = std::move(unique);
  return outcome;
}

}  // namespace kindex::emulator
