// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The host's floating-point environment while a wave runs.

#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace kindex::emulator {

// MODE[5:4] is the denormal mode of single precision; 0 flushes inputs and outputs. Half and
// double precision follow it here, although the hardware has separate bits for them.
inline void apply_float_mode(uint32_t mode) {
#if defined(__x86_64__)
  constexpr unsigned flush = 0x8040;  // FTZ and DAZ
  const unsigned control = _mm_getcsr() & ~flush;
  _mm_setcsr(((mode >> 4) & 3) == 0 ? control | flush : control);
#else
  (void)mode;
#endif
}

// Restores the environment of the calling thread.
class float_mode_guard {
 public:
#if defined(__x86_64__)
  float_mode_guard() : saved_(_mm_getcsr()) {}
  ~float_mode_guard() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#endif
};

}  // namespace kindex::emulator
