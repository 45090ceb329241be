// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The three operations on the host, written to be read: the contract as code. The same parameters
// with host pointers. Bytes are exact; logits are computed in double, where fp8 products are exact.
// Parameters are taken as valid (validate.hpp). Needs a compiler with plain fp32 arithmetic:
// neither -ffast-math nor x87 registers.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cache_view.hpp"
#include "config.hpp"
#include "fp8.hpp"
#include "params.hpp"

KINDEX_NAMESPACE_BEGIN
namespace reference {

static_assert(FLT_EVAL_METHOD == 0, "kindex: the reference needs fp32 steps rounded to fp32");

/// The value of a bf16: the upper half of a float.
inline float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/// The value of an IEEE half, subnormals, infinities and NaN included.
inline float fp16_to_float(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  float magnitude = 0;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// Element `index` of an array of `type`.
inline float load_element(element_type type, const void* data, std::int64_t index) {
  const auto* bytes = static_cast<const unsigned char*>(data) + index * element_bytes(type);
  if (type == element_type::fp32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return type == element_type::bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

// Store -----------------------------------------------------------------------------------------

/// FMAX of a call: quant_max, or the format's maximum if that is 0.
inline float effective_quant_max(const store_params& params) {
  return params.quant_max == 0 ? fp8_max(params.cache.format) : params.quant_max;
}

/// The smallest power of two not below a positive normal float: a carry out of the mantissa.
inline float round_up_to_power_of_two(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t mantissa = bits & 0x007FFFFFu;
  bits = bits - mantissa + (mantissa != 0 ? 0x00800000u : 0u);
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

/// The stored scale of a group whose largest finite magnitude is `amax`.
inline float quant_scale(float amax, float quant_max, scale_rounding rounding) {
  const float floored = amax > 1e-4f ? amax : 1e-4f;
  const float scale = floored / quant_max;
  return rounding == scale_rounding::ue8m0 ? round_up_to_power_of_two(scale) : scale;
}

/// The stored byte of one element. Every step rounds to fp32.
inline std::uint8_t quant_byte(float value, float scale, float quant_max, quant_division division,
                               fp8_format format) {
  if (std::isnan(value)) return 0x00;
  const float inverse = 1.0f / scale;
  const float scaled = division == quant_division::reciprocal ? value * inverse : value / scale;
  const float clamped = scaled > quant_max ? quant_max : scaled < -quant_max ? -quant_max : scaled;
  return fp8_encode(format, static_cast<double>(clamped));
}

/// Slot `index` of a slot array.
inline std::int64_t load_slot(const slot_array& slots, std::int64_t index) {
  return slots.is_int64 ? static_cast<const std::int64_t*>(slots.data)[index]
                        : static_cast<const std::int32_t*>(slots.data)[index];
}

/// Store. Of two tokens with one slot the later wins.
inline void store(const store_params& params) {
  const cache_view& cache = params.cache;
  const int head_dim = cache.head_dim;
  const int group_size = quant_group(head_dim);
  const float quant_max = effective_quant_max(params);
  const std::int64_t tokens = stored_tokens(params);

  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t slot = load_slot(params.slots, i);
    if (slot < 0 || slot >= cache.num_pages * cache.page_size) continue;
    auto* page =
        static_cast<unsigned char*>(cache.data) + slot / cache.page_size * cache.page_stride_bytes;
    const int token = static_cast<int>(slot % cache.page_size);
    const auto element = [&](int dim) {
      return load_element(params.k_type, params.k, i * params.k_row_stride + dim);
    };

    for (int group = 0; group < scales_per_token(head_dim); ++group) {
      const int begin = group * group_size;
      const int end = begin + group_size;
      float amax = 0;
      for (int dim = begin; dim < end; ++dim) {
        const float magnitude = std::fabs(element(dim));
        if (std::isfinite(magnitude) && magnitude > amax) amax = magnitude;
      }
      const float scale = quant_scale(amax, quant_max, params.rounding);
      std::memcpy(page + scale_offset_in_page(cache.page_size, head_dim, token, group), &scale,
                  sizeof scale);
      for (int dim = begin; dim < end; ++dim) {
        page[k_offset_in_page(cache.layout, head_dim, token, dim)] =
            quant_byte(element(dim), scale, quant_max, params.division, cache.format);
      }
    }
  }
}

// Reading pages ---------------------------------------------------------------------------------

/// The page that holds token `token` of sequence `seq`, or null where the table has no page for it.
inline const unsigned char* find_page(const cache_view& cache, const std::int32_t* block_table,
                                      std::int64_t table_stride, std::int64_t table_width,
                                      std::int64_t seq, std::int64_t token) {
  const std::int64_t column = token / cache.page_size;
  if (column >= table_width) return nullptr;
  const std::int64_t page = block_table[seq * table_stride + column];
  if (page < 0 || page >= cache.num_pages) return nullptr;
  return static_cast<const unsigned char*>(cache.data) + page * cache.page_stride_bytes;
}

/// Scale `group` of token `token_in_page`.
inline float load_scale(const cache_view& cache, const unsigned char* page, int token_in_page,
                        int group) {
  float scale = 0;
  std::memcpy(&scale,
              page + scale_offset_in_page(cache.page_size, cache.head_dim, token_in_page, group),
              sizeof scale);
  return scale;
}

// Gather ----------------------------------------------------------------------------------------

/// Gather.
inline void gather(const gather_params& params) {
  const cache_view& cache = params.cache;
  const int num_scales = scales_per_token(cache.head_dim);
  for (std::int64_t seq = 0; seq < params.num_seqs; ++seq) {
    const std::int64_t begin = params.cu_seq_lens[seq];
    const std::int64_t end = params.cu_seq_lens[seq + 1];
    for (std::int64_t row = begin; row < end && row < params.num_tokens; ++row) {
      auto* dst_k = static_cast<unsigned char*>(params.dst_k) + row * params.dst_k_stride_bytes;
      float* dst_scale = params.dst_scale + row * params.dst_scale_stride;
      const std::int64_t token = row - begin;
      const unsigned char* page = find_page(cache, params.block_table, params.block_table_stride,
                                            params.block_table_width, seq, token);
      if (page == nullptr) {
        std::memset(dst_k, 0, static_cast<std::size_t>(cache.head_dim));
        std::memset(dst_scale, 0, sizeof(float) * static_cast<std::size_t>(num_scales));
        continue;
      }
      const int token_in_page = static_cast<int>(token % cache.page_size);
      for (int dim = 0; dim < cache.head_dim; ++dim) {
        dst_k[dim] = page[k_offset_in_page(cache.layout, cache.head_dim, token_in_page, dim)];
      }
      // Bytes, not floats: a scale that is a signalling NaN must arrive as it is.
      std::memcpy(dst_scale,
                  page + scale_offset_in_page(cache.page_size, cache.head_dim, token_in_page, 0),
                  sizeof(float) * static_cast<std::size_t>(num_scales));
    }
  }
}

// Logits ----------------------------------------------------------------------------------------

/// How many tokens row `row` = b * next_n + n sees: its written columns under fill::none.
inline std::int64_t visible_tokens(const paged_mqa_logits_params& params, std::int64_t row) {
  const std::int64_t seq = row / params.next_n;
  const std::int64_t n = row % params.next_n;
  std::int64_t visible = 0;
  if (params.context_lens_shape == lens_shape::per_sequence) {
    // The length counts the next_n new tokens, the last of which the last row sees.
    visible = params.context_lens[seq * params.context_lens_batch_stride] - params.next_n + n + 1;
  } else {
    visible = params.context_lens[seq * params.context_lens_batch_stride +
                                  n * params.context_lens_next_n_stride];
  }
  const std::int64_t in_table = params.block_table_width * params.cache.page_size;
  const std::int64_t limit = params.logits_width < in_table ? params.logits_width : in_table;
  if (visible > limit) visible = limit;
  return visible < 0 ? 0 : visible;
}

/// One logit and what its rounding error is measured by.
struct logit {
  double value;      ///< -inf where the table has no page
  double magnitude;  ///< sum_h |w * relu| * |scale|: tolerances are fractions of it
};

/// All 256 values of a format, since decoding is most of the reference's time.
inline const double* decode_table(fp8_format format) {
  struct table {
    double values[256];
    explicit table(fp8_format of) : values() {
      for (int byte = 0; byte < 256; ++byte) {
        values[byte] = fp8_decode(of, static_cast<std::uint8_t>(byte));
      }
    }
  };
  static const table fnuz(fp8_format::e4m3fnuz);
  static const table fn(fp8_format::e4m3fn);
  return format == fp8_format::e4m3fnuz ? fnuz.values : fn.values;
}

/// The logit of row `row` = b * next_n + n for token `token` < visible_tokens(params, row).
inline logit logit_value(const paged_mqa_logits_params& params, std::int64_t row,
                         std::int64_t token) {
  const cache_view& cache = params.cache;
  const std::int64_t seq = row / params.next_n;
  const std::int64_t n = row % params.next_n;
  const unsigned char* page = find_page(cache, params.block_table, params.block_table_stride,
                                        params.block_table_width, seq, token);
  if (page == nullptr) return {-std::numeric_limits<double>::infinity(), 0};

  const int token_in_page = static_cast<int>(token % cache.page_size);
  const int num_scales = scales_per_token(cache.head_dim);
  const int group_size = quant_group(cache.head_dim);
  const double* decode = decode_table(cache.format);
  double k[256] = {};
  for (int dim = 0; dim < cache.head_dim; ++dim) {
    k[dim] = decode[page[k_offset_in_page(cache.layout, cache.head_dim, token_in_page, dim)]];
  }

  double sum = 0;
  double magnitude = 0;
  for (std::int64_t head = 0; head < params.num_heads; ++head) {
    const auto* q = static_cast<const unsigned char*>(params.q) + seq * params.q_batch_stride +
                    n * params.q_next_n_stride + head * params.q_head_stride;
    double product = 0;
    for (int group = 0; group < num_scales; ++group) {
      double dot = 0;
      for (int dim = group * group_size; dim < (group + 1) * group_size; ++dim) {
        dot += decode[q[dim]] * k[dim];
      }
      // One scale a token stays outside the relu; several must be inside.
      product += num_scales == 1 ? dot : dot * load_scale(cache, page, token_in_page, group);
    }
    const double relu = product > 0 ? product : 0;
    const double term = params.weights[row * params.weights_row_stride + head] * relu;
    sum += term;
    magnitude += std::fabs(term);
  }
  if (num_scales > 1) return {sum, magnitude};
  const double scale = load_scale(cache, page, token_in_page, 0);
  return {sum * scale, magnitude * std::fabs(scale)};
}

/// Paged MQA logits: the double values rounded to fp32.
inline void paged_mqa_logits(const paged_mqa_logits_params& params) {
  for (std::int64_t row = 0; row < params.num_seqs * params.next_n; ++row) {
    float* out = params.logits + row * params.logits_row_stride;
    const std::int64_t visible = visible_tokens(params, row);
    for (std::int64_t token = 0; token < visible; ++token) {
      out[token] = static_cast<float>(logit_value(params, row, token).value);
    }
    if (params.fill == fill::none) continue;
    for (std::int64_t token = visible; token < params.logits_width; ++token) {
      out[token] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace reference
KINDEX_NAMESPACE_END
