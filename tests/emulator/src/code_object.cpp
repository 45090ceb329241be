// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "code_object.hpp"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "common.hpp"
#include "decode.hpp"
#include "disassembler.hpp"
#include "handlers.hpp"
#include "message_pack.hpp"
#include "wave.hpp"

namespace kindex::emulator {
namespace {

constexpr uint16_t machine_amdgpu = 224;
constexpr uint32_t flags_machine_mask = 0xff;
constexpr uint32_t flags_gfx942 = 0x4c;
constexpr uint32_t note_amdgpu_metadata = 32;

// Dynamic relocations: symbol plus addend, image base plus addend.
constexpr uint32_t relocation_absolute64 = 3;
constexpr uint32_t relocation_relative64 = 13;

// Above this much code one function at a time is disassembled.
constexpr uint64_t whole_text_limit = 1 << 20;

template <class T>
bool read_at(const std::vector<uint8_t>& file, uint64_t offset, T* out) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return false;
  std::memcpy(out, file.data() + offset, sizeof(T));
  return true;
}

std::string text_at(const std::vector<uint8_t>& file, uint64_t offset) {
  if (offset >= file.size()) return {};
  const char* begin = reinterpret_cast<const char*>(file.data() + offset);
  return std::string(begin, strnlen(begin, file.size() - offset));
}

void run_past_end(wave& w, const instruction& i) {
  report(w, i, finding_kind::control_flow, -1, "execution ran past the end of a function");
  w.done = true;
  w.owner->abort = true;
}

}  // namespace

std::unique_ptr<code_object> code_object::load(const void* data, size_t size, std::string* error) {
  std::unique_ptr<code_object> object(new code_object);
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  object->file_.assign(bytes, bytes + size);
  if (!object->parse(error)) return nullptr;
  return object;
}

code_object::~code_object() {
  if (image_) munmap(image_, image_bytes_);
}

bool code_object::parse(std::string* error) {
  Elf64_Ehdr header;
  if (!read_at(file_, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != machine_amdgpu) {
    *error = "not an AMD GPU code object";
    return false;
  }
  if ((header.e_flags & flags_machine_mask) != flags_gfx942) {
    char text[80];
    std::snprintf(text, sizeof text, "code object for another processor (machine 0x%x, not gfx942)",
                  header.e_flags & flags_machine_mask);
    *error = text;
    return false;
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  for (size_t k = 0; k < segments.size(); ++k) {
    if (!read_at(file_, header.e_phoff + k * header.e_phentsize, &segments[k])) {
      *error = "truncated program headers";
      return false;
    }
    if (segments[k].p_type == PT_LOAD) {
      image_bytes_ = std::max(image_bytes_, segments[k].p_vaddr + segments[k].p_memsz);
    }
  }
  image_bytes_ = (image_bytes_ + 4096) & ~uint64_t{4095};
  void* image =
      mmap(nullptr, image_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (image == MAP_FAILED) {
    *error = "out of memory";
    return false;
  }
  image_ = static_cast<uint8_t*>(image);
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type == PT_NOTE && s.p_offset + s.p_filesz <= file_.size()) {
      if (!parse_metadata(file_.data() + s.p_offset, s.p_filesz)) {
        *error = "unreadable kernel metadata";
        return false;
      }
    }
    if (s.p_type != PT_LOAD) continue;
    if (s.p_offset + s.p_filesz > file_.size()) {
      *error = "truncated segment";
      return false;
    }
    std::memcpy(image_ + s.p_vaddr, file_.data() + s.p_offset, s.p_filesz);
    segments_.push_back(
        {address_of(s.p_vaddr), address_of(s.p_vaddr + s.p_memsz), (s.p_flags & PF_W) != 0});
  }
  std::sort(segments_.begin(), segments_.end(),
            [](const region& a, const region& b) { return a.begin < b.begin; });

  std::vector<Elf64_Shdr> sections(header.e_shnum);
  for (size_t k = 0; k < sections.size(); ++k) {
    if (!read_at(file_, header.e_shoff + k * header.e_shentsize, &sections[k])) {
      *error = "truncated section headers";
      return false;
    }
  }
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type == SHT_PROGBITS && (s.sh_flags & SHF_EXECINSTR)) {
      text_begin_ = s.sh_addr;
      text_end_ = s.sh_addr + s.sh_size;
    }
    if ((s.sh_type != SHT_SYMTAB && s.sh_type != SHT_DYNSYM) || s.sh_link >= sections.size()) {
      continue;
    }
    const uint64_t names = sections[s.sh_link].sh_offset;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= s.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym entry;
      if (!read_at(file_, s.sh_offset + at, &entry)) break;
      if (ELF64_ST_TYPE(entry.st_info) == STT_FUNC && entry.st_size) {
        function_ends_[entry.st_value] = entry.st_value + entry.st_size;
      }
      std::string name = text_at(file_, names + entry.st_name);
      if (!name.empty()) symbols_[std::move(name)] = {entry.st_value, entry.st_size};
    }
  }
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type != SHT_RELA || !(s.sh_flags & SHF_ALLOC)) continue;
    const uint64_t symbols = s.sh_link < sections.size() ? sections[s.sh_link].sh_offset : 0;
    for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= s.sh_size; at += sizeof(Elf64_Rela)) {
      Elf64_Rela r;
      Elf64_Sym target = {};
      if (!read_at(file_, s.sh_offset + at, &r) ||
          !read_at(file_, symbols + ELF64_R_SYM(r.r_info) * sizeof(Elf64_Sym), &target) ||
          r.r_offset + 8 > image_bytes_) {
        *error = "unreadable relocation";
        return false;
      }
      const uint32_t kind = ELF64_R_TYPE(r.r_info);
      if (kind != relocation_relative64 && kind != relocation_absolute64) {
        *error = "relocation of kind " + std::to_string(kind) + " is not supported";
        return false;
      }
      if (kind == relocation_absolute64 && target.st_shndx == SHN_UNDEF) {
        *error = "undefined symbol " +
                 text_at(file_, sections[sections[s.sh_link].sh_link].sh_offset + target.st_name);
        return false;
      }
      const uint64_t value = address_of(kind == relocation_absolute64 ? target.st_value : 0) +
                             static_cast<uint64_t>(r.r_addend);
      std::memcpy(image_ + r.r_offset, &value, sizeof value);
    }
  }
  for (auto& [name, kernel] : kernels_) {
    const auto it = symbols_.find(name + ".kd");
    if (it == symbols_.end()) {
      *error = "kernel without descriptor: " + name;
      return false;
    }
    kernel.descriptor = it->second.value;
  }
  return true;
}

bool code_object::parse_metadata(const uint8_t* data, size_t size) {
  size_t at = 0;
  while (at + 12 <= size) {
    uint32_t words[3];
    std::memcpy(words, data + at, sizeof words);
    const size_t name = at + 12;
    const size_t description = name + ((words[0] + 3) & ~3u);
    at = description + ((words[1] + 3) & ~3u);
    if (description + words[1] > size) return false;
    if (words[2] != note_amdgpu_metadata) continue;
    pack_value root;
    if (!parse_message_pack(data + description, words[1], &root)) return false;
    const pack_value* list = root.find("amdhsa.kernels");
    if (!list) continue;
    for (const pack_value& k : list->items) {
      kernel_info info;
      if (const pack_value* kernel_name = k.find(".name")) info.name = kernel_name->text;
      info.argument_bytes = static_cast<uint32_t>(k.integer_or(".kernarg_segment_size", 0));
      info.max_block = static_cast<uint32_t>(k.integer_or(".max_flat_workgroup_size", 1024));
      info.dynamic_stack = k.integer_or(".uses_dynamic_stack", 0) != 0;
      if (const pack_value* arguments = k.find(".args")) {
        for (const pack_value& a : arguments->items) {
          kernel_argument argument;
          argument.offset = static_cast<uint32_t>(a.integer_or(".offset", 0));
          argument.size = static_cast<uint32_t>(a.integer_or(".size", 0));
          if (const pack_value* kind = a.find(".value_kind")) argument.kind = kind->text;
          info.arguments.push_back(std::move(argument));
        }
      }
      kernels_[info.name] = std::move(info);
    }
  }
  return true;
}

const kernel_info* code_object::find_kernel(const std::string& name) const {
  const auto it = kernels_.find(name);
  return it == kernels_.end() ? nullptr : &it->second;
}

bool code_object::find_variable(const std::string& name, void** address, size_t* size) const {
  const auto it = symbols_.find(name);
  if (it == symbols_.end()) return false;
  *address = image_ + it->second.value;
  *size = it->second.size;
  return true;
}

const function_code* code_object::find_function(uint64_t pc) const {
  auto it = functions_.upper_bound(pc);
  if (it == functions_.begin()) return nullptr;
  --it;
  return pc < it->second->end ? it->second.get() : nullptr;
}

void code_object::index_text() {
  std::string error;
  text_ = disassemble(file_, 0, 0, &error);
  if (text_.empty()) std::fprintf(stderr, "kindex emulator: %s\n", error.c_str());
  for (size_t begin = 0; begin < text_.size();) {
    size_t end = text_.find('\n', begin);
    if (end == std::string::npos) end = text_.size();
    uint64_t pc;
    if (line_address(std::string_view(text_).substr(begin, end - begin), &pc)) {
      text_lines_.emplace_back(pc, begin);
    }
    begin = end + 1;
  }
  text_indexed_ = true;
}

function_code* code_object::decode_function(uint64_t pc) {
  // The symbol around pc, or what lies between two symbols.
  auto code = std::make_unique<function_code>();
  code->begin = text_begin_;
  code->end = text_end_;
  auto it = function_ends_.upper_bound(pc);
  if (it != function_ends_.end()) code->end = it->first;
  if (it != function_ends_.begin()) {
    --it;
    if (pc < it->second) {
      code->begin = it->first;
      code->end = it->second;
    } else {
      code->begin = it->second;
    }
  }

  std::string own_text;
  std::string_view text;
  if (text_end_ - text_begin_ <= whole_text_limit) {
    if (!text_indexed_) index_text();
    const auto by_pc = [](const std::pair<uint64_t, size_t>& a, uint64_t b) { return a.first < b; };
    const auto first = std::lower_bound(text_lines_.begin(), text_lines_.end(), code->begin, by_pc);
    const auto last = std::lower_bound(first, text_lines_.end(), code->end, by_pc);
    const size_t from = first == text_lines_.end() ? text_.size() : first->second;
    const size_t to = last == text_lines_.end() ? text_.size() : last->second;
    text = std::string_view(text_).substr(from, to - from);
  } else {
    std::string error;
    own_text = disassemble(file_, code->begin, code->end, &error);
    if (own_text.empty()) std::fprintf(stderr, "kindex emulator: %s\n", error.c_str());
    text = own_text;
  }

  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) end = text.size();
    instruction i;
    if (decode_line(text.substr(begin, end - begin), &i) && i.pc >= code->begin &&
        i.pc < code->end) {
      code->instructions.push_back(std::move(i));
    }
    begin = end + 1;
  }
  if (code->instructions.empty()) return nullptr;
  instruction sentinel;
  sentinel.run = run_past_end;
  sentinel.text = "(end of function)";
  sentinel.pc = code->end;
  code->instructions.push_back(std::move(sentinel));
  code->by_word.assign((code->end - code->begin) / 4 + 1, -1);
  for (size_t k = 0; k + 1 < code->instructions.size(); ++k) {
    code->by_word[(code->instructions[k].pc - code->begin) / 4] = static_cast<int32_t>(k);
  }
  for (instruction& i : code->instructions) {
    if (i.kind != instruction_class::branch || i.base.compare(0, 2, "s_") != 0) continue;
    const uint64_t target =
        i.pc + 4 + static_cast<uint64_t>(4 * static_cast<int64_t>(i.branch_words));
    if (target < code->begin || target >= code->end || (target - code->begin) % 4) continue;
    const int32_t index = code->by_word[(target - code->begin) / 4];
    if (index >= 0) i.target = &code->instructions[static_cast<size_t>(index)];
  }
  function_code* result = code.get();
  functions_[result->begin] = std::move(code);
  return result;
}

const instruction* code_object::instruction_at(uint64_t pc) {
  const auto within = [&](const function_code* f) -> const instruction* {
    const uint64_t word = (pc - f->begin) / 4;
    if (pc % 4 || word >= f->by_word.size() || f->by_word[word] < 0) return nullptr;
    return &f->instructions[static_cast<size_t>(f->by_word[word])];
  };
  if (pc < text_begin_ || pc >= text_end_) return nullptr;
  {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    if (const function_code* f = find_function(pc)) return within(f);
  }
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const function_code* f = find_function(pc);
  if (!f) f = decode_function(pc);
  return f ? within(f) : nullptr;
}

}  // namespace kindex::emulator
