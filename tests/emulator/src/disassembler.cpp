// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "disassembler.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace kindex::emulator {
namespace {

std::string run(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return output;
  char buffer[1 << 16];
  size_t n;
  while ((n = fread(buffer, 1, sizeof buffer, pipe)) > 0) output.append(buffer, n);
  pclose(pipe);
  return output;
}

// The first disassembler that exists. The environment wins.
const std::string& tool() {
  static const std::string found = [] {
    if (const char* chosen = std::getenv("KINDEX_EMULATOR_OBJDUMP")) return std::string(chosen);
    return run(
        "for t in llvm-objdump-19 llvm-objdump-20 llvm-objdump-21 llvm-objdump-18 llvm-objdump "
        "/opt/rocm/llvm/bin/llvm-objdump; do command -v $t && break; done 2>/dev/null | head -1 "
        "| tr -d '\\n'");
  }();
  return found;
}

}  // namespace

std::string disassemble(const std::vector<uint8_t>& file, uint64_t begin, uint64_t end,
                        std::string* error) {
  if (tool().empty()) {
    *error = "no llvm-objdump found; install llvm-19 or set KINDEX_EMULATOR_OBJDUMP";
    return {};
  }
  const int fd = memfd_create("code-object", 0);
  if (fd < 0 || write(fd, file.data(), file.size()) != static_cast<ssize_t>(file.size())) {
    if (fd >= 0) close(fd);
    *error = "cannot hand the code object to the disassembler";
    return {};
  }
  char range[96] = "";
  if (end) {
    std::snprintf(range, sizeof range, " --start-address=0x%llx --stop-address=0x%llx",
                  static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end));
  }
  char path[64];
  std::snprintf(path, sizeof path, " /proc/%ld/fd/%d 2>/dev/null", static_cast<long>(getpid()), fd);
  std::string output = run(tool() + " -d --mcpu=gfx942" + range + path);
  close(fd);
  if (output.empty()) *error = tool() + " did not disassemble the code object";
  return output;
}

}  // namespace kindex::emulator
