// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The three operations on a small cache: store K rows, gather them back, score them. One file that
// needs nothing but kindex and HIP; returns 0 if every number is right.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

// The region between the two [readme] lines is the README's example: a test compares them.
// [readme]
#include <kindex/kindex.hpp>

/// The indexer's decode step of one layer: stores the new tokens' K, then scores what is cached.
/// Pages: cache_geometry<64, page_layout::preshuffled, fp8_format::e4m3fnuz, 128>, say.
template <class Pages>
hipError_t decode_step(const kindex::typed_cache_view<Pages>& cache,  // data, num_pages
                       kindex::store_params store, kindex::paged_mqa_logits_params score,
                       hipStream_t stream) {
  store.k_row_stride = 128;  // k [num_tokens, 128] bf16; slots [num_slots]: page * 64 + token
  const hipError_t status =
      kindex::store<kindex::store_config<Pages, kindex::element_type::bf16>>(cache, store, stream);
  if (status != hipSuccess) return status;

  score.q_head_stride = 128;  // q [batch, 1, 64, 128] fp8, weights [batch, 64] fp32
  score.q_batch_stride = 64 * 128;
  score.q_format = Pages::format;
  score.weights_row_stride = 64;
  score.fill = kindex::fill::neg_infinity;  // -inf where a row sees no token
  constexpr auto q_place =
      KINDEX_PLATFORM_NVIDIA ? kindex::query_source::shared : kindex::query_source::registers;
  using logits_config = kindex::paged_mqa_logits_config<Pages, q_place, 64>;
  return kindex::paged_mqa_logits<logits_config>(cache, score, stream);
}
// [readme]

namespace {

void check(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
  std::exit(1);
}

/// An array on the device.
template <class T>
class device_array {
 public:
  explicit device_array(const std::vector<T>& values) : size_(values.size()) {
    check(hipMalloc(&data_, bytes()), "hipMalloc");
    check(hipMemcpy(data_, values.data(), bytes(), hipMemcpyHostToDevice), "hipMemcpy");
  }
  explicit device_array(std::size_t size) : device_array(std::vector<T>(size)) {}
  ~device_array() { (void)hipFree(data_); }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;

  T* get() const { return data_; }
  std::vector<T> download() const {
    std::vector<T> values(size_);
    check(hipMemcpy(values.data(), data_, bytes(), hipMemcpyDeviceToHost), "hipMemcpy");
    return values;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }
  std::size_t size_;
  T* data_ = nullptr;
};

// Two sequences of 100 and 65 tokens in four pages, not in order. All dims of a token's K have one
// value: -1, 0, 1, 2 or 3.
constexpr int page_size = 64, head_dim = 128, num_heads = 64, batch = 2, width = 128;
constexpr int lens[batch] = {100, 65};
constexpr int pages_of[batch][2] = {{3, 0}, {1, 4}};
float k_value(int token) { return static_cast<float>(token % 5 - 1); }
std::uint16_t to_bf16(float value) {  // exact for small integers
  std::uint32_t bits;
  static_assert(sizeof bits == sizeof value);
  __builtin_memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

bool close_to(float value, float expected) {
  return std::fabs(value - expected) <= 1e-3f * (1 + std::fabs(expected));
}

template <kindex::fp8_format Format>
int run() {
  using pages =
      kindex::cache_geometry<page_size, kindex::page_layout::preshuffled, Format, head_dim>;
  kindex::typed_cache_view<pages> cache;
  cache.num_pages = 5;
  const device_array<std::uint8_t> memory(
      static_cast<std::size_t>(cache.num_pages * cache.page_stride_bytes));
  cache.data = memory.get();

  std::vector<std::uint16_t> k;
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> table, cu_seq_lens = {0};
  for (int b = 0; b < batch; ++b) {
    for (int t = 0; t < lens[b]; ++t) {
      k.insert(k.end(), head_dim, to_bf16(k_value(t)));
      slots.push_back(pages_of[b][t / page_size] * page_size + t % page_size);
    }
    table.insert(table.end(), pages_of[b], pages_of[b] + 2);
    cu_seq_lens.push_back(cu_seq_lens.back() + lens[b]);
  }
  const auto num_tokens = static_cast<std::int64_t>(slots.size());
  const device_array<std::uint16_t> device_k(k);
  const device_array<std::int64_t> device_slots(slots);
  const device_array<std::int32_t> device_table(table), device_cu(cu_seq_lens),
      device_lens(std::vector<std::int32_t>(lens, lens + batch));

  kindex::store_params store;
  store.k = device_k.get();
  store.num_tokens = store.num_slots = num_tokens;
  store.slots = device_slots.get();

  // q of ones, weights of 1/64: the logit of a token whose dims are v is 128 * max(0, v).
  const device_array<std::uint8_t> q(
      std::vector<std::uint8_t>(batch * num_heads * head_dim, kindex::fp8_encode(Format, 1.0)));
  const device_array<float> weights(std::vector<float>(batch * num_heads, 1.0f / num_heads));
  const device_array<float> logits(batch * width);
  kindex::paged_mqa_logits_params score;
  score.q = q.get();
  score.weights = weights.get();
  score.context_lens = device_lens.get();
  score.block_table = device_table.get();
  score.block_table_stride = score.block_table_width = 2;
  score.logits = logits.get();
  score.logits_row_stride = score.logits_width = width;
  score.num_seqs = batch;
  hipStream_t stream;
  check(hipStreamCreate(&stream), "hipStreamCreate");
  check(decode_step(cache, store, score, stream), "decode_step");

  const device_array<std::uint8_t> dst_k(k.size());
  const device_array<float> dst_scale(slots.size());
  kindex::gather_params gather;
  gather.block_table = device_table.get();
  gather.block_table_stride = gather.block_table_width = 2;
  gather.cu_seq_lens = device_cu.get();
  gather.num_seqs = batch;
  gather.dst_k = dst_k.get();
  gather.dst_k_stride_bytes = head_dim;
  gather.dst_scale = dst_scale.get();
  gather.dst_scale_stride = 1;
  gather.num_tokens = num_tokens;
  check(kindex::gather<kindex::gather_config<pages>>(cache, gather, stream), "gather");
  check(hipStreamSynchronize(stream), "hipStreamSynchronize");
  check(hipStreamDestroy(stream), "hipStreamDestroy");

  int wrong = 0;
  const std::vector<float> scored = logits.download();
  for (int b = 0; b < batch; ++b) {
    for (int t = 0; t < width; ++t) {
      const float logit = scored[static_cast<std::size_t>(b * width + t)];
      wrong +=
          t < lens[b] ? !close_to(logit, 128 * std::fmax(0.0f, k_value(t))) : logit != -INFINITY;
    }
  }
  const std::vector<std::uint8_t> bytes = dst_k.download();
  const std::vector<float> scales = dst_scale.download();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t row = i / head_dim;
    const int token = static_cast<int>(row);
    const int t = token < lens[0] ? token : token - lens[0];
    const auto value = static_cast<float>(kindex::fp8_decode(Format, bytes[i]));
    wrong += !close_to(value * scales[row], k_value(t));
  }
  std::printf("%d tokens stored, gathered and scored: %s\n", static_cast<int>(num_tokens),
              wrong == 0 ? "ok" : "WRONG");
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
  // gfx942 has an fp8 format of its own; gfx950 and NVIDIA take the OCP one.
  kindex::fp8_format format{};
  check(kindex::native_format(format), "kindex::native_format");
  return format == kindex::fp8_format::e4m3fnuz ? run<kindex::fp8_format::e4m3fnuz>()
                                                : run<kindex::fp8_format::e4m3fn>();
}
