// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Division by a number that only the host knows, as one multiplication on the device.
#pragma once

#include <cstdint>

#include "../config.hpp"

KINDEX_NAMESPACE_BEGIN
namespace detail {

/// n / divisor for 0 <= n with n * divisor < 2^64: with magic = ceil(2^64 / divisor) the error
/// n * (magic * divisor - 2^64) / (2^64 * divisor) stays below 1 / divisor.
struct divider {
  std::uint64_t magic = 0;  ///< 0 stands for 2^64, the magic of divisor 1
  std::uint32_t divisor = 1;

  divider() = default;
  explicit divider(std::uint32_t by)
      : magic(by == 1 ? 0 : ~std::uint64_t{0} / by + 1), divisor(by) {}

  /// 64-bit numerators.
  KINDEX_HOST_DEVICE std::uint64_t divide(std::uint64_t n) const {
    if (magic == 0) return n;
#if KINDEX_DEVICE_PASS
    return __umul64hi(n, magic);
#else
    __extension__ using wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<wide>(n) * magic >> 64);
#endif
  }

  /// 32-bit numerators: two 32-bit products instead of four.
  KINDEX_HOST_DEVICE std::uint32_t divide(std::uint32_t n) const {
    if (magic == 0) return n;
    const std::uint64_t low = n * (magic & 0xFFFFFFFFu);
    const std::uint64_t high = n * (magic >> 32);
    return static_cast<std::uint32_t>((high + (low >> 32)) >> 32);
  }
};

/// Splits a token position or slot into its page and its place in the page: by a shift where the
/// page size is known at compile time, by `divider` (over tiles of 16 tokens) elsewhere.
template <int PageSize>
struct page_splitter {
  divider tiles_per_page;

  page_splitter() = default;
  explicit page_splitter(int page_size)
      : tiles_per_page(PageSize == 0 ? static_cast<std::uint32_t>(page_size) / 16 : 1u) {}

  /// Tokens of one page.
  KINDEX_HOST_DEVICE int page_size() const {
    return PageSize != 0 ? PageSize : static_cast<int>(tiles_per_page.divisor) * 16;
  }

  /// Page that holds token n >= 0.
  template <class Unsigned>
  KINDEX_HOST_DEVICE Unsigned page(Unsigned n) const {
    if constexpr (PageSize != 0) {
      return n / PageSize;
    } else {
      return tiles_per_page.divide(n / 16);
    }
  }
};

}  // namespace detail
KINDEX_NAMESPACE_END
