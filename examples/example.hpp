// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What graph_capture and migrate share: arrays on the device, checks, the one page format of each.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <kindex/kindex.hpp>

namespace example {

/// Ends the program unless `status` is success.
inline void check(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
  std::exit(1);
}

/// An array on the device.
template <class T>
class device_array {
 public:
  explicit device_array(const std::vector<T>& values) : size_(values.size()) {
    check(hipMalloc(&data_, bytes()), "hipMalloc");
    upload(values);
  }
  explicit device_array(std::size_t size) : device_array(std::vector<T>(size)) {}
  ~device_array() { (void)hipFree(data_); }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;

  T* get() const { return data_; }
  void upload(const std::vector<T>& values) {
    check(hipMemcpy(data_, values.data(), bytes(), hipMemcpyHostToDevice), "hipMemcpy");
  }
  std::vector<T> download() const {
    std::vector<T> values(size_);
    check(hipMemcpy(values.data(), data_, bytes(), hipMemcpyDeviceToHost), "hipMemcpy");
    return values;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }
  std::size_t size_;
  T* data_ = nullptr;
};

/// bf16 of a number that bf16 holds exactly.
inline std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  static_assert(sizeof bits == sizeof value);
  __builtin_memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

inline bool close_to(float value, float expected) {
  return std::fabs(value - expected) <= 1e-3f * (1 + std::fabs(expected));
}

/// The device's fp8 format: gfx942 has one of its own.
inline kindex::fp8_format native_format() {
  kindex::fp8_format format{};
  check(kindex::native_format(format), "kindex::native_format");
  return format;
}

/// The kernel for 64 heads and one row: where q stays depends on the target.
template <class Pages>
using logits_config = kindex::paged_mqa_logits_config<
    Pages, KINDEX_PLATFORM_NVIDIA ? kindex::query_source::shared : kindex::query_source::registers,
    64>;

}  // namespace example
