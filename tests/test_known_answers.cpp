// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The same data on every target, in the format that all but gfx942 have (the emulator has a mode
// for it): what the contract makes exact has one known answer, wherever this runs; for random data
// the largest error is printed.
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "catch.hpp"
#include "support/device_buffer.hpp"
#include "support/logits_problem.hpp"
#include "support/ops.hpp"
#include "support/store_problem.hpp"

namespace {

using namespace kindex_test;
using kindex::fp8_format;
using kindex::page_layout;

/// FNV-1a, byte after byte.
class digest {
 public:
  void add(const void* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      value_ = (value_ ^ static_cast<const std::uint8_t*>(bytes)[i]) * 0x100000001B3u;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325u;
};

void with_common_format(const std::function<void()>& body) {
  bool ran = false;
  for_each_format([&](fp8_format format) {
    if (format != fp8_format::e4m3fn) return;
    body();
    ran = true;
  });
  if (!ran) SKIP("this device knows the other fp8 format only");
}

TEST_CASE("known answers: bytes of a store and of the gather after it",
          "[known_answers][class_H]") {
  with_common_format([] {
    constexpr std::int64_t num_tokens = 1500;
    constexpr int page_size = 64;
    constexpr std::int64_t num_pages = 32;
    const struct {
      int head_dim;
      std::uint64_t stored_plain, stored_preshuffled, gathered;
    } answers[] = {{64, 0x62E1CE46F5079AF6, 0x41DE5814EA9C95F6, 0x4B1A21A0540C0A46},
                   {128, 0xCF280F88BFBB9EA2, 0x1E678AD7C4EF00A2, 0x42EED8D54B161926},
                   {256, 0xEA24402548CEB4D7, 0x4C02E90E048E1C77, 0x42AD3FF1501D750B}};
    for (const auto& [head_dim, answer_plain, answer_preshuffled, answer_gathered] : answers) {
      random_stream random(static_cast<std::uint64_t>(head_dim));
      k_matrix k(kindex::element_type::bf16, num_tokens, head_dim);
      fill_any_values(k, random);
      std::vector<std::int64_t> slots(num_tokens);
      std::iota(slots.begin(), slots.end(), 0);
      const slot_list device_slots(slots, true);
      for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
        INFO("D=" << head_dim << ", " << kindex::to_string(layout));
        kindex::store_params store_params;
        kindex::cache_view& cache = store_params.cache;
        cache.num_pages = num_pages;
        cache.page_size = page_size;
        cache.head_dim = head_dim;
        cache.layout = layout;
        cache.format = fp8_format::e4m3fn;
        cache.page_stride_bytes = kindex::page_payload_bytes(page_size, head_dim);
        const device_array<std::uint8_t> data(std::vector<std::uint8_t>(
            static_cast<std::size_t>(num_pages * cache.page_stride_bytes)));
        cache.data = data.get();
        k.bind(store_params);
        device_slots.bind(store_params);
        REQUIRE(run_directly([&](hipStream_t stream) { return store(store_params, stream); }) ==
                hipSuccess);
        digest stored;
        const std::vector<std::uint8_t> bytes = data.download();
        stored.add(bytes.data(), bytes.size());

        std::vector<std::int32_t> pages(num_pages);
        std::iota(pages.begin(), pages.end(), 0);
        const device_array<std::int32_t> table(pages);
        const device_array<std::int32_t> cu_seq_lens(
            std::vector<std::int32_t>{0, static_cast<std::int32_t>(num_tokens)});
        const device_array<std::uint8_t> dst_k(
            std::vector<std::uint8_t>(static_cast<std::size_t>(num_tokens * head_dim)));
        const device_array<float> dst_scale(std::vector<float>(
            static_cast<std::size_t>(num_tokens * kindex::scales_per_token(head_dim))));
        kindex::gather_params gather_params;
        gather_params.cache = cache;
        gather_params.block_table = table.get();
        gather_params.block_table_stride = gather_params.block_table_width = num_pages;
        gather_params.cu_seq_lens = cu_seq_lens.get();
        gather_params.num_seqs = 1;
        gather_params.dst_k = dst_k.get();
        gather_params.dst_k_stride_bytes = head_dim;
        gather_params.dst_scale = dst_scale.get();
        gather_params.dst_scale_stride = kindex::scales_per_token(head_dim);
        gather_params.num_tokens = num_tokens;
        REQUIRE(run_directly([&](hipStream_t stream) { return gather(gather_params, stream); }) ==
                hipSuccess);
        digest gathered;
        const std::vector<std::uint8_t> rows = dst_k.download();
        const std::vector<float> scales = dst_scale.download();
        gathered.add(rows.data(), rows.size());
        gathered.add(scales.data(), scales.size() * sizeof(float));

        CHECK(stored.value() == (layout == page_layout::plain ? answer_plain : answer_preshuffled));
        CHECK(gathered.value() == answer_gathered);
      }
    }
  });
}

TEST_CASE("known answers: logits of exact data", "[known_answers][class_B][class_G]") {
  with_common_format([] {
    digest logits;
    for (const int head_dim : {64, 128, 256}) {
      for (const page_geometry geometry : all_page_geometries()) {
        for (const auto& [next_n, num_heads] :
             {std::pair{1, 64}, std::pair{1, 32}, std::pair{4, 16}}) {
          test_case test;
          test.lens = {300, 0, 64, 17, 129};
          test.head_dim = head_dim;
          test.next_n = next_n;
          test.num_heads = num_heads;
          test.page_size = geometry.page_size;
          test.layout = geometry.layout;
          test.format = fp8_format::e4m3fn;
          INFO(test.name());
          logits_problem problem(test);
          REQUIRE(problem.launch_and_check() == "");
          for (std::int64_t row = 0; row < test.num_rows(); ++row) {
            const std::vector<std::uint32_t> bits = problem.visible_bits(row);
            logits.add(bits.data(), bits.size() * sizeof(std::uint32_t));
          }
        }
      }
    }
    CHECK(logits.value() == 0x3BD5F0C4AAB89FE4);
  });
}

TEST_CASE("known answers: the largest error of random data", "[known_answers][class_N]") {
  with_common_format([] {
    for (const int head_dim : {64, 128, 256}) {
      double largest = 0;
      std::string where;
      for (const auto& [next_n, num_heads] : {std::pair{1, 64}, std::pair{4, 64}, std::pair{1, 32},
                                              std::pair{2, 16}, std::pair{1, 8}}) {
        test_case test;
        test.lens = {3000, 64, 17, 1290};
        test.head_dim = head_dim;
        test.next_n = next_n;
        test.num_heads = num_heads;
        test.format = fp8_format::e4m3fn;
        test.data = data_kind::random;
        INFO(test.name());
        logits_problem problem(test);
        REQUIRE(problem.launch_and_check() == "");
        for (std::int64_t row = 0; row < test.num_rows(); ++row) {
          for (std::int64_t t = 0; t < problem.visible(row); ++t) {
            const expected_logit expected = problem.oracle().at(row, t);
            const double error =
                std::fabs(static_cast<double>(problem.logits().at(row, t)) - expected.value);
            if (error > largest * expected.tolerance) {
              largest = error / expected.tolerance;
              where = test.name();
            }
          }
        }
      }
      CHECK(largest <= 1);
      WARN("D=" << head_dim << ": largest error " << largest << " of the tolerance, in " << where);
    }
  });
}

}  // namespace
