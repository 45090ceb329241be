// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the gfx942 kernels execute and load in the scenario of the documentation (docs/gfx942.md),
// as the emulator counts it. A GPU counts nothing, so there is nothing to test on one.
#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <kindex/params.hpp>

#include "catch.hpp"
#include "support/device_buffer.hpp"
#include "support/launch.hpp"
#include "support/ops.hpp"
#include "support/platform.hpp"

namespace {

using namespace kindex_test;

/// 64 sequences of 8,192 to 9,216 tokens in preshuffled pages of 64 tokens, in no order, on the 304
/// compute units of an MI300X. What K holds does not change a count.
struct scenario {
  static constexpr int num_seqs = 64;
  static constexpr int page_size = 64;
  static constexpr int head_dim = 128;

  pretend_compute_units compute_units{304};
  std::vector<std::int32_t> lens;
  std::int64_t tokens = 0;
  std::int64_t tiles = 0;  // of 16 tokens
  int table_width = 0;
  kindex::cache_view cache;
  device_array<std::uint8_t> data;
  device_array<std::int32_t> table, device_lens;

  scenario() {
    std::mt19937 random(1);
    int num_pages = 0;
    for (int b = 0; b < num_seqs; ++b) {
      lens.push_back(8192 + static_cast<int>(random() % 1025));
      tokens += lens.back();
      tiles += (lens.back() + 15) / 16;
      num_pages += pages_of(lens.back());
      table_width = std::max(table_width, pages_of(lens.back()));
    }
    std::vector<std::int32_t> ids(static_cast<std::size_t>(num_pages));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    std::vector<std::int32_t> rows(static_cast<std::size_t>(num_seqs) *
                                   static_cast<std::size_t>(table_width));
    auto next = ids.begin();
    for (int b = 0; b < num_seqs; ++b) {
      std::copy_n(next, pages_of(lens[static_cast<std::size_t>(b)]),
                  rows.begin() + b * table_width);
      next += pages_of(lens[static_cast<std::size_t>(b)]);
    }
    cache.num_pages = num_pages;
    cache.page_stride_bytes = kindex::page_payload_bytes(page_size, head_dim);
    data = device_array<std::uint8_t>(std::vector<std::uint8_t>(
        static_cast<std::size_t>(cache.num_pages * cache.page_stride_bytes), 0));
    cache.data = data.get();
    table = device_array<std::int32_t>(rows);
    device_lens = device_array<std::int32_t>(lens);
  }

  static int pages_of(int length) { return (length + page_size - 1) / page_size; }
};

struct counts {
  double instructions = 0;
  double vector_instructions = 0;
  std::int64_t bank_conflicts = 0;
  std::int64_t cache_bytes_loaded = 0;
  double cache_segment_efficiency = 0;
};

/// Counts per item of an operation on the scenario.
counts count(const scenario& on, double items, const operation& run) {
  const memory_watch cache(on.cache.data, on.data.size());
  reset_work();
  REQUIRE(run_directly(run) == hipSuccess);
  const device_work work = work_done();
  return {static_cast<double>(work.instructions) / items,
          static_cast<double>(work.vector_instructions) / items, work.bank_conflicts,
          cache.bytes_loaded(), cache.segment_efficiency()};
}

/// Per 16 tokens.
counts count_logits(const scenario& on, int next_n, int num_heads) {
  const std::size_t rows = static_cast<std::size_t>(scenario::num_seqs * next_n);
  const device_array<std::uint8_t> q(std::vector<std::uint8_t>(
      rows * static_cast<std::size_t>(num_heads * scenario::head_dim), 0));
  const device_array<float> weights(
      std::vector<float>(rows * static_cast<std::size_t>(num_heads), 1.0f));
  const int width = on.table_width * scenario::page_size;
  const device_array<float> logits(std::vector<float>(rows * static_cast<std::size_t>(width), 0));
  kindex::paged_mqa_logits_params params;
  params.cache = on.cache;
  params.q = q.get();
  params.q_head_stride = scenario::head_dim;
  params.q_next_n_stride = num_heads * scenario::head_dim;
  params.q_batch_stride = next_n * num_heads * scenario::head_dim;
  params.weights = weights.get();
  params.weights_row_stride = num_heads;
  params.context_lens = on.device_lens.get();
  params.block_table = on.table.get();
  params.block_table_stride = params.block_table_width = on.table_width;
  params.logits = logits.get();
  params.logits_row_stride = params.logits_width = width;
  params.num_seqs = scenario::num_seqs;
  params.next_n = next_n;
  params.num_heads = num_heads;
  return count(on, static_cast<double>(on.tiles),
               [&](hipStream_t stream) { return paged_mqa_logits(params, stream); });
}

bool counts_nothing() {
  reset_work();
  const scenario on;
  return !memory_watch(on.cache.data, 1).active();
}

TEST_CASE("counts: logits of one row and of four", "[counts]") {
  if (counts_nothing()) SKIP("only the emulator counts");
  const scenario on;
  const counts one = count_logits(on, 1, 64);
  const counts four = count_logits(on, 4, 64);
  CAPTURE(one.instructions, one.vector_instructions, four.instructions, four.vector_instructions);
  CHECK(one.instructions <= 100);
  CHECK(one.vector_instructions <= 50);
  CHECK(four.instructions <= 2.6 * one.instructions);
  // K once, in whole tiles, and the scales of visible tokens.
  const std::int64_t owned = on.tiles * 16 * scenario::head_dim + on.tokens * 4;
  CHECK(one.cache_bytes_loaded == owned);
  CHECK(four.cache_bytes_loaded == owned);
  CHECK(one.cache_segment_efficiency >= 0.98);
  CHECK(four.cache_segment_efficiency >= 0.98);
  CHECK(one.bank_conflicts == 0);
  CHECK(four.bank_conflicts == 0);
}

TEST_CASE("counts: store and gather", "[counts]") {
  if (counts_nothing()) SKIP("only the emulator counts");
  const scenario on;
  constexpr std::int64_t num_tokens = 8192;
  const device_array<std::uint16_t> k(
      std::vector<std::uint16_t>(num_tokens * scenario::head_dim, 0x3F80));
  std::vector<std::int64_t> slots(num_tokens);
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    slots[static_cast<std::size_t>(i)] = i * 61 % (on.cache.num_pages * scenario::page_size);
  }
  const device_array<std::int64_t> device_slots(slots);
  kindex::store_params store_params;
  store_params.cache = on.cache;
  store_params.k = k.get();
  store_params.k_row_stride = scenario::head_dim;
  store_params.num_tokens = store_params.num_slots = num_tokens;
  store_params.slots = static_cast<const std::int64_t*>(device_slots.get());
  const counts stored =
      count(on, num_tokens / 8.0, [&](hipStream_t stream) { return store(store_params, stream); });
  CAPTURE(stored.instructions);
  CHECK(stored.instructions <= 140);

  std::vector<std::int32_t> starts(1, 0);
  for (const std::int32_t length : on.lens) starts.push_back(starts.back() + length);
  const device_array<std::int32_t> cu_seq_lens(starts);
  const device_array<std::uint8_t> dst_k(
      std::vector<std::uint8_t>(static_cast<std::size_t>(on.tokens) * scenario::head_dim, 0));
  const device_array<float> dst_scale(std::vector<float>(static_cast<std::size_t>(on.tokens), 0));
  kindex::gather_params gather_params;
  gather_params.cache = on.cache;
  gather_params.block_table = on.table.get();
  gather_params.block_table_stride = gather_params.block_table_width = on.table_width;
  gather_params.cu_seq_lens = cu_seq_lens.get();
  gather_params.num_seqs = scenario::num_seqs;
  gather_params.dst_k = dst_k.get();
  gather_params.dst_k_stride_bytes = scenario::head_dim;
  gather_params.dst_scale = dst_scale.get();
  gather_params.dst_scale_stride = 1;
  gather_params.num_tokens = on.tokens;
  const counts gathered = count(on, static_cast<double>(on.tokens) / 8.0,
                                [&](hipStream_t stream) { return gather(gather_params, stream); });
  CAPTURE(gathered.instructions);
  CHECK(gathered.instructions <= 60);
  CHECK(gathered.cache_bytes_loaded == on.tokens * (scenario::head_dim + 4));
  CHECK(gathered.bank_conflicts == 0);
}

}  // namespace
