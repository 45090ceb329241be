// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "device_tools.hpp"

#include <hip/hip_runtime.h>

#include <type_traits>

#include "synthetic.hpp"

namespace kindex_bench {
namespace {

constexpr int block_size = 512;

/// One thread makes eight elements.
constexpr int elements_per_thread = 8;

__global__ void make_k_kernel(uint4* k, const std::int64_t* tokens, std::int64_t num_tokens) {
  constexpr int threads_per_token = head_dim / elements_per_thread;
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t token = index / threads_per_token;
  if (token >= num_tokens) return;
  const k_row row = make_k_row(tokens[token]);
  const int first = static_cast<int>(index % threads_per_token) * elements_per_thread;
  const auto pair = [&](int dim) {
    return k_element(row, first + dim) | static_cast<std::uint32_t>(k_element(row, first + dim + 1))
                                             << 16;
  };
  k[index] = make_uint4(pair(0), pair(2), pair(4), pair(6));
}

/// Calls `full(index)` for blocks of Unroll vectors a thread, neighbours in neighbouring threads,
/// and `rest(index)` for each vector that is left.
template <int Unroll, class Full, class Rest>
__device__ void for_each_vector(std::int64_t count, Full full, Rest rest) {
  constexpr std::int64_t step = std::int64_t{block_size} * Unroll;
  std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * step;
  for (; first + step <= count; first += gridDim.x * step) full(first + threadIdx.x);
  for (std::int64_t i = first + threadIdx.x; i < count && i < first + step; i += block_size) {
    rest(i);
  }
}

/// Moves that tell the caches not to keep what passes.
#if KINDEX_PLATFORM_NVIDIA
__device__ uint4 load_passing(const uint4* from) { return __ldcs(from); }
__device__ void store_passing(uint4* to, uint4 value) { __stcs(to, value); }
#else
using raw_vector = __attribute__((ext_vector_type(4))) unsigned;
__device__ uint4 load_passing(const uint4* from) {
  const raw_vector value = __builtin_nontemporal_load(reinterpret_cast<const raw_vector*>(from));
  return make_uint4(value.x, value.y, value.z, value.w);
}
__device__ void store_passing(uint4* to, uint4 value) {
  __builtin_nontemporal_store(raw_vector{value.x, value.y, value.z, value.w},
                              reinterpret_cast<raw_vector*>(to));
}
#endif

template <bool Passing>
__device__ uint4 load(const uint4* from) {
  return Passing ? load_passing(from) : *from;
}

template <bool Passing>
__device__ void store(uint4* to, uint4 value) {
  if (Passing) {
    store_passing(to, value);
  } else {
    *to = value;
  }
}

template <int Unroll, bool Passing>
__global__ __launch_bounds__(block_size) void read_kernel(uint4* data, std::int64_t count) {
  unsigned sum = 0;
  const auto add = [&](uint4 value) { sum |= value.x ^ value.y ^ value.z ^ value.w; };
  for_each_vector<Unroll>(
      count,
      [&](std::int64_t i) {
        uint4 value[Unroll];
#pragma unroll
        for (int j = 0; j < Unroll; ++j) value[j] = load<Passing>(data + i + j * block_size);
#pragma unroll
        for (int j = 0; j < Unroll; ++j) add(value[j]);
      },
      [&](std::int64_t i) { add(data[i]); });
  // All but never, which the compiler cannot know.
  if (sum == 0xDEADBEEFu) data->x = sum;
}

template <int Unroll, bool Passing>
__global__ __launch_bounds__(block_size) void copy_kernel(uint4* to, const uint4* from,
                                                          std::int64_t count) {
  for_each_vector<Unroll>(
      count,
      [&](std::int64_t i) {
        uint4 value[Unroll];
#pragma unroll
        for (int j = 0; j < Unroll; ++j) value[j] = load<Passing>(from + i + j * block_size);
#pragma unroll
        for (int j = 0; j < Unroll; ++j) store<Passing>(to + i + j * block_size, value[j]);
      },
      [&](std::int64_t i) { to[i] = from[i]; });
}

template <int Unroll, bool Passing>
__global__ __launch_bounds__(block_size) void write_kernel(uint4* data, std::int64_t count) {
  const uint4 value = make_uint4(0, 0, 0, 0);
  for_each_vector<Unroll>(
      count,
      [&](std::int64_t i) {
#pragma unroll
        for (int j = 0; j < Unroll; ++j) store<Passing>(data + i + j * block_size, value);
      },
      [&](std::int64_t i) { data[i] = value; });
}

/// hipLaunchKernel with typed arguments.
template <class... Parameters, class... Arguments>
hipError_t launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                  hipStream_t stream, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  return hipLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads),
                         pointers, 0, stream);
}

/// Calls `use(unroll, passing, blocks)` for so many bytes, the first two as types.
template <class Use>
hipError_t with_shape(const stream_shape& shape, std::size_t bytes, Use use) {
  const auto with_unroll = [&](auto unroll) {
    const std::size_t piece = std::size_t{block_size} * decltype(unroll)::value * sizeof(uint4);
    const auto blocks = shape.blocks > 0 ? static_cast<unsigned>(shape.blocks)
                                         : static_cast<unsigned>((bytes + piece - 1) / piece);
    return shape.passing ? use(unroll, std::true_type{}, blocks)
                         : use(unroll, std::false_type{}, blocks);
  };
  switch (shape.unroll) {
    case 1:
      return with_unroll(std::integral_constant<int, 1>{});
    case 4:
      return with_unroll(std::integral_constant<int, 4>{});
    case 8:
      return with_unroll(std::integral_constant<int, 8>{});
    default:
      return hipErrorInvalidValue;
  }
}

}  // namespace

hipError_t make_k_on_device(std::uint16_t* k, const std::int64_t* tokens, std::int64_t num_tokens,
                            hipStream_t stream) {
  if (num_tokens == 0) return hipSuccess;
  const std::int64_t threads = num_tokens * (head_dim / elements_per_thread);
  return launch(make_k_kernel, static_cast<unsigned>((threads + 255) / 256), 256, stream,
                reinterpret_cast<uint4*>(k), tokens, num_tokens);
}

hipError_t read_stream(void* data, std::size_t bytes, const stream_shape& shape,
                       hipStream_t stream) {
  return with_shape(shape, bytes, [&](auto unroll, auto passing, unsigned blocks) {
    return launch(read_kernel<decltype(unroll)::value, decltype(passing)::value>, blocks,
                  block_size, stream, static_cast<uint4*>(data),
                  static_cast<std::int64_t>(bytes / 16));
  });
}

hipError_t copy_stream(void* to, const void* from, std::size_t bytes, const stream_shape& shape,
                       hipStream_t stream) {
  return with_shape(shape, bytes, [&](auto unroll, auto passing, unsigned blocks) {
    return launch(copy_kernel<decltype(unroll)::value, decltype(passing)::value>, blocks,
                  block_size, stream, static_cast<uint4*>(to), static_cast<const uint4*>(from),
                  static_cast<std::int64_t>(bytes / 16));
  });
}

hipError_t write_stream(void* data, std::size_t bytes, const stream_shape& shape,
                        hipStream_t stream) {
  return with_shape(shape, bytes, [&](auto unroll, auto passing, unsigned blocks) {
    return launch(write_kernel<decltype(unroll)::value, decltype(passing)::value>, blocks,
                  block_size, stream, static_cast<uint4*>(data),
                  static_cast<std::int64_t>(bytes / 16));
  });
}

}  // namespace kindex_bench
