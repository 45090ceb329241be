// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "message_pack.hpp"

#include <utility>

namespace kindex::emulator {
namespace {

class reader {
 public:
  reader(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool value(pack_value* out, int depth = 0) {
    if (at_ == end_ || depth > 16) return false;
    const uint8_t tag = *at_++;
    if (tag < 0x80) return integer(out, tag);
    if (tag < 0x90) return map(out, tag & 15u, depth);
    if (tag < 0xa0) return array(out, tag & 15u, depth);
    if (tag < 0xc0) return text(out, tag & 31u);
    if (tag >= 0xe0) return integer(out, static_cast<uint64_t>(static_cast<int8_t>(tag)));
    uint64_t n = 0;
    switch (tag) {
      case 0xc0:
        out->kind = pack_value::type::nil;
        return true;
      case 0xc2:
      case 0xc3:
        out->kind = pack_value::type::boolean;
        out->integer = tag & 1;
        return true;
      case 0xc4:
      case 0xd9:
        return number(1, &n) && text(out, n);
      case 0xc5:
      case 0xda:
        return number(2, &n) && text(out, n);
      case 0xc6:
      case 0xdb:
        return number(4, &n) && text(out, n);
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return number(1u << (tag - 0xcc), &n) && integer(out, n);
      case 0xd0:
        return number(1, &n) && integer(out, static_cast<uint64_t>(static_cast<int8_t>(n)));
      case 0xd1:
        return number(2, &n) && integer(out, static_cast<uint64_t>(static_cast<int16_t>(n)));
      case 0xd2:
        return number(4, &n) && integer(out, static_cast<uint64_t>(static_cast<int32_t>(n)));
      case 0xd3:
        return number(8, &n) && integer(out, n);
      case 0xdc:
        return number(2, &n) && array(out, n, depth);
      case 0xdd:
        return number(4, &n) && array(out, n, depth);
      case 0xde:
        return number(2, &n) && map(out, n, depth);
      case 0xdf:
        return number(4, &n) && map(out, n, depth);
      default:
        return false;  // floats and extensions do not occur
    }
  }

 private:
  bool number(unsigned bytes, uint64_t* n) {
    if (static_cast<size_t>(end_ - at_) < bytes) return false;
    *n = 0;
    for (unsigned k = 0; k < bytes; ++k) *n = (*n << 8) | *at_++;
    return true;
  }
  static bool integer(pack_value* out, uint64_t n) {
    out->kind = pack_value::type::integer;
    out->integer = n;
    return true;
  }
  bool text(pack_value* out, uint64_t n) {
    if (static_cast<uint64_t>(end_ - at_) < n) return false;
    out->kind = pack_value::type::text;
    out->text.assign(reinterpret_cast<const char*>(at_), n);
    at_ += n;
    return true;
  }
  bool array(pack_value* out, uint64_t n, int depth) {
    out->kind = pack_value::type::array;
    for (uint64_t k = 0; k < n; ++k) {
      out->items.emplace_back();
      if (!value(&out->items.back(), depth + 1)) return false;
    }
    return true;
  }
  bool map(pack_value* out, uint64_t n, int depth) {
    out->kind = pack_value::type::map;
    for (uint64_t k = 0; k < n; ++k) {
      pack_value key;
      pack_value field;
      if (!value(&key, depth + 1) || !value(&field, depth + 1)) return false;
      out->keys.push_back(std::move(key.text));
      out->items.push_back(std::move(field));
    }
    return true;
  }

  const uint8_t* at_;
  const uint8_t* end_;
};

}  // namespace

const pack_value* pack_value::find(const char* name) const {
  for (size_t k = 0; k < keys.size(); ++k) {
    if (keys[k] == name) return &items[k];
  }
  return nullptr;
}

uint64_t pack_value::integer_or(const char* name, uint64_t fallback) const {
  const pack_value* field = find(name);
  return field ? field->integer : fallback;
}

bool parse_message_pack(const uint8_t* data, size_t size, pack_value* out) {
  return reader(data, size).value(out);
}

}  // namespace kindex::emulator
