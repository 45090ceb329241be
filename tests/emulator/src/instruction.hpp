// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// A decoded machine instruction: everything its handler needs, resolved once.

#pragma once

#include <cstdint>
#include <string>

namespace kindex::emulator {

struct instruction;
struct wave;

using handler = void (*)(wave&, const instruction&);

// Scalar register numbers as the hardware encodes them.
constexpr int flat_scratch_register = 102;
constexpr int vcc_register = 106;
constexpr int trap_register = 108;
constexpr int m0_register = 124;
constexpr int exec_register = 126;
constexpr int scalar_registers = 128;

// Rows 0..255 are the vector registers, 256..511 the accumulation registers.
constexpr int accumulator_base = 256;
constexpr int vector_registers = 512;

// Generic (flat) addresses of LDS and of private memory: the upper 16 bits tell them apart.
constexpr uint64_t shared_aperture = 0x0001000000000000ull;
constexpr uint64_t private_aperture = 0x0002000000000000ull;

enum class operand_kind : uint8_t { none, scalar, vector, integer, real, off, scc };

struct operand {
  operand_kind kind = operand_kind::none;
  bool negate = false;
  bool absolute = false;
  bool sign_extend = false;
  // A 32-bit literal after the instruction, as opposed to an inline constant.
  bool literal = false;
  // The lanes cannot be read straight from the register: modifiers, DPP, SDWA or a half select.
  bool indirect = false;
  int16_t reg = 0;
  int16_t width = 1;
  int64_t integer = 0;
  double real = 0;
};

enum class instruction_class : uint8_t {
  salu,
  valu,
  transcendental,
  mfma,
  lds,
  vector_load,
  vector_store,
  vector_atomic,
  smem,
  branch,
  waitcnt,
  nop,
  other,
};
constexpr int instruction_classes = 13;

enum class dpp_control : uint8_t {
  none,
  quad_perm,
  row_shl,
  row_shr,
  row_ror,
  row_mirror,
  row_half_mirror,
  row_bcast15,
  row_bcast31,
  row_newbcast,
  wave_shr,
  wave_shl,
  wave_ror,
  wave_rol,
};

enum class address_space : uint8_t { none, global, flat, buffer, scratch };

enum class atomic_operation : uint8_t {
  none,
  swap,
  compare_swap,
  add,
  sub,
  reverse_sub,
  min_signed,
  min_unsigned,
  max_signed,
  max_unsigned,
  bit_and,
  bit_or,
  bit_xor,
  increment,
  decrement,
  add_f32,
  add_f64,
  min_f64,
  max_f64,
  add_packed_f16,
  add_packed_bf16,
};

enum class matrix_type : uint8_t { f32, xf32, f16, bf16, fp8, bf8, i8, f64 };

enum class unused_policy : uint8_t { pad, sign_extend, preserve };

// Registers an operand covers, as bits of the words in `wave::pending` bitmaps.
struct register_mask {
  uint8_t word = 0;
  uint64_t bits = 0;
};

struct instruction {
  handler run = nullptr;
  instruction_class kind = instruction_class::other;
  uint8_t size = 4;
  uint8_t operand_count = 0;
  uint8_t destination_count = 1;
  // Issue cycles of the SIMD; for MFMA four times the passes.
  uint16_t cycles = 4;
  operand operands[6];
  uint64_t pc = 0;
  const instruction* target = nullptr;
  int32_t branch_words = 0;

  // Output and packed modifiers.
  bool clamp = false;
  uint8_t output_scale = 0;  // 1: times 2, 2: times 4, 3: half
  uint8_t op_sel = 0;
  uint8_t op_sel_hi = 0xff;
  uint8_t neg_lo = 0;
  uint8_t neg_hi = 0;
  bool has_op_sel = false;
  bool has_op_sel_hi = false;

  // Data-parallel primitives.
  dpp_control dpp = dpp_control::none;
  bool bound_control = false;
  uint8_t dpp_amount = 0;
  uint8_t row_mask = 15;
  uint8_t bank_mask = 15;
  uint8_t quad[4] = {0, 1, 2, 3};

  // Sub-dword addressing; selector 0..3 a byte, 4 and 5 a word, 6 the dword.
  bool sdwa = false;
  uint8_t destination_select = 6;
  uint8_t source_select[2] = {6, 6};
  unused_policy unused = unused_policy::pad;

  // Memory.
  address_space space = address_space::none;
  atomic_operation atomic = atomic_operation::none;
  uint8_t access_size = 4;
  uint8_t d16 = 0;  // 1: low half only, 2: high half only
  bool sign_extend = false;
  bool returns = false;
  bool offset_enable = false;
  bool index_enable = false;
  bool to_lds = false;
  bool pair = false;  // ds_read2 and ds_write2
  int32_t offset = 0;
  int32_t offset0 = 0;
  int32_t offset1 = 0;
  int32_t pair_scale = 0;

  // s_waitcnt: -1 is "not waited for".
  int16_t wait_vector = -1;
  int16_t wait_scalar = -1;

  // s_getreg and s_setreg.
  uint8_t hardware_register = 0;
  uint8_t field_offset = 0;
  uint8_t field_width = 32;

  // MFMA.
  uint8_t rows = 0;
  uint8_t columns = 0;
  uint8_t depth = 0;
  uint8_t blocks = 1;
  matrix_type a_type = matrix_type::f32;
  matrix_type b_type = matrix_type::f32;
  uint8_t cbsz = 0;
  uint8_t abid = 0;
  uint8_t blgp = 0;

  // Registers read and written, for the s_waitcnt check.
  uint8_t source_mask_count = 0;
  uint8_t destination_mask_count = 0;
  register_mask source_masks[8];
  register_mask destination_masks[4];
  // Which counters a memory instruction raises until it is waited for.
  bool counts_vector = false;
  bool counts_scalar = false;
  bool writes_lds = false;

  std::string base;  // mnemonic without encoding suffix
  std::string text;
};

}  // namespace kindex::emulator
