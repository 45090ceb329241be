// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The HIP host interface for the model: one Hopper device, launches that run at once.
#pragma once

#include <cstddef>

enum hipError_t {
  hipSuccess,
  hipErrorInvalidValue,
  hipErrorNotSupported,
};
enum hipDeviceAttribute_t {
  hipDeviceAttributeMultiprocessorCount,
  hipDeviceAttributeComputeCapabilityMajor,
  hipDeviceAttributeComputeCapabilityMinor,
};
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize };
struct model_stream;
using hipStream_t = model_stream*;
struct dim3 {
  unsigned x;
  explicit dim3(unsigned size) : x(size) {}
};

hipError_t hipGetDevice(int* device);
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device);
hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute attribute, int value);
hipError_t hipLaunchKernel(const void* kernel, dim3 num_blocks, dim3 block_size, void** arguments,
                           std::size_t dynamic_shared_bytes, hipStream_t stream);
