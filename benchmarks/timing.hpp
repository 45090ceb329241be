// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Time on a GPU: many launches in one graph, over rotating inputs, between two events; the median
// over several replays.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <functional>

#include "support/launch.hpp"

namespace kindex_bench {

/// Microseconds of one launch.
struct timing {
  double median = 0;
  double fastest = 0;
  double slowest = 0;
  int launches = 0;  ///< between two events
  int replays = 0;
  bool graph = false;  ///< false where the device cannot capture
};

/// Where a launch finds its inputs.
enum class inputs : std::uint8_t {
  in_memory,
  in_caches,  ///< as what was computed just before: all sets fit them together
};

/// Times `launch(set, stream)` over num_sets sets of inputs of which each launch touches
/// bytes_per_set bytes. `edges` are those between the launches of the graph.
timing time_launches(const std::function<hipError_t(std::int64_t, hipStream_t)>& launch,
                     std::int64_t num_sets, std::int64_t bytes_per_set,
                     inputs where = inputs::in_memory,
                     kindex_test::graph_edges edges = kindex_test::graph_edges::full,
                     int replays = 15);

/// Microseconds that a launch adds to a graph in which as much of other memory is read before each
/// as an engine reads weights between the launches of two layers; outputs that wait in the caches
/// are written meanwhile, and that counts.
double time_among_reads(const std::function<hipError_t(std::int64_t, hipStream_t)>& launch,
                        std::int64_t num_sets);
/// Bytes of such a read.
std::int64_t reads_between_launches();

/// Microseconds that the runtime's own copy takes to read bytes / 2 and write as many. 0 for copies
/// that do not fit the last cache: on an H200 their time differs by half with where source and
/// destination lie, and says nothing.
double copy_microseconds(std::int64_t bytes);

/// What the memory gives kernels that do nothing else, in GB/s: bytes read plus bytes written.
struct memory_ceilings {
  double read = 0;
  double copy = 0;
  double write = 0;
};

/// Measured once, at the first call.
const memory_ceilings& ceilings();

}  // namespace kindex_bench
