// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Paged MQA logits where 32 bits end: caches beyond 2, 4 and 8 GiB, page strides of many layers,
// rows and strides beyond 2^31 bytes and elements; and what a call costs. A page or row that was
// computed in 32 bits lands on other, poisoned memory or outside every allocation.
#include <cmath>

#include "catch.hpp"
#include "support/logits_problem.hpp"
#include "support/ops.hpp"

namespace {

using namespace kindex_test;
using kindex::fill;
using kindex::page_layout;

void check_far_pages(test_case test, const std::vector<std::int32_t>& page_ids,
                     std::int64_t num_pages) {
  test.page_ids = page_ids;
  test.num_pages = num_pages;
  test.lens = {static_cast<std::int32_t>(page_ids.size()) * test.page_size -
               (test.page_size == 1 ? 0 : 3)};
  INFO(test.name());
  logits_problem problem(test);
  CHECK(problem.launch_and_check() == "");
}

TEST_CASE("logits: contiguous caches across 2, 4 and 8 GiB", "[logits_large][class_A]") {
  for (const int power : {31, 32, 33}) {
    for (const page_geometry geometry : all_page_geometries()) {
      // The run-time page sizes are one kernel; one of them is enough here.
      if (geometry.page_size == 80 || geometry.page_size == 112) continue;
      for (const int next_n : {1, 2}) {
        test_case test;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.next_n = next_n;
        const std::int64_t page_bytes = kindex::page_payload_bytes(test.page_size, test.head_dim);
        const auto straddling = static_cast<std::int32_t>((std::int64_t{1} << power) / page_bytes);
        std::vector<std::int32_t> ids{straddling + 2, 0, straddling, straddling - 1,
                                      straddling + 1};
        if (geometry.page_size == 1) {
          for (std::int32_t i = 0; i < 60; ++i) ids.push_back(straddling - 2 - i);
        }
        check_far_pages(test, ids, straddling + 3);
      }
    }
  }
}

// The last id that a table of int32 can hold, in a cache that has it and in one that ends before
// it.
TEST_CASE("logits: page 2^31 - 1", "[logits_large][class_A][class_D]") {
  // 272 GiB, of which six pages are touched.
  if (!is_emulated()) SKIP("no GPU has as much memory");
  for (const int next_n : {1, 2}) {
    for (const std::int64_t num_pages : {std::int64_t{1} << 31, (std::int64_t{1} << 31) + 5}) {
      test_case test;
      test.page_size = 1;
      test.layout = page_layout::plain;
      test.next_n = next_n;
      check_far_pages(test, {INT32_MAX, 0, INT32_MAX - 1, 1 << 30, 1, 2}, num_pages);
    }
    test_case test;
    test.page_size = 1;
    test.layout = page_layout::plain;
    test.next_n = next_n;
    test.page_ids = {5, 0, INT32_MAX - 1, 1 << 30, 1, 2};
    test.num_pages = INT32_MAX;
    test.lens = {6};
    logits_problem problem(test);
    problem.set_table_entry(0, 0, INT32_MAX);
    CHECK(problem.launch_and_check() == "");
  }
}

TEST_CASE("logits: other head dimensions across 4 GiB", "[logits_large][class_A]") {
  for (const int head_dim : {64, 256}) {
    for (const page_layout layout : {page_layout::plain, page_layout::preshuffled}) {
      for (const int page_size : {48, 64}) {
        test_case test;
        test.head_dim = head_dim;
        test.page_size = page_size;
        test.layout = layout;
        const std::int64_t page_bytes = kindex::page_payload_bytes(page_size, head_dim);
        const auto straddling = static_cast<std::int32_t>((std::int64_t{1} << 32) / page_bytes);
        check_far_pages(test, {straddling + 1, straddling, 0, straddling - 1}, straddling + 2);
      }
    }
  }
}

TEST_CASE("logits: a page stride of many layers", "[logits_large][class_A][class_K]") {
  for (const page_geometry geometry : all_page_geometries()) {
    if (kindex::page_payload_bytes(geometry.page_size, 128) > 1002240) continue;
    test_case test;
    test.page_size = geometry.page_size;
    test.layout = geometry.layout;
    test.gap = page_gap::many_layers;
    check_far_pages(test, {2199, 0, 2143, 2142}, 2200);
    test.num_heads = 16;
    test.next_n = 3;
    check_far_pages(test, {4286, 4285, 1, 4287}, 4288);
  }
}

// Rows of 2^20 columns: row 512 begins at 2^31 bytes, row 1024 at 2^32, row 2048 at 2^31 elements.
// Only the windows in use are ever touched.
TEST_CASE("logits: rows beyond 2^31 and 2^32 bytes and 2^31 elements", "[logits_large][class_A]") {
  constexpr std::int64_t width = std::int64_t{1} << 20;
  constexpr std::int64_t rows = 2049;
  constexpr std::int64_t window = 256;
  const std::vector<std::int64_t> live{0, 1, 511, 512, 513, 1023, 1024, 2047, 2048};

  for (const int page_size : {64, 48, 1}) {
    test_case test;
    test.lens = std::vector<std::int32_t>(rows, 0);
    for (std::size_t i = 0; i < live.size(); ++i) {
      test.lens[static_cast<std::size_t>(live[i])] = 130 - static_cast<std::int32_t>(i);
    }
    test.num_heads = 16;
    test.page_size = page_size;
    test.layout = page_size == 1 ? page_layout::plain : page_layout::preshuffled;
    logits_problem problem(test);  // its own output stays unused
    const device_memory memory(static_cast<std::size_t>((rows - 1) * width + window) * 4);
    auto* logits = reinterpret_cast<float*>(memory.get());
    const std::vector<std::uint32_t> preset(window, untouched_word);
    for (const std::int64_t row : live) {
      check(hipMemcpy(logits + row * width, preset.data(), window * 4, hipMemcpyHostToDevice),
            "hipMemcpy");
    }
    kindex::paged_mqa_logits_params params = problem.params();
    params.logits = logits;
    params.logits_row_stride = width;
    params.logits_width = window;
    for (const fill filling : {fill::none, fill::neg_infinity}) {
      params.fill = filling;
      REQUIRE(run_directly([&](hipStream_t stream) { return paged_mqa_logits(params, stream); }) ==
              hipSuccess);
      std::vector<std::uint32_t> found(window);
      for (const std::int64_t row : live) {
        check(hipMemcpy(found.data(), logits + row * width, window * 4, hipMemcpyDeviceToHost),
              "hipMemcpy");
        INFO("P=" << page_size << ", row " << row);
        for (std::int64_t t = 0; t < window; ++t) {
          const std::uint32_t bits = found[static_cast<std::size_t>(t)];
          if (t < problem.visible(row)) {
            REQUIRE(static_cast<double>(bits_float(bits)) == problem.oracle().at(row, t).value);
          } else {
            REQUIRE(bits == (filling == fill::none ? untouched_word : 0xFF800000));
          }
        }
      }
    }
  }
}

// An array whose rows are so far apart that row 1 is beyond 2^32 bytes.
template <class T>
class far_rows {
 public:
  far_rows(const std::vector<T>& rows, std::int64_t row_elements, std::int64_t stride)
      : num_rows_(static_cast<std::int64_t>(rows.size()) / row_elements),
        memory_(static_cast<std::size_t>((num_rows_ - 1) * stride + row_elements) * sizeof(T)) {
    for (std::int64_t row = 0; row < num_rows_; ++row) {
      check(hipMemcpy(get() + row * stride, rows.data() + row * row_elements,
                      static_cast<std::size_t>(row_elements) * sizeof(T), hipMemcpyHostToDevice),
            "hipMemcpy");
    }
  }
  T* get() const { return reinterpret_cast<T*>(memory_.get()); }

 private:
  std::int64_t num_rows_;
  device_memory memory_;
};

TEST_CASE("logits: strides of q, weights, lengths and table beyond 32 bits",
          "[logits_large][class_A][class_K]") {
  constexpr std::int64_t stride = (std::int64_t{1} << 32) + 64;  // bytes
  for (const auto& [next_n, num_heads] :
       {std::pair{1, 64}, std::pair{1, 32}, std::pair{2, 16}, std::pair{8, 128}}) {
    test_case test;
    test.lens = {70, 65};
    test.next_n = next_n;
    test.num_heads = num_heads;
    INFO(test.name());
    logits_problem problem(test);
    const auto rows = static_cast<std::int64_t>(test.num_rows());
    kindex::paged_mqa_logits_params params = problem.params();
    const std::int64_t table_width = params.block_table_width;
    std::vector<std::int32_t> entries;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t i = 0; i < table_width; ++i) {
        entries.push_back(problem.batch().table.entry(b, i));
      }
    }
    const far_rows<std::int32_t> table(entries, table_width, stride / 4);
    params.block_table = table.get();
    params.block_table_stride = stride / 4;
    const far_rows<std::int32_t> lens(test.lens, 1, stride / 4);
    params.context_lens = lens.get();
    params.context_lens_batch_stride = stride / 4;
    const far_rows<float> weights(problem.oracle().weights, num_heads, stride / 4);
    params.weights = weights.get();
    params.weights_row_stride = stride / 4;

    const auto run = [&](hipStream_t stream) { return paged_mqa_logits(params, stream); };
    const auto check_run = [&](const char* what) {
      INFO(what);
      problem.logits().reset();
      REQUIRE(run_directly(run) == hipSuccess);
      problem.logits().download();
      CHECK(problem.check() == "");
    };
    {
      const far_rows<std::uint8_t> q(problem.oracle().q, std::int64_t{num_heads} * next_n * 128,
                                     stride);
      params.q = q.get();
      params.q_head_stride = 128;
      params.q_next_n_stride = std::int64_t{num_heads} * 128;
      params.q_batch_stride = stride;
      check_run("batches of q");
    }
    {
      const far_rows<std::uint8_t> q(problem.oracle().q, std::int64_t{num_heads} * 128, stride);
      params.q = q.get();
      params.q_head_stride = 128;
      params.q_next_n_stride = stride;
      params.q_batch_stride = stride * next_n;
      check_run("rows of q");
    }
    // 2^31 / 8: head 8 is beyond 31 bits, head 63 beyond 33.
    constexpr std::int64_t head_stride = (std::int64_t{1} << 28) + 16;
    if (rows * num_heads * head_stride < (std::int64_t{40} << 30)) {
      const far_rows<std::uint8_t> q(problem.oracle().q, 128, head_stride);
      params.q = q.get();
      params.q_head_stride = head_stride;
      params.q_next_n_stride = head_stride * num_heads;
      params.q_batch_stride = head_stride * num_heads * next_n;
      check_run("heads of q");
    }
  }
}

TEST_CASE("logits: K is read once for all rows of a sequence", "[logits_large][class_O]") {
  for (const page_geometry geometry : all_page_geometries()) {
    for (const int head_dim : {64, 128, 256}) {
      std::int64_t one_row = 0;
      for (const auto& [next_n, num_heads] :
           {std::pair{1, 64}, std::pair{2, 64}, std::pair{8, 128}}) {
        test_case test;
        test.page_size = geometry.page_size;
        test.layout = geometry.layout;
        test.head_dim = head_dim;
        test.next_n = next_n;
        test.num_heads = num_heads;
        test.lens = {520, 64, 130};
        logits_problem problem(test);
        const kindex::cache_view cache = problem.batch().cache.view();
        const memory_watch watch(
            cache.data,
            static_cast<std::size_t>((cache.num_pages - 1) * cache.page_stride_bytes +
                                     kindex::page_payload_bytes(test.page_size, head_dim)));
        if (!watch.active()) SKIP("only the emulator sees reads");
        REQUIRE(problem.launch_and_check() == "");
        INFO(test.name());
        const std::int64_t payload = (520 + 64 + 130) * kindex::page_payload_bytes(1, head_dim);
        if (next_n == 1) {
          one_row = watch.bytes_loaded();
          // Whole tiles of 16 tokens, and scales that several lanes need.
          CHECK(one_row >= payload);
          CHECK(one_row * 4 <= payload * 5);
        } else {
          CHECK(watch.bytes_loaded() == one_row);
        }
      }
    }
  }
}

std::int64_t instructions(const test_case& test) {
  logits_problem problem(test);
  reset_work();
  const hipError_t status = problem.launch();
  const device_work work = work_done();
  REQUIRE(status == hipSuccess);
  return work.instructions;
}

TEST_CASE("logits: work does not grow with the width or the table", "[logits_large][class_O]") {
  const pretend_compute_units units(4);
  for (const auto& [next_n, num_heads] : {std::pair{1, 64}, std::pair{2, 64}}) {
    test_case test;
    test.next_n = next_n;
    test.num_heads = num_heads;
    test.lens = {1000, 64, 0, 300, 2000, 1, 700};
    test.table_width = 128;
    test.logits_width = 8192;
    const std::int64_t narrow = instructions(test);
    if (narrow == 0) SKIP("only the emulator counts instructions");
    test.table_width = 16384;
    test.logits_width = 1 << 20;
    const std::int64_t wide = instructions(test);
    INFO(test.name() << ": " << narrow << " and " << wide << " instructions");
    CHECK(wide * 100 <= narrow * 101);
  }
}

TEST_CASE("logits: work goes with the tokens, not with the batch", "[logits_large][class_O]") {
  const pretend_compute_units units(4);
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const int num_seqs : {1, 2, 16, 64}) {
    test_case test;
    test.lens = std::vector<std::int32_t>(static_cast<std::size_t>(num_seqs), 16384 / num_seqs);
    const std::int64_t count = instructions(test);
    if (count == 0) SKIP("only the emulator counts instructions");
    INFO(test.name() << ": " << count << " instructions");
    least = least == 0 ? count : std::min(least, count);
    most = std::max(most, count);
  }
  INFO(least << " to " << most << " instructions");
  // Short sequences load q and page ids more often; nothing may grow faster than that.
  CHECK(most <= 2 * least);
}

TEST_CASE("logits: pages of one token cost little more than pages of 64",
          "[logits_large][class_O]") {
  const pretend_compute_units units(4);
  test_case test;
  test.lens = std::vector<std::int32_t>(16, 1000);
  const std::int64_t page_64 = instructions(test);
  if (page_64 == 0) SKIP("only the emulator counts instructions");
  test.page_size = 1;
  test.layout = page_layout::plain;
  const std::int64_t page_1 = instructions(test);
  INFO(page_64 << " and " << page_1 << " instructions");
  CHECK(page_1 <= 2 * page_64);
}

}  // namespace
