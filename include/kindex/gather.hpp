// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Gather: pages to contiguous K rows (plain order) and scales. Bytes move as they are.
//
// A lane moves 16 dims of one token. A block takes a run of consecutive output rows, finds the
// sequences of its first and last row by binary search, and only where they differ does a row
// search between the two.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cache_view.hpp"
#include "config.hpp"
#include "detail/divider.hpp"
#include "detail/launch.hpp"
#include "detail/memory.hpp"
#include "detail/wave.hpp"
#include "params.hpp"
#include "validate.hpp"

KINDEX_NAMESPACE_BEGIN

/// What the gather kernel knows at compile time.
template <class Geometry>
struct gather_config {
  using geometry = Geometry;
  using kernel_config = gather_config<typename Geometry::any_format>;
  static constexpr int block_size = 256;
  static constexpr int lanes_per_token = Geometry::head_dim / detail::unit_bytes;
  static constexpr int tokens_per_step = block_size / lanes_per_token;
  static constexpr int steps = 4;  // independent loads of one lane
  static constexpr int tokens_per_block = tokens_per_step * steps;
};

namespace detail {

/// gather_params as the kernel reads them.
template <int PageSize>
struct gather_args {
  const char* data;
  std::int64_t page_stride_bytes;
  std::int64_t num_pages;
  page_splitter<PageSize> pages;
  const std::int32_t* block_table;
  std::int64_t block_table_stride;
  std::int64_t block_table_width;
  const std::int32_t* cu_seq_lens;
  std::int32_t num_seqs;
  std::int32_t dst_k_is_aligned;  // every row starts at a multiple of 16 bytes; 32 bits: a scalar
  char* dst_k;
  std::int64_t dst_k_stride_bytes;
  float* dst_scale;
  std::int64_t dst_scale_stride;
  std::int64_t num_tokens;
};

#if KINDEX_DEVICE_COMPILER

/// The sequence that owns token i, known to lie in [first, last]: the largest b with cu[b] <= i.
/// Sequences of length 0 own nothing and are passed over.
KINDEX_DEVICE int owner_of_token(const std::int32_t* cu_seq_lens, int first, int last,
                                 std::int64_t token) {
  while (first < last) {
    const int middle = first + (last - first + 1) / 2;
    if (cu_seq_lens[middle] <= token) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  return first;
}

template <class Config, class Args>
KINDEX_KERNEL __launch_bounds__(Config::block_size) void gather_kernel([[maybe_unused]] Args args) {
#if KINDEX_TARGET_SUPPORTED
  using geometry = typename Config::geometry;
  constexpr int num_scales = geometry::num_scales;
  const std::int64_t total = args.cu_seq_lens[args.num_seqs];
  const std::int64_t end = total < args.num_tokens ? total : args.num_tokens;
  const std::int64_t block_first = static_cast<std::int64_t>(blockIdx.x) * Config::tokens_per_block;
  if (block_first >= end) return;
  const std::int64_t block_end = block_first + Config::tokens_per_block;
  const std::int64_t block_last = (block_end < end ? block_end : end) - 1;
  const int first_seq =
      uniform(owner_of_token(args.cu_seq_lens, 0, args.num_seqs - 1, block_first));
  const int last_seq =
      uniform(owner_of_token(args.cu_seq_lens, first_seq, args.num_seqs - 1, block_last));

  const int unit = static_cast<int>(threadIdx.x) % Config::lanes_per_token;
  const int page_size = args.pages.page_size();
  u32x4 value[Config::steps];
  float scale[Config::steps];
#pragma unroll
  for (int step = 0; step < Config::steps; ++step) {
    const std::int64_t token = block_first + step * Config::tokens_per_step +
                               static_cast<int>(threadIdx.x) / Config::lanes_per_token;
    value[step] = u32x4{0, 0, 0, 0};
    scale[step] = 0;
    if (token > block_last) continue;
    const int seq = owner_of_token(args.cu_seq_lens, first_seq, last_seq, token);
    const auto position = static_cast<std::uint32_t>(token - args.cu_seq_lens[seq]);
    const std::uint32_t entry = args.pages.page(position);
    if (entry >= args.block_table_width) continue;
    const std::int64_t page = args.block_table[seq * args.block_table_stride + entry];
    if (page < 0 || page >= args.num_pages) continue;
    const int token_in_page = static_cast<int>(position - entry * page_size);
    const char* const page_data = args.data + page * args.page_stride_bytes;
    value[step] = load_unit<unit_alignment(geometry::page_size)>(
        page_data +
        k_offset_in_page(geometry::layout, geometry::head_dim, token_in_page, unit * unit_bytes));
    if (unit < num_scales) {
      scale[step] = *reinterpret_cast<const float*>(
          page_data + scale_offset_in_page(page_size, geometry::head_dim, token_in_page, unit));
    }
  }
#pragma unroll
  for (int step = 0; step < Config::steps; ++step) {
    const std::int64_t token = block_first + step * Config::tokens_per_step +
                               static_cast<int>(threadIdx.x) / Config::lanes_per_token;
    if (token > block_last) continue;
    char* const dst = args.dst_k + token * args.dst_k_stride_bytes + unit * unit_bytes;
    if (args.dst_k_is_aligned) {
      store_unit<16>(dst, value[step]);
    } else {
      store_unit<1>(dst, value[step]);
    }
    if (unit < num_scales) args.dst_scale[token * args.dst_scale_stride + unit] = scale[step];
  }
#else
  __builtin_trap();
#endif
}

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail

#if KINDEX_DEVICE_COMPILER

/// Gather with everything the compiler can know in Config. Refuses a cache of another geometry.
/// The bytes are not interpreted, so any fp8 format is fine on any device. Otherwise as `gather` in
/// dispatch.hpp.
template <class Config>
hipError_t gather(const gather_params& params, hipStream_t stream) {
  using geometry = typename Config::geometry;
  if (const validation checked = validate(params); !checked.ok()) return checked.status;
  if (!geometry::matches(params.cache)) return hipErrorInvalidValue;
  detail::device_facts device;
  if (const hipError_t status = detail::query_device(device); status != hipSuccess) return status;
  if (params.num_tokens == 0 || params.num_seqs == 0) return hipSuccess;

  detail::gather_args<geometry::page_size> args;
  args.data = static_cast<const char*>(params.cache.data);
  args.page_stride_bytes = params.cache.page_stride_bytes;
  args.num_pages = params.cache.num_pages;
  args.pages = detail::page_splitter<geometry::page_size>(params.cache.page_size);
  args.block_table = params.block_table;
  args.block_table_stride = params.block_table_stride;
  args.block_table_width = params.block_table_width;
  args.cu_seq_lens = params.cu_seq_lens;
  args.num_seqs = static_cast<std::int32_t>(params.num_seqs);
  args.dst_k_is_aligned = reinterpret_cast<std::uintptr_t>(params.dst_k) % 16 == 0 &&
                          params.dst_k_stride_bytes % 16 == 0;
  args.dst_k = static_cast<char*>(params.dst_k);
  args.dst_k_stride_bytes = params.dst_k_stride_bytes;
  args.dst_scale = params.dst_scale;
  args.dst_scale_stride = params.dst_scale_stride;
  args.num_tokens = params.num_tokens;
  const std::int64_t num_blocks =
      (params.num_tokens + Config::tokens_per_block - 1) / Config::tokens_per_block;
  return detail::launch(&detail::gather_kernel<typename Config::kernel_config, decltype(args)>,
                        static_cast<unsigned>(num_blocks), Config::block_size, args, stream);
}

/// The same on a view whose geometry the compiler knows: one of another geometry does not compile.
/// The params' own cache is ignored.
template <class Config, class Geometry>
hipError_t gather(const typed_cache_view<Geometry>& cache, gather_params params,
                  hipStream_t stream) {
  static_assert(
      std::is_same_v<Geometry, typename Config::geometry>,
      "kindex: the cache view's geometry (page size, layout, format, head_dim) is not the "
      "Config's");
  params.cache = cache;
  return gather<Config>(params, stream);
}

#endif  // KINDEX_DEVICE_COMPILER

KINDEX_NAMESPACE_END
