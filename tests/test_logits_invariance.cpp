// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Paged MQA logits: the bits of a logit depend on its q, weights and K rows alone. Alone or in a
// batch, with other pages, layouts, strides, rows, after other launches, beside other launches.
#include <cmath>
#include <memory>

#include "catch.hpp"
#include "support/logits_problem.hpp"
#include "support/ops.hpp"

namespace {

using namespace kindex_test;
using kindex::fill;
using kindex::lens_shape;
using kindex::page_layout;

// For comparisons of bits: rounding is another test's business.
void launch_only(logits_problem& problem) {
  REQUIRE(problem.launch() == hipSuccess);
  REQUIRE(problem.logits().check_guards() == "");
}

using bits_of_rows = std::vector<std::vector<std::uint32_t>>;

bits_of_rows all_bits(const logits_problem& problem, std::int64_t rows) {
  bits_of_rows bits;
  for (std::int64_t row = 0; row < rows; ++row) bits.push_back(problem.visible_bits(row));
  return bits;
}

test_case random_case(int head_dim, int num_heads, int next_n) {
  test_case test;
  test.lens = {257, 0, 64, 15, 1, 130, 700};
  test.head_dim = head_dim;
  test.num_heads = num_heads;
  test.next_n = next_n;
  test.data = data_kind::random;
  test.seed = 7;
  return test;
}

TEST_CASE("logits: the same bits in every page size, layout, stride and order of pages",
          "[logits_invariance][class_B][class_K]") {
  for (const int head_dim : {64, 128, 256}) {
    for (const auto& [num_heads, next_n] :
         {std::pair{64, 1}, std::pair{32, 1}, std::pair{64, 3}, std::pair{128, 8}}) {
      test_case test = random_case(head_dim, num_heads, next_n);
      logits_problem base(test);
      launch_only(base);
      const bits_of_rows expected = all_bits(base, test.num_rows());
      std::uint64_t turn = 0;
      for (const page_geometry geometry : all_page_geometries()) {
        ++turn;
        test_case other = test;
        other.page_size = geometry.page_size;
        other.layout = geometry.layout;
        other.page_seed = turn;
        other.gap = turn % 2 == 0 ? page_gap::none : page_gap::plus_64;
        other.q_head_gap = turn % 3 == 0 ? 64 : 0;
        other.weights_gap = turn % 3 == 1 ? 16 : 0;
        other.logits_gap = 128 + static_cast<std::int64_t>(turn);
        other.logits_width = 700 + static_cast<std::int64_t>(turn) * 13;
        other.fill = turn % 2 == 0 ? fill::neg_infinity : fill::none;
        INFO(other.name());
        const pretend_compute_units units(static_cast<int>(turn % 3));
        logits_problem problem(other);
        launch_only(problem);
        CHECK(all_bits(problem, test.num_rows()) == expected);
      }
    }
  }
}

TEST_CASE("logits: the same bits alone and in any batch", "[logits_invariance][class_N]") {
  for (const int head_dim : {64, 128, 256}) {
    for (const auto& [num_heads, next_n] :
         {std::pair{64, 1}, std::pair{16, 1}, std::pair{64, 4}, std::pair{128, 8}}) {
      const test_case test = random_case(head_dim, num_heads, next_n);
      logits_problem batch(test);
      launch_only(batch);
      for (const std::int64_t b : {std::int64_t{0}, std::int64_t{3}, std::int64_t{5}}) {
        test_case alone = test;
        alone.lens = {test.lens[static_cast<std::size_t>(b)]};
        alone.first_sequence = b;
        INFO(alone.name());
        logits_problem problem(alone);
        launch_only(problem);
        for (std::int64_t n = 0; n < next_n; ++n) {
          CHECK(problem.visible_bits(n) == batch.visible_bits(b * next_n + n));
        }
      }
      // Sequence 6 in the middle of 40 short ones, where it meets other waves.
      test_case crowd = test;
      crowd.lens = std::vector<std::int32_t>(40, 3);
      crowd.lens[6] = test.lens[6];
      INFO(crowd.name());
      logits_problem problem(crowd);
      launch_only(problem);
      for (std::int64_t n = 0; n < next_n; ++n) {
        CHECK(problem.visible_bits(6 * next_n + n) == batch.visible_bits(6 * next_n + n));
      }
    }
  }
}

// q, weights and K of row n do not depend on the number of rows, so its bits must not either:
// speculative decoding must not change what the model sees.
TEST_CASE("logits: the same bits for any number of rows", "[logits_invariance][class_G]") {
  for (const int head_dim : {64, 128, 256}) {
    for (const int num_heads : {16, 32, 64, 128}) {
      test_case test = random_case(head_dim, num_heads, 8);
      test.lens_shape = lens_shape::per_row;
      test.lens = std::vector<std::int32_t>(16, 200);
      logits_problem all_rows(test);
      launch_only(all_rows);
      for (const int next_n : {1, 2, 3, 5}) {
        test_case fewer = test;
        fewer.next_n = next_n;
        fewer.lens = std::vector<std::int32_t>(2 * static_cast<std::size_t>(next_n), 200);
        INFO(fewer.name());
        logits_problem problem(fewer);
        launch_only(problem);
        for (std::int64_t row = 0; row < fewer.num_rows(); ++row) {
          CHECK(problem.visible_bits(row) ==
                all_rows.visible_bits(row / next_n * 8 + row % next_n));
        }
      }
    }
  }
}

void check_repetitions(int count) {
  for (const auto& [num_heads, next_n] : {std::pair{64, 1}, std::pair{16, 2}, std::pair{32, 1}}) {
    test_case test = random_case(128, num_heads, next_n);
    test.lens.push_back(8200);
    logits_problem problem(test);
    INFO(test.name());
    launch_only(problem);
    const bits_of_rows expected = all_bits(problem, test.num_rows());
    for (int i = 1; i < count; ++i) {
      REQUIRE(problem.launch() == hipSuccess);
      REQUIRE(all_bits(problem, test.num_rows()) == expected);
    }
  }
}

TEST_CASE("logits: launches repeat bit by bit", "[logits_invariance][class_L]") {
  check_repetitions(is_emulated() ? 3 : 200);
}
TEST_CASE("logits: 200 launches repeat bit by bit", "[logits_invariance][.long][class_L]") {
  check_repetitions(200);
}

TEST_CASE("logits: NaN in a live token changes no other column", "[logits_invariance][class_F]") {
  for_each_format([&](kindex::fp8_format format) {
    for (const page_geometry geometry : all_page_geometries()) {
      for (const int head_dim : {64, 128, 256}) {
        test_case test = random_case(head_dim, 64, geometry.page_size % 32 == 0 ? 1 : 2);
        test.data = data_kind::exact;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.format = format;
        test.lens = {130, 66};
        INFO(test.name());
        logits_problem problem(test);
        problem.spoil_token(0, 17);
        problem.spoil_token(0, 129);
        problem.spoil_token(1, 63);
        CHECK(problem.launch_and_check() == "");
      }
    }
  });
}

TEST_CASE("logits: a shorter step into the buffer of a longer one",
          "[logits_invariance][class_F]") {
  for (const fill filling : {fill::none, fill::neg_infinity}) {
    test_case test;
    test.lens = {2000};
    test.fill = filling;
    logits_problem problem(test);
    REQUIRE(problem.launch_and_check() == "");
    const std::vector<std::uint32_t> before = problem.visible_bits(0);
    problem.set_lens({100});
    // Not preset again: beyond the new length the old logits are what fill::none must leave.
    REQUIRE(run_directly(problem.run()) == hipSuccess);
    problem.logits().download();
    for (std::int64_t t = 0; t < 2000; ++t) {
      const bool old = t < 100 || filling == fill::none;
      REQUIRE(problem.logits().bits(0, t) ==
              (old ? before[static_cast<std::size_t>(t)] : 0xFF800000));
    }
  }
}

TEST_CASE("logits: two caches of different kinds in turn", "[logits_invariance][class_S]") {
  std::vector<std::unique_ptr<logits_problem>> problems;
  for (const auto& [page_size, layout, gap, head_dim] :
       {std::tuple{64, page_layout::preshuffled, page_gap::none, 128},
        std::tuple{16, page_layout::plain, page_gap::twice, 64},
        std::tuple{48, page_layout::preshuffled, page_gap::plus_64, 256},
        std::tuple{1, page_layout::plain, page_gap::plus_64, 128}}) {
    test_case test;
    test.lens = {100, 0, 65};
    test.page_size = page_size;
    test.layout = layout;
    test.gap = gap;
    test.head_dim = head_dim;
    test.seed = 11 + static_cast<std::uint64_t>(page_size);
    problems.push_back(std::make_unique<logits_problem>(test));
  }
  for (int round = 0; round < 3; ++round) {
    for (const auto& problem : problems) {
      INFO(problem->test().name());
      CHECK(problem->launch_and_check() == "");
    }
  }
}

// Lengths on and beside the points where work is divided, all in one batch.
TEST_CASE("logits: lengths around split points", "[logits_invariance][class_R]") {
  for (const auto& [num_heads, next_n] : {std::pair{64, 1}, std::pair{16, 2}}) {
    test_case test;
    test.num_heads = num_heads;
    test.next_n = next_n;
    for (std::int32_t len = 256; len <= 4096; len *= 2) {
      for (const std::int32_t off : {-1, 0, 1}) test.lens.push_back(len + off);
    }
    for (const int compute_units : {0, 1, 3}) {
      const pretend_compute_units units(compute_units);
      INFO(test.name() << " on " << compute_units << " compute units");
      logits_problem problem(test);
      CHECK(problem.launch_and_check() == "");
    }
  }
}

TEST_CASE("logits: one very long sequence among short ones",
          "[logits_invariance][class_O][class_R]") {
  test_case test;
  test.num_heads = 16;
  test.head_dim = 64;
  test.lens = {1, 0, 17, 64, 65, 4096, 131072, 2049};
  for (const int page_size : {64, 16}) {
    test.page_size = page_size;
    INFO(test.name());
    logits_problem problem(test);
    CHECK(problem.launch_and_check() == "");
  }
}

// With few waves each one walks over many pages: past every refill of its page ids.
TEST_CASE("logits: one wave over many pages and sequences",
          "[logits_invariance][class_B][class_R]") {
  const pretend_compute_units units(1);
  for (const page_geometry geometry : all_page_geometries()) {
    for (const int next_n : {1, 2}) {
      test_case test;
      test.page_size = geometry.page_size;
      test.layout = geometry.layout;
      test.next_n = next_n;
      test.num_heads = next_n == 1 ? 32 : 16;
      test.head_dim = 64;
      // 64 ids are fetched at a time: a wave needs more than that, from an odd beginning.
      const int tokens = std::min(70 * geometry.page_size, 3000) + 37;
      test.lens = {tokens, 0, 5, tokens + 64};
      for (int i = 0; i < 70; ++i) test.lens.push_back(i % 3 == 0 ? 1 : 0);
      test.lens.push_back(2 * tokens);
      INFO(test.name());
      logits_problem problem(test);
      CHECK(problem.launch_and_check() == "");
    }
  }
}

// A block whose piece begins in the middle of a page, and goes on for more pages than are fetched
// at a time: two units that are computed together may lie in pages of two fetches.
TEST_CASE("logits: long pieces from within a page", "[logits_invariance][class_B][class_R]") {
  const pretend_compute_units units(2);
  for (const int page_size : {128, 256}) {
    for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
      for (int more = 0; more < 4; ++more) {
        test_case test;
        test.page_size = page_size;
        test.layout = layout;
        test.head_dim = 64;
        test.num_heads = 16;
        test.lens = {(page_size == 128 ? 140 : 300) * 64 + more * 64 - 5};
        INFO(test.name());
        logits_problem problem(test);
        CHECK(problem.launch_and_check() == "");
      }
    }
  }
}

// Logits that wait in shared memory to be written together: several times more than fit there, of
// one sequence and across sequences.
TEST_CASE("logits: more than a block holds back", "[logits_invariance][class_F][class_R]") {
  const pretend_compute_units units(1);
  struct shape {
    int head_dim, next_n, num_heads, longest;
  };
  for (const shape& each : {shape{64, 1, 16, 14000}, shape{128, 3, 16, 7000},
                            shape{256, 2, 8, 7000}, shape{128, 8, 128, 2600}}) {
    for (const page_geometry geometry :
         {page_geometry{64, page_layout::preshuffled}, page_geometry{64, page_layout::plain}}) {
      for (const int less : {0, 70}) {
        test_case test;
        test.head_dim = each.head_dim;
        test.next_n = each.next_n;
        test.num_heads = each.num_heads;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.lens = {each.longest - less, 3, each.longest / 2 + less};
        INFO(test.name());
        logits_problem problem(test);
        CHECK(problem.launch_and_check() == "");
      }
    }
  }
}

TEST_CASE("logits: long batches with many heads", "[logits_invariance][.long][class_L][class_R]") {
  for (const int num_heads : {16, 32, 64, 128}) {
    for (const page_geometry geometry : all_page_geometries()) {
      test_case test;
      test.page_size = geometry.page_size;
      test.layout = geometry.layout;
      test.num_heads = num_heads;
      test.lens = {1, 0, 17, 64, 65, 4096, 20000, 2049, 8192, 2047, 2048};
      INFO(test.name());
      logits_problem problem(test);
      CHECK(problem.launch_and_check() == "");
    }
  }
}

}  // namespace
