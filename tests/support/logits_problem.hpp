// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// A case of the paged MQA logits on the device, and what the contract says about every byte of its
// output.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <kindex/params.hpp>

#include "support/device_buffer.hpp"
#include "support/launch.hpp"
#include "support/test_case.hpp"

namespace kindex_test {

/// A logit in double, and what its rounding error may be; 0 for exact data.
struct expected_logit {
  double value = 0;
  double tolerance = 0;
};

/// q, weights and all logits of a case from its tokens alone: no pages, no layout, no table.
class logits_oracle {
 public:
  /// Keeps the logits of the last kind of case: a test that varies pages, layout, lengths or batch
  /// composes them instead of computing them again.
  logits_oracle(const test_case& test, const std::vector<token_data>& sequences);
  /// Row b * N + n, token t of sequence b, visible or not.
  expected_logit at(std::int64_t row, std::int64_t token) const {
    return rows_[static_cast<std::size_t>(row)][static_cast<std::size_t>(token)];
  }
  std::vector<std::uint8_t> q;  ///< [B, N, H, D]
  std::vector<float> weights;   ///< [B * N, H]

  /// Computes the logits again from `q`, `weights` and the tokens.
  void recompute(const test_case& test, const std::vector<token_data>& sequences);

 private:
  std::vector<std::vector<expected_logit>> rows_;
};

class logits_problem {
 public:
  explicit logits_problem(const test_case& test);

  test_case& test() { return test_; }
  paged_batch& batch() { return batch_; }
  logits_oracle& oracle() { return oracle_; }
  guarded_matrix<float>& logits() { return logits_; }
  const device_array<std::int32_t>& table() const { return table_; }
  const device_array<std::uint8_t>& q() const { return q_; }

  /// What the operation takes.
  kindex::paged_mqa_logits_params params() const;
  /// The launch, for launchers and graphs.
  operation run() const;

  /// Presets the output, launches, downloads. Returns the operation's status.
  hipError_t launch(const launcher& with = launchers().front());
  /// "" if every byte of the output is as the contract says, else the first wrong columns in words.
  std::string check() const;
  /// Both; for the common case. A status other than hipSuccess is described as well.
  std::string launch_and_check(const launcher& with = launchers().front());

  /// Columns that row b * N + n sees.
  std::int64_t visible(std::int64_t row) const;
  /// Bits of all visible logits of a row (as of the last download).
  std::vector<std::uint32_t> visible_bits(std::int64_t row) const;

  // Changes between two launches, as an engine makes them on the device.

  /// Other content of a token, and other queries and weights; effective after update().
  void set_token(std::int64_t seq, std::int64_t token, const std::vector<std::uint8_t>& k,
                 const std::vector<float>& scales);
  void set_q(const std::vector<std::uint8_t>& q) { oracle_.q = q; }
  void set_weights(const std::vector<float>& weights) { oracle_.weights = weights; }
  /// Computes the expected logits again and sends all inputs to the device.
  void update();

  /// Puts an id into the table. An id outside the cache makes its columns -inf.
  void set_table_entry(std::int64_t seq, std::int64_t index, std::int32_t id);
  /// NaN bytes and a NaN scale in a live token: its column may hold anything from then on.
  void spoil_token(std::int64_t seq, std::int64_t token);
  /// Other lengths, of the same shape and within those the cache was built with.
  void set_lens(const std::vector<std::int32_t>& lens);

 private:
  std::int64_t lens_batch_stride() const;
  std::vector<std::int32_t> strided_lens() const;
  std::vector<std::uint8_t> strided_q() const;
  std::vector<float> strided_weights() const;

  test_case test_;
  paged_batch batch_;
  logits_oracle oracle_;
  std::int64_t width_ = 0;
  std::int64_t q_head_stride_ = 0;
  std::int64_t q_next_n_stride_ = 0;
  std::int64_t q_batch_stride_ = 0;
  std::int64_t weights_row_stride_ = 0;
  device_array<std::uint8_t> q_;
  device_array<float> weights_;
  device_array<std::int32_t> lens_;
  device_array<std::int32_t> table_;
  guarded_matrix<float> logits_;
  std::set<std::pair<std::int64_t, std::int64_t>> spoiled_;
};

}  // namespace kindex_test
