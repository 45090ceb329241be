// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Dimensions of one, whose strides frameworks leave arbitrary: whatever stands there, the call is
// taken and the result the same.

#include <cstdint>
#include <functional>
#include <kindex/params.hpp>
#include <string>
#include <vector>

#include "catch.hpp"
#include "support/gather_problem.hpp"
#include "support/launch.hpp"
#include "support/logits_problem.hpp"
#include "support/ops.hpp"
#include "support/store_problem.hpp"
#include "support/test_case.hpp"

using namespace kindex_test;
using kindex::element_type;
using kindex::lens_shape;
using kindex::page_layout;

namespace {

// None is a row: no row, half of one, odd, backwards, farther than any memory.
constexpr std::int64_t strides[] = {0, 1, 64, 1001, -1, -4096, (std::int64_t{1} << 50) + 1};

// All three kinds of pages: within a unit of work, of several, of any size; and of one token.
const std::vector<page_geometry> geometries = {
    {1, page_layout::plain},  {16, page_layout::plain},       {16, page_layout::preshuffled},
    {64, page_layout::plain}, {64, page_layout::preshuffled}, {80, page_layout::preshuffled},
};

using change_of_logits = std::function<void(kindex::paged_mqa_logits_params&)>;

void check_logits(const test_case& test, const launcher& how, const change_of_logits& change) {
  CAPTURE(test.name(), how.name);
  logits_problem problem(test);
  kindex::paged_mqa_logits_params params = problem.params();
  change(params);
  problem.logits().reset();
  CHECK(how.run([&](hipStream_t stream) { return paged_mqa_logits(params, stream); }) ==
        hipSuccess);
  problem.logits().download();
  CHECK(problem.check() == "");
}

}  // namespace

TEST_CASE("one row: store", "[one_row][class_K]") {
  for_each_launcher([](const launcher& how) {
    for (const page_geometry geometry : geometries) {
      for (const auto type : {element_type::bf16, element_type::fp32}) {
        for (const int lead : {0, 1}) {  // aligned to 16 bytes, and to its element only
          for (const std::int64_t stride : strides) {
            store_case test;
            test.geometry = geometry;
            test.k_type = type;
            test.num_tokens = 1;
            CAPTURE(test.name(), lead, stride, how.name);
            random_stream random(test.seed);
            paged_cache cache = test.make_cache();
            k_matrix k(type, 1, test.head_dim, 0, lead);
            fill_any_values(k, random);
            const slot_list slots(random_slots(cache.num_slots(), 1, random), true);
            kindex::store_params params = test.options();
            cache.upload();
            params.cache = cache.view();
            k.bind(params);
            slots.bind(params);
            params.k_row_stride = stride;
            CHECK(how.run([&](hipStream_t stream) { return store(params, stream); }) == hipSuccess);
            expect_stored(cache, params, k, slots.host());
            CHECK(cache.compare_with_device() == "");
          }
        }
      }
    }
  });
}

TEST_CASE("one row: gather", "[one_row][class_K]") {
  for_each_launcher([](const launcher& how) {
    for (const page_geometry geometry : geometries) {
      for (const std::int64_t stride : strides) {
        gather_case test;
        test.geometry = geometry;
        CAPTURE(stride, how.name);
        // One sequence: its row of the table.
        test.lens = {130};
        test.change = [&](kindex::gather_params& params) { params.block_table_stride = stride; };
        CHECK(run_gather_case(test, how) == "");
        // One token of several sequences, and room for it alone: its rows of both outputs.
        test.lens = {0, 90, 5};
        test.num_tokens = 1;
        test.change = [&](kindex::gather_params& params) {
          params.dst_k_stride_bytes = stride;
          params.dst_scale_stride = stride;
        };
        for (const std::size_t misalign : {0, 3}) {
          test.dst_k_misalign = misalign;
          CHECK(run_gather_case(test, how) == "");
        }
      }
    }
  });
}

TEST_CASE("one row: logits of one sequence of one row", "[one_row][class_K]") {
  for_each_launcher([](const launcher& how) {
    for (const page_geometry geometry : geometries) {
      // q in registers, in shared memory.
      for (const int heads : {64, 48}) {
        for (const std::int64_t stride : strides) {
          test_case test;
          test.page_size = geometry.page_size;
          test.layout = geometry.layout;
          test.num_heads = heads;
          test.lens = {150};
          test.lens_shape = stride < 0 ? lens_shape::per_row : lens_shape::per_sequence;
          test.fill = kindex::fill::neg_infinity;
          test.logits_width = 170;
          check_logits(test, how, [=](kindex::paged_mqa_logits_params& params) {
            params.q_batch_stride = stride;
            params.q_next_n_stride = stride;
            params.weights_row_stride = stride;
            params.context_lens_batch_stride = stride;
            params.context_lens_next_n_stride = stride;
            params.block_table_stride = stride;
            params.logits_row_stride = stride;
          });
        }
      }
    }
  });
}

TEST_CASE("one row: logits of one sequence, and of one row a sequence", "[one_row][class_K]") {
  for_each_launcher([](const launcher& how) {
    for (const page_geometry geometry : geometries) {
      for (const std::int64_t stride : strides) {
        test_case test;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.num_heads = 32;
        test.lens_shape = lens_shape::per_row;
        test.lens = {120, 7, 90};
        test.next_n = 3;
        check_logits(test, how, [=](kindex::paged_mqa_logits_params& params) {
          params.q_batch_stride = stride;
          params.context_lens_batch_stride = stride;
          params.block_table_stride = stride;
        });
        test.next_n = 1;
        check_logits(test, how, [=](kindex::paged_mqa_logits_params& params) {
          params.q_next_n_stride = stride;
          params.context_lens_next_n_stride = stride;
        });
      }
    }
  });
}
