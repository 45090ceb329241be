// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The store against the reference: every page geometry, head_dim, input type, slot type and option,
// on rows of all kinds, byte for byte over the whole cache.

#include "catch.hpp"
#include "support/store_problem.hpp"

using namespace kindex_test;
using kindex::element_type;
using kindex::fp8_format;
using kindex::quant_division;
using kindex::scale_rounding;

namespace {

constexpr element_type all_types[] = {element_type::bf16, element_type::fp16, element_type::fp32};

// FMAX x division x rounding. 224 is for e4m3fnuz only.
template <class Body>
void for_each_option(store_case test, Body&& body) {
  for (const float quant_max : {0.0f, 224.0f}) {
    if (quant_max != 0 && test.format == fp8_format::e4m3fn) continue;
    for (const auto division : {quant_division::reciprocal, quant_division::exact}) {
      for (const auto rounding : {scale_rounding::none, scale_rounding::ue8m0}) {
        test.quant_max = quant_max;
        test.division = division;
        test.rounding = rounding;
        body(test);
      }
    }
  }
}

}  // namespace

TEST_CASE("store: every geometry, head_dim, input type and option",
          "[store][class_B][class_J][class_N]") {
  for_each_format([](fp8_format format) {
    std::uint64_t seed = 1;
    for (const page_geometry& geometry : all_page_geometries()) {
      for (const int head_dim : {64, 128, 256}) {
        for (const element_type type : all_types) {
          store_case base;
          base.format = format;
          base.geometry = geometry;
          base.head_dim = head_dim;
          base.k_type = type;
          for_each_option(base, [&](store_case test) {
            test.seed = seed++;
            test.int64_slots = test.seed % 2 == 0;
            test.gap = test.seed % 3 == 0 ? page_gap::plus_64 : page_gap::none;
            // Rows at multiples of 16 bytes and not: two ways to load them.
            test.k_gap = test.seed % 5 < 2 ? 0 : test.seed % 5 == 2 ? 8 : 3;
            INFO(test.name());
            CHECK(run_store_case(test, launchers().front()) == "");
          });
        }
      }
    }
  });
}

TEST_CASE("store: numbers of tokens around waves and blocks", "[store][class_J][class_P]") {
  for (const int head_dim : {64, 128, 256}) {
    for (const int num_tokens : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129}) {
      store_case test;
      test.head_dim = head_dim;
      test.num_tokens = num_tokens;
      test.seed = static_cast<std::uint64_t>(num_tokens);
      test.int64_slots = num_tokens % 2 == 0;
      test.geometry.page_size = num_tokens % 3 == 0 ? 48 : 64;
      INFO(test.name());
      CHECK(run_store_case(test, launchers().front()) == "");
    }
  }
}

TEST_CASE("store: as a captured graph", "[store][class_M]") {
  for (const launcher& how : launchers()) {
    for (const page_geometry& geometry : all_page_geometries()) {
      store_case test;
      test.geometry = geometry;
      INFO(how.name << ": " << test.name());
      CHECK(run_store_case(test, how) == "");
    }
  }
}

TEST_CASE("store: page strides of engines", "[store][class_A][class_K]") {
  for (const page_gap gap : {page_gap::plus_64, page_gap::twice, page_gap::many_layers}) {
    for (const page_geometry& geometry : all_page_geometries()) {
      // A stride of this size for each token of a page of one is nothing that exists.
      if (gap == page_gap::many_layers && geometry.page_size == 1) continue;
      store_case test;
      test.geometry = geometry;
      test.gap = gap;
      INFO(test.name());
      CHECK(run_store_case(test, launchers().front()) == "");
    }
  }
}
