// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The division by a page size that is known at run time, against the processor's.

#include <cstdint>
#include <kindex/detail/divider.hpp>
#include <random>
#include <vector>

#include "catch.hpp"

namespace {

using kindex::detail::divider;
using kindex::detail::page_splitter;

// Numerators where a wrong magic number shows: around multiples, and at the ends of the range.
std::vector<std::uint64_t> numerators(std::uint64_t divisor, std::uint64_t end,
                                      std::mt19937_64& random) {
  std::vector<std::uint64_t> values = {0, 1, end - 1, end - 2};
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t multiple = random() % (end / divisor) * divisor;
    for (const std::uint64_t n : {multiple - 1, multiple, multiple + 1, multiple + divisor - 1}) {
      if (n < end) values.push_back(n);
    }
  }
  const std::uint64_t last = (end - 1) / divisor * divisor;
  values.push_back(last);
  if (last > 0) values.push_back(last - 1);
  return values;
}

}  // namespace

TEST_CASE("division by every number of tiles that a page can have", "[divider][class_A][class_B]") {
  std::mt19937_64 random(1);
  int wrong = 0;
  for (std::uint32_t divisor = 1; divisor <= 4096; ++divisor) {
    const divider by(divisor);
    // A cache has up to 2^47 tokens, 2^43 tiles of 16; positions of a sequence are 32-bit.
    for (const std::uint64_t n : numerators(divisor, std::uint64_t{1} << 43, random)) {
      wrong += by.divide(n) != n / divisor;
    }
    for (const std::uint64_t n : numerators(divisor, std::uint64_t{1} << 32, random)) {
      const auto narrow = static_cast<std::uint32_t>(n);
      wrong += by.divide(narrow) != narrow / divisor;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("pages of slots at run-time page sizes", "[divider][class_A][class_B]") {
  std::mt19937_64 random(2);
  for (const int page_size : {16, 32, 48, 64, 80, 96, 112, 144, 176, 256, 1008, 4112, 65536}) {
    CAPTURE(page_size);
    const page_splitter<0> pages(page_size);
    CHECK(pages.page_size() == page_size);
    const auto p = static_cast<std::uint64_t>(page_size);
    int wrong = 0;
    for (const std::uint64_t slot : numerators(p, std::uint64_t{1} << 47, random)) {
      wrong += pages.page(slot) != slot / p;
    }
    for (const std::uint64_t slot : numerators(p, std::uint64_t{1} << 31, random)) {
      wrong += pages.page(static_cast<std::uint32_t>(slot)) != slot / p;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("pages of slots at compile-time page sizes", "[divider][class_A][class_B]") {
  const page_splitter<1> one(1);
  const page_splitter<64> of_64(64);
  CHECK(one.page_size() == 1);
  CHECK(of_64.page_size() == 64);
  CHECK(one.page(std::uint64_t{1} << 40) == std::uint64_t{1} << 40);
  CHECK(of_64.page(std::uint64_t{63}) == 0);
  CHECK(of_64.page(std::uint64_t{64}) == 1);
  CHECK(of_64.page((std::uint64_t{1} << 47) - 1) == (std::uint64_t{1} << 41) - 1);
}
