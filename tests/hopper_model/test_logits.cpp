// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The Hopper kernel of the logits on a model of the machine: exact data against the reference, in
// orders of execution drawn from seeds. What the device tests show on a GPU, as far as it goes
// without.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <kindex/paged_mqa_logits.hpp>
#include <kindex/reference.hpp>

#include "catch.hpp"

namespace {

// ThreadSanitizer takes its time, and does not depend on the order so much.
#ifdef __SANITIZE_THREAD__
constexpr std::uint64_t num_seeds = 1;
#else
constexpr std::uint64_t num_seeds = 3;
#endif

int num_multiprocessors = 1;
std::uint64_t seed = 1;
std::map<const void*, std::function<void(unsigned, unsigned, std::size_t, void*)>> kernels;

// Kernels that the launcher may ask for: their bodies with the types that a pointer forgets.
template <class Config>
void make_known() {
  using kernel_config = typename Config::kernel_config;
  using args_type = kindex::detail::logits_args<Config::geometry::page_size>;
  using engine_type = kindex::detail::target::unit_engine<kernel_config>;
  const auto kernel = &kindex::detail::paged_mqa_logits_kernel<kernel_config, args_type>;
  kernels[reinterpret_cast<const void*>(kernel)] = [](unsigned num_blocks, unsigned block_size,
                                                      std::size_t bytes, void* argument) {
    const auto& args = *static_cast<const args_type*>(argument);
    static typename engine_type::shared_state state;
    hopper_model::run_grid(num_blocks, block_size, bytes, seed, [&](char* dynamic_shared) {
      kindex::detail::run_logits_block<kernel_config>(args, dynamic_shared, state);
    });
  };
}

template <int PageSize, kindex::page_layout Layout, int HeadDim, int Heads>
using model_config = kindex::paged_mqa_logits_config<
    kindex::cache_geometry<PageSize, Layout, kindex::fp8_format::e4m3fn, HeadDim>,
    kindex::query_source::shared, Heads>;

// A cache of so many pages, without its data.
template <int PageSize, kindex::page_layout Layout, int HeadDim>
kindex::cache_view cache_of(std::int64_t num_pages) {
  kindex::cache_view cache;
  cache.num_pages = num_pages;
  cache.page_size = PageSize;
  cache.head_dim = HeadDim;
  cache.layout = Layout;
  cache.format = kindex::fp8_format::e4m3fn;
  cache.page_stride_bytes = kindex::page_payload_bytes(PageSize, HeadDim);
  return cache;
}

struct shape {
  int next_n;
  int num_heads;
  std::vector<std::int32_t> lens;
};

// "" or what is wrong.
template <int PageSize, kindex::page_layout Layout, int HeadDim, int Heads>
std::string check(const shape& s) {
  using config = model_config<PageSize, Layout, HeadDim, Heads>;
  make_known<config>();
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto small = [&] {  // 0, or 1 to 4 with a sign: sums stay exact
    static constexpr std::uint8_t bytes[] = {0x00, 0x38, 0x40, 0x44, 0x48, 0xB8, 0xC0, 0xC4};
    return bytes[random() % 8];
  };
  const auto num_seqs = static_cast<std::int64_t>(s.lens.size());
  const std::int32_t longest = *std::max_element(s.lens.begin(), s.lens.end());
  kindex::paged_mqa_logits_params params;
  params.block_table_width = std::max((longest + PageSize - 1) / PageSize, 1);
  params.block_table_stride = params.block_table_width + 3;
  std::vector<std::int32_t> table(static_cast<std::size_t>(num_seqs * params.block_table_stride),
                                  0x7FFFFFFF);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_seqs * params.block_table_width) + 5);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  std::shuffle(ids.begin(), ids.end(), random);

  kindex::cache_view& cache = params.cache;
  cache = cache_of<PageSize, Layout, HeadDim>(static_cast<std::int64_t>(ids.size()));
  // Vectors begin at multiples of 16, as the contract wants it.
  std::vector<std::uint8_t> data(
      static_cast<std::size_t>(cache.num_pages * cache.page_stride_bytes), 0x7F);
  cache.data = data.data();
  std::size_t next_id = 0;
  for (std::int64_t seq = 0; seq < num_seqs; ++seq) {
    for (std::int32_t t = 0; t < s.lens[static_cast<std::size_t>(seq)]; ++t) {
      std::int32_t& entry =
          table[static_cast<std::size_t>(seq * params.block_table_stride + t / PageSize)];
      // Now and then a page that is not there.
      if (t % PageSize == 0) entry = random() % 16 == 0 ? -1 : ids[next_id++];
      if (entry < 0) continue;
      std::uint8_t* const page = data.data() + entry * cache.page_stride_bytes;
      for (int dim = 0; dim < HeadDim; ++dim) {
        page[kindex::k_offset_in_page(Layout, HeadDim, t % PageSize, dim)] = small();
      }
      for (int g = 0; g < kindex::scales_per_token(HeadDim); ++g) {
        const float scale = static_cast<float>(1u << random() % 4) / 8;
        std::memcpy(page + kindex::scale_offset_in_page(PageSize, HeadDim, t % PageSize, g), &scale,
                    4);
      }
    }
  }
  // Heads, rows and sequences next to each other, or with something between.
  const std::int64_t gap = seed % 3 == 2 ? 16 : 0;
  params.q_head_stride = HeadDim + gap;
  params.q_next_n_stride = s.num_heads * params.q_head_stride + gap;
  params.q_batch_stride = s.next_n * params.q_next_n_stride + gap;
  std::vector<std::uint8_t> q(static_cast<std::size_t>(num_seqs * params.q_batch_stride));
  for (std::uint8_t& byte : q) byte = small();
  std::vector<float> weights(static_cast<std::size_t>(num_seqs * s.next_n * s.num_heads));
  for (float& w : weights) w = static_cast<float>(static_cast<int>(random() % 9) - 4) / 4;
  params.q = q.data();
  params.q_format = cache.format;
  params.weights = weights.data();
  params.weights_row_stride = s.num_heads;
  params.context_lens = s.lens.data();
  params.block_table = table.data();
  params.num_seqs = num_seqs;
  params.next_n = s.next_n;
  params.num_heads = s.num_heads;
  params.logits_width = longest + 9;
  params.logits_row_stride = params.logits_width + 7;
  params.fill = seed % 2 == 0 ? kindex::fill::none : kindex::fill::neg_infinity;
  std::vector<float> expected(
      static_cast<std::size_t>(num_seqs * s.next_n * params.logits_row_stride), 12345.0f);
  std::vector<float> actual = expected;
  params.logits = expected.data();
  kindex::reference::paged_mqa_logits(params);
  params.logits = actual.data();
  try {
    if (kindex::paged_mqa_logits<config>(params, nullptr) != hipSuccess) return "refused";
  } catch (const hopper_model::fault& fault) {
    return fault.what();
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    return "row " + std::to_string(i / static_cast<std::size_t>(params.logits_row_stride)) +
           ", column " + std::to_string(i % static_cast<std::size_t>(params.logits_row_stride)) +
           ": " + std::to_string(actual[i]) + ", not " + std::to_string(expected[i]);
  }
  return "";
}

template <int PageSize, kindex::page_layout Layout, int HeadDim, int Heads>
void expect_reference(const shape& s) {
  std::string lens;
  for (const std::int32_t len : s.lens) lens += " " + std::to_string(len);
  INFO("P=" << PageSize << " " << kindex::to_string(Layout) << " D=" << HeadDim << " N=" << s.next_n
            << " H=" << s.num_heads << " seed " << seed << " on " << num_multiprocessors
            << ", lengths" << lens);
  CHECK(check<PageSize, Layout, HeadDim, Heads>(s) == "");
}

constexpr auto plain = kindex::page_layout::plain;
constexpr auto preshuffled = kindex::page_layout::preshuffled;

TEST_CASE("Hopper model: every way of K, one block and several", "[hopper_model]") {
  const std::vector<std::int32_t> lens = {700, 0, 1, 130, 64, 65, 300};
  for (seed = 1; seed <= num_seeds; ++seed) {
    for (num_multiprocessors = 1; num_multiprocessors <= 3; num_multiprocessors += 2) {
      expect_reference<64, preshuffled, 128, 64>({1, 64, lens});
      expect_reference<64, preshuffled, 128, 32>({3, 32, lens});
      expect_reference<16, preshuffled, 128, 16>({2, 48, lens});
      expect_reference<32, preshuffled, 64, 16>({1, 16, lens});
      expect_reference<128, preshuffled, 64, 16>({2, 16, lens});
      expect_reference<64, plain, 128, 16>({1, 16, lens});
      expect_reference<16, plain, 64, 8>({3, 8, lens});
      expect_reference<1, plain, 128, 16>({1, 16, lens});
      expect_reference<64, preshuffled, 256, 16>({2, 16, lens});
      expect_reference<64, plain, 256, 16>({2, 16, lens});
    }
  }
}

TEST_CASE("Hopper model: more rows than shared memory holds, more logits than wait",
          "[hopper_model]") {
  num_multiprocessors = 1;
  for (seed = 4; seed <= 5; ++seed) {
    expect_reference<64, preshuffled, 256, 32>({8, 128, {200, 70}});
    expect_reference<64, preshuffled, 256, 8>({23, 8, {70}});
    expect_reference<64, preshuffled, 64, 16>({1, 16, {7000, 50}});
    expect_reference<64, preshuffled, 128, 64>({8, 128, {1500}});
  }
}

TEST_CASE("Hopper model: blocks that end with the beginning of a sequence, or have no work",
          "[hopper_model]") {
  num_multiprocessors = 3;
  for (seed = 1; seed <= 2; ++seed) {
    expect_reference<64, preshuffled, 128, 64>({1, 64, {64, 448}});
    expect_reference<1, plain, 128, 16>({1, 16, {64, 448}});
    expect_reference<64, preshuffled, 128, 64>({1, 64, {1, 0, 0, 0, 0}});
    expect_reference<64, preshuffled, 128, 64>({2, 64, {0, 2, 0}});
  }
}

TEST_CASE("Hopper model: batches whose lengths are counted in several steps", "[hopper_model]") {
  num_multiprocessors = 7;
  for (const int num_seqs : {40, 65, 2100}) {
    std::vector<std::int32_t> lens(static_cast<std::size_t>(num_seqs));
    for (std::size_t i = 0; i < lens.size(); i += i < 60 ? 1 : 61) lens[i] = i % 3 == 0 ? 70 : 9;
    lens.back() = 130;
    for (seed = 1; seed <= 2; ++seed) expect_reference<16, preshuffled, 64, 8>({1, 8, lens});
  }
}

// Logits of one sequence whose data are what they may be, so that their sums are rounded.
template <int PageSize, kindex::page_layout Layout, int HeadDim, int Heads>
std::vector<float> rounded_logits() {
  using config = model_config<PageSize, Layout, HeadDim, Heads>;
  make_known<config>();
  const auto any_finite = [](unsigned of, unsigned index) {
    std::mt19937 random(of * 0x9E3779B9u + index);
    const auto byte = static_cast<std::uint8_t>(random());
    return (byte & 0x7F) == 0x7F ? std::uint8_t{0} : byte;
  };
  constexpr std::int32_t num_tokens = 140;
  const std::int32_t pages = (num_tokens + PageSize - 1) / PageSize;
  std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
  for (std::int32_t i = 0; i < pages; ++i) table[static_cast<std::size_t>(i)] = pages - 1 - i;
  kindex::paged_mqa_logits_params params;
  kindex::cache_view& cache = params.cache;
  cache = cache_of<PageSize, Layout, HeadDim>(pages);
  std::vector<std::uint8_t> data(static_cast<std::size_t>(pages * cache.page_stride_bytes));
  cache.data = data.data();
  for (std::int32_t t = 0; t < num_tokens; ++t) {
    std::uint8_t* const page =
        data.data() + table[static_cast<std::size_t>(t / PageSize)] * cache.page_stride_bytes;
    for (int dim = 0; dim < HeadDim; ++dim) {
      page[kindex::k_offset_in_page(Layout, HeadDim, t % PageSize, dim)] =
          any_finite(static_cast<unsigned>(t), static_cast<unsigned>(dim));
    }
    const float scale = 1.0f / static_cast<float>(t + 1);
    for (int g = 0; g < kindex::scales_per_token(HeadDim); ++g) {
      std::memcpy(page + kindex::scale_offset_in_page(PageSize, HeadDim, t % PageSize, g), &scale,
                  4);
    }
  }
  std::vector<std::uint8_t> q(Heads * HeadDim);
  std::vector<float> weights(Heads);
  for (unsigned i = 0; i < q.size(); ++i) q[i] = any_finite(1000, i);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 1.0f / static_cast<float>(i + 3);
  params.q = q.data();
  params.q_format = cache.format;
  params.q_head_stride = HeadDim;
  params.q_next_n_stride = params.q_batch_stride = Heads * HeadDim;
  params.weights = weights.data();
  params.weights_row_stride = Heads;
  params.context_lens = &num_tokens;
  params.block_table = table.data();
  params.block_table_width = params.block_table_stride = pages;
  params.num_seqs = params.next_n = 1;
  params.num_heads = Heads;
  params.logits_width = params.logits_row_stride = num_tokens;
  std::vector<float> logits(num_tokens);
  params.logits = logits.data();
  CHECK(kindex::paged_mqa_logits<config>(params, nullptr) == hipSuccess);
  return logits;
}

template <int HeadDim>
void expect_same_bits() {
  const std::vector<float> expected = rounded_logits<64, preshuffled, HeadDim, 16>();
  INFO("D=" << HeadDim);
  CHECK((rounded_logits<16, preshuffled, HeadDim, 16>() == expected));
  CHECK((rounded_logits<32, preshuffled, HeadDim, 16>() == expected));
  CHECK((rounded_logits<64, plain, HeadDim, 16>() == expected));
  CHECK((rounded_logits<16, plain, HeadDim, 16>() == expected));
  CHECK((rounded_logits<1, plain, HeadDim, 16>() == expected));
}

TEST_CASE("Hopper model: rounded sums, the same in every layout and page size", "[hopper_model]") {
  num_multiprocessors = 2;
  seed = 1;
  expect_same_bits<64>();
  expect_same_bits<128>();
  expect_same_bits<256>();
}

TEST_CASE("Hopper model: long pieces from within a page", "[hopper_model]") {
  num_multiprocessors = 2;
  for (seed = 6; seed <= 9; ++seed) {
    expect_reference<128, preshuffled, 64, 8>({1, 8, {(136 + static_cast<int>(seed)) * 64 - 5}});
  }
}

TEST_CASE("Hopper model: K is dropped from L2 first where the logits fit it", "[hopper_model]") {
  using kindex::detail::sm90::bytes_copied;
  using kindex::detail::sm90::l2_keeps_logits;
  num_multiprocessors = 2;
  for (seed = 2; seed <= 3; ++seed) {
    for (auto& bytes : bytes_copied) bytes = 0;
    // A few of the 20 pages may not be there.
    expect_reference<64, preshuffled, 128, 64>({1, 64, {640, 640}});
    const bool fills = seed % 2 != 0;
    CHECK((bytes_copied[0] > 10 * 64 * 132) == fills);
    CHECK((bytes_copied[1] > 10 * 64 * 132) == !fills);
  }
  CHECK(l2_keeps_logits(24 * 4096, 1));
  CHECK_FALSE(l2_keeps_logits(24 * 4096 + 1, 1));
  CHECK(l2_keeps_logits(24 * 64, 64));
  CHECK_FALSE(l2_keeps_logits(0xFFFFFFFF, 64));
}

}  // namespace

// What the kernel itself calls its shared memory; the bodies above are given theirs.
KINDEX_NAMESPACE_BEGIN
namespace detail {
char dynamic_shared[1];
}
KINDEX_NAMESPACE_END

hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int) {
  *value = attribute == hipDeviceAttributeMultiprocessorCount      ? num_multiprocessors
           : attribute == hipDeviceAttributeComputeCapabilityMajor ? 9
                                                                   : 0;
  return hipSuccess;
}
hipError_t hipFuncSetAttribute(const void*, hipFuncAttribute, int) { return hipSuccess; }
hipError_t hipLaunchKernel(const void* kernel, dim3 num_blocks, dim3 block_size, void** arguments,
                           std::size_t dynamic_shared_bytes, hipStream_t) {
  kernels.at(kernel)(num_blocks.x, block_size.x, dynamic_shared_bytes, arguments[0]);
  return hipSuccess;
}
