// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The store beyond 2^31, 2^32 and 2^33: byte offsets into the cache and into k, slots, tokens.

#include <algorithm>

#include "catch.hpp"
#include "support/ops.hpp"
#include "support/store_problem.hpp"

using namespace kindex_test;
using kindex::element_type;
using kindex::page_layout;

namespace {

struct big_cache {
  page_geometry geometry;
  int head_dim;
  std::int64_t page_stride;  // 0: the payload
};

// Stores to `live` pages of a cache of `num_pages` and compares all of these, and the pages where
// addresses would end up that were cut to 31 or 32 bits.
std::string store_to_pages(const big_cache& big, std::int64_t num_pages,
                           const std::vector<std::int64_t>& live, bool int64_slots) {
  const int page_size = big.geometry.page_size;
  paged_cache cache(page_size, big.head_dim, big.geometry.layout, native_format(), num_pages,
                    big.page_stride);
  random_stream random(static_cast<std::uint64_t>(num_pages));
  const std::int64_t stride = cache.view().page_stride_bytes;
  std::vector<std::int64_t> slots;
  for (const std::int64_t page : live) {
    cache.touch(page);
    for (const std::int64_t mask : {0x7FFFFFFFll, 0xFFFFFFFFll}) {
      const std::int64_t alias = (page * stride & mask) / stride;
      for (std::int64_t near = alias - 1; near <= alias + 1; ++near) {
        if (near >= 0 && near < num_pages) cache.touch(near);
      }
    }
    // The first, the last and some other tokens of each page.
    std::vector<std::int64_t> in_page = {0, page_size - 1, page_size / 2, page_size / 3};
    std::sort(in_page.begin(), in_page.end());
    in_page.erase(std::unique(in_page.begin(), in_page.end()), in_page.end());
    for (const std::int64_t t : in_page) slots.push_back(page * page_size + t);
  }
  random.shuffle(slots);
  k_matrix k(element_type::bf16, static_cast<std::int64_t>(slots.size()), big.head_dim);
  fill_any_values(k, random);
  return store_and_compare(cache, {}, k, slot_list(slots, int64_slots), launchers().front());
}

}  // namespace

TEST_CASE("store: pages around 2^31, 2^32 and 2^33 bytes", "[store_addresses][class_A]") {
  const big_cache caches[] = {
      {{64, page_layout::preshuffled}, 128, 0},
      {{64, page_layout::plain}, 128, 0},
      {{1, page_layout::plain}, 128, 0},
      {{16, page_layout::preshuffled}, 64, 0},
      {{80, page_layout::preshuffled}, 128, 0},
      {{256, page_layout::plain}, 256, 0},
      {{48, page_layout::plain}, 128, 48 * 132 + 64},
  };
  for (const big_cache& big : caches) {
    const std::int64_t stride =
        big.page_stride != 0 ? big.page_stride
                             : kindex::page_payload_bytes(big.geometry.page_size, big.head_dim);
    for (const int power : {31, 32, 33}) {
      CAPTURE(big.geometry.page_size, kindex::to_string(big.geometry.layout), power);
      const std::int64_t across = (std::int64_t{1} << power) / stride;
      const std::vector<std::int64_t> live = {across + 1, 0, across - 1, across + 2, across};
      CHECK(store_to_pages(big, across + 3, live, power != 32) == "");
    }
  }
}

TEST_CASE("store: pages of an engine that packs its layers",
          "[store_addresses][class_A][class_K]") {
  const big_cache packed = {{64, page_layout::preshuffled}, 128, 1002240};
  CHECK(store_to_pages(packed, 2200, {2143, 0, 2199, 2142}, true) == "");
  CHECK(store_to_pages(packed, 2200, {2143, 0, 2199, 2142}, false) == "");
}

TEST_CASE("store: slot 16268867", "[store_addresses][class_A]") {
  // Token by token this is 2^31 bytes into the cache.
  CHECK(store_to_pages({{1, page_layout::plain}, 128, 0}, 16268870, {16268867, 0}, false) == "");
  CHECK(store_to_pages({{64, page_layout::plain}, 128, 0}, 254203, {16268867 / 64, 0}, true) == "");
}

TEST_CASE("store: slots beyond 2^31", "[store_addresses][class_A]") {
  if (!is_emulated()) SKIP("needs 150 GB of device memory");
  const std::int64_t across = (std::int64_t{1} << 31) / 64;
  CHECK(store_to_pages({{64, page_layout::preshuffled}, 64, 0}, across + 5,
                       {across + 4, 0, across - 1, across}, true) == "");
  CHECK(store_to_pages({{1, page_layout::plain}, 64, 0}, across * 64 + 5,
                       {across * 64 + 4, 0, across * 64 - 1, across * 64}, true) == "");
  const std::int64_t across_48 = (std::int64_t{1} << 32) / 48;
  CHECK(store_to_pages({{48, page_layout::preshuffled}, 64, 0}, across_48 + 5,
                       {across_48 + 4, 0, across_48 - 1, across_48}, true) == "");
}

TEST_CASE("store: rows of k beyond 2^32 bytes", "[store_addresses][class_A]") {
  for (const element_type type : {element_type::bf16, element_type::fp32}) {
    CAPTURE(kindex::to_string(type));
    // Aligned rows and others: two ways to load them.
    for (const std::int64_t row_stride : {std::int64_t{1} << 29, (std::int64_t{1} << 29) + 1}) {
      constexpr std::int64_t rows = 9;
      const std::int64_t bytes = kindex::element_bytes(type);
      const auto row_bytes = static_cast<std::size_t>(128 * bytes);
      const device_memory memory(static_cast<std::size_t>((rows - 1) * row_stride * bytes) +
                                 row_bytes);
      paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 2, 0,
                        placement::guarded);
      cache.upload();
      random_stream random(2);
      k_matrix k(type, rows, 128);
      std::vector<std::uint8_t> row_image(row_bytes);
      for (std::int64_t row = 0; row < rows; ++row) {
        for (int dim = 0; dim < 128; ++dim) {
          const std::uint32_t bits = element_bits(type, static_cast<float>(random.normal()));
          k.set_bits(row, dim, bits);
          std::memcpy(&row_image[static_cast<std::size_t>(dim * bytes)], &bits,
                      static_cast<std::size_t>(bytes));
        }
        check(hipMemcpy(memory.get() + row * row_stride * bytes, row_image.data(), row_bytes,
                        hipMemcpyHostToDevice),
              "hipMemcpy");
      }
      kindex::store_params params;
      params.cache = cache.view();
      params.k = memory.get();
      params.k_type = type;
      params.k_row_stride = row_stride;
      params.num_tokens = rows;
      const slot_list slots(random_slots(128, rows, random), true);
      slots.bind(params);
      CHECK(run_directly([&](hipStream_t stream) { return store(params, stream); }) == hipSuccess);
      expect_stored(cache, params, k, slots.host());
      CHECK(cache.compare_with_device() == "");
    }
  }
}

TEST_CASE("store: 65537 tokens", "[store_addresses][class_A]") {
  random_stream random(4);
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 1030, 0,
                    placement::guarded);
  k_matrix k(element_type::bf16, 65537, 128);
  for (std::int64_t row = 0; row < k.rows(); ++row) {
    for (int dim = 0; dim < 128; ++dim) {
      k.set_bits(row, dim, 0x3F00 + static_cast<std::uint32_t>(random.next() % 0x8100));
    }
  }
  const slot_list slots(random_slots(cache.num_slots(), 65537, random), false);
  CHECK(store_and_compare(cache, {}, k, slots, launchers().front()) == "");
}

TEST_CASE("store: 1048577 tokens, most of them in no slot", "[store_addresses][class_A][class_D]") {
  constexpr std::int64_t rows = 1048577;
  const device_memory memory(static_cast<std::size_t>(rows) * 256);
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 3, 0, placement::guarded);
  cache.upload();
  random_stream random(6);
  std::vector<std::int64_t> slots(rows, -1);
  const std::vector<std::int64_t> live = {0, 65535, 65536, 524287, 524288, rows - 2, rows - 1};
  const std::vector<std::int64_t> live_slots = random_slots(192, live.size(), random);
  k_matrix k(element_type::bf16, static_cast<std::int64_t>(live.size()), 128);
  for (std::size_t i = 0; i < live.size(); ++i) {
    std::vector<std::uint16_t> row(128);
    for (int dim = 0; dim < 128; ++dim) {
      row[static_cast<std::size_t>(dim)] = static_cast<std::uint16_t>(random.next());
      k.set_bits(static_cast<std::int64_t>(i), dim, row[static_cast<std::size_t>(dim)]);
    }
    check(hipMemcpy(memory.get() + live[i] * 256, row.data(), 256, hipMemcpyHostToDevice),
          "hipMemcpy");
    slots[static_cast<std::size_t>(live[i])] = live_slots[i];
  }
  kindex::store_params params;
  params.cache = cache.view();
  params.k = memory.get();
  params.k_row_stride = 128;
  params.num_tokens = rows;
  const slot_list device_slots(slots, true);
  device_slots.bind(params);
  CHECK(run_directly([&](hipStream_t stream) { return store(params, stream); }) == hipSuccess);
  expect_stored(cache, params, k, live_slots);
  CHECK(cache.compare_with_device() == "");
}
