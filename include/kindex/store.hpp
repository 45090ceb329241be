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
#include "detail/launch_order.hpp"
#include "detail/memory.hpp"
#include "detail/wave.hpp"
#include "params.hpp"
#include "validate.hpp"

KINDEX_NAMESPACE_BEGIN

/// What the store kernel knows at compile time.
template <class Geometry, element_type KType>
struct store_config {
  using geometry = Geometry;  ///< of the cache that it writes
  /// What the kernel is instantiated for.
  using kernel_config = store_config<typename Geometry::any_format, KType>;
  static constexpr element_type k_type = KType;             ///< of the rows to store
  static constexpr int block_size = 4 * detail::wave_size;  ///< threads of a block
  /// Lanes that quantise one token, 16 dims each.
  static constexpr int lanes_per_token = Geometry::head_dim / detail::unit_bytes;
  /// Lanes that share a scale.
  static constexpr int lanes_per_group = quant_group(Geometry::head_dim) / detail::unit_bytes;
  static constexpr int tokens_per_block = block_size / lanes_per_token;  ///< rows of a block
  static_assert(block_size % lanes_per_token == 0, "kindex: a block takes whole tokens");
};

namespace detail {

/// store_params as the kernel reads them, in the order in which it needs them: neighbours come by
/// one scalar load. Flags have 32 bits: what is smaller can only be read by a load into every lane.
template <int PageSize>
struct store_args {
  const void* slots;
  std::uint32_t num_tokens;
  std::int32_t slots_are_int64;
  std::int64_t num_slots_in_cache;  // pages * P
  const char* k;
  std::int64_t k_row_stride_bytes;
  // Bits of amax from which on the plain path will not do: Inf, or 0 if the division is exact.
  std::uint32_t plain_amax_end;
  float quant_max;
  float inverse_quant_max;
  // The scale's bits, plus one, and the other: up to the next power of two (any mantissa bit
  // carries into the exponent), or nothing.
  std::uint32_t scale_round_add;
  std::uint32_t scale_round_mask;
  char* data;
  std::int64_t page_stride_bytes;
  std::int32_t exact_division;
  std::int32_t k_is_aligned;  // every row starts at a multiple of 16 bytes
  page_splitter<PageSize> pages;
};

#if KINDEX_DEVICE_COMPILER

/// The smallest scale keeps zero rows away from a division by zero; aiter's and vLLM's floor.
inline constexpr std::uint32_t amax_floor_bits = 0x38D1B717u;  // 1e-4

/// Scale of a group from the bits of its largest finite magnitude.
template <int PageSize>
KINDEX_DEVICE float group_scale(std::uint32_t amax_bits, const store_args<PageSize>& args) {
  const float amax = bits_to_float(amax_bits > amax_floor_bits ? amax_bits : amax_floor_bits);
  // amax / quant_max, correctly rounded: one correction of the product with the reciprocal does it
  // for every float and the quant_max that `validate` allows (tried out, all mantissas).
  const float product = multiply_rn(amax, args.inverse_quant_max);
  const float rest = multiply_add_rn(-product, args.quant_max, amax);
  const float scale = multiply_add_rn(rest, args.inverse_quant_max, product);
  return bits_to_float((float_to_bits(scale) + args.scale_round_add) & args.scale_round_mask);
}

/// Quantises the 16 dims of one lane; the lanes of its group are here. Returns the scale. Plain:
/// all of the group's elements are finite, and the division is by reciprocal.
template <class Config, bool Plain, class Args>
KINDEX_DEVICE float quantise_unit(const Args& args,
                                  const unit_of_elements<Config::k_type>& elements,
                                  std::uint32_t amax_bits, u32x4& packed) {
  float value[unit_elements];
  widen(elements, value);
  if constexpr (!Plain) {
    // Only finite elements count for the scale. NaN becomes 0 at once, Inf keeps its sign for the
    // clamp below.
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
  if (!Plain && args.exact_division) {
#pragma unroll
    for (int i = 0; i < unit_elements; ++i) value[i] = divide_rn(value[i], scale);
  } else {
    const float inverse = reciprocal_rn(scale);
#pragma unroll
    for (int i = 0; i < unit_elements; i += 2) multiply_pair_rn(value[i], value[i + 1], inverse);
  }
  if constexpr (!Plain) {
    // A finite value is at most a rounding error above quant_max, which the conversion takes back:
    // quant_max is an fp8 number.
#pragma unroll
    for (int i = 0; i < unit_elements; ++i) {
      value[i] = fminf(fmaxf(value[i], -args.quant_max), args.quant_max);
    }
  }
  packed.x = to_fp8x4(value[0], value[1], value[2], value[3]);
  packed.y = to_fp8x4(value[4], value[5], value[6], value[7]);
  packed.z = to_fp8x4(value[8], value[9], value[10], value[11]);
  packed.w = to_fp8x4(value[12], value[13], value[14], value[15]);
  return scale;
}

/// Loads the 16 elements that start at an address; on AMD every address will do.
template <class Config, class Args>
KINDEX_DEVICE unit_of_elements<Config::k_type> load_unit_of_k([[maybe_unused]] const Args& args,
                                                              const char* address) {
#if KINDEX_PLATFORM_NVIDIA
  if (args.k_is_aligned) return load_elements<Config::k_type, 16>(address);
#endif
  return load_elements<Config::k_type, element_bytes(Config::k_type)>(address);
}

template <class Config, class Args>
KINDEX_KERNEL __launch_bounds__(Config::block_size) void store_kernel([[maybe_unused]] Args args) {
#if KINDEX_TARGET_SUPPORTED
  let_next_launch_begin();
  using geometry = typename Config::geometry;
  const int unit = static_cast<int>(threadIdx.x) % Config::lanes_per_token;
  // A row has at least 128 bytes: no memory holds 2^32 of them.
  const std::uint32_t token = blockIdx.x * Config::tokens_per_block +
                              static_cast<unsigned>(threadIdx.x) / Config::lanes_per_token;
  const std::uint32_t last = args.num_tokens - 1;
  const std::uint32_t existing = token < last ? token : last;
  const auto own_part_of = [&](std::uint32_t row) {
    return args.k + row * args.k_row_stride_bytes +
           unit * unit_elements * element_bytes(Config::k_type);
  };
  // Only the slot says whether the row may be read. A prefetch reads nothing, and need not wait.
  prefetch(own_part_of(existing));
  prefetch(static_cast<const char*>(args.slots) +
           std::size_t{existing} * (args.slots_are_int64 ? 8 : 4));
  wait_for_earlier_launches();
  const std::int64_t slot =
      __builtin_expect(args.slots_are_int64, 1)
          ? static_cast<const std::int64_t*>(args.slots)[existing]
          : std::int64_t{static_cast<const std::int32_t*>(args.slots)[existing]};
  // Negative slots are the largest numbers without a sign.
  if (token > last ||
      static_cast<std::uint64_t>(slot) >= static_cast<std::uint64_t>(args.num_slots_in_cache)) {
    return;
  }
  const auto elements = load_unit_of_k<Config>(args, own_part_of(token));
  const std::uint32_t amax_bits = group_amax_bits<Config::lanes_per_group>(elements);
  u32x4 packed;
  float scale;
  // Asked for the whole wave: its branch is cheaper than one of lanes.
  if (__builtin_expect(ballot(amax_bits >= args.plain_amax_end) == 0, 1)) {
    scale = quantise_unit<Config, true>(args, elements, amax_bits, packed);
  } else {
    scale = quantise_unit<Config, false>(args, elements, amax_bits, packed);
  }

  const auto page = static_cast<std::uint32_t>(args.pages.page(static_cast<std::uint64_t>(slot)));
  const int page_size = args.pages.page_size();
  const int token_in_page = static_cast<int>(slot - std::int64_t{page} * page_size);
  char* const page_data = args.data + page * args.page_stride_bytes;
  store_unit<unit_alignment(geometry::page_size)>(
      page_data + static_cast<std::uint32_t>(k_offset_in_page(geometry::layout, geometry::head_dim,
                                                              token_in_page, unit * unit_elements)),
      packed);
  if (unit % Config::lanes_per_group == 0) {
    *reinterpret_cast<float*>(page_data + static_cast<std::uint32_t>(scale_offset_in_page(
                                              page_size, geometry::head_dim, token_in_page,
                                              unit / Config::lanes_per_group))) = scale;
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
  const std::int64_t num_tokens = stored_tokens(params);
  if (num_tokens == 0 || params.cache.num_pages == 0) return hipSuccess;

  // The stride of a single row means nothing, and may be too large to be multiplied.
  const std::int64_t row_bytes =
      num_tokens > 1 ? params.k_row_stride * element_bytes(Config::k_type) : 0;
  detail::store_args<geometry::page_size> args;
  args.data = static_cast<char*>(params.cache.data);
  args.page_stride_bytes = params.cache.page_stride_bytes;
  args.num_slots_in_cache = params.cache.num_pages * params.cache.page_size;
  args.pages = detail::page_splitter<geometry::page_size>(params.cache.page_size);
  args.k = static_cast<const char*>(params.k);
  args.k_row_stride_bytes = row_bytes;
  args.slots = params.slots.data;
  args.num_tokens = static_cast<std::uint32_t>(num_tokens);
  args.quant_max = params.quant_max == 0 ? fp8_max(geometry::format) : params.quant_max;
  args.inverse_quant_max = 1.0f / args.quant_max;
  args.slots_are_int64 = params.slots.is_int64;
  args.k_is_aligned = reinterpret_cast<std::uintptr_t>(params.k) % 16 == 0 && row_bytes % 16 == 0;
  const bool ue8m0 = params.rounding == scale_rounding::ue8m0;
  args.scale_round_add = ue8m0 ? 0x007FFFFFu : 0u;
  args.scale_round_mask = ue8m0 ? 0xFF800000u : ~0u;
  args.plain_amax_end = params.division == quant_division::exact ? 0u : detail::infinity_bits;
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
