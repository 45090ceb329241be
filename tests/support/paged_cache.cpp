// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/paged_cache.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

namespace kindex_test {

const char* to_string(page_gap gap) {
  switch (gap) {
    case page_gap::none:
      return "payload";
    case page_gap::least:
      return "payload+least";
    case page_gap::plus_64:
      return "payload+64";
    case page_gap::twice:
      return "2*payload";
    case page_gap::many_layers:
      return "1002240";
  }
  return "?";
}

std::int64_t page_stride_bytes(page_gap gap, int page_size, int head_dim) {
  const std::int64_t payload = kindex::page_payload_bytes(page_size, head_dim);
  switch (gap) {
    case page_gap::none:
      return payload;
    case page_gap::least:
      return payload + (page_size == 1 ? 4 : 16);
    case page_gap::plus_64:
      return payload + 64;
    case page_gap::twice:
      return 2 * payload;
    case page_gap::many_layers:
      return 1002240;
  }
  return payload;
}

paged_cache::paged_cache(int page_size, int head_dim, kindex::page_layout layout,
                         kindex::fp8_format format, std::int64_t num_pages,
                         std::int64_t page_stride, placement where)
    : page_size_(page_size),
      head_dim_(head_dim),
      layout_(layout),
      format_(format),
      num_pages_(num_pages),
      page_stride_(page_stride == 0 ? kindex::page_payload_bytes(page_size, head_dim)
                                    : page_stride),
      where_(where) {
  constexpr std::int64_t dense_limit = std::int64_t{256} << 20;
  // The last page ends with its payload: a reader has no business in the gap behind it.
  const std::int64_t bytes = num_pages == 0 ? 0
                                            : (num_pages - 1) * page_stride_ +
                                                  kindex::page_payload_bytes(page_size, head_dim);
  sparse_ = bytes > dense_limit;
  // The base is aligned as badly as the contract allows.
  const std::size_t misalign = page_size == 1 ? 4 : 16;
  if (where == placement::guarded && !sparse_) {
    guarded_ = guarded_bytes(static_cast<std::size_t>(bytes), misalign);
  } else {
    where_ = placement::exact;
    exact_ = exact_bytes(static_cast<std::size_t>(bytes), misalign);
  }
  if (!sparse_) {
    dense_image_.resize(static_cast<std::size_t>(num_pages * page_stride_));
    for (std::int64_t page = 0; page < num_pages; ++page) {
      poison(dense_image_.data() + page * page_stride_);
    }
    dense_image_.resize(static_cast<std::size_t>(bytes));
  }
}

kindex::cache_view paged_cache::view() const {
  kindex::cache_view view;
  view.data = where_ == placement::guarded ? guarded_.get() : exact_.get();
  view.num_pages = num_pages_;
  view.page_stride_bytes = page_stride_;
  view.page_size = page_size_;
  view.head_dim = head_dim_;
  view.layout = layout_;
  view.format = format_;
  return view;
}

kindex::cache_view paged_cache::host_view() {
  if (sparse_) throw std::logic_error("paged_cache: a sparse image has no host view");
  kindex::cache_view view = this->view();
  view.data = dense_image_.data();
  return view;
}

std::int64_t paged_cache::image_bytes() const {
  return std::min(page_stride_,
                  kindex::page_payload_bytes(page_size_, head_dim_) + std::int64_t{guard_bytes});
}

// NaN bytes for K and NaN words for scales; the gap behind the payload has both kinds.
void paged_cache::poison(std::uint8_t* page) const {
  const std::int64_t k_bytes = static_cast<std::int64_t>(page_size_) * head_dim_;
  const std::int64_t payload = kindex::page_payload_bytes(page_size_, head_dim_);
  const std::int64_t end = sparse_ ? image_bytes() : page_stride_;
  for (std::int64_t i = 0; i < end; ++i) {
    if (i >= k_bytes && i < payload) {
      const std::uint32_t word = 0x7FC0BAD5;
      page[i] = reinterpret_cast<const std::uint8_t*>(&word)[i % 4];
    } else {
      page[i] = format_ == kindex::fp8_format::e4m3fnuz ? 0x80 : (i & 1) != 0 ? 0x7F : 0xFF;
    }
  }
}

std::uint8_t* paged_cache::page_image(std::int64_t page) {
  if (page < 0 || page >= num_pages_) throw std::logic_error("paged_cache: no such page");
  if (!sparse_) return dense_image_.data() + page * page_stride_;
  std::vector<std::uint8_t>& image = sparse_image_[page];
  if (image.empty()) {
    image.resize(static_cast<std::size_t>(image_bytes()));
    poison(image.data());
    if (page + 1 == num_pages_) {
      image.resize(static_cast<std::size_t>(kindex::page_payload_bytes(page_size_, head_dim_)));
    }
  }
  return image.data();
}

// The formulas of the contract written out once more: the library's own are under test.
std::int64_t paged_cache::k_offset(std::int64_t token_in_page, std::int64_t dim) const {
  return layout_ == kindex::page_layout::plain
             ? token_in_page * head_dim_ + dim
             : (token_in_page / 16) * 16 * head_dim_ + (dim / 16) * 256 +
                   (token_in_page % 16) * 16 + dim % 16;
}

void paged_cache::put_token(std::int64_t slot, const std::uint8_t* k, const float* scales) {
  // 16 dims of a token are neighbours in both layouts.
  std::uint8_t* page = page_image(slot / page_size_);
  for (int d = 0; d < head_dim_; d += 16) {
    std::memcpy(page + k_offset(slot % page_size_, d), k + d, 16);
  }
  for (int g = 0; g < num_scales(); ++g) set_scale(slot, g, scales[g]);
}

void paged_cache::set_k_byte(std::int64_t slot, int dim, std::uint8_t byte) {
  page_image(slot / page_size_)[k_offset(slot % page_size_, dim)] = byte;
}

void paged_cache::set_scale(std::int64_t slot, int group, float value) {
  const std::int64_t t = slot % page_size_;
  const std::int64_t offset =
      static_cast<std::int64_t>(page_size_) * head_dim_ + 4 * (t * num_scales() + group);
  std::memcpy(page_image(slot / page_size_) + offset, &value, 4);
}

std::uint8_t paged_cache::k_byte(std::int64_t slot, int dim) {
  return page_image(slot / page_size_)[kindex::k_offset_in_page(
      layout_, head_dim_, static_cast<int>(slot % page_size_), dim)];
}

float paged_cache::scale(std::int64_t slot, int group) {
  float value;
  std::memcpy(&value,
              page_image(slot / page_size_) +
                  kindex::scale_offset_in_page(page_size_, head_dim_,
                                               static_cast<int>(slot % page_size_), group),
              4);
  return value;
}

void paged_cache::upload() {
  std::uint8_t* device = static_cast<std::uint8_t*>(view().data);
  if (where_ == placement::guarded) {
    if (!dense_image_.empty())
      std::memcpy(guarded_.image(), dense_image_.data(), dense_image_.size());
    guarded_.upload();
  } else if (!sparse_) {
    if (dense_image_.empty()) return;
    check(hipMemcpy(device, dense_image_.data(), dense_image_.size(), hipMemcpyHostToDevice),
          "hipMemcpy");
  } else {
    for (const auto& [page, image] : sparse_image_) {
      check(hipMemcpy(device + page * page_stride_, image.data(), image.size(),
                      hipMemcpyHostToDevice),
            "hipMemcpy");
    }
  }
}

std::string paged_cache::describe(std::int64_t page, std::int64_t offset) const {
  const std::int64_t k_bytes = static_cast<std::int64_t>(page_size_) * head_dim_;
  const std::string where = "page " + std::to_string(page);
  if (offset >= kindex::page_payload_bytes(page_size_, head_dim_)) {
    return where + ", gap byte " + std::to_string(offset);
  }
  if (offset >= k_bytes) {
    const std::int64_t scale = (offset - k_bytes) / 4;
    return where + ", scale " + std::to_string(scale % num_scales()) + " of token " +
           std::to_string(scale / num_scales());
  }
  std::int64_t t = offset / head_dim_;
  std::int64_t d = offset % head_dim_;
  if (layout_ == kindex::page_layout::preshuffled) {
    const std::int64_t in_tile = offset % (16 * head_dim_);
    t = offset / (16 * head_dim_) * 16 + in_tile % 256 / 16;
    d = in_tile / 256 * 16 + in_tile % 16;
  }
  return where + ", token " + std::to_string(t) + ", dim " + std::to_string(d) + " (byte " +
         std::to_string(offset) + ")";
}

std::string paged_cache::compare_with_device() {
  const auto difference = [&](std::int64_t first_page, const std::uint8_t* expected,
                              const std::uint8_t* found, std::size_t bytes) -> std::string {
    if (bytes == 0 || std::memcmp(expected, found, bytes) == 0) return "";
    std::size_t at = 0;
    while (expected[at] == found[at]) ++at;
    const auto offset = static_cast<std::int64_t>(at);
    return describe(first_page + offset / page_stride_, offset % page_stride_) + ": " +
           std::to_string(found[at]) + " instead of " + std::to_string(expected[at]);
  };
  if (where_ == placement::guarded) {
    guarded_.download();
    const std::string damage = guarded_.check_guards();
    if (!damage.empty()) return "cache: " + damage;
    return difference(0, dense_image_.data(), guarded_.image(), dense_image_.size());
  }
  const std::uint8_t* device = static_cast<const std::uint8_t*>(view().data);
  std::vector<std::uint8_t> found;
  if (!sparse_) {
    if (dense_image_.empty()) return "";
    found.resize(dense_image_.size());
    check(hipMemcpy(found.data(), device, found.size(), hipMemcpyDeviceToHost), "hipMemcpy");
    return difference(0, dense_image_.data(), found.data(), found.size());
  }
  for (const auto& [page, image] : sparse_image_) {
    found.resize(image.size());
    check(
        hipMemcpy(found.data(), device + page * page_stride_, found.size(), hipMemcpyDeviceToHost),
        "hipMemcpy");
    std::string text = difference(page, image.data(), found.data(), found.size());
    if (!text.empty()) return text;
  }
  return "";
}

std::int64_t pages_needed(const std::vector<std::int32_t>& lens, int page_size) {
  std::int64_t pages = 0;
  for (const std::int32_t len : lens) pages += (std::int64_t{len} + page_size - 1) / page_size;
  return pages;
}

page_table make_page_table(const std::vector<std::int32_t>& lens, int page_size,
                           std::int64_t num_pages, random_stream& random, std::int64_t width,
                           std::int64_t extra_stride) {
  const std::int64_t needed = pages_needed(lens, page_size);
  if (needed > num_pages) throw std::logic_error("make_page_table: too few pages");
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_pages));
  std::iota(ids.begin(), ids.end(), 0);
  random.shuffle(ids);
  // A shuffle of few ids may be the identity; a rotation of that is not.
  if (num_pages > 1 && std::is_sorted(ids.begin(), ids.end())) {
    std::rotate(ids.begin(), ids.begin() + 1, ids.end());
  }

  page_table table;
  table.page_size = page_size;
  for (const std::int32_t len : lens) {
    table.width = std::max(table.width, (std::int64_t{len} + page_size - 1) / page_size);
  }
  if (width >= 0) {
    if (width < table.width) throw std::logic_error("make_page_table: the table is too narrow");
    table.width = width;
  }
  table.stride = table.width + extra_stride;
  if (lens.empty()) return table;
  const auto num_seqs = static_cast<std::int64_t>(lens.size());
  table.entries.resize(static_cast<std::size_t>((num_seqs - 1) * table.stride + table.width));
  for (std::size_t i = 0; i < table.entries.size(); ++i) {
    table.entries[i] = (i & 1) != 0 ? -1 : std::numeric_limits<std::int32_t>::max();
  }
  std::size_t next = 0;
  for (std::int64_t seq = 0; seq < num_seqs; ++seq) {
    const std::int64_t len = lens[static_cast<std::size_t>(seq)];
    for (std::int64_t i = 0; i < (len + page_size - 1) / page_size; ++i) {
      table.entry(seq, i) = ids[next++];
    }
  }
  return table;
}

}  // namespace kindex_test
