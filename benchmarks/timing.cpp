// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "timing.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "device_tools.hpp"
#include "progress.hpp"
#include "support/device_buffer.hpp"
#include "support/platform.hpp"
#include "workload.hpp"

namespace kindex_bench {
namespace {

using kindex_test::check;

constexpr std::int64_t min_launches = 20;

/// The default one, which serves whatever else a benchmark launches as well: once a process has
/// launched kernels on others eight times, those of a graph lie 0.34 us further apart (on an
/// H200, whatever the kernel).
constexpr hipStream_t only_stream = nullptr;

class device_event {
 public:
  device_event() { check(hipEventCreate(&event_), "hipEventCreate"); }
  device_event(const device_event&) = delete;
  device_event& operator=(const device_event&) = delete;
  ~device_event() { (void)hipEventDestroy(event_); }
  void record(hipStream_t stream) { check(hipEventRecord(event_, stream), "hipEventRecord"); }
  double microseconds_since(const device_event& earlier) const {
    check(hipEventSynchronize(event_), "hipEventSynchronize");
    float milliseconds = 0;
    check(hipEventElapsedTime(&milliseconds, earlier.event_, event_), "hipEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e3;
  }

 private:
  hipEvent_t event_ = nullptr;
};

int num_compute_units() {
  int device = 0;
  int units = 0;
  check(hipGetDevice(&device), "hipGetDevice");
  check(hipDeviceGetAttribute(&units, hipDeviceAttributeMultiprocessorCount, device),
        "hipDeviceGetAttribute");
  return units;
}

/// Memory that nobody needs, larger than the caches; made at the first use.
class scratch {
 public:
  static const scratch& get() {
    static const scratch instance;
    return instance;
  }
  std::uint8_t* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  scratch()
      : bytes_(static_cast<std::size_t>(std::max(rotation_bytes(), std::int64_t{2} << 30))),
        memory_(bytes_) {
    // Not zeros: their transfer costs less energy, and so perhaps less time.
    check(hipMemset(memory_.get(), 0x5A, bytes_), "hipMemset");
  }
  std::size_t bytes_;
  kindex_test::device_memory memory_;
};

/// Reads a part of the scratch memory, as an engine reads weights.
hipError_t read_scratch(std::size_t first, std::size_t bytes, hipStream_t stream) {
  const stream_shape shape = {num_compute_units() * 4, 8, false};
  return read_stream(scratch::get().data() + first, bytes, shape, stream);
}

}  // namespace

timing time_launches(const std::function<hipError_t(std::int64_t, hipStream_t)>& launch,
                     std::int64_t num_sets, std::int64_t bytes_per_set, inputs where,
                     kindex_test::graph_edges edges, int replays) {
  // Whole rounds, so that the last set of a replay is as far from the first as any other.
  const std::int64_t rounds = (min_launches + num_sets - 1) / num_sets;
  const std::int64_t launches = rounds * num_sets;
  const auto all = [&](hipStream_t stream) {
    for (std::int64_t i = 0; i < launches; ++i) {
      const hipError_t status = launch(i % num_sets, stream);
      if (status != hipSuccess) return status;
    }
    return hipSuccess;
  };
  timing result;
  result.launches = static_cast<int>(launches);
  result.replays = replays;
  result.graph = kindex_test::can_capture();

  std::unique_ptr<kindex_test::captured_graph> graph;
  if (result.graph) {
    graph = std::make_unique<kindex_test::captured_graph>(all, edges);
    check(graph->status(), "launch under capture");
  }
  const auto replay = [&] {
    if (graph != nullptr) {
      graph->launch(only_stream);
    } else {
      check(all(only_stream), "launch");
    }
  };
  // Small inputs fit the caches, all sets together: other reads drive them out before each replay.
  // The read also keeps the device busy until the host has sent the replay.
  const bool evict = where == inputs::in_memory && num_sets * bytes_per_set < rotation_bytes();
  std::vector<double> times;
  device_event before;
  device_event after;
  for (int i = -2; i < replays; ++i) {
    const std::size_t read = evict ? scratch::get().bytes() : scratch::get().bytes() / 16;
    check(read_scratch(0, read, only_stream), "read_stream");
    if (where == inputs::in_caches) replay();
    before.record(only_stream);
    replay();
    after.record(only_stream);
    const double microseconds = after.microseconds_since(before);
    if (i >= 0) times.push_back(microseconds / static_cast<double>(launches));  // else warm-up
  }
  check(hipStreamSynchronize(only_stream), "hipStreamSynchronize");
  std::sort(times.begin(), times.end());
  result.median = times[times.size() / 2];
  result.fastest = times.front();
  result.slowest = times.back();
  return result;
}

std::int64_t reads_between_launches() { return std::int64_t{512} << 20; }

double time_among_reads(const std::function<hipError_t(std::int64_t, hipStream_t)>& launch,
                        std::int64_t num_sets) {
  // The reads make few sets as good as many.
  const std::int64_t sets = std::min<std::int64_t>(num_sets, 8);
  const auto bytes = static_cast<std::size_t>(reads_between_launches());
  const std::size_t parts = scratch::get().bytes() / bytes;
  std::size_t next_part = 0;
  // The reads alone are measured anew for every case: a clock that drifts by a thousandth meanwhile
  // would be a tenth of a microsecond.
  const auto time = [&](bool launches) {
    const timing all = time_launches(
        [&](std::int64_t set, hipStream_t stream) {
          const hipError_t status = read_scratch(next_part++ % parts * bytes, bytes, stream);
          return status == hipSuccess && launches ? launch(set, stream) : status;
        },
        sets, reads_between_launches());
    return all.median;
  };
  return time(true) - time(false);
}

double copy_microseconds(std::int64_t bytes) {
  static std::map<std::int64_t, double> known;
  const auto found = known.find(bytes);
  if (found != known.end()) return found->second;
  const auto each = static_cast<std::size_t>(bytes / 2);
  const std::size_t apart = (each + 511) / 512 * 512;
  const auto fit = static_cast<std::int64_t>(scratch::get().bytes() / 2 / apart);
  if (fit == 0 || bytes / 2 > last_level_cache_bytes()) return 0;
  const std::int64_t num_sets = std::min(fit, num_sets_for(bytes));
  const std::size_t distance = static_cast<std::size_t>(num_sets) * apart;
  const auto copy = [&](std::int64_t set, hipStream_t stream) {
    std::uint8_t* const from = scratch::get().data() + static_cast<std::size_t>(set) * apart;
    return hipMemcpyAsync(from + distance, from, each, hipMemcpyDeviceToDevice, stream);
  };
  return known[bytes] = time_launches(copy, num_sets, bytes).median;
}

const memory_ceilings& ceilings() {
  static const memory_ceilings measured = [] {
    const progress line("measuring the memory's ceilings");
    std::uint8_t* const data = scratch::get().data();
    const std::size_t bytes = scratch::get().bytes();
    const std::size_t half = bytes / 2;
    // The best of several launch shapes is the ceiling. On an H200 that is a block for every piece;
    // few blocks that stay lose 5 % of the copy.
    const auto best = [&](std::size_t moved, const auto& stream_kernel) {
      double rate = 0;
      for (const int per_unit : {0, 4, 16}) {
        for (const int unroll : {1, 4, 8}) {
          for (const bool passing : {false, true}) {
            const stream_shape shape = {num_compute_units() * per_unit, unroll, passing};
            const timing time = time_launches(
                [&](std::int64_t, hipStream_t stream) { return stream_kernel(shape, stream); }, 1,
                static_cast<std::int64_t>(moved), inputs::in_memory, kindex_test::graph_edges::full,
                5);
            rate = std::max(rate, static_cast<double>(moved) / time.median * 1e-3);
          }
        }
      }
      return rate;
    };
    memory_ceilings result;
    result.read = best(bytes, [&](const stream_shape& shape, hipStream_t stream) {
      return read_stream(data, bytes, shape, stream);
    });
    result.copy = best(2 * half, [&](const stream_shape& shape, hipStream_t stream) {
      return copy_stream(data + half, data, half, shape, stream);
    });
    result.write = best(bytes, [&](const stream_shape& shape, hipStream_t stream) {
      return write_stream(data, bytes, shape, stream);
    });
    return result;
  }();
  return measured;
}

}  // namespace kindex_bench
