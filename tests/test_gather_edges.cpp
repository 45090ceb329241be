// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The gather at the edges of its input: empty sequences and batches, bounds that do not meet,
// page ids that are none, many sequences, two caches at once, refusals.

#include <algorithm>
#include <limits>
#include <numeric>

#include "catch.hpp"
#include "support/gather_problem.hpp"
#include "support/ops.hpp"

using namespace kindex_test;
using kindex::page_layout;

namespace {

constexpr std::int32_t int32_max = std::numeric_limits<std::int32_t>::max();

gather_case case_of(const std::vector<std::int32_t>& lens, int page_size = 64) {
  gather_case test;
  test.lens = lens;
  test.geometry.page_size = page_size;
  if (page_size == 1) test.geometry.layout = page_layout::plain;
  return test;
}

}  // namespace

TEST_CASE("gather: sequences of length 0 anywhere", "[gather_edges][class_D][class_E]") {
  const std::vector<std::int32_t> all_lens[] = {
      {0, 3, 0, 0, 4, 0},  // cu_seq_lens [0,0,3,3,3,7,7]
      {0, 1, 0, 64, 0},
      {0, 0, 0, 5},
      {5, 0, 0, 0},
      {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
      {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
      {1},
  };
  for (const launcher& how : launchers()) {
    for (const int page_size : {1, 16, 64, 112}) {
      for (const auto& lens : all_lens) {
        const gather_case test = case_of(lens, page_size);
        INFO(how.name << ": " << test.name());
        CHECK(run_gather_case(test, how) == "");
      }
    }
  }
}

TEST_CASE("gather: no work", "[gather_edges][class_E]") {
  for (const launcher& how : launchers()) {
    CAPTURE(how.name);
    CHECK(run_gather_case(case_of({}), how) == "");         // B = 0
    CHECK(run_gather_case(case_of({0, 0, 0}), how) == "");  // T = 0
    gather_case unused = case_of({0, 0, 0});
    unused.num_tokens = 9;  // rows, but nothing to put there
    CHECK(run_gather_case(unused, how) == "");
    gather_case no_sequences = case_of({});
    no_sequences.num_tokens = 5;
    CHECK(run_gather_case(no_sequences, how) == "");
    gather_case no_rows = case_of({4, 5});
    no_rows.num_tokens = 0;
    CHECK(run_gather_case(no_rows, how) == "");

    kindex::gather_params params;  // all pointers null
    params.cache.page_stride_bytes = 8448;
    CHECK(how.run([&](hipStream_t stream) { return gather(params, stream); }) == hipSuccess);
  }
}

TEST_CASE("gather: rows beyond the lengths are not touched", "[gather_edges][class_C][class_D]") {
  for (const std::int64_t extra : {1, 2, 31, 64, 128, 129, 1000}) {
    gather_case test = case_of({3, 0, 70, 1});
    test.num_tokens = 74 + extra;
    test.dst_k_gap = extra % 2 == 0 ? 0 : 16;
    INFO(test.name());
    CHECK(run_gather_case(test) == "");
  }
}

TEST_CASE("gather: lengths beyond the rows are cut", "[gather_edges][class_C]") {
  for (const std::int64_t rows : {1, 2, 3, 4, 63, 64, 66, 67, 68, 127, 128, 129, 136}) {
    gather_case test = case_of({3, 0, 64, 70});
    test.num_tokens = rows;
    INFO(test.name());
    CHECK(run_gather_case(test) == "");
  }
}

TEST_CASE("gather: page ids that are none become zeros", "[gather_edges][class_D]") {
  // The cache ends where its memory ends: in emulation every read of such a page is found.
  for (const int page_size : {1, 16, 48, 64}) {
    for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
      if (page_size == 1 && layout == page_layout::preshuffled) continue;
      gather_case test = case_of({3 * page_size, 2, 2 * page_size + 1, page_size}, page_size);
      test.geometry.layout = layout;
      INFO(test.name());
      gather_problem problem(test);
      const std::int32_t bad[] = {-1, int32_max, problem.num_pages(), -int32_max - 1, -2};
      for (const std::int32_t id : bad) {
        CAPTURE(id);
        gather_problem broken(test);
        broken.set_page(0, 1, id);  // in the middle
        broken.set_page(2, 0, id);  // the first
        broken.set_page(3, 0, id);  // the only one
        CHECK(broken.run() == "");
      }
      for (int i = 0; i < 3; ++i) problem.set_page(0, i, bad[i]);
      CHECK(problem.run() == "");
    }
  }
}

TEST_CASE("gather: sequences longer than their table", "[gather_edges][class_C][class_D]") {
  for (const std::int64_t width : {0, 1, 2, 3, 4}) {
    for (const int page_size : {16, 64, 80}) {
      gather_case test = case_of({5 * page_size - 3, 1, 4 * page_size, 2}, page_size);
      test.table_width = width;
      INFO(test.name());
      CHECK(run_gather_case(test) == "");
    }
  }
}

TEST_CASE("gather: tables inside wider ones", "[gather_edges][class_K]") {
  gather_case test = case_of({200, 7, 300});
  test.table_lead_bytes = 8;  // columns 2..6
  test.table_gap = 4;
  test.table_width = 5;
  CHECK(run_gather_case(test) == "");
  test.table_width = 40;
  test.table_gap = 0;
  CHECK(run_gather_case(test) == "");
  test.table_lead_bytes = 4;
  test.table_gap = 100001;
  CHECK(run_gather_case(test) == "");
}

TEST_CASE("gather: a cache without pages gives zeros", "[gather_edges][class_D][class_E]") {
  const device_array<std::int32_t> cu_seq_lens(std::vector<std::int32_t>{0, 3});
  const device_array<std::int32_t> table(std::vector<std::int32_t>{0});
  guarded_matrix<std::uint8_t> dst_k(3, 128, 128);
  guarded_matrix<float> dst_scale(3, 1, 1);
  kindex::gather_params params;
  params.cache.page_stride_bytes = 8448;
  params.block_table = table.get();
  params.block_table_stride = 1;
  params.block_table_width = 1;
  params.cu_seq_lens = cu_seq_lens.get();
  params.num_seqs = 1;
  params.dst_k = dst_k.get();
  params.dst_k_stride_bytes = 128;
  params.dst_scale = dst_scale.get();
  params.dst_scale_stride = 1;
  params.num_tokens = 3;
  CHECK(run_directly([&](hipStream_t stream) { return gather(params, stream); }) == hipSuccess);
  dst_k.download();
  dst_scale.download();
  int wrong = 0;
  for (int row = 0; row < 3; ++row) {
    for (int dim = 0; dim < 128; ++dim) wrong += dst_k.at(row, dim) != 0;
    wrong += dst_scale.bits(row, 0) != 0;
  }
  CHECK(wrong == 0);
  CHECK(dst_k.check_guards() == "");
  CHECK(dst_scale.check_guards() == "");
}

TEST_CASE("gather: numbers of sequences", "[gather_edges][class_D][class_N]") {
  for (const int num_seqs : {1, 2, 3, 31, 32, 33, 63, 64, 65, 96, 257, 1024, 5000}) {
    for (const bool long_ones : {false, true}) {
      random_stream random(static_cast<std::uint64_t>(num_seqs));
      std::vector<std::int32_t> lens;
      for (int seq = 0; seq < num_seqs; ++seq) {
        const int kind = random.integer(0, 3);
        lens.push_back(kind == 0 ? 0 : kind == 1 && long_ones ? random.integer(50, 150) : kind);
      }
      gather_case test = case_of(lens, 16);
      INFO(test.name());
      CHECK(run_gather_case(test) == "");
    }
  }
}

TEST_CASE("gather: numbers of tokens around waves and blocks", "[gather_edges][class_C][class_P]") {
  for (const int head_dim : {64, 128, 256}) {
    for (const int tokens : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 128, 129, 257}) {
      gather_case test = case_of({tokens}, tokens % 2 == 0 ? 48 : 64);
      test.head_dim = head_dim;
      INFO(test.name());
      CHECK(run_gather_case(test) == "");
    }
  }
}

TEST_CASE("gather: two caches in turn", "[gather_edges][class_S]") {
  gather_case first = case_of({100, 3});
  first.gap = page_gap::plus_64;
  gather_case second = case_of({5, 90}, 80);
  second.geometry.layout = page_layout::plain;
  second.head_dim = 256;
  gather_case third = case_of({20}, 1);
  third.head_dim = 64;
  gather_problem problems[] = {gather_problem(first), gather_problem(second),
                               gather_problem(third)};
  for (int round = 0; round < 3; ++round) {
    for (gather_problem& problem : problems) CHECK(problem.run() == "");
  }
}

TEST_CASE("gather: one graph serves other lengths and tables", "[gather_edges][class_M]") {
  if (!can_capture()) SKIP("the runtime cannot capture");
  constexpr int page_size = 64, max_rows = 400, width = 4, num_seqs = 4;
  random_stream random(3);
  paged_cache cache(page_size, 128, page_layout::preshuffled, native_format(), 12);
  std::vector<std::uint8_t> tokens(12 * page_size * 128);
  for (std::uint8_t& byte : tokens) byte = static_cast<std::uint8_t>(random.next());
  for (int slot = 0; slot < 12 * page_size; ++slot) {
    const auto scale = static_cast<float>(slot);
    cache.put_token(slot, &tokens[static_cast<std::size_t>(slot) * 128], &scale);
  }
  cache.upload();
  device_array<std::int32_t> cu_seq_lens(std::vector<std::int32_t>(num_seqs + 1, 0));
  device_array<std::int32_t> table(std::vector<std::int32_t>(num_seqs * width, -1));
  guarded_matrix<std::uint8_t> dst_k(max_rows, 128, 144);
  guarded_matrix<float> dst_scale(max_rows, 1, 2);
  kindex::gather_params params;
  params.cache = cache.view();
  params.block_table = table.get();
  params.block_table_stride = width;
  params.block_table_width = width;
  params.cu_seq_lens = cu_seq_lens.get();
  params.num_seqs = num_seqs;
  params.dst_k = dst_k.get();
  params.dst_k_stride_bytes = dst_k.row_stride();
  params.dst_scale = dst_scale.get();
  params.dst_scale_stride = dst_scale.row_stride();
  params.num_tokens = max_rows;
  captured_graph graph([&](hipStream_t stream) { return gather(params, stream); });
  REQUIRE(graph.status() == hipSuccess);
  for (int step = 0; step < 10; ++step) {
    std::vector<std::int32_t> lens, ids(12);
    for (int seq = 0; seq < num_seqs; ++seq) {
      lens.push_back((seq + step) % 3 == 0 ? 0 : random.integer(1, 100));
    }
    std::iota(ids.begin(), ids.end(), 0);
    random.shuffle(ids);
    std::vector<std::int32_t> entries(num_seqs * width, -1);
    for (std::size_t seq = 0; seq < num_seqs; ++seq) {
      entries[seq * width] = ids[seq * 2];
      entries[seq * width + 1] = ids[seq * 2 + 1];
    }
    cu_seq_lens.upload(cumulative(lens));
    table.upload(entries);
    dst_k.reset();
    dst_scale.reset();
    graph.launch();
    dst_k.download();
    dst_scale.download();
    CHECK(dst_k.check_guards() == "");
    CHECK(dst_scale.check_guards() == "");
    int wrong = 0;
    std::int64_t row = 0;
    for (std::size_t seq = 0; seq < num_seqs; ++seq) {
      for (int t = 0; t < lens[seq]; ++t, ++row) {
        const int id = entries[seq * width + static_cast<std::size_t>(t / page_size)];
        const int slot = id * page_size + t % page_size;
        for (int dim = 0; dim < 128; ++dim) {
          wrong += dst_k.at(row, dim) != tokens[static_cast<std::size_t>(slot * 128 + dim)];
        }
        wrong += dst_scale.at(row, 0) != static_cast<float>(slot);
      }
    }
    for (; row < max_rows; ++row) wrong += !dst_k.untouched(row, 0) || !dst_scale.untouched(row, 0);
    CHECK(wrong == 0);
  }
}

TEST_CASE("gather: the search for owners is logarithmic", "[gather_edges][class_O]") {
  // Instructions for one of many sequences.
  const auto instructions = [](int num_seqs) {
    gather_problem problem(
        case_of(std::vector<std::int32_t>(static_cast<std::size_t>(num_seqs), 16), 16));
    reset_work();
    CHECK(problem.run() == "");
    return static_cast<double>(work_done().instructions) / num_seqs;
  };
  const double of_4 = instructions(4);
  if (of_4 == 0) SKIP("nobody counts instructions");
  const double of_256 = instructions(256);
  const double of_4096 = instructions(4096);
  CAPTURE(of_4, of_256, of_4096);
  CHECK(of_256 < 1.5 * of_4);
  CHECK(of_4096 < 1.1 * of_256);
}

TEST_CASE("gather: nothing is written twice, nothing read without need",
          "[gather_edges][class_C][class_O]") {
  const std::vector<std::int32_t> lens = {70, 0, 33};
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 6);
  random_stream random(2);
  page_table table = make_page_table(lens, 64, 6, random);
  const std::vector<std::uint8_t> k(128, 0x22);
  const float one = 1;
  for (std::int64_t seq = 0; seq < 3; ++seq) {
    for (std::int64_t t = 0; t < lens[static_cast<std::size_t>(seq)]; ++t) {
      cache.put_token(table.slot(seq, t), k.data(), &one);
    }
  }
  cache.upload();
  for (const bool pages_exist : {true, false}) {
    CAPTURE(pages_exist);
    if (!pages_exist) std::fill(table.entries.begin(), table.entries.end(), -1);
    const device_array<std::int32_t> device_table(table.entries);
    const device_array<std::int32_t> cu_seq_lens(cumulative(lens));
    guarded_matrix<std::uint8_t> dst_k(200, 128, 128);
    guarded_matrix<float> dst_scale(200, 1, 1);
    kindex::gather_params params;
    params.cache = cache.view();
    params.block_table = device_table.get();
    params.block_table_stride = table.stride;
    params.block_table_width = table.width;
    params.cu_seq_lens = cu_seq_lens.get();
    params.num_seqs = 3;
    params.dst_k = dst_k.get();
    params.dst_k_stride_bytes = 128;
    params.dst_scale = dst_scale.get();
    params.dst_scale_stride = 1;
    params.num_tokens = 200;
    const memory_watch cache_traffic(params.cache.data, 6 * 64 * 132);
    const memory_watch k_traffic(params.dst_k, 200 * 128);
    const memory_watch scale_traffic(params.dst_scale, 200 * 4);
    CHECK(run_directly([&](hipStream_t stream) { return gather(params, stream); }) == hipSuccess);
    if (!cache_traffic.active()) SKIP("nobody counts memory traffic");
    // The lanes of a wave that have no row may read the last one once more.
    CHECK(cache_traffic.bytes_loaded() >= (pages_exist ? 103 * 132 : 0));
    CHECK(cache_traffic.bytes_loaded() <= (pages_exist ? 128 * 132 : 0));
    CHECK(cache_traffic.bytes_stored() == 0);
    CHECK(k_traffic.bytes_stored() == 103 * 128);
    CHECK(scale_traffic.bytes_stored() == 103 * 4);
    CHECK(k_traffic.bytes_loaded() == 0);
    CHECK(scale_traffic.bytes_loaded() == 0);
  }
}

TEST_CASE("gather: refused calls write nothing", "[gather_edges][class_N]") {
  const device_array<std::int32_t> cu_seq_lens(std::vector<std::int32_t>{0, 3, 3});
  const device_array<std::int32_t> table(std::vector<std::int32_t>{0, 0});
  paged_cache cache(64, 128, page_layout::preshuffled, native_format(), 1);
  cache.upload();
  guarded_matrix<std::uint8_t> dst_k(3, 128, 128);
  guarded_matrix<float> dst_scale(3, 1, 1);
  kindex::gather_params valid;
  valid.cache = cache.view();
  valid.block_table = table.get();
  valid.block_table_stride = 1;
  valid.block_table_width = 1;
  valid.cu_seq_lens = cu_seq_lens.get();
  valid.num_seqs = 2;
  valid.dst_k = dst_k.get();
  valid.dst_k_stride_bytes = 128;
  valid.dst_scale = dst_scale.get();
  valid.dst_scale_stride = 1;
  valid.num_tokens = 3;
  const auto with = [&](auto change) {
    kindex::gather_params params = valid;
    change(params);
    return run_directly([&](hipStream_t stream) { return gather(params, stream); });
  };
  using params = kindex::gather_params;
  CHECK(with([](params& p) { p.cache.page_size = 24; }) == hipErrorNotSupported);
  CHECK(with([](params& p) { p.cache.head_dim = 96; }) == hipErrorNotSupported);
  CHECK(with([](params& p) { p.cache.data = nullptr; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.block_table = nullptr; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.block_table_stride = 0; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.cu_seq_lens = nullptr; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.dst_k_stride_bytes = 127; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.dst_scale = nullptr; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.dst_scale_stride = 0; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.num_tokens = -1; }) == hipErrorInvalidValue);
  CHECK(with([](params& p) { p.num_seqs = -1; }) == hipErrorInvalidValue);
  dst_k.download();
  dst_scale.download();
  CHECK(dst_k.untouched(0, 0));
  CHECK(dst_k.untouched(2, 127));
  CHECK(dst_scale.untouched(0, 0));
  CHECK(with([](params&) {}) == hipSuccess);
}
