// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Calls with a Config: they run what they name and refuse caches of another geometry. Writers and
// readers that disagree are the point: the same layout on both sides, or an error.

#include "support/instantiate.hpp"

#include "catch.hpp"
#include "support/store_problem.hpp"

using namespace kindex_test;
using kindex::element_type;
using kindex::fp8_format;
using kindex::page_layout;

namespace {

constexpr fp8_format format = KINDEX_PLATFORM_NVIDIA ? fp8_format::e4m3fn : fp8_format::e4m3fnuz;
using plain_64 = kindex::cache_geometry<64, page_layout::plain, format, 128>;
using preshuffled_64 = kindex::cache_geometry<64, page_layout::preshuffled, format, 128>;

template <class Geometry>
hipError_t store_typed(const kindex::store_params& params) {
  return run_directly([&](hipStream_t stream) {
    return kindex::store<kindex::store_config<Geometry, element_type::bf16>>(params, stream);
  });
}

template <class Geometry>
hipError_t gather_typed(const kindex::gather_params& params) {
  return run_directly([&](hipStream_t stream) {
    return kindex::gather<kindex::gather_config<Geometry>>(params, stream);
  });
}

// One token in slot 70 of a cache of 2 pages, and a gather of 7 tokens that ends with it.
struct fixture {
  explicit fixture(page_layout layout)
      : cache(64, 128, layout, format, 2, 0, placement::guarded),
        k(element_type::bf16, 1, 128),
        slots({70}, true),
        table(std::vector<std::int32_t>{1}),
        cu_seq_lens(std::vector<std::int32_t>{0, 7}),
        dst_k(7, 128, 128),
        dst_scale(7, 1, 1) {
    cache.upload();
    for (int dim = 0; dim < 128; ++dim) k.set(0, dim, static_cast<float>(dim - 50));
    writer.cache = cache.view();
    k.bind(writer);
    slots.bind(writer);
    reader.cache = cache.view();
    reader.block_table = table.get();
    reader.block_table_stride = 1;
    reader.block_table_width = 1;
    reader.cu_seq_lens = cu_seq_lens.get();
    reader.num_seqs = 1;
    reader.dst_k = dst_k.get();
    reader.dst_k_stride_bytes = 128;
    reader.dst_scale = dst_scale.get();
    reader.dst_scale_stride = 1;
    reader.num_tokens = 7;
  }

  paged_cache cache;
  k_matrix k;
  slot_list slots;
  device_array<std::int32_t> table, cu_seq_lens;
  guarded_matrix<std::uint8_t> dst_k;
  guarded_matrix<float> dst_scale;
  kindex::store_params writer;
  kindex::gather_params reader;
};

template <class Geometry, class OtherGeometry>
void check_diagonal() {
  if (native_format() != format) SKIP("built for the other fp8 format");
  fixture test(Geometry::layout);
  CHECK(store_typed<OtherGeometry>(test.writer) == hipErrorInvalidValue);
  CHECK(test.cache.compare_with_device() == "");
  CHECK(store_typed<Geometry>(test.writer) == hipSuccess);
  expect_stored(test.cache, test.writer, test.k, {70});
  CHECK(test.cache.compare_with_device() == "");

  CHECK(gather_typed<OtherGeometry>(test.reader) == hipErrorInvalidValue);
  test.dst_k.download();
  CHECK(test.dst_k.untouched(6, 0));
  CHECK(gather_typed<Geometry>(test.reader) == hipSuccess);
  test.dst_k.download();
  test.dst_scale.download();
  const stored_token token = quantise(test.writer, test.k, 0);
  CHECK(std::memcmp(test.dst_k.row(6), token.k.data(), 128) == 0);
  CHECK(test.dst_scale.at(6, 0) == token.scale[0]);
}

}  // namespace

TEST_CASE("typed calls: writer and reader of one layout agree, others are refused",
          "[store_typed][class_B]") {
  check_diagonal<plain_64, preshuffled_64>();
  check_diagonal<preshuffled_64, plain_64>();
}

TEST_CASE("typed calls: other disagreements are refused", "[store_typed][class_I][class_N]") {
  if (native_format() != format) SKIP("built for the other fp8 format");
  fixture test(page_layout::preshuffled);
  const auto status = [&](auto change) {
    kindex::store_params writer = test.writer;
    kindex::gather_params reader = test.reader;
    change(writer.cache);
    change(reader.cache);
    const hipError_t stored = store_typed<preshuffled_64>(writer);
    CHECK(gather_typed<preshuffled_64>(reader) == stored);
    return stored;
  };
  using view = kindex::cache_view;
  CHECK(status([](view& cache) { cache.page_size = 32; }) == hipErrorInvalidValue);
  CHECK(status([](view& cache) { cache.head_dim = 64; }) == hipErrorInvalidValue);
  CHECK(status([](view& cache) {
          cache.format = format == fp8_format::e4m3fn ? fp8_format::e4m3fnuz : fp8_format::e4m3fn;
        }) == hipErrorInvalidValue);
  kindex::store_params other_type = test.writer;
  other_type.k_type = element_type::fp16;
  CHECK(store_typed<preshuffled_64>(other_type) == hipErrorInvalidValue);
  CHECK(test.cache.compare_with_device() == "");
}

TEST_CASE("typed calls: a typed view replaces the params' own cache", "[store_typed][class_S]") {
  if (native_format() != format) SKIP("built for the other fp8 format");
  fixture test(page_layout::preshuffled);
  kindex::typed_cache_view<preshuffled_64> typed;
  typed.data = test.cache.view().data;
  typed.num_pages = 2;
  kindex::store_params writer = test.writer;
  writer.cache = kindex::cache_view{};
  CHECK(run_directly([&](hipStream_t stream) {
          return kindex::store<kindex::store_config<preshuffled_64, element_type::bf16>>(
              typed, writer, stream);
        }) == hipSuccess);
  expect_stored(test.cache, test.writer, test.k, {70});
  CHECK(test.cache.compare_with_device() == "");
  kindex::gather_params reader = test.reader;
  reader.cache = kindex::cache_view{};
  CHECK(run_directly([&](hipStream_t stream) {
          return kindex::gather<kindex::gather_config<preshuffled_64>>(typed, reader, stream);
        }) == hipSuccess);
  test.dst_k.download();
  const stored_token token = quantise(test.writer, test.k, 0);
  CHECK(std::memcmp(test.dst_k.row(6), token.k.data(), 128) == 0);
}
