// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The calls that engines make: run-time values in, one of an explicit list of kernels picked,
// anything else refused. Ask `validate` (validate.hpp) why.
#pragma once

#include <hip/hip_runtime.h>

#include <type_traits>

#include "cache_view.hpp"
#include "config.hpp"
#include "detail/launch.hpp"
#include "fp8.hpp"
#include "gather.hpp"
#include "paged_mqa_logits.hpp"
#include "params.hpp"
#include "store.hpp"
#include "validate.hpp"

KINDEX_NAMESPACE_BEGIN

/// The fp8 format of the current device: what `cache_view::format` must be for `store` and
/// `paged_mqa_logits` there. Attribute queries only; may be called while a stream captures.
/// Returns hipErrorNotSupported on a device that kindex has no kernels for, or the error of a
/// query; `format` is untouched then. Success does not mean that this program was compiled for the
/// device: where it was not, the launches return the runtime's error.
inline hipError_t native_format(fp8_format& format) {
  detail::device_facts device;
  const hipError_t status = detail::query_device(device);
  if (status == hipSuccess) format = device.native_format;
  return status;
}

#if KINDEX_DEVICE_COMPILER

namespace detail {

/// Calls `use` with the geometry of a view, one of the list below; every page size that is a
/// multiple of 16 and not in the list takes the run-time path.
template <fp8_format Format, int HeadDim, class Use>
hipError_t with_page_geometry(const cache_view& view, Use use) {
  const auto with_layout = [&](auto layout) {
    constexpr page_layout l = decltype(layout)::value;
    switch (view.page_size) {
      case 16:
        return use(cache_geometry<16, l, Format, HeadDim>{});
      case 32:
        return use(cache_geometry<32, l, Format, HeadDim>{});
      case 64:
        return use(cache_geometry<64, l, Format, HeadDim>{});
      case 128:
        return use(cache_geometry<128, l, Format, HeadDim>{});
      case 256:
        return use(cache_geometry<256, l, Format, HeadDim>{});
      default:
        return use(cache_geometry<0, l, Format, HeadDim>{});
    }
  };
  if (view.layout == page_layout::preshuffled) {
    return with_layout(std::integral_constant<page_layout, page_layout::preshuffled>{});
  }
  if (view.page_size == 1) return use(cache_geometry<1, page_layout::plain, Format, HeadDim>{});
  return with_layout(std::integral_constant<page_layout, page_layout::plain>{});
}

template <int HeadDim, class Use>
hipError_t with_format_geometry(const cache_view& view, Use use) {
  return view.format == fp8_format::e4m3fnuz
             ? with_page_geometry<fp8_format::e4m3fnuz, HeadDim>(view, use)
             : with_page_geometry<fp8_format::e4m3fn, HeadDim>(view, use);
}

/// Calls `use` with the head_dim of a view.
template <class Use>
hipError_t with_head_dim(const cache_view& view, Use use) {
  switch (view.head_dim) {
    case 64:
      return use(std::integral_constant<int, 64>{});
    case 128:
      return use(std::integral_constant<int, 128>{});
    case 256:
      return use(std::integral_constant<int, 256>{});
    default:
      return hipErrorNotSupported;
  }
}

/// The logits for one head_dim: the unit of compilation for those who want to spread the kernels
/// over several translation units.
template <int HeadDim>
hipError_t dispatch_paged_mqa_logits(const paged_mqa_logits_params& params, hipStream_t stream) {
  return with_format_geometry<HeadDim>(params.cache, [&](auto geometry) {
    return target::with_logits_config<decltype(geometry)>(
        params.next_n, params.num_heads,
        [&](auto config) { return paged_mqa_logits<decltype(config)>(params, stream); });
  });
}

}  // namespace detail

// Templates only so that a translation unit gets the kernels of the operations that it calls: a
// plain inline function would bring all of its kernels wherever this header is included.

/// Quantises K rows and writes them, with their scales, into the pages that `slots` name.
/// Asynchronous on `stream`; allocates nothing; may be captured. Tokens whose slot is outside the
/// cache are skipped. Nothing but the K bytes and scales of stored tokens is written.
/// Returns hipErrorInvalidValue or hipErrorNotSupported (see `validate`), hipErrorNotSupported on a
/// device that has no kernels or another fp8 format, else the status of the launch.
template <int = 0>
hipError_t store(const store_params& params, hipStream_t stream) {
  if (const validation checked = validate(params); !checked.ok()) return checked.status;
  return detail::with_head_dim(params.cache, [&](auto head_dim) {
    return detail::with_format_geometry<decltype(head_dim)::value>(
        params.cache, [&](auto geometry) {
          using g = decltype(geometry);
          switch (params.k_type) {
            case element_type::bf16:
              return store<store_config<g, element_type::bf16>>(params, stream);
            case element_type::fp16:
              return store<store_config<g, element_type::fp16>>(params, stream);
            case element_type::fp32:
              return store<store_config<g, element_type::fp32>>(params, stream);
          }
          return hipErrorInvalidValue;
        });
  });
}

/// Copies the K bytes (in plain order) and scales of cached tokens to contiguous rows.
/// Asynchronous on `stream`; allocates nothing; may be captured. Rows past cu_seq_lens[B] are not
/// touched; rows of page ids that are none become zeros. Errors as for `store`.
template <int = 0>
hipError_t gather(const gather_params& params, hipStream_t stream) {
  if (const validation checked = validate(params); !checked.ok()) return checked.status;
  return detail::with_head_dim(params.cache, [&](auto head_dim) {
    return detail::with_format_geometry<decltype(head_dim)::value>(
        params.cache,
        [&](auto geometry) { return gather<gather_config<decltype(geometry)>>(params, stream); });
  });
}

/// Computes the logits of every visible token. Asynchronous on `stream`; allocates nothing; may be
/// captured, and replayed with other lengths, tables and data: all of them are read on the device.
/// Writes the columns that a row sees and, with fill::neg_infinity, -inf to its other columns below
/// logits_width; nothing else. Columns of page ids that are none get -inf. Errors as for `store`.
template <int = 0>
hipError_t paged_mqa_logits(const paged_mqa_logits_params& params, hipStream_t stream) {
  if (const validation checked = validate(params); !checked.ok()) return checked.status;
  return detail::with_head_dim(params.cache, [&](auto head_dim) {
    return detail::dispatch_paged_mqa_logits<decltype(head_dim)::value>(params, stream);
  });
}

#endif  // KINDEX_DEVICE_COMPILER

KINDEX_NAMESPACE_END
