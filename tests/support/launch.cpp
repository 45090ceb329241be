// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/launch.hpp"

namespace kindex_test {

captured_graph::captured_graph(const operation& run) {
  // The strictest mode: any call that allocates or synchronises fails.
  check(hipStreamBeginCapture(stream_.get(), hipStreamCaptureModeGlobal), "hipStreamBeginCapture");
  status_ = run(stream_.get());
  check(hipStreamEndCapture(stream_.get(), &graph_), "hipStreamEndCapture");
  check(hipGraphInstantiate(&executable_, graph_, nullptr, nullptr, 0), "hipGraphInstantiate");
}

captured_graph::~captured_graph() {
  if (executable_ != nullptr) (void)hipGraphExecDestroy(executable_);
  if (graph_ != nullptr) (void)hipGraphDestroy(graph_);
}

void captured_graph::launch() {
  launch(stream_.get());
  stream_.synchronize();
}

void captured_graph::launch(hipStream_t stream) {
  check(hipGraphLaunch(executable_, stream), "hipGraphLaunch");
}

hipError_t run_directly(const operation& run) {
  const device_stream stream;
  const hipError_t status = run(stream.get());
  if (status != hipSuccess) return status;
  return hipStreamSynchronize(stream.get());
}

hipError_t run_captured(const operation& run) {
  captured_graph graph(run);
  if (graph.status() != hipSuccess) return graph.status();
  const device_stream stream;
  graph.launch(stream.get());
  return hipStreamSynchronize(stream.get());
}

const std::vector<launcher>& launchers() {
  static const std::vector<launcher> list = [] {
    std::vector<launcher> ways{{"directly", run_directly}};
    if (can_capture()) ways.push_back({"captured", run_captured});
    return ways;
  }();
  return list;
}

}  // namespace kindex_test
