// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace kindex::emulator {
namespace {

// Buffers up to this size start out as a recognisable pattern instead of zeros: a kernel that
// relies on zeroed memory fails here as it would on hardware. Larger ones must stay untouched.
constexpr size_t poison_limit = size_t{4} << 20;
constexpr unsigned char poison_byte = 0xa5;

constexpr size_t freed_count_limit = 4096;
constexpr uint64_t freed_bytes_limit = uint64_t{1} << 40;

uint64_t page_size() {
  static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

template <class List>
auto containing(List& list, uint64_t address) {
  auto it = std::upper_bound(list.begin(), list.end(), address,
                             [](uint64_t a, const allocation& b) { return a < b.begin; });
  if (it == list.begin()) return list.end();
  --it;
  return address < it->begin + std::max<uint64_t>(it->bytes, 1) ? it : list.end();
}

}  // namespace

device_memory& memory() {
  // Never destroyed: static destructors of the program may still free device memory.
  static device_memory* const instance = new device_memory;
  return *instance;
}

void device_memory::publish() {
  auto list = std::make_shared<region_list>();
  list->reserve(live_.size());
  for (const allocation& a : live_) list->push_back({a.begin, a.begin + a.bytes, true});
  snapshot_ = std::move(list);
}

void* device_memory::allocate(size_t bytes, memory_kind kind) {
  const uint64_t page = page_size();
  if (bytes > (uint64_t{1} << 46)) return nullptr;
  const uint64_t used = (std::max<uint64_t>(bytes, 1) + page - 1) / page * page;
  void* base = mmap(nullptr, used + page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  mprotect(static_cast<char*>(base) + used, page, PROT_NONE);
  if (bytes <= poison_limit) std::memset(base, poison_byte, bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  const allocation entry{reinterpret_cast<uint64_t>(base), bytes, used + page, kind};
  live_.insert(std::upper_bound(live_.begin(), live_.end(), entry.begin,
                                [](uint64_t a, const allocation& b) { return a < b.begin; }),
               entry);
  bytes_in_use_ += bytes;
  publish();
  return base;
}

bool device_memory::release(void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto it = containing(live_, reinterpret_cast<uint64_t>(pointer));
  if (it == live_.end() || it->begin != reinterpret_cast<uint64_t>(pointer) ||
      it->kind == memory_kind::registered) {
    return false;
  }
  const allocation entry = *it;
  live_.erase(it);
  bytes_in_use_ -= entry.bytes;
  publish();
  // Drops the pages and keeps the addresses.
  mmap(pointer, entry.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  freed_.push_back(entry);
  freed_bytes_ += entry.mapped;
  while (freed_.size() > freed_count_limit || freed_bytes_ > freed_bytes_limit) {
    const allocation& oldest = freed_.front();
    munmap(reinterpret_cast<void*>(oldest.begin), oldest.mapped);
    freed_bytes_ -= oldest.mapped;
    freed_.pop_front();
  }
  return true;
}

bool device_memory::register_host(void* pointer, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t begin = reinterpret_cast<uint64_t>(pointer);
  if (!pointer || !bytes || containing(live_, begin) != live_.end()) return false;
  const allocation entry{begin, bytes, 0, memory_kind::registered};
  live_.insert(std::upper_bound(live_.begin(), live_.end(), begin,
                                [](uint64_t a, const allocation& b) { return a < b.begin; }),
               entry);
  publish();
  return true;
}

bool device_memory::unregister_host(void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto it = containing(live_, reinterpret_cast<uint64_t>(pointer));
  if (it == live_.end() || it->kind != memory_kind::registered) return false;
  live_.erase(it);
  publish();
  return true;
}

bool device_memory::find(uint64_t address, allocation* out) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto it = containing(live_, address);
  if (it == live_.end()) return false;
  if (out) *out = *it;
  return true;
}

bool device_memory::inside_one(uint64_t address, size_t bytes) const {
  allocation found;
  return find(address, &found) && address + bytes <= found.begin + found.bytes;
}

std::shared_ptr<const region_list> device_memory::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return snapshot_;
}

uint64_t device_memory::bytes_in_use() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_in_use_;
}

std::string device_memory::describe(uint64_t address) const {
  char text[160];
  const std::lock_guard<std::mutex> lock(mutex_);
  if (address < 0x10000) return "near the null pointer";
  for (auto it = freed_.rbegin(); it != freed_.rend(); ++it) {
    if (address >= it->begin && address < it->begin + std::max<uint64_t>(it->bytes, 1)) {
      std::snprintf(text, sizeof text, "use after free: byte %llu of a freed buffer of %llu bytes",
                    static_cast<unsigned long long>(address - it->begin),
                    static_cast<unsigned long long>(it->bytes));
      return text;
    }
  }
  const allocation* below = nullptr;
  const allocation* above = nullptr;
  for (const allocation& a : live_) {
    if (a.begin <= address) below = &a;
    if (a.begin > address) {
      above = &a;
      break;
    }
  }
  const uint64_t past = below ? address - below->begin : ~uint64_t{0};
  const uint64_t before = above ? above->begin - address : ~uint64_t{0};
  if (below && past < below->bytes) {
    std::snprintf(text, sizeof text, "starts at byte %llu of a buffer of %llu bytes",
                  static_cast<unsigned long long>(past),
                  static_cast<unsigned long long>(below->bytes));
  } else if (below && past - below->bytes <= before) {
    std::snprintf(text, sizeof text, "%llu bytes past the end of a buffer of %llu bytes",
                  static_cast<unsigned long long>(past - below->bytes),
                  static_cast<unsigned long long>(below->bytes));
  } else if (above) {
    std::snprintf(text, sizeof text, "%llu bytes before the start of a buffer of %llu bytes",
                  static_cast<unsigned long long>(before),
                  static_cast<unsigned long long>(above->bytes));
  } else {
    return "no buffer is allocated";
  }
  return text;
}

}  // namespace kindex::emulator
