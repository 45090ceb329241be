// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/launch.hpp"

#include <kindex/config.hpp>

#include <cstddef>

namespace kindex_test {
namespace {

// Edges have kinds from CUDA 12.3 on. HIP has no names for them.
#if KINDEX_PLATFORM_NVIDIA && CUDART_VERSION >= 12030
constexpr bool runtime_has_programmatic_edges = true;

/// Makes all edges from a kernel to a kernel programmatic.
void make_edges_programmatic(hipGraph_t graph) {
#if CUDART_VERSION >= 13000
  constexpr auto get_edges = cudaGraphGetEdges;
  constexpr auto remove_edges = cudaGraphRemoveDependencies;
  constexpr auto add_edges = cudaGraphAddDependencies;
#else
  constexpr auto get_edges = cudaGraphGetEdges_v2;
  constexpr auto remove_edges = cudaGraphRemoveDependencies_v2;
  constexpr auto add_edges = cudaGraphAddDependencies_v2;
#endif
  std::size_t count = 0;
  check(get_edges(graph, nullptr, nullptr, nullptr, &count), "cudaGraphGetEdges");
  std::vector<cudaGraphNode_t> from(count);
  std::vector<cudaGraphNode_t> to(count);
  std::vector<cudaGraphEdgeData> data(count);
  check(get_edges(graph, from.data(), to.data(), data.data(), &count), "cudaGraphGetEdges");
  for (std::size_t i = 0; i < count; ++i) {
    cudaGraphNodeType earlier = {};
    cudaGraphNodeType later = {};
    check(cudaGraphNodeGetType(from[i], &earlier), "cudaGraphNodeGetType");
    check(cudaGraphNodeGetType(to[i], &later), "cudaGraphNodeGetType");
    if (earlier != cudaGraphNodeTypeKernel || later != cudaGraphNodeTypeKernel) continue;
    check(remove_edges(graph, &from[i], &to[i], &data[i], 1), "cudaGraphRemoveDependencies");
    data[i].from_port = cudaGraphKernelNodePortProgrammatic;
    data[i].type = cudaGraphDependencyTypeProgrammatic;
    check(add_edges(graph, &from[i], &to[i], &data[i], 1), "cudaGraphAddDependencies");
  }
}
#else
constexpr bool runtime_has_programmatic_edges = false;

void make_edges_programmatic(hipGraph_t) {}
#endif

}  // namespace

bool has_programmatic_edges() { return runtime_has_programmatic_edges && can_capture(); }

captured_graph::captured_graph(const operation& run, graph_edges edges) {
  // The strictest mode: any call that allocates or synchronises fails.
  check(hipStreamBeginCapture(stream_.get(), hipStreamCaptureModeGlobal), "hipStreamBeginCapture");
  status_ = run(stream_.get());
  check(hipStreamEndCapture(stream_.get(), &graph_), "hipStreamEndCapture");
  if (edges == graph_edges::programmatic) make_edges_programmatic(graph_);
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
