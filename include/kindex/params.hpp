// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// One aggregate per operation. All pointers are device memory. Strides count elements unless the
// name says bytes; the stride of a dimension of one may be anything. Host only; needs no HIP
// compiler.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache_view.hpp"
#include "config.hpp"

KINDEX_NAMESPACE_BEGIN

/// Element type of unquantised K.
enum class element_type : std::uint8_t { bf16, fp16, fp32 };

/// The name of an element type, for messages.
constexpr const char* to_string(element_type type) {
  return type == element_type::bf16 ? "bf16" : type == element_type::fp16 ? "fp16" : "fp32";
}

/// Bytes of one element.
KINDEX_HOST_DEVICE constexpr int element_bytes(element_type type) {
  return type == element_type::fp32 ? 4 : 2;
}

/// How the stored scale is rounded.
enum class scale_rounding : std::uint8_t {
  none,   ///< max(amax, 1e-4) / FMAX as it is
  ue8m0,  ///< the smallest power of two not below it
};

/// How a value is divided by its scale. The two differ in the last bit now and then, so bytes are
/// comparable only with the same choice.
enum class quant_division : std::uint8_t {
  reciprocal,  ///< k * (1 / scale): aiter
  exact,       ///< k / scale: vLLM
};

/// Slot ids `[n]`: int32 or int64, told apart by the pointer's type.
struct slot_array {
  const void* data = nullptr;  ///< the first slot
  bool is_int64 = true;        ///< else int32

  constexpr slot_array() = default;
  /// No slots.
  constexpr slot_array(std::nullptr_t) {}
  /// Slots of 64 bits.
  constexpr slot_array(const std::int64_t* slots) : data(slots), is_int64(true) {}
  /// Slots of 32 bits.
  constexpr slot_array(const std::int32_t* slots) : data(slots), is_int64(false) {}
};

/// Store: quantise K rows to fp8 with a scale and write them into pages.
/// Behaviour matched: aiter `indexer_k_quant_and_cache` (defaults), vLLM (quant_max 224 or 448 with
/// exact division).
struct store_params {
  cache_view cache;         ///< written
  const void* k = nullptr;  ///< [num_tokens, D] of k_type; base aligned to its element
  element_type k_type = element_type::bf16;  ///< element of k
  std::int64_t k_row_stride = 0;             ///< elements, >= D
  std::int64_t num_tokens = 0;               ///< rows of k
  slot_array slots;            ///< [num_slots]; slot = page * P + t; outside the cache: skipped
  std::int64_t num_slots = 0;  ///< stored_tokens(params), at most max_store_tokens, are stored
  float quant_max = 0;         ///< FMAX; 0 = the format's maximum; 224 selectable for fnuz
  scale_rounding rounding = scale_rounding::none;        ///< of the stored scale
  quant_division division = quant_division::reciprocal;  ///< of values by their scale
};

/// Tokens that a store stores: rows of k that have a slot.
constexpr std::int64_t stored_tokens(const store_params& params) {
  return params.num_tokens < params.num_slots ? params.num_tokens : params.num_slots;
}

/// Gather: pages to contiguous K bytes and scales.
/// Behaviour matched: aiter and vLLM `cp_gather_indexer_k_quant_cache`.
struct gather_params {
  cache_view cache;                           ///< read only
  const std::int32_t* block_table = nullptr;  ///< [B, W] page ids
  std::int64_t block_table_stride = 0;        ///< from row to row, >= W
  std::int64_t block_table_width = 0;         ///< W
  const std::int32_t* cu_seq_lens = nullptr;  ///< [B + 1] cumulative K lengths, cu_seq_lens[0] == 0
  std::int64_t num_seqs = 0;                  ///< B, at most max_gather_seqs
  void* dst_k = nullptr;                      ///< [num_tokens, D] bytes, plain order
  std::int64_t dst_k_stride_bytes = 0;        ///< >= D
  float* dst_scale = nullptr;                 ///< [num_tokens, scales_per_token]
  std::int64_t dst_scale_stride = 0;          ///< >= scales_per_token
  std::int64_t num_tokens = 0;  ///< rows of dst: an upper bound; rows >= cu[B] are untouched
};

/// What happens to columns that a row does not see.
enum class fill : std::uint8_t {
  none,          ///< not one byte of them is written
  neg_infinity,  ///< -inf in all of them, up to logits_width
};

/// Shape of the context lengths.
enum class lens_shape : std::uint8_t {
  per_sequence,  ///< [B]: row n of N sees clamp(L[b] - N + n + 1) tokens (L counts the N new ones)
  per_row,       ///< [B, N]: row n sees L[b, n] tokens
};

/// Paged MQA logits: logits[b*N+n, t] = scale[t] * sum_h w[b*N+n, h] * max(0, q[b,n,h] . k[t]).
/// Behaviour matched: DeepGEMM `fp8_paged_mqa_logits`, aiter `deepgemm_fp8_paged_mqa_logits`.
struct paged_mqa_logits_params {
  cache_view cache;                            ///< read only
  const void* q = nullptr;                     ///< [B, N, H, D] fp8, 16-byte aligned
  fp8_format q_format = fp8_format::e4m3fnuz;  ///< must be the cache's: a mix-up is refused
  std::int64_t q_batch_stride = 0;             ///< bytes = elements; multiples of 16
  std::int64_t q_next_n_stride = 0;            ///< likewise
  std::int64_t q_head_stride = 0;              ///< likewise, >= D
  const float* weights = nullptr;       ///< [B * N, H]; q's scale and the softmax factors are in it
  std::int64_t weights_row_stride = 0;  ///< >= H
  const std::int32_t* context_lens = nullptr;                ///< [B] or [B, N], read on the device
  lens_shape context_lens_shape = lens_shape::per_sequence;  ///< [B] or [B, N]
  std::int64_t context_lens_batch_stride = 1;                ///< from sequence to sequence
  std::int64_t context_lens_next_n_stride = 0;               ///< per_row only
  const std::int32_t* block_table = nullptr;                 ///< [B, W] page ids
  std::int64_t block_table_stride = 0;                       ///< from row to row, >= W
  std::int64_t block_table_width = 0;                        ///< W
  float* logits = nullptr;                 ///< [B * N, logits_width]; base 4-byte aligned
  std::int64_t logits_row_stride = 0;      ///< >= logits_width
  std::int64_t logits_width = 0;           ///< columns of a row that belong to the caller's output
  std::int64_t num_seqs = 0;               ///< B
  std::int64_t next_n = 1;                 ///< N
  std::int64_t num_heads = 64;             ///< H: 8, or a multiple of 16 up to 128
  kindex::fill fill = kindex::fill::none;  ///< of columns that a row does not see
};

KINDEX_NAMESPACE_END
