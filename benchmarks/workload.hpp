// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The three operations on real-size input. Every case has one or more sets of inputs: on a GPU as
// many as it takes for the caches of the device not to remember a set until it comes round again.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <kindex/params.hpp>

#include "support/device_buffer.hpp"
#include "support/paged_cache.hpp"
#include "synthetic.hpp"
#include "timing.hpp"

namespace kindex_bench {

/// Of the device; 0 where there is none.
std::int64_t last_level_cache_bytes();

/// Bytes that shall pass through the device's last-level cache before a set of inputs comes round
/// again: a multiple of its size. 0 where there is none.
std::int64_t rotation_bytes();

/// Sets of inputs for an operation that touches this many bytes of each.
std::int64_t num_sets_for(std::int64_t bytes, inputs where = inputs::in_memory);

// Caches ----------------------------------------------------------------------------------------

/// Who has how much context, in which pages.
struct cache_shape {
  std::vector<std::int32_t> lens;
  int page_size = 64;
  kindex::page_layout layout = kindex::page_layout::preshuffled;
  std::int64_t table_width = -1;  ///< -1: as wide as the longest sequence needs

  std::int64_t num_tokens() const;
  bool operator==(const cache_shape& other) const;
};

/// One cache whose pages are shuffled and filled by the library's own store.
class filled_cache {
 public:
  /// Token j of sequence b holds K row (synthetic.hpp) first_id + (tokens before b) + j.
  filled_cache(const cache_shape& shape, std::int64_t first_id, std::uint64_t seed);

  kindex::cache_view view() const { return view_; }
  std::size_t bytes() const;
  const kindex_test::page_table& table() const { return table_; }
  const std::int32_t* device_table() const { return device_table_.get(); }
  std::int64_t id(std::int64_t seq, std::int64_t token) const {
    return first_ids_[static_cast<std::size_t>(seq)] + token;
  }
  std::int64_t slot(std::int64_t seq, std::int64_t token) const { return table_.slot(seq, token); }

  /// A cache of one page, a copy of the page that has token `token` of a sequence.
  struct page_copy {
    kindex::cache_view view;
    std::vector<std::uint8_t> bytes;
    int token_in_page;
  };
  page_copy copy_page(std::int64_t seq, std::int64_t token) const;

 private:
  kindex_test::device_memory memory_;
  kindex::cache_view view_;
  kindex_test::page_table table_;
  kindex_test::device_array<std::int32_t> device_table_;
  std::vector<std::int64_t> first_ids_;
};

/// Caches of one shape with different pages and content.
struct cache_pool {
  cache_shape shape;
  std::vector<filled_cache> caches;
  kindex_test::device_array<std::int32_t> device_lens;
};

/// A pool of as many caches as reading them in turn takes. The last `remembered` pools are kept for
/// those who ask for the same again.
std::shared_ptr<const cache_pool> make_cache_pool(const cache_shape& shape, std::size_t remembered);

// Cases -----------------------------------------------------------------------------------------

/// What comparing with kindex::reference showed.
struct check_result {
  std::int64_t values = 0;
  std::string first_difference;  ///< empty if there is none
  bool ok() const { return first_difference.empty(); }
};

/// What one launch has to move and compute, by the formulas of its operation.
struct case_size {
  std::int64_t tokens = 0;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  std::int64_t cache_bytes = 0;  ///< of these, in the cache: K and scales of the tokens
  double flops = 0;              ///< of the products

  std::int64_t bytes() const { return bytes_read + bytes_written; }
};

/// An operation with its sets of inputs.
class bench_case {
 public:
  virtual ~bench_case() = default;
  virtual std::int64_t num_sets() const = 0;
  /// Writes the outputs of set 0 where check_output looks, whatever rotate_outputs says.
  virtual hipError_t launch(std::int64_t set, hipStream_t stream) const = 0;
  virtual case_size size() const = 0;
  /// Where its launches are to find their inputs.
  virtual inputs where() const { return inputs::in_memory; }
  /// True if it writes something beside the cache.
  virtual bool has_outputs() const { return false; }
  /// Whether every set has an output of its own, or all have one buffer, as an engine's allocator
  /// gives every layer the same.
  void rotate_outputs(bool rotate) { rotate_outputs_ = rotate; }
  /// The cache of set 0.
  virtual const filled_cache& cache() const = 0;
  /// Overwrites what a launch of set 0 is to write.
  virtual void spoil_output() = 0;
  /// Compares a sample of the output of set 0.
  virtual check_result check_output() const = 0;

 protected:
  std::size_t output_of(std::int64_t set) const {
    return rotate_outputs_ ? static_cast<std::size_t>(set) : 0;
  }

 private:
  bool rotate_outputs_ = false;
};

/// Which tokens a store writes.
enum class store_tokens : std::uint8_t {
  newest,    ///< the last token of every sequence: a decode step
  sequence,  ///< the first tokens of a sequence, in order: a prefill
  random,    ///< any tokens of the cache, in any order
};

std::unique_ptr<bench_case> make_store_case(std::shared_ptr<const cache_pool> pool,
                                            store_tokens which, std::int64_t num_tokens,
                                            inputs where = inputs::in_memory);

/// Gathers num_seqs sequences at once.
std::unique_ptr<bench_case> make_gather_case(std::shared_ptr<const cache_pool> pool,
                                             std::int64_t num_seqs);

struct logits_shape {
  std::int64_t num_heads = 64;
  std::int64_t next_n = 1;
  std::int64_t width = -1;  ///< -1: the longest sequence
  kindex::fill fill = kindex::fill::none;
};

std::unique_ptr<bench_case> make_logits_case(std::shared_ptr<const cache_pool> pool,
                                             const logits_shape& shape);

/// `count` lengths, uniform in [shortest, longest], always the same.
std::vector<std::int32_t> uniform_lens(int count, int shortest, int longest);

}  // namespace kindex_bench
