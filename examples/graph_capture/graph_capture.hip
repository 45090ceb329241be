// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// One graph for every step: store, gather and logits are captured once, before there is anything to
// do, and replayed while the sequences grow. Lengths, page table, slots and K change in place on
// the device; kindex reads them there, so neither the launches nor the graph depend on them.
#include "../example.hpp"

namespace {

using example::check;
using example::device_array;

// Room for four sequences of up to three pages; how many are live, and how long they are, changes
// from step to step. Sequences that are not have length 0, slot -1 and no pages.
constexpr int page_size = 64, head_dim = 128, num_heads = 64, batch = 4, table_width = 3;
constexpr int width = table_width * page_size;
constexpr int max_tokens = batch * width;
constexpr int num_pages = batch * table_width;

/// All dims of the K of token t of sequence b.
float k_value(int b, int t) { return static_cast<float>((b + t) % 4 - 1); }
/// The pages of a sequence: not in order, and other sequences' between them.
int page_of(int b, int entry) { return (5 * (b * table_width + entry) + 2) % num_pages; }

template <kindex::fp8_format Format>
int run() {
  using pages =
      kindex::cache_geometry<page_size, kindex::page_layout::preshuffled, Format, head_dim>;
  kindex::typed_cache_view<pages> cache;
  cache.num_pages = num_pages;
  const device_array<std::uint8_t> memory(
      static_cast<std::size_t>(num_pages * cache.page_stride_bytes));
  cache.data = memory.get();

  // What a step brings. Every array keeps its place for the life of the graph.
  device_array<std::uint16_t> k(std::size_t{max_tokens} * head_dim);
  device_array<std::int64_t> slots(std::vector<std::int64_t>(max_tokens, -1));
  device_array<std::int32_t> lens(batch), cu_seq_lens(batch + 1),
      table(std::vector<std::int32_t>(batch * table_width, -1));
  const device_array<std::uint8_t> q(
      std::vector<std::uint8_t>(batch * num_heads * head_dim, kindex::fp8_encode(Format, 1.0)));
  const device_array<float> weights(std::vector<float>(batch * num_heads, 1.0f / num_heads));
  device_array<std::uint8_t> dst_k(std::size_t{max_tokens} * head_dim);
  device_array<float> dst_scale(max_tokens);
  device_array<float> logits(batch * width);

  kindex::store_params store;
  store.k = k.get();
  store.k_row_stride = head_dim;
  store.slots = slots.get();
  store.num_tokens = store.num_slots = max_tokens;  // an upper bound: slot -1 is skipped

  kindex::gather_params gather;
  gather.block_table = table.get();
  gather.block_table_stride = gather.block_table_width = table_width;
  gather.cu_seq_lens = cu_seq_lens.get();
  gather.num_seqs = batch;
  gather.dst_k = dst_k.get();
  gather.dst_k_stride_bytes = head_dim;
  gather.dst_scale = dst_scale.get();
  gather.dst_scale_stride = 1;
  gather.num_tokens = max_tokens;  // an upper bound: cu_seq_lens says where to stop

  kindex::paged_mqa_logits_params score;
  score.q = q.get();
  score.q_format = Format;
  score.q_head_stride = head_dim;
  score.q_batch_stride = num_heads * head_dim;
  score.weights = weights.get();
  score.weights_row_stride = num_heads;
  score.context_lens = lens.get();
  score.block_table = table.get();
  score.block_table_stride = score.block_table_width = table_width;
  score.logits = logits.get();
  score.logits_row_stride = score.logits_width = width;
  score.num_seqs = batch;
  score.num_heads = num_heads;
  score.fill = kindex::fill::neg_infinity;  // no pass of its own to clear the logits

  // Capture. Nothing has been launched before: the first call of a kernel may be inside.
  hipStream_t stream;
  check(hipStreamCreate(&stream), "hipStreamCreate");
  check(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal), "hipStreamBeginCapture");
  check(
      kindex::store<kindex::store_config<pages, kindex::element_type::bf16>>(cache, store, stream),
      "store");
  check(kindex::gather<kindex::gather_config<pages>>(cache, gather, stream), "gather");
  check(kindex::paged_mqa_logits<example::logits_config<pages>>(cache, score, stream),
        "paged_mqa_logits");
  hipGraph_t graph;
  hipGraphExec_t step;
  check(hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
  check(hipGraphInstantiate(&step, graph, nullptr, nullptr, 0), "hipGraphInstantiate");

  // Replay: prompts, then tokens one by one, a sequence that ends and one that comes.
  const int steps[][batch] = {{70, 1, 0, 64},  {71, 2, 0, 65}, {72, 3, 0, 66},
                              {0, 4, 150, 67}, {0, 0, 0, 0},   {9, 5, 151, 0}};
  int wrong = 0;
  int stored_lens[batch] = {};
  for (const auto& now : steps) {
    std::vector<std::uint16_t> new_k(std::size_t{max_tokens} * head_dim);
    std::vector<std::int64_t> new_slots(max_tokens, -1);
    std::vector<std::int32_t> new_table(batch * table_width, -1), new_cu = {0};
    std::size_t row = 0;
    for (int b = 0; b < batch; ++b) {
      if (now[b] < stored_lens[b] && now[b] > 0) stored_lens[b] = 0;
      for (int t = stored_lens[b]; t < now[b]; ++t, ++row) {
        for (int d = 0; d < head_dim; ++d) {
          new_k[row * head_dim + static_cast<std::size_t>(d)] = example::to_bf16(k_value(b, t));
        }
        new_slots[row] = page_of(b, t / page_size) * page_size + t % page_size;
      }
      for (int entry = 0; entry * page_size < now[b]; ++entry) {
        new_table[static_cast<std::size_t>(b * table_width + entry)] = page_of(b, entry);
      }
      new_cu.push_back(new_cu.back() + now[b]);
      stored_lens[b] = now[b];
    }
    k.upload(new_k);
    slots.upload(new_slots);
    table.upload(new_table);
    lens.upload(std::vector<std::int32_t>(now, now + batch));
    cu_seq_lens.upload(new_cu);

    check(hipGraphLaunch(step, stream), "hipGraphLaunch");
    check(hipStreamSynchronize(stream), "hipStreamSynchronize");

    const std::vector<float> scored = logits.download(), scales = dst_scale.download();
    const std::vector<std::uint8_t> bytes = dst_k.download();
    for (int b = 0; b < batch; ++b) {
      for (int t = 0; t < width; ++t) {
        const float logit = scored[static_cast<std::size_t>(b * width + t)];
        if (t >= now[b]) {
          wrong += logit != -INFINITY;
          continue;
        }
        wrong += !example::close_to(logit, head_dim * std::fmax(0.0f, k_value(b, t)));
        const auto i = static_cast<std::size_t>(new_cu[static_cast<std::size_t>(b)] + t);
        const auto value = static_cast<float>(kindex::fp8_decode(Format, bytes[i * head_dim]));
        wrong += !example::close_to(value * scales[i], k_value(b, t));
      }
    }
    std::printf("replayed with lengths %d, %d, %d, %d: %s\n", now[0], now[1], now[2], now[3],
                wrong == 0 ? "ok" : "WRONG");
  }
  check(hipGraphExecDestroy(step), "hipGraphExecDestroy");
  check(hipGraphDestroy(graph), "hipGraphDestroy");
  check(hipStreamDestroy(stream), "hipStreamDestroy");
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() {
  return example::native_format() == kindex::fp8_format::e4m3fnuz
             ? run<kindex::fp8_format::e4m3fnuz>()
             : run<kindex::fp8_format::e4m3fn>();
}
