// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The harness itself: a guard that notices nothing would make every other test pass.
#include <algorithm>
#include <limits>
#include <set>

#include "catch.hpp"
#include "support/device_buffer.hpp"
#include "support/launch.hpp"
#include "support/logits_problem.hpp"
#include "support/ops.hpp"
#include "support/test_case.hpp"

namespace {

using namespace kindex_test;

TEST_CASE("a guarded matrix notices a byte anywhere outside its rows", "[support]") {
  guarded_matrix<float> matrix(3, 10, 150, 4);
  matrix.download();
  REQUIRE(matrix.check_guards() == "");
  REQUIRE(matrix.untouched(2, 9));
  REQUIRE(matrix.bits(1, 3) == untouched_word);
  REQUIRE(reinterpret_cast<std::uintptr_t>(matrix.get()) % 16 == 4);

  const auto after_write = [&](std::ptrdiff_t byte) {
    matrix.reset();
    const std::uint8_t value = 0;
    check(hipMemcpy(reinterpret_cast<std::uint8_t*>(matrix.get()) + byte, &value, 1,
                    hipMemcpyHostToDevice),
          "hipMemcpy");
    matrix.download();
    return matrix.check_guards();
  };
  CHECK(after_write(-1) == "the byte 1 before the buffer was overwritten");
  CHECK(after_write(-512) == "the byte 512 before the buffer was overwritten");
  CHECK(after_write(40) == "gap behind row 0: byte 0 of 560 was overwritten");
  CHECK(after_write(1199) == "gap behind row 1: byte 559 of 560 was overwritten");
  CHECK(after_write(1240) == "byte 0 behind the buffer was overwritten");
  CHECK(after_write(1240 + 511) == "byte 511 behind the buffer was overwritten");
  CHECK(after_write(1239) == "");
  CHECK_FALSE(matrix.untouched(2, 9));
}

TEST_CASE("an exact array ends where its allocation ends", "[support]") {
  const device_array<std::int32_t> array(std::vector<std::int32_t>{7, 8, 9}, 4);
  CHECK(array.download() == std::vector<std::int32_t>{7, 8, 9});
  if (is_emulated()) CHECK(reinterpret_cast<std::uintptr_t>(array.get()) % 16 == 4);
  const device_array<float> empty{std::vector<float>{}};
  CHECK(empty.size() == 0);
}

TEST_CASE("a page table is a permutation, never the identity, with poison in unused entries",
          "[support]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    random_stream random(seed);
    const std::vector<std::int32_t> lens{17, 0, 64, 1};
    page_table table = make_page_table(lens, 16, 8, random, 5, 3);
    REQUIRE(table.width == 5);
    REQUIRE(table.stride == 8);
    REQUIRE(table.entries.size() == 3 * 8 + 5);
    std::vector<std::int32_t> used;
    for (std::int64_t seq = 0; seq < 4; ++seq) {
      for (std::int64_t i = 0; i < table.stride && seq * table.stride + i < 29; ++i) {
        const std::int32_t id = table.entry(seq, i);
        if (i < (lens[static_cast<std::size_t>(seq)] + 15) / 16) {
          REQUIRE((id >= 0 && id < 8));
          used.push_back(id);
        } else {
          REQUIRE((id == -1 || id == std::numeric_limits<std::int32_t>::max()));
        }
      }
    }
    REQUIRE_FALSE(std::is_sorted(used.begin(), used.end()));
    REQUIRE(std::set<std::int32_t>(used.begin(), used.end()).size() == used.size());
  }
}

TEST_CASE("a cache holds poison but for its tokens, and names the byte that differs", "[support]") {
  for (const page_geometry geometry : all_page_geometries()) {
    for (const placement where : {placement::exact, placement::guarded}) {
      test_case test;
      test.page_size = geometry.page_size;
      test.layout = geometry.layout;
      test.gap = page_gap::plus_64;
      test.lens = {17, 0, 3};
      CAPTURE(test.name());
      paged_batch batch = make_paged_batch(test, where);
      batch.cache.upload();
      REQUIRE(batch.cache.compare_with_device() == "");

      const kindex::cache_view view = batch.cache.view();
      auto* base = static_cast<std::uint8_t*>(view.data);
      const std::int64_t slot = batch.table.slot(0, 16);
      const std::int64_t page = slot / geometry.page_size;
      const int token = static_cast<int>(slot % geometry.page_size);
      const std::int64_t offset =
          page * view.page_stride_bytes +
          kindex::k_offset_in_page(geometry.layout, test.head_dim, token, 33);
      std::uint8_t byte = 0;
      check(hipMemcpy(&byte, base + offset, 1, hipMemcpyDeviceToHost), "hipMemcpy");
      REQUIRE(byte == batch.sequences[0].k[16 * 128 + 33]);
      byte = static_cast<std::uint8_t>(byte ^ 1);
      check(hipMemcpy(base + offset, &byte, 1, hipMemcpyHostToDevice), "hipMemcpy");
      const std::string difference = batch.cache.compare_with_device();
      CHECK(difference.find("page " + std::to_string(page) + ", token " + std::to_string(token) +
                            ", dim 33") == 0);
    }
  }
}

TEST_CASE("a cache beyond 4 GiB moves only the pages in use", "[support]") {
  paged_cache cache(64, 128, kindex::page_layout::plain, native_format(), 600000);
  const std::vector<std::uint8_t> k(128, 3);
  const float scale = 2;
  cache.put_token(599999 * std::int64_t{64} + 63, k.data(), &scale);
  cache.put_token(0, k.data(), &scale);
  cache.upload();
  CHECK(cache.compare_with_device() == "");
}

// Many tests rely on it to make one wave do much.
TEST_CASE("pretended compute units bound the number of waves", "[support]") {
  test_case test;
  test.lens = {3000, 3000};
  logits_problem problem(test);
  const auto waves = [&] {
    reset_work();
    REQUIRE(problem.launch() == hipSuccess);
    return work_done().waves;
  };
  const std::int64_t all = waves();
  if (all == 0) SKIP("only the emulator counts waves");
  const pretend_compute_units units(1);
  const std::int64_t few = waves();
  INFO(all << " and " << few << " waves");
  CHECK(few * 4 <= all);
}

}  // namespace
