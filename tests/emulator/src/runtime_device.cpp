// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Errors, device queries, streams and events.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "runtime.hpp"

namespace kindex::emulator {
namespace {

thread_local hipError_t last_error = hipSuccess;
std::atomic<int> failed_launch{hipSuccess};

std::mutex& stream_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}
std::set<hipStream_t>& live_streams() {
  static auto* const streams = new std::set<hipStream_t>;
  return *streams;
}
std::vector<std::weak_ptr<capture>>& captures() {
  static auto* const list = new std::vector<std::weak_ptr<capture>>;
  return *list;
}

bool is_special(hipStream_t stream) { return stream == nullptr || stream == hipStreamPerThread; }

bool valid(hipStream_t stream) {
  if (is_special(stream)) return true;
  const std::lock_guard<std::mutex> lock(stream_mutex());
  return live_streams().count(stream) != 0;
}

constexpr int compute_units = 304;
constexpr size_t global_memory = size_t{192} << 30;
constexpr int lds_bytes = 65536;
constexpr int max_block = 1024;
constexpr int clock_khz = 2100000;
constexpr int memory_clock_khz = 1300000;
constexpr int memory_bus_bits = 8192;
constexpr int l2_bytes = 4 << 20;
constexpr int registers_per_block = 65536;

const char* architecture() {
  return ocp_mode() ? "gfx950:sramecc+:xnack-" : "gfx942:sramecc+:xnack-";
}

struct error_text {
  hipError_t error;
  const char* name;
  const char* text;
};

constexpr error_text error_texts[] = {
    {hipSuccess, "hipSuccess", "no error"},
    {hipErrorInvalidValue, "hipErrorInvalidValue", "invalid argument"},
    {hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"},
    {hipErrorNotInitialized, "hipErrorNotInitialized", "initialization error"},
    {hipErrorDeinitialized, "hipErrorDeinitialized", "driver shutting down"},
    {hipErrorInvalidConfiguration, "hipErrorInvalidConfiguration",
     "invalid configuration argument"},
    {hipErrorInvalidPitchValue, "hipErrorInvalidPitchValue", "invalid pitch argument"},
    {hipErrorInvalidSymbol, "hipErrorInvalidSymbol", "invalid device symbol"},
    {hipErrorInvalidDevicePointer, "hipErrorInvalidDevicePointer", "invalid device pointer"},
    {hipErrorInvalidMemcpyDirection, "hipErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {hipErrorInsufficientDriver, "hipErrorInsufficientDriver",
     "driver version is insufficient for runtime version"},
    {hipErrorMissingConfiguration, "hipErrorMissingConfiguration",
     "__global__ function call is not configured"},
    {hipErrorPriorLaunchFailure, "hipErrorPriorLaunchFailure",
     "unspecified launch failure in prior launch"},
    {hipErrorInvalidDeviceFunction, "hipErrorInvalidDeviceFunction", "invalid device function"},
    {hipErrorNoDevice, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {hipErrorInvalidDevice, "hipErrorInvalidDevice", "invalid device ordinal"},
    {hipErrorInvalidImage, "hipErrorInvalidImage", "device kernel image is invalid"},
    {hipErrorInvalidContext, "hipErrorInvalidContext", "invalid device context"},
    {hipErrorNoBinaryForGpu, "hipErrorNoBinaryForGpu",
     "no kernel image is available for execution on the device"},
    {hipErrorFileNotFound, "hipErrorFileNotFound", "file not found"},
    {hipErrorInvalidHandle, "hipErrorInvalidHandle", "invalid resource handle"},
    {hipErrorIllegalState, "hipErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {hipErrorNotFound, "hipErrorNotFound", "named symbol not found"},
    {hipErrorNotReady, "hipErrorNotReady", "device not ready"},
    {hipErrorIllegalAddress, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {hipErrorLaunchOutOfResources, "hipErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {hipErrorLaunchTimeOut, "hipErrorLaunchTimeOut", "the launch timed out and was terminated"},
    {hipErrorAssert, "hipErrorAssert", "device-side assert triggered"},
    {hipErrorHostMemoryAlreadyRegistered, "hipErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {hipErrorHostMemoryNotRegistered, "hipErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {hipErrorLaunchFailure, "hipErrorLaunchFailure", "unspecified launch failure"},
    {hipErrorCooperativeLaunchTooLarge, "hipErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {hipErrorNotSupported, "hipErrorNotSupported", "operation not supported"},
    {hipErrorStreamCaptureUnsupported, "hipErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {hipErrorStreamCaptureInvalidated, "hipErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {hipErrorStreamCaptureMerge, "hipErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {hipErrorStreamCaptureUnmatched, "hipErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {hipErrorStreamCaptureUnjoined, "hipErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {hipErrorStreamCaptureIsolation, "hipErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {hipErrorStreamCaptureImplicit, "hipErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {hipErrorCapturedEvent, "hipErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {hipErrorStreamCaptureWrongThread, "hipErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {hipErrorGraphExecUpdateFailure, "hipErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints "
     "specific to instantiated graph update"},
    {hipErrorUnknown, "hipErrorUnknown", "unknown error"},
};

const error_text* find_error(hipError_t error) {
  for (const error_text& e : error_texts) {
    if (e.error == error) return &e;
  }
  return nullptr;
}

int attribute(hipDeviceAttribute_t which, bool* known) {
  *known = true;
  switch (which) {
    case hipDeviceAttributeWarpSize:
      return lanes_per_wave;
    case hipDeviceAttributeMultiprocessorCount:
      return compute_units;
    case hipDeviceAttributeMaxThreadsPerBlock:
    case hipDeviceAttributeMaxBlockDimX:
    case hipDeviceAttributeMaxBlockDimY:
    case hipDeviceAttributeMaxBlockDimZ:
      return max_block;
    case hipDeviceAttributeMaxGridDimX:
    case hipDeviceAttributeMaxGridDimY:
    case hipDeviceAttributeMaxGridDimZ:
      return 0x7fffffff;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
    case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor:
      return lds_bytes;
    case hipDeviceAttributeComputeCapabilityMajor:
      return 9;
    case hipDeviceAttributeComputeCapabilityMinor:
      return ocp_mode() ? 5 : 4;
    case hipDeviceAttributeClockRate:
      return clock_khz;
    case hipDeviceAttributeMemoryClockRate:
      return memory_clock_khz;
    case hipDeviceAttributeMemoryBusWidth:
      return memory_bus_bits;
    case hipDeviceAttributeL2CacheSize:
      return l2_bytes;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor:
      return 2048;
    case hipDeviceAttributeMaxRegistersPerBlock:
      return registers_per_block;
    case hipDeviceAttributeConcurrentKernels:
    case hipDeviceAttributeCanMapHostMemory:
    case hipDeviceAttributeManagedMemory:
      return 1;
    case hipDeviceAttributeIntegrated:
    case hipDeviceAttributeCooperativeLaunch:
    case hipDeviceAttributeMemoryPoolsSupported:
    case hipDeviceAttributeEccEnabled:
    case hipDeviceAttributePciBusId:
    case hipDeviceAttributePciDeviceId:
    case hipDeviceAttributePciDomainID:
    case hipDeviceAttributeComputeMode:
    case hipDeviceAttributeKernelExecTimeout:
    case hipDeviceAttributePageableMemoryAccess:
    case hipDeviceAttributeConcurrentManagedAccess:
      return 0;
    default:
      *known = false;
      return 0;
  }
}

hipError_t synchronize_checked(bool capturing) {
  if (capturing) return fail(hipErrorStreamCaptureUnsupported);
  return result(launch_failure());
}

}  // namespace

hipError_t fail(hipError_t error) {
  last_error = error;
  return error;
}

void set_launch_failure(hipError_t error) { failed_launch = error; }
hipError_t launch_failure() { return static_cast<hipError_t>(failed_launch.load()); }

capture* capture_of(hipStream_t stream) {
  return is_special(stream) ? nullptr : stream->active.get();
}

hipError_t submit(hipStream_t stream, hipGraphNodeType type, std::function<hipError_t()> action) {
  if (!valid(stream)) return hipErrorInvalidHandle;
  capture* c = capture_of(stream);
  if (!c) return action();
  if (c->invalidated) return hipErrorStreamCaptureInvalidated;
  auto node = std::make_shared<hipGraphNode>();
  node->type = type;
  node->run = std::move(action);
  c->graph->nodes.push_back(std::move(node));
  return hipSuccess;
}

hipError_t reject_during_capture() {
  hipError_t error = hipSuccess;
  const std::lock_guard<std::mutex> lock(stream_mutex());
  for (const std::weak_ptr<capture>& weak : captures()) {
    const auto c = weak.lock();
    if (!c || c->mode == hipStreamCaptureModeRelaxed) continue;
    if (c->mode == hipStreamCaptureModeThreadLocal && c->thread != std::this_thread::get_id()) {
      continue;
    }
    c->invalidated = true;
    error = hipErrorStreamCaptureUnsupported;
  }
  return error;
}

}  // namespace kindex::emulator

using namespace kindex::emulator;

KINDEX_EMULATOR_API hipError_t hipGetLastError(void) {
  hipError_t error = last_error;
  if (error == hipSuccess) error = launch_failure();
  last_error = hipSuccess;
  set_launch_failure(hipSuccess);
  return error;
}

KINDEX_EMULATOR_API hipError_t hipPeekAtLastError(void) {
  return last_error == hipSuccess ? launch_failure() : last_error;
}

KINDEX_EMULATOR_API const char* hipGetErrorString(hipError_t error) {
  const error_text* e = find_error(error);
  return e ? e->text : "unrecognized error code";
}

KINDEX_EMULATOR_API const char* hipGetErrorName(hipError_t error) {
  const error_text* e = find_error(error);
  return e ? e->name : "hipErrorUnknown";
}

KINDEX_EMULATOR_API hipError_t hipInit(unsigned flags) {
  return flags ? fail(hipErrorInvalidValue) : hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGetDeviceCount(int* count) {
  if (!count) return fail(hipErrorInvalidValue);
  *count = 1;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGetDevice(int* device) {
  if (!device) return fail(hipErrorInvalidValue);
  *device = 0;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipSetDevice(int device) {
  return device == 0 ? hipSuccess : fail(hipErrorInvalidDevice);
}

KINDEX_EMULATOR_API hipError_t hipDeviceGet(hipDevice_t* device, int ordinal) {
  if (!device) return fail(hipErrorInvalidValue);
  if (ordinal != 0) return fail(hipErrorInvalidDevice);
  *device = 0;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipDeviceGetName(char* name, int length, hipDevice_t device) {
  if (!name || length <= 0) return fail(hipErrorInvalidValue);
  if (device != 0) return fail(hipErrorInvalidDevice);
  std::snprintf(name, static_cast<size_t>(length), "kindex emulator (%s)",
                ocp_mode() ? "gfx950" : "gfx942");
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device) {
  if (!bytes) return fail(hipErrorInvalidValue);
  if (device != 0) return fail(hipErrorInvalidDevice);
  *bytes = global_memory;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipDeviceGetPCIBusId(char* id, int length, int device) {
  if (!id || length <= 0) return fail(hipErrorInvalidValue);
  if (device != 0) return fail(hipErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(length), "0000:00:00.0");
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipDeviceComputeCapability(int* major, int* minor,
                                                          hipDevice_t device) {
  if (!major || !minor) return fail(hipErrorInvalidValue);
  if (device != 0) return fail(hipErrorInvalidDevice);
  *major = 9;
  *minor = ocp_mode() ? 5 : 4;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGetDeviceProperties(hipDeviceProp_t* p, int device) {
  if (!p) return fail(hipErrorInvalidValue);
  if (device != 0) return fail(hipErrorInvalidDevice);
  std::memset(p, 0, sizeof *p);
  (void)hipDeviceGetName(p->name, sizeof p->name, 0);
  std::snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s", architecture());
  p->totalGlobalMem = global_memory;
  p->sharedMemPerBlock = lds_bytes;
  p->maxSharedMemoryPerMultiProcessor = lds_bytes;
  p->regsPerBlock = registers_per_block;
  p->warpSize = lanes_per_wave;
  p->maxThreadsPerBlock = max_block;
  p->maxThreadsPerMultiProcessor = 2048;
  for (int axis = 0; axis < 3; ++axis) {
    p->maxThreadsDim[axis] = max_block;
    p->maxGridSize[axis] = 0x7fffffff;
  }
  p->clockRate = clock_khz;
  p->memoryClockRate = memory_clock_khz;
  p->memoryBusWidth = memory_bus_bits;
  p->totalConstMem = 0x7fffffff;
  p->major = 9;
  p->minor = ocp_mode() ? 5 : 4;
  p->multiProcessorCount = compute_units;
  p->l2CacheSize = l2_bytes;
  p->concurrentKernels = 1;
  p->canMapHostMemory = 1;
  p->managedMemory = 1;
  p->memPitch = 0x7fffffff;
  p->textureAlignment = 256;
  p->arch.hasGlobalInt32Atomics = 1;
  p->arch.hasSharedInt32Atomics = 1;
  p->arch.hasGlobalInt64Atomics = 1;
  p->arch.hasDoubles = 1;
  p->arch.hasWarpShuffle = 1;
  p->arch.hasWarpBallot = 1;
  p->arch.has3dGrid = 1;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which,
                                                     int device) {
  if (!value) return fail(hipErrorInvalidValue);
  if (device != 0) return fail(hipErrorInvalidDevice);
  bool known;
  *value = attribute(which, &known);
  return known ? hipSuccess : fail(hipErrorInvalidValue);
}

KINDEX_EMULATOR_API hipError_t hipRuntimeGetVersion(int* version) {
  if (!version) return fail(hipErrorInvalidValue);
  *version = HIP_VERSION;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipDriverGetVersion(int* version) {
  return hipRuntimeGetVersion(version);
}

KINDEX_EMULATOR_API hipError_t hipDeviceCanAccessPeer(int* can, int, int) {
  if (!can) return fail(hipErrorInvalidValue);
  *can = 0;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipDeviceReset(void) { return hipSuccess; }
KINDEX_EMULATOR_API hipError_t hipSetDeviceFlags(unsigned) { return hipSuccess; }
KINDEX_EMULATOR_API hipError_t hipDeviceSetCacheConfig(hipFuncCache_t) { return hipSuccess; }

KINDEX_EMULATOR_API hipError_t hipDeviceSynchronize(void) {
  return synchronize_checked(reject_during_capture() != hipSuccess);
}

KINDEX_EMULATOR_API hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 1;
  if (greatest) *greatest = -1;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags,
                                                           int priority) {
  if (!stream || (flags != hipStreamDefault && flags != hipStreamNonBlocking)) {
    return fail(hipErrorInvalidValue);
  }
  *stream = new ihipStream_t;
  (*stream)->flags = flags;
  (*stream)->priority = std::clamp(priority, -1, 1);
  const std::lock_guard<std::mutex> lock(stream_mutex());
  live_streams().insert(*stream);
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  return hipStreamCreateWithPriority(stream, flags, 0);
}

KINDEX_EMULATOR_API hipError_t hipStreamCreate(hipStream_t* stream) {
  return hipStreamCreateWithPriority(stream, hipStreamDefault, 0);
}

KINDEX_EMULATOR_API hipError_t hipStreamDestroy(hipStream_t stream) {
  if (is_special(stream) || !valid(stream)) return fail(hipErrorInvalidHandle);
  {
    const std::lock_guard<std::mutex> lock(stream_mutex());
    live_streams().erase(stream);
  }
  delete stream;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamSynchronize(hipStream_t stream) {
  if (!valid(stream)) return fail(hipErrorInvalidHandle);
  if (capture* c = capture_of(stream)) {
    c->invalidated = true;
    return fail(hipErrorStreamCaptureUnsupported);
  }
  return result(launch_failure());
}

KINDEX_EMULATOR_API hipError_t hipStreamQuery(hipStream_t stream) {
  return hipStreamSynchronize(stream);
}

KINDEX_EMULATOR_API hipError_t hipStreamGetFlags(hipStream_t stream, unsigned* flags) {
  if (!flags) return fail(hipErrorInvalidValue);
  if (!valid(stream)) return fail(hipErrorInvalidHandle);
  *flags = is_special(stream) ? 0 : stream->flags;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamGetPriority(hipStream_t stream, int* priority) {
  if (!priority) return fail(hipErrorInvalidValue);
  if (!valid(stream)) return fail(hipErrorInvalidHandle);
  *priority = is_special(stream) ? 0 : stream->priority;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamAddCallback(hipStream_t stream,
                                                    hipStreamCallback_t callback, void* data,
                                                    unsigned) {
  if (!callback) return fail(hipErrorInvalidValue);
  if (capture_of(stream)) return fail(hipErrorStreamCaptureUnsupported);
  callback(stream, launch_failure(), data);
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
  if (!event || !valid(stream)) return fail(hipErrorInvalidHandle);
  const auto c = event->captured_in.lock();
  capture* own = capture_of(stream);
  if (!c) {
    if (!own) return hipSuccess;
    // Work outside the capture cannot be waited for inside it.
    if (event->recorded) {
      own->invalidated = true;
      return fail(hipErrorStreamCaptureIsolation);
    }
    return hipSuccess;
  }
  if (own && own != c.get()) {
    own->invalidated = c->invalidated = true;
    return fail(hipErrorStreamCaptureMerge);
  }
  if (is_special(stream)) {
    c->invalidated = true;
    return fail(hipErrorStreamCaptureImplicit);
  }
  stream->active = c;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  if (!event) return fail(hipErrorInvalidValue);
  *event = new ihipEvent_t;
  (*event)->flags = flags;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipEventCreate(hipEvent_t* event) {
  return hipEventCreateWithFlags(event, 0);
}

KINDEX_EMULATOR_API hipError_t hipEventDestroy(hipEvent_t event) {
  if (!event) return fail(hipErrorInvalidHandle);
  delete event;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  if (!event || !valid(stream)) return fail(hipErrorInvalidHandle);
  event->captured_in.reset();
  if (capture_of(stream)) {
    event->captured_in = stream->active;
    return hipSuccess;
  }
  event->recorded = true;
  event->time = std::chrono::steady_clock::now();
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipEventSynchronize(hipEvent_t event) {
  if (!event) return fail(hipErrorInvalidHandle);
  if (const auto c = event->captured_in.lock()) {
    c->invalidated = true;
    return fail(hipErrorCapturedEvent);
  }
  return result(launch_failure());
}

KINDEX_EMULATOR_API hipError_t hipEventQuery(hipEvent_t event) {
  return hipEventSynchronize(event);
}

// Host time: how long the emulation took, which says nothing about a GPU.
KINDEX_EMULATOR_API hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop) {
  if (!ms) return fail(hipErrorInvalidValue);
  if (!start || !stop || !start->recorded || !stop->recorded) return fail(hipErrorInvalidHandle);
  *ms = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamBeginCapture(hipStream_t stream,
                                                     hipStreamCaptureMode mode) {
  if (!valid(stream)) return fail(hipErrorInvalidHandle);
  if (is_special(stream)) return fail(hipErrorStreamCaptureUnsupported);
  if (stream->active) return fail(hipErrorIllegalState);
  if (mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed) {
    return fail(hipErrorInvalidValue);
  }
  auto c = std::make_shared<capture>();
  c->origin = stream;
  c->mode = mode;
  c->thread = std::this_thread::get_id();
  stream->active = c;
  const std::lock_guard<std::mutex> lock(stream_mutex());
  auto& list = captures();
  list.erase(std::remove_if(list.begin(), list.end(), [](const auto& w) { return w.expired(); }),
             list.end());
  list.push_back(c);
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  if (!graph) return fail(hipErrorInvalidValue);
  *graph = nullptr;
  if (is_special(stream) || !valid(stream)) return fail(hipErrorInvalidHandle);
  const std::shared_ptr<capture> c = stream->active;
  if (!c) return fail(hipErrorIllegalState);
  if (c->origin != stream) return fail(hipErrorStreamCaptureUnmatched);
  if (c->mode != hipStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id()) {
    return fail(hipErrorStreamCaptureWrongThread);
  }
  {
    const std::lock_guard<std::mutex> lock(stream_mutex());
    for (hipStream_t s : live_streams()) {
      if (s->active == c) s->active.reset();
    }
    auto& list = captures();
    list.erase(std::remove_if(list.begin(), list.end(),
                              [&](const auto& w) { return w.expired() || w.lock() == c; }),
               list.end());
  }
  if (c->invalidated) return fail(hipErrorStreamCaptureInvalidated);
  *graph = c->graph.release();
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamIsCapturing(hipStream_t stream,
                                                    hipStreamCaptureStatus* status) {
  if (!status) return fail(hipErrorInvalidValue);
  if (!valid(stream)) return fail(hipErrorInvalidHandle);
  const capture* c = capture_of(stream);
  *status = !c               ? hipStreamCaptureStatusNone
            : c->invalidated ? hipStreamCaptureStatusInvalidated
                             : hipStreamCaptureStatusActive;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipStreamGetCaptureInfo(hipStream_t stream,
                                                       hipStreamCaptureStatus* status,
                                                       unsigned long long* id) {
  const hipError_t error = hipStreamIsCapturing(stream, status);
  if (error == hipSuccess && id) *id = reinterpret_cast<uint64_t>(capture_of(stream));
  return error;
}

KINDEX_EMULATOR_API hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  if (!mode) return fail(hipErrorInvalidValue);
  return fail(hipErrorNotSupported);
}

KINDEX_EMULATOR_API hipError_t hipGraphCreate(hipGraph_t* graph, unsigned flags) {
  if (!graph || flags) return fail(hipErrorInvalidValue);
  *graph = new ihipGraph;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGraphDestroy(hipGraph_t graph) {
  if (!graph) return fail(hipErrorInvalidValue);
  delete graph;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph,
                                                   hipGraphNode_t* node, char* log, size_t size) {
  if (!exec || !graph) return fail(hipErrorInvalidValue);
  if (node) *node = nullptr;
  if (log && size) *log = '\0';
  *exec = new hipGraphExec{graph->nodes};
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* exec, hipGraph_t graph,
                                                            unsigned long long) {
  return hipGraphInstantiate(exec, graph, nullptr, nullptr, 0);
}

KINDEX_EMULATOR_API hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
  if (!exec) return fail(hipErrorInvalidValue);
  // Launched into a capture, a graph becomes part of it.
  const auto nodes = exec->nodes;
  return result(submit(stream, hipGraphNodeTypeGraph, [nodes] {
    for (const auto& node : nodes) {
      const hipError_t error = node->run();
      if (error != hipSuccess) return error;
    }
    return hipSuccess;
  }));
}

KINDEX_EMULATOR_API hipError_t hipGraphExecDestroy(hipGraphExec_t exec) {
  if (!exec) return fail(hipErrorInvalidValue);
  delete exec;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes,
                                                size_t* count) {
  if (!graph || !count) return fail(hipErrorInvalidValue);
  if (nodes) {
    const size_t n = std::min(*count, graph->nodes.size());
    for (size_t k = 0; k < n; ++k) nodes[k] = graph->nodes[k].get();
    for (size_t k = n; k < *count; ++k) nodes[k] = nullptr;
  }
  *count = graph->nodes.size();
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  if (!node || !type) return fail(hipErrorInvalidValue);
  *type = node->type;
  return hipSuccess;
}
