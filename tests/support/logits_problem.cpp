// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/logits_problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "support/ops.hpp"

namespace kindex_test {
namespace {

constexpr std::uint32_t negative_infinity_bits = 0xFF800000;

// NaN as a weight, so that a head read from between the rows shows.
constexpr std::uint32_t nan_weight_bits = 0x7FC0BAD7;

std::array<float, 256> decode_table(kindex::fp8_format format) {
  std::array<float, 256> values{};
  for (int byte = 0; byte < 256; ++byte) {
    values[static_cast<std::size_t>(byte)] =
        static_cast<float>(kindex::fp8_decode(format, static_cast<std::uint8_t>(byte)));
  }
  return values;
}

std::vector<float> decode(kindex::fp8_format format, const std::vector<std::uint8_t>& bytes) {
  const std::array<float, 256> values = decode_table(format);
  std::vector<float> decoded(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) decoded[i] = values[bytes[i]];
  return decoded;
}

// Several sums side by side only make it fast: exact data have no rounding in float, and in double
// the order does not matter.
template <class Sum>
double dot(const float* a, const float* b, int size) {
  Sum sums[8] = {};
  for (int i = 0; i < size; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += static_cast<Sum>(a[i + j]) * static_cast<Sum>(b[i + j]);
  }
  Sum sum = 0;
  for (const Sum part : sums) sum += part;
  return static_cast<double>(sum);
}

// Sum of the magnitudes of the products.
double magnitude_of_dot(const float* a, const float* b, int size) {
  double sum = 0;
  for (int i = 0; i < size; ++i) {
    sum += std::fabs(static_cast<double>(a[i]) * static_cast<double>(b[i]));
  }
  return sum;
}

// Logits [logits.size(), tokens) of one row.
void append_logits(const test_case& test, const float* q, const float* weights, const float* k,
                   const float* scales, std::size_t tokens, std::vector<expected_logit>& logits) {
  const int head_dim = test.head_dim;
  const int group = kindex::quant_group(head_dim);
  const int num_scales = kindex::scales_per_token(head_dim);
  const bool exact = test.data == data_kind::exact;
  // The contract's tolerance is a fraction of sum_h |w * relu| * scale. With few heads that may be
  // next to nothing, all products of a token being about 0, while the error of Hopper's matrix
  // instructions (sums cut to 13 fraction bits, 32 dims at a time) goes with what cancelled. There
  // it is measured by the products instead; a model of those sums stays below 2^-12 of them.
  const bool by_products = is_nvidia() && (test.num_heads < 64 || head_dim > 128);
  for (std::size_t t = logits.size(); t < tokens; ++t) {
    const float* token = k + t * static_cast<std::size_t>(head_dim);
    const float* scale = scales + t * static_cast<std::size_t>(num_scales);
    // One scale a token stays outside the relu; several must be inside.
    const double outer_scale = num_scales == 1 ? static_cast<double>(scale[0]) : 1;
    double value = 0;
    double relu_magnitude = 0;
    double product_magnitude = 0;
    for (int h = 0; h < test.num_heads; ++h) {
      const double weight = static_cast<double>(weights[h]);
      double product = 0;
      for (int g = 0; g < num_scales; ++g) {
        const float* a = q + h * head_dim + g * group;
        const float* b = token + g * group;
        const double inner_scale = num_scales == 1 ? 1 : static_cast<double>(scale[g]);
        product += inner_scale * (exact ? dot<float>(a, b, group) : dot<double>(a, b, group));
        if (by_products && !exact) {
          product_magnitude += std::fabs(weight * inner_scale) * magnitude_of_dot(a, b, group);
        }
      }
      const double term = weight * std::max(product, 0.0);
      value += term;
      relu_magnitude += std::fabs(term);
    }
    expected_logit logit;
    logit.value = value * outer_scale;
    if (!exact) {
      logit.tolerance =
          std::fabs(outer_scale) *
          (by_products ? 0x1p-12 * product_magnitude : logits_tolerance() * relu_magnitude);
    }
    logits.push_back(logit);
  }
}

// What append_logits found for one kind of case, by sequence and row.
struct known_logits {
  std::string kind;
  std::map<std::pair<std::int64_t, int>, std::vector<expected_logit>> rows;
};

std::string kind_of(const test_case& test) {
  std::string kind = std::to_string(test.seed) + " " + std::to_string(test.num_heads) + " " +
                     std::to_string(test.head_dim) + " " + to_string(test.data);
  // Exact data are the same numbers in both formats.
  if (test.data == data_kind::random) kind += kindex::to_string(test.format);
  return kind;
}

}  // namespace

logits_oracle::logits_oracle(const test_case& test, const std::vector<token_data>& sequences) {
  static known_logits known;
  if (known.kind != kind_of(test)) known = {kind_of(test), {}};
  for (std::int64_t b = 0; b < test.num_seqs(); ++b) {
    // Streams of their own: row n must be the same for every next_n and every length.
    const std::uint64_t sequence_seed = sequence_stream(test, b).next();
    random_stream q_stream(sequence_seed ^ 0x51);
    random_stream weight_stream(sequence_seed ^ 0x77);
    for (int i = 0; i < test.next_n * test.num_heads * test.head_dim; ++i) {
      q.push_back(make_q_byte(test.data, test.format, q_stream));
    }
    for (int i = 0; i < test.next_n * test.num_heads; ++i) {
      weights.push_back(make_weight(test.data, weight_stream));
    }
    const token_data& data = sequences[static_cast<std::size_t>(b)];
    const std::size_t tokens = data.k.size() / static_cast<std::size_t>(test.head_dim);
    std::vector<float> decoded_k;
    for (int n = 0; n < test.next_n; ++n) {
      std::vector<expected_logit>& row = known.rows[{test.first_sequence + b, n}];
      if (row.size() < tokens) {
        if (decoded_k.empty()) decoded_k = decode(test.format, data.k);
        const auto row_values = static_cast<std::ptrdiff_t>(test.num_heads) * test.head_dim;
        const std::vector<std::uint8_t> row_q(q.end() - (test.next_n - n) * row_values,
                                              q.end() - (test.next_n - n - 1) * row_values);
        append_logits(test, decode(test.format, row_q).data(),
                      weights.data() + weights.size() -
                          static_cast<std::size_t>((test.next_n - n) * test.num_heads),
                      decoded_k.data(), data.scale.data(), tokens, row);
      }
      rows_.emplace_back(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(tokens));
    }
  }
}

void logits_oracle::recompute(const test_case& test, const std::vector<token_data>& sequences) {
  const std::vector<float> all_q = decode(test.format, q);
  rows_.clear();
  for (std::int64_t row = 0; row < test.num_rows(); ++row) {
    const token_data& data = sequences[static_cast<std::size_t>(row / test.next_n)];
    const std::vector<float> k = decode(test.format, data.k);
    std::vector<expected_logit> logits;
    append_logits(test, all_q.data() + row * test.num_heads * test.head_dim,
                  weights.data() + row * test.num_heads, k.data(), data.scale.data(),
                  k.size() / static_cast<std::size_t>(test.head_dim), logits);
    rows_.push_back(std::move(logits));
  }
}

logits_problem::logits_problem(const test_case& test)
    : test_(test), batch_(make_paged_batch(test)), oracle_(test, batch_.sequences) {
  width_ = test.logits_width;
  if (width_ < 0) {
    const std::vector<std::int32_t> lens = test.cache_lens();
    width_ = lens.empty() ? 0 : *std::max_element(lens.begin(), lens.end());
  }
  // Each outer dimension has its own gap as well: strides that were mixed up must show.
  q_head_stride_ = test.head_dim + test.q_head_gap;
  q_next_n_stride_ = test.num_heads * q_head_stride_ + test.q_head_gap / 2 / 16 * 16;
  q_batch_stride_ = test.next_n * q_next_n_stride_ + test.q_head_gap;
  weights_row_stride_ = test.num_heads + test.weights_gap;
  q_ = device_array<std::uint8_t>(strided_q(), 16);
  weights_ = device_array<float>(strided_weights(), 4);
  lens_ = device_array<std::int32_t>(strided_lens(), 4);
  table_ = device_array<std::int32_t>(batch_.table.entries, 4);
  batch_.cache.upload();
  logits_ = guarded_matrix<float>(test.num_rows(), width_, width_ + test.logits_gap, 4);
}

std::vector<std::uint8_t> logits_problem::strided_q() const {
  const std::int64_t rows = test_.num_rows();
  if (rows == 0) return {};
  const std::int64_t b_last = test_.num_seqs() - 1;
  const std::int64_t size = b_last * q_batch_stride_ + (test_.next_n - 1) * q_next_n_stride_ +
                            (test_.num_heads - 1) * q_head_stride_ + test_.head_dim;
  const std::uint8_t nan = test_.format == kindex::fp8_format::e4m3fnuz ? 0x80 : 0x7F;
  std::vector<std::uint8_t> strided(static_cast<std::size_t>(size), nan);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t h = 0; h < test_.num_heads; ++h) {
      const std::int64_t to = row / test_.next_n * q_batch_stride_ +
                              row % test_.next_n * q_next_n_stride_ + h * q_head_stride_;
      std::memcpy(strided.data() + to,
                  oracle_.q.data() + (row * test_.num_heads + h) * test_.head_dim,
                  static_cast<std::size_t>(test_.head_dim));
    }
  }
  return strided;
}

std::vector<float> logits_problem::strided_weights() const {
  const std::int64_t rows = test_.num_rows();
  if (rows == 0) return {};
  std::vector<float> strided(
      static_cast<std::size_t>((rows - 1) * weights_row_stride_ + test_.num_heads),
      bits_float(nan_weight_bits));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(strided.data() + row * weights_row_stride_,
                oracle_.weights.data() + row * test_.num_heads,
                sizeof(float) * static_cast<std::size_t>(test_.num_heads));
  }
  return strided;
}

std::int64_t logits_problem::lens_batch_stride() const {
  if (test_.lens_shape == kindex::lens_shape::per_sequence) return test_.lens_stride;
  return test_.lens_stride * test_.next_n + test_.lens_stride / 2;
}

std::vector<std::int32_t> logits_problem::strided_lens() const {
  if (test_.lens.empty()) return {};
  const std::int64_t per_seq =
      test_.lens_shape == kindex::lens_shape::per_row ? test_.next_n : std::int64_t{1};
  const auto place = [&](std::int64_t i) {
    return static_cast<std::size_t>(i / per_seq * lens_batch_stride() +
                                    i % per_seq * test_.lens_stride);
  };
  const auto count = static_cast<std::int64_t>(test_.lens.size());
  // Between the lengths lies one that would make everything visible.
  std::vector<std::int32_t> strided(place(count - 1) + 1, std::numeric_limits<std::int32_t>::max());
  for (std::int64_t i = 0; i < count; ++i) {
    strided[place(i)] = test_.lens[static_cast<std::size_t>(i)];
  }
  return strided;
}

kindex::paged_mqa_logits_params logits_problem::params() const {
  const bool per_row = test_.lens_shape == kindex::lens_shape::per_row;
  kindex::paged_mqa_logits_params params;
  params.cache = batch_.cache.view();
  params.q = q_.get();
  params.q_format = test_.format;
  params.q_batch_stride = q_batch_stride_;
  params.q_next_n_stride = q_next_n_stride_;
  params.q_head_stride = q_head_stride_;
  params.weights = weights_.get();
  params.weights_row_stride = weights_row_stride_;
  params.context_lens = lens_.get();
  params.context_lens_shape = test_.lens_shape;
  params.context_lens_batch_stride = lens_batch_stride();
  params.context_lens_next_n_stride = per_row ? test_.lens_stride : 0;
  params.block_table = table_.get();
  params.block_table_stride = batch_.table.stride;
  params.block_table_width = batch_.table.width;
  params.logits = logits_.get();
  params.logits_row_stride = logits_.row_stride();
  params.logits_width = width_;
  params.num_seqs = test_.num_seqs();
  params.next_n = test_.next_n;
  params.num_heads = test_.num_heads;
  params.fill = test_.fill;
  return params;
}

operation logits_problem::run() const {
  return [params = params()](hipStream_t stream) { return paged_mqa_logits(params, stream); };
}

hipError_t logits_problem::launch(const launcher& with) {
  logits_.reset();
  const hipError_t status = with.run(run());
  logits_.download();
  return status;
}

std::int64_t logits_problem::visible(std::int64_t row) const {
  return std::min({test_.unclamped_visible(row), width_, batch_.table.width * test_.page_size});
}

std::vector<std::uint32_t> logits_problem::visible_bits(std::int64_t row) const {
  std::vector<std::uint32_t> bits;
  for (std::int64_t t = 0; t < visible(row); ++t) bits.push_back(logits_.bits(row, t));
  return bits;
}

std::string logits_problem::check() const {
  std::string report = logits_.check_guards();
  std::int64_t wrong = 0;
  const auto complain = [&](std::int64_t row, std::int64_t column, const std::string& expected) {
    if (++wrong > 3) return;
    char text[160];
    std::snprintf(text, sizeof text,
                  "row %lld (b %lld, n %lld) column %lld of %lld visible: %.9g (0x%08X), ",
                  static_cast<long long>(row), static_cast<long long>(row / test_.next_n),
                  static_cast<long long>(row % test_.next_n), static_cast<long long>(column),
                  static_cast<long long>(visible(row)),
                  static_cast<double>(logits_.at(row, column)), logits_.bits(row, column));
    report += (report.empty() ? "" : "\n") + std::string(text) + "expected " + expected;
  };
  const std::int64_t num_pages = batch_.cache.view().num_pages;
  for (std::int64_t row = 0; row < test_.num_rows(); ++row) {
    const std::int64_t b = row / test_.next_n;
    const std::int64_t limit = visible(row);
    for (std::int64_t t = 0; t < width_; ++t) {
      const std::uint32_t bits = logits_.bits(row, t);
      if (t >= limit) {
        const bool fill = test_.fill == kindex::fill::neg_infinity;
        if (bits != (fill ? negative_infinity_bits : untouched_word)) {
          complain(row, t, fill ? "-inf (fill)" : "untouched");
        }
        continue;
      }
      const std::int32_t page =
          batch_.table
              .entries[static_cast<std::size_t>(b * batch_.table.stride + t / test_.page_size)];
      if (page < 0 || page >= num_pages) {
        if (bits != negative_infinity_bits) complain(row, t, "-inf (no such page)");
        continue;
      }
      if (spoiled_.count({b, t}) != 0) {
        if (bits == untouched_word) complain(row, t, "anything, but written");
        continue;
      }
      const expected_logit expected = oracle_.at(row, t);
      const double value = static_cast<double>(logits_.at(row, t));
      const bool right = std::fabs(value - expected.value) <= expected.tolerance;
      if (!right) {
        char text[96];
        std::snprintf(text, sizeof text, "%.9g +- %.2g", expected.value, expected.tolerance);
        complain(row, t, text);
      }
    }
  }
  if (wrong > 3) report += "\n" + std::to_string(wrong) + " wrong columns in all";
  return report;
}

std::string logits_problem::launch_and_check(const launcher& with) {
  const hipError_t status = launch(with);
  if (status != hipSuccess) return std::string("status: ") + hipGetErrorString(status);
  return check();
}

void logits_problem::set_table_entry(std::int64_t seq, std::int64_t index, std::int32_t id) {
  batch_.table.entry(seq, index) = id;
  table_.upload(batch_.table.entries);
}

void logits_problem::spoil_token(std::int64_t seq, std::int64_t token) {
  const std::int64_t slot = batch_.table.slot(seq, token);
  for (int d = 0; d < test_.head_dim; ++d) {
    batch_.cache.set_k_byte(slot, d, test_.format == kindex::fp8_format::e4m3fnuz ? 0x80 : 0x7F);
  }
  for (int g = 0; g < batch_.cache.num_scales(); ++g) {
    batch_.cache.set_scale(slot, g, std::numeric_limits<float>::quiet_NaN());
  }
  batch_.cache.upload();
  spoiled_.insert({seq, token});
}

void logits_problem::set_lens(const std::vector<std::int32_t>& lens) {
  test_.lens = lens;
  lens_.upload(strided_lens());
}

void logits_problem::set_token(std::int64_t seq, std::int64_t token,
                               const std::vector<std::uint8_t>& k,
                               const std::vector<float>& scales) {
  token_data& data = batch_.sequences[static_cast<std::size_t>(seq)];
  std::copy(k.begin(), k.end(), data.k.begin() + token * test_.head_dim);
  std::copy(scales.begin(), scales.end(), data.scale.begin() + token * batch_.cache.num_scales());
  batch_.cache.put_token(batch_.table.slot(seq, token), k.data(), scales.data());
}

void logits_problem::update() {
  oracle_.recompute(test_, batch_.sequences);
  batch_.cache.upload();
  q_.upload(strided_q());
  weights_.upload(strided_weights());
  lens_.upload(strided_lens());
  table_.upload(batch_.table.entries);
}

}  // namespace kindex_test
