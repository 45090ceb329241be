// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// One description of a case for the tests of all three operations and for the benchmark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kindex/params.hpp>

#include "support/data.hpp"
#include "support/paged_cache.hpp"

namespace kindex_test {

struct test_case {
  /// Context lengths, [B] or, with lens_shape::per_row, [B, N] row by row.
  std::vector<std::int32_t> lens;
  kindex::lens_shape lens_shape = kindex::lens_shape::per_sequence;
  int next_n = 1;
  int num_heads = 64;
  int head_dim = 128;
  int page_size = 64;
  kindex::page_layout layout = kindex::page_layout::preshuffled;
  kindex::fp8_format format = native_format();
  page_gap gap = page_gap::none;
  kindex::fill fill = kindex::fill::none;
  data_kind data = data_kind::exact;
  std::uint64_t seed = 1;
  /// Tokens, q and weights of sequence b depend on `seed` and `first_sequence + b` alone, so that
  /// the same sequence can be put into other batches, pages and layouts.
  std::int64_t first_sequence = 0;
  std::uint64_t page_seed = 1;  ///< order of the page ids
  /// Explicit page ids in the order of use, out of `num_pages`, instead of shuffled ones.
  std::vector<std::int32_t> page_ids;
  std::int64_t num_pages = 0;

  std::int64_t extra_pages = 3;         ///< pages that nobody owns, poisoned
  std::int64_t table_width = -1;        ///< -1: exactly ceil(max L / P) entries
  std::int64_t extra_table_stride = 3;  ///< gap between the rows of the table
  std::int64_t logits_width = -1;       ///< -1: the longest length
  std::int64_t logits_gap = 131;        ///< elements between rows: more than 512 bytes, odd
  std::int64_t q_head_gap = 0;          ///< bytes between heads of q, multiple of 16
  std::int64_t weights_gap = 0;         ///< elements between rows of the weights
  std::int64_t lens_stride = 1;         ///< from length to length; more: a column of a wider array

  std::int64_t num_seqs() const {
    const auto n = static_cast<std::int64_t>(lens.size());
    return lens_shape == kindex::lens_shape::per_row ? n / next_n : n;
  }
  std::int64_t num_rows() const { return num_seqs() * next_n; }
  /// Tokens that the sequences have in the cache: the lengths, within the table.
  std::vector<std::int32_t> cache_lens() const;
  /// Tokens that row b * N + n sees, before any clamp to the width or the table.
  std::int64_t unclamped_visible(std::int64_t row) const;
  /// Every value that tells the case from others, for messages.
  std::string name() const;
};

/// Every page geometry of the contract: {1 plain} and {16, 32, 48, 64, 80, 112, 128, 256} in both
/// layouts.
struct page_geometry {
  int page_size;
  kindex::page_layout layout;
};
const std::vector<page_geometry>& all_page_geometries();

/// What lives in the cache: token after token, as no layout stores it.
struct token_data {
  std::vector<std::uint8_t> k;  ///< [tokens, D]
  std::vector<float> scale;     ///< [tokens, scales_per_token]
};
token_data make_tokens(std::int64_t tokens, int head_dim, kindex::fp8_format format, data_kind kind,
                       random_stream& random);

/// The random stream of one sequence's data.
random_stream sequence_stream(const test_case& test, std::int64_t seq);

/// A case's tokens, block table and cache. The cache's image is filled, not uploaded.
struct paged_batch {
  std::vector<token_data> sequences;  ///< [B]
  page_table table;
  paged_cache cache;
};
paged_batch make_paged_batch(const test_case& test, placement where = placement::exact);

/// Exclusive prefix sum of the lengths, [B + 1]: what gather takes.
std::vector<std::int32_t> cumulative(const std::vector<std::int32_t>& lens);

}  // namespace kindex_test
