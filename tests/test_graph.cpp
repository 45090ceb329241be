// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// One captured graph of store, gather and logits, as an engine replays it at every step: lengths,
// tables, slots and k change on the device in between. Compared with eager launches bit by bit, and
// with the reference. Where the device can, once more with launches that begin before the one
// before them has ended.
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
#include "support/store_problem.hpp"
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

// What gather and logits write.
struct step_outputs {
  step_outputs(const engine_shape& shape, std::int64_t max_tokens)
      : dst_k(max_tokens, shape.head_dim, shape.head_dim + 16),
        dst_scale(max_tokens, kindex::scales_per_token(shape.head_dim),
                  kindex::scales_per_token(shape.head_dim) + 1),
        logits(std::int64_t{shape.batch} * shape.next_n, shape.max_len, shape.max_len + 133, 4) {}

  void reset() {
    dst_k.reset();
    dst_scale.reset();
    logits.reset();
  }
  void download() {
    dst_k.download();
    dst_scale.download();
    logits.download();
    REQUIRE(dst_k.check_guards() == "");
    REQUIRE(dst_scale.check_guards() == "");
    REQUIRE(logits.check_guards() == "");
  }

  guarded_matrix<std::uint8_t> dst_k;
  guarded_matrix<float> dst_scale;
  guarded_matrix<float> logits;
};

// The upper half of a float is a bf16.
std::uint16_t bf16_of(float value) { return static_cast<std::uint16_t>(float_bits(value) >> 16); }

// The first row whose bits differ; -1 if none does.
template <class T>
std::int64_t different_row(const guarded_matrix<T>& a, const guarded_matrix<T>& b) {
  for (std::int64_t row = 0; row < a.rows(); ++row) {
    if (std::memcmp(a.row(row), b.row(row), sizeof(T) * static_cast<std::size_t>(a.width())) != 0) {
      return row;
    }
  }
  return -1;
}

void require_equal(const step_outputs& a, const step_outputs& b) {
  REQUIRE(different_row(a.dst_k, b.dst_k) == -1);
  REQUIRE(different_row(a.dst_scale, b.dst_scale) == -1);
  REQUIRE(different_row(a.logits, b.logits) == -1);
}

// What a step reads beside the cache, on the device, and the calls that do.
struct device_inputs {
  kindex::store_params store_params(const paged_cache& cache) const {
    kindex::store_params params;
    params.cache = cache.view();
    params.k = k.get();
    params.k_row_stride = params.cache.head_dim;
    params.num_tokens = static_cast<std::int64_t>(slots.size());
    params.slots = static_cast<const std::int64_t*>(slots.get());
    params.num_slots = params.num_tokens;
    return params;
  }

  kindex::gather_params gather_params(const paged_cache& cache, const step_outputs& outputs) const {
    kindex::gather_params params;
    params.cache = cache.view();
    params.block_table = table.get();
    params.block_table_stride = table_stride;
    params.block_table_width = table_width;
    params.cu_seq_lens = cumulative_lens.get();
    params.num_seqs = static_cast<std::int64_t>(lens.size());
    params.dst_k = outputs.dst_k.get();
    params.dst_k_stride_bytes = outputs.dst_k.row_stride();
    params.dst_scale = outputs.dst_scale.get();
    params.dst_scale_stride = outputs.dst_scale.row_stride();
    params.num_tokens = outputs.dst_k.rows();
    return params;
  }

  kindex::paged_mqa_logits_params logits_params(const paged_cache& cache,
                                                const step_outputs& outputs) const {
    kindex::paged_mqa_logits_params params;
    params.cache = cache.view();
    params.num_seqs = static_cast<std::int64_t>(lens.size());
    params.next_n = outputs.logits.rows() / params.num_seqs;
    params.num_heads = num_heads;
    params.q = q.get();
    params.q_format = native_format();
    params.q_head_stride = params.cache.head_dim;
    params.q_next_n_stride = params.num_heads * params.q_head_stride;
    params.q_batch_stride = params.next_n * params.q_next_n_stride;
    params.weights = weights.get();
    params.weights_row_stride = params.num_heads;
    params.context_lens = lens.get();
    params.block_table = table.get();
    params.block_table_stride = table_stride;
    params.block_table_width = table_width;
    params.logits = outputs.logits.get();
    params.logits_row_stride = outputs.logits.row_stride();
    params.logits_width = outputs.logits.width();
    params.fill = kindex::fill::neg_infinity;
    return params;
  }

  std::int64_t num_heads = 0;
  std::int64_t table_stride = 0;
  std::int64_t table_width = 0;
  device_array<std::uint8_t> q;
  device_array<float> weights;
  device_array<std::uint16_t> k;
  device_array<std::int64_t> slots;
  device_array<std::int32_t> lens;
  device_array<std::int32_t> cumulative_lens;
  device_array<std::int32_t> table;
};

// What every step leaves on the device: two of these see the same steps.
struct engine_state {
  engine_state(const engine_shape& shape, std::int64_t num_pages, std::int64_t max_tokens)
      : cache(shape.page_size, shape.head_dim, shape.layout, native_format(), num_pages, 0,
              placement::guarded),
        outputs(shape, max_tokens) {}

  paged_cache cache;
  step_outputs outputs;
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
    step_ = make_step();
    inputs_.num_heads = shape.num_heads;
    inputs_.table_stride = inputs_.table_width = table_width_;
    inputs_.q = device_array<std::uint8_t>(q_);
    inputs_.weights = device_array<float>(weights_);
    inputs_.k = device_array<std::uint16_t>(step_.k);
    inputs_.slots = device_array<std::int64_t>(step_.slots);
    inputs_.lens = device_array<std::int32_t>(step_.lens);
    inputs_.cumulative_lens = device_array<std::int32_t>(step_.cumulative_lens);
    inputs_.table = device_array<std::int32_t>(step_.table);
  }

  /// Store, gather, logits into a state.
  operation launches(const engine_state& state) const {
    const auto store_call = inputs_.store_params(state.cache);
    const auto gather_call = inputs_.gather_params(state.cache, state.outputs);
    const auto logits_call = inputs_.logits_params(state.cache, state.outputs);
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
    inputs_.k.upload(step_.k);
    inputs_.slots.upload(step_.slots);
    inputs_.lens.upload(step_.lens);
    inputs_.cumulative_lens.upload(step_.cumulative_lens);
    inputs_.table.upload(step_.table);
  }

  /// After both states have run the step: equal bit by bit, and what the reference says.
  void check_step() {
    replayed.outputs.download();
    eager.outputs.download();
    require_equal(replayed.outputs, eager.outputs);

    // The same step on the images of the caches.
    for (engine_state* state : {&replayed, &eager}) {
      kindex::store_params call = inputs_.store_params(state->cache);
      call.cache = state->cache.host_view();
      call.k = step_.k.data();
      call.slots = step_.slots.data();
      kindex::reference::store(call);
      REQUIRE(state->cache.compare_with_device() == "");
    }
    const step_outputs& outputs = eager.outputs;
    for (int b = 0; b < shape_.batch; ++b) {
      for (std::int32_t t = 0; t < step_.lens[static_cast<std::size_t>(b)]; ++t) {
        const std::int64_t row = step_.cumulative_lens[static_cast<std::size_t>(b)] + t;
        const std::int64_t slot = slot_of(b, t);
        for (int d = 0; d < shape_.head_dim; ++d) {
          if (outputs.dst_k.at(row, d) != eager.cache.k_byte(slot, d)) {
            FAIL("gathered byte of sequence " << b << ", token " << t << ", dim " << d);
          }
        }
        for (int g = 0; g < eager.cache.num_scales(); ++g) {
          REQUIRE(outputs.dst_scale.at(row, g) == eager.cache.scale(slot, g));
        }
      }
    }
    for (std::int64_t row = step_.cumulative_lens.back(); row < max_tokens_; ++row) {
      REQUIRE(outputs.dst_k.untouched(row, 0));
      REQUIRE(outputs.dst_scale.untouched(row, 0));
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
      // Rows without a slot are NaN.
      const bool dead = next.slots[i / static_cast<std::size_t>(shape_.head_dim)] < 0;
      const float value =
          dead ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(random_.normal());
      next.k.push_back(bf16_of(value));
    }
    return next;
  }

  std::int64_t slot_of(int seq, int token) const {
    const auto at = static_cast<std::size_t>(seq * table_width_ + token / shape_.page_size);
    return std::int64_t{step_.table[at]} * shape_.page_size + token % shape_.page_size;
  }

  void check_logits() {
    kindex::paged_mqa_logits_params call = inputs_.logits_params(eager.cache, eager.outputs);
    call.cache = eager.cache.host_view();
    call.q = q_.data();
    call.weights = weights_.data();
    call.context_lens = step_.lens.data();
    call.block_table = step_.table.data();
    const guarded_matrix<float>& logits = eager.outputs.logits;
    for (std::int64_t row = 0; row < logits.rows(); ++row) {
      const std::int64_t visible = kindex::reference::visible_tokens(call, row);
      for (std::int64_t t = 0; t < shape_.max_len; ++t) {
        if (t >= visible) {
          REQUIRE(logits.bits(row, t) == 0xFF800000);
          continue;
        }
        const kindex::reference::logit expected = kindex::reference::logit_value(call, row, t);
        REQUIRE(std::fabs(static_cast<double>(logits.at(row, t)) - expected.value) <=
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
  device_inputs inputs_;

 public:
  engine_state replayed;
  engine_state eager;
};

void check_engine(const engine_shape& shape, int steps, graph_edges edges) {
  if (!can_capture()) SKIP("the device cannot capture");
  engine under_test(shape);
  // Captured before anything was launched.
  captured_graph graph(under_test.launches(under_test.replayed), edges);
  REQUIRE(graph.status() == hipSuccess);
  for (int i = 0; i < steps; ++i) {
    INFO("step " << i);
    if (i > 0) under_test.next_step();
    under_test.replayed.outputs.reset();
    under_test.eager.outputs.reset();
    graph.launch();
    REQUIRE(run_directly(under_test.launches(under_test.eager)) == hipSuccess);
    under_test.check_step();
  }
}

void check_ten_steps(graph_edges edges) {
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
    check_engine(shape, 10, edges);
  }
}

void check_padding(graph_edges edges) {
  engine_shape shape;
  shape.batch = 512;
  shape.live = 3;
  check_engine(shape, is_emulated() ? 3 : 10, edges);
}

TEST_CASE("graph: one capture serves ten steps", "[graph][class_M]") {
  check_ten_steps(graph_edges::full);
}

TEST_CASE("graph: captured for a batch of 512, replayed with 3 live sequences",
          "[graph][class_D][class_E][class_M]") {
  check_padding(graph_edges::full);
}

TEST_CASE("graph: the same steps with programmatic edges", "[graph]") {
  if (!has_programmatic_edges()) SKIP("the device has no programmatic edges");
  check_ten_steps(graph_edges::programmatic);
  check_padding(graph_edges::programmatic);
}

// Every round's store writes other k to the slots of the round before. A reader that begins too
// early finds that round's tokens, a store that begins too early takes them from its readers.
TEST_CASE("graph: programmatic edges keep the order", "[graph]") {
  if (!has_programmatic_edges()) SKIP("the device has no programmatic edges");
  constexpr std::size_t rounds = 4;
  engine_shape shape;
  shape.batch = 4;
  shape.max_len = 4096;
  const auto batch = static_cast<std::size_t>(shape.batch);
  const std::vector<std::int32_t> lens(batch, shape.max_len);
  const std::int64_t num_pages = pages_needed(lens, shape.page_size);
  const std::int64_t num_tokens = num_pages * shape.page_size;
  random_stream random(11);

  std::vector<std::uint8_t> q(batch * static_cast<std::size_t>(shape.num_heads * shape.head_dim));
  for (std::uint8_t& byte : q) byte = make_q_byte(data_kind::random, native_format(), random);
  std::vector<float> weights(batch * static_cast<std::size_t>(shape.num_heads));
  for (float& weight : weights) weight = make_weight(data_kind::random, random);
  // No slot is left out, and the store's last blocks write to every page.
  const std::vector<std::int64_t> slots =
      random_slots(num_tokens, static_cast<std::size_t>(num_tokens), random);
  const page_table table = make_page_table(lens, shape.page_size, num_pages, random);
  device_inputs inputs;
  inputs.num_heads = shape.num_heads;
  inputs.table_stride = table.stride;
  inputs.table_width = table.width;
  inputs.q = device_array<std::uint8_t>(q);
  inputs.weights = device_array<float>(weights);
  inputs.slots = device_array<std::int64_t>(slots);
  inputs.lens = device_array<std::int32_t>(lens);
  inputs.cumulative_lens = device_array<std::int32_t>(cumulative(lens));
  inputs.table = device_array<std::int32_t>(table.entries);
  std::vector<device_array<std::uint16_t>> k_of_round;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<std::uint16_t> k(slots.size() * static_cast<std::size_t>(shape.head_dim));
    for (std::uint16_t& element : k) element = bf16_of(static_cast<float>(random.normal()));
    k_of_round.emplace_back(k);
  }

  for (const auto layout : {kindex::page_layout::preshuffled, kindex::page_layout::plain}) {
    INFO(kindex::to_string(layout));
    paged_cache cache(shape.page_size, shape.head_dim, layout, native_format(), num_pages);
    cache.upload();
    std::vector<step_outputs> expected;
    std::vector<step_outputs> replayed;
    for (std::size_t round = 0; round < rounds; ++round) {
      expected.emplace_back(shape, num_tokens);
      replayed.emplace_back(shape, num_tokens);
    }
    const auto operations_into = [&](const std::vector<step_outputs>& outputs) {
      std::vector<operation> list;
      for (std::size_t round = 0; round < rounds; ++round) {
        auto store_call = inputs.store_params(cache);
        store_call.k = k_of_round[round].get();
        const auto gather_call = inputs.gather_params(cache, outputs[round]);
        const auto logits_call = inputs.logits_params(cache, outputs[round]);
        list.push_back([=](hipStream_t stream) { return store(store_call, stream); });
        list.push_back([=](hipStream_t stream) { return gather(gather_call, stream); });
        list.push_back([=](hipStream_t stream) { return paged_mqa_logits(logits_call, stream); });
      }
      return list;
    };
    for (const operation& each : operations_into(expected)) {
      REQUIRE(run_directly(each) == hipSuccess);
    }
    for (step_outputs& outputs : expected) outputs.download();
    // One round's outputs cannot pass for another's.
    REQUIRE(different_row(expected[0].dst_k, expected[1].dst_k) == 0);
    REQUIRE(different_row(expected[0].logits, expected[1].logits) == 0);

    const std::vector<operation> all = operations_into(replayed);
    captured_graph graph(
        [&](hipStream_t stream) {
          for (const operation& each : all) {
            if (const hipError_t status = each(stream); status != hipSuccess) return status;
          }
          return hipSuccess;
        },
        graph_edges::programmatic);
    REQUIRE(graph.status() == hipSuccess);
    for (int replay = 0; replay < 3; ++replay) {
      for (step_outputs& outputs : replayed) outputs.reset();
      graph.launch();
      for (std::size_t round = 0; round < rounds; ++round) {
        INFO("replay " << replay << ", round " << round);
        replayed[round].download();
        require_equal(replayed[round], expected[round]);
      }
    }
  }
}

}  // namespace
