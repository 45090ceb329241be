// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// One captured graph of store, gather and logits, as an engine replays it at every step: lengths,
// tables, slots and k change on the device in between. Compared with eager launches bit by bit, and
// with the reference.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <kindex/reference.hpp>

#include "catch.hpp"
#include "support/device_buffer.hpp"
#include "support/launch.hpp"
#include "support/ops.hpp"
#include "support/test_case.hpp"

namespace {

using namespace kindex_test;

struct engine_shape {
  int batch = 5;
  int next_n = 1;
  int num_heads = 64;
  int head_dim = 128;
  int page_size = 64;
  kindex::page_layout layout = kindex::page_layout::preshuffled;
  int max_len = 300;
  int live = 5;  ///< sequences that a step uses; the others are padding
};

// The host's side of one step.
struct step {
  std::vector<std::int32_t> lens;
  std::vector<std::int32_t> cumulative_lens;
  std::vector<std::int32_t> table;
  std::vector<std::int64_t> slots;
  std::vector<std::uint16_t> k;
};

// What every step leaves on the device: two of these see the same steps.
struct engine_state {
  engine_state(const engine_shape& shape, std::int64_t num_pages, std::int64_t max_tokens)
      : cache(shape.page_size, shape.head_dim, shape.layout, native_format(), num_pages, 0,
              placement::guarded),
        dst_k(max_tokens, shape.head_dim, shape.head_dim + 16),
        dst_scale(max_tokens, cache.num_scales(), cache.num_scales() + 1),
        logits(std::int64_t{shape.batch} * shape.next_n, shape.max_len, shape.max_len + 133, 4) {}

  void reset_outputs() {
    dst_k.reset();
    dst_scale.reset();
    logits.reset();
  }
  void download() {
    dst_k.download();
    dst_scale.download();
    logits.download();
  }

  paged_cache cache;
  guarded_matrix<std::uint8_t> dst_k;
  guarded_matrix<float> dst_scale;
  guarded_matrix<float> logits;
};

class engine {
 public:
  explicit engine(const engine_shape& shape)
      : shape_(shape),
        pages_per_seq_((shape.max_len + shape.page_size - 1) / shape.page_size),
        table_width_(pages_per_seq_ + 2),
        num_pages_(pages_per_seq_ * shape.live + 5),
        max_tokens_(std::int64_t{shape.live} * shape.max_len),
        random_(99),
        replayed(shape, num_pages_, max_tokens_),
        eager(shape, num_pages_, max_tokens_) {
    // Valid tokens everywhere: every slot may be read before this engine has stored to it.
    for (std::int64_t slot = 0; slot < num_pages_ * shape.page_size; ++slot) {
      const token_data token =
          make_tokens(1, shape.head_dim, native_format(), data_kind::random, random_);
      replayed.cache.put_token(slot, token.k.data(), token.scale.data());
      eager.cache.put_token(slot, token.k.data(), token.scale.data());
    }
    replayed.cache.upload();
    eager.cache.upload();

    const auto rows = static_cast<std::size_t>(shape.batch * shape.next_n);
    for (std::size_t i = 0; i < rows * static_cast<std::size_t>(shape.num_heads); ++i) {
      weights_.push_back(make_weight(data_kind::random, random_));
      for (int d = 0; d < shape.head_dim; ++d) {
        q_.push_back(make_q_byte(data_kind::random, native_format(), random_));
      }
    }
    device_q_ = device_array<std::uint8_t>(q_);
    device_weights_ = device_array<float>(weights_);
    step_ = make_step();
    device_k_ = device_array<std::uint16_t>(step_.k);
    device_slots_ = device_array<std::int64_t>(step_.slots);
    device_lens_ = device_array<std::int32_t>(step_.lens);
    device_cumulative_ = device_array<std::int32_t>(step_.cumulative_lens);
    device_table_ = device_array<std::int32_t>(step_.table);
  }

  /// Store, gather, logits into a state.
  operation launches(engine_state& state) {
    const kindex::store_params store_call = store_params_of(state);
    const kindex::gather_params gather_call = gather_params_of(state);
    const kindex::paged_mqa_logits_params logits_call = logits_params_of(state);
    return [=](hipStream_t stream) {
      hipError_t status = store(store_call, stream);
      if (status == hipSuccess) status = gather(gather_call, stream);
      if (status == hipSuccess) status = paged_mqa_logits(logits_call, stream);
      return status;
    };
  }

  /// Other lengths, tables, slots and k, in place.
  void next_step() {
    step_ = make_step();
    device_k_.upload(step_.k);
    device_slots_.upload(step_.slots);
    device_lens_.upload(step_.lens);
    device_cumulative_.upload(step_.cumulative_lens);
    device_table_.upload(step_.table);
  }

  /// After both states have run the step: equal bit by bit, and what the reference says.
  void check_step() {
    replayed.download();
    eager.download();
    for (engine_state* state : {&replayed, &eager}) {
      REQUIRE(state->dst_k.check_guards() == "");
      REQUIRE(state->dst_scale.check_guards() == "");
      REQUIRE(state->logits.check_guards() == "");
    }
    const int num_scales = eager.cache.num_scales();
    for (std::int64_t row = 0; row < max_tokens_; ++row) {
      REQUIRE(std::memcmp(replayed.dst_k.row(row), eager.dst_k.row(row),
                          static_cast<std::size_t>(shape_.head_dim)) == 0);
      REQUIRE(std::memcmp(replayed.dst_scale.row(row), eager.dst_scale.row(row),
                          sizeof(float) * static_cast<std::size_t>(num_scales)) == 0);
    }
    for (std::int64_t row = 0; row < eager.logits.rows(); ++row) {
      REQUIRE(std::memcmp(replayed.logits.row(row), eager.logits.row(row),
                          sizeof(float) * static_cast<std::size_t>(shape_.max_len)) == 0);
    }

    // The same step on the images of the caches.
    for (engine_state* state : {&replayed, &eager}) {
      kindex::store_params call = store_params_of(*state);
      call.cache = state->cache.host_view();
      call.k = step_.k.data();
      call.slots = step_.slots.data();
      kindex::reference::store(call);
      REQUIRE(state->cache.compare_with_device() == "");
    }
    for (int b = 0; b < shape_.batch; ++b) {
      for (std::int32_t t = 0; t < step_.lens[static_cast<std::size_t>(b)]; ++t) {
        const std::int64_t row = step_.cumulative_lens[static_cast<std::size_t>(b)] + t;
        const std::int64_t slot = slot_of(b, t);
        for (int d = 0; d < shape_.head_dim; ++d) {
          if (eager.dst_k.at(row, d) != eager.cache.k_byte(slot, d)) {
            FAIL("gathered byte of sequence " << b << ", token " << t << ", dim " << d);
          }
        }
        for (int g = 0; g < num_scales; ++g) {
          REQUIRE(eager.dst_scale.at(row, g) == eager.cache.scale(slot, g));
        }
      }
    }
    for (std::int64_t row = step_.cumulative_lens.back(); row < max_tokens_; ++row) {
      REQUIRE(eager.dst_k.untouched(row, 0));
      REQUIRE(eager.dst_scale.untouched(row, 0));
    }
    check_logits();
  }

 private:
  step make_step() {
    step next;
    const auto batch = static_cast<std::size_t>(shape_.batch);
    next.lens.assign(batch, 0);
    next.slots.assign(batch * static_cast<std::size_t>(shape_.next_n), -1);
    // Which sequences are live changes from step to step.
    std::vector<int> order(batch);
    std::iota(order.begin(), order.end(), 0);
    random_.shuffle(order);
    std::vector<std::int32_t> pages(static_cast<std::size_t>(num_pages_));
    std::iota(pages.begin(), pages.end(), 0);
    random_.shuffle(pages);
    next.table.assign(batch * static_cast<std::size_t>(table_width_),
                      std::numeric_limits<std::int32_t>::max());
    std::size_t next_page = 0;
    for (int i = 0; i < shape_.live; ++i) {
      const auto b = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      // One of the live ones pauses now and then.
      const int len =
          random_.integer(0, 4) == 0 ? 0 : random_.integer(shape_.next_n, shape_.max_len);
      next.lens[b] = len;
      std::int32_t* row = next.table.data() + b * static_cast<std::size_t>(table_width_);
      for (int page = 0; page * shape_.page_size < len; ++page) row[page] = pages[next_page++];
      for (int n = 0; n < shape_.next_n && len > 0; ++n) {
        const int token = len - shape_.next_n + n;
        next.slots[b * static_cast<std::size_t>(shape_.next_n) + static_cast<std::size_t>(n)] =
            std::int64_t{row[token / shape_.page_size]} * shape_.page_size +
            token % shape_.page_size;
      }
    }
    next.cumulative_lens = cumulative(next.lens);
    for (std::size_t i = 0; i < next.slots.size() * static_cast<std::size_t>(shape_.head_dim);
         ++i) {
      // The upper half of a float is a bf16. Rows without a slot are NaN.
      const bool dead = next.slots[i / static_cast<std::size_t>(shape_.head_dim)] < 0;
      const float value =
          dead ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(random_.normal());
      next.k.push_back(static_cast<std::uint16_t>(float_bits(value) >> 16));
    }
    return next;
  }

  std::int64_t slot_of(int seq, int token) const {
    const auto at = static_cast<std::size_t>(seq * table_width_ + token / shape_.page_size);
    return std::int64_t{step_.table[at]} * shape_.page_size + token % shape_.page_size;
  }

  kindex::store_params store_params_of(engine_state& state) const {
    kindex::store_params params;
    params.cache = state.cache.view();
    params.k = device_k_.get();
    params.k_row_stride = shape_.head_dim;
    params.num_tokens = std::int64_t{shape_.batch} * shape_.next_n;
    params.slots = static_cast<const std::int64_t*>(device_slots_.get());
    params.num_slots = params.num_tokens;
    return params;
  }

  kindex::gather_params gather_params_of(engine_state& state) const {
    kindex::gather_params params;
    params.cache = state.cache.view();
    params.block_table = device_table_.get();
    params.block_table_stride = table_width_;
    params.block_table_width = table_width_;
    params.cu_seq_lens = device_cumulative_.get();
    params.num_seqs = shape_.batch;
    params.dst_k = state.dst_k.get();
    params.dst_k_stride_bytes = state.dst_k.row_stride();
    params.dst_scale = state.dst_scale.get();
    params.dst_scale_stride = state.dst_scale.row_stride();
    params.num_tokens = max_tokens_;
    return params;
  }

  kindex::paged_mqa_logits_params logits_params_of(engine_state& state) const {
    kindex::paged_mqa_logits_params params;
    params.cache = state.cache.view();
    params.q = device_q_.get();
    params.q_format = native_format();
    params.q_head_stride = shape_.head_dim;
    params.q_next_n_stride = std::int64_t{shape_.num_heads} * shape_.head_dim;
    params.q_batch_stride = shape_.next_n * params.q_next_n_stride;
    params.weights = device_weights_.get();
    params.weights_row_stride = shape_.num_heads;
    params.context_lens = device_lens_.get();
    params.block_table = device_table_.get();
    params.block_table_stride = table_width_;
    params.block_table_width = table_width_;
    params.logits = state.logits.get();
    params.logits_row_stride = state.logits.row_stride();
    params.logits_width = shape_.max_len;
    params.num_seqs = shape_.batch;
    params.next_n = shape_.next_n;
    params.num_heads = shape_.num_heads;
    params.fill = kindex::fill::neg_infinity;
    return params;
  }

  void check_logits() {
    kindex::paged_mqa_logits_params call = logits_params_of(eager);
    call.cache = eager.cache.host_view();
    call.q = q_.data();
    call.weights = weights_.data();
    call.context_lens = step_.lens.data();
    call.block_table = step_.table.data();
    for (std::int64_t row = 0; row < eager.logits.rows(); ++row) {
      const std::int64_t visible = kindex::reference::visible_tokens(call, row);
      for (std::int64_t t = 0; t < shape_.max_len; ++t) {
        if (t >= visible) {
          REQUIRE(eager.logits.bits(row, t) == 0xFF800000);
          continue;
        }
        const kindex::reference::logit expected = kindex::reference::logit_value(call, row, t);
        REQUIRE(std::fabs(static_cast<double>(eager.logits.at(row, t)) - expected.value) <=
                logits_tolerance() * expected.magnitude);
      }
    }
  }

  engine_shape shape_;
  std::int64_t pages_per_seq_;
  std::int64_t table_width_;
  std::int64_t num_pages_;
  std::int64_t max_tokens_;
  random_stream random_;
  std::vector<std::uint8_t> q_;
  std::vector<float> weights_;
  step step_;
  device_array<std::uint8_t> device_q_;
  device_array<float> device_weights_;
  device_array<std::uint16_t> device_k_;
  device_array<std::int64_t> device_slots_;
  device_array<std::int32_t> device_lens_;
  device_array<std::int32_t> device_cumulative_;
  device_array<std::int32_t> device_table_;

 public:
  engine_state replayed;
  engine_state eager;
};

void check_engine(const engine_shape& shape, int steps) {
  if (!can_capture()) SKIP("the device cannot capture");
  engine under_test(shape);
  // Captured before anything was launched.
  captured_graph graph(under_test.launches(under_test.replayed));
  REQUIRE(graph.status() == hipSuccess);
  for (int i = 0; i < steps; ++i) {
    INFO("step " << i);
    if (i > 0) under_test.next_step();
    under_test.replayed.reset_outputs();
    under_test.eager.reset_outputs();
    graph.launch();
    REQUIRE(run_directly(under_test.launches(under_test.eager)) == hipSuccess);
    under_test.check_step();
  }
}

TEST_CASE("graph: one capture serves ten steps", "[graph][class_M]") {
  for (const auto& [page_size, layout, next_n] :
       {std::tuple{64, kindex::page_layout::preshuffled, 1},
        std::tuple{64, kindex::page_layout::preshuffled, 3},
        std::tuple{48, kindex::page_layout::plain, 2},
        std::tuple{1, kindex::page_layout::plain, 1}}) {
    engine_shape shape;
    shape.page_size = page_size;
    shape.layout = layout;
    shape.next_n = next_n;
    INFO("P=" << page_size << " N=" << next_n);
    check_engine(shape, 10);
  }
}

TEST_CASE("graph: captured for a batch of 512, replayed with 3 live sequences",
          "[graph][class_D][class_E][class_M]") {
  engine_shape shape;
  shape.batch = 512;
  shape.live = 3;
  check_engine(shape, is_emulated() ? 3 : 10);
}

}  // namespace
