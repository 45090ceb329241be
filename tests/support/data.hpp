// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Test data: a reproducible random stream, values on which fp32 sums are exact, and random ones.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <kindex/fp8.hpp>

namespace kindex_test {

/// splitmix64: the same numbers from every compiler and library.
class random_stream {
 public:
  explicit random_stream(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// Uniform in [low, high].
  int integer(int low, int high) {
    return low + static_cast<int>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// Uniform in [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Roughly normal, variance 1.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += unit();
    return sum;
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[next() % i]);
    }
  }

 private:
  std::uint64_t state_;
};

/// `exact`: small integers and powers of two, for which any order of fp32 sums gives the same bits
/// (also in Hopper's tensor cores), so that tests compare with ==. `random`: normal values, all of
/// fp8's bytes; compared with the contract's tolerance.
enum class data_kind { exact, random };

constexpr const char* to_string(data_kind kind) {
  return kind == data_kind::exact ? "exact" : "random";
}

/// Bytes to draw from. Encoding each value anew would be most of the tests' time.
class byte_pool {
 public:
  template <class Value>
  byte_pool(kindex::fp8_format format, std::uint64_t seed, Value&& value) {
    random_stream random(seed);
    for (std::uint8_t& byte : bytes_) byte = kindex::fp8_encode(format, value(random));
  }
  std::uint8_t draw(random_stream& random) const { return bytes_[random.next() % bytes_.size()]; }

 private:
  std::array<std::uint8_t, 4096> bytes_{};
};

/// A K byte: -3..3, or a normal value with a wide spread.
inline std::uint8_t make_k_byte(data_kind kind, kindex::fp8_format format, random_stream& random) {
  const auto small = [](random_stream& r) { return static_cast<double>(r.integer(-3, 3)); };
  const auto wide = [](random_stream& r) { return r.normal() * (r.integer(0, 7) == 0 ? 60 : 4); };
  static const byte_pool exact_fnuz(kindex::fp8_format::e4m3fnuz, 1, small);
  static const byte_pool exact_fn(kindex::fp8_format::e4m3fn, 1, small);
  static const byte_pool random_fnuz(kindex::fp8_format::e4m3fnuz, 2, wide);
  static const byte_pool random_fn(kindex::fp8_format::e4m3fn, 2, wide);
  const bool fnuz = format == kindex::fp8_format::e4m3fnuz;
  if (kind == data_kind::exact) return (fnuz ? exact_fnuz : exact_fn).draw(random);
  return (fnuz ? random_fnuz : random_fn).draw(random);
}
/// A q byte: -2..2, or normal.
inline std::uint8_t make_q_byte(data_kind kind, kindex::fp8_format format, random_stream& random) {
  const auto small = [](random_stream& r) { return static_cast<double>(r.integer(-2, 2)); };
  const auto wide = [](random_stream& r) { return r.normal() * 20; };
  static const byte_pool exact_fnuz(kindex::fp8_format::e4m3fnuz, 3, small);
  static const byte_pool exact_fn(kindex::fp8_format::e4m3fn, 3, small);
  static const byte_pool random_fnuz(kindex::fp8_format::e4m3fnuz, 4, wide);
  static const byte_pool random_fn(kindex::fp8_format::e4m3fn, 4, wide);
  const bool fnuz = format == kindex::fp8_format::e4m3fnuz;
  if (kind == data_kind::exact) return (fnuz ? exact_fnuz : exact_fn).draw(random);
  return (fnuz ? random_fnuz : random_fn).draw(random);
}
/// A token's scale: a power of two in [1/4, 4], or any in [2^-6, 2^-3).
inline float make_scale(data_kind kind, random_stream& random) {
  return kind == data_kind::exact
             ? static_cast<float>(1 << random.integer(0, 4)) / 4
             : static_cast<float>((1 + random.unit()) / (8 << random.integer(0, 3)));
}
/// A head's weight: an integer in [-4, 4], or normal.
inline float make_weight(data_kind kind, random_stream& random) {
  return kind == data_kind::exact ? static_cast<float>(random.integer(-4, 4))
                                  : static_cast<float>(random.normal());
}

inline std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float bits_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace kindex_test
