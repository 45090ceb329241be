// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Gather: pages to contiguous K rows (plain order) and scales. Bytes move as they are.
//
// A wave takes as many tokens of one sequence as it has lanes, from a multiple of that on: so it
// reads whole tiles, wherever their rows go. First a lane stands for a token: it finds its page and
// place, and loads its scales. Then a lane stands for 16 dims of a row, and the wave moves its rows
// a few at a time, all loads before the first store.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cache_view.hpp"
#include "config.hpp"
#include "detail/divider.hpp"
#include "detail/launch.hpp"
#include "detail/launch_order.hpp"
#include "detail/memory.hpp"
#include "detail/wave.hpp"
#include "params.hpp"
#include "validate.hpp"

KINDEX_NAMESPACE_BEGIN

/// What the gather kernel knows at compile time.
template <class Geometry>
struct gather_config {
  using geometry = Geometry;  ///< of the cache that it reads
  /// What the kernel is instantiated for.
  using kernel_config = gather_config<typename Geometry::any_format>;
  static constexpr int block_size = 256;  ///< threads of a block
  /// Each of them has a chunk of a sequence's tokens.
  static constexpr int waves_per_block = block_size / detail::wave_size;
  /// Units of 16 bytes of a row.
  static constexpr int units_per_token = Geometry::head_dim / detail::unit_bytes;
  /// Units of one row that a wave moves in one step. A whole row is best for gfx9, whose 64 lanes
  /// then read and write 128 bytes in a row. So do 32 lanes with plain pages; of preshuffled ones
  /// they read 128 bytes with four units of eight rows, and write 64.
  static constexpr int units_per_step =
      detail::wave_size == 64 || Geometry::layout == page_layout::plain ? units_per_token : 4;
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

/// Tokens of one sequence that a wave moves: a chunk.
inline constexpr int chunk_tokens = wave_size;

/// The number of a sequence's first chunk, from where its first token goes. A sequence has as many
/// numbers as chunks, or one more, whose chunk has no tokens: so no lengths need be added up.
KINDEX_DEVICE std::uint32_t first_chunk_of(int seq, std::int32_t first_token) {
  return static_cast<std::uint32_t>(first_token) / chunk_tokens + static_cast<std::uint32_t>(seq);
}

/// The sequence that owns a chunk, the same for the whole wave: the last one whose first chunk is
/// not behind it. 64 ranges of sequences are looked at in one step, which rules out all but one.
KINDEX_DEVICE int owner_of_chunk(const std::int32_t* cu_seq_lens, int num_seqs,
                                 std::uint32_t chunk) {
  constexpr int lanes_at_once = 64;
  constexpr int at_once = lanes_at_once / wave_size;
  int first = 0;
  int count = num_seqs;
  while (count > 1) {
    const int step = (count + lanes_at_once - 1) / lanes_at_once;
    int seq[at_once];
    std::int32_t first_token[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int offset = (i * wave_size + lane_id()) * step;
      seq[i] = offset < count ? first + offset : -1;
      first_token[i] = cu_seq_lens[seq[i] >= 0 ? seq[i] : first];
    }
    int num_before = 0;
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      num_before +=
          __popcll(ballot(seq[i] >= 0 && first_chunk_of(seq[i], first_token[i]) <= chunk));
    }
    const int passed = (num_before - 1) * step;
    first += passed;
    count = count - passed < step ? count - passed : step;
  }
  return first;
}

template <class Config, class Args>
KINDEX_KERNEL __launch_bounds__(Config::block_size) void gather_kernel([[maybe_unused]] Args args) {
#if KINDEX_TARGET_SUPPORTED
  let_next_launch_begin();
  wait_for_earlier_launches();
  using geometry = typename Config::geometry;
  constexpr int num_scales = geometry::num_scales;
  constexpr int units_per_step = Config::units_per_step;
  constexpr int steps_per_row = Config::units_per_token / units_per_step;
  constexpr int rows_per_step = wave_size / units_per_step;
  constexpr int steps = Config::units_per_token;
  const std::uint32_t chunk = blockIdx.x * static_cast<std::uint32_t>(Config::waves_per_block) +
                              static_cast<std::uint32_t>(wave_id());
  const int seq = owner_of_chunk(args.cu_seq_lens, args.num_seqs, chunk);
  const std::int32_t seq_first = uniform(args.cu_seq_lens[seq]);
  const std::int64_t seq_end = uniform(args.cu_seq_lens[seq + 1]);
  const std::int64_t end = seq_end < args.num_tokens ? seq_end : args.num_tokens;
  const std::uint32_t first_position = (chunk - first_chunk_of(seq, seq_first)) * chunk_tokens;
  const std::int64_t first_token = std::int64_t{seq_first} + first_position;
  if (first_token >= end) return;
  const int num_tokens =
      end - first_token < chunk_tokens ? static_cast<int>(end - first_token) : chunk_tokens;

  // A lane is a token.
  const int lane = lane_id();
  const std::int32_t* const table_row = args.block_table + seq * args.block_table_stride;
  const std::uint32_t position = first_position + static_cast<std::uint32_t>(lane);
  const std::uint32_t entry = args.pages.page(position);
  long long k_offset = -1;  // from the first page on; negative: zeros, or no row
  float scale[num_scales] = {};
  if (lane < num_tokens && entry < args.block_table_width) {
    const std::int64_t page = table_row[entry];
    if (page >= 0 && page < args.num_pages) {
      const int page_size = args.pages.page_size();
      const int token_in_page = static_cast<int>(position - entry * page_size);
      const std::int64_t page_offset = page * args.page_stride_bytes;
      k_offset =
          page_offset + k_offset_in_page(geometry::layout, geometry::head_dim, token_in_page, 0);
      const auto* const scales = reinterpret_cast<const float*>(
          args.data + page_offset +
          scale_offset_in_page(page_size, geometry::head_dim, token_in_page, 0));
#pragma unroll
      for (int g = 0; g < num_scales; ++g) scale[g] = scales[g];
    }
  }

  // A lane is a unit of a row.
  const int unit = lane % units_per_step;
  const int row = lane / units_per_step;
  const char* const units =
      args.data + k_offset_in_page(geometry::layout, geometry::head_dim, 0, unit * unit_bytes);
  char* const first_dst =
      args.dst_k + (first_token + row) * args.dst_k_stride_bytes + unit * unit_bytes;
  const auto move_rows = [&](auto whole) {
    constexpr bool is_whole = decltype(whole)::value;
    u32x4 value[steps];
    long long offset = -1;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if (step % steps_per_row == 0) {
        offset = shuffle(k_offset, step / steps_per_row * rows_per_step + row);
      }
      const int first_dim = step % steps_per_row * units_per_step * unit_bytes;
      if constexpr (!is_whole) value[step] = u32x4{0, 0, 0, 0};
      if (is_whole || offset >= 0) {
        value[step] = load_unit<unit_alignment(geometry::page_size)>(
            units + k_offset_in_page(geometry::layout, geometry::head_dim, 0, first_dim) + offset);
      }
    }
    char* dst = first_dst;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      char* const to = dst + step % steps_per_row * units_per_step * unit_bytes;
      if (is_whole || step / steps_per_row * rows_per_step + row < num_tokens) {
        if (is_whole || args.dst_k_is_aligned) {
          store_unit<16>(to, value[step]);
        } else {
          store_unit<1>(to, value[step]);
        }
      }
      if (step % steps_per_row == steps_per_row - 1) dst += rows_per_step * args.dst_k_stride_bytes;
    }
  };
  // A branch around a load or store makes the compiler wait for all that are under way: where every
  // row is there, none has one.
  if (args.dst_k_is_aligned && ballot(k_offset >= 0) == all_lanes) {
    move_rows(std::true_type{});
  } else {
    move_rows(std::false_type{});
  }
  if (lane < num_tokens) {
    float* const dst_scale = args.dst_scale + (first_token + lane) * args.dst_scale_stride;
#pragma unroll
    for (int g = 0; g < num_scales; ++g) dst_scale[g] = scale[g];
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
  const std::int64_t num_chunks = (params.num_tokens - 1) / detail::chunk_tokens + params.num_seqs;
  const std::int64_t num_blocks =
      (num_chunks + Config::waves_per_block - 1) / Config::waves_per_block;
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
