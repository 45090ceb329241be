// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// A loaded gfx942 code object: its memory image, symbols, kernels and decoded instructions.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "instruction.hpp"
#include "memory.hpp"

namespace kindex::emulator {

struct kernel_argument {
  uint32_t offset = 0;
  uint32_t size = 0;
  std::string kind;
};

struct kernel_info {
  std::string name;
  uint64_t descriptor = 0;  // address within the image
  uint32_t argument_bytes = 0;
  uint32_t max_block = 1024;
  bool dynamic_stack = false;
  std::vector<kernel_argument> arguments;
};

struct symbol {
  uint64_t value = 0;
  uint64_t size = 0;
};

// Instructions of one symbol, in order of address.
struct function_code {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::vector<instruction> instructions;
  std::vector<int32_t> by_word;  // index of the instruction at begin + 4 * word, or -1
};

class code_object {
 public:
  // Null with a message in `error` when `data` is not a gfx942 code object.
  static std::unique_ptr<code_object> load(const void* data, size_t size, std::string* error);
  ~code_object();

  const kernel_info* find_kernel(const std::string& name) const;
  bool find_variable(const std::string& name, void** address, size_t* size) const;

  uint8_t* image() const { return image_; }
  uint64_t address_of(uint64_t pc) const { return reinterpret_cast<uint64_t>(image_) + pc; }
  const region_list& segments() const { return segments_; }

  // Decodes the function around it at first use. Null when nothing is there.
  const instruction* instruction_at(uint64_t pc);
  const instruction* instruction_at_address(uint64_t address) {
    return instruction_at(address - reinterpret_cast<uint64_t>(image_));
  }

 private:
  code_object() = default;
  bool parse(std::string* error);
  bool parse_metadata(const uint8_t* data, size_t size);
  void index_text();
  const function_code* find_function(uint64_t pc) const;
  function_code* decode_function(uint64_t pc);

  std::vector<uint8_t> file_;
  uint8_t* image_ = nullptr;
  uint64_t image_bytes_ = 0;
  region_list segments_;
  std::unordered_map<std::string, symbol> symbols_;
  std::map<uint64_t, uint64_t> function_ends_;  // begin -> end of function symbols
  std::unordered_map<std::string, kernel_info> kernels_;
  uint64_t text_begin_ = 0;
  uint64_t text_end_ = 0;

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, std::unique_ptr<function_code>> functions_;
  // Disassembly of the whole object when it is small enough to be worth one call.
  bool text_indexed_ = false;
  std::string text_;
  std::vector<std::pair<uint64_t, size_t>> text_lines_;  // pc -> position in text_
};

}  // namespace kindex::emulator
