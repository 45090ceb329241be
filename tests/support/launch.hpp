// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Ways to run an operation: directly, and as a captured graph where the device can capture.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "support/platform.hpp"

namespace kindex_test {

/// Launches something on the stream it is given, as kindex's operations do.
using operation = std::function<hipError_t(hipStream_t)>;

/// An owned stream.
class device_stream {
 public:
  device_stream() { check(hipStreamCreate(&stream_), "hipStreamCreate"); }
  device_stream(const device_stream&) = delete;
  device_stream& operator=(const device_stream&) = delete;
  ~device_stream() { (void)hipStreamDestroy(stream_); }
  hipStream_t get() const { return stream_; }
  void synchronize() const { check(hipStreamSynchronize(stream_), "hipStreamSynchronize"); }

 private:
  hipStream_t stream_ = nullptr;
};

/// What one kernel of a graph waits for before it starts: that the one before it has ended, or, if
/// it is programmatic, that all of that one's blocks have started. For NVIDIA only.
enum class graph_edges : std::uint8_t { full, programmatic };

/// True if the device has programmatic edges, and can capture a graph to give them to.
bool has_programmatic_edges();

/// A captured operation that can be launched again and again. Captures without a launch before, so
/// the operation's first call may well be this one.
class captured_graph {
 public:
  explicit captured_graph(const operation& run, graph_edges edges = graph_edges::full);
  captured_graph(const captured_graph&) = delete;
  captured_graph& operator=(const captured_graph&) = delete;
  ~captured_graph();

  /// The operation's own status under capture.
  hipError_t status() const { return status_; }
  /// Runs the graph and waits.
  void launch();
  void launch(hipStream_t stream);

 private:
  device_stream stream_;
  hipError_t status_ = hipSuccess;
  hipGraph_t graph_ = nullptr;
  hipGraphExec_t executable_ = nullptr;
};

/// Runs the operation on a stream of its own and waits. Returns the operation's status, or what the
/// device said while it ran.
hipError_t run_directly(const operation& run);

/// The same through a graph.
hipError_t run_captured(const operation& run);

struct launcher {
  const char* name;
  hipError_t (*run)(const operation&);
};

/// run_directly and, where the device can capture, run_captured.
const std::vector<launcher>& launchers();

/// Calls `body(launcher)` for each of them.
template <class Body>
void for_each_launcher(Body&& body) {
  for (const launcher& each : launchers()) body(each);
}

}  // namespace kindex_test
