// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// A user of kindex with no build system: clang++ -x hip -I include bare_include.hip. Stores one
// token and gathers it.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <kindex/kindex.hpp>

using geometry =
    kindex::cache_geometry<64, kindex::page_layout::preshuffled, kindex::fp8_format::e4m3fnuz, 128>;

namespace {

void check(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  std::printf("%s: %s\n", what, hipGetErrorString(status));
  std::exit(1);
}

template <class T>
T* on_device(const std::vector<T>& values) {
  void* data = nullptr;
  check(hipMalloc(&data, values.size() * sizeof(T)), "hipMalloc");
  check(hipMemcpy(data, values.data(), values.size() * sizeof(T), hipMemcpyHostToDevice), "copy");
  return static_cast<T*>(data);
}

}  // namespace

int main() {
  kindex::typed_cache_view<geometry> cache;
  cache.num_pages = 2;
  cache.data =
      on_device(std::vector<unsigned char>(static_cast<std::size_t>(2 * cache.page_stride_bytes)));

  std::vector<float> k(128);
  for (int dim = 0; dim < 128; ++dim) k[static_cast<std::size_t>(dim)] = dim == 100 ? -2.0f : 1.0f;
  kindex::store_params writer;
  writer.k = on_device(k);
  writer.k_type = kindex::element_type::fp32;
  writer.k_row_stride = 128;
  writer.num_tokens = 1;
  writer.slots = on_device(std::vector<std::int64_t>{64});
  writer.num_slots = 1;
  check(kindex::store<kindex::store_config<geometry, kindex::element_type::fp32>>(cache, writer,
                                                                                  nullptr),
        "store");

  kindex::gather_params reader;
  reader.block_table = on_device(std::vector<std::int32_t>{1});
  reader.block_table_stride = reader.block_table_width = 1;
  reader.cu_seq_lens = on_device(std::vector<std::int32_t>{0, 1});
  reader.num_seqs = 1;
  std::vector<unsigned char> bytes(128);
  std::vector<float> scale(1);
  reader.dst_k = on_device(bytes);
  reader.dst_k_stride_bytes = 128;
  reader.dst_scale = on_device(scale);
  reader.dst_scale_stride = 1;
  reader.num_tokens = 1;
  check(kindex::gather<kindex::gather_config<geometry>>(cache, reader, nullptr), "gather");
  check(hipDeviceSynchronize(), "synchronize");
  check(hipMemcpy(bytes.data(), reader.dst_k, 128, hipMemcpyDeviceToHost), "copy");
  check(hipMemcpy(scale.data(), reader.dst_scale, 4, hipMemcpyDeviceToHost), "copy");
  // amax 2 becomes 240 = 0x7F; 1 becomes 120 = 0x77.
  const bool right = bytes[100] == 0xFF && bytes[99] == 0x77 && scale[0] == 2.0f / 240;
  std::printf("%s\n", right ? "right" : "wrong");
  return right ? 0 : 1;
}
