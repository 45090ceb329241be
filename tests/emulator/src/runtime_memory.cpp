// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Allocation, copies and fills.

#include <cstring>

#include "memory.hpp"
#include "runtime.hpp"

namespace kindex::emulator {
namespace {

hipError_t allocate(void** pointer, size_t bytes, memory_kind kind) {
  if (!pointer) return fail(hipErrorInvalidValue);
  *pointer = nullptr;
  if (const hipError_t error = reject_during_capture()) return fail(error);
  if (bytes == 0) return hipSuccess;
  *pointer = memory().allocate(bytes, kind);
  return *pointer ? hipSuccess : fail(hipErrorOutOfMemory);
}

hipError_t release(void* pointer) {
  if (!pointer) return hipSuccess;
  return memory().release(pointer) ? hipSuccess : fail(hipErrorInvalidValue);
}

bool known(uint64_t address) {
  return memory().find(address, nullptr) || inside_code_object(address, 1);
}

// Device memory must lie within one buffer; anything else is taken for host memory.
bool range_ok(const void* pointer, size_t bytes, bool must_be_device) {
  const uint64_t address = reinterpret_cast<uint64_t>(pointer);
  if (bytes == 0) return true;
  if (!pointer) return false;
  if (!known(address)) return !must_be_device;
  return memory().inside_one(address, bytes) || inside_code_object(address, bytes);
}

hipError_t check_copy(const void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
  if (kind < hipMemcpyHostToHost || kind > hipMemcpyDefault) return hipErrorInvalidMemcpyDirection;
  const bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
  const bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
  if (!range_ok(to, bytes, to_device) || !range_ok(from, bytes, from_device)) {
    return hipErrorInvalidValue;
  }
  return hipSuccess;
}

hipError_t copy(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  if (const hipError_t error = check_copy(to, from, bytes, kind)) return fail(error);
  return result(submit(stream, hipGraphNodeTypeMemcpy, [=]() -> hipError_t {
    // Checked again: a replayed graph may refer to memory that is gone.
    if (const hipError_t error = check_copy(to, from, bytes, kind)) return error;
    if (bytes) std::memmove(to, from, bytes);
    return hipSuccess;
  }));
}

hipError_t copy_now(void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
  if (const hipError_t error = reject_during_capture()) return fail(error);
  if (const hipError_t error = copy(to, from, bytes, kind, nullptr)) return error;
  return result(launch_failure());
}

hipError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                     size_t height, hipMemcpyKind kind, hipStream_t stream) {
  if (width > to_pitch || width > from_pitch) return fail(hipErrorInvalidPitchValue);
  if (width == 0 || height == 0) return hipSuccess;
  const auto check = [=]() -> hipError_t {
    const hipError_t first = check_copy(to, from, width, kind);
    if (first != hipSuccess) return first;
    return check_copy(static_cast<char*>(to) + (height - 1) * to_pitch,
                      static_cast<const char*>(from) + (height - 1) * from_pitch, width, kind);
  };
  if (const hipError_t error = check()) return fail(error);
  return result(submit(stream, hipGraphNodeTypeMemcpy, [=]() -> hipError_t {
    if (const hipError_t error = check()) return error;
    for (size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<char*>(to) + row * to_pitch,
                   static_cast<const char*>(from) + row * from_pitch, width);
    }
    return hipSuccess;
  }));
}

template <class T>
hipError_t fill(void* to, T value, size_t count, hipStream_t stream) {
  const auto check = [=] { return range_ok(to, count * sizeof(T), true); };
  if (!check()) return fail(hipErrorInvalidValue);
  return result(submit(stream, hipGraphNodeTypeMemset, [=]() -> hipError_t {
    if (!check()) return hipErrorInvalidValue;
    char* at = static_cast<char*>(to);
    if (sizeof(T) == 1) {
      if (count) std::memset(at, static_cast<int>(value), count);
    } else {
      for (size_t k = 0; k < count; ++k) std::memcpy(at + k * sizeof(T), &value, sizeof(T));
    }
    return hipSuccess;
  }));
}

template <class T>
hipError_t fill_now(void* to, T value, size_t count) {
  if (const hipError_t error = reject_during_capture()) return fail(error);
  return fill<T>(to, value, count, nullptr);
}

hipError_t fill_rows(void* to, size_t pitch, int value, size_t width, size_t height,
                     hipStream_t stream) {
  if (width > pitch) return fail(hipErrorInvalidValue);
  for (size_t row = 0; row < height; ++row) {
    const hipError_t error = fill<unsigned char>(static_cast<char*>(to) + row * pitch,
                                                 static_cast<unsigned char>(value), width, stream);
    if (error != hipSuccess) return error;
  }
  return hipSuccess;
}

}  // namespace
}  // namespace kindex::emulator

using namespace kindex::emulator;

KINDEX_EMULATOR_API hipError_t hipMalloc(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, memory_kind::device);
}
KINDEX_EMULATOR_API hipError_t hipExtMallocWithFlags(void** pointer, size_t bytes, unsigned) {
  return allocate(pointer, bytes, memory_kind::device);
}
KINDEX_EMULATOR_API hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned) {
  return allocate(pointer, bytes, memory_kind::host);
}
KINDEX_EMULATOR_API hipError_t hipHostAlloc(void** pointer, size_t bytes, unsigned) {
  return allocate(pointer, bytes, memory_kind::host);
}
KINDEX_EMULATOR_API hipError_t hipMallocHost(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, memory_kind::host);
}
KINDEX_EMULATOR_API hipError_t hipMallocManaged(void** pointer, size_t bytes, unsigned) {
  return allocate(pointer, bytes, memory_kind::managed);
}
// Allocation in stream order is immediate, because all work is.
KINDEX_EMULATOR_API hipError_t hipMallocAsync(void** pointer, size_t bytes, hipStream_t) {
  return allocate(pointer, bytes, memory_kind::device);
}
KINDEX_EMULATOR_API hipError_t hipMallocPitch(void** pointer, size_t* pitch, size_t width,
                                              size_t height) {
  if (!pitch) return fail(hipErrorInvalidValue);
  *pitch = (width + 127) / 128 * 128;
  return allocate(pointer, *pitch * height, memory_kind::device);
}
KINDEX_EMULATOR_API hipError_t hipFree(void* pointer) { return release(pointer); }
KINDEX_EMULATOR_API hipError_t hipFreeAsync(void* pointer, hipStream_t stream) {
  if (capture_of(stream)) return fail(hipErrorStreamCaptureUnsupported);
  return release(pointer);
}
KINDEX_EMULATOR_API hipError_t hipHostFree(void* pointer) { return release(pointer); }
KINDEX_EMULATOR_API hipError_t hipFreeHost(void* pointer) { return release(pointer); }

KINDEX_EMULATOR_API hipError_t hipHostRegister(void* pointer, size_t bytes, unsigned) {
  if (!pointer || !bytes) return fail(hipErrorInvalidValue);
  return memory().register_host(pointer, bytes) ? hipSuccess
                                                : fail(hipErrorHostMemoryAlreadyRegistered);
}
KINDEX_EMULATOR_API hipError_t hipHostUnregister(void* pointer) {
  return memory().unregister_host(pointer) ? hipSuccess : fail(hipErrorHostMemoryNotRegistered);
}
KINDEX_EMULATOR_API hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned) {
  if (!device || !memory().find(reinterpret_cast<uint64_t>(host), nullptr)) {
    return fail(hipErrorInvalidValue);
  }
  *device = host;
  return hipSuccess;
}
KINDEX_EMULATOR_API hipError_t hipHostGetFlags(unsigned* flags, void* host) {
  if (!flags || !memory().find(reinterpret_cast<uint64_t>(host), nullptr)) {
    return fail(hipErrorInvalidValue);
  }
  *flags = 0;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipMemGetInfo(size_t* free, size_t* total) {
  if (!free || !total) return fail(hipErrorInvalidValue);
  (void)hipDeviceTotalMem(total, 0);
  const size_t used = memory().bytes_in_use();
  *free = *total > used ? *total - used : 0;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes,
                                                       const void* pointer) {
  if (!attributes || !pointer) return fail(hipErrorInvalidValue);
  allocation found;
  if (!memory().find(reinterpret_cast<uint64_t>(pointer), &found)) {
    return fail(hipErrorInvalidValue);
  }
  std::memset(attributes, 0, sizeof *attributes);
  const bool host = found.kind == memory_kind::host || found.kind == memory_kind::registered;
#if HIP_VERSION_MAJOR >= 6
  attributes->type = host ? hipMemoryTypeHost : hipMemoryTypeDevice;
#else
  attributes->memoryType = host ? hipMemoryTypeHost : hipMemoryTypeDevice;
#endif
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->hostPointer =
      found.kind == memory_kind::device ? nullptr : const_cast<void*>(pointer);
  attributes->isManaged = found.kind == memory_kind::managed;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* bytes,
                                                     hipDeviceptr_t pointer) {
  allocation found;
  if (!memory().find(reinterpret_cast<uint64_t>(pointer), &found)) {
    return fail(hipErrorNotFound);
  }
  if (base) *base = reinterpret_cast<hipDeviceptr_t>(found.begin);
  if (bytes) *bytes = found.bytes;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipMemcpy(void* to, const void* from, size_t bytes,
                                         hipMemcpyKind kind) {
  return copy_now(to, from, bytes, kind);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyWithStream(void* to, const void* from, size_t bytes,
                                                   hipMemcpyKind kind, hipStream_t stream) {
  return copy(to, from, bytes, kind, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes,
                                              hipMemcpyKind kind, hipStream_t stream) {
  return copy(to, from, bytes, kind, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyHtoD(hipDeviceptr_t to, void* from, size_t bytes) {
  return copy_now(to, from, bytes, hipMemcpyHostToDevice);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyDtoH(void* to, hipDeviceptr_t from, size_t bytes) {
  return copy_now(to, from, bytes, hipMemcpyDeviceToHost);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes) {
  return copy_now(to, from, bytes, hipMemcpyDeviceToDevice);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, void* from, size_t bytes,
                                                  hipStream_t stream) {
  return copy(to, from, bytes, hipMemcpyHostToDevice, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, size_t bytes,
                                                  hipStream_t stream) {
  return copy(to, from, bytes, hipMemcpyDeviceToHost, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from,
                                                  size_t bytes, hipStream_t stream) {
  return copy(to, from, bytes, hipMemcpyDeviceToDevice, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemcpy2D(void* to, size_t to_pitch, const void* from,
                                           size_t from_pitch, size_t width, size_t height,
                                           hipMemcpyKind kind) {
  if (const hipError_t error = reject_during_capture()) return fail(error);
  return copy_rows(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}
KINDEX_EMULATOR_API hipError_t hipMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                                size_t from_pitch, size_t width, size_t height,
                                                hipMemcpyKind kind, hipStream_t stream) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

KINDEX_EMULATOR_API hipError_t hipMemset(void* to, int value, size_t bytes) {
  return fill_now<unsigned char>(to, static_cast<unsigned char>(value), bytes);
}
KINDEX_EMULATOR_API hipError_t hipMemsetAsync(void* to, int value, size_t bytes,
                                              hipStream_t stream) {
  return fill<unsigned char>(to, static_cast<unsigned char>(value), bytes, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t count) {
  return fill_now<unsigned char>(to, value, count);
}
KINDEX_EMULATOR_API hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value,
                                                size_t count, hipStream_t stream) {
  return fill<unsigned char>(to, value, count, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t count) {
  return fill_now<unsigned short>(to, value, count);
}
KINDEX_EMULATOR_API hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value,
                                                 size_t count, hipStream_t stream) {
  return fill<unsigned short>(to, value, count, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count) {
  return fill_now<int>(to, value, count);
}
KINDEX_EMULATOR_API hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count,
                                                 hipStream_t stream) {
  return fill<int>(to, value, count, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemset2D(void* to, size_t pitch, int value, size_t width,
                                           size_t height) {
  if (const hipError_t error = reject_during_capture()) return fail(error);
  return fill_rows(to, pitch, value, width, height, nullptr);
}
KINDEX_EMULATOR_API hipError_t hipMemset2DAsync(void* to, size_t pitch, int value, size_t width,
                                                size_t height, hipStream_t stream) {
  return fill_rows(to, pitch, value, width, height, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemPrefetchAsync(const void*, size_t, int, hipStream_t) {
  return hipSuccess;
}
KINDEX_EMULATOR_API hipError_t hipMemAdvise(const void*, size_t, hipMemoryAdvise, int) {
  return hipSuccess;
}
