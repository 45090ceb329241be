// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// From a line of llvm-objdump to an instruction.

#pragma once

#include <string_view>

#include "instruction.hpp"

namespace kindex::emulator {

// Parses "<tab>mnemonic operands  // ADDRESS: WORDS". False when the line is not an instruction.
bool decode_line(std::string_view line, instruction* out);

// The address of an instruction line, without parsing the rest.
bool line_address(std::string_view line, uint64_t* address);

}  // namespace kindex::emulator
