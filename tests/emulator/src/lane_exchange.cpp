// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Instructions that move values between lanes, or between lanes and scalar registers.

#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

void run_readlane(wave& w, const instruction& i) {
  write_scalar(w, i.operands[0], w.v[i.operands[1].reg][read_scalar(w, i.operands[2]) & 63]);
}

void run_writelane(wave& w, const instruction& i) {
  w.v[i.operands[0].reg][read_scalar(w, i.operands[2]) & 63] = read_scalar(w, i.operands[1]);
}

void run_readfirstlane(wave& w, const instruction& i) {
  write_scalar(w, i.operands[0], read_scalar(w, i.operands[1]));
}

// Each lane pulls from the lane that its address names; lanes that are off supply 0.
void run_bpermute(wave& w, const instruction& i) {
  uint32_t result[lanes_per_wave] = {};
  const uint64_t exec = w.exec();
  const uint32_t* address = w.v[i.operands[1].reg];
  const uint32_t* data = w.v[i.operands[2].reg];
  for (int l = 0; l < lanes_per_wave; ++l) {
    const int from = ((address[l] + static_cast<uint32_t>(i.offset)) >> 2) & 63;
    result[l] = (exec >> from) & 1 ? data[from] : 0;
  }
  merge_lanes(w.v[i.operands[0].reg], result, exec);
}

// Each lane pushes to the lane that its address names; the highest lane wins.
void run_permute(wave& w, const instruction& i) {
  uint32_t result[lanes_per_wave] = {};
  const uint64_t exec = w.exec();
  const uint32_t* address = w.v[i.operands[1].reg];
  const uint32_t* data = w.v[i.operands[2].reg];
  for_each_lane(exec, [&](int l) {
    result[((address[l] + static_cast<uint32_t>(i.offset)) >> 2) & 63] = data[l];
  });
  merge_lanes(w.v[i.operands[0].reg], result, exec);
}

void run_swizzle(wave& w, const instruction& i) {
  uint32_t result[lanes_per_wave] = {};
  const uint64_t exec = w.exec();
  const uint32_t* data = w.v[i.operands[1].reg];
  const int pattern = i.offset;
  for (int l = 0; l < lanes_per_wave; ++l) {
    int from;
    if (pattern & 0x8000) {
      from = (l & ~3) | ((pattern >> (2 * (l & 3))) & 3);
    } else {
      const int keep = pattern & 31;
      const int set = (pattern >> 5) & 31;
      const int flip = (pattern >> 10) & 31;
      from = (l & 32) | ((((l & 31) & keep) | set) ^ flip);
    }
    result[l] = (exec >> from) & 1 ? data[from] : 0;
  }
  merge_lanes(w.v[i.operands[0].reg], result, exec);
}

constexpr handler_entry table[] = {
    {"v_readlane_b32", run_readlane, 0},
    {"v_writelane_b32", run_writelane, 0},
    {"v_readfirstlane_b32", run_readfirstlane, 0},
    {"ds_bpermute_b32", run_bpermute, 0},
    {"ds_permute_b32", run_permute, 0},
    {"ds_swizzle_b32", run_swizzle, 0},
};

}  // namespace

handler_list lane_handlers() { return table; }

}  // namespace kindex::emulator
