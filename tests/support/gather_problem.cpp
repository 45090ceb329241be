// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/gather_problem.hpp"

#include <algorithm>
#include <kindex/reference.hpp>

#include "support/ops.hpp"

namespace kindex_test {
namespace {

// Any bits at all, NaN included: gather does not look at them.
token_data arbitrary_tokens(std::int64_t tokens, int head_dim, random_stream& random) {
  const auto num_scales = static_cast<std::size_t>(kindex::scales_per_token(head_dim));
  token_data data;
  data.k.resize(static_cast<std::size_t>(tokens * head_dim));
  data.scale.resize(static_cast<std::size_t>(tokens) * num_scales);
  for (std::uint8_t& byte : data.k) byte = static_cast<std::uint8_t>(random.next());
  for (float& scale : data.scale) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    std::memcpy(&scale, &bits, sizeof scale);
  }
  return data;
}

}  // namespace

std::string gather_case::name() const {
  std::string text = "P=" + std::to_string(geometry.page_size) + " " +
                     kindex::to_string(geometry.layout) + " D=" + std::to_string(head_dim) +
                     " page stride " + to_string(gap) + " lens [";
  for (std::size_t i = 0; i < lens.size() && i < 16; ++i) {
    text += (i == 0 ? "" : " ") + std::to_string(lens[i]);
  }
  text += lens.size() > 16 ? " ...] B=" : "] B=";
  text += std::to_string(lens.size());
  if (table_width >= 0) text += " table width " + std::to_string(table_width);
  if (num_tokens >= 0) text += " T=" + std::to_string(num_tokens);
  return text + " dst_k gap " + std::to_string(dst_k_gap) + " misaligned by " +
         std::to_string(dst_k_misalign) + " dst_scale gap " + std::to_string(dst_scale_gap) +
         " seed " + std::to_string(seed);
}

gather_problem::gather_problem(const gather_case& test) : test_(test) {
  const int page_size = test.geometry.page_size;
  random_stream random(test.seed);
  const std::int64_t num_pages = pages_needed(test.lens, page_size) + 2;
  table_ = make_page_table(test.lens, page_size, num_pages, random, -1, test.table_gap);
  width_ = test.table_width < 0 ? table_.width : test.table_width;
  if (width_ > table_.width) {
    random = random_stream(test.seed);
    table_ = make_page_table(test.lens, page_size, num_pages, random, width_, test.table_gap);
  }
  owners_ = table_;
  cache_ = paged_cache(page_size, test.head_dim, test.geometry.layout, test.format, num_pages,
                       page_stride_bytes(test.gap, page_size, test.head_dim));
  const int num_scales = kindex::scales_per_token(test.head_dim);
  for (std::size_t seq = 0; seq < test.lens.size(); ++seq) {
    sequences_.push_back(arbitrary_tokens(test.lens[seq], test.head_dim, random));
    const token_data& data = sequences_.back();
    for (std::int64_t t = 0; t < test.lens[seq]; ++t) {
      cache_.put_token(table_.slot(static_cast<std::int64_t>(seq), t),
                       data.k.data() + t * test.head_dim, data.scale.data() + t * num_scales);
    }
  }
  cache_.upload();
}

void gather_problem::set_page(std::int64_t seq, std::int64_t index, std::int32_t id) {
  table_.entry(seq, index) = id;
}

gather_problem::token_row gather_problem::expected_row(std::int64_t seq, std::int64_t token) const {
  const std::int64_t index = token / test_.geometry.page_size;
  const auto at = static_cast<std::size_t>(seq * table_.stride + index);
  // A table entry either leads to the token that was put there, or nowhere.
  if (index >= width_ || table_.entries[at] != owners_.entries[at]) return {nullptr, nullptr};
  const token_data& data = sequences_[static_cast<std::size_t>(seq)];
  return {data.k.data() + token * test_.head_dim,
          data.scale.data() + token * kindex::scales_per_token(test_.head_dim)};
}

std::string gather_problem::run(const launcher& how) {
  const int head_dim = test_.head_dim;
  const int num_scales = kindex::scales_per_token(head_dim);
  const auto num_seqs = static_cast<std::int64_t>(test_.lens.size());
  const std::vector<std::int32_t> cu_seq_lens = cumulative(test_.lens);
  const std::int64_t rows = test_.num_tokens < 0 ? cu_seq_lens.back() : test_.num_tokens;

  // Arrays end with their last element that the contract lets anyone read.
  std::vector<std::int32_t> entries = table_.entries;
  if (num_seqs > 0) {
    entries.resize(static_cast<std::size_t>((num_seqs - 1) * table_.stride + width_));
  }
  const device_array<std::int32_t> device_table(entries, test_.table_lead_bytes);
  const device_array<std::int32_t> device_cu(cu_seq_lens);
  guarded_matrix<std::uint8_t> dst_k(rows, head_dim, head_dim + test_.dst_k_gap,
                                     test_.dst_k_misalign);
  guarded_matrix<float> dst_scale(rows, num_scales, num_scales + test_.dst_scale_gap);

  kindex::gather_params params;
  params.cache = cache_.view();
  params.block_table = device_table.get();
  params.block_table_stride = table_.stride;
  params.block_table_width = width_;
  params.cu_seq_lens = device_cu.get();
  params.num_seqs = num_seqs;
  params.dst_k = dst_k.get();
  params.dst_k_stride_bytes = dst_k.row_stride();
  params.dst_scale = dst_scale.get();
  params.dst_scale_stride = dst_scale.row_stride();
  params.num_tokens = rows;
  if (test_.change) test_.change(params);
  const hipError_t status = how.run([&](hipStream_t stream) { return gather(params, stream); });
  if (status != hipSuccess) return std::string("status ") + hipGetErrorString(status);
  dst_k.download();
  dst_scale.download();
  if (std::string damage = dst_k.check_guards(); !damage.empty()) return "dst_k: " + damage;
  if (std::string damage = dst_scale.check_guards(); !damage.empty()) return "dst_scale: " + damage;
  if (std::string damage = cache_.compare_with_device(); !damage.empty()) return damage;

  // The reference, into the same strides.
  const auto size = [](std::int64_t elements) { return static_cast<std::size_t>(elements); };
  std::vector<std::uint8_t> reference_k(size(rows * dst_k.row_stride()) + 1);
  std::vector<float> reference_scale(size(rows * dst_scale.row_stride()) + 1);
  params.cache = cache_.host_view();
  params.block_table = entries.data();
  params.cu_seq_lens = cu_seq_lens.data();
  params.dst_k = reference_k.data();
  params.dst_scale = reference_scale.data();
  kindex::reference::gather(params);

  const std::vector<std::uint8_t> zeros(size(head_dim), 0);
  std::int64_t row = 0;
  for (std::int64_t seq = 0; seq < num_seqs; ++seq) {
    for (std::int64_t token = 0; token < test_.lens[size(seq)] && row < rows; ++token, ++row) {
      const token_row expected = expected_row(seq, token);
      const std::string where = "row " + std::to_string(row) + " (token " + std::to_string(token) +
                                " of sequence " + std::to_string(seq) + "): ";
      const std::uint8_t* k = expected.k == nullptr ? zeros.data() : expected.k;
      const void* scale =
          expected.k == nullptr ? static_cast<const void*>(zeros.data()) : expected.scale;
      for (int dim = 0; dim < head_dim; ++dim) {
        if (dst_k.at(row, dim) == k[dim]) continue;
        return where + "dim " + std::to_string(dim) + " is " + std::to_string(dst_k.at(row, dim)) +
               ", not " + std::to_string(k[dim]);
      }
      const auto scale_bytes = 4 * size(num_scales);
      if (std::memcmp(dst_scale.row(row), scale, scale_bytes) != 0) return where + "scales";
      if (std::memcmp(&reference_k[size(row * dst_k.row_stride())], k, size(head_dim)) != 0 ||
          std::memcmp(&reference_scale[size(row * dst_scale.row_stride())], scale, scale_bytes) !=
              0) {
        return where + "the reference is wrong";
      }
    }
  }
  for (; row < rows; ++row) {
    for (int dim = 0; dim < head_dim; ++dim) {
      if (!dst_k.untouched(row, dim)) return "row " + std::to_string(row) + " was written";
    }
    for (int group = 0; group < num_scales; ++group) {
      if (!dst_scale.untouched(row, group)) {
        return "scale of row " + std::to_string(row) + " was written";
      }
    }
  }
  return "";
}

std::string run_gather_case(const gather_case& test, const launcher& how) {
  return gather_problem(test).run(how);
}

}  // namespace kindex_test
