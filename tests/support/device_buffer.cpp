// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/device_buffer.hpp"

namespace kindex_test {

device_memory::device_memory(std::size_t bytes) {
  void* data = nullptr;
  check(hipMalloc(&data, bytes == 0 ? 1 : bytes), "hipMalloc");
  data_ = static_cast<std::uint8_t*>(data);
}

device_memory::~device_memory() {
  // Nothing sensible can be done about a failure here; the next call reports a broken device.
  if (data_ != nullptr) (void)hipFree(data_);
}

exact_bytes::exact_bytes(std::size_t bytes, std::size_t lead_bytes) : size_(bytes) {
  // A GPU maps memory in pages of up to 2 MiB.
  constexpr std::size_t gpu_page = std::size_t{2} << 20;
  const std::size_t wanted = lead_bytes + bytes;
  const std::size_t allocated =
      is_emulated() ? wanted : (wanted + gpu_page - 1) / gpu_page * gpu_page;
  memory_ = device_memory(allocated);
  data_ = memory_.get() + (allocated - bytes);
}

guarded_bytes::guarded_bytes(std::size_t bytes, std::size_t misalign)
    : begin_(guard_bytes + misalign), image_(begin_ + bytes + guard_bytes) {
  memory_ = device_memory(image_.size());
  reset_image();
}

void guarded_bytes::reset_image() {
  for (std::size_t i = 0; i < image_.size(); ++i) image_[i] = guard_byte(i);
}

void guarded_bytes::upload() {
  check(hipMemcpy(memory_.get(), image_.data(), image_.size(), hipMemcpyHostToDevice), "hipMemcpy");
}

void guarded_bytes::download() {
  check(hipMemcpy(image_.data(), memory_.get(), image_.size(), hipMemcpyDeviceToHost), "hipMemcpy");
}

std::string guarded_bytes::check_guards() const {
  for (std::size_t i = 0; i < image_.size(); ++i) {
    if (i == begin_) i = image_.size() - guard_bytes;
    if (image_[i] == guard_byte(i)) continue;
    return i < begin_
               ? "the byte " + std::to_string(begin_ - i) + " before the buffer was overwritten"
               : "byte " + std::to_string(i - begin_ - size()) +
                     " behind the buffer was overwritten";
  }
  return "";
}

}  // namespace kindex_test
