// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Which devices there are kernels for, and in which fp8 format.

#include <kindex/config.hpp>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "support/gather_problem.hpp"
#include "support/instantiate.hpp"
#include "support/launch.hpp"
#include "support/logits_problem.hpp"
#include "support/platform.hpp"
#include "support/store_problem.hpp"

using namespace kindex_test;
using kindex::fp8_format;

namespace {

constexpr fp8_format other(fp8_format format) {
  return format == fp8_format::e4m3fnuz ? fp8_format::e4m3fn : fp8_format::e4m3fnuz;
}

// Compute capabilities. AMD: gfx908 and gfx90a, gfx1030, gfx1100, gfx1201; NVIDIA: Ampere, Ada,
// Blackwell.
const std::vector<std::pair<int, int>> devices_without_kernels =
    KINDEX_PLATFORM_NVIDIA != 0
        ? std::vector<std::pair<int, int>>{{8, 0}, {8, 9}, {10, 0}, {12, 0}}
        : std::vector<std::pair<int, int>>{{9, 0}, {10, 3}, {11, 0}, {12, 0}};

}  // namespace

TEST_CASE("devices: the native format is the one that the matrix instructions read",
          "[devices][class_I]") {
  for_each_format([](fp8_format expected) {
    fp8_format format = other(expected);
    CHECK(kindex::native_format(format) == hipSuccess);
    CHECK(format == expected);
  });
}

TEST_CASE("devices: gfx942 has a format of its own", "[devices][class_I]") {
  if (is_nvidia()) SKIP("compute capabilities of AMD");
  for (const int minor : {4, 5}) {
    const pretend_compute_capability pretended(9, minor);
    const fp8_format expected = minor == 4 ? fp8_format::e4m3fnuz : fp8_format::e4m3fn;
    fp8_format format = other(expected);
    CHECK(kindex::native_format(format) == hipSuccess);
    CHECK(format == expected);
  }
}

TEST_CASE("devices: the native format may be asked for in a capture", "[devices][class_L]") {
  if (!can_capture()) SKIP("the runtime cannot capture");
  fp8_format format = other(native_format());
  CHECK(run_captured([&](hipStream_t) { return kindex::native_format(format); }) == hipSuccess);
  CHECK(format == native_format());
}

TEST_CASE("devices: one without kernels is refused and nothing written", "[devices][class_N]") {
  for (const auto& [major, minor] : devices_without_kernels) {
    CAPTURE(major, minor);
    logits_problem problem{[] {
      test_case test;
      test.lens = {70};
      return test;
    }()};
    const store_case store_test;
    paged_cache cache = store_test.make_cache();
    k_matrix k(store_test.k_type, 1, store_test.head_dim);
    k.fill_row(0, 1.0f);
    kindex::store_params store_params = store_test.options();
    cache.upload();
    store_params.cache = cache.view();
    k.bind(store_params);
    const slot_list slots({3}, true);
    slots.bind(store_params);

    const pretend_compute_capability pretended(major, minor);
    for (const fp8_format before : {fp8_format::e4m3fnuz, fp8_format::e4m3fn}) {
      fp8_format format = before;
      CHECK(kindex::native_format(format) == hipErrorNotSupported);
      CHECK(format == before);
    }
    CHECK(run_directly([&](hipStream_t stream) { return store(store_params, stream); }) ==
          hipErrorNotSupported);
    CHECK(cache.compare_with_device() == "");
    gather_case gather_test;
    CHECK(run_gather_case(gather_test) ==
          std::string("status ") + hipGetErrorString(hipErrorNotSupported));
    CHECK(problem.launch() == hipErrorNotSupported);
    CHECK(problem.logits().check_guards() == "");
    for (std::int64_t t = 0; t < problem.logits().width(); ++t) {
      CHECK(problem.logits().untouched(0, t));
    }
  }
}
