// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Logits with a Config: it runs what it names and refuses every other cache and shape.

#include "support/instantiate.hpp"

#include "catch.hpp"
#include "support/logits_problem.hpp"

namespace {

using namespace kindex_test;
using kindex::fp8_format;
using kindex::page_layout;
using kindex::paged_mqa_logits_params;

constexpr fp8_format format = KINDEX_PLATFORM_NVIDIA ? fp8_format::e4m3fn : fp8_format::e4m3fnuz;
constexpr fp8_format other_format =
    KINDEX_PLATFORM_NVIDIA ? fp8_format::e4m3fnuz : fp8_format::e4m3fn;
using geometry = kindex::cache_geometry<64, page_layout::preshuffled, format, 128>;

// The kernel that the dispatch takes for 64 heads and one row, whichever the target's is.
template <class Use>
hipError_t with_config(std::int64_t next_n, std::int64_t num_heads, Use use) {
  return kindex::detail::target::with_logits_config<geometry>(next_n, num_heads, use);
}

hipError_t run_typed(const paged_mqa_logits_params& params, std::int64_t next_n,
                     std::int64_t num_heads) {
  return run_directly([&](hipStream_t stream) {
    return with_config(next_n, num_heads, [&](auto config) {
      return kindex::paged_mqa_logits<decltype(config)>(params, stream);
    });
  });
}

test_case small_case() {
  test_case test;
  test.lens = {70, 0, 129};
  return test;
}

TEST_CASE("typed logits: a Config runs what it names", "[logits_typed][class_N]") {
  if (native_format() != format) SKIP("built for the other fp8 format");
  logits_problem problem(small_case());
  problem.logits().reset();
  CHECK(run_typed(problem.params(), 1, 64) == hipSuccess);
  problem.logits().download();
  CHECK(problem.check() == "");
}

TEST_CASE("typed logits: other caches and shapes are refused, nothing is written",
          "[logits_typed][class_B][class_I][class_N]") {
  if (native_format() != format) SKIP("built for the other fp8 format");
  logits_problem problem(small_case());
  const auto refused = [&](auto change) {
    paged_mqa_logits_params params = problem.params();
    change(params);
    problem.logits().reset();
    CHECK(run_typed(params, 1, 64) == hipErrorInvalidValue);
    problem.logits().download();
    CHECK(problem.logits().check_guards() == "");
    CHECK(problem.logits().untouched(0, 0));
    CHECK(problem.logits().untouched(2, 128));
  };
  refused([](paged_mqa_logits_params& params) { params.cache.layout = page_layout::plain; });
  refused([](paged_mqa_logits_params& params) { params.cache.page_size = 32; });
  refused([](paged_mqa_logits_params& params) { params.cache.head_dim = 64; });
  refused([](paged_mqa_logits_params& params) {
    params.cache.format = other_format;
    params.q_format = other_format;
  });
  refused([](paged_mqa_logits_params& params) { params.q_format = other_format; });
  refused([](paged_mqa_logits_params& params) { params.num_heads = 16; });
}

TEST_CASE("typed logits: a typed view replaces the params' own cache", "[logits_typed][class_S]") {
  if (native_format() != format) SKIP("built for the other fp8 format");
  logits_problem problem(small_case());
  paged_mqa_logits_params params = problem.params();
  kindex::typed_cache_view<geometry> typed;
  typed.data = params.cache.data;
  typed.num_pages = params.cache.num_pages;
  params.cache = kindex::cache_view{};
  problem.logits().reset();
  CHECK(run_directly([&](hipStream_t stream) {
          return with_config(1, 64, [&](auto config) {
            return kindex::paged_mqa_logits<decltype(config)>(typed, params, stream);
          });
        }) == hipSuccess);
  problem.logits().download();
  CHECK(problem.check() == "");
}

}  // namespace
