// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The gather on every page geometry, head_dim and stride: byte for byte what was put into the
// cache, and what the reference makes of it.

#include "catch.hpp"
#include "support/gather_problem.hpp"
#include "support/ops.hpp"
#include "support/store_problem.hpp"

using namespace kindex_test;
using kindex::fp8_format;
using kindex::page_layout;

TEST_CASE("gather: every geometry and head_dim", "[gather][class_B][class_N]") {
  // The bytes are not interpreted: any format on any device.
  std::uint64_t seed = 1;
  for (const fp8_format format : {fp8_format::e4m3fnuz, fp8_format::e4m3fn}) {
    for (const page_geometry& geometry : all_page_geometries()) {
      const int p = geometry.page_size;
      for (const int head_dim : {64, 128, 256}) {
        for (const page_gap gap : {page_gap::none, page_gap::plus_64, page_gap::twice}) {
          gather_case test;
          test.lens = {1, p - 1, p, p + 1, 2 * p, 5 * p - 3 > 0 ? 5 * p - 3 : 2};
          test.geometry = geometry;
          test.head_dim = head_dim;
          test.format = format;
          test.gap = gap;
          test.seed = seed++;
          test.dst_scale_gap = test.seed % 2 == 0 ? 0 : 3;
          test.dst_k_gap = test.seed % 3 == 0 ? 16 : 0;
          INFO(test.name());
          CHECK(run_gather_case(test) == "");
        }
      }
    }
  }
}

TEST_CASE("gather: pages of an engine that packs its layers", "[gather][class_A][class_K]") {
  for (const page_geometry& geometry : all_page_geometries()) {
    if (geometry.page_size == 1) continue;
    gather_case test;
    test.geometry = geometry;
    test.lens = {17, 3 * geometry.page_size + 1};
    test.gap = page_gap::many_layers;
    INFO(test.name());
    CHECK(run_gather_case(test) == "");
  }
}

TEST_CASE("gather: as a captured graph", "[gather][class_M]") {
  for (const launcher& how : launchers()) {
    for (const page_geometry& geometry : all_page_geometries()) {
      gather_case test;
      test.geometry = geometry;
      INFO(how.name << ": " << test.name());
      CHECK(run_gather_case(test, how) == "");
    }
  }
}

TEST_CASE("gather: strides and alignments of the output", "[gather][class_K]") {
  for (const int head_dim : {64, 128, 256}) {
    for (const int k_gap : {0, 1, 3, 4, 8, 16, 600}) {
      for (const std::size_t misalign : {0, 1, 2, 4, 8, 15, 16}) {
        gather_case test;
        test.lens = {5, 33};
        test.head_dim = head_dim;
        test.dst_k_gap = k_gap;
        test.dst_k_misalign = misalign;
        test.dst_scale_gap = k_gap % 5;
        INFO(test.name());
        CHECK(run_gather_case(test) == "");
      }
    }
  }
}

TEST_CASE("gather: what the store wrote", "[gather][class_B]") {
  // The two ends meet in either layout. (Each is tested for its bytes alone as well.)
  for (const page_geometry& geometry : all_page_geometries()) {
    for (const int head_dim : {64, 128, 256}) {
      CAPTURE(geometry.page_size, kindex::to_string(geometry.layout), head_dim);
      const std::vector<std::int32_t> lens = {70, 1, 45};
      constexpr int total = 116;
      random_stream random(9);
      const std::int64_t num_pages = pages_needed(lens, geometry.page_size) + 3;
      page_table table = make_page_table(lens, geometry.page_size, num_pages, random);
      paged_cache cache(geometry.page_size, head_dim, geometry.layout, native_format(), num_pages);
      cache.upload();
      k_matrix k(kindex::element_type::bf16, total, head_dim);
      fill_any_values(k, random);
      // Rows of k in the order of the tokens.
      std::vector<std::int64_t> token_slots;
      for (std::int64_t seq = 0; seq < 3; ++seq) {
        for (std::int64_t t = 0; t < lens[static_cast<std::size_t>(seq)]; ++t) {
          token_slots.push_back(table.slot(seq, t));
        }
      }
      kindex::store_params store_call;
      store_call.cache = cache.view();
      k.bind(store_call);
      const slot_list slots(token_slots, true);
      slots.bind(store_call);

      const device_array<std::int32_t> device_table(table.entries);
      const device_array<std::int32_t> device_cu(cumulative(lens));
      const int num_scales = kindex::scales_per_token(head_dim);
      guarded_matrix<std::uint8_t> dst_k(total, head_dim, head_dim + 16);
      guarded_matrix<float> dst_scale(total, num_scales, num_scales);
      kindex::gather_params gather_call;
      gather_call.cache = cache.view();
      gather_call.block_table = device_table.get();
      gather_call.block_table_stride = table.stride;
      gather_call.block_table_width = table.width;
      gather_call.cu_seq_lens = device_cu.get();
      gather_call.num_seqs = 3;
      gather_call.dst_k = dst_k.get();
      gather_call.dst_k_stride_bytes = dst_k.row_stride();
      gather_call.dst_scale = dst_scale.get();
      gather_call.dst_scale_stride = num_scales;
      gather_call.num_tokens = total;
      CHECK(run_directly([&](hipStream_t stream) {
              const hipError_t status = store(store_call, stream);
              return status != hipSuccess ? status : gather(gather_call, stream);
            }) == hipSuccess);
      dst_k.download();
      dst_scale.download();
      CHECK(dst_k.check_guards() == "");
      CHECK(dst_scale.check_guards() == "");
      int wrong = 0;
      for (std::int64_t row = 0; row < total; ++row) {
        const stored_token token = quantise(store_call, k, row);
        for (int dim = 0; dim < head_dim; ++dim) {
          wrong += dst_k.at(row, dim) != token.k[static_cast<std::size_t>(dim)];
        }
        for (int group = 0; group < num_scales; ++group) {
          wrong += dst_scale.bits(row, group) !=
                   float_bits(token.scale[static_cast<std::size_t>(group)]);
        }
      }
      CHECK(wrong == 0);
    }
  }
}
