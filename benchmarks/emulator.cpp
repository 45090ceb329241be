// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "emulator.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace kindex_bench {
namespace {

/// All functions that are used here, or nulls.
struct emulator_api {
  decltype(&kindex_emulator_counters) counters = nullptr;
  decltype(&kindex_emulator_counters_reset) counters_reset = nullptr;
  decltype(&kindex_emulator_watch) watch = nullptr;
  decltype(&kindex_emulator_watch_read) watch_read = nullptr;
  decltype(&kindex_emulator_unwatch) unwatch = nullptr;
  decltype(&kindex_emulator_findings) findings = nullptr;
};

const emulator_api& api() {
  static const emulator_api found = [] {
    emulator_api functions;
    const auto find = [](auto*& function, const char* name) {
      using pointer = std::remove_reference_t<decltype(function)>;
      function = reinterpret_cast<pointer>(dlsym(RTLD_DEFAULT, name));
    };
    find(functions.counters, "kindex_emulator_counters");
    find(functions.counters_reset, "kindex_emulator_counters_reset");
    find(functions.watch, "kindex_emulator_watch");
    find(functions.watch_read, "kindex_emulator_watch_read");
    find(functions.unwatch, "kindex_emulator_unwatch");
    find(functions.findings, "kindex_emulator_findings");
    return functions;
  }();
  return found;
}

}  // namespace

bool has_emulator_counters() {
  return api().counters != nullptr && api().counters_reset != nullptr && api().watch != nullptr &&
         api().watch_read != nullptr && api().unwatch != nullptr;
}

unsigned long long emulator_findings() { return api().findings == nullptr ? 0 : api().findings(); }

emulator_recording::emulator_recording(const void* watched, std::size_t bytes) {
  if (!has_emulator_counters()) return;
  watch_ = api().watch(watched, bytes);
  api().counters_reset();
}

emulator_recording::~emulator_recording() {
  if (watch_ >= 0) api().unwatch(watch_);
}

emulator_counts emulator_recording::counts() const {
  emulator_counts counts;
  if (!has_emulator_counters()) return counts;
  api().counters(&counts.total);
  if (watch_ >= 0) api().watch_read(watch_, &counts.watched);
  return counts;
}

}  // namespace kindex_bench
