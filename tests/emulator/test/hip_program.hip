// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// An ordinary HIP program, built at several optimisation levels by CMake: kernel launches through
// the triple chevron, device variables, dynamic LDS, calls, divergence, shuffles, graphs, and
// (with KINDEX_TEST_ROCPRIM) the block primitives of rocPRIM.

#include <hip/hip_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#ifdef KINDEX_TEST_ROCPRIM
#include <rocprim/functional.hpp>

#include <rocprim/block/block_radix_sort.hpp>
#include <rocprim/block/block_reduce.hpp>
#include <rocprim/block/block_scan.hpp>
#include <rocprim/warp/warp_reduce.hpp>
#endif

namespace {

int failures = 0;

void expect(bool ok, const char* what) {
  if (ok) return;
  ++failures;
  std::printf("FAILED: %s\n", what);
}
void check(hipError_t error, const char* what) {
  if (error != hipSuccess) {
    ++failures;
    std::printf("FAILED: %s: %s\n", what, hipGetErrorString(error));
  }
}
#define CHECK(call) check(call, #call)

template <class T>
T* upload(const std::vector<T>& v) {
  T* p = nullptr;
  CHECK(hipMalloc(&p, v.size() * sizeof(T)));
  CHECK(hipMemcpy(p, v.data(), v.size() * sizeof(T), hipMemcpyHostToDevice));
  return p;
}
template <class T>
std::vector<T> download(const T* p, size_t n) {
  std::vector<T> v(n);
  CHECK(hipMemcpy(v.data(), p, n * sizeof(T), hipMemcpyDeviceToHost));
  return v;
}

__constant__ float scale[4];
__device__ unsigned total;

__device__ __noinline__ float weigh(float x, int i) { return x * scale[i & 3]; }

template <int threads>
__global__ void reduce(const float* in, float* out, int n) {
  extern __shared__ float partial[];
  const int t = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = static_cast<int>(blockIdx.x) * threads + t; i < n;
       i += static_cast<int>(gridDim.x) * threads) {
    sum += weigh(in[i], i);
  }
  partial[t] = sum;
  __syncthreads();
  for (int step = threads / 2; step >= 64; step /= 2) {
    if (t < step) partial[t] += partial[t + step];
    __syncthreads();
  }
  if (t < 64) {
    sum = partial[t];
    for (int step = 32; step; step /= 2) sum += __shfl_down(sum, step);
    if (t == 0) {
      out[blockIdx.x] = sum;
      atomicAdd(&total, 1u);
    }
  }
}

__global__ void softmax(const float* x, float* y, int width, int height) {
  const int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (row >= height) return;
  float largest = -INFINITY;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += 64) {
    largest = fmaxf(largest, x[row * width + i]);
  }
  for (int step = 32; step; step /= 2) largest = fmaxf(largest, __shfl_xor(largest, step));
  for (int i = static_cast<int>(threadIdx.x); i < width; i += 64) {
    sum += expf(x[row * width + i] - largest);
  }
  for (int step = 32; step; step /= 2) sum += __shfl_xor(sum, step);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += 64) {
    y[row * width + i] = expf(x[row * width + i] - largest) / sum;
  }
}

// Registers indexed by a variable, 64-bit division, a switch.
__global__ void mixed(const int* x, long* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  int values[16];
  for (int k = 0; k < 16; ++k) values[k] = x[(i + k) % n] + k;
  long r = values[x[i] & 15];
  values[(x[i] >> 4) & 15] = 7;
  for (int k = 0; k < 16; ++k) r = r * 31 + values[k];
  switch (x[i] % 4) {
    case 0:
      r /= (x[i] | 1);
      break;
    case 1:
      r %= 1000003;
      break;
    case 2:
      r ^= __ballot(1) ? 5 : 9;
      break;
    default:
      r += __popc(static_cast<unsigned>(x[i])) + __clz(x[i]);
      break;
  }
  y[i] = r;
}

long mixed_on_host(const std::vector<int>& x, int i) {
  const int n = static_cast<int>(x.size());
  const auto at = [&](int k) { return x[static_cast<size_t>(k % n)]; };
  int values[16];
  for (int k = 0; k < 16; ++k) values[k] = at(i + k) + k;
  long r = values[at(i) & 15];
  values[(at(i) >> 4) & 15] = 7;
  for (int k = 0; k < 16; ++k) r = r * 31 + values[k];
  switch (at(i) % 4) {
    case 0:
      return r / (at(i) | 1);
    case 1:
      return r % 1000003;
    case 2:
      return r ^ 5;
    default:
      return r + __builtin_popcount(static_cast<unsigned>(at(i))) +
             (at(i) ? __builtin_clz(static_cast<unsigned>(at(i))) : 32);
  }
}

__global__ void add_one(int* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

#ifdef KINDEX_TEST_ROCPRIM
__global__ __launch_bounds__(256) void sort_blocks(unsigned* keys, unsigned* values) {
  using sorter = rocprim::block_radix_sort<unsigned, 256, 4, unsigned>;
  __shared__ typename sorter::storage_type storage;
  unsigned k[4];
  unsigned v[4];
  const unsigned first = blockIdx.x * 1024 + threadIdx.x * 4;
  for (unsigned i = 0; i < 4; ++i) {
    k[i] = keys[first + i];
    v[i] = values[first + i];
  }
  sorter().sort(k, v, storage);
  for (unsigned i = 0; i < 4; ++i) {
    keys[first + i] = k[i];
    values[first + i] = v[i];
  }
}

__global__ __launch_bounds__(256) void scan_blocks(const int* x, int* inclusive, int* sums,
                                                   int* wave_sums) {
  using scanner = rocprim::block_scan<int, 256>;
  using reducer = rocprim::block_reduce<int, 256>;
  using wave_reducer = rocprim::warp_reduce<int, 64>;
  __shared__ typename scanner::storage_type scan_storage;
  __shared__ typename reducer::storage_type reduce_storage;
  __shared__ typename wave_reducer::storage_type wave_storage[4];
  const unsigned i = blockIdx.x * 256 + threadIdx.x;
  int out;
  scanner().inclusive_scan(x[i], out, scan_storage, rocprim::plus<int>());
  inclusive[i] = out;
  int sum;
  reducer().reduce(x[i], sum, reduce_storage, rocprim::plus<int>());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
  int wave_sum;
  wave_reducer().reduce(x[i], wave_sum, wave_storage[threadIdx.x / 64], rocprim::plus<int>());
  if (threadIdx.x % 64 == 0) wave_sums[i / 64] = wave_sum;
}

void test_rocprim() {
  std::mt19937 random(5);
  std::vector<unsigned> keys(4096);
  std::vector<unsigned> values(4096);
  for (unsigned k = 0; k < 4096; ++k) {
    keys[k] = random();
    values[k] = k;
  }
  unsigned* device_keys = upload(keys);
  unsigned* device_values = upload(values);
  sort_blocks<<<4, 256>>>(device_keys, device_values);
  CHECK(hipGetLastError());
  const auto sorted = download(device_keys, 4096);
  const auto moved = download(device_values, 4096);
  for (int block = 0; block < 4; ++block) {
    std::vector<unsigned> expected(keys.begin() + block * 1024, keys.begin() + block * 1024 + 1024);
    std::sort(expected.begin(), expected.end());
    expect(std::equal(expected.begin(), expected.end(), sorted.begin() + block * 1024),
           "block_radix_sort keys");
  }
  for (size_t k = 0; k < 4096; ++k) {
    if (keys[moved[k]] != sorted[k]) expect(false, "block_radix_sort values");
  }

  std::vector<int> x(1024);
  for (int& v : x) v = static_cast<int>(random() % 2000) - 1000;
  int* in = upload(x);
  int* inclusive = upload(std::vector<int>(1024));
  int* sums = upload(std::vector<int>(4));
  int* wave_sums = upload(std::vector<int>(16));
  scan_blocks<<<4, 256>>>(in, inclusive, sums, wave_sums);
  CHECK(hipGetLastError());
  const auto scanned = download(inclusive, 1024);
  for (int block = 0; block < 4; ++block) {
    std::vector<int> expected(256);
    std::partial_sum(x.begin() + block * 256, x.begin() + block * 256 + 256, expected.begin());
    expect(std::equal(expected.begin(), expected.end(), scanned.begin() + block * 256),
           "block_scan");
    expect(download(sums, 4)[static_cast<size_t>(block)] == expected[255], "block_reduce");
  }
  const auto waves = download(wave_sums, 16);
  for (size_t w = 0; w < 16; ++w) {
    const auto begin = x.begin() + static_cast<long>(64 * w);
    expect(waves[w] == std::accumulate(begin, begin + 64, 0), "warp_reduce");
  }
}
#endif

void test_kernels() {
  const int n = 20000;
  std::vector<float> a(n);
  const float factors[4] = {1, 2, 0.5f, -1};
  double reference = 0;
  for (int i = 0; i < n; ++i) {
    a[static_cast<size_t>(i)] = std::sin(static_cast<float>(i) * 0.01f);
    reference += static_cast<double>(a[static_cast<size_t>(i)]) * factors[i & 3];
  }
  float* in = upload(a);
  float* out = upload(std::vector<float>(16));
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(scale), factors, sizeof factors));
  unsigned count = 0;
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(total), &count, sizeof count));
  reduce<256><<<16, 256, 256 * sizeof(float)>>>(in, out, n);
  CHECK(hipGetLastError());
  CHECK(hipDeviceSynchronize());
  double sum = 0;
  for (float x : download(out, 16)) sum += x;
  expect(std::abs(sum - reference) < 1e-2, "reduction");
  CHECK(hipMemcpyFromSymbol(&count, HIP_SYMBOL(total), sizeof count));
  expect(count == 16, "atomic on a device variable");

  const int width = 300;
  const int height = 10;
  float* y = upload(std::vector<float>(width * height));
  softmax<<<dim3((height + 3) / 4), dim3(64, 4)>>>(in, y, width, height);
  CHECK(hipGetLastError());
  const auto probabilities = download(y, width * height);
  for (int row = 0; row < height; ++row) {
    double all = 0;
    for (int i = 0; i < width; ++i) {
      all += std::exp(static_cast<double>(a[static_cast<size_t>(row * width + i)]));
    }
    for (int i = 0; i < width; ++i) {
      const size_t at = static_cast<size_t>(row * width + i);
      if (std::abs(probabilities[at] - std::exp(static_cast<double>(a[at])) / all) > 1e-7) {
        expect(false, "softmax");
      }
    }
  }

  std::vector<int> x(500);
  std::mt19937 random(3);
  for (int& v : x) v = static_cast<int>(random() >> 1);
  int* integers = upload(x);
  long* results = upload(std::vector<long>(500));
  mixed<<<2, 256>>>(integers, results, 500);
  CHECK(hipGetLastError());
  const auto r = download(results, 500);
  for (int i = 0; i < 500; ++i) {
    if (r[static_cast<size_t>(i)] != mixed_on_host(x, i)) expect(false, "integers");
  }
}

void test_graph() {
  int* x = upload(std::vector<int>(256, 5));
  hipStream_t stream;
  CHECK(hipStreamCreate(&stream));
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  int* argument = x;
  add_one<<<1, 256, 0, stream>>>(argument);
  add_one<<<1, 256, 0, stream>>>(argument);
  argument = nullptr;  // the arguments were copied
  hipGraph_t graph;
  CHECK(hipStreamEndCapture(stream, &graph));
  hipGraphExec_t exec;
  CHECK(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
  expect(download(x, 256)[0] == 5, "nothing runs while capturing");
  for (int k = 0; k < 5; ++k) CHECK(hipGraphLaunch(exec, stream));
  CHECK(hipStreamSynchronize(stream));
  expect(download(x, 256)[255] == 15, "graph replay");
  CHECK(hipGraphExecDestroy(exec));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(stream));
  add_one<<<1, 2048>>>(x);
  expect(hipGetLastError() == hipErrorInvalidConfiguration, "too large a block");
  add_one<<<0, 64>>>(x);
  expect(hipGetLastError() == hipErrorInvalidConfiguration, "an empty grid");
}

}  // namespace

int main() {
  test_kernels();
  test_graph();
#ifdef KINDEX_TEST_ROCPRIM
  test_rocprim();
#endif
  std::printf(failures ? "%d failures\n" : "passed\n", failures);
  return failures != 0;
}
