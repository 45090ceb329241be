// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/platform.hpp"

#include <kindex/config.hpp>

#if !KINDEX_PLATFORM_NVIDIA
#include <dlfcn.h>
#endif

namespace kindex_test {
namespace {

// Functions of the emulator, found at run time: the same program runs on a GPU, where they are
// absent.
template <class Function>
Function* find_symbol([[maybe_unused]] const char* name) {
#if KINDEX_PLATFORM_NVIDIA
  return nullptr;
#else
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
#endif
}

}  // namespace

void check(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + hipGetErrorString(status));
}

bool is_emulated() {
  // The second name is the prototype's.
  static const bool found = find_symbol<void()>("kindex_emulator_set_fp8") != nullptr ||
                            find_symbol<void()>("gcn_launch") != nullptr;
  return found;
}

bool is_nvidia() {
  return KINDEX_PLATFORM_NVIDIA != 0;
}

kindex::fp8_format native_format() {
  if (is_nvidia()) return kindex::fp8_format::e4m3fn;
  int device = 0;
  check(hipGetDevice(&device), "hipGetDevice");
  int minor = 0;
  check(hipDeviceGetAttribute(&minor, hipDeviceAttributeComputeCapabilityMinor, device),
        "hipDeviceGetAttribute");
  return minor == 5 ? kindex::fp8_format::e4m3fn : kindex::fp8_format::e4m3fnuz;
}

void for_each_format(const std::function<void(kindex::fp8_format)>& body) {
  body(native_format());
  auto* set_fp8 = find_symbol<void(int)>("kindex_emulator_set_fp8");
  if (set_fp8 == nullptr) return;
  struct restore {
    void (*set)(int);
    int mode;
    ~restore() { set(mode); }
  };
  const int mode = native_format() == kindex::fp8_format::e4m3fnuz ? 0 : 1;
  const restore guard{set_fp8, mode};
  set_fp8(1 - mode);
  body(native_format());
}

double logits_tolerance() {
  return is_nvidia() ? 4e-4 : 1e-5;
}

bool can_capture() {
  // The prototype of the emulator has no such function at all.
  if (!is_nvidia() && find_symbol<void()>("hipStreamBeginCapture") == nullptr) return false;
  static const bool works = [] {
    hipStream_t stream = nullptr;
    if (hipStreamCreate(&stream) != hipSuccess) return false;
    hipGraph_t graph = nullptr;
    bool captured = hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess &&
                    hipStreamEndCapture(stream, &graph) == hipSuccess;
    if (graph != nullptr) captured = hipGraphDestroy(graph) == hipSuccess && captured;
    return hipStreamDestroy(stream) == hipSuccess && captured;
  }();
  return works;
}

std::int64_t executed_instructions() {
  auto* count = find_symbol<std::int64_t()>("kindex_emulator_instructions");
  return count == nullptr ? -1 : count();
}

}  // namespace kindex_test
