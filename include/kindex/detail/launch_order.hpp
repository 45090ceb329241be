// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// A launch may begin while the one before it still runs, if whoever launches asks for that: on
// NVIDIA by programmatic edges of a graph (docs/engines.md). Every kernel is ready for it. Without
// such edges, and on AMD, both functions do nothing.
// Source: PTX ISA, griddepcontrol.
#pragma once

#include "../config.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail {

#if KINDEX_DEVICE_COMPILER

/// Lets the next launch begin once all blocks of this one have got here or ended. That launch
/// waits for the end of this one before it touches memory (others than kindex's have to as well),
/// so: as early as can be.
KINDEX_DEVICE void let_next_launch_begin() {
#if KINDEX_TARGET_SM90A && KINDEX_DEVICE_PASS
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Until the launches before this one have ended and what they wrote can be seen. Every thread
/// waits before it touches memory that is not its block's.
KINDEX_DEVICE void wait_for_earlier_launches() {
#if KINDEX_TARGET_SM90A && KINDEX_DEVICE_PASS
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail
KINDEX_NAMESPACE_END
