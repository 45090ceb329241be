// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Tensors to kindex's parameters: checks with words, the tensors' device, the current stream.
// Names, shapes, types and defaults are aiter's and vLLM's. Nothing here waits, allocates or reads
// device memory, so every call may be captured in a graph.

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include <kindex/validate.hpp>

#include "kernels.hpp"

namespace {

using at::Tensor;
using named_tensor = std::pair<const char*, const Tensor&>;

kindex::fp8_format native_format() {
  kindex::fp8_format format{};
  const hipError_t status = kindex_torch::native_format(format);
  TORCH_CHECK(status != hipErrorNotSupported, "kindex: this device has no kernels");
  TORCH_CHECK(status == hipSuccess, "kindex: ", hipGetErrorString(status));
  return format;
}

/// The format that a tensor's type names; bytes without one are in the device's.
kindex::fp8_format format_of(const char* name, const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat8_e4m3fn:
      return kindex::fp8_format::e4m3fn;
    case at::kFloat8_e4m3fnuz:
      return kindex::fp8_format::e4m3fnuz;
    case at::kByte:
    case at::kChar:
      return native_format();
    default:
      TORCH_CHECK(false, "kindex: ", name, " has type ", tensor.scalar_type(),
                  ", not float8_e4m3fn, float8_e4m3fnuz or uint8");
  }
}

void check_device(std::initializer_list<named_tensor> tensors) {
  const auto& [first_name, first] = *tensors.begin();
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK(tensor.is_cuda(), "kindex: ", name, " is on ", tensor.device(), ", not on a GPU");
    TORCH_CHECK(tensor.device() == first.device(), "kindex: ", name, " is on ", tensor.device(),
                ", ", first_name, " on ", first.device());
  }
}

void check_type(const char* name, const Tensor& tensor, at::ScalarType type) {
  TORCH_CHECK(tensor.scalar_type() == type, "kindex: ", name, " has type ", tensor.scalar_type(),
              ", not ", type);
}

void check_dims(const char* name, const Tensor& tensor, std::int64_t dims, const char* shape) {
  TORCH_CHECK(tensor.dim() == dims, "kindex: ", name, " has ", tensor.dim(), " dimensions, not ",
              shape);
}

/// Elements of the last dimension follow one another.
void check_rows(const char* name, const Tensor& tensor) {
  TORCH_CHECK(tensor.size(-1) <= 1 || tensor.stride(-1) == 1, "kindex: ", name, " has stride ",
              tensor.stride(-1), ", not 1, in its last dimension");
}

/// kv_cache [pages, page size, (1,) head_dim + scales] of one-byte elements. Its shape says nothing
/// of the order of the bytes in a page.
kindex::cache_view view_of(const Tensor& kv_cache, std::int64_t head_dim, bool preshuffle) {
  TORCH_CHECK(kv_cache.dim() == 3 || (kv_cache.dim() == 4 && kv_cache.size(2) == 1),
              "kindex: kv_cache has shape ", kv_cache.sizes(),
              ", not [pages, page size, bytes] or [pages, page size, 1, bytes]");
  TORCH_CHECK(kv_cache.element_size() == 1, "kindex: kv_cache has type ", kv_cache.scalar_type(),
              ", not one of 1 byte");
  check_rows("kv_cache", kv_cache);
  const std::int64_t page_size = kv_cache.size(1), token_bytes = kv_cache.size(-1);
  TORCH_CHECK(page_size <= 1 || kv_cache.stride(1) == token_bytes, "kindex: kv_cache has stride ",
              kv_cache.stride(1), ", not ", token_bytes,
              ", from token to token: the bytes of a page must follow one another");
  TORCH_CHECK(page_size <= kindex::max_page_size, "kindex: page size ", page_size, " exceeds ",
              kindex::max_page_size);
  const auto dim = static_cast<int>(std::min<std::int64_t>(head_dim, 1 << 20));
  const std::int64_t needed = kindex::page_payload_bytes(1, dim);
  TORCH_CHECK(token_bytes >= needed, "kindex: kv_cache has ", token_bytes,
              " bytes a token; head_dim ", head_dim, " takes ", needed);
  kindex::cache_view view;
  view.data = kv_cache.data_ptr();
  view.num_pages = kv_cache.size(0);
  view.page_stride_bytes = kv_cache.size(0) > 1
                               ? kv_cache.stride(0)
                               : std::max<std::int64_t>(1, page_size) * token_bytes;
  view.page_size = static_cast<int>(page_size);
  view.head_dim = dim;
  view.layout = preshuffle ? kindex::page_layout::preshuffled : kindex::page_layout::plain;
  view.format = format_of("kv_cache", kv_cache);
  return view;
}

/// Words for a refused call.
template <class Params>
void check_status(const char* operation, hipError_t status, const Params& params) {
  if (status == hipSuccess) return;
  const kindex::validation verdict = kindex::validate(params);
  TORCH_CHECK(verdict.ok(), "kindex: ", operation, ": ", verdict.reason);
  TORCH_CHECK(status != hipErrorNotSupported, "kindex: ", operation,
              ": this device has no kernels or another fp8 format than the cache (",
              to_string(params.cache.format), "), or this build does not have them: it has ",
              kindex_torch::served);
  TORCH_CHECK(false, "kindex: ", operation, ": ", hipGetErrorString(status));
}

void indexer_k_quant_and_cache(const Tensor& k, const Tensor& kv_cache, const Tensor& slot_mapping,
                               std::int64_t quant_block_size,
                               const std::optional<std::string>& scale_fmt, bool preshuffle) {
  check_device({{"k", k}, {"kv_cache", kv_cache}, {"slot_mapping", slot_mapping}});
  const c10::cuda::CUDAGuard guard(k.device());
  check_dims("k", k, 2, "[tokens, head_dim]");
  check_rows("k", k);
  check_dims("slot_mapping", slot_mapping, 1, "[tokens]");
  check_rows("slot_mapping", slot_mapping);

  kindex::store_params params;
  params.cache = view_of(kv_cache, k.size(1), preshuffle);
  TORCH_CHECK(quant_block_size == kindex::quant_group(params.cache.head_dim),
              "kindex: quant_block_size ", quant_block_size, " with head_dim ", k.size(1),
              ": scales are for ", kindex::quant_group(params.cache.head_dim), " dims");
  TORCH_CHECK(!scale_fmt || *scale_fmt == "ue8m0" || *scale_fmt == "" || *scale_fmt == "auto",
              "kindex: scale_fmt \"", *scale_fmt, "\" is not \"ue8m0\", \"auto\", \"\" or None");
  params.rounding = scale_fmt && *scale_fmt == "ue8m0" ? kindex::scale_rounding::ue8m0
                                                       : kindex::scale_rounding::none;
  params.k = k.data_ptr();
  switch (k.scalar_type()) {
    case at::kBFloat16:
      params.k_type = kindex::element_type::bf16;
      break;
    case at::kHalf:
      params.k_type = kindex::element_type::fp16;
      break;
    case at::kFloat:
      params.k_type = kindex::element_type::fp32;
      break;
    default:
      TORCH_CHECK(false, "kindex: k has type ", k.scalar_type(),
                  ", not bfloat16, float16 or float32");
  }
  params.k_row_stride = k.stride(0);
  params.num_tokens = k.size(0);
  params.num_slots = slot_mapping.size(0);
  if (slot_mapping.scalar_type() == at::kLong) {
    params.slots = slot_mapping.const_data_ptr<std::int64_t>();
  } else {
    TORCH_CHECK(slot_mapping.scalar_type() == at::kInt, "kindex: slot_mapping has type ",
                slot_mapping.scalar_type(), ", not int64 or int32");
    params.slots = slot_mapping.const_data_ptr<std::int32_t>();
  }
  check_status("indexer_k_quant_and_cache",
               kindex_torch::store(params, at::cuda::getCurrentCUDAStream()), params);
}

void cp_gather_indexer_k_quant_cache(const Tensor& kv_cache, const Tensor& dst_k,
                                     const Tensor& dst_scale, const Tensor& block_table,
                                     const Tensor& cu_seq_lens, bool preshuffle) {
  check_device({{"kv_cache", kv_cache},
                {"dst_k", dst_k},
                {"dst_scale", dst_scale},
                {"block_table", block_table},
                {"cu_seq_lens", cu_seq_lens}});
  const c10::cuda::CUDAGuard guard(kv_cache.device());
  check_dims("dst_k", dst_k, 2, "[tokens, head_dim]");
  check_rows("dst_k", dst_k);
  TORCH_CHECK(dst_k.element_size() == 1, "kindex: dst_k has type ", dst_k.scalar_type(),
              ", not one of 1 byte");
  check_dims("dst_scale", dst_scale, 2, "[tokens, scales] (or their bytes)");
  check_rows("dst_scale", dst_scale);
  check_dims("block_table", block_table, 2, "[sequences, pages]");
  check_rows("block_table", block_table);
  check_type("block_table", block_table, at::kInt);
  check_dims("cu_seq_lens", cu_seq_lens, 1, "[sequences + 1]");
  check_rows("cu_seq_lens", cu_seq_lens);
  check_type("cu_seq_lens", cu_seq_lens, at::kInt);

  kindex::gather_params params;
  params.cache = view_of(kv_cache, dst_k.size(1), preshuffle);
  const std::int64_t scale_bytes = dst_scale.size(1) * dst_scale.element_size();
  TORCH_CHECK(scale_bytes == 4 * kindex::scales_per_token(params.cache.head_dim),
              "kindex: dst_scale has rows of ", scale_bytes, " bytes, not of ",
              4 * kindex::scales_per_token(params.cache.head_dim));
  TORCH_CHECK(dst_scale.size(0) >= dst_k.size(0), "kindex: dst_scale has ", dst_scale.size(0),
              " rows, dst_k ", dst_k.size(0));
  const std::int64_t scale_row_bytes = dst_scale.stride(0) * dst_scale.element_size();
  TORCH_CHECK(dst_scale.size(0) <= 1 || scale_row_bytes % 4 == 0, "kindex: dst_scale has rows ",
              scale_row_bytes, " bytes apart, not a multiple of 4");
  const std::int64_t num_seqs = std::max<std::int64_t>(cu_seq_lens.size(0) - 1, 0);
  TORCH_CHECK(block_table.size(0) >= num_seqs, "kindex: block_table has ", block_table.size(0),
              " rows, cu_seq_lens ", num_seqs, " sequences");
  params.block_table = block_table.const_data_ptr<std::int32_t>();
  params.block_table_stride = block_table.stride(0);
  params.block_table_width = block_table.size(1);
  params.cu_seq_lens = cu_seq_lens.const_data_ptr<std::int32_t>();
  params.num_seqs = num_seqs;
  params.dst_k = dst_k.data_ptr();
  params.dst_k_stride_bytes = dst_k.stride(0);
  params.dst_scale = static_cast<float*>(dst_scale.data_ptr());
  params.dst_scale_stride = scale_row_bytes / 4;
  params.num_tokens = dst_k.size(0);
  check_status("cp_gather_indexer_k_quant_cache",
               kindex_torch::gather(params, at::cuda::getCurrentCUDAStream()), params);
}

// Preshuffle and KVBlockSize say what the cache is. ChunkK and what follows tune another
// implementation and have no meaning here; schedules are not needed.
void deepgemm_fp8_paged_mqa_logits(
    const Tensor& q_fp8, const Tensor& kv_cache, const Tensor& weights, const Tensor& out_logits,
    const Tensor& context_lens, const Tensor& kv_indices, std::int64_t max_model_len,
    bool Preshuffle, std::int64_t KVBlockSize, std::int64_t /*ChunkK*/,
    std::optional<std::int64_t> /*TotalCuCount*/, std::int64_t /*WavePerEU*/,
    const std::optional<Tensor>& /*VarCtxSchedule*/, std::optional<std::int64_t> /*SplitKV*/,
    const std::optional<Tensor>& /*PersistentSchedule*/, bool fill_neg_infinity) {
  check_device({{"q_fp8", q_fp8},
                {"kv_cache", kv_cache},
                {"weights", weights},
                {"out_logits", out_logits},
                {"context_lens", context_lens},
                {"kv_indices", kv_indices}});
  const c10::cuda::CUDAGuard guard(q_fp8.device());
  check_dims("q_fp8", q_fp8, 4, "[sequences, next_n, heads, head_dim]");
  check_rows("q_fp8", q_fp8);
  check_dims("weights", weights, 2, "[sequences * next_n, heads]");
  check_rows("weights", weights);
  check_type("weights", weights, at::kFloat);
  check_dims("out_logits", out_logits, 2, "[sequences * next_n, max_model_len or more]");
  check_rows("out_logits", out_logits);
  check_type("out_logits", out_logits, at::kFloat);
  check_type("context_lens", context_lens, at::kInt);
  check_dims("kv_indices", kv_indices, 2, "[sequences, pages]");
  check_rows("kv_indices", kv_indices);
  check_type("kv_indices", kv_indices, at::kInt);

  const std::int64_t num_seqs = q_fp8.size(0), next_n = q_fp8.size(1), num_heads = q_fp8.size(2);
  TORCH_CHECK(weights.size(0) == num_seqs * next_n && weights.size(1) == num_heads,
              "kindex: weights has shape ", weights.sizes(), "; q_fp8 of shape ", q_fp8.sizes(),
              " goes with [", num_seqs * next_n, ", ", num_heads, "]");
  TORCH_CHECK(out_logits.size(0) >= num_seqs * next_n, "kindex: out_logits has ",
              out_logits.size(0), " rows for ", num_seqs * next_n, " rows of q_fp8");
  TORCH_CHECK(out_logits.size(1) >= max_model_len, "kindex: out_logits has ", out_logits.size(1),
              " columns, max_model_len is ", max_model_len);
  TORCH_CHECK(kv_indices.size(0) >= num_seqs, "kindex: kv_indices has ", kv_indices.size(0),
              " rows for ", num_seqs, " sequences");
  TORCH_CHECK(kv_cache.dim() >= 2 && kv_cache.size(1) == KVBlockSize, "kindex: KVBlockSize ",
              KVBlockSize, " is not the page size of kv_cache of shape ", kv_cache.sizes());

  kindex::paged_mqa_logits_params params;
  params.cache = view_of(kv_cache, q_fp8.size(3), Preshuffle);
  params.q_format = format_of("q_fp8", q_fp8);
  params.q = q_fp8.data_ptr();
  params.q_batch_stride = q_fp8.stride(0);
  params.q_next_n_stride = q_fp8.stride(1);
  params.q_head_stride = q_fp8.stride(2);
  params.weights = weights.const_data_ptr<float>();
  params.weights_row_stride = weights.stride(0);
  params.context_lens = context_lens.const_data_ptr<std::int32_t>();
  if (context_lens.dim() == 2) {  // vLLM's and DeepGEMM's: one length a row
    TORCH_CHECK(context_lens.size(0) >= num_seqs && context_lens.size(1) == next_n,
                "kindex: context_lens has shape ", context_lens.sizes(), ", not [", num_seqs, ", ",
                next_n, "]");
    params.context_lens_shape = kindex::lens_shape::per_row;
    params.context_lens_next_n_stride = context_lens.stride(1);
  } else {
    TORCH_CHECK(context_lens.dim() == 1 && context_lens.size(0) >= num_seqs,
                "kindex: context_lens has shape ", context_lens.sizes(), ", not [", num_seqs,
                "] or [", num_seqs, ", ", next_n, "]");
    params.context_lens_shape = kindex::lens_shape::per_sequence;
  }
  params.context_lens_batch_stride = context_lens.stride(0);
  params.block_table = kv_indices.const_data_ptr<std::int32_t>();
  params.block_table_stride = kv_indices.stride(0);
  params.block_table_width = kv_indices.size(1);
  params.logits = out_logits.data_ptr<float>();
  params.logits_row_stride = out_logits.stride(0);
  params.logits_width = max_model_len;
  params.num_seqs = num_seqs;
  params.next_n = next_n;
  params.num_heads = num_heads;
  params.fill = fill_neg_infinity ? kindex::fill::neg_infinity : kindex::fill::none;
  check_status("deepgemm_fp8_paged_mqa_logits",
               kindex_torch::paged_mqa_logits(params, at::cuda::getCurrentCUDAStream()), params);
}

}  // namespace

TORCH_LIBRARY(kindex, library) {
  library.def(
      "indexer_k_quant_and_cache(Tensor k, Tensor(a!) kv_cache, Tensor slot_mapping, "
      "int quant_block_size, str? scale_fmt, bool preshuffle=False) -> ()");
  library.def(
      "cp_gather_indexer_k_quant_cache(Tensor kv_cache, Tensor(a!) dst_k, Tensor(b!) dst_scale, "
      "Tensor block_table, Tensor cu_seq_lens, bool preshuffle=False) -> ()");
  library.def(
      "deepgemm_fp8_paged_mqa_logits(Tensor q_fp8, Tensor kv_cache, Tensor weights, "
      "Tensor(a!) out_logits, Tensor context_lens, Tensor kv_indices, int max_model_len, "
      "bool Preshuffle=False, int KVBlockSize=1, int ChunkK=256, int? TotalCuCount=None, "
      "int WavePerEU=2, Tensor? VarCtxSchedule=None, int? SplitKV=None, "
      "Tensor? PersistentSchedule=None, *, bool fill_neg_infinity=False) -> ()");
}

// PyTorch calls AMD's GPUs CUDA as well.
TORCH_LIBRARY_IMPL(kindex, CUDA, library) {
  library.impl("indexer_k_quant_and_cache", &indexer_k_quant_and_cache);
  library.impl("cp_gather_indexer_k_quant_cache", &cp_gather_indexer_k_quant_cache);
  library.impl("deepgemm_fp8_paged_mqa_logits", &deepgemm_fp8_paged_mqa_logits);
}
