// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the tests of the gather share: sequences of arbitrary bytes in shuffled pages, and the rows
// that must come out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <kindex/params.hpp>

#include "support/data.hpp"
#include "support/device_buffer.hpp"
#include "support/launch.hpp"
#include "support/paged_cache.hpp"
#include "support/test_case.hpp"

namespace kindex_test {

struct gather_case {
  std::vector<std::int32_t> lens = {3, 64, 0, 65, 130};
  page_geometry geometry = {64, kindex::page_layout::preshuffled};
  int head_dim = 128;
  kindex::fp8_format format = native_format();
  page_gap gap = page_gap::none;
  std::int64_t table_width = -1;     ///< -1: ceil(longest / P); may be less: rows beyond are zeros
  std::int64_t table_gap = 3;        ///< entries between the rows of the table
  std::size_t table_lead_bytes = 0;  ///< by which the table's base misses a 256-byte boundary
  std::int64_t num_tokens = -1;      ///< rows of the output; -1: as many as the lengths say
  int dst_k_gap = 0;
  std::size_t dst_k_misalign = 0;
  int dst_scale_gap = 0;
  std::uint64_t seed = 1;
  /// What becomes of the params before the call, and before the reference's.
  std::function<void(kindex::gather_params&)> change;

  std::string name() const;
};

/// A filled cache, its table, and what is in it.
class gather_problem {
 public:
  explicit gather_problem(const gather_case& test);

  /// Puts another id into the table: the rows of that page must become zeros if there is no such
  /// page.
  void set_page(std::int64_t seq, std::int64_t index, std::int32_t id);
  /// The largest page id plus one.
  std::int32_t num_pages() const { return static_cast<std::int32_t>(cache_.view().num_pages); }

  /// Gathers and compares every byte of both outputs, guards included, with what was put into the
  /// cache and with the reference; and the cache with itself. "" or the first difference.
  std::string run(const launcher& how = launchers().front());

 private:
  struct token_row {
    const std::uint8_t* k;  ///< null: zeros
    const float* scale;
  };
  token_row expected_row(std::int64_t seq, std::int64_t token) const;

  gather_case test_;
  std::vector<token_data> sequences_;
  page_table table_;
  page_table owners_;  ///< the table before set_page
  std::int64_t width_ = 0;
  paged_cache cache_;
};

/// One case from beginning to end.
std::string run_gather_case(const gather_case& test, const launcher& how = launchers().front());

}  // namespace kindex_test
