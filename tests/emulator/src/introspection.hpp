// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Counters, findings and switches behind the C interface of emulator.h.

#pragma once

#include <vector>

#include "executor.hpp"
#include "launch.hpp"

namespace kindex::emulator {

bool checks_enabled();
std::vector<watched_range> active_watches();

// Adds a finished launch to the counters, and prints its findings and, if asked for, its table.
void account_launch(const launch_state& launch, const kernel_resources& resources,
                    const launch_outcome& outcome);

}  // namespace kindex::emulator
