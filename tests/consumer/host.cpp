// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// A host-only user of kindex: asks why a call is refused, and stores and reads on the CPU.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <kindex/reference.hpp>
#include <kindex/validate.hpp>
#include <kindex/version.hpp>

static_assert(KINDEX_VERSION >= 100, "0.1.0 or later");

int main() {
  std::vector<unsigned char> page(static_cast<std::size_t>(kindex::page_payload_bytes(64, 128)));
  const std::vector<std::uint16_t> k(128, 0x3F80);  // 1.0
  const std::int64_t slot = 5;

  kindex::store_params params;
  params.cache.data = page.data();
  params.cache.num_pages = 1;
  params.cache.page_stride_bytes = static_cast<std::int64_t>(page.size());
  params.k = k.data();
  params.k_row_stride = 128;
  params.num_tokens = 1;
  params.slots = &slot;
  params.num_slots = 1;
  const kindex::validation good = kindex::validate(params);

  kindex::store_params wrong = params;
  wrong.cache.page_size = 24;
  const kindex::validation bad = kindex::validate(wrong);
  std::printf("kindex %d: %s\n", KINDEX_VERSION, bad.reason);

  kindex::reference::store(params);
  float scale = 0;
  std::memcpy(&scale, page.data() + kindex::scale_offset_in_page(64, 128, 5, 0), sizeof scale);
  const unsigned char byte =
      page[static_cast<std::size_t>(kindex::k_offset_in_page(params.cache.layout, 128, 5, 17))];
  const bool right = good.ok() && bad.status == hipErrorNotSupported &&
                     std::strstr(bad.reason, "page_size 24") != nullptr && byte == 0x7F &&
                     scale == 1.0f / 240;
  return right ? 0 : 1;
}
