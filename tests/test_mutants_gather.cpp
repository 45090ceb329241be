// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Gather: what only a broken kernel showed to be untested (tests/mutation).
#include <cstdint>
#include <cstring>
#include <vector>

#include "catch.hpp"
#include "support/gather_problem.hpp"
#include "support/ops.hpp"

namespace {

using namespace kindex_test;

// The first row of a wave beyond 2^32 bytes: 64 rows that are 2^26 bytes apart come before it.
TEST_CASE("gather: waves whose first row is beyond 2^32 bytes", "[mutants][class_A]") {
  constexpr std::int64_t rows = 67;
  test_case test;
  test.lens = {static_cast<std::int32_t>(rows)};
  paged_batch batch = make_paged_batch(test);
  batch.cache.upload();
  const token_data& tokens = batch.sequences[0];
  const device_array<std::int32_t> cu_seq_lens(
      std::vector<std::int32_t>{0, static_cast<std::int32_t>(rows)});
  const device_array<std::int32_t> table(batch.table.entries);
  guarded_matrix<float> dst_scale(rows, 1, 1);
  for (const std::int64_t gap : {0, 1}) {  // aligned rows and others: two ways to write them
    const std::int64_t stride = (std::int64_t{1} << 26) + gap;
    const device_memory dst_k(static_cast<std::size_t>((rows - 1) * stride + 128));
    kindex::gather_params params;
    params.cache = batch.cache.view();
    params.block_table = table.get();
    params.block_table_stride = batch.table.stride;
    params.block_table_width = batch.table.width;
    params.cu_seq_lens = cu_seq_lens.get();
    params.num_seqs = 1;
    params.dst_k = dst_k.get();
    params.dst_k_stride_bytes = stride;
    params.dst_scale = dst_scale.get();
    params.dst_scale_stride = 1;
    params.num_tokens = rows;
    REQUIRE(run_directly([&](hipStream_t stream) { return gather(params, stream); }) == hipSuccess);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::uint8_t k[128];
      check(hipMemcpy(k, dst_k.get() + row * stride, sizeof k, hipMemcpyDeviceToHost), "hipMemcpy");
      CAPTURE(gap, row);
      CHECK(std::memcmp(k, tokens.k.data() + row * 128, sizeof k) == 0);
    }
  }
}

// A wave looks at 64 sequences at once, in steps: here the last sequence is the one that a step too
// short would leave out.
TEST_CASE("gather: the first and the last of many sequences", "[mutants][class_D][class_P]") {
  for (const int num_seqs : {64, 65, 66, 128, 129, 130, 4096, 4097, 4098}) {
    gather_case test;
    test.geometry.page_size = 16;
    test.lens = std::vector<std::int32_t>(static_cast<std::size_t>(num_seqs), 0);
    test.lens[0] = 1;
    for (int i = 1; i < 64; ++i) test.lens[static_cast<std::size_t>(num_seqs - i)] = 1;
    INFO(num_seqs << " sequences");
    CHECK(run_gather_case(test) == "");
    test.lens.back() = 200;
    CHECK(run_gather_case(test) == "");
  }
}

}  // namespace
