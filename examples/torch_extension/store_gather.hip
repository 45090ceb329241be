// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "kernels.hpp"
#include "served_geometries.hpp"

namespace kindex_torch {

hipError_t native_format(kindex::fp8_format& format) { return kindex::native_format(format); }

hipError_t store(const kindex::store_params& params, hipStream_t stream) {
#if KINDEX_TORCH_ALL_KERNELS
  return kindex::store(params, stream);
#else
  return with_served_geometry(params.cache, [&](auto geometry) {
    using kindex::element_type;
    using g = decltype(geometry);
    switch (params.k_type) {
      case element_type::bf16:
        return kindex::store<kindex::store_config<g, element_type::bf16>>(params, stream);
      case element_type::fp16:
        return kindex::store<kindex::store_config<g, element_type::fp16>>(params, stream);
      case element_type::fp32:
        return kindex::store<kindex::store_config<g, element_type::fp32>>(params, stream);
    }
    return hipErrorInvalidValue;
  });
#endif
}

hipError_t gather(const kindex::gather_params& params, hipStream_t stream) {
#if KINDEX_TORCH_ALL_KERNELS
  return kindex::gather(params, stream);
#else
  return with_served_geometry(params.cache, [&](auto geometry) {
    return kindex::gather<kindex::gather_config<decltype(geometry)>>(params, stream);
  });
#endif
}

}  // namespace kindex_torch
