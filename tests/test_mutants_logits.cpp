// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Paged MQA logits: what only a broken kernel showed to be untested (tests/mutation).
#include <cstdint>

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

}  // namespace
