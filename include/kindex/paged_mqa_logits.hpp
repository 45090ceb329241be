// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Paged MQA logits: relu(q . k) weighted over heads, for every visible token of every sequence.
//
// Every block takes an equal share of all visible tokens (detail/logits_work.hpp) and walks through
// it sequence by sequence; what happens to 64 tokens of one sequence is the target's business
// (detail/logits_gfx9.hpp). K is read once, for all rows of its sequence. Nothing is shared between
// blocks, so the bits of a logit depend on its q, weights and K alone.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cache_view.hpp"
#include "config.hpp"
#include "detail/launch.hpp"
#include "detail/logits_work.hpp"
#include "params.hpp"
#include "validate.hpp"

#if KINDEX_PLATFORM_NVIDIA
#include "detail/logits_sm90.hpp"
#else
#include "detail/logits_gfx9.hpp"
#endif

KINDEX_NAMESPACE_BEGIN

namespace detail {

#if KINDEX_PLATFORM_NVIDIA
namespace target = sm90;
#else
namespace target = gfx9;
#endif

}  // namespace detail

/// What the logits kernel knows at compile time.
template <class Geometry, query_source Query, int Heads>
struct paged_mqa_logits_config {
  static_assert(Query != query_source::registers || (Heads > 0 && Heads % 16 == 0),
                "kindex: q in registers needs its number of heads, a multiple of 16");
  using geometry = Geometry;  ///< of the cache that it reads
  /// What the kernel is instantiated for.
  using kernel_config = paged_mqa_logits_config<typename Geometry::any_format, Query, Heads>;
  static constexpr query_source query = Query;  ///< where q stays while K passes by
  /// gfx9: the number of heads with q in registers, else 0. Hopper: heads of one matrix
  /// instruction.
  static constexpr int heads = Heads;
  /// gfx9: the register budget. 256 dims take twice the registers for K, q from memory takes some
  /// for addresses, and so do units that lie in several pages, more than is left beside resident q;
  /// zeros in registers do not fit the others either. Two waves are what a launch has for a SIMD.
  static constexpr int waves_per_simd =
      Geometry::head_dim > 128 || Query == query_source::global || KINDEX_CLANG_20 ? 2
      : Query == query_source::registers&& Geometry::page_size != 0 &&
              Geometry::page_size % detail::unit_tokens == 0
          ? 4
          : 3;

  /// True if the kernel serves rows of this shape.
  static constexpr bool serves(std::int64_t next_n, std::int64_t num_heads) {
    return (Query == query_source::registers ? next_n == 1 && num_heads == Heads
                                             : num_heads % (Heads == 0 ? 1 : Heads) == 0) &&
           detail::target::plan_shared_memory<paged_mqa_logits_config>(next_n, num_heads)
                   .total_bytes <= detail::target::max_dynamic_shared_bytes;
  }
};

namespace detail {

#if KINDEX_DEVICE_COMPILER

#if KINDEX_TARGET_SUPPORTED
/// What a block does, with the shared memory that it has.
template <class Config, class Args>
KINDEX_DEVICE void run_logits_block(const Args& args, char* dynamic_shared,
                                    typename target::unit_engine<Config>::shared_state& state) {
#if KINDEX_TARGET_CDNA
  if constexpr (Config::query == query_source::registers) __builtin_assume(args.next_n == 1);
#endif
  target::unit_engine<Config> engine(args, dynamic_shared, state);
  engine.run();
  if (args.fill_neg_infinity) fill_invisible_columns(args, engine.pieces_to_fill());
}
#endif

/// Args is a parameter of its own: a type that depends on Config would be mangled differently for
/// host and device by some compilers.
template <class Config, class Args>
KINDEX_KERNEL KINDEX_LAUNCH_BOUNDS(
    target::block_size,
    Config::waves_per_simd) void paged_mqa_logits_kernel([[maybe_unused]] Args args) {
#if KINDEX_TARGET_SUPPORTED
  __shared__ typename target::unit_engine<Config>::shared_state state;
  extern __shared__ char __attribute__((aligned(target::shared_alignment))) dynamic_shared[];
  run_logits_block<Config>(args, dynamic_shared, state);
#else
  __builtin_trap();
#endif
}

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail

#if KINDEX_DEVICE_COMPILER

/// Paged MQA logits with everything the compiler can know in Config. Refuses a cache of another
/// geometry, a device whose fp8 format is not the cache's, and shapes that Config is not made for.
/// Otherwise as `paged_mqa_logits` in dispatch.hpp.
template <class Config>
hipError_t paged_mqa_logits(const paged_mqa_logits_params& params, hipStream_t stream) {
  using geometry = typename Config::geometry;
  if (const validation checked = validate(params); !checked.ok()) return checked.status;
  if (!geometry::matches(params.cache)) return hipErrorInvalidValue;
  if (!Config::serves(params.next_n, params.num_heads)) return hipErrorInvalidValue;
  detail::device_facts device;
  if (const hipError_t status = detail::query_device(device); status != hipSuccess) return status;
  if (device.native_format != geometry::format) return hipErrorNotSupported;
  if (params.num_seqs == 0 || params.next_n == 0 || params.logits_width == 0) return hipSuccess;
  const std::int64_t table_tokens = params.block_table_width * params.cache.page_size;
  const std::int64_t max_visible =
      params.logits_width < table_tokens ? params.logits_width : table_tokens;
  // No more blocks than units that could exist, or pieces of rows to fill.
  const std::int64_t max_units =
      params.num_seqs * ((max_visible + detail::unit_tokens - 1) / detail::unit_tokens);
  std::int64_t num_blocks =
      (max_units + detail::target::units_per_step - 1) / detail::target::units_per_step;
  if (params.fill == kindex::fill::neg_infinity) {
    const std::int64_t pieces =
        params.num_seqs * params.next_n *
        ((params.logits_width + detail::fill_columns - 1) / detail::fill_columns);
    constexpr int waves = detail::target::block_size / detail::wave_size;
    if (pieces > num_blocks * waves) num_blocks = (pieces + waves - 1) / waves;
  }
  const std::int64_t most_blocks =
      std::int64_t{device.num_compute_units} * detail::target::blocks_per_compute_unit;
  if (num_blocks > most_blocks) num_blocks = most_blocks;
  if (num_blocks == 0) return hipSuccess;

  detail::logits_args<geometry::page_size> args;
  args.data = static_cast<const char*>(params.cache.data);
  args.page_stride_bytes = params.cache.page_stride_bytes;
  // Ids are int32: compared as unsigned, none from 2^31 on is a page, and 2^31 - 1 may be one.
  constexpr std::int64_t num_ids = std::int64_t{1} << 31;
  args.num_pages = static_cast<std::uint32_t>(
      params.cache.num_pages < num_ids ? params.cache.num_pages : num_ids);
  args.pages = detail::page_splitter<geometry::page_size>(params.cache.page_size);
  args.q = static_cast<const char*>(params.q);
  args.q_batch_stride = params.q_batch_stride;
  args.q_next_n_stride = params.q_next_n_stride;
  args.q_head_stride = params.q_head_stride;
  args.weights = params.weights;
  args.weights_row_stride = params.weights_row_stride;
  args.context_lens = params.context_lens;
  args.context_lens_batch_stride = params.context_lens_batch_stride;
  args.context_lens_next_n_stride = params.context_lens_next_n_stride;
  args.block_table = params.block_table;
  args.block_table_stride = params.block_table_stride;
  args.logits = params.logits;
  args.logits_row_stride = params.logits_row_stride;
  args.logits_width = params.logits_width;
  args.num_blocks = detail::divider(static_cast<std::uint32_t>(num_blocks));
  args.shared = detail::target::plan_shared_memory<Config>(params.next_n, params.num_heads);
  args.num_seqs = static_cast<std::int32_t>(params.num_seqs);
  args.next_n = static_cast<std::int32_t>(params.next_n);
  args.num_heads = static_cast<std::int32_t>(params.num_heads);
  args.max_visible = static_cast<std::int32_t>(max_visible);
  args.lens_per_row = params.context_lens_shape == lens_shape::per_row;
  args.lens_per_sequence = args.lens_per_row ? args.next_n : 1;
  args.fill_neg_infinity = params.fill == kindex::fill::neg_infinity;
  return detail::launch(
      &detail::paged_mqa_logits_kernel<typename Config::kernel_config, decltype(args)>,
      static_cast<unsigned>(num_blocks), detail::target::block_size, args, stream,
      static_cast<unsigned>(args.shared.total_bytes));
}

/// The same on a view whose geometry the compiler knows: one of another geometry does not compile.
/// The params' own cache is ignored.
template <class Config, class Geometry>
hipError_t paged_mqa_logits(const typed_cache_view<Geometry>& cache, paged_mqa_logits_params params,
                            hipStream_t stream) {
  static_assert(
      std::is_same_v<Geometry, typename Config::geometry>,
      "kindex: the cache view's geometry (page size, layout, format, head_dim) is not the "
      "Config's");
  params.cache = cache;
  return paged_mqa_logits<Config>(params, stream);
}

#endif  // KINDEX_DEVICE_COMPILER

KINDEX_NAMESPACE_END
