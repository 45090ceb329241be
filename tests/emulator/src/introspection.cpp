// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "introspection.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace kindex::emulator {
namespace {

struct watch {
  bool active = false;
  uint64_t begin = 0;
  uint64_t end = 0;
  kindex_emulator_traffic traffic = {};
};

struct state {
  std::mutex mutex;
  struct kindex_emulator_counters counters = {};
  watch watches[max_watches];
  uint64_t findings = 0;
  std::string last_finding;
};

state& global() {
  static state* const instance = new state;
  return *instance;
}

std::atomic<int> forced_fp8{-1};
std::atomic<int> forced_checks{-1};
std::atomic<bool> findings_expected{false};

bool environment_is(const char* name, const char* value) {
  const char* set = std::getenv(name);
  return set && std::strcmp(set, value) == 0;
}

unsigned long long wide(uint64_t x) { return x; }

void print_table(const launch_state& launch, const kernel_resources& resources,
                 const worker_counters& c) {
  static const char* const names[instruction_classes] = {
      "salu",          "valu", "trans",  "mfma", "lds", "vector load", "vector store",
      "vector atomic", "smem", "branch", "wait", "nop", "other"};
  uint64_t total = 0;
  for (uint64_t n : c.by_class) total += n;
  std::fprintf(stderr,
               "kindex emulator: %s grid (%u,%u,%u) block (%u,%u,%u): %llu waves, %llu "
               "instructions\n ",
               launch.kernel_name.c_str(), launch.grid[0], launch.grid[1], launch.grid[2],
               launch.block[0], launch.block[1], launch.block[2], wide(c.waves), wide(total));
  for (int k = 0; k < instruction_classes; ++k) {
    if (c.by_class[k]) std::fprintf(stderr, " %s %llu", names[k], wide(c.by_class[k]));
  }
  const auto useful = [](uint64_t bytes, uint64_t segments) {
    return segments ? static_cast<double>(bytes) / (64.0 * static_cast<double>(segments)) : 0.0;
  };
  const int valu = static_cast<int>(instruction_class::valu);
  const int transcendental = static_cast<int>(instruction_class::transcendental);
  const int mfma = static_cast<int>(instruction_class::mfma);
  std::fprintf(stderr,
               "\n  loaded %llu bytes in %llu segments (%.2f of them used), stored %llu in %llu "
               "(%.2f)\n  cycles: valu %llu, mfma %llu (%llu flop), lds %llu (%llu without "
               "conflicts)\n  registers: %u vector, %u accumulation; lds %u bytes, scratch %u\n",
               wide(c.lane_bytes[0]), wide(c.segments[0]),
               useful(c.distinct_bytes[0], c.segments[0]), wide(c.lane_bytes[1]),
               wide(c.segments[1]), useful(c.distinct_bytes[1], c.segments[1]),
               wide(c.cycles_by_class[valu] + c.cycles_by_class[transcendental]),
               wide(c.cycles_by_class[mfma]), wide(c.mfma_flops), wide(c.lds_cycles),
               wide(c.lds_ideal_cycles), resources.vector_registers,
               resources.accumulation_registers, launch.lds_bytes, launch.scratch_bytes);
}

}  // namespace

bool ocp_mode() {
  const int forced = forced_fp8;
  return forced >= 0 ? forced != 0 : environment_is("KINDEX_EMULATOR_FP8", "ocp");
}

bool checks_enabled() {
  const int forced = forced_checks;
  return forced >= 0 ? forced != 0 : !environment_is("KINDEX_EMULATOR_CHECKS", "0");
}

std::vector<watched_range> active_watches() {
  std::vector<watched_range> list;
  state& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  for (int id = 0; id < max_watches; ++id) {
    if (g.watches[id].active) list.push_back({id, g.watches[id].begin, g.watches[id].end});
  }
  return list;
}

void account_launch(const launch_state& launch, const kernel_resources& resources,
                    const launch_outcome& outcome) {
  const worker_counters& c = outcome.counters;
  const auto of = [&](instruction_class k) { return c.by_class[static_cast<int>(k)]; };
  const auto cycles = [&](instruction_class k) { return c.cycles_by_class[static_cast<int>(k)]; };
  state& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  struct kindex_emulator_counters& t = g.counters;
  ++t.launches;
  t.workgroups += c.workgroups;
  t.waves += c.waves;
  for (uint64_t n : c.by_class) t.wave_instructions += n;
  t.valu += of(instruction_class::valu);
  t.salu += of(instruction_class::salu);
  t.mfma += of(instruction_class::mfma);
  t.transcendental += of(instruction_class::transcendental);
  t.vector_loads += of(instruction_class::vector_load);
  t.vector_stores += of(instruction_class::vector_store);
  t.vector_atomics += of(instruction_class::vector_atomic);
  t.smem += of(instruction_class::smem);
  t.lds_ops += of(instruction_class::lds);
  t.branch += of(instruction_class::branch);
  t.waitcnt += of(instruction_class::waitcnt);
  t.nop += of(instruction_class::nop);
  t.other += of(instruction_class::other);
  t.lane_bytes_loaded += c.lane_bytes[0];
  t.lane_bytes_stored += c.lane_bytes[1];
  t.segments_loaded += c.segments[0];
  t.segments_stored += c.segments[1];
  t.distinct_bytes_loaded += c.distinct_bytes[0];
  t.distinct_bytes_stored += c.distinct_bytes[1];
  for (int k = 0; k < 6; ++k) t.loads_by_width[k] += c.loads_by_width[k];
  t.mfma_flops += c.mfma_flops;
  t.mfma_cycles += cycles(instruction_class::mfma);
  t.valu_cycles += cycles(instruction_class::valu) + cycles(instruction_class::transcendental);
  t.lds_cycles += c.lds_cycles;
  t.lds_ideal_cycles += c.lds_ideal_cycles;
  t.max_lds_bytes = std::max<uint64_t>(t.max_lds_bytes, launch.lds_bytes);
  t.barriers += c.barriers;
  t.last_vgprs = resources.vector_registers;
  t.last_agprs = resources.accumulation_registers;
  t.last_sgprs = resources.scalar_registers;
  t.last_scratch_bytes = launch.scratch_bytes;
  for (const watched_range& r : launch.watches) {
    kindex_emulator_traffic& sum = g.watches[r.id].traffic;
    const kindex_emulator_traffic& one = c.traffic[r.id];
    sum.loads += one.loads;
    sum.stores += one.stores;
    sum.lane_bytes_loaded += one.lane_bytes_loaded;
    sum.lane_bytes_stored += one.lane_bytes_stored;
    sum.segments_loaded += one.segments_loaded;
    sum.segments_stored += one.segments_stored;
    sum.distinct_bytes_loaded += one.distinct_bytes_loaded;
    sum.distinct_bytes_stored += one.distinct_bytes_stored;
    sum.scalar_bytes_loaded += one.scalar_bytes_loaded;
  }
  if (outcome.finding_total) {
    g.findings += outcome.finding_total;
    g.last_finding = format_finding(outcome.findings.front(), launch.kernel_name);
    if (!findings_expected) {
      for (const finding& f : outcome.findings) {
        std::fprintf(stderr, "kindex emulator: %s\n",
                     format_finding(f, launch.kernel_name).c_str());
      }
    }
  }
  const char* stats = std::getenv("KINDEX_EMULATOR_STATS");
  if (stats && *stats && std::strcmp(stats, "0") != 0) print_table(launch, resources, c);
}

}  // namespace kindex::emulator

using kindex::emulator::global;
using kindex::emulator::max_watches;

extern "C" {

int kindex_emulator_version(void) { return KINDEX_EMULATOR_VERSION; }

void kindex_emulator_set_fp8(int ocp) { kindex::emulator::forced_fp8 = ocp != 0; }

void kindex_emulator_threads(int count) { kindex::emulator::set_worker_threads(count); }

void kindex_emulator_counters(struct kindex_emulator_counters* out) {
  auto& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  *out = g.counters;
}

void kindex_emulator_counters_reset(void) {
  auto& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  g.counters = {};
}

int kindex_emulator_watch(const void* base, size_t bytes) {
  auto& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  for (int id = 0; id < max_watches; ++id) {
    if (g.watches[id].active) continue;
    g.watches[id] = {
        true, reinterpret_cast<uint64_t>(base), reinterpret_cast<uint64_t>(base) + bytes, {}};
    return id;
  }
  return -1;
}

int kindex_emulator_watch_read(int id, struct kindex_emulator_traffic* out) {
  auto& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  if (id < 0 || id >= max_watches || !g.watches[id].active) return -1;
  *out = g.watches[id].traffic;
  return 0;
}

void kindex_emulator_watch_reset(int id) {
  auto& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  for (int k = 0; k < max_watches; ++k) {
    if (id == -1 || id == k) g.watches[k].traffic = {};
  }
}

void kindex_emulator_unwatch(int id) {
  auto& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  for (int k = 0; k < max_watches; ++k) {
    if (id == -1 || id == k) g.watches[k].active = false;
  }
}

uint64_t kindex_emulator_findings(void) {
  auto& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  return g.findings;
}

size_t kindex_emulator_last_finding(char* text, size_t size) {
  auto& g = global();
  const std::lock_guard<std::mutex> lock(g.mutex);
  if (text && size) std::snprintf(text, size, "%s", g.last_finding.c_str());
  return g.last_finding.size();
}

void kindex_emulator_expect_findings(int expected) {
  kindex::emulator::findings_expected = expected != 0;
}

void kindex_emulator_checks(int enabled) { kindex::emulator::forced_checks = enabled != 0; }

}  // extern "C"
