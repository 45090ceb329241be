// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Paged MQA logits: what only a broken kernel showed to be untested (tests/mutation).
#include <cstdint>
#include <vector>

#include <kindex/validate.hpp>

#include "catch.hpp"
#include "support/logits_problem.hpp"
#include "support/ops.hpp"

namespace {

using namespace kindex_test;
using kindex::page_layout;

// The kernels compare ids without their sign: negative ones are no pages even where a cache claims
// more than 2^31. Its pages need no memory, as nobody may touch them.
TEST_CASE("logits: negative ids in a cache of 2^32 pages", "[mutants][class_A][class_D]") {
  for (const page_geometry geometry : all_page_geometries()) {
    for (const int next_n : {1, 2}) {
      test_case test;
      test.page_size = geometry.page_size;
      test.layout = geometry.layout;
      test.next_n = next_n;
      test.lens = {3 * geometry.page_size, 2 * geometry.page_size + 1};
      INFO(test.name());
      logits_problem problem(test);
      problem.set_table_entry(0, 1, -2);
      problem.set_table_entry(1, 0, INT32_MIN);
      problem.set_table_entry(1, 2, -1);
      kindex::paged_mqa_logits_params params = problem.params();
      params.cache.num_pages = kindex::max_pages;
      problem.logits().reset();
      REQUIRE(run_directly([&](hipStream_t stream) { return paged_mqa_logits(params, stream); }) ==
              hipSuccess);
      problem.logits().download();
      CHECK(problem.check() == "");
    }
  }
}

// One wave meets pages and others in turn, unit after unit.
TEST_CASE("logits: page ids that are none throughout a wave's work", "[mutants][class_D]") {
  const pretend_compute_units units(1);
  for (const page_geometry geometry : all_page_geometries()) {
    for (const int next_n : {1, 2}) {
      test_case test;
      test.page_size = geometry.page_size;
      test.layout = geometry.layout;
      test.next_n = next_n;
      test.num_heads = next_n == 1 ? 64 : 16;
      test.lens = {3001};
      INFO(test.name());
      logits_problem problem(test);
      for (std::int64_t i = 0; i * test.page_size < test.lens[0]; ++i) {
        if (i * 7 % 5 < 2) problem.set_table_entry(0, i, static_cast<std::int32_t>(-1 - i));
      }
      CHECK(problem.launch_and_check() == "");
    }
  }
}

// Three rows 2^30 elements apart: the last begins beyond 2^31 elements as well as bytes.
template <class T>
class far_apart {
 public:
  far_apart(const std::vector<T>& rows, std::size_t row_elements)
      : memory_((2 * stride + row_elements) * sizeof(T)) {
    for (std::size_t row = 0; row < 3; ++row) {
      check(hipMemcpy(get() + row * stride, rows.data() + row * row_elements,
                      row_elements * sizeof(T), hipMemcpyHostToDevice),
            "hipMemcpy");
    }
  }
  T* get() const { return reinterpret_cast<T*>(memory_.get()); }

  static constexpr std::size_t stride = (std::size_t{1} << 30) + 16;

 private:
  device_memory memory_;
};

TEST_CASE("logits: rows of table, weights and lengths beyond 2^31 elements",
          "[mutants][class_A][class_K]") {
  for (const int page_size : {1, 48, 64}) {
    test_case test;
    test.page_size = page_size;
    test.layout = page_size == 1 ? page_layout::plain : page_layout::preshuffled;
    test.lens = {70, 65, 133};
    INFO(test.name());
    logits_problem problem(test);
    const auto run_with = [&](const char* what, const kindex::paged_mqa_logits_params& params) {
      INFO(what);
      problem.logits().reset();
      REQUIRE(run_directly([&](hipStream_t stream) { return paged_mqa_logits(params, stream); }) ==
              hipSuccess);
      problem.logits().download();
      CHECK(problem.check() == "");
    };
    {
      kindex::paged_mqa_logits_params params = problem.params();
      std::vector<std::int32_t> entries;
      for (std::int64_t b = 0; b < 3; ++b) {
        for (std::int64_t i = 0; i < params.block_table_width; ++i) {
          entries.push_back(problem.batch().table.entry(b, i));
        }
      }
      const far_apart<std::int32_t> table(entries,
                                          static_cast<std::size_t>(params.block_table_width));
      params.block_table = table.get();
      params.block_table_stride = far_apart<std::int32_t>::stride;
      run_with("table", params);
    }
    {
      kindex::paged_mqa_logits_params params = problem.params();
      const far_apart<float> weights(problem.oracle().weights, 64);
      params.weights = weights.get();
      params.weights_row_stride = far_apart<float>::stride;
      run_with("weights", params);
    }
    {
      kindex::paged_mqa_logits_params params = problem.params();
      const far_apart<std::int32_t> lens(test.lens, 1);
      params.context_lens = lens.get();
      params.context_lens_batch_stride = far_apart<std::int32_t>::stride;
      run_with("lengths", params);
    }
  }
}

// A column of a [B, N, 3] array.
TEST_CASE("logits: lengths of rows that are not side by side", "[mutants][class_G][class_K]") {
  for (const page_geometry geometry : all_page_geometries()) {
    test_case test;
    test.page_size = geometry.page_size;
    test.layout = geometry.layout;
    test.next_n = 3;
    test.num_heads = 16;
    test.lens_shape = kindex::lens_shape::per_row;
    test.lens_stride = 3;
    test.lens = {70, 1, 33, 0, 65, 64, 5, 6, 200};
    INFO(test.name());
    logits_problem problem(test);
    CHECK(problem.launch_and_check() == "");
  }
}

// A block that leaves one sequence looks for the next a wave's lanes at a time.
TEST_CASE("logits: as many empty sequences in a row as a wave has lanes",
          "[mutants][class_E][class_P][class_R]") {
  const pretend_compute_units units(1);
  for (const int empty : {31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    for (const int next_n : {1, 2}) {
      test_case test;
      test.next_n = next_n;
      test.num_heads = next_n == 1 ? 64 : 16;
      for (int i = 0; i < 6; ++i) {
        test.lens.push_back(65 + i);
        test.lens.insert(test.lens.end(), static_cast<std::size_t>(empty), 0);
      }
      INFO(empty << " empty sequences, " << next_n << " rows");
      logits_problem problem(test);
      CHECK(problem.launch_and_check() == "");
    }
  }
}

// Pages longer than the 256 tokens that the waves of a block compute in one step, and that units do
// not divide: there a unit may need ids of two chunks of 64. Some wave begins on such a place.
TEST_CASE("logits: one wave over many pages of 272 tokens", "[mutants][class_B][class_R]") {
  for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
    for (const int next_n : {1, 2}) {
      test_case test;
      test.page_size = 272;
      test.layout = layout;
      test.next_n = next_n;
      test.num_heads = next_n == 1 ? 32 : 16;
      test.head_dim = 64;
      test.lens = {40000};
      // One to six blocks: all but the first begin somewhere in a page.
      for (const int compute_units : {1, 2, 3}) {
        const pretend_compute_units units(compute_units);
        INFO(test.name() << " on " << compute_units << " compute units");
        logits_problem problem(test);
        CHECK(problem.launch_and_check() == "");
      }
    }
  }
}

}  // namespace
