// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Local data share: access with bounds, alignment and race checks.

#pragma once

#include "wave.hpp"

namespace kindex::emulator {

void lds_load(wave& w, const instruction& i, int lane, uint32_t address, unsigned bytes,
              void* data);
void lds_store(wave& w, const instruction& i, int lane, uint32_t address, unsigned bytes,
               const void* data);
uint64_t lds_atomic(wave& w, const instruction& i, int lane, uint32_t address,
                    atomic_operation operation, uint64_t value, uint64_t compare, unsigned bytes);

// Remembers the ranges a wave is about to write, until its s_waitcnt.
void lds_note_write(wave& w, const uint32_t* addresses, uint64_t mask, unsigned bytes);
// At a barrier: writes that were not waited for count as writes after it.
void lds_carry_pending_writes(wave& w);

uint64_t combine_atomic(atomic_operation operation, uint64_t old, uint64_t value, uint64_t compare,
                        unsigned bytes);

}  // namespace kindex::emulator
