// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Shared state of the HIP runtime stand-in: streams, events, captures and errors.
//
// Work runs at once, on the calling thread's initiative: when hipLaunchKernel returns, the kernel
// is done. Streams therefore only matter for capture.

#pragma once

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__
#endif
#include <hip/hip_runtime_api.h>

// HIP's macro; as C++20, libstdc++ 16 has an attribute of that name.
#undef __noinline__

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common.hpp"
#include "launch.hpp"

#define KINDEX_EMULATOR_API extern "C" __attribute__((visibility("default")))

struct hipGraphNode {
  hipGraphNodeType type = hipGraphNodeTypeEmpty;
  std::function<hipError_t()> run;
};

struct ihipGraph {
  std::vector<std::shared_ptr<hipGraphNode>> nodes;
};

struct hipGraphExec {
  std::vector<std::shared_ptr<hipGraphNode>> nodes;
};

namespace kindex::emulator {

// A capture in progress; streams that joined it through events share it.
struct capture {
  hipStream_t origin = nullptr;
  hipStreamCaptureMode mode = hipStreamCaptureModeGlobal;
  std::thread::id thread;
  bool invalidated = false;
  std::unique_ptr<ihipGraph> graph = std::make_unique<ihipGraph>();
};

}  // namespace kindex::emulator

struct ihipStream_t {
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<kindex::emulator::capture> active;
};

struct ihipEvent_t {
  unsigned flags = 0;
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
  std::weak_ptr<kindex::emulator::capture> captured_in;
};

struct ihipModuleSymbol_t {
  kindex::emulator::code_object* object = nullptr;
  std::string name;
};

struct ihipModule_t {
  std::unique_ptr<kindex::emulator::code_object> object;
  std::vector<std::unique_ptr<ihipModuleSymbol_t>> functions;
};

namespace kindex::emulator {

// Records the error of a call for hipGetLastError and passes it on.
hipError_t fail(hipError_t error);
inline hipError_t result(hipError_t error) { return error == hipSuccess ? error : fail(error); }

// A kernel that failed: later synchronisations report it until hipGetLastError.
void set_launch_failure(hipError_t error);
hipError_t launch_failure();

// The capture that `stream` takes part in, or null.
capture* capture_of(hipStream_t stream);

// Runs `action`, or records it when the stream is being captured.
hipError_t submit(hipStream_t stream, hipGraphNodeType type, std::function<hipError_t()> action);

// For calls that a capture forbids: invalidates captures that mind, and returns the error.
hipError_t reject_during_capture();

// Kernels by the address of their host stub.
bool find_host_function(const void* host, code_object** object, std::string* name,
                        hipError_t* error);

// True when a loaded code object's writable or constant data contains the range.
bool inside_code_object(uint64_t address, size_t bytes);

hipError_t launch(const launch_request& request, hipStream_t stream);

}  // namespace kindex::emulator
