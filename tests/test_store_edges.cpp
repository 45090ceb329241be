// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The store at the edges of its input: slots that are none, no work, memory that must not be
// touched, slices of wider tensors, two caches at once, refusals.

#include <limits>

#include "catch.hpp"
#include "support/ops.hpp"
#include "support/store_problem.hpp"

using namespace kindex_test;
using kindex::element_type;
using kindex::fp8_format;
using kindex::page_layout;

namespace {

constexpr std::int64_t int64_min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

const launcher& directly() { return launchers().front(); }

k_matrix any_rows(std::int64_t rows, int head_dim = 128, std::uint64_t seed = 1) {
  random_stream random(seed);
  k_matrix k(element_type::bf16, rows, head_dim);
  fill_any_values(k, random);
  return k;
}

// Stores in a poisoned guarded cache of 3 pages of 64.
std::string store_at(const std::vector<std::int64_t>& slots, bool int64 = true,
                     int page_size = 64) {
  const page_layout layout = page_size == 1 ? page_layout::plain : page_layout::preshuffled;
  paged_cache cache(page_size, 128, layout, native_format(), 192 / page_size, 0,
                    placement::guarded);
  k_matrix k = any_rows(static_cast<std::int64_t>(slots.size()));
  return store_and_compare(cache, {}, k, slot_list(slots, int64), directly());
}

}  // namespace

TEST_CASE("store: slots that are none", "[store_edges][class_D]") {
  for (const int page_size : {1, 16, 48, 64}) {
    CAPTURE(page_size);
    const std::int64_t capacity = 192;
    CHECK(store_at({-1, 5, -1, 70, -1}, true, page_size) == "");
    CHECK(store_at({-1, 5, -1, 70, -1}, false, page_size) == "");
    CHECK(store_at({-1, -1, -1}, true, page_size) == "");
    CHECK(store_at({-1, -1, -1}, false, page_size) == "");
    CHECK(store_at({-2, -16, -63, -64, -65}, true, page_size) == "");
    CHECK(store_at({-2, -16, -63, -64, -65}, false, page_size) == "");
    CHECK(store_at({capacity, capacity - 1, capacity + 1, 0}, true, page_size) == "");
    CHECK(store_at({capacity, capacity - 1, capacity + 1, 0}, false, page_size) == "");
    CHECK(store_at({int64_min, 7, int64_max}, true, page_size) == "");
    CHECK(store_at({-0x7FFFFFFF - 1, 7, 0x7FFFFFFF}, false, page_size) == "");
    // Ids that are in the cache once cut to 32 bits, or times the page's bytes once cut to 64.
    CHECK(store_at({std::int64_t{1} << 32, (std::int64_t{1} << 32) + 5, 9}, true, page_size) == "");
    CHECK(store_at({std::int64_t{1} << 57, int64_min + 5, -(std::int64_t{1} << 32) + 3}, true,
                   page_size) == "");
  }
}

TEST_CASE("store: rows of skipped tokens are not read", "[store_edges][class_C][class_D]") {
  // Of six rows, 32 TiB apart, the second is the only one that exists.
  constexpr std::int64_t row_stride = std::int64_t{1} << 44;
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 3, 0, placement::guarded);
  cache.upload();
  k_matrix k = any_rows(1);
  kindex::store_params params;
  params.cache = cache.view();
  k.bind(params);
  const std::int64_t bytes_before = row_stride * element_bytes(element_type::bf16);
  params.k = reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(params.k) -
                                           static_cast<std::uintptr_t>(bytes_before));
  params.k_row_stride = row_stride;
  params.num_tokens = 6;
  const slot_list slots({-1, 40, -7, 192, int64_max, int64_min}, true);
  slots.bind(params);
  CHECK(run_directly([&](hipStream_t stream) { return store(params, stream); }) == hipSuccess);
  expect_stored(cache, params, k, {40});
  CHECK(cache.compare_with_device() == "");
}

TEST_CASE("store: the shorter of rows and slots counts", "[store_edges][class_C]") {
  for (const std::size_t num_slots : {1, 5, 9, 64, 65}) {
    for (const std::int64_t num_rows : {1, 5, 9, 64, 65}) {
      CAPTURE(num_slots, num_rows);
      random_stream random(num_slots * 100 + static_cast<std::uint64_t>(num_rows));
      paged_cache cache(16, 128, page_layout::plain, native_format(), 9, 0, placement::guarded);
      k_matrix k = any_rows(num_rows);
      const slot_list slots(random_slots(144, num_slots, random), num_slots % 2 == 0);
      CHECK(store_and_compare(cache, {}, k, slots, directly()) == "");
    }
  }
}

TEST_CASE("store: no work", "[store_edges][class_E]") {
  for (const launcher& how : launchers()) {
    CAPTURE(how.name);
    paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 2, 0, placement::guarded);
    k_matrix none(element_type::bf16, 0, 128);
    k_matrix some = any_rows(3);
    CHECK(store_and_compare(cache, {}, none, slot_list({}, true), how) == "");
    CHECK(store_and_compare(cache, {}, none, slot_list({1, 2}, true), how) == "");
    CHECK(store_and_compare(cache, {}, some, slot_list({}, false), how) == "");

    kindex::store_params params;
    params.cache = cache.view();
    params.cache.data = nullptr;
    const auto run = [&](hipStream_t stream) { return store(params, stream); };
    CHECK(how.run(run) == hipSuccess);  // all pointers null

    // A cache without pages takes every slot for none.
    some.bind(params);
    const slot_list slots({0, 1, -1}, true);
    slots.bind(params);
    params.cache.num_pages = 0;
    CHECK(how.run(run) == hipSuccess);
  }
}

TEST_CASE("store: two tokens with one slot", "[store_edges][class_L]") {
  // Neighbours in one wave, and far apart. Either wins, for each unit of 16 bytes and for the
  // scale: a GPU may let one token win the bytes and the other the scale. Nothing else is
  // disturbed.
  for (const std::int64_t other : {1, 9, 200}) {
    CAPTURE(other);
    constexpr std::int64_t slot = 77;
    paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 5, 0, placement::guarded);
    cache.upload();
    k_matrix k = any_rows(201, 128, 3);
    std::vector<std::int64_t> slots(201, -1);
    slots[0] = slot;
    slots[static_cast<std::size_t>(other)] = slot;
    slots[5] = 200;
    kindex::store_params params;
    params.cache = cache.view();
    k.bind(params);
    const slot_list device_slots(slots, true);
    device_slots.bind(params);
    CHECK(run_directly([&](hipStream_t stream) { return store(params, stream); }) == hipSuccess);
    expect_stored(cache, params, k, slots);

    std::vector<std::uint8_t> page(64 * 132);
    check(hipMemcpy(page.data(), static_cast<const std::uint8_t*>(params.cache.data) + 64 * 132,
                    page.size(), hipMemcpyDeviceToHost),
          "hipMemcpy");
    const stored_token tokens[] = {quantise(params, k, 0), quantise(params, k, other)};
    stored_token found = tokens[0];
    for (std::size_t unit = 0; unit < 8; ++unit) {
      const std::uint8_t* bytes = &page[unit * 256 + 13 * 16];
      const bool is_first = std::memcmp(bytes, &tokens[0].k[unit * 16], 16) == 0;
      const bool is_other = std::memcmp(bytes, &tokens[1].k[unit * 16], 16) == 0;
      CAPTURE(unit);
      CHECK((is_first || is_other));
      std::memcpy(&found.k[unit * 16], bytes, 16);
    }
    std::memcpy(found.scale.data(), &page[64 * 128 + 13 * 4], 4);
    CHECK((found.scale == tokens[0].scale || found.scale == tokens[1].scale));
    cache.put_token(slot, found.k.data(), found.scale.data());
    CHECK(cache.compare_with_device() == "");
  }
}

TEST_CASE("store: a slice of a wider tensor", "[store_edges][class_K]") {
  // Columns 3..130 of a [T, 192] tensor, and others: every alignment that an element can have.
  for (const element_type type : {element_type::bf16, element_type::fp16, element_type::fp32}) {
    for (const int head_dim : {64, 128, 256}) {
      for (int lead = 0; lead <= 9; ++lead) {
        store_case test;
        test.k_type = type;
        test.head_dim = head_dim;
        test.k_lead = lead;
        test.k_gap = lead == 4 ? 1 : 64;
        test.num_tokens = 21;
        test.seed = static_cast<std::uint64_t>(lead) + 10;
        INFO(test.name());
        CHECK(run_store_case(test, directly()) == "");
      }
    }
  }
}

TEST_CASE("store: the last row ends where its memory ends", "[store_edges][class_C]") {
  // k_matrix and slot_list end with their last element; so may the base of k be anywhere.
  for (const int num_tokens : {1, 2, 3, 31, 33}) {
    for (const int lead : {0, 1, 8}) {
      store_case test;
      test.num_tokens = num_tokens;
      test.k_lead = lead;
      test.k_gap = 65;
      INFO(test.name());
      CHECK(run_store_case(test, directly()) == "");
    }
  }
}

TEST_CASE("store: rows with NaN and Inf beside skipped tokens",
          "[store_edges][class_D][class_J][class_P]") {
  // Lanes of one wave part twice: where the slot is none, and where a row is not finite.
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int head_dim : {64, 128, 256}) {
    for (unsigned pattern = 0; pattern < 64; ++pattern) {
      random_stream random(pattern);
      paged_cache cache(16, head_dim, page_layout::preshuffled, native_format(), 4, 0,
                        placement::guarded);
      k_matrix k(element_type::bf16, 24, head_dim);
      std::vector<std::int64_t> slots = random_slots(64, 24, random);
      for (int row = 0; row < 24; ++row) {
        for (int dim = 0; dim < head_dim; ++dim) {
          k.set(row, dim, static_cast<float>(random.normal()));
        }
        if ((pattern >> (row % 3)) & 1) {
          k.set(row, random.integer(0, head_dim - 1), row % 2 == 0 ? infinity : -infinity);
          k.set(row, random.integer(0, head_dim - 1), std::numeric_limits<float>::quiet_NaN());
        }
        if ((pattern >> (3 + row % 3)) & 1) slots[static_cast<std::size_t>(row)] = -1;
      }
      CAPTURE(head_dim, pattern);
      CHECK(store_and_compare(cache, {}, k, slot_list(slots, true), directly()) == "");
    }
  }
}

TEST_CASE("store: two caches in turn", "[store_edges][class_S]") {
  // Other page sizes, layouts, strides and dims, token by token.
  paged_cache first(64, 128, page_layout::preshuffled, native_format(), 3, 64 * 132 + 64,
                    placement::guarded);
  paged_cache second(80, 256, page_layout::plain, native_format(), 2, 0, placement::guarded);
  paged_cache third(1, 64, page_layout::plain, native_format(), 50, 0, placement::guarded);
  paged_cache* caches[] = {&first, &second, &third};
  const int head_dims[] = {128, 256, 64};
  for (paged_cache* cache : caches) cache->upload();
  random_stream random(5);
  for (std::uint64_t round = 0; round < 12; ++round) {
    paged_cache& cache = *caches[round % 3];
    k_matrix k = any_rows(2, head_dims[round % 3], round);
    kindex::store_params params;
    params.cache = cache.view();
    k.bind(params);
    const slot_list slots(random_slots(cache.num_slots(), 2, random), round % 2 == 0);
    slots.bind(params);
    CHECK(run_directly([&](hipStream_t stream) { return store(params, stream); }) == hipSuccess);
    expect_stored(cache, params, k, slots.host());
  }
  for (paged_cache* cache : caches) CHECK(cache->compare_with_device() == "");
}

TEST_CASE("store: one graph serves other slots and rows", "[store_edges][class_M]") {
  if (!can_capture()) SKIP("the runtime cannot capture");
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 4, 0, placement::guarded);
  cache.upload();
  device_array<std::uint16_t> k_memory(std::vector<std::uint16_t>(40 * 128, 0));
  device_array<std::int64_t> slot_memory(std::vector<std::int64_t>(40, -1));
  kindex::store_params params;
  params.cache = cache.view();
  params.k = k_memory.get();
  params.k_row_stride = 128;
  params.num_tokens = 40;
  params.slots = static_cast<const std::int64_t*>(slot_memory.get());
  params.num_slots = 40;
  captured_graph graph([&](hipStream_t stream) { return store(params, stream); });
  REQUIRE(graph.status() == hipSuccess);
  random_stream random(11);
  for (int step = 0; step < 10; ++step) {
    k_matrix k(element_type::bf16, 40, 128);
    std::vector<std::uint16_t> bits;
    for (int row = 0; row < 40; ++row) {
      for (int dim = 0; dim < 128; ++dim) {
        bits.push_back(static_cast<std::uint16_t>(random.next()));
        k.set_bits(row, dim, bits.back());
      }
    }
    std::vector<std::int64_t> slots = random_slots(cache.num_slots(), 40, random);
    for (std::size_t i = static_cast<std::size_t>(step); i < 40; i += 3) slots[i] = -1;
    k_memory.upload(bits);
    slot_memory.upload(slots);
    graph.launch();
    expect_stored(cache, params, k, slots);
    CHECK(cache.compare_with_device() == "");
  }
}

TEST_CASE("store: nothing is read or written twice, nothing without need",
          "[store_edges][class_C][class_O]") {
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 2, 0, placement::guarded);
  cache.upload();
  k_matrix k = any_rows(70);
  random_stream random(8);
  std::vector<std::int64_t> slots = random_slots(128, 70, random);
  for (std::size_t i = 0; i < 70; i += 7) slots[i] = i % 2 == 0 ? -1 : 128;  // 10 of them
  const slot_list device_slots(slots, true);
  kindex::store_params params;
  params.cache = cache.view();
  k.bind(params);
  device_slots.bind(params);
  const memory_watch cache_traffic(params.cache.data, 2 * 64 * 132);
  const memory_watch k_traffic(params.k, 70 * 256);
  CHECK(run_directly([&](hipStream_t stream) { return store(params, stream); }) == hipSuccess);
  expect_stored(cache, params, k, slots);
  CHECK(cache.compare_with_device() == "");
  if (!cache_traffic.active()) SKIP("nobody counts memory traffic");
  CHECK(cache_traffic.bytes_stored() == 60 * 132);
  CHECK(cache_traffic.bytes_loaded() == 0);
  CHECK(k_traffic.bytes_loaded() == 60 * 256);
}

TEST_CASE("store: refused calls write nothing", "[store_edges][class_I][class_N]") {
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 2, 0, placement::guarded);
  cache.upload();
  k_matrix k = any_rows(3);
  const slot_list slots({1, 2, 3}, true);
  kindex::store_params valid;
  valid.cache = cache.view();
  k.bind(valid);
  slots.bind(valid);
  const auto status_of = [](const kindex::store_params& params) {
    return run_directly([&](hipStream_t stream) { return store(params, stream); });
  };
  const auto with = [&](auto change) {
    kindex::store_params params = valid;
    change(params);
    return status_of(params);
  };
  using params = kindex::store_params;
  CHECK(with([](params& p) { p.cache.page_size = 24; }) == hipErrorNotSupported);
  CHECK(with([](params& p) { p.cache.head_dim = 96; }) == hipErrorNotSupported);
  CHECK(with([](params& p) { p.cache.page_stride_bytes = 8447; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.cache.data = nullptr; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.k = nullptr; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.slots = nullptr; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.k_row_stride = 127; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.quant_max = 100; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.num_tokens = -1; }) == hipErrorInvalidValue);
  // The device's converter makes bytes of its own format only.
  const fp8_format other =
      native_format() == fp8_format::e4m3fnuz ? fp8_format::e4m3fn : fp8_format::e4m3fnuz;
  CHECK(with([&](params& p) { p.cache.format = other; }) == hipErrorNotSupported);
  CHECK(cache.compare_with_device() == "");
  CHECK(status_of(valid) == hipSuccess);
}
