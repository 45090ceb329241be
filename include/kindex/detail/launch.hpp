// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the launchers share: facts about the current device and the launch itself. Only attribute
// queries, which are allowed while a stream captures; nothing is cached, nothing synchronises.
#pragma once

#include <hip/hip_runtime.h>

#include "../config.hpp"
#include "../fp8.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail {

struct device_facts {
  int num_compute_units = 0;
  fp8_format native_format = fp8_format::e4m3fn;
};

/// Facts of the current device; hipErrorNotSupported if kindex has no kernels for it.
inline hipError_t query_device(device_facts& facts) {
  int device = 0, major = 0, minor = 0;
  hipError_t status = hipGetDevice(&device);
  if (status != hipSuccess) return status;
  status = hipDeviceGetAttribute(&facts.num_compute_units, hipDeviceAttributeMultiprocessorCount,
                                 device);
  if (status != hipSuccess) return status;
  status = hipDeviceGetAttribute(&major, hipDeviceAttributeComputeCapabilityMajor, device);
  if (status != hipSuccess) return status;
  status = hipDeviceGetAttribute(&minor, hipDeviceAttributeComputeCapabilityMinor, device);
  if (status != hipSuccess) return status;
#if KINDEX_PLATFORM_NVIDIA
  facts.native_format = fp8_format::e4m3fn;
  return major == 9 && minor == 0 ? hipSuccess : hipErrorNotSupported;
#else
  // gfx942 says 9.4, gfx950 says 9.5.
  facts.native_format = minor == 4 ? fp8_format::e4m3fnuz : fp8_format::e4m3fn;
  return major == 9 && (minor == 4 || minor == 5) ? hipSuccess : hipErrorNotSupported;
#endif
}

/// Launches a kernel that takes one argument struct; the status is this launch's own.
template <class Args>
hipError_t launch(void (*kernel)(Args), unsigned num_blocks, unsigned block_size, Args args,
                  hipStream_t stream, unsigned dynamic_shared_bytes = 0) {
  // NVIDIA grants more than 48 KiB of shared memory only to kernels that ask.
  if (KINDEX_PLATFORM_NVIDIA != 0 && dynamic_shared_bytes > 48 * 1024) {
    const hipError_t status = hipFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                  hipFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(dynamic_shared_bytes));
    if (status != hipSuccess) return status;
  }
  void* arguments[] = {&args};
  return hipLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(num_blocks), dim3(block_size),
                         arguments, dynamic_shared_bytes, stream);
}

}  // namespace detail
KINDEX_NAMESPACE_END
