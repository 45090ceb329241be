// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// From plain pages of one token to preshuffled pages of 64: what an engine changes, that the logits
// stay the same bit by bit, and that a writer and a reader that disagree get an error, not wrong
// numbers.
#include <cstring>
#include <string>

#include "../example.hpp"

namespace {

using example::check;
using example::device_array;
using kindex::page_layout;

constexpr int head_dim = 128, num_heads = 64, num_tokens = 200;

/// Token t of the one sequence, dim d.
float k_value(int t, int d) { return static_cast<float>((3 * t + 5 * d) % 17 - 8); }

/// What changes. Before: 132 bytes a page, a slot is a page, a table entry for every token.
/// After: 8,448 bytes a page, the table is 64 times narrower. The rest of the program is the same
/// for both: it asks the page format.
template <kindex::fp8_format Format>
using pages_before = kindex::cache_geometry<1, page_layout::plain, Format, head_dim>;
template <kindex::fp8_format Format>
using pages_after = kindex::cache_geometry<64, page_layout::preshuffled, Format, head_dim>;

/// The tokens of one sequence in a cache of its own.
template <class Pages>
struct indexer {
  static constexpr int page_size = Pages::page_size;
  static constexpr int table_width = (num_tokens + page_size - 1) / page_size;
  static constexpr int num_pages = table_width + 3;

  /// Pages need not follow one another.
  static int page_of(int entry) { return (entry + 2) % num_pages; }
  static std::vector<std::int32_t> make_table() {
    std::vector<std::int32_t> table;
    for (int entry = 0; entry < table_width; ++entry) table.push_back(page_of(entry));
    return table;
  }
  /// slot = page * page_size + token: with page size 1 it was the page.
  static std::vector<std::int64_t> make_slots() {
    std::vector<std::int64_t> slots;
    for (int t = 0; t < num_tokens; ++t) {
      slots.push_back(std::int64_t{page_of(t / page_size)} * page_size + t % page_size);
    }
    return slots;
  }

  indexer()
      : memory(
            static_cast<std::size_t>(num_pages * kindex::page_payload_bytes(page_size, head_dim))),
        table(make_table()),
        slots(make_slots()),
        logits(num_tokens) {
    cache.data = memory.get();
    cache.num_pages = num_pages;
  }

  kindex::store_params store_call(const device_array<std::uint16_t>& k) const {
    kindex::store_params params;
    params.cache = cache;
    params.k = k.get();
    params.k_row_stride = head_dim;
    params.slots = slots.get();
    params.num_tokens = params.num_slots = num_tokens;
    return params;
  }

  kindex::paged_mqa_logits_params score_call(const device_array<std::uint8_t>& q,
                                             const device_array<float>& weights,
                                             const device_array<std::int32_t>& lens) const {
    kindex::paged_mqa_logits_params params;
    params.cache = cache;
    params.q = q.get();
    params.q_format = Pages::format;
    params.q_head_stride = head_dim;
    params.weights = weights.get();
    params.weights_row_stride = num_heads;
    params.context_lens = lens.get();
    params.block_table = table.get();
    params.block_table_stride = params.block_table_width = table_width;
    params.logits = logits.get();
    params.logits_row_stride = params.logits_width = num_tokens;
    params.num_seqs = 1;
    params.num_heads = num_heads;
    return params;
  }

  device_array<std::uint8_t> memory;
  device_array<std::int32_t> table;
  device_array<std::int64_t> slots;
  device_array<float> logits;
  kindex::typed_cache_view<Pages> cache;
};

template <class Pages>
using store_config = kindex::store_config<Pages, kindex::element_type::bf16>;

int wrong = 0;

void expect(bool holds, const char* what) {
  std::printf("%s: %s\n", what, holds ? "ok" : "WRONG");
  wrong += !holds;
}

template <kindex::fp8_format Format>
void run() {
  using before = pages_before<Format>;
  using after = pages_after<Format>;
  indexer<before> old_indexer;
  indexer<after> new_indexer;

  std::vector<std::uint16_t> k;
  for (int t = 0; t < num_tokens; ++t) {
    for (int d = 0; d < head_dim; ++d) k.push_back(example::to_bf16(k_value(t, d)));
  }
  std::vector<std::uint8_t> q;
  for (int i = 0; i < num_heads * head_dim; ++i) {
    q.push_back(kindex::fp8_encode(Format, i * 7 % 13 - 6));
  }
  std::vector<float> weights;
  for (int h = 0; h < num_heads; ++h) weights.push_back(static_cast<float>(h % 9 - 3) / 64);
  const device_array<std::uint16_t> device_k(k);
  const device_array<std::uint8_t> device_q(q);
  const device_array<float> device_weights(weights);
  const device_array<std::int32_t> lens(std::vector<std::int32_t>{num_tokens});
  hipStream_t stream;
  check(hipStreamCreate(&stream), "hipStreamCreate");

  // The same two calls before and after.
  const auto step = [&](auto& indexer, auto pages) {
    using format = decltype(pages);
    check(kindex::store<store_config<format>>(indexer.cache, indexer.store_call(device_k), stream),
          "store");
    check(kindex::paged_mqa_logits<example::logits_config<format>>(
              indexer.cache, indexer.score_call(device_q, device_weights, lens), stream),
          "paged_mqa_logits");
  };
  step(old_indexer, before{});
  step(new_indexer, after{});
  check(hipStreamSynchronize(stream), "hipStreamSynchronize");
  const std::vector<float> old_logits = old_indexer.logits.download();
  const std::vector<float> new_logits = new_indexer.logits.download();
  expect(std::memcmp(old_logits.data(), new_logits.data(), num_tokens * sizeof(float)) == 0,
         "page 1 plain and page 64 preshuffled give the same bits");

  // A reader with the old format on the new cache. With a typed view the compiler refuses it:
  //
  //   kindex::paged_mqa_logits<example::logits_config<before>>(new_indexer.cache, call, stream);
  //
  //   error: static assertion failed: kindex: the cache view's geometry (page size, layout, format,
  //   head_dim) is not the Config's
  //
  // With a view that exists at run time only, the call does.
  const kindex::paged_mqa_logits_params call =
      new_indexer.score_call(device_q, device_weights, lens);
  expect(kindex::paged_mqa_logits<example::logits_config<before>>(call, stream) ==
             hipErrorInvalidValue,
         "the reader of page 1 refuses the cache of page 64");

  // A view half of which is old: validate says what does not fit, and every call refuses it.
  kindex::store_params half = new_indexer.store_call(device_k);
  half.cache.page_size = 1;
  const kindex::validation one = kindex::validate(half);
  std::printf("validate: %s\n", one.reason);
  expect(one.status != hipSuccess && std::string(one.reason).find("page_size 1 ") == 0,
         "page size 1 with the preshuffled layout is refused");
  expect(kindex::store<store_config<after>>(half, stream) == one.status,
         "and by the call with the same status");
  half.cache.page_size = 64;
  half.cache.page_stride_bytes = 132;
  const kindex::validation stride = kindex::validate(half);
  std::printf("validate: %s\n", stride.reason);
  expect(stride.status == hipErrorInvalidValue, "a page stride of 132 bytes is refused");

  kindex::paged_mqa_logits_params mixed = call;
  mixed.q_format = Format == kindex::fp8_format::e4m3fnuz ? kindex::fp8_format::e4m3fn
                                                          : kindex::fp8_format::e4m3fnuz;
  const kindex::validation q_format = kindex::validate(mixed);
  std::printf("validate: %s\n", q_format.reason);
  expect(q_format.status == hipErrorInvalidValue, "q of the other fp8 format is refused");
  check(hipStreamDestroy(stream), "hipStreamDestroy");
}

}  // namespace

int main() {
  if (example::native_format() == kindex::fp8_format::e4m3fnuz) {
    run<kindex::fp8_format::e4m3fnuz>();
  } else {
    run<kindex::fp8_format::e4m3fn>();
  }
  return wrong == 0 ? 0 : 1;
}
