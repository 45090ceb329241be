// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Why a call is refused, in words and before anything is launched. Host only, no HIP compiler, no
// allocation; every launcher asks it first, so whoever gets an error can ask again for the reason.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "cache_view.hpp"
#include "config.hpp"
#include "fp8.hpp"
#include "params.hpp"

KINDEX_NAMESPACE_BEGIN

/// The largest supported page, in tokens.
constexpr int max_page_size = 65536;
/// The largest supported number of query rows of one sequence.
constexpr std::int64_t max_next_n = 64;
/// The largest supported number of pages: kernels keep page ids in 32 bits.
constexpr std::int64_t max_pages = UINT32_MAX;
/// The largest supported cache, in tokens (num_pages * page_size). Slots and byte offsets then have
/// room to spare in 64 bits.
constexpr std::int64_t max_cache_tokens = std::int64_t{1} << 47;
/// The largest supported number of rows or columns of any array: lengths are int32.
constexpr std::int64_t max_rows = INT32_MAX;

/// The largest supported number of tokens of a store: each takes up to 16 threads, and HIP launches
/// fewer than 2^32.
constexpr std::int64_t max_store_tokens = std::int64_t{1} << 27;
/// The largest supported number of sequences of a gather, for the same reason: each takes a wave.
constexpr std::int64_t max_gather_seqs = std::int64_t{1} << 24;

/// Columns of a row of logits: token positions are 32-bit, and so is the end of a step of up to 512
/// that begins with the last one.
constexpr std::int64_t max_logits_width = INT32_MAX - 511;

/// The verdict on one call.
struct validation {
  /// hipSuccess; hipErrorInvalidValue for values that contradict the contract;
  /// hipErrorNotSupported for positive shapes (page_size, head_dim, num_heads, next_n) that make
  /// sense but have no kernel.
  hipError_t status = hipSuccess;
  /// Empty on success; else one line that names the field and its value.
  char reason[256] = {};

  /// True if the call is taken.
  bool ok() const noexcept { return status == hipSuccess; }
};

namespace detail {

/// Collects the first refusal; all later checks are without effect.
class validator {
 public:
  /// False from the first refusal on.
  bool ok() const noexcept { return verdict_.ok(); }
  validation verdict() const noexcept { return verdict_; }

  __attribute__((format(printf, 3, 4))) void require(bool holds, const char* format, ...) noexcept {
    std::va_list values;
    va_start(values, format);
    refuse_unless(holds, hipErrorInvalidValue, format, values);
    va_end(values);
  }

  __attribute__((format(printf, 3, 4))) void support(bool holds, const char* format, ...) noexcept {
    std::va_list values;
    va_start(values, format);
    refuse_unless(holds, hipErrorNotSupported, format, values);
    va_end(values);
  }

  void count(const char* name, std::int64_t value) noexcept {
    require(value >= 0, "%s %lld is negative", name, static_cast<long long>(value));
    require(value <= max_rows, "%s %lld exceeds %lld", name, static_cast<long long>(value),
            static_cast<long long>(max_rows));
  }

  /// A pointer that is needed: not null, aligned to `alignment` bytes.
  void pointer(const char* name, const void* value, unsigned alignment) noexcept {
    require(value != nullptr, "%s is null", name);
    aligned(name, value, alignment);
  }

  void aligned(const char* name, const void* value, unsigned alignment) noexcept {
    require(reinterpret_cast<std::uintptr_t>(value) % alignment == 0,
            "%s %p is not aligned to %u bytes", name, value, alignment);
  }

  /// A stride that must span `row` elements, of `rows` rows with elements of `element_bytes`.
  void stride(const char* name, std::int64_t value, const char* row_name, std::int64_t row,
              std::int64_t rows, std::int64_t element_bytes) noexcept {
    if (has_no_stride(rows)) return;
    require(value >= row, "%s %lld is below %s %lld", name, static_cast<long long>(value), row_name,
            static_cast<long long>(row));
    addressable(name, value, rows, element_bytes);
  }

  /// The stride of a dimension of one means nothing: frameworks leave anything there, and kernels
  /// multiply it by 0.
  static bool has_no_stride(std::int64_t rows) noexcept { return rows <= 1; }

  /// Kernels compute row * stride in 64 bits: the last byte must have such an address.
  void addressable(const char* name, std::int64_t value, std::int64_t rows,
                   std::int64_t element_bytes) noexcept {
    std::int64_t bytes = 0;
    const bool overflows = __builtin_mul_overflow(value, element_bytes, &bytes) ||
                           __builtin_mul_overflow(bytes, rows, &bytes);
    require(!overflows, "%s %lld times %lld rows does not fit in 64 bits", name,
            static_cast<long long>(value), static_cast<long long>(rows));
  }

  /// An enum that came through a cast: `last` is its largest value.
  template <class Enum>
  void enumerator(const char* name, Enum value, Enum last) noexcept {
    require(static_cast<unsigned>(value) <= static_cast<unsigned>(last),
            "%s %u is not an enumerator", name, static_cast<unsigned>(value));
  }

  /// Geometry of a cache. The pointer is not needed before some page can be touched.
  void cache(const cache_view& view, bool touched) noexcept {
    enumerator("cache.layout", view.layout, page_layout::preshuffled);
    enumerator("cache.format", view.format, fp8_format::e4m3fn);
    require(view.page_size > 0, "page_size %d is not positive", view.page_size);
    require(view.head_dim > 0, "head_dim %d is not positive", view.head_dim);
    if (view.layout == page_layout::plain) {
      support(view.page_size == 1 || view.page_size % 16 == 0,
              "page_size %d is neither 1 nor a multiple of 16 (plain layout)", view.page_size);
    } else {
      support(view.page_size % 16 == 0, "page_size %d is not a multiple of 16 (preshuffled layout)",
              view.page_size);
    }
    support(view.page_size <= max_page_size, "page_size %d exceeds %d", view.page_size,
            max_page_size);
    support(view.head_dim == 64 || view.head_dim == 128 || view.head_dim == 256,
            "head_dim %d is not 64, 128 or 256", view.head_dim);
    if (!ok()) return;  // what follows computes with the geometry

    const unsigned alignment = view.page_size == 1 ? 4 : 16;
    const auto stride = static_cast<long long>(view.page_stride_bytes);
    const auto payload = static_cast<long long>(page_payload_bytes(view.page_size, view.head_dim));
    require(stride >= payload,
            "page_stride_bytes %lld is below the page payload of %lld bytes (page_size %d, "
            "head_dim %d)",
            stride, payload, view.page_size, view.head_dim);
    require(stride % alignment == 0, "page_stride_bytes %lld is not a multiple of %u", stride,
            alignment);
    const auto pages = static_cast<long long>(view.num_pages);
    require(pages >= 0, "num_pages %lld is negative", pages);
    require(pages <= max_pages, "num_pages %lld exceeds %lld", pages,
            static_cast<long long>(max_pages));
    require(pages <= max_cache_tokens / view.page_size,
            "num_pages %lld times page_size %d exceeds 2^47 tokens", pages, view.page_size);
    addressable("page_stride_bytes", stride, pages, 1);
    if (touched && pages > 0) require(view.data != nullptr, "cache.data is null");
    aligned("cache.data", view.data, alignment);
  }

  void block_table(const std::int32_t* table, std::int64_t stride_in_elements, std::int64_t width,
                   std::int64_t num_seqs) noexcept {
    if (width > 0) pointer("block_table", table, 4);
    stride("block_table_stride", stride_in_elements, "block_table_width", width, num_seqs, 4);
  }

 private:
  void refuse_unless(bool holds, hipError_t status, const char* format,
                     std::va_list values) noexcept {
    if (holds || !ok()) return;
    verdict_.status = status;
    std::vsnprintf(verdict_.reason, sizeof verdict_.reason, format, values);
  }

  validation verdict_;
};

}  // namespace detail

/// Whether `kindex::store` takes this call; if not, why.
/// Work to do means stored_tokens(params) > 0: without it null pointers and strides are not
/// looked at, but the geometry, the counts and the options are. With it, a stride is
/// looked at if its dimension has more than one row; the page stride always.
inline validation validate(const store_params& params) noexcept {
  detail::validator check;
  const std::int64_t stored = stored_tokens(params);
  const bool work = stored > 0;
  check.cache(params.cache, work);
  check.enumerator("k_type", params.k_type, element_type::fp32);
  check.enumerator("rounding", params.rounding, scale_rounding::ue8m0);
  check.enumerator("division", params.division, quant_division::exact);
  check.count("num_tokens", params.num_tokens);
  check.count("num_slots", params.num_slots);
  check.support(stored <= max_store_tokens, "min(num_tokens, num_slots) %lld exceeds %lld",
                static_cast<long long>(stored), static_cast<long long>(max_store_tokens));
  if (!check.ok()) return check.verdict();

  const fp8_format format = params.cache.format;
  const float quant_max = params.quant_max;
  if (format == fp8_format::e4m3fnuz) {
    check.require(quant_max == 0 || quant_max == 240.0f || quant_max == 224.0f,
                  "quant_max %g is not 0, 224 or 240 (e4m3fnuz)", static_cast<double>(quant_max));
  } else {
    check.require(quant_max == 0 || quant_max == 448.0f, "quant_max %g is not 0 or 448 (e4m3fn)",
                  static_cast<double>(quant_max));
  }
  if (!work || !check.ok()) return check.verdict();

  const auto element = static_cast<unsigned>(element_bytes(params.k_type));
  check.pointer("k", params.k, element);
  check.stride("k_row_stride", params.k_row_stride, "head_dim", params.cache.head_dim,
               params.num_tokens, element);
  check.pointer("slots", params.slots.data, params.slots.is_int64 ? 8 : 4);
  return check.verdict();
}

/// Whether `kindex::gather` takes this call; if not, why.
/// Work to do means num_seqs > 0 and num_tokens > 0; as above without it.
inline validation validate(const gather_params& params) noexcept {
  detail::validator check;
  const bool work = params.num_seqs > 0 && params.num_tokens > 0;
  check.cache(params.cache, work);
  check.count("num_tokens", params.num_tokens);
  check.count("num_seqs", params.num_seqs);
  check.support(params.num_seqs <= max_gather_seqs, "num_seqs %lld exceeds %lld",
                static_cast<long long>(params.num_seqs), static_cast<long long>(max_gather_seqs));
  check.count("block_table_width", params.block_table_width);
  if (!work || !check.ok()) return check.verdict();

  const int head_dim = params.cache.head_dim;
  check.pointer("cu_seq_lens", params.cu_seq_lens, 4);
  check.block_table(params.block_table, params.block_table_stride, params.block_table_width,
                    params.num_seqs);
  check.pointer("dst_k", params.dst_k, 1);
  check.stride("dst_k_stride_bytes", params.dst_k_stride_bytes, "head_dim", head_dim,
               params.num_tokens, 1);
  check.pointer("dst_scale", params.dst_scale, 4);
  check.stride("dst_scale_stride", params.dst_scale_stride, "the number of scales",
               scales_per_token(head_dim), params.num_tokens, 4);
  return check.verdict();
}

/// Whether `kindex::paged_mqa_logits` takes this call; if not, why.
/// Work to do means num_seqs > 0 and logits_width > 0; as above without it.
inline validation validate(const paged_mqa_logits_params& params) noexcept {
  detail::validator check;
  const bool work = params.num_seqs > 0 && params.logits_width > 0;
  check.cache(params.cache, work);
  check.enumerator("q_format", params.q_format, fp8_format::e4m3fn);
  check.enumerator("context_lens_shape", params.context_lens_shape, lens_shape::per_row);
  check.enumerator("fill", params.fill, fill::neg_infinity);
  check.require(params.q_format == params.cache.format, "q_format %s differs from the cache's %s",
                to_string(params.q_format), to_string(params.cache.format));

  const auto heads = static_cast<long long>(params.num_heads);
  const auto next_n = static_cast<long long>(params.next_n);
  check.require(heads > 0, "num_heads %lld is not positive", heads);
  check.support(heads == 8 || (heads % 16 == 0 && heads <= 128),
                "num_heads %lld is neither 8 nor a multiple of 16 up to 128", heads);
  check.require(next_n > 0, "next_n %lld is not positive", next_n);
  check.support(next_n <= max_next_n, "next_n %lld exceeds %lld", next_n,
                static_cast<long long>(max_next_n));
  check.count("num_seqs", params.num_seqs);
  check.count("logits_width", params.logits_width);
  check.count("block_table_width", params.block_table_width);
  if (!check.ok()) return check.verdict();

  check.support(params.logits_width <= max_logits_width, "logits_width %lld exceeds %lld",
                static_cast<long long>(params.logits_width),
                static_cast<long long>(max_logits_width));
  const std::int64_t rows = params.num_seqs * params.next_n;
  check.require(rows <= max_rows, "num_seqs %lld times next_n %lld exceeds %lld rows",
                static_cast<long long>(params.num_seqs), next_n, static_cast<long long>(max_rows));
  // Work is counted in 32 bits: units of 64 tokens, and up to two for the start of a sequence.
  check.support(params.num_seqs * ((params.logits_width + 63) / 64 + 2) <= UINT32_MAX,
                "num_seqs %lld with logits_width %lld is more work than a launch can divide",
                static_cast<long long>(params.num_seqs),
                static_cast<long long>(params.logits_width));
  if (!work || !check.ok()) return check.verdict();

  check.pointer("q", params.q, 16);
  check.stride("q_head_stride", params.q_head_stride, "head_dim", params.cache.head_dim,
               params.num_heads, 1);
  const auto q_stride = [&check](const char* name, std::int64_t value, std::int64_t rows_of_it) {
    if (check.has_no_stride(rows_of_it)) return;
    check.require(value >= 0, "%s %lld is negative", name, static_cast<long long>(value));
    check.require(value % 16 == 0, "%s %lld is not a multiple of 16", name,
                  static_cast<long long>(value));
    check.addressable(name, value, rows_of_it, 1);
  };
  q_stride("q_head_stride", params.q_head_stride, params.num_heads);
  q_stride("q_next_n_stride", params.q_next_n_stride, params.next_n);
  q_stride("q_batch_stride", params.q_batch_stride, params.num_seqs);

  check.pointer("weights", params.weights, 4);
  check.stride("weights_row_stride", params.weights_row_stride, "num_heads", params.num_heads, rows,
               4);

  check.pointer("context_lens", params.context_lens, 4);
  const auto lens_stride = [&check](const char* name, std::int64_t value, std::int64_t count) {
    if (check.has_no_stride(count)) return;
    check.require(value >= 0, "%s %lld is negative", name, static_cast<long long>(value));
    check.addressable(name, value, count, 4);
  };
  lens_stride("context_lens_batch_stride", params.context_lens_batch_stride, params.num_seqs);
  if (params.context_lens_shape == lens_shape::per_row) {
    lens_stride("context_lens_next_n_stride", params.context_lens_next_n_stride, params.next_n);
  }

  check.block_table(params.block_table, params.block_table_stride, params.block_table_width,
                    params.num_seqs);
  check.pointer("logits", params.logits, 4);
  check.stride("logits_row_stride", params.logits_row_stride, "logits_width", params.logits_width,
               rows, 4);
  return check.verdict();
}

KINDEX_NAMESPACE_END
