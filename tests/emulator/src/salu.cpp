// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Scalar arithmetic, scalar compares, branches and the instructions that control a wave.

#include <algorithm>

#include "code_object.hpp"
#include "float_mode.hpp"
#include "handlers.hpp"
#include "operands.hpp"

namespace kindex::emulator {
namespace {

// f(wave, a, b, scc) returns the result and may set scc.
template <auto f>
void scalar_op(wave& w, const instruction& i) {
  const uint32_t a = i.operand_count > 1 ? read_scalar(w, i.operands[1]) : 0;
  const uint32_t b = i.operand_count > 2 ? read_scalar(w, i.operands[2]) : 0;
  bool scc = w.scc;
  const uint32_t result = f(a, b, scc);
  w.scc = scc;
  write_scalar(w, i.operands[0], result);
}

template <auto f>
void scalar_op_wide(wave& w, const instruction& i) {
  const uint64_t a = i.operand_count > 1 ? read_scalar_wide(w, i.operands[1]) : 0;
  const uint64_t b = i.operand_count > 2 ? read_scalar_wide(w, i.operands[2]) : 0;
  bool scc = w.scc;
  const uint64_t result = f(a, b, scc);
  w.scc = scc;
  write_scalar_wide(w, i.operands[0], result);
}

// A logical operation: scc says that the result is not zero.
template <auto f>
void scalar_logic(wave& w, const instruction& i) {
  const uint32_t result =
      f(read_scalar(w, i.operands[1]), i.operand_count > 2 ? read_scalar(w, i.operands[2]) : 0u);
  w.scc = result != 0;
  write_scalar(w, i.operands[0], result);
}

// The second operand of the shifts is 32 bits wide, that of the others 64.
template <auto f, bool narrow_second = false, wide_type type = wide_type::unsigned_bits>
void scalar_logic_wide(wave& w, const instruction& i) {
  const uint64_t a = read_scalar_wide(w, i.operands[1], type);
  uint64_t b = 0;
  if (i.operand_count > 2) {
    b = narrow_second ? read_scalar(w, i.operands[2]) : read_scalar_wide(w, i.operands[2]);
  }
  const uint64_t result = f(a, b);
  w.scc = result != 0;
  write_scalar_wide(w, i.operands[0], result);
}

// Wide source, narrow result.
template <auto f, bool sets_scc>
void scalar_count_wide(wave& w, const instruction& i) {
  const uint32_t result = f(read_scalar_wide(w, i.operands[1]));
  if (sets_scc) w.scc = result != 0;
  write_scalar(w, i.operands[0], result);
}

template <auto f>
void scalar_compare(wave& w, const instruction& i) {
  w.scc = f(read_scalar(w, i.operands[0]), read_scalar(w, i.operands[1]));
}

// The 16-bit constant is sign-extended for signed and zero-extended for unsigned compares.
template <auto f, bool is_signed>
void scalar_compare_constant(wave& w, const instruction& i) {
  const uint32_t k = static_cast<uint32_t>(i.operands[1].integer);
  w.scc = f(read_scalar(w, i.operands[0]),
            is_signed ? static_cast<uint32_t>(static_cast<int16_t>(k)) : k & 0xffff);
}

template <auto f>
void save_exec(wave& w, const instruction& i) {
  const uint64_t exec = w.exec();
  const uint64_t source = read_scalar_wide(w, i.operands[1]);
  write_scalar_wide(w, i.operands[0], exec);
  const uint64_t result = f(source, exec);
  w.set_scalar_pair(exec_register, result);
  w.scc = result != 0;
}

template <auto f>
void write_exec(wave& w, const instruction& i) {
  const uint64_t result = f(read_scalar_wide(w, i.operands[1]), w.exec());
  w.set_scalar_pair(exec_register, result);
  write_scalar_wide(w, i.operands[0], result);
  w.scc = result != 0;
}

template <auto condition>
void branch_if(wave& w, const instruction& i) {
  if (!condition(w)) return;
  if (!i.target) {
    report(w, i, finding_kind::control_flow, -1, "branch to an address without an instruction");
    w.done = true;
    w.owner->abort = true;
    return;
  }
  w.next = i.target;
}

void jump(wave& w, const instruction& i, uint64_t address) {
  const instruction* target = w.owner->launch->object->instruction_at_address(address);
  if (!target) {
    report(w, i, finding_kind::control_flow, -1, "jump to an address without an instruction");
    w.done = true;
    w.owner->abort = true;
    return;
  }
  w.next = target;
}

uint64_t address_after(const wave& w, const instruction& i) {
  return w.owner->launch->object->address_of(i.pc + i.size);
}

void run_getpc(wave& w, const instruction& i) {
  write_scalar_wide(w, i.operands[0], address_after(w, i));
}
void run_setpc(wave& w, const instruction& i) { jump(w, i, read_scalar_wide(w, i.operands[0])); }
void run_swappc(wave& w, const instruction& i) {
  const uint64_t target = read_scalar_wide(w, i.operands[1]);
  write_scalar_wide(w, i.operands[0], address_after(w, i));
  jump(w, i, target);
}
void run_call(wave& w, const instruction& i) {
  const uint64_t next = address_after(w, i);
  write_scalar_wide(w, i.operands[0], next);
  jump(w, i, next + 4 * static_cast<int64_t>(i.branch_words));
}

void run_nothing(wave&, const instruction&) {}
void run_endpgm(wave& w, const instruction&) { w.done = true; }
void run_barrier(wave& w, const instruction&) {
  w.at_barrier = true;
  ++w.owner->counters.barriers;
}
void run_trap(wave& w, const instruction& i) {
  report(w, i, finding_kind::trap, -1, "s_trap: the kernel gave up (assert or unreachable code)");
  w.done = true;
}

// Time is the count of instructions: deterministic, and increasing as code expects.
void run_memtime(wave& w, const instruction& i) {
  write_scalar_wide(w, i.operands[0], w.executed * 4);
}
void run_memrealtime(wave& w, const instruction& i) {
  write_scalar_wide(w, i.operands[0], w.executed);
}

enum : uint8_t { hardware_mode = 1, hardware_id = 4, hardware_xcc_id = 20 };

void run_getreg(wave& w, const instruction& i) {
  uint32_t value = 0;
  if (i.hardware_register == hardware_mode) {
    value = w.mode;
  } else if (i.hardware_register == hardware_id) {
    value = static_cast<uint32_t>(w.id & 3) << 4;
  } else if (i.hardware_register != hardware_xcc_id) {
    report_unsupported(w, i, "this hardware register");
  }
  write_scalar(w, i.operands[0],
               (value >> i.field_offset) & static_cast<uint32_t>(low_mask(i.field_width)));
}
void run_setreg(wave& w, const instruction& i) {
  if (i.hardware_register != hardware_mode) {
    report_unsupported(w, i, "this hardware register");
    return;
  }
  const uint32_t field = static_cast<uint32_t>(low_mask(i.field_width)) << i.field_offset;
  const uint32_t value = read_scalar(w, i.operands[0]) << i.field_offset;
  w.mode = (w.mode & ~field) | (value & field);
  apply_float_mode(w.mode);
  if (w.mode & 15) report_unsupported(w, i, "a rounding mode other than to nearest even");
}

// Relative register indexing: M0[7:0] the offset, M0[15:12] which operands it applies to.
void run_index_on(wave& w, const instruction& i) {
  const uint32_t offset = read_scalar(w, i.operands[0]) & 0xff;
  w.s[m0_register] = offset | (static_cast<uint32_t>(i.offset & 15) << 12);
  w.index_mode = true;
}
void run_index_off(wave& w, const instruction&) { w.index_mode = false; }
void run_index_mode(wave& w, const instruction& i) {
  w.s[m0_register] =
      (w.s[m0_register] & 0xffff0fffu) | (static_cast<uint32_t>(i.offset & 15) << 12);
}
void run_index_index(wave& w, const instruction& i) {
  w.s[m0_register] = (w.s[m0_register] & ~0xffu) | (read_scalar(w, i.operands[0]) & 0xff);
}

void run_addk(wave& w, const instruction& i) {
  const uint32_t a = read_scalar(w, i.operands[0]);
  const uint32_t b = static_cast<uint32_t>(static_cast<int16_t>(i.operands[1].integer));
  const uint32_t result = a + b;
  w.scc = (~(a ^ b) & (a ^ result)) >> 31;
  write_scalar(w, i.operands[0], result);
}
void run_mulk(wave& w, const instruction& i) {
  const uint32_t b = static_cast<uint32_t>(static_cast<int16_t>(i.operands[1].integer));
  write_scalar(w, i.operands[0], read_scalar(w, i.operands[0]) * b);
}
void run_cmovk(wave& w, const instruction& i) {
  if (w.scc) {
    write_scalar(w, i.operands[0],
                 static_cast<uint32_t>(static_cast<int16_t>(i.operands[1].integer)));
  }
}
void run_cmov(wave& w, const instruction& i) {
  if (w.scc) write_scalar(w, i.operands[0], read_scalar(w, i.operands[1]));
}
void run_cmov_wide(wave& w, const instruction& i) {
  if (w.scc) write_scalar_wide(w, i.operands[0], read_scalar_wide(w, i.operands[1]));
}
template <bool set>
void run_bitset(wave& w, const instruction& i) {
  const uint32_t bit = 1u << (read_scalar(w, i.operands[1]) & 31);
  const uint32_t old = read_scalar(w, i.operands[0]);
  write_scalar(w, i.operands[0], set ? old | bit : old & ~bit);
}
template <bool set>
void run_bitset_wide(wave& w, const instruction& i) {
  const uint64_t bit = uint64_t{1} << (read_scalar(w, i.operands[1]) & 63);
  const uint64_t old = read_scalar_wide(w, i.operands[0]);
  write_scalar_wide(w, i.operands[0], set ? old | bit : old & ~bit);
}
template <bool expected>
void run_bitcmp(wave& w, const instruction& i) {
  w.scc = ((read_scalar(w, i.operands[0]) >> (read_scalar(w, i.operands[1]) & 31)) & 1) == expected;
}
template <bool expected>
void run_bitcmp_wide(wave& w, const instruction& i) {
  w.scc = ((read_scalar_wide(w, i.operands[0]) >> (read_scalar(w, i.operands[1]) & 63)) & 1) ==
          expected;
}
void run_bfm_wide(wave& w, const instruction& i) {
  const uint64_t ones = low_mask(read_scalar(w, i.operands[1]) & 63);
  write_scalar_wide(w, i.operands[0], ones << (read_scalar(w, i.operands[2]) & 63));
}
void run_compare_wide_eq(wave& w, const instruction& i) {
  w.scc = read_scalar_wide(w, i.operands[0]) == read_scalar_wide(w, i.operands[1]);
}
void run_compare_wide_ne(wave& w, const instruction& i) {
  run_compare_wide_eq(w, i);
  w.scc = !w.scc;
}
void run_bitreplicate(wave& w, const instruction& i) {
  const uint32_t a = read_scalar(w, i.operands[1]);
  uint64_t result = 0;
  for (int k = 0; k < 32; ++k) {
    if ((a >> k) & 1) result |= uint64_t{3} << (2 * k);
  }
  write_scalar_wide(w, i.operands[0], result);
}

uint32_t reverse_bits(uint32_t a) {
  uint32_t result = 0;
  for (int k = 0; k < 32; ++k) result |= ((a >> k) & 1) << (31 - k);
  return result;
}

// Leading bits equal to the sign bit; -1 when all are.
uint32_t leading_sign(uint64_t a, int width) {
  const bool negative = (a >> (width - 1)) & 1;
  for (int k = 1; k < width; ++k) {
    if (((a >> (width - 1 - k)) & 1) != negative) return static_cast<uint32_t>(k);
  }
  return ~0u;
}

uint32_t extract_signed(uint32_t a, uint32_t b) {
  const int offset = b & 31;
  const int width = std::min<int>((b >> 16) & 127, 32);
  if (width == 0) return 0;
  const int64_t shifted = static_cast<int64_t>(as_int(a)) >> offset;
  return static_cast<uint32_t>(
      static_cast<int64_t>(static_cast<uint64_t>(shifted) << (64 - width)) >> (64 - width));
}
uint64_t extract_signed_wide(uint64_t a, uint64_t b) {
  const int offset = b & 63;
  const int width = (b >> 16) & 127;
  const int64_t shifted = static_cast<int64_t>(a) >> offset;
  if (width == 0) return 0;
  if (width >= 64) return static_cast<uint64_t>(shifted);
  return static_cast<uint64_t>(
      static_cast<int64_t>(static_cast<uint64_t>(shifted) << (64 - width)) >> (64 - width));
}

template <int shift>
constexpr auto shift_add = [](uint32_t a, uint32_t b, bool& scc) {
  const uint64_t sum = (static_cast<uint64_t>(a) << shift) + b;
  scc = (sum >> 32) != 0;
  return static_cast<uint32_t>(sum);
};

uint64_t whole_quads(uint64_t a) {
  uint64_t result = 0;
  for (int k = 0; k < 64; k += 4) {
    if ((a >> k) & 15) result |= uint64_t{15} << k;
  }
  return result;
}
uint64_t quad_mask(uint64_t a) {
  uint64_t result = 0;
  for (int k = 0; k < 16; ++k) {
    if ((a >> (4 * k)) & 15) result |= uint64_t{1} << k;
  }
  return result;
}

using u32 = uint32_t;
using u64 = uint64_t;

constexpr handler_entry table[] = {
    {"s_mov_b32", scalar_op<[](u32 a, u32, bool&) { return a; }>, 0},
    {"s_movk_i32",
     scalar_op<[](u32 a, u32, bool&) { return static_cast<u32>(static_cast<int16_t>(a)); }>, 0},
    {"s_cmov_b32", run_cmov, 0},
    {"s_cmovk_i32", run_cmovk, 0},
    {"s_cmov_b64", run_cmov_wide, 0},
    {"s_not_b32", scalar_logic<[](u32 a, u32) { return ~a; }>, 0},
    {"s_brev_b32", scalar_op<[](u32 a, u32, bool&) { return reverse_bits(a); }>, 0},
    {"s_bcnt1_i32_b32",
     scalar_logic<[](u32 a, u32) { return static_cast<u32>(__builtin_popcount(a)); }>, 0},
    {"s_bcnt0_i32_b32",
     scalar_logic<[](u32 a, u32) { return static_cast<u32>(__builtin_popcount(~a)); }>, 0},
    {"s_ff1_i32_b32",
     scalar_op<[](u32 a, u32, bool&) { return a ? static_cast<u32>(__builtin_ctz(a)) : ~0u; }>, 0},
    {"s_ff0_i32_b32",
     scalar_op<[](u32 a, u32, bool&) { return ~a ? static_cast<u32>(__builtin_ctz(~a)) : ~0u; }>,
     0},
    {"s_flbit_i32_b32",
     scalar_op<[](u32 a, u32, bool&) { return a ? static_cast<u32>(__builtin_clz(a)) : ~0u; }>, 0},
    {"s_flbit_i32", scalar_op<[](u32 a, u32, bool&) { return leading_sign(a, 32); }>, 0},
    {"s_sext_i32_i8",
     scalar_op<[](u32 a, u32, bool&) { return static_cast<u32>(static_cast<int8_t>(a)); }>, 0},
    {"s_sext_i32_i16",
     scalar_op<[](u32 a, u32, bool&) { return static_cast<u32>(static_cast<int16_t>(a)); }>, 0},
    {"s_abs_i32", scalar_logic<[](u32 a, u32) { return as_int(a) < 0 ? 0u - a : a; }>, 0},
    {"s_bitset0_b32", run_bitset<false>, 0},
    {"s_bitset1_b32", run_bitset<true>, 0},
    {"s_bitset0_b64", run_bitset_wide<false>, 0},
    {"s_bitset1_b64", run_bitset_wide<true>, 0},
    {"s_bitreplicate_b64_b32", run_bitreplicate, 0},

    {"s_add_u32", scalar_op<[](u32 a, u32 b, bool& scc) {
       const u64 sum = static_cast<u64>(a) + b;
       scc = ((sum >> 32) != 0);
       return static_cast<u32>(sum);
     }>,
     0},
    {"s_addc_u32", scalar_op<[](u32 a, u32 b, bool& scc) {
       const u64 sum = static_cast<u64>(a) + b + scc;
       scc = ((sum >> 32) != 0);
       return static_cast<u32>(sum);
     }>,
     0},
    {"s_sub_u32", scalar_op<[](u32 a, u32 b, bool& scc) {
       scc = a < b;
       return a - b;
     }>,
     0},
    {"s_subb_u32", scalar_op<[](u32 a, u32 b, bool& scc) {
       const u64 subtrahend = static_cast<u64>(b) + scc;
       scc = a < subtrahend;
       return static_cast<u32>(a - subtrahend);
     }>,
     0},
    {"s_add_i32", scalar_op<[](u32 a, u32 b, bool& scc) {
       const u32 r = a + b;
       scc = ((~(a ^ b) & (a ^ r)) >> 31);
       return r;
     }>,
     0},
    {"s_sub_i32", scalar_op<[](u32 a, u32 b, bool& scc) {
       const u32 r = a - b;
       scc = (((a ^ b) & (a ^ r)) >> 31);
       return r;
     }>,
     0},
    {"s_addk_i32", run_addk, 0},
    {"s_mulk_i32", run_mulk, 0},
    {"s_min_i32", scalar_op<[](u32 a, u32 b, bool& scc) {
       scc = as_int(a) < as_int(b);
       return scc ? a : b;
     }>,
     0},
    {"s_min_u32", scalar_op<[](u32 a, u32 b, bool& scc) {
       scc = a < b;
       return scc ? a : b;
     }>,
     0},
    {"s_max_i32", scalar_op<[](u32 a, u32 b, bool& scc) {
       scc = (as_int(a) > as_int(b));
       return scc ? a : b;
     }>,
     0},
    {"s_max_u32", scalar_op<[](u32 a, u32 b, bool& scc) {
       scc = (a > b);
       return scc ? a : b;
     }>,
     0},
    {"s_cselect_b32", scalar_op<[](u32 a, u32 b, bool& scc) { return scc ? a : b; }>, 0},
    {"s_and_b32", scalar_logic<[](u32 a, u32 b) { return a & b; }>, 0},
    {"s_or_b32", scalar_logic<[](u32 a, u32 b) { return a | b; }>, 0},
    {"s_xor_b32", scalar_logic<[](u32 a, u32 b) { return a ^ b; }>, 0},
    {"s_andn2_b32", scalar_logic<[](u32 a, u32 b) { return a & ~b; }>, 0},
    {"s_orn2_b32", scalar_logic<[](u32 a, u32 b) { return a | ~b; }>, 0},
    {"s_nand_b32", scalar_logic<[](u32 a, u32 b) { return ~(a & b); }>, 0},
    {"s_nor_b32", scalar_logic<[](u32 a, u32 b) { return ~(a | b); }>, 0},
    {"s_xnor_b32", scalar_logic<[](u32 a, u32 b) { return ~(a ^ b); }>, 0},
    {"s_lshl_b32", scalar_logic<[](u32 a, u32 b) { return a << (b & 31); }>, 0},
    {"s_lshr_b32", scalar_logic<[](u32 a, u32 b) { return (a >> (b & 31)); }>, 0},
    {"s_ashr_i32",
     scalar_logic<[](u32 a, u32 b) { return (static_cast<u32>(as_int(a) >> (b & 31))); }>, 0},
    {"s_bfm_b32", scalar_op<[](u32 a, u32 b, bool&) { return ((1u << (a & 31)) - 1) << (b & 31); }>,
     0},
    {"s_mul_i32", scalar_op<[](u32 a, u32 b, bool&) { return a * b; }>, 0},
    {"s_mul_hi_u32", scalar_op<[](u32 a, u32 b, bool&) {
       return (static_cast<u32>((static_cast<u64>(a) * b) >> 32));
     }>,
     0},
    {"s_mul_hi_i32", scalar_op<[](u32 a, u32 b, bool&) {
       return (static_cast<u32>((static_cast<int64_t>(as_int(a)) * as_int(b)) >> 32));
     }>,
     0},
    {"s_bfe_u32", scalar_logic<[](u32 a, u32 b) {
       const u32 width = (b >> 16) & 127;
       return (static_cast<u32>((a >> (b & 31)) & low_mask(width)));
     }>,
     0},
    {"s_bfe_i32", scalar_logic<[](u32 a, u32 b) { return extract_signed(a, b); }>, 0},
    {"s_lshl1_add_u32", scalar_op<shift_add<1>>, 0},
    {"s_lshl2_add_u32", scalar_op<shift_add<2>>, 0},
    {"s_lshl3_add_u32", scalar_op<shift_add<3>>, 0},
    {"s_lshl4_add_u32", scalar_op<shift_add<4>>, 0},
    {"s_pack_ll_b32_b16", scalar_op<[](u32 a, u32 b, bool&) { return (a & 0xffff) | (b << 16); }>,
     0},
    {"s_pack_lh_b32_b16",
     scalar_op<[](u32 a, u32 b, bool&) { return (a & 0xffff) | (b & 0xffff0000u); }>, 0},
    {"s_pack_hh_b32_b16",
     scalar_op<[](u32 a, u32 b, bool&) { return ((a >> 16) | (b & 0xffff0000u)); }>, 0},
    {"s_absdiff_i32", scalar_logic<[](u32 a, u32 b) {
       const u32 difference = a - b;
       return as_int(difference) < 0 ? 0u - difference : difference;
     }>,
     0},

    {"s_mov_b64", scalar_op_wide<[](u64 a, u64, bool&) { return a; }>, 0},
    {"s_not_b64", scalar_logic_wide<[](u64 a, u64) { return ~a; }>, 0},
    {"s_wqm_b64", scalar_logic_wide<[](u64 a, u64) { return whole_quads(a); }>, 0},
    {"s_quadmask_b64", scalar_logic_wide<[](u64 a, u64) { return quad_mask(a); }>, 0},
    {"s_brev_b64", scalar_op_wide<[](u64 a, u64, bool&) {
       return ((static_cast<u64>(reverse_bits(static_cast<u32>(a))) << 32) |
               reverse_bits(static_cast<u32>(a >> 32)));
     }>,
     0},
    {"s_and_b64", scalar_logic_wide<[](u64 a, u64 b) { return a & b; }>, 0},
    {"s_or_b64", scalar_logic_wide<[](u64 a, u64 b) { return a | b; }>, 0},
    {"s_xor_b64", scalar_logic_wide<[](u64 a, u64 b) { return a ^ b; }>, 0},
    {"s_andn2_b64", scalar_logic_wide<[](u64 a, u64 b) { return a & ~b; }>, 0},
    {"s_orn2_b64", scalar_logic_wide<[](u64 a, u64 b) { return a | ~b; }>, 0},
    {"s_nand_b64", scalar_logic_wide<[](u64 a, u64 b) { return ~(a & b); }>, 0},
    {"s_nor_b64", scalar_logic_wide<[](u64 a, u64 b) { return ~(a | b); }>, 0},
    {"s_xnor_b64", scalar_logic_wide<[](u64 a, u64 b) { return ~(a ^ b); }>, 0},
    {"s_cselect_b64", scalar_op_wide<[](u64 a, u64 b, bool& scc) { return scc ? a : b; }>, 0},
    {"s_lshl_b64", scalar_logic_wide<[](u64 a, u64 b) { return a << (b & 63); }, true>, 0},
    {"s_lshr_b64", scalar_logic_wide<[](u64 a, u64 b) { return (a >> (b & 63)); }, true>, 0},
    {"s_ashr_i64",
     scalar_logic_wide<
         [](u64 a, u64 b) { return (static_cast<u64>(static_cast<int64_t>(a) >> (b & 63))); }, true,
         wide_type::signed_bits>,
     0},
    {"s_bfm_b64", run_bfm_wide, 0},
    {"s_bfe_u64",
     scalar_logic_wide<[](u64 a, u64 b) { return ((a >> (b & 63)) & low_mask((b >> 16) & 127)); },
                       true>,
     0},
    {"s_bfe_i64",
     scalar_logic_wide<[](u64 a, u64 b) { return extract_signed_wide(a, b); }, true,
                       wide_type::signed_bits>,
     0},
    {"s_bcnt1_i32_b64",
     scalar_count_wide<[](u64 a) { return static_cast<u32>(__builtin_popcountll(a)); }, true>, 0},
    {"s_bcnt0_i32_b64",
     scalar_count_wide<[](u64 a) { return static_cast<u32>(__builtin_popcountll(~a)); }, true>, 0},
    {"s_ff1_i32_b64",
     scalar_count_wide<[](u64 a) { return a ? static_cast<u32>(__builtin_ctzll(a)) : ~0u; }, false>,
     0},
    {"s_ff0_i32_b64",
     scalar_count_wide<[](u64 a) { return ~a ? static_cast<u32>(__builtin_ctzll(~a)) : ~0u; },
                       false>,
     0},
    {"s_flbit_i32_b64",
     scalar_count_wide<[](u64 a) { return a ? static_cast<u32>(__builtin_clzll(a)) : ~0u; }, false>,
     0},
    {"s_flbit_i32_i64", scalar_count_wide<[](u64 a) { return leading_sign(a, 64); }, false>, 0},

    {"s_and_saveexec_b64", save_exec<[](u64 s, u64 x) { return s & x; }>, 0},
    {"s_or_saveexec_b64", save_exec<[](u64 s, u64 x) { return s | x; }>, 0},
    {"s_xor_saveexec_b64", save_exec<[](u64 s, u64 x) { return s ^ x; }>, 0},
    {"s_andn2_saveexec_b64", save_exec<[](u64 s, u64 x) { return s & ~x; }>, 0},
    {"s_orn2_saveexec_b64", save_exec<[](u64 s, u64 x) { return s | ~x; }>, 0},
    {"s_andn1_saveexec_b64", save_exec<[](u64 s, u64 x) { return ~s & x; }>, 0},
    {"s_orn1_saveexec_b64", save_exec<[](u64 s, u64 x) { return ~s | x; }>, 0},
    {"s_nand_saveexec_b64", save_exec<[](u64 s, u64 x) { return ~(s & x); }>, 0},
    {"s_nor_saveexec_b64", save_exec<[](u64 s, u64 x) { return ~(s | x); }>, 0},
    {"s_xnor_saveexec_b64", save_exec<[](u64 s, u64 x) { return ~(s ^ x); }>, 0},
    {"s_andn1_wrexec_b64", write_exec<[](u64 s, u64 x) { return ~s & x; }>, 0},
    {"s_andn2_wrexec_b64", write_exec<[](u64 s, u64 x) { return s & ~x; }>, 0},

    {"s_cmp_eq_i32", scalar_compare<[](u32 a, u32 b) { return a == b; }>, 0},
    {"s_cmp_lg_i32", scalar_compare<[](u32 a, u32 b) { return a != b; }>, 0},
    {"s_cmp_gt_i32", scalar_compare<[](u32 a, u32 b) { return (as_int(a) > as_int(b)); }>, 0},
    {"s_cmp_ge_i32", scalar_compare<[](u32 a, u32 b) { return as_int(a) >= as_int(b); }>, 0},
    {"s_cmp_lt_i32", scalar_compare<[](u32 a, u32 b) { return as_int(a) < as_int(b); }>, 0},
    {"s_cmp_le_i32", scalar_compare<[](u32 a, u32 b) { return as_int(a) <= as_int(b); }>, 0},
    {"s_cmp_eq_u32", scalar_compare<[](u32 a, u32 b) { return a == b; }>, 0},
    {"s_cmp_lg_u32", scalar_compare<[](u32 a, u32 b) { return a != b; }>, 0},
    {"s_cmp_gt_u32", scalar_compare<[](u32 a, u32 b) { return (a > b); }>, 0},
    {"s_cmp_ge_u32", scalar_compare<[](u32 a, u32 b) { return a >= b; }>, 0},
    {"s_cmp_lt_u32", scalar_compare<[](u32 a, u32 b) { return a < b; }>, 0},
    {"s_cmp_le_u32", scalar_compare<[](u32 a, u32 b) { return a <= b; }>, 0},
    {"s_cmpk_eq_i32", scalar_compare_constant<[](u32 a, u32 b) { return a == b; }, true>, 0},
    {"s_cmpk_lg_i32", scalar_compare_constant<[](u32 a, u32 b) { return a != b; }, true>, 0},
    {"s_cmpk_gt_i32",
     scalar_compare_constant<[](u32 a, u32 b) { return (as_int(a) > as_int(b)); }, true>, 0},
    {"s_cmpk_ge_i32",
     scalar_compare_constant<[](u32 a, u32 b) { return as_int(a) >= as_int(b); }, true>, 0},
    {"s_cmpk_lt_i32",
     scalar_compare_constant<[](u32 a, u32 b) { return as_int(a) < as_int(b); }, true>, 0},
    {"s_cmpk_le_i32",
     scalar_compare_constant<[](u32 a, u32 b) { return as_int(a) <= as_int(b); }, true>, 0},
    {"s_cmpk_eq_u32", scalar_compare_constant<[](u32 a, u32 b) { return a == b; }, false>, 0},
    {"s_cmpk_lg_u32", scalar_compare_constant<[](u32 a, u32 b) { return a != b; }, false>, 0},
    {"s_cmpk_gt_u32", scalar_compare_constant<[](u32 a, u32 b) { return (a > b); }, false>, 0},
    {"s_cmpk_ge_u32", scalar_compare_constant<[](u32 a, u32 b) { return a >= b; }, false>, 0},
    {"s_cmpk_lt_u32", scalar_compare_constant<[](u32 a, u32 b) { return a < b; }, false>, 0},
    {"s_cmpk_le_u32", scalar_compare_constant<[](u32 a, u32 b) { return a <= b; }, false>, 0},
    {"s_cmp_eq_u64", run_compare_wide_eq, 0},
    {"s_cmp_lg_u64", run_compare_wide_ne, 0},
    {"s_bitcmp0_b32", run_bitcmp<false>, 0},
    {"s_bitcmp1_b32", run_bitcmp<true>, 0},
    {"s_bitcmp0_b64", run_bitcmp_wide<false>, 0},
    {"s_bitcmp1_b64", run_bitcmp_wide<true>, 0},

    {"s_branch", branch_if<[](const wave&) { return true; }>, 0},
    {"s_cbranch_scc0", branch_if<[](const wave& w) { return !w.scc; }>, 0},
    {"s_cbranch_scc1", branch_if<[](const wave& w) { return w.scc; }>, 0},
    {"s_cbranch_vccz", branch_if<[](const wave& w) { return !w.scalar_pair(vcc_register); }>, 0},
    {"s_cbranch_vccnz", branch_if<[](const wave& w) { return w.scalar_pair(vcc_register) != 0; }>,
     0},
    {"s_cbranch_execz", branch_if<[](const wave& w) { return !w.exec(); }>, 0},
    {"s_cbranch_execnz", branch_if<[](const wave& w) { return w.exec() != 0; }>, 0},
    {"s_getpc_b64", run_getpc, 0},
    {"s_setpc_b64", run_setpc, 0},
    {"s_swappc_b64", run_swappc, 0},
    {"s_call_b64", run_call, 0},
    {"s_endpgm", run_endpgm, 0},
    {"s_barrier", run_barrier, 0},
    {"s_trap", run_trap, 0},
    {"s_memtime", run_memtime, 0},
    {"s_memrealtime", run_memrealtime, 0},
    {"s_getreg_b32", run_getreg, 0},
    {"s_setreg_b32", run_setreg, 0},
    {"s_setreg_imm32_b32", run_setreg, 0},
    {"s_set_gpr_idx_on", run_index_on, 0},
    {"s_set_gpr_idx_off", run_index_off, 0},
    {"s_set_gpr_idx_mode", run_index_mode, 0},
    {"s_set_gpr_idx_idx", run_index_index, 0},

    // Without effect on results.
    {"s_waitcnt", run_nothing, 0},
    {"s_nop", run_nothing, 0},
    {"s_sleep", run_nothing, 0},
    {"s_setprio", run_nothing, 0},
    {"s_sethalt", run_nothing, 0},
    {"s_icache_inv", run_nothing, 0},
    {"s_dcache_inv", run_nothing, 0},
    {"s_dcache_inv_vol", run_nothing, 0},
    {"s_dcache_wb", run_nothing, 0},
    {"s_dcache_wb_vol", run_nothing, 0},
    {"s_inst_prefetch", run_nothing, 0},
    {"s_ttracedata", run_nothing, 0},
    {"s_incperflevel", run_nothing, 0},
    {"s_decperflevel", run_nothing, 0},
    {"buffer_wbl2", run_nothing, 0},
    {"buffer_inv", run_nothing, 0},
    {"v_nop", run_nothing, 0},
    {"ds_nop", run_nothing, 0},
};

}  // namespace

handler_list scalar_handlers() { return table; }

}  // namespace kindex::emulator
