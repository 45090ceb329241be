// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Runs all workgroups of a launch on the worker threads.

#pragma once

#include <string>
#include <vector>

#include "wave.hpp"

namespace kindex::emulator {

struct launch_outcome {
  worker_counters counters;
  std::vector<finding> findings;  // in order of workgroup, wave and time
  uint64_t finding_total = 0;
};

launch_outcome run_launch(const launch_state& launch);

// 0: one per processor.
void set_worker_threads(int count);

// One line for people: what, where, which instruction.
std::string format_finding(const finding& f, const std::string& kernel);

}  // namespace kindex::emulator
