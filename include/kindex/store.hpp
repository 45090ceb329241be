// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Store: quantise K rows to fp8 with one scale per 128 dims, and write both into their pages.
//
// A lane takes 16 dims of one token: 32 bytes of bf16 in, one unit of K out, which is contiguous in
// either layout. The D/16 lanes of a token are neighbours, the lanes of a scale group among them
// share their maximum by lane exchanges. Bytes are moved once; there is no shared memory.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cache_view.hpp"
#include "config.hpp"
#include "detail/convert.hpp"
#include "detail/divider.hpp"
#include "detail/launch.hpp"
#include "detail/memory.hpp"
#include "detail/wave.hpp"
#include "params.hpp"
#include "validate.hpp"

KINDEX_NAMESPACE_BEGIN

/// What the store kernel knows at compile time.
template <class Geometry, element_type KType>
struct store_config {
  using geometry = Geometry;
  using kernel_config = store_config<typename Geometry::any_format, KType>;
  static constexpr element_type k_type = KType;
  static constexpr int block_size = 256;
  static constexpr int lanes_per_token = Geometry::head_dim / detail::unit_bytes;
  static constexpr int lanes_per_group = quant_group(Geometry::head_dim) / detail::unit_bytes;
  static constexpr int tokens_per_block = block_size / lanes_per_token;
  static_assert(block_size % lanes_per_token == 0, "kindex: a block takes whole tokens");
};

namespace detail {

/// store_params as the kernel reads them.
template <int PageSize>
struct store_args {
  char* data;
  std::int64_t page_stride_bytes;
  std::int64_t num_slots_in_cache;  // pages * P
  page_splitter<PageSize> pages;
  const char* k;
  std::int64_t k_row_stride_bytes;
  const void* slots;
  std::int64_t num_tokens;
  float quant_max;
  // 32 bits each: what is smaller cannot be read as a scalar, only by a load into every lane.
  std::int32_t slots_are_int64;
  std::int32_t k_is_aligned;  // every row starts at a multiple of 16 bytes
  std::int32_t ue8m0;
  std::int32_t exact_division;
};

#if KINDEX_DEVICE_COMPILER

/// The smallest scale keeps zero rows away from a division by zero; aiter's and vLLM's floor.
inline constexpr float amax_floor = 1e-4f;

/// Scale of a group from the bits of its largest finite magnitude.
template <int PageSize>
KINDEX_DEVICE float group_scale(std::uint32_t amax_bits, const store_args<PageSize>& args) {
  const float amax = bits_to_float(amax_bits);
  const float scale = divide_rn(amax > amax_floor ? amax : amax_floor, args.quant_max);
  if (!args.ue8m0) return scale;
  // Up to the next power of two: any mantissa bit carries into the exponent.
  return bits_to_float((float_to_bits(scale) + 0x007FFFFFu) & 0xFF800000u);
}

/// Quantises and writes the 16 dims of one lane; all lanes of the token are here.
template <class Config, bool Aligned>
KINDEX_DEVICE void store_unit_of_token(const store_args<Config::geometry::page_size>& args,
                                       std::int64_t token, std::int64_t slot, int unit) {
  using geometry = typename Config::geometry;
  float value[unit_elements];
  load_elements<Config::k_type, Aligned>(args.k + token * args.k_row_stride_bytes +
                                             unit * unit_elements * element_bytes(Config::k_type),
                                         value);

  // Magnitudes compare as integers, NaN and Inf above all finite ones.
  std::uint32_t amax_bits = 0;
#pragma unroll
  for (int i = 0; i < unit_elements; ++i) {
    const std::uint32_t bits = float_to_bits(value[i]) & 0x7FFFFFFFu;
    amax_bits = bits > amax_bits ? bits : amax_bits;
  }
  amax_bits = group_max<Config::lanes_per_group>(amax_bits);
  if (amax_bits >= infinity_bits) {
    // Rare: only finite elements count. NaN becomes 0 at once; Inf keeps its sign for the clamp
    // below.
    amax_bits = 0;
#pragma unroll
    for (int i = 0; i < unit_elements; ++i) {
      const std::uint32_t bits = float_to_bits(value[i]) & 0x7FFFFFFFu;
      if (bits < infinity_bits) amax_bits = bits > amax_bits ? bits : amax_bits;
      if (bits > infinity_bits) value[i] = 0;
    }
    amax_bits = group_max<Config::lanes_per_group>(amax_bits);
  }

  const float scale = group_scale(amax_bits, args);
  if (args.exact_division) {
#pragma unroll
    for (int i = 0; i < unit_elements; ++i) value[i] = divide_rn(value[i], scale);
  } else {
    const float inverse = divide_rn(1.0f, scale);
#pragma unroll
    for (int i = 0; i < unit_elements; ++i) value[i] = multiply_rn(value[i], inverse);
  }
#pragma unroll
  for (int i = 0; i < unit_elements; ++i) {
    value[i] = fminf(fmaxf(value[i], -args.quant_max), args.quant_max);
  }
  u32x4 packed;
  packed.x = to_fp8x4(value[0], value[1], value[2], value[3]);
  packed.y = to_fp8x4(value[4], value[5], value[6], value[7]);
  packed.z = to_fp8x4(value[8], value[9], value[10], value[11]);
  packed.w = to_fp8x4(value[12], value[13], value[14], value[15]);

  const std::int64_t page =
      static_cast<std::int64_t>(args.pages.page(static_cast<std::uint64_t>(slot)));
  const int page_size = args.pages.page_size();
  const int token_in_page = static_cast<int>(slot - page * page_size);
  char* const page_data = args.data + page * args.page_stride_bytes;
  store_unit<unit_alignment(geometry::page_size)>(
      page_data + k_offset_in_page(geometry::layout, geometry::head_dim, token_in_page,
                                   unit * unit_elements),
      packed);
  if (unit % Config::lanes_per_group == 0) {
    *reinterpret_cast<float*>(page_data +
                              scale_offset_in_page(page_size, geometry::head_dim, token_in_page,
                                                   unit / Config::lanes_per_group)) = scale;
  }
}

template <class Config, class Args>
KINDEX_KERNEL __launch_bounds__(Config::block_size) void store_kernel([[maybe_unused]] Args args) {
#if KINDEX_TARGET_SUPPORTED
  const int unit = static_cast<int>(threadIdx.x) % Config::lanes_per_token;
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * Config::tokens_per_block +
                             static_cast<int>(threadIdx.x) / Config::lanes_per_token;
  if (token >= args.num_tokens) return;
  const std::int64_t slot = args.slots_are_int64
                                ? static_cast<const std::int64_t*>(args.slots)[token]
                                : std::int64_t{static_cast<const std::int32_t*>(args.slots)[token]};
  if (slot < 0 || slot >= args.num_slots_in_cache) return;
  if (args.k_is_aligned) {
    store_unit_of_token<Config, true>(args, token, slot, unit);
  } else {
    store_unit_of_token<Config, false>(args, token, slot, unit);
  }
#else
  __builtin_trap();
#endif
}

#endif  // KINDEX_DEVICE_COMPILER

}  // namespace detail

#if KINDEX_DEVICE_COMPILER

/// Store with everything the compiler can know in Config. Refuses a cache of another geometry and a
/// device whose fp8 format is not the cache's. Otherwise as `store` in dispatch.hpp.
template <class Config>
hipError_t store(const store_params& params, hipStream_t stream) {
  using geometry = typename Config::geometry;
  if (const validation checked = validate(params); !checked.ok()) return checked.status;
  if (!geometry::matches(params.cache) || params.k_type != Config::k_type)
    return hipErrorInvalidValue;
  detail::device_facts device;
  if (const hipError_t status = detail::query_device(device); status != hipSuccess) return status;
  if (device.native_format != geometry::format) return hipErrorNotSupported;
  const std::int64_t num_tokens =
      params.num_tokens < params.num_slots ? params.num_tokens : params.num_slots;
  if (num_tokens == 0 || params.cache.num_pages == 0) return hipSuccess;

  const std::int64_t row_bytes = params.k_row_stride * element_bytes(Config::k_type);
  detail::store_args<geometry::page_size> args;
  args.data = static_cast<char*>(params.cache.data);
  args.page_stride_bytes = params.cache.page_stride_bytes;
  args.num_slots_in_cache = params.cache.num_pages * params.cache.page_size;
  args.pages = detail::page_splitter<geometry::page_size>(params.cache.page_size);
  args.k = static_cast<const char*>(params.k);
  args.k_row_stride_bytes = row_bytes;
  args.slots = params.slots.data;
  args.num_tokens = num_tokens;
  args.quant_max = params.quant_max == 0 ? fp8_max(geometry::format) : params.quant_max;
  args.slots_are_int64 = params.slots.is_int64;
  args.k_is_aligned = reinterpret_cast<std::uintptr_t>(params.k) % 16 == 0 && row_bytes % 16 == 0;
  args.ue8m0 = params.rounding == scale_rounding::ue8m0;
  args.exact_division = params.division == quant_division::exact;
  const std::int64_t num_blocks =
      (num_tokens + Config::tokens_per_block - 1) / Config::tokens_per_block;
  return detail::launch(&detail::store_kernel<typename Config::kernel_config, decltype(args)>,
                        static_cast<unsigned>(num_blocks), Config::block_size, args, stream);
}

/// The same on a view whose geometry the compiler knows: one of another geometry does not compile.
/// The params' own cache is ignored.
template <class Config, class Geometry>
hipError_t store(const typed_cache_view<Geometry>& cache, store_params params, hipStream_t stream) {
  static_assert(
      std::is_same_v<Geometry, typename Config::geometry>,
      "kindex: the cache view's geometry (page size, layout, format, head_dim) is not the "
      "Config's");
  params.cache = cache;
  return store<Config>(params, stream);
}

#endif  // KINDEX_DEVICE_COMPILER

KINDEX_NAMESPACE_END
