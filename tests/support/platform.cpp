// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/platform.hpp"

#include <kindex/config.hpp>

// The C interface has a function with its struct's name.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#include "emulator/emulator.h"
#pragma GCC diagnostic pop

#include <type_traits>

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

bool is_nvidia() { return KINDEX_PLATFORM_NVIDIA != 0; }

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

double logits_tolerance() { return is_nvidia() ? 4e-4 : 1e-5; }

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

namespace {

// All of the emulator's functions that this file uses, or none.
struct emulator_api {
  decltype(&kindex_emulator_counters) counters = nullptr;
  decltype(&kindex_emulator_counters_reset) counters_reset = nullptr;
  decltype(&kindex_emulator_watch) watch = nullptr;
  decltype(&kindex_emulator_watch_read) watch_read = nullptr;
  decltype(&kindex_emulator_unwatch) unwatch = nullptr;
  decltype(&kindex_emulator_expect_findings) expect_findings = nullptr;
};

const emulator_api& emulator() {
  static const emulator_api api = [] {
    emulator_api found;
    const auto find = [](auto*& function, const char* name) {
      function =
          find_symbol<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
    };
    find(found.counters, "kindex_emulator_counters");
    find(found.counters_reset, "kindex_emulator_counters_reset");
    find(found.watch, "kindex_emulator_watch");
    find(found.watch_read, "kindex_emulator_watch_read");
    find(found.unwatch, "kindex_emulator_unwatch");
    find(found.expect_findings, "kindex_emulator_expect_findings");
    return found;
  }();
  return api;
}

}  // namespace

void reset_work() {
  if (emulator().counters_reset != nullptr) emulator().counters_reset();
}

device_work work_done() {
  if (emulator().counters == nullptr) return {};
  struct kindex_emulator_counters counters;
  emulator().counters(&counters);
  return {static_cast<std::int64_t>(counters.wave_instructions),
          static_cast<std::int64_t>(counters.waves),
          static_cast<std::int64_t>(counters.valu + counters.transcendental),
          static_cast<std::int64_t>(counters.lds_cycles - counters.lds_ideal_cycles)};
}

memory_watch::memory_watch(const void* base, std::size_t bytes) {
  if (emulator().watch == nullptr) return;
  id_ = emulator().watch(base, bytes);
  if (id_ < 0) throw std::runtime_error("the emulator watches too many ranges");
}

memory_watch::~memory_watch() {
  if (id_ >= 0) emulator().unwatch(id_);
}

struct kindex_emulator_traffic memory_watch::traffic() const {
  struct kindex_emulator_traffic found = {};
  if (id_ >= 0) emulator().watch_read(id_, &found);
  return found;
}

std::int64_t memory_watch::bytes_loaded() const {
  const struct kindex_emulator_traffic all = traffic();
  return static_cast<std::int64_t>(all.lane_bytes_loaded + all.scalar_bytes_loaded);
}

std::int64_t memory_watch::bytes_stored() const {
  return static_cast<std::int64_t>(traffic().lane_bytes_stored);
}

double memory_watch::segment_efficiency() const {
  const struct kindex_emulator_traffic all = traffic();
  return static_cast<double>(all.distinct_bytes_loaded) /
         (64 * static_cast<double>(all.segments_loaded));
}

expect_findings::expect_findings() {
  if (emulator().expect_findings != nullptr) emulator().expect_findings(1);
}

expect_findings::~expect_findings() {
  if (emulator().expect_findings != nullptr) emulator().expect_findings(0);
}

}  // namespace kindex_test
