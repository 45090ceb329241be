// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The benchmark's own kernels: input made on the device, and what the memory can do at best.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace kindex_bench {

/// Writes the K rows of the given tokens (synthetic.hpp): k is [num_tokens, head_dim] bf16; both
/// arrays in device memory.
hipError_t make_k_on_device(std::uint16_t* k, const std::int64_t* tokens, std::int64_t num_tokens,
                            hipStream_t stream);

/// How a stream kernel is launched: which does best differs from device to device.
struct stream_shape {
  int blocks;    ///< 0: as many as there are pieces, one each
  int unroll;    ///< vectors of one thread in flight: 1, 4 or 8
  bool passing;  ///< with hints that nothing will be used again
};

/// Reads all of a buffer once and (in all likelihood) writes nothing. `bytes` is a multiple of 16.
hipError_t read_stream(void* data, std::size_t bytes, const stream_shape& shape,
                       hipStream_t stream);

/// Copies one buffer to another.
hipError_t copy_stream(void* to, const void* from, std::size_t bytes, const stream_shape& shape,
                       hipStream_t stream);

/// Writes all of a buffer.
hipError_t write_stream(void* data, std::size_t bytes, const stream_shape& shape,
                        hipStream_t stream);

}  // namespace kindex_bench
