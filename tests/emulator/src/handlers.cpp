// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "handlers.hpp"

#include <unordered_map>

namespace kindex::emulator {

const handler_entry* find_handler(std::string_view base) {
  static const auto* const all = [] {
    auto* map = new std::unordered_map<std::string_view, const handler_entry*>;
    for (const handler_list& list : {scalar_handlers(), integer_handlers(), float_handlers(),
                                     half_handlers(), double_handlers(), compare_handlers(),
                                     convert_handlers(), packed_handlers(), lane_handlers()}) {
      for (const handler_entry& entry : list) map->emplace(entry.name, &entry);
    }
    return map;
  }();
  const auto it = all->find(base);
  return it == all->end() ? nullptr : it->second;
}

}  // namespace kindex::emulator
