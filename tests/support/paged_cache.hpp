// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// A paged cache and its block table as hard to read wrongly as the contract allows: shuffled page
// ids, NaN bytes and NaN scales wherever no token lives, impossible ids in unused table entries.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <kindex/cache_view.hpp>

#include "support/data.hpp"
#include "support/device_buffer.hpp"

namespace kindex_test {

/// The page strides that tests use.
enum class page_gap {
  none,         ///< payload
  least,        ///< payload + 16 bytes (4 at page size 1): as badly aligned as allowed
  plus_64,      ///< payload + 64 bytes
  twice,        ///< 2 * payload: two layers interleaved
  many_layers,  ///< 1,002,240 bytes, as an engine that packs all layers of a page has it
};

const char* to_string(page_gap gap);
std::int64_t page_stride_bytes(page_gap gap, int page_size, int head_dim);

/// Where the cache lies in its allocation.
enum class placement {
  exact,    ///< ends with it: for readers, where every byte beyond is a fault
  guarded,  ///< between guard bytes: for the writer
};

class paged_cache {
 public:
  paged_cache() = default;
  /// All bytes are poison until put. A page stride of 0 means the payload.
  /// Above 256 MiB the image is sparse: only pages that were put (and `touch`ed) are poisoned,
  /// moved and compared.
  paged_cache(int page_size, int head_dim, kindex::page_layout layout, kindex::fp8_format format,
              std::int64_t num_pages, std::int64_t page_stride = 0,
              placement where = placement::exact);

  /// The cache as the operations take it.
  kindex::cache_view view() const;
  /// The same on the host, for the reference; dense images only.
  kindex::cache_view host_view();

  int num_scales() const { return kindex::scales_per_token(head_dim_); }
  std::int64_t num_slots() const { return num_pages_ * page_size_; }

  /// Writes a token of slot page * P + t into the host's image. k: D bytes; scales: one per group.
  void put_token(std::int64_t slot, const std::uint8_t* k, const float* scales);
  void set_k_byte(std::int64_t slot, int dim, std::uint8_t byte);
  void set_scale(std::int64_t slot, int group, float value);
  std::uint8_t k_byte(std::int64_t slot, int dim);
  float scale(std::int64_t slot, int group);
  /// Makes a page part of a sparse image.
  void touch(std::int64_t page) { (void)page_image(page); }

  /// Host image to device. The image is what the device should hold from then on.
  void upload();
  /// "" if the device holds the image, byte for byte, guards included; else the first difference,
  /// in words: page, token and dim, or scale, or gap.
  std::string compare_with_device();

 private:
  std::int64_t k_offset(std::int64_t token_in_page, std::int64_t dim) const;
  std::uint8_t* page_image(std::int64_t page);
  std::int64_t image_bytes() const;
  void poison(std::uint8_t* page) const;
  std::string describe(std::int64_t page, std::int64_t offset) const;

  int page_size_ = 0;
  int head_dim_ = 0;
  kindex::page_layout layout_ = kindex::page_layout::plain;
  kindex::fp8_format format_ = kindex::fp8_format::e4m3fnuz;
  std::int64_t num_pages_ = 0;
  std::int64_t page_stride_ = 0;
  placement where_ = placement::exact;
  bool sparse_ = false;
  exact_bytes exact_;
  guarded_bytes guarded_;
  std::vector<std::uint8_t> dense_image_;
  std::map<std::int64_t, std::vector<std::uint8_t>> sparse_image_;
};

/// Block table of one batch.
struct page_table {
  std::vector<std::int32_t> entries;  ///< (B - 1) * stride + width elements
  std::int64_t width = 0;
  std::int64_t stride = 0;
  int page_size = 0;

  std::int32_t& entry(std::int64_t seq, std::int64_t index) {
    return entries[static_cast<std::size_t>(seq * stride + index)];
  }
  /// Slot of token j of a sequence.
  std::int64_t slot(std::int64_t seq, std::int64_t token) const {
    const auto at = static_cast<std::size_t>(seq * stride + token / page_size);
    return static_cast<std::int64_t>(entries[at]) * page_size + token % page_size;
  }
};

/// Pages that the lengths need: sum of ceil(L / P).
std::int64_t pages_needed(const std::vector<std::int32_t>& lens, int page_size);

/// Hands shuffled, never identical ids out of [0, num_pages) to the sequences. A width of -1 means
/// exactly the longest sequence's pages. Unused entries and the gap of `extra_stride` between rows
/// hold 0x7FFFFFFF and -1 in turn.
page_table make_page_table(const std::vector<std::int32_t>& lens, int page_size,
                           std::int64_t num_pages, random_stream& random, std::int64_t width = -1,
                           std::int64_t extra_stride = 3);

}  // namespace kindex_test
