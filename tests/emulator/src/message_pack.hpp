// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// A reader for MessagePack, the format of the kernel metadata in a code object's note.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kindex::emulator {

struct pack_value {
  enum class type { nil, boolean, integer, text, array, map } kind = type::nil;
  uint64_t integer = 0;
  std::string text;
  std::vector<pack_value> items;  // of an array; of a map, the value of each key
  std::vector<std::string> keys;

  // The field of a map, or null.
  const pack_value* find(const char* name) const;
  uint64_t integer_or(const char* name, uint64_t fallback) const;
};

// False when `data` is malformed.
bool parse_message_pack(const uint8_t* data, size_t size, pack_value* out);

}  // namespace kindex::emulator
