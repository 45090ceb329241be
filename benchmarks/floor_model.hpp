// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// How fast a kernel could possibly be on an MI300X or MI355X, from counts of its machine code and
// published figures of the hardware. Floors, not predictions: each resource is taken alone, never
// waits, and does nothing in vain. Host only, needs nothing of HIP or kindex.
#pragma once

#include <cstdint>

namespace kindex_bench {

/// Published figures of one device.
struct machine {
  const char* name;
  int compute_units;
  double gigahertz;
  double terabytes_per_second;  ///< peak of the memory
  int lds_bytes;                ///< of one compute unit
  int simds_per_compute_unit = 4;
  int registers_per_lane = 512;  ///< vector and accumulation registers together, per SIMD
  int max_waves_per_simd = 8;

  constexpr int simds() const { return compute_units * simds_per_compute_unit; }
};

inline constexpr machine mi300x = {"MI300X", 304, 2.1, 5.3, 64 * 1024};
/// Matrix and vector instructions are taken to need as many cycles as on MI300X.
inline constexpr machine mi355x = {"MI355X", 256, 2.4, 8.0, 160 * 1024};

/// What one launch does, summed over all waves.
struct kernel_work {
  double bytes = 0;                ///< that must cross the memory's interface at least once
  std::uint64_t mfma_cycles = 0;   ///< of one SIMD
  std::uint64_t valu_cycles = 0;   ///< of one SIMD
  std::uint64_t lds_cycles = 0;    ///< of one compute unit: passes over the banks
  std::uint64_t instructions = 0;  ///< of waves
  std::uint64_t waves = 0;
  std::uint64_t workgroups = 0;
  int registers = 0;  ///< of one lane
  int lds_bytes = 0;  ///< of one workgroup
};

/// What can be the limit.
enum class resource : std::uint8_t { memory, mfma, valu, lds, launch };
inline constexpr int num_resources = 5;

constexpr const char* to_string(resource of) {
  switch (of) {
    case resource::memory:
      return "memory";
    case resource::mfma:
      return "MFMA";
    case resource::valu:
      return "VALU";
    case resource::lds:
      return "LDS";
    case resource::launch:
      return "launch";
  }
  return "?";
}

struct floor_times {
  double microseconds[num_resources] = {};
  int waves_per_simd = 0;    ///< that fit, by registers and LDS
  std::uint64_t rounds = 0;  ///< of workgroups, until all have run

  constexpr double of(resource which) const { return microseconds[static_cast<int>(which)]; }
  /// The resource that allows least.
  constexpr resource largest() const {
    int found = 0;
    for (int i = 1; i < num_resources; ++i) {
      if (microseconds[i] > microseconds[found]) found = i;
    }
    return static_cast<resource>(found);
  }
  /// The largest of all others.
  constexpr resource second() const {
    const int first = static_cast<int>(largest());
    int found = first == 0 ? 1 : 0;
    for (int i = 0; i < num_resources; ++i) {
      if (i != first && microseconds[i] > microseconds[found]) found = i;
    }
    return static_cast<resource>(found);
  }
  /// How far the largest is above the second; 0 if there is no second.
  constexpr double margin() const {
    const double below = of(second());
    return below > 0 ? of(largest()) / below : 0;
  }
};

/// Waves of a kernel that fit one SIMD: registers are handed out in eights, LDS by workgroup.
constexpr int waves_per_simd(const machine& on, const kernel_work& work) {
  const int registers = work.registers <= 8 ? 8 : (work.registers + 7) / 8 * 8;
  int waves = on.registers_per_lane / registers;
  if (waves > on.max_waves_per_simd) waves = on.max_waves_per_simd;
  if (work.lds_bytes > 0 && work.workgroups > 0) {
    const auto waves_per_workgroup = static_cast<int>(work.waves / work.workgroups);
    const int by_lds = on.lds_bytes / work.lds_bytes * waves_per_workgroup;
    const int spread = (by_lds + on.simds_per_compute_unit - 1) / on.simds_per_compute_unit;
    if (spread < waves) waves = spread;
  }
  return waves < 1 ? 1 : waves;
}

/// The floors of one launch.
constexpr floor_times floors(const machine& on, const kernel_work& work) {
  floor_times times;
  times.microseconds[static_cast<int>(resource::memory)] =
      work.bytes / (on.terabytes_per_second * 1e6);
  if (work.waves == 0) return times;

  // At best the work is spread evenly; but a wave (a workgroup) runs in one place.
  const double cycles_per_microsecond = on.gigahertz * 1e3;
  const auto even_share = [](int places, std::uint64_t pieces) {
    const auto count = static_cast<double>(pieces);
    return count < places ? 1 / count : 1.0 / places;
  };
  const double of_simd = even_share(on.simds(), work.waves) / cycles_per_microsecond;
  const double of_unit = even_share(on.compute_units, work.workgroups) / cycles_per_microsecond;
  times.microseconds[static_cast<int>(resource::mfma)] =
      static_cast<double>(work.mfma_cycles) * of_simd;
  times.microseconds[static_cast<int>(resource::valu)] =
      static_cast<double>(work.valu_cycles) * of_simd;
  times.microseconds[static_cast<int>(resource::lds)] =
      static_cast<double>(work.lds_cycles) * of_unit;

  // One round after the other, each as long as one wave needs at an instruction every four cycles.
  times.waves_per_simd = waves_per_simd(on, work);
  const std::uint64_t resident =
      static_cast<std::uint64_t>(on.simds()) * static_cast<std::uint64_t>(times.waves_per_simd);
  times.rounds = (work.waves + resident - 1) / resident;
  times.microseconds[static_cast<int>(resource::launch)] =
      static_cast<double>(times.rounds) * 4 * static_cast<double>(work.instructions) /
      static_cast<double>(work.waves) / cycles_per_microsecond;
  return times;
}

}  // namespace kindex_bench
