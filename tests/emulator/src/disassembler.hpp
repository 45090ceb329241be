// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Runs llvm-objdump on a code object.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kindex::emulator {

// The disassembly of [begin, end), or of the whole file when end is 0. Empty when no disassembler
// could be run; then `error` says which ones were tried.
std::string disassemble(const std::vector<uint8_t>& file, uint64_t begin, uint64_t end,
                        std::string* error);

}  // namespace kindex::emulator
