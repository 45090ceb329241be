// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Tables from mnemonic to handler, one per family of instructions.

#pragma once

#include <span>
#include <string_view>

#include "instruction.hpp"

namespace kindex::emulator {

// Modifiers that a handler honours. A modifier that it does not is an unsupported instruction,
// never a wrong result.
enum handler_feature : uint16_t {
  feature_none = 0,
  feature_dpp = 1,
  feature_sdwa = 2,
  feature_clamp = 4,
  feature_output_scale = 8,
  feature_op_sel = 16,        // one bit per source, upper half selected
  feature_sign = 32,          // neg and abs of sources
  feature_packed = 64,        // op_sel, op_sel_hi, neg_lo, neg_hi
  feature_sdwa_source = 128,  // SDWA on sources only, the result is not a vector register
};

struct handler_entry {
  const char* name;
  handler run;
  uint16_t features;
};

using handler_list = std::span<const handler_entry>;

handler_list scalar_handlers();
handler_list integer_handlers();
handler_list float_handlers();
handler_list half_handlers();
handler_list double_handlers();
handler_list compare_handlers();
handler_list convert_handlers();
handler_list packed_handlers();
handler_list lane_handlers();

// Null when the mnemonic is unknown.
const handler_entry* find_handler(std::string_view base);

// Handlers chosen from the fields of the instruction instead of a table.
void run_scalar_load(wave& w, const instruction& i);
void run_vector_load(wave& w, const instruction& i);
void run_vector_store(wave& w, const instruction& i);
void run_vector_atomic(wave& w, const instruction& i);
void run_lds_read(wave& w, const instruction& i);
void run_lds_write(wave& w, const instruction& i);
void run_lds_atomic(wave& w, const instruction& i);
handler matrix_handler(const instruction& i);

}  // namespace kindex::emulator
