// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Paged MQA logits: the contract's numbers, and every kernel over page sizes, layouts, rows, heads
// and head dimensions against the oracle.
#include <cmath>

#include "catch.hpp"
#include "support/logits_problem.hpp"
#include "support/ops.hpp"

namespace {

using namespace kindex_test;
using kindex::fill;
using kindex::fp8_format;
using kindex::lens_shape;
using kindex::page_layout;

std::vector<std::uint8_t> encoded(fp8_format format, const std::vector<double>& values) {
  std::vector<std::uint8_t> bytes;
  for (const double value : values) bytes.push_back(kindex::fp8_encode(format, value));
  return bytes;
}

// Lengths around everything that has a border: matrix tiles, units of 64, pages.
std::vector<std::int32_t> border_lens(int page_size) {
  return {0,
          1,
          2,
          3,
          5,
          15,
          16,
          17,
          63,
          64,
          65,
          0,
          127,
          128,
          129,
          257,
          page_size - 1,
          page_size,
          page_size + 1,
          2 * page_size,
          5 * page_size - 3};
}

TEST_CASE("logits: one-hot queries give the contract's numbers", "[logits][class_B]") {
  const std::vector<double> expected{927, 1800, 3492, 846, 1702, 3550, 955.5, 1854, 3600};
  const std::vector<double> alternating{35, -68, 132, -32, -2, -250, -34.5, 70, -136};
  for_each_format([&](fp8_format format) {
    for (const page_geometry geometry : all_page_geometries()) {
      test_case test;
      test.lens = {9};
      test.page_size = geometry.page_size;
      test.layout = geometry.layout;
      test.format = format;
      logits_problem problem(test);
      std::vector<double> q(64 * 128, 0);
      for (std::size_t h = 0; h < 64; ++h) q[h * 128 + h] = 1;
      problem.set_q(encoded(format, q));
      for (int t = 0; t < 9; ++t) {
        std::vector<double> k;
        for (int d = 0; d < 128; ++d) k.push_back((t + d) % 7 - 3);
        problem.set_token(0, t, encoded(format, k), {std::ldexp(1.0f, t % 3 - 1)});
      }
      for (const bool negative_odd : {false, true}) {
        std::vector<float> weights;
        for (int h = 0; h < 64; ++h) {
          weights.push_back(static_cast<float>(negative_odd && h % 2 == 1 ? -(h + 1) : h + 1));
        }
        problem.set_weights(weights);
        problem.update();
        for_each_launcher([&](const launcher& with) {
          INFO(with.name << ", " << test.name());
          REQUIRE(problem.launch_and_check(with) == "");
          for (int t = 0; t < 9; ++t) {
            const auto index = static_cast<std::size_t>(t);
            CHECK(static_cast<double>(problem.logits().at(0, t)) ==
                  (negative_odd ? alternating[index] : expected[index]));
          }
        });
      }
    }
  });
}

TEST_CASE("logits: ones give 128, a mix-up of the formats would give 64 or 32",
          "[logits][class_I]") {
  for_each_format([&](fp8_format format) {
    test_case test;
    test.lens = {70};
    test.format = format;
    logits_problem problem(test);
    problem.set_q(encoded(format, std::vector<double>(64 * 128, 1)));
    for (int t = 0; t < 70; ++t) {
      problem.set_token(0, t, encoded(format, std::vector<double>(128, 1)), {1.0f});
    }
    problem.set_weights(std::vector<float>(64, 1.0f / 64));
    problem.update();
    INFO(test.name());
    REQUIRE(problem.launch_and_check() == "");
    CHECK(problem.logits().at(0, 0) == 128.0f);
    CHECK(problem.logits().at(0, 69) == 128.0f);
  });
}

TEST_CASE("logits: the largest dot product is exact", "[logits][class_I]") {
  for_each_format([&](fp8_format format) {
    const double max = static_cast<double>(kindex::fp8_max(format));
    test_case test;
    test.lens = {17};
    test.format = format;
    logits_problem problem(test);
    problem.set_q(encoded(format, std::vector<double>(64 * 128, max)));
    for (int t = 0; t < 17; ++t) {
      problem.set_token(0, t, encoded(format, std::vector<double>(128, max)), {1.0f});
    }
    std::vector<float> weights(64, 0);
    weights[5] = 1;
    problem.set_weights(weights);
    problem.update();
    INFO(test.name());
    REQUIRE(problem.launch_and_check() == "");
    CHECK(problem.logits().at(0, 16) == (format == fp8_format::e4m3fn ? 25690112.0f : 7372800.0f));
  });
}

TEST_CASE("logits: a zero row gives exactly 0, a negative scale keeps its sign",
          "[logits][class_J]") {
  test_case test;
  test.lens = {40};
  logits_problem problem(test);
  problem.set_token(0, 3, std::vector<std::uint8_t>(128, 0), {1e-4f / 240});
  problem.set_token(0, 20,
                    problem.batch().sequences[0].k.size() == 0
                        ? std::vector<std::uint8_t>()
                        : encoded(test.format, std::vector<double>(128, 1)),
                    {-2.0f});
  problem.update();
  REQUIRE(problem.launch_and_check() == "");
  CHECK(problem.logits().at(0, 3) == 0.0f);
}

TEST_CASE("logits: what the rows of a sequence see", "[logits][class_G]") {
  struct visible_case {
    std::int32_t len;
    int next_n;
    std::vector<std::int64_t> visible;
  };
  const std::vector<visible_case> cases{
      {5, 3, {3, 4, 5}}, {1, 3, {0, 0, 1}}, {65, 4, {62, 63, 64, 65}}, {2, 2, {1, 2}}};
  for (const page_geometry geometry : all_page_geometries()) {
    for (const visible_case& each : cases) {
      for (const fill filling : {fill::none, fill::neg_infinity}) {
        test_case test;
        test.lens = {each.len};
        test.next_n = each.next_n;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.fill = filling;
        test.logits_width = 80;
        INFO(test.name());
        logits_problem problem(test);
        REQUIRE(problem.launch_and_check() == "");
        for (std::int64_t row = 0; row < each.next_n; ++row) {
          std::int64_t finite = 0;
          for (std::int64_t t = 0; t < 80; ++t) {
            finite +=
                !problem.logits().untouched(row, t) && std::isfinite(problem.logits().at(row, t));
          }
          CHECK(finite == each.visible[static_cast<std::size_t>(row)]);
        }
      }
    }
  }
}

constexpr int all_head_counts[] = {8, 16, 32, 48, 64, 80, 96, 112, 128};

// One pair of rows and heads in one geometry; what else there is to choose takes turns.
void check_shape(int head_dim, int next_n, int num_heads, page_geometry geometry, fp8_format format,
                 std::uint64_t turn) {
  test_case test;
  test.lens = border_lens(geometry.page_size);
  test.next_n = next_n;
  test.num_heads = num_heads;
  test.head_dim = head_dim;
  test.page_size = geometry.page_size;
  test.layout = geometry.layout;
  test.format = format;
  test.fill = turn % 2 == 0 ? fill::none : fill::neg_infinity;
  test.gap = turn % 3 == 0 ? page_gap::none : turn % 3 == 1 ? page_gap::least : page_gap::plus_64;
  if (turn % 5 == 0) {
    // Lengths of the rows that have nothing to do with one another.
    test.lens_shape = lens_shape::per_row;
    std::vector<std::int32_t> row_lens;
    for (std::size_t i = 0; i < 5 * static_cast<std::size_t>(next_n); ++i) {
      row_lens.push_back(test.lens[(i * 8 + turn) % test.lens.size()]);
    }
    test.lens = row_lens;
  }
  const launcher& with = launchers()[turn % launchers().size()];
  INFO(with.name << ", " << test.name());
  logits_problem problem(test);
  // One compute unit in every other case: few waves that walk over all sequences, or many that
  // take a unit each.
  const pretend_compute_units units(turn % 4 < 2 ? 1 : 0);
  REQUIRE(problem.launch_and_check(with) == "");
}

// All geometries with pairs of rows and heads for which the library has kernels of their own, and
// every pair of rows and heads in some geometries.
void check_shapes(int head_dim) {
  for_each_format([&](fp8_format format) {
    std::uint64_t turn = 0;
    for (const auto& [next_n, num_heads] : {std::pair{1, 64}, std::pair{1, 32}, std::pair{2, 64},
                                            std::pair{8, 128}, std::pair{3, 16}, std::pair{1, 8}}) {
      for (const page_geometry geometry : all_page_geometries()) {
        check_shape(head_dim, next_n, num_heads, geometry, format, ++turn);
      }
    }
    for (int next_n = 1; next_n <= 8; ++next_n) {
      for (const int num_heads : all_head_counts) {
        ++turn;
        const std::size_t pick = turn * 5 % all_page_geometries().size();
        check_shape(head_dim, next_n, num_heads, all_page_geometries()[pick], format, turn);
      }
    }
  });
}

TEST_CASE("logits: shapes of head_dim 64", "[logits][class_B][class_G][class_N]") {
  check_shapes(64);
}
TEST_CASE("logits: shapes of head_dim 128", "[logits][class_B][class_G][class_N]") {
  check_shapes(128);
}
TEST_CASE("logits: shapes of head_dim 256", "[logits][class_B][class_G][class_N]") {
  check_shapes(256);
}

// The contract promises eight rows; more may be refused, but not be wrong.
TEST_CASE("logits: more than eight rows are right or refused", "[logits][class_G][class_N]") {
  for (const int head_dim : {64, 128, 256}) {
    for (const int next_n : {9, 16, 23, 33, 64}) {
      for (const int num_heads : {8, 16, 64}) {
        test_case test;
        test.lens = {70, 0, 129, 8};
        test.head_dim = head_dim;
        test.next_n = next_n;
        test.num_heads = num_heads;
        INFO(test.name());
        logits_problem problem(test);
        const hipError_t status = problem.launch();
        if (status == hipErrorNotSupported) continue;
        REQUIRE(status == hipSuccess);
        CHECK(problem.check() == "");
      }
    }
  }
}

TEST_CASE("logits: random data within the contract's tolerance", "[logits][class_N]") {
  for (const int head_dim : {64, 128, 256}) {
    for_each_format([&](fp8_format format) {
      int turn = 0;
      for (const page_geometry geometry : all_page_geometries()) {
        for (const int next_n : {1, 3}) {
          test_case test;
          test.lens = {300, 0, 64, 17, 129};
          test.next_n = next_n;
          test.num_heads = std::vector<int>{64, 32, 128, 16}[static_cast<std::size_t>(turn++ % 4)];
          test.head_dim = head_dim;
          test.page_size = geometry.page_size;
          test.layout = geometry.layout;
          test.format = format;
          test.data = data_kind::random;
          INFO(test.name());
          logits_problem problem(test);
          REQUIRE(problem.launch_and_check() == "");
        }
      }
    });
  }
}

TEST_CASE("logits: every pair of rows and heads, in every geometry",
          "[logits][.long][class_B][class_G][class_N]") {
  const int head_dim = GENERATE(64, 128, 256);
  std::uint64_t turn = 0;
  for (int next_n = 1; next_n <= 8; ++next_n) {
    for (const int num_heads : all_head_counts) {
      for (const page_geometry geometry : all_page_geometries()) {
        check_shape(head_dim, next_n, num_heads, geometry, native_format(), ++turn);
      }
    }
  }
}

}  // namespace
