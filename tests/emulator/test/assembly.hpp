// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Kernels written as assembly text, assembled when the test runs, and rows of "instruction and
// what it must compute", the form most tests here have.

#pragma once

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__
#endif
#include <hip/hip_runtime_api.h>

// HIP's macro; as C++20, libstdc++ 16 has an attribute of that name.
#undef __noinline__

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace emulator_test {

template <class To, class From>
To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float f32(uint32_t x) { return bits<float>(x); }
inline uint32_t u32(float x) { return bits<uint32_t>(x); }
inline float f16(uint32_t x) {
  return static_cast<float>(bits<_Float16>(static_cast<uint16_t>(x)));
}
inline uint32_t h16(double x) { return bits<uint16_t>(static_cast<_Float16>(x)); }
inline double f64(uint32_t low, uint32_t high) {
  return bits<double>(low | (static_cast<uint64_t>(high) << 32));
}

// One kernel: a name and its instructions. Arguments: three pointers in s[4:5], s[6:7], s[8:9]
// after the prologue that `rows` uses, or a body of its own that starts at the kernel's entry.
struct assembly_kernel {
  std::string name;
  std::string body;
  int lds = 0;
  int scratch = 0;
  int max_block = 1024;
};

using kernel_list = std::vector<assembly_kernel>;

class assembly_module {
 public:
  explicit assembly_module(const kernel_list& kernels);
  ~assembly_module();
  assembly_module(const assembly_module&) = delete;
  assembly_module& operator=(const assembly_module&) = delete;

  // Asserts nothing, so that several threads may launch.
  hipError_t launch(const std::string& name, std::vector<void*> pointers, unsigned blocks = 1,
                    unsigned threads = 64, unsigned lds = 0);

 private:
  hipModule_t module_ = nullptr;
};

// Device memory that the test can read directly.
template <class T>
class buffer {
 public:
  explicit buffer(size_t count) : count_(count) {
    if (hipMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)) != hipSuccess) std::abort();
  }
  explicit buffer(const std::vector<T>& values) : buffer(values.size()) {
    std::memcpy(data_, values.data(), count_ * sizeof(T));
  }
  ~buffer() { (void)hipFree(data_); }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;
  T* get() { return data_; }
  T& operator[](size_t k) { return data_[k]; }
  size_t size() const { return count_; }
  std::vector<T> copy() const { return std::vector<T>(data_, data_ + count_); }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// What an instruction row finds in its registers: v1..v6 and s16..s23.
struct inputs {
  uint32_t v[7][64];
  uint32_t s[24];
};

// Result registers v10..v13, preset to `preset`.
constexpr uint32_t preset[4] = {0x11223344u, 0x55667788u, 0x99aabbccu, 0xddeeff01u};

struct row {
  const char* text;
  std::function<void(const inputs&, int lane, uint32_t* out)> expect;
};

enum class input_kind { integers, floats, doubles, halves, small_floats };
inputs make_inputs(input_kind kind, uint32_t seed);

// Floats: NaNs of any payload are equal.
enum class compare { exact, f32, f16, f64 };

void check_rows(const std::vector<row>& rows, input_kind kind, compare how = compare::exact);

}  // namespace emulator_test
