// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/test_case.hpp"

#include <algorithm>

namespace kindex_test {

std::vector<std::int32_t> test_case::cache_lens() const {
  const std::size_t rows_per_length =
      lens_shape == kindex::lens_shape::per_row ? static_cast<std::size_t>(next_n) : 1;
  std::vector<std::int32_t> longest(static_cast<std::size_t>(num_seqs()), 0);
  for (std::size_t i = 0; i < longest.size() * rows_per_length; ++i) {
    std::int64_t len = lens[i];
    if (table_width >= 0) len = std::min(len, table_width * page_size);
    std::int32_t& most = longest[i / rows_per_length];
    most = std::max(most, static_cast<std::int32_t>(len));
  }
  return longest;
}

std::int64_t test_case::unclamped_visible(std::int64_t row) const {
  const std::int64_t n = row % next_n;
  const std::int64_t tokens =
      lens_shape == kindex::lens_shape::per_row
          ? std::int64_t{lens[static_cast<std::size_t>(row)]}
          : std::int64_t{lens[static_cast<std::size_t>(row / next_n)]} - next_n + n + 1;
  return std::max<std::int64_t>(tokens, 0);
}

std::string test_case::name() const {
  std::string text = "P=" + std::to_string(page_size) + " " + kindex::to_string(layout) + " " +
                     kindex::to_string(format) + " D=" + std::to_string(head_dim) +
                     " H=" + std::to_string(num_heads) + " N=" + std::to_string(next_n) +
                     " page stride " + to_string(gap) +
                     (fill == kindex::fill::none ? " fill none" : " fill -inf") + " " +
                     to_string(data) + " data, " +
                     (lens_shape == kindex::lens_shape::per_row ? "row lens [" : "lens [");
  for (std::size_t i = 0; i < lens.size() && i < 24; ++i) {
    text += (i == 0 ? "" : " ") + std::to_string(lens[i]);
  }
  text += lens.size() > 24 ? " ...] B=" : "] B=";
  text += std::to_string(num_seqs());
  if (logits_width >= 0) text += " width " + std::to_string(logits_width);
  if (table_width >= 0) text += " table width " + std::to_string(table_width);
  if (q_head_gap > 0) text += " q head gap " + std::to_string(q_head_gap);
  if (weights_gap > 0) text += " weights gap " + std::to_string(weights_gap);
  if (!page_ids.empty()) text += " last page " + std::to_string(num_pages - 1);
  if (lens_stride != 1) text += " lens stride " + std::to_string(lens_stride);
  return text + " seed " + std::to_string(seed);
}

const std::vector<page_geometry>& all_page_geometries() {
  static const std::vector<page_geometry> geometries = [] {
    std::vector<page_geometry> list{{1, kindex::page_layout::plain}};
    for (const int page_size : {16, 32, 48, 64, 80, 112, 128, 256}) {
      list.push_back({page_size, kindex::page_layout::plain});
      list.push_back({page_size, kindex::page_layout::preshuffled});
    }
    return list;
  }();
  return geometries;
}

token_data make_tokens(std::int64_t tokens, int head_dim, kindex::fp8_format format, data_kind kind,
                       random_stream& random) {
  const auto num_scales = static_cast<std::size_t>(kindex::scales_per_token(head_dim));
  token_data data;
  data.k.resize(static_cast<std::size_t>(tokens * head_dim));
  data.scale.resize(static_cast<std::size_t>(tokens) * num_scales);
  // Token by token, so that a shorter sequence is the beginning of a longer one.
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(head_dim); ++d) {
      data.k[t * static_cast<std::size_t>(head_dim) + d] = make_k_byte(kind, format, random);
    }
    for (std::size_t g = 0; g < num_scales; ++g) {
      data.scale[t * num_scales + g] = make_scale(kind, random);
    }
  }
  return data;
}

random_stream sequence_stream(const test_case& test, std::int64_t seq) {
  return random_stream(test.seed * 1000003 +
                       static_cast<std::uint64_t>(test.first_sequence + seq) * 7919);
}

paged_batch make_paged_batch(const test_case& test, placement where) {
  random_stream page_order(test.page_seed);
  const std::vector<std::int32_t> lens = test.cache_lens();
  std::int64_t num_pages = pages_needed(lens, test.page_size) + test.extra_pages;
  paged_batch batch;
  batch.table = make_page_table(lens, test.page_size, num_pages, page_order, test.table_width,
                                test.extra_table_stride);
  if (!test.page_ids.empty()) {
    num_pages = test.num_pages;
    std::size_t next = 0;
    for (std::int64_t b = 0; b < test.num_seqs(); ++b) {
      const std::int64_t len = lens[static_cast<std::size_t>(b)];
      for (std::int64_t i = 0; i * test.page_size < len; ++i) {
        batch.table.entry(b, i) = test.page_ids.at(next++);
      }
    }
  }
  batch.cache = paged_cache(test.page_size, test.head_dim, test.layout, test.format, num_pages,
                            page_stride_bytes(test.gap, test.page_size, test.head_dim), where);
  const int num_scales = kindex::scales_per_token(test.head_dim);
  for (std::int64_t b = 0; b < test.num_seqs(); ++b) {
    const std::int32_t len = lens[static_cast<std::size_t>(b)];
    random_stream random = sequence_stream(test, b);
    batch.sequences.push_back(make_tokens(len, test.head_dim, test.format, test.data, random));
    const token_data& data = batch.sequences.back();
    for (std::int64_t t = 0; t < len; ++t) {
      batch.cache.put_token(batch.table.slot(b, t), data.k.data() + t * test.head_dim,
                            data.scale.data() + t * num_scales);
    }
  }
  return batch;
}

std::vector<std::int32_t> cumulative(const std::vector<std::int32_t>& lens) {
  std::vector<std::int32_t> sums{0};
  for (const std::int32_t len : lens) sums.push_back(sums.back() + len);
  return sums;
}

}  // namespace kindex_test
