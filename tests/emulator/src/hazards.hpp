// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Registers that a memory instruction has yet to fill, and s_waitcnt.

#pragma once

#include "wave.hpp"

namespace kindex::emulator {

void check_hazards(wave& w, const instruction& i);
void add_pending(wave& w, const instruction& i);
void run_waitcnt(wave& w, const instruction& i);

}  // namespace kindex::emulator
