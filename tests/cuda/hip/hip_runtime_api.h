// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The HIP host interface over the CUDA runtime, as far as kindex, its tests and its benchmarks use
// it: for nvcc, and for C++ compilers, on machines without a HIP install. Same names, arguments and
// meaning as in HIP's own headers for NVIDIA; a HIP install's headers do as well.
#pragma once

#if defined(__HIP_PLATFORM_AMD__)
#error "kindex: tests/cuda is on the include path of a build for AMD"
#endif
#if !defined(__HIP_PLATFORM_NVIDIA__)
#define __HIP_PLATFORM_NVIDIA__ 1
#endif

#include <cuda_runtime_api.h>

#include <cstddef>

// Errors ----------------------------------------------------------------------------------------
using hipError_t = cudaError_t;
inline constexpr hipError_t hipSuccess = cudaSuccess;
inline constexpr hipError_t hipErrorInvalidValue = cudaErrorInvalidValue;
inline constexpr hipError_t hipErrorOutOfMemory = cudaErrorMemoryAllocation;
inline constexpr hipError_t hipErrorNotSupported = cudaErrorNotSupported;
inline constexpr hipError_t hipErrorInvalidConfiguration = cudaErrorInvalidConfiguration;
inline constexpr hipError_t hipErrorInvalidDevice = cudaErrorInvalidDevice;
inline constexpr hipError_t hipErrorNoDevice = cudaErrorNoDevice;
inline constexpr hipError_t hipErrorNotReady = cudaErrorNotReady;
inline constexpr hipError_t hipErrorNoBinaryForGpu = cudaErrorNoKernelImageForDevice;
inline constexpr hipError_t hipErrorStreamCaptureUnsupported = cudaErrorStreamCaptureUnsupported;
inline constexpr hipError_t hipErrorUnknown = cudaErrorUnknown;

inline const char* hipGetErrorName(hipError_t error) { return cudaGetErrorName(error); }
inline const char* hipGetErrorString(hipError_t error) { return cudaGetErrorString(error); }
inline hipError_t hipGetLastError() { return cudaGetLastError(); }
inline hipError_t hipPeekAtLastError() { return cudaPeekAtLastError(); }

// Device ----------------------------------------------------------------------------------------
using hipDeviceProp_t = cudaDeviceProp;
using hipDeviceAttribute_t = cudaDeviceAttr;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeMultiprocessorCount =
    cudaDevAttrMultiProcessorCount;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeComputeCapabilityMajor =
    cudaDevAttrComputeCapabilityMajor;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeComputeCapabilityMinor =
    cudaDevAttrComputeCapabilityMinor;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeMaxSharedMemoryPerBlock =
    cudaDevAttrMaxSharedMemoryPerBlock;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeL2CacheSize = cudaDevAttrL2CacheSize;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeClockRate = cudaDevAttrClockRate;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeMemoryClockRate =
    cudaDevAttrMemoryClockRate;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeMemoryBusWidth =
    cudaDevAttrGlobalMemoryBusWidth;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeWarpSize = cudaDevAttrWarpSize;

inline hipError_t hipGetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
inline hipError_t hipGetDevice(int* device) { return cudaGetDevice(device); }
inline hipError_t hipSetDevice(int device) { return cudaSetDevice(device); }
inline hipError_t hipDeviceSynchronize() { return cudaDeviceSynchronize(); }
inline hipError_t hipDeviceReset() { return cudaDeviceReset(); }
inline hipError_t hipGetDeviceProperties(hipDeviceProp_t* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}
inline hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  return cudaDeviceGetAttribute(value, attribute, device);
}
inline hipError_t hipRuntimeGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
inline hipError_t hipDriverGetVersion(int* version) { return cudaDriverGetVersion(version); }

// Kernels ---------------------------------------------------------------------------------------
using hipFuncAttribute = cudaFuncAttribute;
inline constexpr hipFuncAttribute hipFuncAttributeMaxDynamicSharedMemorySize =
    cudaFuncAttributeMaxDynamicSharedMemorySize;
inline hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(kernel, attribute, value);
}

// Memory ----------------------------------------------------------------------------------------
using hipMemcpyKind = cudaMemcpyKind;
inline constexpr hipMemcpyKind hipMemcpyHostToHost = cudaMemcpyHostToHost;
inline constexpr hipMemcpyKind hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
inline constexpr hipMemcpyKind hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
inline constexpr hipMemcpyKind hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;
inline constexpr hipMemcpyKind hipMemcpyDefault = cudaMemcpyDefault;
inline constexpr unsigned hipHostMallocDefault = cudaHostAllocDefault;

template <class T>
hipError_t hipMalloc(T** data, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(data), bytes);
}
template <class T>
hipError_t hipHostMalloc(T** data, std::size_t bytes, unsigned flags = hipHostMallocDefault) {
  return cudaHostAlloc(reinterpret_cast<void**>(data), bytes, flags);
}
inline hipError_t hipFree(void* data) { return cudaFree(data); }
inline hipError_t hipHostFree(void* data) { return cudaFreeHost(data); }
inline hipError_t hipMemGetInfo(std::size_t* free, std::size_t* total) {
  return cudaMemGetInfo(free, total);
}
inline hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline hipError_t hipMemset(void* data, int byte, std::size_t bytes) {
  return cudaMemset(data, byte, bytes);
}

// Streams and events ----------------------------------------------------------------------------
using hipStream_t = cudaStream_t;
using hipEvent_t = cudaEvent_t;
inline constexpr unsigned hipStreamDefault = cudaStreamDefault;
inline constexpr unsigned hipStreamNonBlocking = cudaStreamNonBlocking;
inline constexpr unsigned hipEventDefault = cudaEventDefault;
inline constexpr unsigned hipEventDisableTiming = cudaEventDisableTiming;

inline hipError_t hipStreamCreate(hipStream_t* stream) { return cudaStreamCreate(stream); }
inline hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithFlags(stream, flags);
}
inline hipError_t hipStreamDestroy(hipStream_t stream) { return cudaStreamDestroy(stream); }
inline hipError_t hipStreamQuery(hipStream_t stream) { return cudaStreamQuery(stream); }
inline hipError_t hipStreamSynchronize(hipStream_t stream) { return cudaStreamSynchronize(stream); }
inline hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags = 0) {
  return cudaStreamWaitEvent(stream, event, flags);
}
inline hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                                 hipStream_t stream = nullptr) {
  return cudaMemcpyAsync(to, from, bytes, kind, stream);
}
inline hipError_t hipMemsetAsync(void* data, int byte, std::size_t bytes,
                                 hipStream_t stream = nullptr) {
  return cudaMemsetAsync(data, byte, bytes, stream);
}
inline hipError_t hipEventCreate(hipEvent_t* event) { return cudaEventCreate(event); }
inline hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  return cudaEventCreateWithFlags(event, flags);
}
inline hipError_t hipEventDestroy(hipEvent_t event) { return cudaEventDestroy(event); }
inline hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream = nullptr) {
  return cudaEventRecord(event, stream);
}
inline hipError_t hipEventQuery(hipEvent_t event) { return cudaEventQuery(event); }
inline hipError_t hipEventSynchronize(hipEvent_t event) { return cudaEventSynchronize(event); }
inline hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t from, hipEvent_t to) {
  return cudaEventElapsedTime(milliseconds, from, to);
}

// Launches --------------------------------------------------------------------------------------
using hipFuncAttributes = cudaFuncAttributes;
inline hipError_t hipLaunchKernel(const void* kernel, dim3 num_blocks, dim3 block_size,
                                  void** arguments, std::size_t dynamic_shared_bytes,
                                  hipStream_t stream) {
  return cudaLaunchKernel(kernel, num_blocks, block_size, arguments, dynamic_shared_bytes, stream);
}
inline hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* kernel) {
  return cudaFuncGetAttributes(attributes, kernel);
}
inline hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks, const void* kernel,
                                                               int block_size,
                                                               std::size_t dynamic_shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(num_blocks, kernel, block_size,
                                                       dynamic_shared_bytes);
}

// Graphs ----------------------------------------------------------------------------------------
using hipGraph_t = cudaGraph_t;
using hipGraphExec_t = cudaGraphExec_t;
using hipGraphNode_t = cudaGraphNode_t;
using hipGraphNodeType = cudaGraphNodeType;
inline constexpr hipGraphNodeType hipGraphNodeTypeKernel = cudaGraphNodeTypeKernel;
using hipStreamCaptureMode = cudaStreamCaptureMode;
inline constexpr hipStreamCaptureMode hipStreamCaptureModeGlobal = cudaStreamCaptureModeGlobal;
inline constexpr hipStreamCaptureMode hipStreamCaptureModeThreadLocal =
    cudaStreamCaptureModeThreadLocal;
inline constexpr hipStreamCaptureMode hipStreamCaptureModeRelaxed = cudaStreamCaptureModeRelaxed;
using hipStreamCaptureStatus = cudaStreamCaptureStatus;
inline constexpr hipStreamCaptureStatus hipStreamCaptureStatusNone = cudaStreamCaptureStatusNone;
inline constexpr hipStreamCaptureStatus hipStreamCaptureStatusActive =
    cudaStreamCaptureStatusActive;

inline hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return cudaStreamBeginCapture(stream, mode);
}
inline hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  return cudaStreamEndCapture(stream, graph);
}
inline hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(stream, status);
}
/// CUDA 12 dropped the error node and its log.
inline hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, hipGraphNode_t*,
                                      char*, std::size_t) {
  return cudaGraphInstantiate(executable, graph, 0);
}
inline hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, std::size_t* count) {
  return cudaGraphGetNodes(graph, nodes, count);
}
inline hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  return cudaGraphNodeGetType(node, type);
}
inline hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  return cudaGraphLaunch(executable, stream);
}
inline hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  return cudaGraphExecDestroy(executable);
}
inline hipError_t hipGraphDestroy(hipGraph_t graph) { return cudaGraphDestroy(graph); }
