// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// State of a wave, of its workgroup and of the worker thread that runs them.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../emulator.h"
#include "common.hpp"
#include "instruction.hpp"
#include "memory.hpp"

namespace kindex::emulator {

class code_object;

enum class finding_kind : uint8_t {
  global_access,
  lds_access,
  scratch_access,
  lds_race,
  register_hazard,
  misaligned,
  unsupported,
  control_flow,
  trap,
  limit,
};

struct finding {
  finding_kind kind = finding_kind::trap;
  uint64_t workgroup = 0;  // linear index, for an order that does not depend on threads
  uint32_t group_id[3] = {};
  int wave = 0;
  int lane = -1;
  uint64_t pc = 0;
  std::string text;
  std::string message;
};

constexpr int max_watches = 64;

struct watched_range {
  int id = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// What all workers of one launch share; constant while it runs.
struct launch_state {
  code_object* object = nullptr;
  std::string kernel_name;
  const instruction* entry = nullptr;
  uint32_t grid[3] = {1, 1, 1};   // in workgroups
  uint32_t block[3] = {1, 1, 1};  // in work items
  uint32_t lds_bytes = 0;
  uint32_t scratch_bytes = 0;  // per lane
  uint32_t vector_rows = 256;
  uint32_t accumulator_rows = 256;
  uint32_t mode = 0;
  uint32_t resources2 = 0;
  std::vector<uint32_t> user_scalars;
  std::shared_ptr<const region_list> regions;
  region_list extra_regions;  // kernel arguments, code object, dispatch packet
  std::vector<watched_range> watches;
  bool checks = true;
  bool ocp = false;
  bool allow_unaligned = false;
  bool double_sums = false;
  uint32_t register_fill = 0;
  uint64_t instruction_limit = 0;
};

// Who touched a piece of LDS since the last barrier.
struct lds_shadow {
  uint32_t write_epoch = 0;
  uint32_t read_epoch = 0;
  uint32_t split_epoch = 0;  // of a dword: since this barrier its bytes are tracked singly
  uint16_t readers = 0;      // one bit per wave
  uint8_t writer = 0;
  uint8_t flags = 0;  // bit 0: the write was atomic, bit 1: all reads were
};

struct workgroup {
  uint32_t id[3] = {};
  uint64_t index = 0;
  uint32_t waves = 0;
  uint32_t epoch = 1;
};

// Counters a worker keeps; merged into the process-wide ones after the launch.
struct worker_counters {
  uint64_t by_class[instruction_classes] = {};
  uint64_t cycles_by_class[instruction_classes] = {};
  uint64_t waves = 0;
  uint64_t workgroups = 0;
  uint64_t barriers = 0;
  uint64_t mfma_flops = 0;
  uint64_t lane_bytes[2] = {};  // [0] loaded, [1] stored
  uint64_t segments[2] = {};
  uint64_t distinct_bytes[2] = {};
  uint64_t loads_by_width[6] = {};
  uint64_t lds_cycles = 0;
  uint64_t lds_ideal_cycles = 0;
  kindex_emulator_traffic traffic[max_watches] = {};
};

struct worker {
  const launch_state* launch = nullptr;
  workgroup group;
  worker_counters counters;
  std::vector<finding> findings;
  std::vector<uint64_t> reported;  // pc and kind of what this worker has reported already
  uint64_t finding_total = 0;
  bool abort = false;  // a finding after which going on makes no sense
  region last_region{1, 0, false};
  std::vector<uint8_t> lds;
  std::vector<lds_shadow> dword_shadow;
  std::vector<lds_shadow> byte_shadow;

  // Registers of all waves of a workgroup; grows to the largest one.
  std::unique_ptr<uint32_t[]> register_storage;
  size_t register_capacity = 0;
  lane_row* registers = nullptr;
};

// A memory instruction whose result is not there yet.
struct pending_access {
  const instruction* source = nullptr;
  bool vector = false;  // counted by vmcnt, otherwise by lgkmcnt
  bool scalar_memory = false;
  // LDS ranges it writes, kept so that a barrier passed too early shows up as a race.
  int lds_record = -1;
};

constexpr int pending_words = vector_registers / 64 + scalar_registers / 64;
constexpr int max_pending = 128;
constexpr int max_lds_records = 32;

struct lds_record {
  uint64_t mask = 0;
  int bytes = 0;
  uint32_t address[lanes_per_wave];
};

struct wave {
  lane_row* v = nullptr;
  uint32_t s[scalar_registers + 4] = {};
  bool scc = false;
  bool done = false;
  bool at_barrier = false;
  bool index_mode = false;  // s_set_gpr_idx_on
  int id = 0;
  uint32_t mode = 0;
  const instruction* next = nullptr;
  worker* owner = nullptr;
  uint64_t executed = 0;
  std::vector<uint8_t> scratch;

  int pending_count = 0;
  int pending_vector = 0;
  pending_access pending[max_pending];
  uint64_t pending_by_vector[pending_words] = {};
  uint64_t pending_by_scalar[pending_words] = {};
  uint32_t lds_records_used = 0;
  std::unique_ptr<lds_record[]> lds_records;

  uint64_t scalar_pair(int reg) const { return s[reg] | (static_cast<uint64_t>(s[reg + 1]) << 32); }
  void set_scalar_pair(int reg, uint64_t value) {
    s[reg] = static_cast<uint32_t>(value);
    s[reg + 1] = static_cast<uint32_t>(value >> 32);
  }
  uint64_t exec() const { return scalar_pair(exec_register); }
};

// Records a fault of the kernel. `lane` -1: it concerns the whole wave.
void report(wave& w, const instruction& i, finding_kind kind, int lane, const std::string& message);

// Ends the wave with a finding that says that `what` is not emulated.
void report_unsupported(wave& w, const instruction& i, const std::string& what);

// The handler of instructions that have none.
void run_unsupported(wave& w, const instruction& i);

}  // namespace kindex::emulator
