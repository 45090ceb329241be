// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Paged MQA logits at every border: ends of rows, tables and arrays, sentinels, empty work, odd
// strides and alignments. All inputs end where their allocation ends.
#include <climits>
#include <cmath>

#include "catch.hpp"
#include "support/logits_problem.hpp"
#include "support/ops.hpp"

namespace {

using namespace kindex_test;
using kindex::fill;
using kindex::lens_shape;
using kindex::page_layout;

// Both fills, both ways to launch.
void check_both_fills(test_case test) {
  for (const fill filling : {fill::none, fill::neg_infinity}) {
    test.fill = filling;
    logits_problem problem(test);
    for_each_launcher([&](const launcher& with) {
      INFO(with.name << ", " << test.name());
      CHECK(problem.launch_and_check(with) == "");
    });
  }
}

TEST_CASE("logits: widths that divide nothing", "[logits_bounds][class_C]") {
  struct width_case {
    std::vector<std::int32_t> lens;
    std::int64_t width;
    int page_size;
  };
  const std::vector<width_case> cases{
      {{257}, 257, 64},   {{300}, 300, 64},     {{513}, 513, 128},  {{2300}, 2300, 64},
      {{17}, 17, 16},     {{300, 77}, 300, 64}, {{4097}, 4097, 64}, {{1, 255}, 255, 256},
      {{79, 81}, 81, 80}, {{40, 257}, 257, 1},
  };
  for (const width_case& each : cases) {
    for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
      if (each.page_size == 1 && layout == page_layout::preshuffled) continue;
      test_case test;
      test.lens = each.lens;
      test.logits_width = each.width;
      test.page_size = each.page_size;
      test.layout = layout;
      check_both_fills(test);
    }
  }
}

TEST_CASE("logits: arrays end with their last element at every batch size",
          "[logits_bounds][class_C][class_D][class_N]") {
  for (const int num_seqs : {1, 2, 3, 31, 65, 257, 1025, 4161}) {
    for (const int next_n : {1, 3}) {
      test_case test;
      for (int b = 0; b < num_seqs; ++b) test.lens.push_back(b * 29 % 71);
      test.lens.back() = 67;
      test.next_n = next_n;
      test.num_heads = next_n == 1 ? 64 : 16;
      test.page_size = 16;
      // Rows of the table without a gap, so that its end is the last row's last entry.
      test.extra_table_stride = 0;
      test.fill = fill::neg_infinity;
      INFO(test.name());
      logits_problem problem(test);
      CHECK(problem.launch_and_check() == "");
    }
  }
}

TEST_CASE("logits: lengths beyond the width, the table and all reason",
          "[logits_bounds][class_C]") {
  for (const page_geometry geometry : all_page_geometries()) {
    test_case test;
    test.page_size = geometry.page_size;
    test.layout = geometry.layout;
    test.next_n = 3;
    test.num_heads = 32;
    // Longer than the logits are wide, longer than the table, negative, and at the ends of int32.
    test.lens = {100, 130, INT_MAX, -1, INT_MIN, -64, INT_MAX - 1, 40};
    test.table_width = (130 + geometry.page_size - 1) / geometry.page_size;
    test.logits_width = 90;
    check_both_fills(test);
    test.logits_width = test.table_width * geometry.page_size + 33;
    check_both_fills(test);
    // The same as lengths of rows.
    test.lens_shape = lens_shape::per_row;
    test.lens = {100, INT_MAX, 0, -1, 7, INT_MIN, INT_MIN, -3, 0, INT_MAX, INT_MAX, 64};
    test.logits_width = 120;
    check_both_fills(test);
  }
}

TEST_CASE("logits: page ids that are none", "[logits_bounds][class_D]") {
  for_each_format([&](kindex::fp8_format format) {
    for (const page_geometry geometry : all_page_geometries()) {
      for (const int next_n : {1, 3}) {
        test_case test;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.format = format;
        test.next_n = next_n;
        test.lens = {3 * geometry.page_size + 5, 0, 64, 3 * geometry.page_size,
                     7 * geometry.page_size + 30};
        test.fill = next_n == 1 ? fill::none : fill::neg_infinity;
        INFO(test.name());
        logits_problem problem(test);
        const auto num_pages = static_cast<std::int32_t>(problem.batch().cache.view().num_pages);
        problem.set_table_entry(0, 1, -1);
        problem.set_table_entry(0, 3, num_pages);  // the last, partly filled page
        problem.set_table_entry(2, 0, INT_MAX);    // the first page
        problem.set_table_entry(3, 0, -2);
        problem.set_table_entry(3, 1, INT_MIN);
        problem.set_table_entry(3, 2, num_pages + 1);
        problem.set_table_entry(4, 4, 0x7FFFFFF0);
        problem.set_table_entry(4, 5, -1000);
        for_each_launcher([&](const launcher& with) {
          INFO(with.name);
          CHECK(problem.launch_and_check(with) == "");
        });
      }
    }
  });
}

TEST_CASE("logits: sequences without tokens, batches without sequences",
          "[logits_bounds][class_E]") {
  const std::vector<std::vector<std::int32_t>> batches{{0}, {0, 0, 0},    {0, 1, 0, 64, 0},
                                                       {},  {1, 0, 0, 0}, {0, 0, 0, 65}};
  for (const std::vector<std::int32_t>& lens : batches) {
    for (const int next_n : {1, 2, 5}) {
      for (const int page_size : {1, 48, 64}) {
        test_case test;
        test.lens = lens;
        test.next_n = next_n;
        test.page_size = page_size;
        test.layout = page_size == 1 ? page_layout::plain : page_layout::preshuffled;
        test.logits_width = 66;
        // Width 0 where no sequence has tokens: the table has no columns at all.
        check_both_fills(test);
      }
    }
  }
}

TEST_CASE("logits: no work needs no pointers", "[logits_bounds][class_E]") {
  kindex::paged_mqa_logits_params params;
  params.cache.format = native_format();
  params.q_format = native_format();
  params.cache.page_stride_bytes = kindex::page_payload_bytes(64, 128);
  params.q_head_stride = 128;
  params.q_next_n_stride = 64 * 128;
  params.q_batch_stride = 64 * 128;
  params.weights_row_stride = 64;
  CHECK(run_directly([&](hipStream_t stream) { return paged_mqa_logits(params, stream); }) ==
        hipSuccess);
}

TEST_CASE("logits: per-row lengths that have nothing in common", "[logits_bounds][class_G]") {
  for (const page_geometry geometry : all_page_geometries()) {
    test_case test;
    test.page_size = geometry.page_size;
    test.layout = geometry.layout;
    test.next_n = 4;
    test.num_heads = 16;
    test.lens_shape = lens_shape::per_row;
    test.lens = {130, 0,  1,  64, 0, 0, 0, 0, 0,  0,   0,  200,
                 65,  64, 63, 62, 1, 1, 1, 1, 17, 300, 16, 0};
    test.lens_stride = geometry.layout == page_layout::plain ? 1 : 3;
    check_both_fills(test);
  }
}

TEST_CASE("logits: strides and alignments that no engine would choose twice",
          "[logits_bounds][class_K]") {
  for_each_format([&](kindex::fp8_format format) {
    for (const page_geometry geometry : all_page_geometries()) {
      for (const int head_dim : {64, 128, 256}) {
        test_case test;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.format = format;
        test.head_dim = head_dim;
        test.lens = {70, 0, 129, 33};
        test.next_n = geometry.page_size % 32 == 0 ? 1 : 2;
        test.gap = head_dim == 256  ? page_gap::twice
                   : head_dim == 64 ? page_gap::least
                                    : page_gap::plus_64;
        test.extra_table_stride = 7;  // columns 0..W-1 of a wider table
        test.q_head_gap = 64;         // head stride 192 at D = 128
        test.weights_gap = 16;        // row stride 80 at H = 64
        test.lens_stride = 3;         // a column of [B, 3]
        test.fill = fill::neg_infinity;
        test.logits_width = 150;
        test.logits_gap = 129 + head_dim / 64;
        INFO(test.name());
        logits_problem problem(test);
        CHECK(problem.launch_and_check() == "");
      }
    }
  });
}

TEST_CASE("logits: the table is not read past the last visible token", "[logits_bounds][class_C]") {
  test_case test;
  test.lens = {65, 1, 0, 128};
  test.table_width = 500;
  for (const page_geometry geometry : all_page_geometries()) {
    for (const int next_n : {1, 2}) {
      test.page_size = geometry.page_size;
      test.layout = geometry.layout;
      test.next_n = next_n;
      logits_problem problem(test);
      if (!is_emulated()) SKIP("only the emulator sees reads");
      const std::int64_t stride = problem.batch().table.stride;
      std::int64_t loaded = 0;
      for (std::int64_t b = 0; b < 4; ++b) {
        const std::int64_t used =
            (test.lens[static_cast<std::size_t>(b)] + test.page_size - 1) / test.page_size;
        const std::int64_t end = b == 3 ? test.table_width : stride;
        const memory_watch watch(problem.table().get() + b * stride + used,
                                 static_cast<std::size_t>(end - used) * 4);
        if (!watch.active()) SKIP("only the emulator sees reads");
        REQUIRE(problem.launch_and_check() == "");
        loaded += watch.bytes_loaded();
      }
      INFO(test.name());
      CHECK(loaded == 0);
    }
  }
}

TEST_CASE("logits: each column is written once", "[logits_bounds][class_F]") {
  for (const page_geometry geometry : all_page_geometries()) {
    for (const int next_n : {1, 3, 8}) {
      for (const fill filling : {fill::none, fill::neg_infinity}) {
        test_case test;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.lens = {0, 257, 65, 16, 3};
        test.next_n = next_n;
        test.num_heads = next_n == 8 ? 128 : 64;
        test.fill = filling;
        test.logits_width = 301;
        logits_problem problem(test);
        const guarded_matrix<float>& logits = problem.logits();
        const memory_watch watch(
            logits.get(),
            static_cast<std::size_t>((logits.rows() - 1) * logits.row_stride() + logits.width()) *
                4);
        if (!watch.active()) SKIP("only the emulator sees writes");
        REQUIRE(problem.launch_and_check() == "");
        std::int64_t columns = 0;
        for (std::int64_t row = 0; row < logits.rows(); ++row) {
          columns += filling == fill::none ? problem.visible(row) : logits.width();
        }
        INFO(test.name());
        CHECK(watch.bytes_stored() == 4 * columns);
      }
    }
  }
}

TEST_CASE("logits: a refused call writes nothing", "[logits_bounds][class_I][class_N]") {
  test_case test;
  test.lens = {70, 3};
  test.logits_width = 70;
  logits_problem problem(test);
  const auto refused = [&](auto&& change, hipError_t status) {
    kindex::paged_mqa_logits_params params = problem.params();
    change(params);
    problem.logits().reset();
    CHECK(run_directly([&](hipStream_t stream) { return paged_mqa_logits(params, stream); }) ==
          status);
    problem.logits().download();
    CHECK(problem.logits().check_guards() == "");
    CHECK(problem.logits().untouched(0, 0));
    CHECK(problem.logits().untouched(0, 69));
  };
  using params_type = kindex::paged_mqa_logits_params;
  refused([](params_type& p) { p.cache.page_size = 24; }, hipErrorNotSupported);
  refused([](params_type& p) { p.cache.head_dim = 96; }, hipErrorNotSupported);
  refused([](params_type& p) { p.num_heads = 24; }, hipErrorNotSupported);
  refused([](params_type& p) { p.num_heads = 144; }, hipErrorNotSupported);
  refused([](params_type& p) { p.logits_row_stride = 69; }, hipErrorInvalidValue);
  refused([](params_type& p) { p.cache.page_stride_bytes -= 16; }, hipErrorInvalidValue);
  refused([](params_type& p) { p.q = nullptr; }, hipErrorInvalidValue);
  refused([](params_type& p) { p.cache.data = nullptr; }, hipErrorInvalidValue);
  refused(
      [](params_type& p) {
        p.q_format = p.q_format == kindex::fp8_format::e4m3fn ? kindex::fp8_format::e4m3fnuz
                                                              : kindex::fp8_format::e4m3fn;
      },
      hipErrorInvalidValue);
  // A cache of the other format, on a device whose matrix instructions do not know it.
  refused(
      [](params_type& p) {
        p.q_format = p.q_format == kindex::fp8_format::e4m3fn ? kindex::fp8_format::e4m3fnuz
                                                              : kindex::fp8_format::e4m3fn;
        p.cache.format = p.q_format;
      },
      hipErrorNotSupported);
}

}  // namespace
