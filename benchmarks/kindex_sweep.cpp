// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The shapes that a GPU is tuned for, each with its goal, the best published or measured peer, and
// its share of what the memory gives in the same run. For GPUs only. The goals are for one H200.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "support/platform.hpp"

namespace kindex_bench {
namespace {

using kindex::page_layout;

/// What a case should reach, as the time that it may take.
struct goal {
  std::string text;  ///< empty: none
  /// Microseconds; 0 if what it is relative to did not run.
  std::function<double(const harness&, const case_result&)> limit;
};

/// A goal that takes this share of a ceiling.
goal share_of(double memory_ceilings::* ceiling, const char* name, double share) {
  return {text_of("%.0f %% of %s", 100 * share, name),
          [=](const harness&, const case_result& result) {
            return static_cast<double>(result.size.bytes()) / (share * ceilings().*ceiling) * 1e-3;
          }};
}
goal read_share(double share) { return share_of(&memory_ceilings::read, "read", share); }
goal copy_share(double share) { return share_of(&memory_ceilings::copy, "copy", share); }

goal at_most(double microseconds) {
  return {text_of("%.1f us", microseconds),
          [=](const harness&, const case_result&) { return microseconds; }};
}

goal teraflops(double rate) {
  return {text_of("%.0f TFLOP/s", rate), [=](const harness&, const case_result& result) {
            return result.size.flops / rate * 1e-6;
          }};
}

/// `factor` times what another case took, and its own further bytes at a ceiling.
goal like(const std::string& other, double factor, double memory_ceilings::* ceiling,
          const char* text) {
  return {text, [=](const harness& cases, const case_result& result) {
            const case_result* const base = cases.find(other);
            if (base == nullptr) return 0.0;
            const auto further = static_cast<double>(result.size.bytes() - base->size.bytes());
            return factor * (base->time->median + further / (ceilings().*ceiling) * 1e-3);
          }};
}

struct sweep_row {
  std::string name;
  std::function<std::unique_ptr<bench_case>()> make;
  goal aim;
  double peer = 0;  ///< microseconds on one H200; 0 if nothing is known
};

std::vector<std::int32_t> equal_lens(int count, std::int32_t length) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(count), length);
}

std::vector<std::int32_t> scenario_lens(int count) { return uniform_lens(count, 8192, 9216); }

std::shared_ptr<const cache_pool> pool_of(std::vector<std::int32_t> lens, int page_size = 64,
                                          page_layout layout = page_layout::preshuffled) {
  cache_shape shape;
  shape.lens = std::move(lens);
  shape.page_size = page_size;
  shape.layout = layout;
  if (page_size == 1) shape.table_width = 131072;
  return make_cache_pool(shape, 2);
}

std::function<std::unique_ptr<bench_case>()> logits(std::vector<std::int32_t> lens,
                                                    logits_shape shape = {}, int page_size = 64,
                                                    page_layout layout = page_layout::preshuffled) {
  return [=] { return make_logits_case(pool_of(lens, page_size, layout), shape); };
}

std::function<std::unique_ptr<bench_case>()> stores(store_tokens which, std::int64_t tokens,
                                                    page_layout layout = page_layout::preshuffled,
                                                    inputs where = inputs::in_memory) {
  return
      [=] { return make_store_case(pool_of(scenario_lens(64), 64, layout), which, tokens, where); };
}

std::function<std::unique_ptr<bench_case>()> gathers(std::vector<std::int32_t> lens) {
  return [=] { return make_gather_case(pool_of(lens), static_cast<std::int64_t>(lens.size())); };
}

logits_shape rows(std::int64_t next_n) {
  logits_shape shape;
  shape.next_n = next_n;
  return shape;
}

logits_shape heads(std::int64_t num_heads) {
  logits_shape shape;
  shape.num_heads = num_heads;
  return shape;
}

logits_shape wide(std::int64_t width, kindex::fill fill) {
  logits_shape shape;
  shape.width = width;
  shape.fill = fill;
  return shape;
}

/// Neighbours share their caches where they can.
std::vector<sweep_row> all_rows() {
  constexpr auto read = &memory_ceilings::read;
  constexpr auto write = &memory_ceilings::write;
  const char scenario[] = "logits/8k1k_cc64";
  const auto lens = scenario_lens(64);
  std::vector<std::int32_t> mixed = equal_lens(17, 63);
  mixed.front() = 131072;
  return {
      {scenario, logits(lens), read_share(0.80), 22.9},
      {"logits/8k1k_cc64_n2", logits(lens, rows(2)), read_share(0.76), 25.0},
      {"logits/8k1k_cc64_n4", logits(lens, rows(4)), teraflops(800)},
      {"logits/8k1k_cc64_h32", logits(lens, heads(32)), read_share(0.82), 22.3},
      {"logits/8k1k_cc64_width_32k", logits(lens, wide(32768, kindex::fill::none)),
       like(scenario, 1.02, read, "as width 9k")},
      {"logits/8k1k_cc64_width_1m", logits(lens, wide(1048576, kindex::fill::none)),
       like("logits/8k1k_cc64_width_32k", 1.02, read, "as width 32k")},
      {"logits/8k1k_cc64_fill_131072", logits(lens, wide(131072, kindex::fill::neg_infinity)),
       like(scenario, 1.0, write, "fill none + its bytes")},
      {"store/random_64", stores(store_tokens::random, 64), at_most(1.8), 1.7},
      {"store/random_1024", stores(store_tokens::random, 1024), {}, 2.2},
      {"store/random_8192", stores(store_tokens::random, 8192), at_most(3.0), 7.8},
      {"store/random_65536", stores(store_tokens::random, 65536), copy_share(0.75), 42.3},
      {"store/warm_64",
       stores(store_tokens::random, 64, page_layout::preshuffled, inputs::in_caches),
       {}},
      {"store/warm_1024",
       stores(store_tokens::random, 1024, page_layout::preshuffled, inputs::in_caches),
       {}},
      {"store/decode_64", stores(store_tokens::newest, 64), {}},
      {"store/prefill_8192", stores(store_tokens::sequence, 8192), {}},
      {"store/prefill_65536",
       [] { return make_store_case(pool_of(equal_lens(8, 65536)), store_tokens::sequence, 65536); },
       {}},
      {"gather/b64_8k", gathers(lens), copy_share(0.92), 40.8},
      {"logits/8k1k_cc64_plain64", logits(lens, {}, 64, page_layout::plain),
       like(scenario, 1.05, read, "preshuffled + 5 %")},
      {"store/plain_64", stores(store_tokens::random, 64, page_layout::plain), at_most(1.8), 1.7},
      {"store/plain_1024", stores(store_tokens::random, 1024, page_layout::plain), {}, 2.2},
      {"store/plain_8192", stores(store_tokens::random, 8192, page_layout::plain), at_most(3.0),
       7.8},
      {"store/plain_65536", stores(store_tokens::random, 65536, page_layout::plain),
       copy_share(0.75), 42.3},
      {"logits/8k1k_cc64_plain1", logits(lens, {}, 1, page_layout::plain), {}},
      {"logits/8k1k_cc64_page16", logits(lens, {}, 16), {}},
      {"logits/8k1k_cc64_page256", logits(lens, {}, 256), {}},
      {"logits/b256_8k", logits(scenario_lens(256)), read_share(0.90), 79.6},
      {"logits/b16_8k", logits(scenario_lens(16)), at_most(7.5), 9.2},
      {"logits/b4_8k", logits(scenario_lens(4)), at_most(4.3), 5.15},
      {"logits/b16_32k", logits(equal_lens(16, 32768)), {}, 21.7},
      {"logits/b64_32k", logits(equal_lens(64, 32768)), read_share(0.90), 74.3},
      {"logits/b64_32k_n2", logits(equal_lens(64, 32768), rows(2)), {}, 78.9},
      {"logits/b64_128k", logits(equal_lens(64, 131072)), read_share(0.93), 282},
      {"logits/b1_128k", logits(equal_lens(1, 131072)), at_most(7.0), 8.45},
      {"gather/b1_128k", gathers(equal_lens(1, 131072)), at_most(10.5), 11.6},
      {"logits/mixed_128k_16x63", logits(mixed),
       like("logits/b1_128k", 1.10, read, "b1_128k + bytes + 10 %")},
      {"gather/b256_2k", gathers(uniform_lens(256, 1008, 3032)), copy_share(0.90), 41.1},
  };
}

double limit_of(const harness& cases, const sweep_row& row, const case_result& result) {
  return row.aim.limit && result.time.has_value() ? row.aim.limit(cases, result) : 0;
}

/// What the runtime's copy takes for the bytes of a store or gather; 0: unknown.
double copy_time(const case_result& result) {
  return result.size.flops > 0 ? 0 : copy_microseconds(result.size.bytes());
}

void print(const harness& cases, const std::vector<sweep_row>& rows_of_sweep) {
  std::FILE* const out = cases.text();
  std::fprintf(out,
               "\n%s. Medians of graph replays, page ids shuffled, inputs rotated over at least\n"
               "%lld MiB, outputs in one buffer. Ceilings in this run: read %.0f GB/s, copy %.0f "
               "GB/s, write %.0f GB/s.\n\n",
               device_name().c_str(), static_cast<long long>(rotation_bytes() >> 20),
               ceilings().read, ceilings().copy, ceilings().write);
  text_table table;
  table.add({"", "us", "rotated", "among reads", "overlapped", "GB/s", "of read", "of copy",
             "TFLOP/s", "memcpy us", "goal", "goal us", "", "peer us"});
  for (const sweep_row& row : rows_of_sweep) {
    const case_result* const result = cases.find(row.name);
    if (result == nullptr) continue;
    const double time = result->time->median;
    const double rate = result->gigabytes_per_second();
    const double limit = limit_of(cases, row, *result);
    const double copy = copy_time(*result);
    const auto median = [](const std::optional<timing>& of) {
      return of.has_value() ? text_of("%.2f", of->median) : "";
    };
    table.add({row.name, text_of("%.2f", time), median(result->rotated_outputs),
               result->among_reads.has_value() ? text_of("%.2f", *result->among_reads) : "",
               median(result->overlapped), text_of("%.0f", rate),
               text_of("%.0f %%", 100 * rate / ceilings().read),
               text_of("%.0f %%", 100 * rate / ceilings().copy),
               result->size.flops > 0 ? text_of("%.0f", result->size.flops / time * 1e-6) : "",
               copy > 0 ? text_of("%.2f", copy) : "", row.aim.text,
               limit > 0 ? text_of("%.2f", limit) : "",
               limit > 0 ? (time <= limit ? "met" : "missed") : "",
               row.peer > 0 ? text_of("%.2f", row.peer) : ""});
  }
  table.print(out);
  std::fprintf(out,
               "\nBytes: logits 132 a token, q, weights, 4 a logit; store 388 a token; gather 264 "
               "a token. memcpy: as many bytes by the runtime's own copy.\n"
               "rotated: outputs rotated as inputs are. among reads: what a launch adds to a graph "
               "in which %lld MiB of other memory are read before each.\n"
               "overlapped: the same launches in a graph with programmatic edges, where a launch "
               "begins while the one before it ends.\n",
               static_cast<long long>(reads_between_launches() >> 20));
  const case_result* const paged = cases.find("logits/8k1k_cc64");
  const case_result* const page1 = cases.find("logits/8k1k_cc64_plain1");
  if (paged != nullptr && page1 != nullptr) {
    std::fprintf(out, "Page 64 is %.2f times as fast as page 1.\n",
                 page1->time->median / paged->time->median);
  }
}

int run(int argc, char** argv) {
  if (kindex_test::is_emulated()) {
    std::fprintf(stderr,
                 "kindex_sweep measures times and shares of a GPU's memory ceiling; the emulator "
                 "has neither. kindex_bench counts there what the kernels do.\n");
    return 1;
  }
  harness cases(argc, argv);
  const std::vector<sweep_row> rows_of_sweep = all_rows();
  for (const sweep_row& row : rows_of_sweep) cases.add(row.name, row.make);
  cases.measure_variants();
  cases.extra_counters([&](const case_result& result) {
    counters numbers;
    for (const sweep_row& row : rows_of_sweep) {
      if (row.name != result.name || !result.time.has_value()) continue;
      const double limit = limit_of(cases, row, result);
      if (limit > 0) {
        numbers["goal_us"] = limit;
        numbers["goal_met"] = result.time->median <= limit ? 1 : 0;
      }
      if (row.peer > 0) numbers["peer_us"] = row.peer;
      if (result.size.flops > 0) {
        numbers["tflops"] = result.size.flops / result.time->median * 1e-6;
      }
      if (const double copy = copy_time(result); copy > 0) numbers["memcpy_us"] = copy;
    }
    return numbers;
  });
  const int status = cases.run();
  if (cases.results().empty()) return status;
  print(cases, rows_of_sweep);
  for (const case_result& result : cases.results()) {
    std::fprintf(cases.text(), "check: %s: %s\n", result.name.c_str(), result.verdict().c_str());
  }
  return status;
}

}  // namespace
}  // namespace kindex_bench

int main(int argc, char** argv) {
  try {
    return kindex_bench::run(argc, argv);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
