// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The gather beyond 2^31, 2^32 and 2^33: byte offsets into the cache, the output and the table,
// numbers of tokens.

#include <algorithm>

#include "catch.hpp"
#include "support/gather_problem.hpp"
#include "support/ops.hpp"

using namespace kindex_test;
using kindex::page_layout;

namespace {

// Pages with arbitrary bytes in a huge cache, as one sequence of whole pages in this order.
std::string gather_pages(const page_geometry& geometry, int head_dim, std::int64_t page_stride,
                         std::int64_t num_pages, const std::vector<std::int32_t>& pages) {
  const int page_size = geometry.page_size;
  const int num_scales = kindex::scales_per_token(head_dim);
  const auto rows = static_cast<std::int64_t>(pages.size()) * page_size;
  paged_cache cache(page_size, head_dim, geometry.layout, native_format(), num_pages, page_stride);
  random_stream random(static_cast<std::uint64_t>(num_pages));
  std::vector<std::uint8_t> k(static_cast<std::size_t>(rows * head_dim));
  std::vector<float> scale(static_cast<std::size_t>(rows * num_scales));
  for (std::uint8_t& byte : k) byte = static_cast<std::uint8_t>(random.next());
  for (float& value : scale) value = static_cast<float>(random.normal());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t page = pages[static_cast<std::size_t>(row / page_size)];
    cache.put_token(page * page_size + row % page_size, k.data() + row * head_dim,
                    scale.data() + row * num_scales);
  }
  cache.upload();
  const device_array<std::int32_t> cu_seq_lens(
      std::vector<std::int32_t>{0, static_cast<std::int32_t>(rows)});
  const device_array<std::int32_t> table(pages);
  guarded_matrix<std::uint8_t> dst_k(rows, head_dim, head_dim);
  guarded_matrix<float> dst_scale(rows, num_scales, num_scales);
  kindex::gather_params params;
  params.cache = cache.view();
  params.block_table = table.get();
  params.block_table_stride = static_cast<std::int64_t>(pages.size());
  params.block_table_width = params.block_table_stride;
  params.cu_seq_lens = cu_seq_lens.get();
  params.num_seqs = 1;
  params.dst_k = dst_k.get();
  params.dst_k_stride_bytes = head_dim;
  params.dst_scale = dst_scale.get();
  params.dst_scale_stride = num_scales;
  params.num_tokens = rows;
  const hipError_t status =
      run_directly([&](hipStream_t stream) { return gather(params, stream); });
  if (status != hipSuccess) return std::string("status ") + hipGetErrorString(status);
  dst_k.download();
  dst_scale.download();
  if (!dst_k.check_guards().empty()) return dst_k.check_guards();
  if (!dst_scale.check_guards().empty()) return dst_scale.check_guards();
  for (std::int64_t row = 0; row < rows; ++row) {
    if (std::memcmp(dst_k.row(row), k.data() + row * head_dim,
                    static_cast<std::size_t>(head_dim)) != 0 ||
        std::memcmp(dst_scale.row(row), scale.data() + row * num_scales,
                    4 * static_cast<std::size_t>(num_scales)) != 0) {
      return "row " + std::to_string(row);
    }
  }
  return "";
}

}  // namespace

TEST_CASE("gather: pages around 2^31, 2^32 and 2^33 bytes", "[gather_addresses][class_A]") {
  struct big_cache {
    page_geometry geometry;
    int head_dim;
  };
  const big_cache caches[] = {
      {{64, page_layout::preshuffled}, 128}, {{64, page_layout::plain}, 128},
      {{1, page_layout::plain}, 128},        {{16, page_layout::preshuffled}, 64},
      {{80, page_layout::preshuffled}, 128}, {{256, page_layout::plain}, 256},
  };
  for (const big_cache& big : caches) {
    const std::int64_t stride = kindex::page_payload_bytes(big.geometry.page_size, big.head_dim);
    for (const int power : {31, 32, 33}) {
      CAPTURE(big.geometry.page_size, kindex::to_string(big.geometry.layout), power);
      const auto across = static_cast<std::int32_t>((std::int64_t{1} << power) / stride);
      CHECK(gather_pages(big.geometry, big.head_dim, 0, across + 3,
                         {across + 1, 0, across - 1, across + 2, across}) == "");
    }
  }
}

TEST_CASE("gather: pages of a cache that packs its layers, far out",
          "[gather_addresses][class_A][class_K]") {
  for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
    CHECK(gather_pages({64, layout}, 128, 1002240, 2200, {2143, 0, 2199, 2142}) == "");
  }
}

TEST_CASE("gather: rows of the output beyond 2^32 bytes", "[gather_addresses][class_A]") {
  // Few rows, far apart. Aligned rows and others: two ways to write them.
  constexpr std::int64_t rows = 10;
  test_case test;
  test.lens = {static_cast<std::int32_t>(rows)};
  paged_batch batch = make_paged_batch(test);
  paged_cache& cache = batch.cache;
  cache.upload();
  const token_data& tokens = batch.sequences[0];
  const device_array<std::int32_t> cu_seq_lens(
      std::vector<std::int32_t>{0, static_cast<std::int32_t>(rows)});
  const device_array<std::int32_t> table(batch.table.entries);
  for (const std::int64_t gap : {0, 1}) {
    const std::int64_t k_stride = (std::int64_t{1} << 29) + gap;
    const std::int64_t scale_stride = (std::int64_t{1} << 28) + gap;  // elements
    const device_memory dst_k(static_cast<std::size_t>((rows - 1) * k_stride + 128));
    const device_memory dst_scale(static_cast<std::size_t>((rows - 1) * scale_stride * 4 + 4));
    kindex::gather_params params;
    params.cache = cache.view();
    params.block_table = table.get();
    params.block_table_stride = batch.table.stride;
    params.block_table_width = batch.table.width;
    params.cu_seq_lens = cu_seq_lens.get();
    params.num_seqs = 1;
    params.dst_k = dst_k.get();
    params.dst_k_stride_bytes = k_stride;
    params.dst_scale = reinterpret_cast<float*>(dst_scale.get());
    params.dst_scale_stride = scale_stride;
    params.num_tokens = rows;
    CHECK(run_directly([&](hipStream_t stream) { return gather(params, stream); }) == hipSuccess);
    int wrong = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::uint8_t k[128];
      float scale = 0;
      check(hipMemcpy(k, dst_k.get() + row * k_stride, sizeof k, hipMemcpyDeviceToHost),
            "hipMemcpy");
      check(hipMemcpy(&scale, dst_scale.get() + row * scale_stride * 4, sizeof scale,
                      hipMemcpyDeviceToHost),
            "hipMemcpy");
      wrong += std::memcmp(k, tokens.k.data() + row * 128, sizeof k) != 0;
      wrong += scale != tokens.scale[static_cast<std::size_t>(row)];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("gather: rows of the table beyond 2^32 bytes", "[gather_addresses][class_A]") {
  // 17 sequences of one token; their table rows are 2^28 entries apart.
  constexpr std::int64_t num_seqs = 17;
  constexpr std::int64_t stride = (std::int64_t{1} << 28) + 1;
  const device_memory table(static_cast<std::size_t>((num_seqs - 1) * stride * 4 + 4));
  paged_cache cache(16, 128, page_layout::preshuffled, native_format(), num_seqs);
  std::vector<std::int32_t> cu_seq_lens;
  for (std::int32_t seq = 0; seq < num_seqs; ++seq) {
    const std::int32_t page = (seq * 5 + 3) % static_cast<std::int32_t>(num_seqs);
    const std::vector<std::uint8_t> k(128, static_cast<std::uint8_t>(seq + 1));
    const auto scale = static_cast<float>(seq + 1);
    cache.put_token(page * 16, k.data(), &scale);
    check(hipMemcpy(table.get() + seq * stride * 4, &page, 4, hipMemcpyHostToDevice), "hipMemcpy");
    cu_seq_lens.push_back(seq);
  }
  cu_seq_lens.push_back(static_cast<std::int32_t>(num_seqs));
  cache.upload();
  const device_array<std::int32_t> device_cu(cu_seq_lens);
  guarded_matrix<std::uint8_t> dst_k(num_seqs, 128, 128);
  guarded_matrix<float> dst_scale(num_seqs, 1, 1);
  kindex::gather_params params;
  params.cache = cache.view();
  params.block_table = reinterpret_cast<const std::int32_t*>(table.get());
  params.block_table_stride = stride;
  params.block_table_width = 1;
  params.cu_seq_lens = device_cu.get();
  params.num_seqs = num_seqs;
  params.dst_k = dst_k.get();
  params.dst_k_stride_bytes = 128;
  params.dst_scale = dst_scale.get();
  params.dst_scale_stride = 1;
  params.num_tokens = num_seqs;
  CHECK(run_directly([&](hipStream_t stream) { return gather(params, stream); }) == hipSuccess);
  dst_k.download();
  dst_scale.download();
  for (std::int64_t row = 0; row < num_seqs; ++row) {
    CAPTURE(row);
    CHECK(dst_k.at(row, 0) == row + 1);
    CHECK(dst_k.at(row, 127) == row + 1);
    CHECK(dst_scale.at(row, 0) == static_cast<float>(row + 1));
  }
}

TEST_CASE("gather: an upper bound far above the lengths", "[gather_addresses][class_A][class_C]") {
  // 16,777,217 rows are claimed and 3 exist: the rest has no memory in emulation.
  const device_memory dst_k(std::size_t{16777217} * 128);
  const device_memory dst_scale(std::size_t{16777217} * 4);
  const device_array<std::int32_t> cu_seq_lens(cumulative({3}));
  paged_cache cache(64, 128, page_layout::plain, native_format(), 2);
  const std::vector<std::uint8_t> k(128, 0x11);
  const float one = 1;
  for (int t = 0; t < 3; ++t) cache.put_token(64 + t, k.data(), &one);
  cache.upload();
  const device_array<std::int32_t> table(std::vector<std::int32_t>{1});
  kindex::gather_params params;
  params.cache = cache.view();
  params.block_table = table.get();
  params.block_table_stride = 1;
  params.block_table_width = 1;
  params.cu_seq_lens = cu_seq_lens.get();
  params.num_seqs = 1;
  params.dst_k = dst_k.get();
  params.dst_k_stride_bytes = 128;
  params.dst_scale = reinterpret_cast<float*>(dst_scale.get());
  params.dst_scale_stride = 1;
  params.num_tokens = 16777217;
  std::vector<std::uint8_t> rows(4 * 128, 0xEE);
  check(hipMemcpy(dst_k.get(), rows.data(), rows.size(), hipMemcpyHostToDevice), "hipMemcpy");
  CHECK(run_directly([&](hipStream_t stream) { return gather(params, stream); }) == hipSuccess);
  check(hipMemcpy(rows.data(), dst_k.get(), rows.size(), hipMemcpyDeviceToHost), "hipMemcpy");
  CHECK(std::vector<std::uint8_t>(rows.begin(), rows.begin() + 3 * 128) ==
        std::vector<std::uint8_t>(3 * 128, 0x11));
  CHECK(rows[3 * 128] == 0xEE);
}

TEST_CASE("gather: 65537 tokens", "[gather_addresses][class_A]") {
  gather_case test;
  test.lens = {30000, 0, 35000, 537};
  CHECK(run_gather_case(test) == "");
}

TEST_CASE("gather: 16777217 tokens", "[gather_addresses][.long][class_A]") {
  // 2^31 bytes of K and 128 more. All sequences share the pages of a small cache, so that a byte of
  // the output follows from its row alone.
  constexpr std::int64_t rows = 16777217;
  constexpr int num_pages = 7;
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), num_pages);
  random_stream random(1);
  std::vector<std::uint8_t> k(num_pages * 64 * 128);
  for (std::uint8_t& byte : k) byte = static_cast<std::uint8_t>(random.next());
  for (int slot = 0; slot < num_pages * 64; ++slot) {
    const auto scale = static_cast<float>(slot + 1);
    cache.put_token(slot, &k[static_cast<std::size_t>(slot) * 128], &scale);
  }
  cache.upload();
  constexpr std::int64_t width = (rows + 63) / 64;
  std::vector<std::int32_t> ids(width);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i * 5 % num_pages);
  }
  const device_array<std::int32_t> table(ids);
  const device_array<std::int32_t> cu_seq_lens(
      std::vector<std::int32_t>{0, static_cast<std::int32_t>(rows)});
  const exact_bytes dst_k(static_cast<std::size_t>(rows) * 128);
  const exact_bytes dst_scale(static_cast<std::size_t>(rows) * 4);
  kindex::gather_params params;
  params.cache = cache.view();
  params.block_table = table.get();
  params.block_table_stride = width;
  params.block_table_width = width;
  params.cu_seq_lens = cu_seq_lens.get();
  params.num_seqs = 1;
  params.dst_k = dst_k.get();
  params.dst_k_stride_bytes = 128;
  params.dst_scale = reinterpret_cast<float*>(dst_scale.get());
  params.dst_scale_stride = 1;
  params.num_tokens = rows;
  CHECK(run_directly([&](hipStream_t stream) { return gather(params, stream); }) == hipSuccess);
  std::vector<std::uint8_t> page_k(64 * 128);
  std::vector<float> page_scale(64);
  int wrong = 0;
  for (std::int64_t first = 0; first < rows; first += 64) {
    const std::int64_t count = std::min<std::int64_t>(64, rows - first);
    check(hipMemcpy(page_k.data(), dst_k.get() + first * 128, static_cast<std::size_t>(count) * 128,
                    hipMemcpyDeviceToHost),
          "hipMemcpy");
    check(hipMemcpy(page_scale.data(), dst_scale.get() + first * 4,
                    static_cast<std::size_t>(count) * 4, hipMemcpyDeviceToHost),
          "hipMemcpy");
    const std::int32_t page = ids[static_cast<std::size_t>(first / 64)];
    wrong += std::memcmp(page_k.data(), &k[static_cast<std::size_t>(page) * 64 * 128],
                         static_cast<std::size_t>(count) * 128) != 0;
    for (std::int64_t t = 0; t < count; ++t) {
      wrong += page_scale[static_cast<std::size_t>(t)] != static_cast<float>(page * 64 + t + 1);
    }
  }
  CHECK(wrong == 0);
}
