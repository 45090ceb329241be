// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Every refusal by its message and status, each from a call that is valid but for one value.

#include <cstdint>
#include <kindex/validate.hpp>
#include <limits>
#include <string>

#include "catch.hpp"

namespace {

using kindex::fp8_format;
using kindex::page_layout;
using kindex::validate;

constexpr std::int64_t int32_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t int64_max = std::numeric_limits<std::int64_t>::max();

// What frameworks may leave in the stride of a dimension of one.
constexpr std::int64_t meaningless_strides[] = {
    0, 1, 7, -1, -128, int64_max, std::numeric_limits<std::int64_t>::min()};

// Validation looks at addresses only; nothing below is dereferenced.
alignas(16) unsigned char memory[64];

template <class T>
T* at(int offset) {
  return reinterpret_cast<T*>(memory + offset);
}

kindex::cache_view valid_cache() {
  kindex::cache_view cache;
  cache.data = memory;
  cache.num_pages = 100;
  cache.page_stride_bytes = 8448;
  cache.page_size = 64;
  cache.head_dim = 128;
  cache.layout = page_layout::preshuffled;
  cache.format = fp8_format::e4m3fnuz;
  return cache;
}

kindex::store_params valid_store() {
  kindex::store_params params;
  params.cache = valid_cache();
  params.k = memory;
  params.k_row_stride = 128;
  params.num_tokens = 5;
  params.slots = at<const std::int64_t>(0);
  params.num_slots = 5;
  return params;
}

kindex::gather_params valid_gather() {
  kindex::gather_params params;
  params.cache = valid_cache();
  params.block_table = at<const std::int32_t>(0);
  params.block_table_stride = 7;
  params.block_table_width = 7;
  params.cu_seq_lens = at<const std::int32_t>(0);
  params.num_seqs = 3;
  params.dst_k = memory;
  params.dst_k_stride_bytes = 128;
  params.dst_scale = at<float>(0);
  params.dst_scale_stride = 1;
  params.num_tokens = 1000;
  return params;
}

kindex::paged_mqa_logits_params valid_logits() {
  kindex::paged_mqa_logits_params params;
  params.cache = valid_cache();
  params.q = memory;
  params.q_format = fp8_format::e4m3fnuz;
  params.q_batch_stride = 2 * 64 * 128;
  params.q_next_n_stride = 64 * 128;
  params.q_head_stride = 128;
  params.weights = at<const float>(0);
  params.weights_row_stride = 64;
  params.context_lens = at<const std::int32_t>(0);
  params.block_table = at<const std::int32_t>(0);
  params.block_table_stride = 7;
  params.block_table_width = 7;
  params.logits = at<float>(0);
  params.logits_row_stride = 448;
  params.logits_width = 448;
  params.num_seqs = 3;
  params.next_n = 2;
  params.num_heads = 64;
  return params;
}

template <class Params>
void check_accepted(const Params& params) {
  const kindex::validation verdict = validate(params);
  CHECK(std::string(verdict.reason) == "");
  CHECK(verdict.status == hipSuccess);
  CHECK(verdict.ok());
}

template <class Params>
void check_refused(const Params& params, hipError_t status, const std::string& reason) {
  const kindex::validation verdict = validate(params);
  CHECK(std::string(verdict.reason) == reason);
  CHECK(verdict.status == status);
  CHECK_FALSE(verdict.ok());
}

// The address in a message as printf writes it.
std::string printed(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

// Applies one change to the cache of each operation: geometry is everybody's.
template <class Change>
void check_cache_refused(Change change, hipError_t status, const std::string& reason) {
  auto store = valid_store();
  auto gather = valid_gather();
  auto logits = valid_logits();
  change(store.cache);
  change(gather.cache);
  change(logits.cache);
  logits.q_format = logits.cache.format;
  check_refused(store, status, reason);
  check_refused(gather, status, reason);
  check_refused(logits, status, reason);
}

template <class Change>
void check_cache_accepted(Change change) {
  auto store = valid_store();
  auto gather = valid_gather();
  auto logits = valid_logits();
  change(store.cache);
  change(gather.cache);
  change(logits.cache);
  gather.dst_k_stride_bytes = 256;
  gather.dst_scale_stride = 2;
  store.k_row_stride = 256;
  logits.q_head_stride = 256;
  logits.q_format = logits.cache.format;
  check_accepted(store);
  check_accepted(gather);
  check_accepted(logits);
}

template <class Params, class Change>
void check_change_refused(Params params, Change change, hipError_t status,
                          const std::string& reason) {
  change(params);
  check_refused(params, status, reason);
}

template <class Params, class Change>
void check_change_accepted(Params params, Change change) {
  change(params);
  check_accepted(params);
}

constexpr hipError_t invalid = hipErrorInvalidValue;
constexpr hipError_t unsupported = hipErrorNotSupported;

}  // namespace

TEST_CASE("valid calls are accepted", "[validate]") {
  check_accepted(valid_store());
  check_accepted(valid_gather());
  check_accepted(valid_logits());
}

TEST_CASE("every supported geometry is accepted", "[validate][class_N]") {
  for (const int page_size : {1, 16, 32, 48, 64, 80, 96, 112, 128, 144, 256, 512, 4096, 65536}) {
    for (const int head_dim : {64, 128, 256}) {
      for (const auto layout : {page_layout::plain, page_layout::preshuffled}) {
        for (const auto format : {fp8_format::e4m3fnuz, fp8_format::e4m3fn}) {
          if (page_size == 1 && layout == page_layout::preshuffled) continue;
          check_cache_accepted([&](kindex::cache_view& cache) {
            cache.page_size = page_size;
            cache.head_dim = head_dim;
            cache.layout = layout;
            cache.format = format;
            cache.page_stride_bytes = kindex::page_payload_bytes(page_size, head_dim);
          });
        }
      }
    }
  }
}

TEST_CASE("page sizes", "[validate][class_B][class_N]") {
  using view = kindex::cache_view;
  check_cache_refused([](view& cache) { cache.page_size = 24; }, unsupported,
                      "page_size 24 is not a multiple of 16 (preshuffled layout)");
  check_cache_refused([](view& cache) { cache.page_size = 1; }, unsupported,
                      "page_size 1 is not a multiple of 16 (preshuffled layout)");
  check_cache_refused([](view& cache) { cache.page_size = 63; }, unsupported,
                      "page_size 63 is not a multiple of 16 (preshuffled layout)");
  const auto plain = [](int page_size) {
    return [page_size](view& cache) {
      cache.layout = page_layout::plain;
      cache.page_size = page_size;
    };
  };
  check_cache_refused(plain(24), unsupported,
                      "page_size 24 is neither 1 nor a multiple of 16 (plain layout)");
  check_cache_refused(plain(2), unsupported,
                      "page_size 2 is neither 1 nor a multiple of 16 (plain layout)");
  check_cache_refused(plain(8), unsupported,
                      "page_size 8 is neither 1 nor a multiple of 16 (plain layout)");
  check_cache_refused(plain(0), invalid, "page_size 0 is not positive");
  check_cache_refused([](view& cache) { cache.page_size = 0; }, invalid,
                      "page_size 0 is not positive");
  check_cache_refused([](view& cache) { cache.page_size = -64; }, invalid,
                      "page_size -64 is not positive");
  check_cache_refused([](view& cache) { cache.page_size = 65552; }, unsupported,
                      "page_size 65552 exceeds 65536");
}

TEST_CASE("head dimensions", "[validate][class_N]") {
  for (const int head_dim : {1, 16, 32, 96, 127, 192, 512}) {
    check_cache_refused([=](kindex::cache_view& cache) { cache.head_dim = head_dim; }, unsupported,
                        "head_dim " + std::to_string(head_dim) + " is not 64, 128 or 256");
  }
  check_cache_refused([](kindex::cache_view& cache) { cache.head_dim = 0; }, invalid,
                      "head_dim 0 is not positive");
  check_cache_refused([](kindex::cache_view& cache) { cache.head_dim = -128; }, invalid,
                      "head_dim -128 is not positive");
}

TEST_CASE("page strides", "[validate][class_K]") {
  using view = kindex::cache_view;
  check_cache_accepted([](view& cache) { cache.page_stride_bytes = 8448 + 64; });
  check_cache_accepted([](view& cache) { cache.page_stride_bytes = 8448 + 16; });
  check_cache_accepted([](view& cache) { cache.page_stride_bytes = 1002240; });
  check_cache_refused([](view& cache) { cache.page_stride_bytes = 8432; }, invalid,
                      "page_stride_bytes 8432 is below the page payload of 8448 bytes (page_size "
                      "64, head_dim 128)");
  check_cache_refused([](view& cache) { cache.page_stride_bytes = 0; }, invalid,
                      "page_stride_bytes 0 is below the page payload of 8448 bytes (page_size 64, "
                      "head_dim 128)");
  check_cache_refused([](view& cache) { cache.page_stride_bytes = -8448; }, invalid,
                      "page_stride_bytes -8448 is below the page payload of 8448 bytes (page_size "
                      "64, head_dim 128)");
  check_cache_refused([](view& cache) { cache.page_stride_bytes = 8452; }, invalid,
                      "page_stride_bytes 8452 is not a multiple of 16");
  // Part of the format, which a writer and a reader must agree on: not a framework's stride, and
  // checked for a single page as well.
  check_cache_refused(
      [](view& cache) {
        cache.num_pages = 1;
        cache.page_stride_bytes = 0;
      },
      invalid,
      "page_stride_bytes 0 is below the page payload of 8448 bytes (page_size 64, head_dim 128)");
  const auto token_page = [](std::int64_t stride) {
    return [stride](view& cache) {
      cache.layout = page_layout::plain;
      cache.page_size = 1;
      cache.page_stride_bytes = stride;
    };
  };
  check_cache_accepted([](view& cache) {
    cache.layout = page_layout::plain;
    cache.page_size = 1;
    cache.page_stride_bytes = 136;
  });
  check_cache_refused(token_page(134), invalid, "page_stride_bytes 134 is not a multiple of 4");
  check_cache_refused(token_page(128), invalid,
                      "page_stride_bytes 128 is below the page payload of 132 bytes (page_size 1, "
                      "head_dim 128)");
}

TEST_CASE("numbers of pages", "[validate][class_A]") {
  using view = kindex::cache_view;
  check_cache_accepted([](view& cache) { cache.num_pages = 0; });
  check_cache_accepted([](view& cache) { cache.num_pages = int32_max; });
  check_cache_accepted([](view& cache) { cache.num_pages = (std::int64_t{1} << 32) - 1; });
  check_cache_refused([](view& cache) { cache.num_pages = -1; }, invalid,
                      "num_pages -1 is negative");
  check_cache_refused([](view& cache) { cache.num_pages = std::int64_t{1} << 32; }, invalid,
                      "num_pages 4294967296 exceeds 4294967295");
  check_cache_refused([](view& cache) { cache.num_pages = int64_max; }, invalid,
                      "num_pages 9223372036854775807 exceeds 4294967295");
  const auto largest_pages = [](std::int64_t num_pages) {
    return [num_pages](view& cache) {
      cache.page_size = 65536;
      cache.page_stride_bytes = 65536 * 132;
      cache.num_pages = num_pages;
    };
  };
  check_cache_accepted(largest_pages(std::int64_t{1} << 31));
  check_cache_refused(largest_pages((std::int64_t{1} << 31) + 1), invalid,
                      "num_pages 2147483649 times page_size 65536 exceeds 2^47 tokens");
  check_cache_refused(
      [](view& cache) {
        cache.num_pages = std::int64_t{1} << 31;
        cache.page_stride_bytes = std::int64_t{1} << 32;
      },
      invalid, "page_stride_bytes 4294967296 times 2147483648 rows does not fit in 64 bits");
}

TEST_CASE("base of the cache", "[validate][class_K]") {
  using view = kindex::cache_view;
  check_cache_refused([](view& cache) { cache.data = nullptr; }, invalid, "cache.data is null");
  check_cache_refused([](view& cache) { cache.data = memory + 8; }, invalid,
                      "cache.data " + printed(memory + 8) + " is not aligned to 16 bytes");
  check_cache_accepted([](view& cache) {
    cache.data = nullptr;
    cache.num_pages = 0;
  });
  const auto token_page = [](int offset) {
    return [offset](view& cache) {
      cache.layout = page_layout::plain;
      cache.page_size = 1;
      cache.page_stride_bytes = 132;
      cache.data = memory + offset;
    };
  };
  check_change_accepted(valid_store(), [&](auto& params) { token_page(4)(params.cache); });
  check_change_accepted(valid_gather(), [&](auto& params) { token_page(4)(params.cache); });
  check_change_accepted(valid_logits(), [&](auto& params) { token_page(4)(params.cache); });
  check_cache_refused(token_page(2), invalid,
                      "cache.data " + printed(memory + 2) + " is not aligned to 4 bytes");
}

TEST_CASE("enumerators that came through a cast", "[validate][class_N]") {
  check_cache_refused([](auto& cache) { cache.layout = static_cast<page_layout>(2); }, invalid,
                      "cache.layout 2 is not an enumerator");
  check_cache_refused([](auto& cache) { cache.format = static_cast<fp8_format>(9); }, invalid,
                      "cache.format 9 is not an enumerator");
  check_change_refused(
      valid_store(), [](auto& params) { params.k_type = static_cast<kindex::element_type>(3); },
      invalid, "k_type 3 is not an enumerator");
  check_change_refused(
      valid_store(), [](auto& params) { params.rounding = static_cast<kindex::scale_rounding>(2); },
      invalid, "rounding 2 is not an enumerator");
  check_change_refused(
      valid_store(),
      [](auto& params) { params.division = static_cast<kindex::quant_division>(255); }, invalid,
      "division 255 is not an enumerator");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_format = static_cast<fp8_format>(2); }, invalid,
      "q_format 2 is not an enumerator");
  check_change_refused(
      valid_logits(),
      [](auto& params) { params.context_lens_shape = static_cast<kindex::lens_shape>(2); }, invalid,
      "context_lens_shape 2 is not an enumerator");
  check_change_refused(
      valid_logits(), [](auto& params) { params.fill = static_cast<kindex::fill>(7); }, invalid,
      "fill 7 is not an enumerator");
}

TEST_CASE("the first reason is the one given", "[validate]") {
  auto params = valid_store();
  params.cache.page_size = 24;
  params.cache.head_dim = 96;
  params.k = nullptr;
  check_refused(params, unsupported, "page_size 24 is not a multiple of 16 (preshuffled layout)");
}

TEST_CASE("store: options", "[validate][class_J][class_N]") {
  for (const float quant_max : {0.0f, 224.0f, 240.0f}) {
    check_change_accepted(valid_store(), [=](auto& params) { params.quant_max = quant_max; });
  }
  const auto fn = [](float quant_max) {
    return [quant_max](kindex::store_params& params) {
      params.cache.format = fp8_format::e4m3fn;
      params.quant_max = quant_max;
    };
  };
  check_change_accepted(valid_store(), fn(0));
  check_change_accepted(valid_store(), fn(448));
  check_change_refused(valid_store(), fn(224), invalid, "quant_max 224 is not 0 or 448 (e4m3fn)");
  check_change_refused(valid_store(), fn(240), invalid, "quant_max 240 is not 0 or 448 (e4m3fn)");
  const auto fnuz = [](float quant_max) {
    return [quant_max](kindex::store_params& params) { params.quant_max = quant_max; };
  };
  check_change_refused(valid_store(), fnuz(448), invalid,
                       "quant_max 448 is not 0, 224 or 240 (e4m3fnuz)");
  check_change_refused(valid_store(), fnuz(-240), invalid,
                       "quant_max -240 is not 0, 224 or 240 (e4m3fnuz)");
  check_change_refused(valid_store(), fnuz(239.5f), invalid,
                       "quant_max 239.5 is not 0, 224 or 240 (e4m3fnuz)");
  check_change_refused(valid_store(), fnuz(std::numeric_limits<float>::infinity()), invalid,
                       "quant_max inf is not 0, 224 or 240 (e4m3fnuz)");
  const kindex::validation verdict = [&] {
    auto params = valid_store();
    params.quant_max = std::numeric_limits<float>::quiet_NaN();
    return validate(params);
  }();
  CHECK(verdict.status == invalid);
  CHECK(std::string(verdict.reason).find("is not 0, 224 or 240") != std::string::npos);
}

TEST_CASE("store: counts", "[validate]") {
  check_change_refused(
      valid_store(), [](auto& params) { params.num_tokens = -1; }, invalid,
      "num_tokens -1 is negative");
  check_change_refused(
      valid_store(), [](auto& params) { params.num_slots = -2; }, invalid,
      "num_slots -2 is negative");
  check_change_refused(
      valid_store(), [](auto& params) { params.num_tokens = int32_max + 1; }, invalid,
      "num_tokens 2147483648 exceeds 2147483647");
  check_change_refused(
      valid_store(), [](auto& params) { params.num_slots = int32_max + 1; }, invalid,
      "num_slots 2147483648 exceeds 2147483647");
  check_change_refused(
      valid_store(),
      [](auto& params) {
        params.num_tokens = int32_max;
        params.num_slots = (1 << 27) + 1;
      },
      unsupported, "min(num_tokens, num_slots) 134217729 exceeds 134217728");
  check_change_accepted(valid_store(), [](auto& params) {
    params.num_tokens = int32_max;
    params.num_slots = 1 << 27;
  });
  check_change_accepted(valid_store(), [](auto& params) { params.num_slots = 3; });
  check_change_accepted(valid_store(), [](auto& params) { params.num_tokens = 3; });
}

TEST_CASE("store: pointers and strides", "[validate][class_A][class_K]") {
  using kindex::element_type;
  check_change_refused(
      valid_store(), [](auto& params) { params.k = nullptr; }, invalid, "k is null");
  check_change_refused(
      valid_store(), [](auto& params) { params.slots = nullptr; }, invalid, "slots is null");
  check_change_refused(
      valid_store(), [](auto& params) { params.k_row_stride = 127; }, invalid,
      "k_row_stride 127 is below head_dim 128");
  check_change_refused(
      valid_store(), [](auto& params) { params.k_row_stride = -128; }, invalid,
      "k_row_stride -128 is below head_dim 128");
  check_change_refused(
      valid_store(), [](auto& params) { params.k_row_stride = int64_max; }, invalid,
      "k_row_stride 9223372036854775807 times 5 rows does not fit in 64 bits");
  for (const std::int64_t stride : {128, 129, 192, 1 << 20}) {
    check_change_accepted(valid_store(), [=](auto& params) { params.k_row_stride = stride; });
  }
  // A slice of a wider tensor: aligned to its element only.
  for (const auto type : {element_type::bf16, element_type::fp16}) {
    check_change_accepted(valid_store(), [=](auto& params) {
      params.k_type = type;
      params.k = memory + 6;
    });
    check_change_refused(
        valid_store(),
        [=](auto& params) {
          params.k_type = type;
          params.k = memory + 3;
        },
        invalid, "k " + printed(memory + 3) + " is not aligned to 2 bytes");
  }
  check_change_accepted(valid_store(), [](auto& params) {
    params.k_type = element_type::fp32;
    params.k = memory + 4;
  });
  check_change_refused(
      valid_store(),
      [](auto& params) {
        params.k_type = element_type::fp32;
        params.k = memory + 2;
      },
      invalid, "k " + printed(memory + 2) + " is not aligned to 4 bytes");
  check_change_accepted(valid_store(),
                        [](auto& params) { params.slots = at<const std::int32_t>(4); });
  check_change_refused(
      valid_store(), [](auto& params) { params.slots = at<const std::int64_t>(4); }, invalid,
      "slots " + printed(memory + 4) + " is not aligned to 8 bytes");
  check_change_refused(
      valid_store(), [](auto& params) { params.slots = at<const std::int32_t>(2); }, invalid,
      "slots " + printed(memory + 2) + " is not aligned to 4 bytes");
}

TEST_CASE("store: one row has no stride", "[validate][class_K]") {
  for (const std::int64_t stride : meaningless_strides) {
    check_change_accepted(valid_store(), [=](auto& params) {
      params.num_tokens = 1;
      params.k_row_stride = stride;
    });
  }
  // Two rows have one, also where there is a slot for one of them only.
  check_change_refused(
      valid_store(),
      [](auto& params) {
        params.num_tokens = 2;
        params.num_slots = 1;
        params.k_row_stride = 0;
      },
      invalid, "k_row_stride 0 is below head_dim 128");
}

TEST_CASE("store: nothing to do needs no pointers", "[validate][class_E]") {
  kindex::store_params params;
  params.cache = valid_cache();
  params.cache.data = nullptr;
  check_accepted(params);
  params.num_tokens = 5;
  check_accepted(params);
  params.num_tokens = 0;
  params.num_slots = 5;
  check_accepted(params);
  params.cache.page_size = 24;
  check_refused(params, unsupported, "page_size 24 is not a multiple of 16 (preshuffled layout)");
}

TEST_CASE("slots carry their type", "[validate]") {
  const kindex::slot_array narrow = at<const std::int32_t>(0);
  const kindex::slot_array wide = at<const std::int64_t>(0);
  CHECK_FALSE(narrow.is_int64);
  CHECK(wide.is_int64);
}

TEST_CASE("gather: counts", "[validate]") {
  check_change_refused(
      valid_gather(), [](auto& params) { params.num_tokens = -1; }, invalid,
      "num_tokens -1 is negative");
  check_change_refused(
      valid_gather(), [](auto& params) { params.num_tokens = int32_max + 1; }, invalid,
      "num_tokens 2147483648 exceeds 2147483647");
  check_change_refused(
      valid_gather(), [](auto& params) { params.num_seqs = -3; }, invalid,
      "num_seqs -3 is negative");
  check_change_refused(
      valid_gather(), [](auto& params) { params.num_seqs = int32_max + 1; }, invalid,
      "num_seqs 2147483648 exceeds 2147483647");
  check_change_refused(
      valid_gather(), [](auto& params) { params.num_seqs = (1 << 24) + 1; }, unsupported,
      "num_seqs 16777217 exceeds 16777216");
  check_change_accepted(valid_gather(), [](auto& params) { params.num_seqs = 1 << 24; });
  check_change_refused(
      valid_gather(), [](auto& params) { params.block_table_width = -1; }, invalid,
      "block_table_width -1 is negative");
  check_change_refused(
      valid_gather(), [](auto& params) { params.block_table_width = int32_max + 1; }, invalid,
      "block_table_width 2147483648 exceeds 2147483647");
}

TEST_CASE("gather: pointers and strides", "[validate][class_A][class_K]") {
  check_change_refused(
      valid_gather(), [](auto& params) { params.block_table = nullptr; }, invalid,
      "block_table is null");
  check_change_refused(
      valid_gather(), [](auto& params) { params.block_table = at<const std::int32_t>(2); }, invalid,
      "block_table " + printed(memory + 2) + " is not aligned to 4 bytes");
  check_change_refused(
      valid_gather(), [](auto& params) { params.block_table_stride = 6; }, invalid,
      "block_table_stride 6 is below block_table_width 7");
  check_change_refused(
      valid_gather(), [](auto& params) { params.block_table_stride = int64_max / 4; }, invalid,
      "block_table_stride 2305843009213693951 times 3 rows does not fit in 64 bits");
  check_change_refused(
      valid_gather(), [](auto& params) { params.cu_seq_lens = nullptr; }, invalid,
      "cu_seq_lens is null");
  check_change_refused(
      valid_gather(), [](auto& params) { params.cu_seq_lens = at<const std::int32_t>(1); }, invalid,
      "cu_seq_lens " + printed(memory + 1) + " is not aligned to 4 bytes");
  check_change_refused(
      valid_gather(), [](auto& params) { params.dst_k = nullptr; }, invalid, "dst_k is null");
  check_change_refused(
      valid_gather(), [](auto& params) { params.dst_k_stride_bytes = 127; }, invalid,
      "dst_k_stride_bytes 127 is below head_dim 128");
  check_change_refused(
      valid_gather(), [](auto& params) { params.dst_k_stride_bytes = int64_max / 2; }, invalid,
      "dst_k_stride_bytes 4611686018427387903 times 1000 rows does not fit in 64 bits");
  check_change_refused(
      valid_gather(), [](auto& params) { params.dst_scale = nullptr; }, invalid,
      "dst_scale is null");
  check_change_refused(
      valid_gather(), [](auto& params) { params.dst_scale = at<float>(2); }, invalid,
      "dst_scale " + printed(memory + 2) + " is not aligned to 4 bytes");
  check_change_refused(
      valid_gather(), [](auto& params) { params.dst_scale_stride = 0; }, invalid,
      "dst_scale_stride 0 is below the number of scales 1");
  check_change_refused(
      valid_gather(),
      [](auto& params) {
        params.cache.head_dim = 256;
        params.cache.page_stride_bytes = 64 * 264;
        params.dst_k_stride_bytes = 256;
      },
      invalid, "dst_scale_stride 1 is below the number of scales 2");
  // Any alignment and any stride of dst_k from D on; any table stride from W on.
  check_change_accepted(valid_gather(), [](auto& params) {
    params.dst_k = memory + 1;
    params.dst_k_stride_bytes = 131;
    params.dst_scale = at<float>(4);
    params.dst_scale_stride = 3;
    params.block_table_stride = 1000;
  });
}

TEST_CASE("gather: one row has no stride", "[validate][class_K]") {
  for (const std::int64_t stride : meaningless_strides) {
    check_change_accepted(valid_gather(), [=](auto& params) {
      params.num_seqs = 1;
      params.block_table_stride = stride;
    });
    check_change_accepted(valid_gather(), [=](auto& params) {
      params.num_tokens = 1;
      params.dst_k_stride_bytes = stride;
      params.dst_scale_stride = stride;
    });
  }
  check_change_refused(
      valid_gather(),
      [](auto& params) {
        params.num_seqs = 1;
        params.dst_k_stride_bytes = 0;
      },
      invalid, "dst_k_stride_bytes 0 is below head_dim 128");
  check_change_refused(
      valid_gather(),
      [](auto& params) {
        params.num_tokens = 1;
        params.block_table_stride = 0;
      },
      invalid, "block_table_stride 0 is below block_table_width 7");
  check_change_refused(
      valid_gather(),
      [](auto& params) {
        params.num_seqs = 1;
        params.dst_scale_stride = 0;
      },
      invalid, "dst_scale_stride 0 is below the number of scales 1");
}

TEST_CASE("gather: nothing to do needs no pointers", "[validate][class_E]") {
  kindex::gather_params params;
  params.cache = valid_cache();
  params.cache.data = nullptr;
  check_accepted(params);
  params.num_seqs = 4;
  check_accepted(params);
  params.num_seqs = 0;
  params.num_tokens = 4;
  check_accepted(params);
  params.cache.head_dim = 96;
  check_refused(params, unsupported, "head_dim 96 is not 64, 128 or 256");
}

TEST_CASE("gather: a table without columns may be null", "[validate]") {
  check_change_accepted(valid_gather(), [](auto& params) {
    params.block_table = nullptr;
    params.block_table_width = 0;
    params.block_table_stride = 0;
  });
}

TEST_CASE("logits: formats must agree", "[validate][class_I]") {
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_format = fp8_format::e4m3fn; }, invalid,
      "q_format e4m3fn differs from the cache's e4m3fnuz");
  check_change_refused(
      valid_logits(), [](auto& params) { params.cache.format = fp8_format::e4m3fn; }, invalid,
      "q_format e4m3fnuz differs from the cache's e4m3fn");
}

TEST_CASE("logits: heads", "[validate][class_N]") {
  for (const int heads : {8, 16, 32, 48, 64, 80, 96, 112, 128}) {
    check_change_accepted(valid_logits(), [=](auto& params) {
      params.num_heads = heads;
      params.weights_row_stride = 128;
    });
  }
  for (const int heads : {1, 4, 12, 24, 40, 63, 144, 256}) {
    check_change_refused(
        valid_logits(), [=](auto& params) { params.num_heads = heads; }, unsupported,
        "num_heads " + std::to_string(heads) + " is neither 8 nor a multiple of 16 up to 128");
  }
  check_change_refused(
      valid_logits(), [](auto& params) { params.num_heads = 0; }, invalid,
      "num_heads 0 is not positive");
  check_change_refused(
      valid_logits(), [](auto& params) { params.num_heads = -64; }, invalid,
      "num_heads -64 is not positive");
}

TEST_CASE("logits: counts", "[validate][class_N]") {
  for (const int next_n : {1, 2, 3, 5, 8, 64}) {
    check_change_accepted(valid_logits(), [=](auto& params) { params.next_n = next_n; });
  }
  check_change_refused(
      valid_logits(), [](auto& params) { params.next_n = 0; }, invalid, "next_n 0 is not positive");
  check_change_refused(
      valid_logits(), [](auto& params) { params.next_n = -1; }, invalid,
      "next_n -1 is not positive");
  check_change_refused(
      valid_logits(), [](auto& params) { params.next_n = 65; }, unsupported,
      "next_n 65 exceeds 64");
  check_change_refused(
      valid_logits(), [](auto& params) { params.num_seqs = -1; }, invalid,
      "num_seqs -1 is negative");
  check_change_refused(
      valid_logits(), [](auto& params) { params.num_seqs = int32_max + 1; }, invalid,
      "num_seqs 2147483648 exceeds 2147483647");
  check_change_refused(
      valid_logits(), [](auto& params) { params.num_seqs = std::int64_t{1} << 30; }, invalid,
      "num_seqs 1073741824 times next_n 2 exceeds 2147483647 rows");
  check_change_refused(
      valid_logits(), [](auto& params) { params.num_seqs = 500000000; }, unsupported,
      "num_seqs 500000000 with logits_width 448 is more work than a launch can divide");
  check_change_refused(
      valid_logits(), [](auto& params) { params.logits_width = -1; }, invalid,
      "logits_width -1 is negative");
  check_change_refused(
      valid_logits(), [](auto& params) { params.logits_width = int32_max + 1; }, invalid,
      "logits_width 2147483648 exceeds 2147483647");
  check_change_refused(
      valid_logits(), [](auto& params) { params.logits_width = int32_max - 510; }, unsupported,
      "logits_width 2147483137 exceeds 2147483136");
  check_change_refused(
      valid_logits(), [](auto& params) { params.logits_width = int32_max; }, unsupported,
      "logits_width 2147483647 exceeds 2147483136");
  check_change_refused(
      valid_logits(), [](auto& params) { params.block_table_width = -1; }, invalid,
      "block_table_width -1 is negative");
  check_change_refused(
      valid_logits(), [](auto& params) { params.block_table_width = int32_max + 1; }, invalid,
      "block_table_width 2147483648 exceeds 2147483647");
}

TEST_CASE("logits: q", "[validate][class_A][class_K]") {
  check_change_refused(
      valid_logits(), [](auto& params) { params.q = nullptr; }, invalid, "q is null");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q = memory + 8; }, invalid,
      "q " + printed(memory + 8) + " is not aligned to 16 bytes");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_head_stride = 112; }, invalid,
      "q_head_stride 112 is below head_dim 128");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_head_stride = 136; }, invalid,
      "q_head_stride 136 is not a multiple of 16");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_next_n_stride = 8200; }, invalid,
      "q_next_n_stride 8200 is not a multiple of 16");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_next_n_stride = -8192; }, invalid,
      "q_next_n_stride -8192 is negative");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_batch_stride = 16388; }, invalid,
      "q_batch_stride 16388 is not a multiple of 16");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_batch_stride = -16; }, invalid,
      "q_batch_stride -16 is negative");
  check_change_refused(
      valid_logits(), [](auto& params) { params.q_batch_stride = std::int64_t{1} << 62; }, invalid,
      "q_batch_stride 4611686018427387904 times 3 rows does not fit in 64 bits");
  check_change_accepted(valid_logits(), [](auto& params) { params.q_head_stride = 192; });
}

TEST_CASE("logits: weights, lengths, table", "[validate][class_A][class_K]") {
  check_change_refused(
      valid_logits(), [](auto& params) { params.weights = nullptr; }, invalid, "weights is null");
  check_change_refused(
      valid_logits(), [](auto& params) { params.weights = at<const float>(2); }, invalid,
      "weights " + printed(memory + 2) + " is not aligned to 4 bytes");
  check_change_refused(
      valid_logits(), [](auto& params) { params.weights_row_stride = 63; }, invalid,
      "weights_row_stride 63 is below num_heads 64");
  check_change_accepted(valid_logits(), [](auto& params) { params.weights_row_stride = 80; });
  check_change_refused(
      valid_logits(), [](auto& params) { params.context_lens = nullptr; }, invalid,
      "context_lens is null");
  check_change_refused(
      valid_logits(), [](auto& params) { params.context_lens = at<const std::int32_t>(3); },
      invalid, "context_lens " + printed(memory + 3) + " is not aligned to 4 bytes");
  check_change_refused(
      valid_logits(), [](auto& params) { params.context_lens_batch_stride = -1; }, invalid,
      "context_lens_batch_stride -1 is negative");
  check_change_refused(
      valid_logits(), [](auto& params) { params.context_lens_batch_stride = int64_max / 4; },
      invalid,
      "context_lens_batch_stride 2305843009213693951 times 3 rows does not fit in 64 bits");
  check_change_refused(
      valid_logits(),
      [](auto& params) {
        params.context_lens_shape = kindex::lens_shape::per_row;
        params.context_lens_next_n_stride = -1;
      },
      invalid, "context_lens_next_n_stride -1 is negative");
  // A column of [B, 3] lengths.
  check_change_accepted(valid_logits(), [](auto& params) {
    params.context_lens = at<const std::int32_t>(4);
    params.context_lens_batch_stride = 3;
    params.context_lens_next_n_stride = -1;  // not used: one length per sequence
  });
  check_change_refused(
      valid_logits(), [](auto& params) { params.block_table = nullptr; }, invalid,
      "block_table is null");
  check_change_refused(
      valid_logits(), [](auto& params) { params.block_table = at<const std::int32_t>(2); }, invalid,
      "block_table " + printed(memory + 2) + " is not aligned to 4 bytes");
  check_change_refused(
      valid_logits(), [](auto& params) { params.block_table_stride = 6; }, invalid,
      "block_table_stride 6 is below block_table_width 7");
}

TEST_CASE("logits: output", "[validate][class_A][class_K]") {
  check_change_refused(
      valid_logits(), [](auto& params) { params.logits = nullptr; }, invalid, "logits is null");
  check_change_refused(
      valid_logits(), [](auto& params) { params.logits = at<float>(2); }, invalid,
      "logits " + printed(memory + 2) + " is not aligned to 4 bytes");
  check_change_accepted(valid_logits(), [](auto& params) { params.logits = at<float>(4); });
  check_change_refused(
      valid_logits(), [](auto& params) { params.logits_row_stride = 447; }, invalid,
      "logits_row_stride 447 is below logits_width 448");
  check_change_accepted(valid_logits(), [](auto& params) { params.logits_row_stride = 449; });
  check_change_refused(
      valid_logits(), [](auto& params) { params.logits_row_stride = int64_max / 5; }, invalid,
      "logits_row_stride 1844674407370955161 times 6 rows does not fit in 64 bits");
}

TEST_CASE("logits: one row has no stride", "[validate][class_K]") {
  for (const std::int64_t stride : meaningless_strides) {
    // One sequence of one row: q, weights, lengths, table and logits have one row each.
    for (const auto shape : {kindex::lens_shape::per_sequence, kindex::lens_shape::per_row}) {
      check_change_accepted(valid_logits(), [=](auto& params) {
        params.num_seqs = 1;
        params.next_n = 1;
        params.q_batch_stride = stride;
        params.q_next_n_stride = stride;
        params.weights_row_stride = stride;
        params.context_lens_shape = shape;
        params.context_lens_batch_stride = stride;
        params.context_lens_next_n_stride = stride;
        params.block_table_stride = stride;
        params.logits_row_stride = stride;
      });
    }
    // One sequence of two rows: its batch strides only.
    check_change_accepted(valid_logits(), [=](auto& params) {
      params.num_seqs = 1;
      params.q_batch_stride = stride;
      params.context_lens_batch_stride = stride;
      params.block_table_stride = stride;
    });
    // Sequences of one row: the strides within one.
    check_change_accepted(valid_logits(), [=](auto& params) {
      params.next_n = 1;
      params.q_next_n_stride = stride;
      params.context_lens_shape = kindex::lens_shape::per_row;
      params.context_lens_next_n_stride = stride;
    });
  }
  const auto one_sequence = [](auto member) {
    return [member](kindex::paged_mqa_logits_params& params) {
      params.num_seqs = 1;
      params.*member = 0;
    };
  };
  const auto one_row_each = [](auto member) {
    return [member](kindex::paged_mqa_logits_params& params) {
      params.next_n = 1;
      params.*member = 0;
    };
  };
  using logits_params = kindex::paged_mqa_logits_params;
  const std::string weights_reason = "weights_row_stride 0 is below num_heads 64";
  const std::string logits_reason = "logits_row_stride 0 is below logits_width 448";
  const std::string table_reason = "block_table_stride 0 is below block_table_width 7";
  const auto valid = valid_logits();
  check_change_refused(valid, one_sequence(&logits_params::weights_row_stride), invalid,
                       weights_reason);
  check_change_refused(valid, one_row_each(&logits_params::weights_row_stride), invalid,
                       weights_reason);
  check_change_refused(valid, one_sequence(&logits_params::logits_row_stride), invalid,
                       logits_reason);
  check_change_refused(valid, one_row_each(&logits_params::logits_row_stride), invalid,
                       logits_reason);
  check_change_refused(valid, one_row_each(&logits_params::block_table_stride), invalid,
                       table_reason);
}

TEST_CASE("logits: nothing to do needs no pointers", "[validate][class_E]") {
  kindex::paged_mqa_logits_params params;
  params.cache = valid_cache();
  params.cache.data = nullptr;
  check_accepted(params);
  params.num_seqs = 4;
  check_accepted(params);
  params.num_seqs = 0;
  params.logits_width = 4;
  check_accepted(params);
  params.num_heads = 24;
  check_refused(params, unsupported, "num_heads 24 is neither 8 nor a multiple of 16 up to 128");
}

TEST_CASE("logits: a table without columns may be null", "[validate]") {
  check_change_accepted(valid_logits(), [](auto& params) {
    params.block_table = nullptr;
    params.block_table_width = 0;
    params.block_table_stride = 0;
  });
}
