// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Device memory: which addresses a kernel may touch, and what is wrong with the others.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace kindex::emulator {

struct region {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool writable = true;
};

// Live regions by address; immutable once published, so that workers read it without a lock.
using region_list = std::vector<region>;

enum class memory_kind { device, host, managed, registered };

struct allocation {
  uint64_t begin = 0;
  uint64_t bytes = 0;
  uint64_t mapped = 0;
  memory_kind kind = memory_kind::device;
};

class device_memory {
 public:
  // Pages are reserved, not touched; an unmapped page follows the last one. Null when the address
  // space is exhausted.
  void* allocate(size_t bytes, memory_kind kind);
  // False when `pointer` is not the start of a live allocation.
  bool release(void* pointer);

  bool register_host(void* pointer, size_t bytes);
  bool unregister_host(void* pointer);

  // The allocation that contains `address`, if there is one.
  bool find(uint64_t address, allocation* out) const;
  // True when [address, address + bytes) touches memory that this class manages, or managed.
  bool inside_one(uint64_t address, size_t bytes) const;

  std::shared_ptr<const region_list> snapshot() const;

  // Says in words where `address` lies: past which buffer, in freed memory, null.
  std::string describe(uint64_t address) const;

  uint64_t bytes_in_use() const;

 private:
  void publish();

  mutable std::mutex mutex_;
  std::vector<allocation> live_;  // sorted by address
  // Freed ranges stay reserved for a while, so that a dangling pointer is recognised.
  std::deque<allocation> freed_;
  uint64_t freed_bytes_ = 0;
  uint64_t bytes_in_use_ = 0;
  std::shared_ptr<const region_list> snapshot_ = std::make_shared<region_list>();
};

device_memory& memory();

}  // namespace kindex::emulator
