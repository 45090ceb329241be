// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Device memory that notices wrong accesses: outputs between guard bytes, inputs that end where
// their allocation ends.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "support/platform.hpp"

namespace kindex_test {

/// What every output holds before a launch, and every byte that the contract leaves alone after it.
constexpr std::uint32_t untouched_word = 0x7FC0DEAD;

/// Guard bytes on each side of an output.
constexpr std::size_t guard_bytes = 512;

/// The byte of a guard at position i of its allocation: differs from place to place, so that a copy
/// of guard bytes to another place shows as well.
constexpr std::uint8_t guard_byte(std::size_t i) {
  return static_cast<std::uint8_t>(0xC3 ^ (i * 37) ^ (i >> 8));
}

/// One owned hipMalloc allocation.
class device_memory {
 public:
  device_memory() = default;
  explicit device_memory(std::size_t bytes);
  device_memory(device_memory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  device_memory& operator=(device_memory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~device_memory();

  std::uint8_t* get() const { return data_; }

 private:
  std::uint8_t* data_ = nullptr;
};

/// Bytes at the very end of their allocation, so that the next byte is unmapped: the emulator knows
/// sizes to the byte; on a GPU the end of the allocation is the end of its last page.
/// `lead_bytes` before them make the base as badly aligned as wanted (emulator only).
class exact_bytes {
 public:
  exact_bytes() = default;
  explicit exact_bytes(std::size_t bytes, std::size_t lead_bytes = 0);
  std::uint8_t* get() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  device_memory memory_;
  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

/// An input array placed by exact_bytes. Reading element [size] is a fault.
template <class T>
class device_array {
 public:
  device_array() = default;
  explicit device_array(const std::vector<T>& host, std::size_t lead_bytes = 0)
      : memory_(host.size() * sizeof(T), lead_bytes) {
    upload(host);
  }

  T* get() const { return reinterpret_cast<T*>(memory_.get()); }
  std::size_t size() const { return memory_.size() / sizeof(T); }

  /// Replaces the content (same size): what a step of an engine does between two graph launches.
  void upload(const std::vector<T>& host) {
    if (host.size() != size()) throw std::logic_error("device_array: upload of another size");
    if (!host.empty()) {
      check(hipMemcpy(get(), host.data(), host.size() * sizeof(T), hipMemcpyHostToDevice),
            "hipMemcpy");
    }
  }

  std::vector<T> download() const {
    std::vector<T> host(size());
    if (!host.empty()) {
      check(hipMemcpy(host.data(), get(), host.size() * sizeof(T), hipMemcpyDeviceToHost),
            "hipMemcpy");
    }
    return host;
  }

 private:
  exact_bytes memory_;
};

/// A flat block of bytes between two guards, with an image on the host.
class guarded_bytes {
 public:
  guarded_bytes() = default;
  /// `misalign`: bytes by which the base misses a 256-byte boundary.
  explicit guarded_bytes(std::size_t bytes, std::size_t misalign = 0);

  std::uint8_t* get() const { return memory_.get() + begin_; }
  std::size_t size() const { return image_.size() - begin_ - guard_bytes; }
  /// The host's image of the block; upload() and download() move it with its guards.
  std::uint8_t* image() { return image_.data() + begin_; }
  const std::uint8_t* image() const { return image_.data() + begin_; }
  void upload();
  void download();
  /// Gives every byte of the image its guard value.
  void reset_image();
  /// "" if both guards survived (as of the last download), else which byte did not.
  std::string check_guards() const;

 private:
  device_memory memory_;
  std::size_t begin_ = 0;
  std::vector<std::uint8_t> image_;
};

/// An output matrix: `rows` rows of `width` elements, `row_stride` elements apart, guard bytes
/// before, behind and in the gaps, elements preset to 0x7FC0DEAD words.
template <class T>
class guarded_matrix {
 public:
  guarded_matrix() = default;
  guarded_matrix(std::int64_t rows, std::int64_t width, std::int64_t row_stride,
                 std::size_t misalign = 0)
      : rows_(rows), width_(width), row_stride_(row_stride) {
    const std::int64_t elements = rows == 0 ? 0 : (rows - 1) * row_stride + width;
    bytes_ = guarded_bytes(static_cast<std::size_t>(elements) * sizeof(T), misalign);
    guards_ = std::vector<std::uint8_t>(bytes_.image(), bytes_.image() + bytes_.size());
    reset();
  }

  T* get() const { return reinterpret_cast<T*>(bytes_.get()); }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }
  std::int64_t row_stride() const { return row_stride_; }

  /// Presets all elements and guards again.
  void reset() {
    const std::uint32_t word = untouched_word;
    bytes_.reset_image();
    for (std::int64_t row = 0; row < rows_; ++row) {
      std::uint8_t* out = bytes_.image() + offset(row, 0);
      for (std::int64_t i = 0; i < width_ * static_cast<std::int64_t>(sizeof(T)); ++i) {
        out[i] = reinterpret_cast<const std::uint8_t*>(&word)[i % 4];
      }
    }
    bytes_.upload();
  }

  void download() { bytes_.download(); }

  /// Element of the last download.
  T at(std::int64_t row, std::int64_t column) const {
    T value;
    std::memcpy(&value, bytes_.image() + offset(row, column), sizeof(T));
    return value;
  }
  /// Its bits, for T of 4 bytes.
  std::uint32_t bits(std::int64_t row, std::int64_t column) const {
    static_assert(sizeof(T) == 4, "guarded_matrix: bits() is for 4-byte elements");
    std::uint32_t value;
    std::memcpy(&value, bytes_.image() + offset(row, column), sizeof(T));
    return value;
  }
  /// Start of a row of the last download.
  const T* row(std::int64_t row) const {
    return reinterpret_cast<const T*>(bytes_.image() + offset(row, 0));
  }
  /// True if the element still has its preset bytes.
  bool untouched(std::int64_t row, std::int64_t column) const {
    const std::uint32_t word = untouched_word;
    const std::uint8_t* out = bytes_.image() + offset(row, column);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      const std::size_t in_row = static_cast<std::size_t>(column) * sizeof(T) + i;
      if (out[i] != reinterpret_cast<const std::uint8_t*>(&word)[in_row % 4]) return false;
    }
    return true;
  }

  /// "" if all bytes around and between the rows survived (as of the last download).
  std::string check_guards() const {
    std::string damage = bytes_.check_guards();
    for (std::int64_t row = 0; damage.empty() && row + 1 < rows_; ++row) {
      const std::size_t begin = offset(row, width_);
      const std::size_t end = offset(row + 1, 0);
      if (end <= begin ||
          std::memcmp(bytes_.image() + begin, guards_.data() + begin, end - begin) == 0) {
        continue;
      }
      std::size_t at = begin;
      while (bytes_.image()[at] == guards_[at]) ++at;
      damage = "gap behind row " + std::to_string(row) + ": byte " + std::to_string(at - begin) +
               " of " + std::to_string(end - begin) + " was overwritten";
    }
    return damage;
  }

 private:
  std::size_t offset(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>(row * row_stride_ + column) * sizeof(T);
  }

  std::int64_t rows_ = 0;
  std::int64_t width_ = 0;
  std::int64_t row_stride_ = 0;
  guarded_bytes bytes_;
  std::vector<std::uint8_t> guards_;
};

}  // namespace kindex_test
