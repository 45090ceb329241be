// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "support/store_problem.hpp"

#include <algorithm>
#include <cmath>
#include <kindex/reference.hpp>
#include <limits>
#include <numeric>
#include <utility>

#include "support/ops.hpp"

namespace kindex_test {
namespace {

using kindex::element_type;

std::uint32_t bf16_bits(float value) {
  const std::uint32_t bits = float_bits(value);
  if (std::isnan(value)) return bits >> 16 | 0x40;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

std::uint32_t fp16_bits(float value) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (magnitude >= 65520) return sign | 0x7C00;  // the midpoint to what 2^16 would be
  // Subnormals have the exponent of the smallest normal; a carry out of the mantissa is right.
  const int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
  const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return sign | static_cast<std::uint32_t>((exponent + 14) * 1024 + mantissa);
}

template <class To>
std::vector<To> narrowed(const std::vector<std::int64_t>& values) {
  std::vector<To> result;
  for (const std::int64_t value : values) result.push_back(static_cast<To>(value));
  return result;
}

}  // namespace

std::uint32_t element_bits(element_type type, float value) {
  switch (type) {
    case element_type::bf16:
      return bf16_bits(value);
    case element_type::fp16:
      return fp16_bits(value);
    case element_type::fp32:
      return float_bits(value);
  }
  return 0;
}

k_matrix::k_matrix(element_type type, std::int64_t rows, int head_dim, int gap, int lead)
    : type_(type), rows_(rows), head_dim_(head_dim), row_stride_(head_dim + gap), lead_(lead) {
  if (rows == 0) return;
  bytes_.resize(offset(rows - 1, head_dim));
  const std::uint32_t nan = element_bits(type, std::numeric_limits<float>::quiet_NaN());
  const auto size = static_cast<std::size_t>(kindex::element_bytes(type));
  for (std::size_t at = 0; at < bytes_.size(); at += size) std::memcpy(&bytes_[at], &nan, size);
}

std::size_t k_matrix::offset(std::int64_t row, int dim) const {
  return static_cast<std::size_t>((lead_ + row * row_stride_ + dim) * kindex::element_bytes(type_));
}

void k_matrix::set_bits(std::int64_t row, int dim, std::uint32_t bits) {
  std::memcpy(&bytes_[offset(row, dim)], &bits,
              static_cast<std::size_t>(kindex::element_bytes(type_)));
}

float k_matrix::at(std::int64_t row, int dim) const {
  return kindex::reference::load_element(type_, bytes_.data(), lead_ + row * row_stride_ + dim);
}

void k_matrix::fill_row(std::int64_t row, float value) {
  for (int dim = 0; dim < head_dim_; ++dim) set(row, dim, value);
}

void k_matrix::bind(kindex::store_params& params) {
  device_ = device_array<std::uint8_t>(bytes_);
  params.k = device_.get() + lead_ * kindex::element_bytes(type_);
  params.k_type = type_;
  params.k_row_stride = row_stride_;
  params.num_tokens = rows_;
}

void fill_any_values(k_matrix& k, random_stream& random) {
  const int head_dim = k.head_dim();
  for (std::int64_t row = 0; row < k.rows(); ++row) {
    const int kind = random.integer(0, 7);
    const int exponent = random.integer(-12, 8);
    for (int dim = 0; dim < head_dim; ++dim) {
      if (kind == 0) {
        k.set(row, dim, random.integer(0, 1) == 0 ? 0.0f : -0.0f);
      } else if (kind == 1) {
        k.set_bits(row, dim, static_cast<std::uint32_t>(random.next()));
      } else if (kind == 2) {
        k.set(row, dim, static_cast<float>(random.normal() * 1e-6));
      } else {
        k.set(row, dim, static_cast<float>(std::ldexp(random.normal(), exponent)));
      }
    }
    if (kind == 3) {
      const float infinity = std::numeric_limits<float>::infinity();
      k.set(row, random.integer(0, head_dim - 1), infinity);
      k.set(row, random.integer(0, head_dim - 1), -infinity);
      k.set(row, random.integer(0, head_dim - 1), std::numeric_limits<float>::quiet_NaN());
    }
  }
}

slot_list::slot_list(std::vector<std::int64_t> slots, bool int64)
    : slots_(std::move(slots)), int64_(int64) {
  if (int64) {
    wide_ = device_array<std::int64_t>(slots_);
  } else {
    narrow_ = device_array<std::int32_t>(narrowed<std::int32_t>(slots_));
  }
}

void slot_list::bind(kindex::store_params& params) const {
  params.slots = int64_ ? kindex::slot_array(static_cast<const std::int64_t*>(wide_.get()))
                        : kindex::slot_array(static_cast<const std::int32_t*>(narrow_.get()));
  params.num_slots = static_cast<std::int64_t>(slots_.size());
}

std::vector<std::int64_t> random_slots(std::int64_t num_slots, std::size_t count,
                                       random_stream& random) {
  std::vector<std::int64_t> slots(static_cast<std::size_t>(num_slots));
  std::iota(slots.begin(), slots.end(), 0);
  random.shuffle(slots);
  slots.resize(std::min(count, slots.size()));
  return slots;
}

stored_token quantise(const kindex::store_params& options, const k_matrix& k, std::int64_t row) {
  // One token in a plain page of one: D bytes, then the scales.
  const int head_dim = k.head_dim();
  const auto bytes = static_cast<std::size_t>(kindex::page_payload_bytes(1, head_dim));
  std::vector<float> values;
  for (int dim = 0; dim < head_dim; ++dim) values.push_back(k.at(row, dim));
  std::vector<std::uint8_t> page(bytes);
  const std::int64_t slot = 0;
  kindex::store_params params = options;
  params.cache.data = page.data();
  params.cache.num_pages = 1;
  params.cache.page_stride_bytes = static_cast<std::int64_t>(bytes);
  params.cache.page_size = 1;
  params.cache.head_dim = head_dim;
  params.cache.layout = kindex::page_layout::plain;
  params.k = values.data();
  params.k_type = element_type::fp32;  // widening is exact
  params.k_row_stride = head_dim;
  params.num_tokens = 1;
  params.slots = &slot;
  params.num_slots = 1;
  kindex::reference::store(params);
  stored_token token;
  token.k.assign(page.begin(), page.begin() + head_dim);
  token.scale.resize(static_cast<std::size_t>(kindex::scales_per_token(head_dim)));
  std::memcpy(token.scale.data(), page.data() + head_dim, 4 * token.scale.size());
  return token;
}

void expect_stored(paged_cache& cache, const kindex::store_params& options, const k_matrix& k,
                   const std::vector<std::int64_t>& slots) {
  const std::int64_t tokens = std::min(k.rows(), static_cast<std::int64_t>(slots.size()));
  for (std::int64_t row = 0; row < tokens; ++row) {
    const std::int64_t slot = slots[static_cast<std::size_t>(row)];
    if (slot < 0 || slot >= cache.num_slots()) continue;
    const stored_token token = quantise(options, k, row);
    cache.put_token(slot, token.k.data(), token.scale.data());
  }
}

paged_cache store_case::make_cache() const {
  const int page_size = geometry.page_size;
  const std::int64_t num_pages = (num_tokens + 10) / page_size + 3;
  return paged_cache(page_size, head_dim, geometry.layout, format, num_pages,
                     page_stride_bytes(gap, page_size, head_dim), placement::guarded);
}

kindex::store_params store_case::options() const {
  kindex::store_params params;
  params.cache.format = format;
  params.quant_max = quant_max;
  params.division = division;
  params.rounding = rounding;
  return params;
}

std::string store_case::name() const {
  return "P=" + std::to_string(geometry.page_size) + " " + kindex::to_string(geometry.layout) +
         " " + kindex::to_string(format) + " D=" + std::to_string(head_dim) + " page stride " +
         to_string(gap) + " k " + kindex::to_string(k_type) +
         (int64_slots ? " int64 slots" : " int32 slots") + " quant_max " +
         std::to_string(static_cast<int>(quant_max)) +
         (division == kindex::quant_division::exact ? " exact division" : " reciprocal") +
         (rounding == kindex::scale_rounding::ue8m0 ? " ue8m0 " : " ") +
         std::to_string(num_tokens) + " tokens, k gap " + std::to_string(k_gap) + " k lead " +
         std::to_string(k_lead) + " seed " + std::to_string(seed);
}

std::string store_and_compare(paged_cache& cache, kindex::store_params params, k_matrix& k,
                              const slot_list& slots, const launcher& how) {
  cache.upload();
  params.cache = cache.view();
  k.bind(params);
  slots.bind(params);
  const hipError_t status = how.run([&](hipStream_t stream) { return store(params, stream); });
  if (status != hipSuccess) return std::string("status ") + hipGetErrorString(status);
  expect_stored(cache, params, k, slots.host());
  return cache.compare_with_device();
}

std::string run_store_case(const store_case& test, const launcher& how) {
  random_stream random(test.seed);
  paged_cache cache = test.make_cache();
  k_matrix k(test.k_type, test.num_tokens, test.head_dim, test.k_gap, test.k_lead);
  fill_any_values(k, random);
  std::vector<std::int64_t> slots =
      random_slots(cache.num_slots(), static_cast<std::size_t>(test.num_tokens), random);
  // About one in eight is no slot.
  const std::int64_t sentinels[] = {-1, -2, cache.num_slots(), 0x7FFFFFFF};
  for (std::int64_t& slot : slots) {
    if (random.integer(0, 7) == 0) slot = sentinels[random.integer(0, 3)];
  }
  return store_and_compare(cache, test.options(), k, slot_list(slots, test.int64_slots), how);
}

}  // namespace kindex_test
