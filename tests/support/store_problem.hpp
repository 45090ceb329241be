// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the tests of the store share: K rows of any type and stride, random slots, and the tokens
// that a cache must hold after a call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kindex/params.hpp>

#include "support/data.hpp"
#include "support/device_buffer.hpp"
#include "support/launch.hpp"
#include "support/paged_cache.hpp"
#include "support/test_case.hpp"

namespace kindex_test {

/// Bits of the element of `type` nearest to a value.
std::uint32_t element_bits(kindex::element_type type, float value);

/// Rows of K on the host and the device. The device's copy ends with the last element. All elements
/// that belong to no row (`lead` before the first, `gap` between two) are NaN.
class k_matrix {
 public:
  k_matrix(kindex::element_type type, std::int64_t rows, int head_dim, int gap = 0, int lead = 0);

  void set_bits(std::int64_t row, int dim, std::uint32_t bits);
  void set(std::int64_t row, int dim, float value) {
    set_bits(row, dim, element_bits(type_, value));
  }
  /// The element's value after its rounding to the type.
  float at(std::int64_t row, int dim) const;
  void fill_row(std::int64_t row, float value);

  std::int64_t rows() const { return rows_; }
  int head_dim() const { return head_dim_; }
  /// Uploads, and completes the params: k, k_type, k_row_stride, num_tokens.
  void bind(kindex::store_params& params);

 private:
  std::size_t offset(std::int64_t row, int dim) const;

  kindex::element_type type_;
  std::int64_t rows_;
  int head_dim_;
  std::int64_t row_stride_;
  int lead_;
  std::vector<std::uint8_t> bytes_;
  device_array<std::uint8_t> device_;
};

/// Fills rows with everything that a caller may have: normal values of many magnitudes, zeros of
/// both signs, values below the scale's floor, single NaN and Inf, arbitrary bit patterns.
void fill_any_values(k_matrix& k, random_stream& random);

/// Slots on the device, as int64 or int32. Ends with its last element.
class slot_list {
 public:
  slot_list(std::vector<std::int64_t> slots, bool int64);
  const std::vector<std::int64_t>& host() const { return slots_; }
  /// Completes the params: slots, num_slots.
  void bind(kindex::store_params& params) const;

 private:
  std::vector<std::int64_t> slots_;
  bool int64_;
  device_array<std::int64_t> wide_;
  device_array<std::int32_t> narrow_;
};

/// `count` different slots of [0, num_slots) in random order.
std::vector<std::int64_t> random_slots(std::int64_t num_slots, std::size_t count,
                                       random_stream& random);

/// One stored token, by the reference.
struct stored_token {
  std::vector<std::uint8_t> k;  ///< [D]
  std::vector<float> scale;     ///< [scales_per_token]
};
stored_token quantise(const kindex::store_params& options, const k_matrix& k, std::int64_t row);

/// Puts what a call must store into the cache's image: the reference's bytes where paged_cache, not
/// the library, says they belong. Of two tokens with one slot the later.
void expect_stored(paged_cache& cache, const kindex::store_params& options, const k_matrix& k,
                   const std::vector<std::int64_t>& slots);

/// One case of the store, but for its rows.
struct store_case {
  page_geometry geometry = {64, kindex::page_layout::preshuffled};
  int head_dim = 128;
  kindex::fp8_format format = native_format();
  page_gap gap = page_gap::none;
  kindex::element_type k_type = kindex::element_type::bf16;
  bool int64_slots = true;
  float quant_max = 0;
  kindex::quant_division division = kindex::quant_division::reciprocal;
  kindex::scale_rounding rounding = kindex::scale_rounding::none;
  int num_tokens = 37;
  int k_gap = 0;
  int k_lead = 0;
  std::uint64_t seed = 1;

  /// A poisoned cache with room for more tokens than the case has.
  paged_cache make_cache() const;
  /// The options; cache, k and slots are not set.
  kindex::store_params options() const;
  std::string name() const;
};

/// Runs a case on random rows and slots in which some are no slots. "" if every byte of the cache
/// is what it must be, guards and pages that nobody wrote included; else the first difference.
std::string run_store_case(const store_case& test, const launcher& how);

/// Stores rows of `k` at `slots` of a poisoned cache and compares as above.
std::string store_and_compare(paged_cache& cache, kindex::store_params params, k_matrix& k,
                              const slot_list& slots, const launcher& how);

}  // namespace kindex_test
