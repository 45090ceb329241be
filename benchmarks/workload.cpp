// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "workload.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <thread>

#include <kindex/reference.hpp>

#include "device_tools.hpp"
#include "kernels.hpp"
#include "progress.hpp"
#include "support/data.hpp"
#include "support/platform.hpp"

namespace kindex_bench {
namespace {

using kindex_test::check;
using kindex_test::device_array;
using kindex_test::device_memory;

constexpr std::int64_t token_bytes = head_dim + 4;
// Values that a check looks at, of any operation.
constexpr std::int64_t check_samples = 2048;
// Ids of K rows that no cache holds.
constexpr std::int64_t foreign_ids = std::int64_t{1} << 40;

/// [num_tokens, head_dim] bf16 on the device: the K rows with these ids.
device_memory make_k(const std::vector<std::int64_t>& ids) {
  device_memory k(ids.size() * head_dim * sizeof(std::uint16_t));
  if (!kindex_test::is_emulated()) {
    const device_array<std::int64_t> device_ids(ids);
    check(make_k_on_device(reinterpret_cast<std::uint16_t*>(k.get()), device_ids.get(),
                           static_cast<std::int64_t>(ids.size()), nullptr),
          "make_k_on_device");
    check(hipDeviceSynchronize(), "hipDeviceSynchronize");
    return k;
  }
  // The host is much faster than an emulated device.
  std::vector<std::uint16_t> host(ids.size() * head_dim);
  const auto make_part = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const k_row row = make_k_row(ids[i]);
      for (int dim = 0; dim < head_dim; ++dim) host[i * head_dim + dim] = k_element(row, dim);
    }
  };
  const std::size_t num_threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < num_threads; ++t) {
    threads.emplace_back(make_part, ids.size() * t / num_threads,
                         ids.size() * (t + 1) / num_threads);
  }
  for (std::thread& thread : threads) thread.join();
  check(hipMemcpy(k.get(), host.data(), host.size() * sizeof(std::uint16_t), hipMemcpyHostToDevice),
        "hipMemcpy");
  return k;
}

kindex::store_params store_into(const kindex::cache_view& cache, const device_memory& k,
                                const std::int64_t* slots, std::int64_t first_row,
                                std::int64_t num_tokens) {
  kindex::store_params params;
  params.cache = cache;
  params.k = k.get() + first_row * head_dim * 2;
  params.k_row_stride = head_dim;
  params.num_tokens = num_tokens;
  params.slots = slots + first_row;
  params.num_slots = num_tokens;
  return params;
}

template <class T>
T download_one(const T* from) {
  T value;
  check(hipMemcpy(&value, from, sizeof value, hipMemcpyDeviceToHost), "hipMemcpy");
  return value;
}

std::string describe(const char* format, long long a, long long b, double found, double expected) {
  char text[160];
  std::snprintf(text, sizeof text, format, a, b, found, expected);
  return text;
}

/// Compares K bytes and scale of one token; counts them.
void compare_token(const std::uint8_t* found_k, float found_scale, const std::uint8_t* expected_k,
                   float expected_scale, std::int64_t seq, std::int64_t token,
                   check_result& result) {
  result.values += head_dim + 1;
  if (!result.ok()) return;
  for (int dim = 0; dim < head_dim; ++dim) {
    if (found_k[dim] == expected_k[dim]) continue;
    result.first_difference = describe("sequence %lld token %lld: K byte %.0f instead of %.0f", seq,
                                       token, found_k[dim], expected_k[dim]);
    return;
  }
  if (std::memcmp(&found_scale, &expected_scale, sizeof found_scale) != 0) {
    result.first_difference =
        describe("sequence %lld token %lld: scale %.9g instead of %.9g", seq, token,
                 static_cast<double>(found_scale), static_cast<double>(expected_scale));
  }
}

}  // namespace

std::int64_t last_level_cache_bytes() {
  if (kindex_test::is_emulated()) return 0;
  // What the attribute calls L2 is small on MI300; behind it are 256 MiB that all dies share.
  if (!kindex_test::is_nvidia()) return std::int64_t{256} << 20;
  int device = 0;
  int l2 = 0;
  check(hipGetDevice(&device), "hipGetDevice");
  check(hipDeviceGetAttribute(&l2, hipDeviceAttributeL2CacheSize, device), "hipDeviceGetAttribute");
  return l2;
}

std::int64_t rotation_bytes() {
  // Of what is read to be dropped first Hopper's L2 keeps older lines: after 8 times its size there
  // are enough of them to make K 3 to 6 % faster than memory is, after 24 times none.
  const std::int64_t times = kindex_test::is_nvidia() ? 24 : 8;
  return times * last_level_cache_bytes();
}

std::int64_t num_sets_for(std::int64_t bytes, inputs where) {
  constexpr std::int64_t most = 512;
  // A quarter of the cache: what it forgets first is no part of it.
  const std::int64_t sets = where == inputs::in_caches ? last_level_cache_bytes() / 4 / bytes
                                                       : (rotation_bytes() + bytes - 1) / bytes;
  return std::clamp<std::int64_t>(sets, 1, most);
}

std::vector<std::int32_t> uniform_lens(int count, int shortest, int longest) {
  kindex_test::random_stream random(64);
  std::vector<std::int32_t> lens;
  for (int i = 0; i < count; ++i) lens.push_back(random.integer(shortest, longest));
  return lens;
}

// Caches ----------------------------------------------------------------------------------------

std::int64_t cache_shape::num_tokens() const {
  return std::accumulate(lens.begin(), lens.end(), std::int64_t{0});
}

bool cache_shape::operator==(const cache_shape& other) const {
  return lens == other.lens && page_size == other.page_size && layout == other.layout &&
         table_width == other.table_width;
}

filled_cache::filled_cache(const cache_shape& shape, std::int64_t first_id, std::uint64_t seed) {
  kindex_test::random_stream random(seed);
  // A few pages that nobody owns, so that ids are not a permutation of what is needed.
  const std::int64_t num_pages = kindex_test::pages_needed(shape.lens, shape.page_size) + 7;
  table_ = kindex_test::make_page_table(shape.lens, shape.page_size, num_pages, random,
                                        shape.table_width, 0);
  device_table_ = device_array<std::int32_t>(table_.entries);

  view_.num_pages = num_pages;
  view_.page_stride_bytes = kindex::page_payload_bytes(shape.page_size, head_dim);
  view_.page_size = shape.page_size;
  view_.head_dim = head_dim;
  view_.layout = shape.layout;
  view_.format = kindex_test::native_format();
  memory_ = device_memory(bytes());
  view_.data = memory_.get();
  // NaN bytes (e4m3fn) and NaN scales wherever no token will be.
  check(hipMemset(view_.data, 0xFF, bytes()), "hipMemset");

  constexpr std::size_t chunk = 131072;
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> slots;
  const auto flush = [&] {
    if (ids.empty()) return;
    const device_memory k = make_k(ids);
    const device_array<std::int64_t> device_slots(slots);
    check(store(store_into(view_, k, device_slots.get(), 0, static_cast<std::int64_t>(ids.size())),
                nullptr),
          "kindex::store");
    check(hipDeviceSynchronize(), "kindex::store");
    ids.clear();
    slots.clear();
  };
  std::int64_t next_id = first_id;
  for (std::size_t seq = 0; seq < shape.lens.size(); ++seq) {
    first_ids_.push_back(next_id);
    for (std::int64_t token = 0; token < shape.lens[seq]; ++token) {
      ids.push_back(next_id++);
      slots.push_back(table_.slot(static_cast<std::int64_t>(seq), token));
      if (ids.size() == chunk) flush();
    }
  }
  flush();
}

std::size_t filled_cache::bytes() const {
  return static_cast<std::size_t>(view_.num_pages * view_.page_stride_bytes);
}

filled_cache::page_copy filled_cache::copy_page(std::int64_t seq, std::int64_t token) const {
  const std::int64_t slot = table_.slot(seq, token);
  page_copy copy{view_,
                 std::vector<std::uint8_t>(static_cast<std::size_t>(view_.page_stride_bytes)),
                 static_cast<int>(slot % view_.page_size)};
  check(
      hipMemcpy(copy.bytes.data(), memory_.get() + slot / view_.page_size * view_.page_stride_bytes,
                copy.bytes.size(), hipMemcpyDeviceToHost),
      "hipMemcpy");
  copy.view.data = copy.bytes.data();
  copy.view.num_pages = 1;
  return copy;
}

std::shared_ptr<const cache_pool> make_cache_pool(const cache_shape& shape,
                                                  std::size_t remembered) {
  static std::vector<std::shared_ptr<const cache_pool>> pools;
  for (const auto& pool : pools) {
    if (pool->shape == shape) return pool;
  }
  // Make room first: a pool may be a good part of the device's memory.
  while (pools.size() >= remembered) pools.erase(pools.begin());

  const std::int64_t num_sets = num_sets_for(shape.num_tokens() * token_bytes);
  char text[160];
  std::snprintf(text, sizeof text, "filling %lld cache%s of %lld tokens (%s pages of %d)",
                static_cast<long long>(num_sets), num_sets == 1 ? "" : "s",
                static_cast<long long>(shape.num_tokens()), kindex::to_string(shape.layout),
                shape.page_size);
  const progress line(text);
  auto pool = std::make_shared<cache_pool>();
  pool->shape = shape;
  pool->device_lens = device_array<std::int32_t>(shape.lens);
  for (std::int64_t set = 0; set < num_sets; ++set) {
    pool->caches.emplace_back(shape, set * shape.num_tokens(),
                              static_cast<std::uint64_t>(1000 + set));
  }
  pools.push_back(pool);
  return pool;
}

// Store -----------------------------------------------------------------------------------------

namespace {

class store_case : public bench_case {
 public:
  store_case(std::shared_ptr<const cache_pool> pool, store_tokens which, std::int64_t num_tokens,
             inputs where)
      : pool_(std::move(pool)), num_tokens_(num_tokens), where_(where) {
    const auto num_caches = static_cast<std::int64_t>(pool_->caches.size());
    const std::vector<std::int32_t>& lens = pool_->shape.lens;
    const auto num_seqs = static_cast<std::int64_t>(lens.size());
    // Every set stores other tokens, set i those of cache i % num_caches.
    std::int64_t per_cache = 0;
    switch (which) {
      case store_tokens::newest:
        per_cache = *std::min_element(lens.begin(), lens.end());
        num_tokens_ = num_seqs;
        break;
      case store_tokens::sequence:
        per_cache = num_seqs;
        break;
      case store_tokens::random:
        per_cache = pool_->shape.num_tokens() / num_tokens_;
        break;
    }
    num_sets_ = std::min(num_sets_for(size().bytes(), where), num_caches * per_cache);

    std::vector<token> all;
    if (which == store_tokens::random) {
      for (std::int64_t seq = 0; seq < num_seqs; ++seq) {
        for (std::int64_t i = 0; i < lens[static_cast<std::size_t>(seq)]; ++i) {
          all.push_back({seq, i});
        }
      }
      kindex_test::random_stream random(8192);
      random.shuffle(all);
    }
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> slots;
    for (std::int64_t set = 0; set < num_sets_; ++set) {
      const filled_cache& to = pool_->caches[static_cast<std::size_t>(set % num_caches)];
      const std::int64_t turn = set / num_caches;
      for (std::int64_t i = 0; i < num_tokens_; ++i) {
        token stored{};
        switch (which) {
          case store_tokens::newest:
            stored = {i, lens[static_cast<std::size_t>(i)] - 1 - turn};
            break;
          case store_tokens::sequence:
            stored = {turn, i};
            break;
          case store_tokens::random:
            stored = all[static_cast<std::size_t>(turn * num_tokens_ + i)];
            break;
        }
        if (set == 0) first_set_.push_back(stored);
        // What the cache holds already: the other cases find it as it was.
        ids.push_back(to.id(stored.seq, stored.position));
        slots.push_back(to.slot(stored.seq, stored.position));
      }
    }
    k_ = make_k(ids);
    slots_ = device_array<std::int64_t>(slots);
    ids.resize(static_cast<std::size_t>(num_tokens_));
    for (std::int64_t& id : ids) id += foreign_ids;
    foreign_k_ = make_k(ids);
  }

  std::int64_t num_sets() const override { return num_sets_; }
  inputs where() const override { return where_; }

  hipError_t launch(std::int64_t set, hipStream_t stream) const override {
    const auto cache = static_cast<std::size_t>(set) % pool_->caches.size();
    return store(
        store_into(pool_->caches[cache].view(), k_, slots_.get(), set * num_tokens_, num_tokens_),
        stream);
  }

  case_size size() const override {
    case_size size;
    size.tokens = num_tokens_;
    size.bytes_read = num_tokens_ * head_dim * 2;
    size.bytes_written = num_tokens_ * token_bytes;
    size.cache_bytes = size.bytes_written;
    return size;
  }

  const filled_cache& cache() const override { return pool_->caches.front(); }

  void spoil_output() override {
    check(store(store_into(cache().view(), foreign_k_, slots_.get(), 0, num_tokens_), nullptr),
          "kindex::store");
    check(hipDeviceSynchronize(), "kindex::store");
  }

  check_result check_output() const override {
    check_result result;
    const auto step = std::max<std::int64_t>(1, num_tokens_ / check_samples);
    for (std::int64_t i = 0; i < num_tokens_; i += step) {
      const token& stored = first_set_[static_cast<std::size_t>(i)];
      const filled_cache::page_copy found = cache().copy_page(stored.seq, stored.position);

      const k_row row = make_k_row(cache().id(stored.seq, stored.position));
      std::array<std::uint16_t, head_dim> k;
      for (int dim = 0; dim < head_dim; ++dim) {
        k[static_cast<std::size_t>(dim)] = k_element(row, dim);
      }
      std::vector<std::uint8_t> expected(found.bytes.size());
      const std::int64_t slot = found.token_in_page;
      kindex::store_params params;
      params.cache = found.view;
      params.cache.data = expected.data();
      params.k = k.data();
      params.k_row_stride = head_dim;
      params.num_tokens = 1;
      params.slots = &slot;
      params.num_slots = 1;
      kindex::reference::store(params);

      std::uint8_t found_k[head_dim];
      std::uint8_t expected_k[head_dim];
      for (int dim = 0; dim < head_dim; ++dim) {
        const auto at = static_cast<std::size_t>(
            kindex::k_offset_in_page(found.view.layout, head_dim, found.token_in_page, dim));
        found_k[dim] = found.bytes[at];
        expected_k[dim] = expected[at];
      }
      compare_token(
          found_k,
          kindex::reference::load_scale(found.view, found.bytes.data(), found.token_in_page, 0),
          expected_k,
          kindex::reference::load_scale(found.view, expected.data(), found.token_in_page, 0),
          stored.seq, stored.position, result);
    }
    return result;
  }

 private:
  struct token {
    std::int64_t seq;
    std::int64_t position;
  };

  std::shared_ptr<const cache_pool> pool_;
  std::int64_t num_tokens_;
  inputs where_;
  std::int64_t num_sets_ = 1;
  std::vector<token> first_set_;
  device_memory k_;
  device_memory foreign_k_;
  device_array<std::int64_t> slots_;
};

// Gather ----------------------------------------------------------------------------------------

class gather_case : public bench_case {
 public:
  gather_case(std::shared_ptr<const cache_pool> pool, std::int64_t num_seqs)
      : pool_(std::move(pool)), num_seqs_(num_seqs) {
    // Set i gathers from cache i % num_caches, one group of num_seqs sequences after the other.
    const auto num_caches = static_cast<std::int64_t>(pool_->caches.size());
    const auto num_groups = static_cast<std::int64_t>(pool_->shape.lens.size()) / num_seqs;
    for (std::int64_t i = 0; i < num_groups; ++i) groups_.emplace_back(pool_->shape, i, num_seqs);
    num_sets_ = std::min(num_sets_for(2 * token_bytes * groups_.front().num_tokens()),
                         num_caches * num_groups);
    std::int64_t most_tokens = 0;
    for (const group& some : groups_) most_tokens = std::max(most_tokens, some.num_tokens());
    const auto rows = static_cast<std::size_t>(most_tokens);
    for (std::int64_t set = 0; set < num_sets_; ++set) {
      outputs_.push_back({device_memory(rows * head_dim), device_memory(rows * sizeof(float))});
    }
  }

  std::int64_t num_sets() const override { return num_sets_; }

  bool has_outputs() const override { return true; }

  hipError_t launch(std::int64_t set, hipStream_t stream) const override {
    const filled_cache& from = pool_->caches[static_cast<std::size_t>(set) % pool_->caches.size()];
    const group& sequences = group_of(set);
    const output& to = outputs_[output_of(set)];
    kindex::gather_params params;
    params.cache = from.view();
    params.block_table = from.device_table() + sequences.first_seq * from.table().stride;
    params.block_table_stride = from.table().stride;
    params.block_table_width = from.table().width;
    params.cu_seq_lens = sequences.cu_seq_lens.get();
    params.num_seqs = num_seqs_;
    params.dst_k = to.k.get();
    params.dst_k_stride_bytes = head_dim;
    params.dst_scale = reinterpret_cast<float*>(to.scale.get());
    params.dst_scale_stride = 1;
    params.num_tokens = sequences.num_tokens();
    return gather(params, stream);
  }

  case_size size() const override {
    // On average over the sets: groups differ a little.
    case_size size;
    for (std::int64_t set = 0; set < num_sets_; ++set) size.tokens += group_of(set).num_tokens();
    size.tokens /= num_sets_;
    size.bytes_read = size.tokens * token_bytes;
    size.bytes_written = size.tokens * token_bytes;
    size.cache_bytes = size.bytes_read;
    return size;
  }

  const filled_cache& cache() const override { return pool_->caches.front(); }

  void spoil_output() override {
    const auto rows = static_cast<std::size_t>(group_of(0).num_tokens());
    check(hipMemset(outputs_.front().k.get(), 0xFF, rows * head_dim), "hipMemset");
    check(hipMemset(outputs_.front().scale.get(), 0xFF, rows * sizeof(float)), "hipMemset");
  }

  check_result check_output() const override {
    check_result result;
    const std::vector<std::int32_t>& first_rows = group_of(0).first_rows;
    const std::int64_t num_rows = group_of(0).num_tokens();
    const auto step = std::max<std::int64_t>(1, num_rows / check_samples);
    for (std::int64_t row = 0; row < num_rows; row += step) {
      const auto after = std::upper_bound(first_rows.begin(), first_rows.end(), row);
      const std::int64_t seq = after - first_rows.begin() - 1;
      const std::int64_t token = row - first_rows[static_cast<std::size_t>(seq)];
      const filled_cache::page_copy page = cache().copy_page(seq, token);

      // The reference gathers the page up to this token.
      const std::int32_t count = page.token_in_page + 1;
      const std::int32_t table = 0;
      const std::int32_t cu_seq_lens[2] = {0, count};
      std::vector<std::uint8_t> expected_k(static_cast<std::size_t>(count) * head_dim);
      std::vector<float> expected_scale(static_cast<std::size_t>(count));
      kindex::gather_params params;
      params.cache = page.view;
      params.block_table = &table;
      params.block_table_stride = params.block_table_width = 1;
      params.cu_seq_lens = cu_seq_lens;
      params.num_seqs = 1;
      params.dst_k = expected_k.data();
      params.dst_k_stride_bytes = head_dim;
      params.dst_scale = expected_scale.data();
      params.dst_scale_stride = 1;
      params.num_tokens = count;
      kindex::reference::gather(params);

      const output& found = outputs_.front();
      std::uint8_t found_k[head_dim];
      check(hipMemcpy(found_k, found.k.get() + row * head_dim, head_dim, hipMemcpyDeviceToHost),
            "hipMemcpy");
      compare_token(found_k, download_one(reinterpret_cast<const float*>(found.scale.get()) + row),
                    expected_k.data() + (count - 1) * head_dim, expected_scale.back(), seq, token,
                    result);
    }
    return result;
  }

 private:
  /// Sequences that are gathered at once.
  struct group {
    group(const cache_shape& shape, std::int64_t index, std::int64_t num_seqs)
        : first_seq(index * num_seqs), first_rows{0} {
      for (std::int64_t seq = first_seq; seq < first_seq + num_seqs; ++seq) {
        first_rows.push_back(first_rows.back() + shape.lens[static_cast<std::size_t>(seq)]);
      }
      cu_seq_lens = device_array<std::int32_t>(first_rows);
    }
    std::int64_t num_tokens() const { return first_rows.back(); }

    std::int64_t first_seq;
    std::vector<std::int32_t> first_rows;  // of every sequence, and the end
    device_array<std::int32_t> cu_seq_lens;
  };
  struct output {
    device_memory k;
    device_memory scale;
  };

  const group& group_of(std::int64_t set) const {
    return groups_[static_cast<std::size_t>(set) / pool_->caches.size()];
  }

  std::shared_ptr<const cache_pool> pool_;
  std::int64_t num_seqs_;
  std::int64_t num_sets_ = 1;
  std::vector<group> groups_;
  std::vector<output> outputs_;
};

// Logits ----------------------------------------------------------------------------------------

class logits_case : public bench_case {
 public:
  logits_case(std::shared_ptr<const cache_pool> pool, const logits_shape& shape)
      : pool_(std::move(pool)),
        shape_(shape),
        num_seqs_(static_cast<std::int64_t>(pool_->shape.lens.size())) {
    if (shape_.width < 0) shape_.width = longest();
    // Rows start at multiples of 256 bytes.
    row_stride_ = (shape_.width + 63) / 64 * 64;
    for (std::size_t set = 0; set < pool_->caches.size(); ++set) {
      const std::vector<std::uint8_t> q = make_q(set);
      const std::vector<float> weights = make_weights(set);
      inputs_.push_back({device_array<std::uint8_t>(q), device_array<float>(weights),
                         device_memory(logits_memory())});
      if (set == 0) {
        q_ = q;
        weights_ = weights;
      }
    }
  }

  std::int64_t num_sets() const override { return static_cast<std::int64_t>(inputs_.size()); }

  bool has_outputs() const override { return true; }

  hipError_t launch(std::int64_t set, hipStream_t stream) const override {
    return paged_mqa_logits(params(set), stream);
  }

  case_size size() const override {
    case_size size;
    size.tokens = pool_->shape.num_tokens();
    size.cache_bytes = size.tokens * token_bytes;
    size.bytes_read = size.cache_bytes + num_rows() * shape_.num_heads * (head_dim + 4);
    std::int64_t visible = 0;
    for (std::int64_t row = 0; row < num_rows(); ++row) visible += visible_tokens(row);
    const bool filled = shape_.fill == kindex::fill::neg_infinity;
    size.bytes_written = 4 * (filled ? num_rows() * shape_.width : visible);
    size.flops = 2.0 * head_dim * static_cast<double>(shape_.num_heads * visible);
    return size;
  }

  const filled_cache& cache() const override { return pool_->caches.front(); }

  void spoil_output() override {
    check(hipMemset(inputs_.front().logits.get(), 0xFF, logits_memory()), "hipMemset");
  }

  check_result check_output() const override {
    check_result result;
    const std::int64_t row_step = std::max<std::int64_t>(1, num_rows() / 64);
    const std::int64_t per_row = check_samples / ((num_rows() + row_step - 1) / row_step);
    kindex_test::random_stream random(1);
    for (std::int64_t row = 0; row < num_rows(); row += row_step) {
      const std::int64_t visible = visible_tokens(row);
      if (visible > 0) {
        compare(row, 0, result);
        compare(row, visible - 1, result);
        for (std::int64_t i = 2; i < per_row; ++i) {
          compare(row, random.integer(0, static_cast<int>(visible) - 1), result);
        }
      }
      if (visible < shape_.width) {
        compare_unseen(row, visible, result);
        compare_unseen(row, shape_.width - 1, result);
      }
    }
    return result;
  }

 private:
  struct input {
    device_array<std::uint8_t> q;
    device_array<float> weights;
    device_memory logits;
  };

  std::int64_t num_rows() const { return num_seqs_ * shape_.next_n; }
  std::int32_t longest() const {
    return *std::max_element(pool_->shape.lens.begin(), pool_->shape.lens.end());
  }
  std::size_t logits_memory() const {
    return static_cast<std::size_t>(num_rows() * row_stride_) * sizeof(float);
  }

  // Quantised as an engine does it, the largest value of a head to the format's maximum.
  std::vector<std::uint8_t> make_q(std::size_t set) const {
    const kindex::fp8_format format = kindex_test::native_format();
    std::array<std::uint8_t, 1021> bytes;
    for (int i = 0; i < 1021; ++i) {
      bytes[static_cast<std::size_t>(i)] = kindex::fp8_encode(
          format, (i - 510) / 510.0 * static_cast<double>(kindex::fp8_max(format)));
    }
    std::vector<std::uint8_t> q(static_cast<std::size_t>(num_rows() * shape_.num_heads * head_dim));
    const std::uint32_t seed = mix(static_cast<std::uint32_t>(set) + 0x51u);
    for (std::size_t i = 0; i < q.size(); ++i) {
      const int value = roughly_normal(mix(seed + static_cast<std::uint32_t>(i)));
      q[i] = bytes[static_cast<std::size_t>(value + 510)];
    }
    return q;
  }

  // Of both signs; q's scale, 1/sqrt(heads) and 1/sqrt(head_dim) are in them.
  std::vector<float> make_weights(std::size_t set) const {
    std::vector<float> weights(static_cast<std::size_t>(num_rows() * shape_.num_heads));
    const std::uint32_t seed = mix(static_cast<std::uint32_t>(set) + 0x77u);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const int value = roughly_normal(mix(seed + static_cast<std::uint32_t>(i)));
      weights[i] = static_cast<float>(value) * (1.0f / (147.8f * 90.5f * 64.0f));
    }
    return weights;
  }

  kindex::paged_mqa_logits_params params(std::int64_t set) const {
    const filled_cache& cache = pool_->caches[static_cast<std::size_t>(set)];
    const input& in = inputs_[static_cast<std::size_t>(set)];
    kindex::paged_mqa_logits_params params;
    params.cache = cache.view();
    params.q = in.q.get();
    params.q_format = params.cache.format;
    params.q_head_stride = head_dim;
    params.q_next_n_stride = shape_.num_heads * head_dim;
    params.q_batch_stride = shape_.next_n * params.q_next_n_stride;
    params.weights = in.weights.get();
    params.weights_row_stride = shape_.num_heads;
    params.context_lens = pool_->device_lens.get();
    params.block_table = cache.device_table();
    params.block_table_stride = cache.table().stride;
    params.block_table_width = cache.table().width;
    params.logits = reinterpret_cast<float*>(inputs_[output_of(set)].logits.get());
    params.logits_row_stride = row_stride_;
    params.logits_width = shape_.width;
    params.num_seqs = num_seqs_;
    params.next_n = shape_.next_n;
    params.num_heads = shape_.num_heads;
    params.fill = shape_.fill;
    return params;
  }

  std::int64_t visible_tokens(std::int64_t row) const {
    kindex::paged_mqa_logits_params on_host = params(0);
    on_host.context_lens = pool_->shape.lens.data();
    return kindex::reference::visible_tokens(on_host, row);
  }

  float found(std::int64_t row, std::int64_t token) const {
    return download_one(reinterpret_cast<const float*>(inputs_.front().logits.get()) +
                        row * row_stride_ + token);
  }

  void complain(std::int64_t row, std::int64_t token, double found_value, double expected,
                check_result& result) const {
    if (!result.ok()) return;
    result.first_difference =
        describe("row %lld column %lld: %.9g instead of %.9g", row, token, found_value, expected);
  }

  void compare(std::int64_t row, std::int64_t token, check_result& result) const {
    const std::int64_t seq = row / shape_.next_n;
    const filled_cache::page_copy page = cache().copy_page(seq, token);
    // One row on one page, where the token has the position that it has in its page.
    const std::int32_t table = 0;
    kindex::paged_mqa_logits_params on_host = params(0);
    on_host.cache = page.view;
    on_host.q = q_.data() + row * shape_.num_heads * head_dim;
    on_host.weights = weights_.data() + row * shape_.num_heads;
    on_host.block_table = &table;
    on_host.block_table_width = on_host.block_table_stride = 1;
    on_host.num_seqs = on_host.next_n = 1;
    const kindex::reference::logit expected =
        kindex::reference::logit_value(on_host, 0, page.token_in_page);
    const auto value = static_cast<double>(found(row, token));
    ++result.values;
    const double allowed = kindex_test::logits_tolerance() * expected.magnitude;
    if (!(std::fabs(value - expected.value) <= allowed)) {
      complain(row, token, value, expected.value, result);
    }
  }

  void compare_unseen(std::int64_t row, std::int64_t token, check_result& result) const {
    const float value = found(row, token);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    const bool filled = shape_.fill == kindex::fill::neg_infinity;
    ++result.values;
    if (bits != (filled ? 0xFF800000u : 0xFFFFFFFFu)) {
      complain(row, token, static_cast<double>(value), filled ? -INFINITY : NAN, result);
    }
  }

  std::shared_ptr<const cache_pool> pool_;
  logits_shape shape_;
  std::int64_t num_seqs_;
  std::int64_t row_stride_ = 0;
  std::vector<input> inputs_;
  std::vector<std::uint8_t> q_;  // of set 0
  std::vector<float> weights_;
};

}  // namespace

std::unique_ptr<bench_case> make_store_case(std::shared_ptr<const cache_pool> pool,
                                            store_tokens which, std::int64_t num_tokens,
                                            inputs where) {
  return std::make_unique<store_case>(std::move(pool), which, num_tokens, where);
}

std::unique_ptr<bench_case> make_gather_case(std::shared_ptr<const cache_pool> pool,
                                             std::int64_t num_seqs) {
  return std::make_unique<gather_case>(std::move(pool), num_seqs);
}

std::unique_ptr<bench_case> make_logits_case(std::shared_ptr<const cache_pool> pool,
                                             const logits_shape& shape) {
  return std::make_unique<logits_case>(std::move(pool), shape);
}

}  // namespace kindex_bench
