// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "decode.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common.hpp"
#include "handlers.hpp"
#include "wave.hpp"

namespace kindex::emulator {
namespace {

bool starts_with(std::string_view s, std::string_view prefix) {
  return s.substr(0, prefix.size()) == prefix;
}
bool contains(std::string_view s, std::string_view part) {
  return s.find(part) != std::string_view::npos;
}
bool ends_with(std::string_view s, std::string_view suffix) {
  return s.size() >= suffix.size() && s.substr(s.size() - suffix.size()) == suffix;
}
std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}
long number(std::string_view s) { return std::strtol(std::string(s).c_str(), nullptr, 0); }

// Splits at `separator` outside of brackets.
std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t k = 0; k <= s.size(); ++k) {
    const char c = k < s.size() ? s[k] : separator;
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == separator && (depth == 0 || k == s.size())) {
      const std::string_view part = trim(s.substr(begin, k - begin));
      if (!part.empty()) parts.push_back(part);
      begin = k + 1;
    }
  }
  return parts;
}

// "v5", "v[4:7]" after the letter.
bool parse_register(std::string_view s, int base, operand_kind kind, operand* o) {
  if (s.empty()) return false;
  if (s[0] == '[') {
    const size_t colon = s.find(':');
    if (colon == std::string_view::npos) return false;
    const int first = static_cast<int>(number(s.substr(1, colon - 1)));
    const int last = static_cast<int>(number(s.substr(colon + 1, s.size() - colon - 2)));
    o->reg = static_cast<int16_t>(base + first);
    o->width = static_cast<int16_t>(last - first + 1);
  } else {
    if (!std::isdigit(static_cast<unsigned char>(s[0]))) return false;
    for (char c : s) {
      if (!std::isdigit(static_cast<unsigned char>(c))) return false;
    }
    o->reg = static_cast<int16_t>(base + number(s));
    o->width = 1;
  }
  o->kind = kind;
  return true;
}

struct named_register {
  std::string_view name;
  int reg;
  int width;
};
constexpr named_register named_registers[] = {
    {"vcc", vcc_register, 2},
    {"vcc_lo", vcc_register, 1},
    {"vcc_hi", vcc_register + 1, 1},
    {"exec", exec_register, 2},
    {"exec_lo", exec_register, 1},
    {"exec_hi", exec_register + 1, 1},
    {"m0", m0_register, 1},
    {"flat_scratch", flat_scratch_register, 2},
    {"flat_scratch_lo", flat_scratch_register, 1},
    {"flat_scratch_hi", flat_scratch_register + 1, 1},
};

bool parse_operand(std::string_view t, operand* o) {
  const auto unwrap = [&](std::string_view prefix, bool* flag) {
    if (!starts_with(t, prefix)) return;
    *flag = true;
    t = t.substr(prefix.size(), t.size() - prefix.size() - 1);
  };
  unwrap("sext(", &o->sign_extend);
  if (t.size() > 1 && t[0] == '-' &&
      (std::isalpha(static_cast<unsigned char>(t[1])) || t[1] == '|')) {
    o->negate = true;
    t.remove_prefix(1);
  }
  unwrap("|", &o->absolute);
  unwrap("abs(", &o->absolute);
  unwrap("neg(", &o->negate);
  if (t.empty()) return false;
  if (t == "off" || t == "null") {
    o->kind = operand_kind::off;
    return true;
  }
  for (const named_register& r : named_registers) {
    if (t == r.name) {
      o->kind = operand_kind::scalar;
      o->reg = static_cast<int16_t>(r.reg);
      o->width = static_cast<int16_t>(r.width);
      return true;
    }
  }
  if (t == "src_shared_base" || t == "src_private_base") {
    o->kind = operand_kind::integer;
    o->integer = static_cast<int64_t>(t == "src_shared_base" ? shared_aperture : private_aperture);
    o->width = 2;
    return true;
  }
  if (t == "src_scc" || t == "scc") {
    o->kind = operand_kind::scc;
    return true;
  }
  if (t[0] == 'v' && parse_register(t.substr(1), 0, operand_kind::vector, o)) return true;
  if (t[0] == 'a' && parse_register(t.substr(1), accumulator_base, operand_kind::vector, o)) {
    return true;
  }
  if (t[0] == 's' && parse_register(t.substr(1), 0, operand_kind::scalar, o)) return true;
  if (starts_with(t, "ttmp") &&
      parse_register(t.substr(4), trap_register, operand_kind::scalar, o)) {
    return true;
  }
  const bool minus = t[0] == '-';
  if (!minus && !std::isdigit(static_cast<unsigned char>(t[0]))) return false;
  const std::string text(t);
  if (contains(t, "0x")) {
    o->kind = operand_kind::integer;
    o->integer = static_cast<int64_t>(std::strtoull(text.c_str() + minus, nullptr, 16));
    if (minus) o->integer = -o->integer;
    o->literal = true;
  } else if (contains(t, ".")) {
    o->kind = operand_kind::real;
    // 1/(2*pi) is printed shortened.
    o->real = starts_with(t, "0.1591") ? 0.15915494309189532 : std::atof(text.c_str());
  } else {
    o->kind = operand_kind::integer;
    o->integer = std::atoll(text.c_str());
  }
  return true;
}

uint8_t bit_list(std::string_view s) {
  uint8_t bits = 0;
  int place = 0;
  for (char c : s) {
    if (c != '0' && c != '1') continue;
    if (c == '1') bits |= static_cast<uint8_t>(1 << place);
    ++place;
  }
  return bits;
}

uint8_t sdwa_select(std::string_view s) {
  if (starts_with(s, "BYTE_")) return static_cast<uint8_t>(s[5] - '0');
  if (starts_with(s, "WORD_")) return static_cast<uint8_t>(4 + s[5] - '0');
  return 6;
}

int swizzle_pattern(std::string_view s) {
  const size_t open = s.find('(');
  std::vector<std::string_view> args = split(s.substr(open + 1, s.size() - open - 2), ',');
  const auto arg = [&](size_t k) {
    return k < args.size() ? static_cast<int>(number(args[k])) : 0;
  };
  const std::string_view kind = args.empty() ? std::string_view() : args[0];
  if (kind == "SWAP") return (arg(1) << 10) | 0x1f;
  if (kind == "REVERSE") return ((arg(1) - 1) << 10) | 0x1f;
  if (kind == "BROADCAST") return (arg(2) << 5) | (0x1f & ~(arg(1) - 1));
  if (kind == "QUAD_PERM") return 0x8000 | arg(1) | arg(2) << 2 | arg(3) << 4 | arg(4) << 6;
  if (kind == "BITMASK_PERM" && args.size() > 1 && args[1].size() >= 7) {
    int keep = 0;
    int set = 0;
    int flip = 0;
    for (int k = 0; k < 5; ++k) {
      const int bit = 1 << (4 - k);
      switch (args[1][static_cast<size_t>(k) + 1]) {
        case 'p':
          keep |= bit;
          break;
        case 'i':
          keep |= bit;
          flip |= bit;
          break;
        case '1':
          set |= bit;
          break;
        default:
          break;
      }
    }
    return keep | set << 5 | flip << 10;
  }
  return -1;
}

struct dpp_name {
  std::string_view name;
  dpp_control control;
};
constexpr dpp_name dpp_names[] = {
    {"row_shl:", dpp_control::row_shl},      {"row_shr:", dpp_control::row_shr},
    {"row_ror:", dpp_control::row_ror},      {"row_newbcast:", dpp_control::row_newbcast},
    {"wave_shr:", dpp_control::wave_shr},    {"wave_shl:", dpp_control::wave_shl},
    {"wave_ror:", dpp_control::wave_ror},    {"wave_rol:", dpp_control::wave_rol},
    {"row_mirror", dpp_control::row_mirror}, {"row_half_mirror", dpp_control::row_half_mirror},
};

struct hardware_register_name {
  std::string_view name;
  uint8_t number;
};
constexpr hardware_register_name hardware_registers[] = {
    {"HW_REG_MODE", 1}, {"HW_REG_HW_ID", 4}, {"HW_REG_XCC_ID", 20}};

void parse_hardware_register(std::string_view s, instruction* i) {
  const size_t open = s.find('(');
  const auto args = split(s.substr(open + 1, s.size() - open - 2), ',');
  i->hardware_register = 255;
  for (const auto& r : hardware_registers) {
    if (!args.empty() && args[0] == r.name) i->hardware_register = r.number;
  }
  if (args.size() == 3) {
    i->field_offset = static_cast<uint8_t>(number(args[1]));
    i->field_width = static_cast<uint8_t>(number(args[2]));
  }
}

// Bits of s_set_gpr_idx_on: which operands the index applies to.
int index_mode_bits(std::string_view s) {
  int bits = 0;
  if (contains(s, "SRC0")) bits |= 1;
  if (contains(s, "SRC1")) bits |= 2;
  if (contains(s, "SRC2")) bits |= 4;
  if (contains(s, "DST")) bits |= 8;
  return bits;
}

// True when the modifier was understood.
bool parse_modifier(std::string_view m, instruction* i) {
  const auto is = [&](std::string_view prefix) { return starts_with(m, prefix); };
  const std::string_view value = contains(m, ":") ? m.substr(m.find(':') + 1) : std::string_view();
  const auto num = [&] { return static_cast<int>(number(value)); };
  if (is("offset0:")) {
    i->offset0 = num();
  } else if (is("offset1:")) {
    i->offset1 = num();
  } else if (is("offset:")) {
    i->offset = starts_with(value, "swizzle(") ? swizzle_pattern(value) : num();
    if (i->offset < 0 && starts_with(value, "swizzle(")) return false;
  } else if (m == "clamp") {
    i->clamp = true;
  } else if (m == "mul:2") {
    i->output_scale = 1;
  } else if (m == "mul:4") {
    i->output_scale = 2;
  } else if (m == "div:2") {
    i->output_scale = 3;
  } else if (is("op_sel:")) {
    i->op_sel = bit_list(value);
    i->has_op_sel = true;
  } else if (is("op_sel_hi:")) {
    i->op_sel_hi = bit_list(value);
    i->has_op_sel_hi = true;
  } else if (is("neg_lo:")) {
    i->neg_lo = bit_list(value);
  } else if (is("neg_hi:")) {
    i->neg_hi = bit_list(value);
  } else if (is("quad_perm:")) {
    i->dpp = dpp_control::quad_perm;
    int k = 0;
    for (char c : value) {
      if (std::isdigit(static_cast<unsigned char>(c)) && k < 4) {
        i->quad[k++] = static_cast<uint8_t>(c - '0');
      }
    }
  } else if (is("row_bcast:")) {
    i->dpp = num() == 15 ? dpp_control::row_bcast15 : dpp_control::row_bcast31;
  } else if (is("row_mask:")) {
    i->row_mask = static_cast<uint8_t>(num());
  } else if (is("bank_mask:")) {
    i->bank_mask = static_cast<uint8_t>(num());
  } else if (is("bound_ctrl")) {
    i->bound_control = true;
  } else if (is("dst_sel:")) {
    i->sdwa = true;
    i->destination_select = sdwa_select(value);
  } else if (is("dst_unused:")) {
    i->sdwa = true;
    i->unused = value == "UNUSED_PRESERVE" ? unused_policy::preserve
                : value == "UNUSED_SEXT"   ? unused_policy::sign_extend
                                           : unused_policy::pad;
  } else if (is("src0_sel:")) {
    i->sdwa = true;
    i->source_select[0] = sdwa_select(value);
  } else if (is("src1_sel:")) {
    i->sdwa = true;
    i->source_select[1] = sdwa_select(value);
  } else if (m == "sc0" || m == "glc") {
    i->returns = true;
  } else if (m == "offen") {
    i->offset_enable = true;
  } else if (m == "idxen") {
    i->index_enable = true;
  } else if (m == "lds") {
    i->to_lds = true;
  } else if (is("cbsz:")) {
    i->cbsz = static_cast<uint8_t>(num());
  } else if (is("abid:")) {
    i->abid = static_cast<uint8_t>(num());
  } else if (is("blgp:")) {
    i->blgp = static_cast<uint8_t>(num());
  } else if (is("neg:")) {
    i->blgp = bit_list(value);
  } else if (is("hwreg(")) {
    parse_hardware_register(m, i);
  } else if (is("gpr_idx(")) {
    i->offset = index_mode_bits(m);
  } else if (m == "sc1" || m == "nt" || m == "slc" || is("sendmsg(")) {
    // Cache policy: nothing to emulate.
  } else {
    for (const dpp_name& d : dpp_names) {
      if (is(d.name)) {
        i->dpp = d.control;
        i->dpp_amount = static_cast<uint8_t>(d.name.back() == ':' ? num() : 0);
        return true;
      }
    }
    return false;
  }
  return true;
}

atomic_operation atomic_of(std::string_view name) {
  struct row {
    std::string_view part;
    atomic_operation operation;
  };
  // Longer names first: the first part found decides.
  static constexpr row rows[] = {
      {"cmpswap", atomic_operation::compare_swap},
      {"cmpst", atomic_operation::compare_swap},
      {"wrxchg", atomic_operation::swap},
      {"swap", atomic_operation::swap},
      {"pk_add_f16", atomic_operation::add_packed_f16},
      {"pk_add_rtn_f16", atomic_operation::add_packed_f16},
      {"pk_add_bf16", atomic_operation::add_packed_bf16},
      {"pk_add_rtn_bf16", atomic_operation::add_packed_bf16},
      {"add_f64", atomic_operation::add_f64},
      {"add_rtn_f64", atomic_operation::add_f64},
      {"add_f32", atomic_operation::add_f32},
      {"add_rtn_f32", atomic_operation::add_f32},
      {"min_f64", atomic_operation::min_f64},
      {"min_rtn_f64", atomic_operation::min_f64},
      {"max_f64", atomic_operation::max_f64},
      {"max_rtn_f64", atomic_operation::max_f64},
      {"rsub", atomic_operation::reverse_sub},
      {"add", atomic_operation::add},
      {"sub", atomic_operation::sub},
      {"umax", atomic_operation::max_unsigned},
      {"umin", atomic_operation::min_unsigned},
      {"smax", atomic_operation::max_signed},
      {"smin", atomic_operation::min_signed},
      {"max_u", atomic_operation::max_unsigned},
      {"max_rtn_u", atomic_operation::max_unsigned},
      {"min_u", atomic_operation::min_unsigned},
      {"min_rtn_u", atomic_operation::min_unsigned},
      {"max_i", atomic_operation::max_signed},
      {"max_rtn_i", atomic_operation::max_signed},
      {"min_i", atomic_operation::min_signed},
      {"min_rtn_i", atomic_operation::min_signed},
      {"xor", atomic_operation::bit_xor},
      {"or", atomic_operation::bit_or},
      {"and", atomic_operation::bit_and},
      {"inc", atomic_operation::increment},
      {"dec", atomic_operation::decrement},
  };
  for (const row& r : rows) {
    if (contains(name, r.part)) return r.operation;
  }
  return atomic_operation::none;
}

void set_access(instruction* i, std::string_view b) {
  if (contains(b, "dwordx4")) {
    i->access_size = 16;
  } else if (contains(b, "dwordx3")) {
    i->access_size = 12;
  } else if (contains(b, "dwordx2")) {
    i->access_size = 8;
  } else if (contains(b, "dword")) {
    i->access_size = 4;
  } else if (contains(b, "byte")) {
    i->access_size = 1;
    i->sign_extend = contains(b, "sbyte");
  } else if (contains(b, "short")) {
    i->access_size = 2;
    i->sign_extend = contains(b, "sshort");
  }
  i->d16 = contains(b, "d16_hi") ? 2 : contains(b, "d16") ? 1 : 0;
}

handler decode_vector_memory(instruction* i, std::string_view b) {
  i->space = starts_with(b, "global_")   ? address_space::global
             : starts_with(b, "flat_")   ? address_space::flat
             : starts_with(b, "buffer_") ? address_space::buffer
                                         : address_space::scratch;
  i->counts_vector = true;
  i->counts_scalar = i->space == address_space::flat;
  if (contains(b, "_format_")) return nullptr;
  if (contains(b, "_load")) {
    i->kind = instruction_class::vector_load;
    if (contains(b, "_lds_")) i->to_lds = true;
    i->writes_lds = i->to_lds;
    set_access(i, b);
    return run_vector_load;
  }
  if (contains(b, "_store")) {
    i->kind = instruction_class::vector_store;
    set_access(i, b);
    i->returns = false;
    return run_vector_store;
  }
  if (contains(b, "_atomic")) {
    i->kind = instruction_class::vector_atomic;
    i->access_size = ends_with(b, "_x2") || contains(b, "f64") ? 8 : 4;
    i->atomic = atomic_of(b.substr(b.find("_atomic")));
    return i->atomic == atomic_operation::none ? nullptr : run_vector_atomic;
  }
  i->counts_vector = i->counts_scalar = false;
  i->kind = instruction_class::other;
  return nullptr;
}

uint8_t lds_width(std::string_view b) {
  if (contains(b, "b128")) return 16;
  if (contains(b, "b96")) return 12;
  if (contains(b, "_b64") || contains(b, "_u64") || contains(b, "_i64") || contains(b, "_f64")) {
    return 8;
  }
  if (contains(b, "_b8") || contains(b, "_u8") || contains(b, "_i8")) return 1;
  if (contains(b, "_b16") || contains(b, "_u16") || contains(b, "_i16")) return 2;
  return 4;
}

handler decode_lds(instruction* i, std::string_view b) {
  i->counts_scalar = true;
  i->access_size = lds_width(b);
  i->pair = contains(b, "read2") || contains(b, "write2");
  i->pair_scale = i->access_size * (contains(b, "st64") ? 64 : 1);
  i->d16 = contains(b, "d16_hi") ? 2 : contains(b, "d16") ? 1 : 0;
  i->returns = contains(b, "_rtn");
  if (starts_with(b, "ds_read_addtid") || starts_with(b, "ds_write_addtid")) return nullptr;
  if (starts_with(b, "ds_read")) {
    i->returns = true;
    i->sign_extend = contains(b, "_i8") || contains(b, "_i16");
    return run_lds_read;
  }
  if (starts_with(b, "ds_write")) {
    i->writes_lds = true;
    return run_lds_write;
  }
  i->atomic = atomic_of(b.substr(3));
  if (i->atomic == atomic_operation::none || contains(b, "wrxchg2") || contains(b, "mskor") ||
      contains(b, "_src2_") || contains(b, "_f32") != (i->atomic == atomic_operation::add_f32) ||
      contains(b, "cmpst_f")) {
    return nullptr;
  }
  return run_lds_atomic;
}

bool matrix_type_of(std::string_view s, matrix_type* type) {
  if (s == "f32") {
    *type = matrix_type::f32;
  } else if (s == "xf32") {
    *type = matrix_type::xf32;
  } else if (s == "f16") {
    *type = matrix_type::f16;
  } else if (starts_with(s, "bf16")) {
    *type = matrix_type::bf16;
  } else if (s == "fp8") {
    *type = matrix_type::fp8;
  } else if (s == "bf8") {
    *type = matrix_type::bf8;
  } else if (s == "i8") {
    *type = matrix_type::i8;
  } else if (s == "f64") {
    *type = matrix_type::f64;
  } else {
    return false;
  }
  return true;
}

// "v_mfma_f32_32x32x8_f16", "v_mfma_f32_4x4x4_16b_f16", "v_mfma_f32_16x16x32_fp8_bf8".
handler decode_matrix(instruction* i, std::string_view b) {
  i->kind = instruction_class::mfma;
  const auto parts = split(b.substr(7), '_');
  if (parts.size() < 2) return nullptr;
  const std::string_view shape = parts[1];
  const size_t first = shape.find('x');
  const size_t second = shape.find('x', first + 1);
  if (second == std::string_view::npos) return nullptr;
  i->rows = static_cast<uint8_t>(number(shape.substr(0, first)));
  i->columns = static_cast<uint8_t>(number(shape.substr(first + 1, second - first - 1)));
  size_t digits = second + 1;
  while (digits < shape.size() && std::isdigit(static_cast<unsigned char>(shape[digits]))) ++digits;
  i->depth = static_cast<uint8_t>(number(shape.substr(second + 1, digits - second - 1)));
  const std::string_view glued = shape.substr(digits);  // older spelling: "4x4x1f32"
  size_t next = 2;
  i->blocks = 1;
  bool explicit_blocks = false;
  if (next < parts.size() && parts[next].size() > 1 && parts[next].back() == 'b' &&
      std::isdigit(static_cast<unsigned char>(parts[next][0]))) {
    i->blocks = static_cast<uint8_t>(number(parts[next]));
    explicit_blocks = true;
    ++next;
  }
  if (!glued.empty()) {
    if (!matrix_type_of(glued, &i->a_type)) return nullptr;
    i->b_type = i->a_type;
  } else {
    if (next >= parts.size() || !matrix_type_of(parts[next], &i->a_type)) return nullptr;
    i->b_type = i->a_type;
    matrix_type other;
    if (next + 1 < parts.size() && matrix_type_of(parts[next + 1], &other)) i->b_type = other;
  }
  if (!explicit_blocks && i->rows == 4) i->blocks = i->a_type == matrix_type::f64 ? 4 : 16;
  // Passes of four cycles, after the instruction set manual.
  int passes;
  if (i->rows == 4) {
    passes = i->a_type == matrix_type::f64 ? 4 : 2;
  } else if (i->blocks > 1) {
    passes = i->rows == 32 ? 16 : 8;
  } else {
    const int flops = 2 * i->rows * i->columns * i->depth;
    const int rate = i->a_type == matrix_type::f64 || i->a_type == matrix_type::f32    ? 64
                     : i->a_type == matrix_type::xf32                                  ? 256
                     : i->a_type == matrix_type::f16 || i->a_type == matrix_type::bf16 ? 512
                                                                                       : 1024;
    passes = flops / rate / 4;
  }
  i->cycles = static_cast<uint16_t>(4 * passes);
  return matrix_handler(*i);
}

bool is_transcendental(std::string_view b) {
  for (std::string_view name : {"v_exp_f", "v_log_f", "v_rcp_f", "v_rcp_iflag_f", "v_rsq_f",
                                "v_sqrt_f", "v_sin_f", "v_cos_f"}) {
    if (starts_with(b, name)) return true;
  }
  return false;
}

bool is_quarter_rate(std::string_view b) {
  for (std::string_view name :
       {"v_mul_lo_u32", "v_mul_hi_u32", "v_mul_hi_i32", "v_mad_u64_u32", "v_mad_i64_i32"}) {
    if (b == name) return true;
  }
  return false;
}

bool has_two_destinations(std::string_view b) {
  for (std::string_view name : {"v_add_co", "v_sub_co", "v_subrev_co", "v_addc_co", "v_subb",
                                "v_mad_u64", "v_mad_i64", "v_div_scale"}) {
    if (starts_with(b, name)) return true;
  }
  return false;
}

uint16_t features_used(const instruction& i) {
  uint16_t used = 0;
  if (i.dpp != dpp_control::none) used |= feature_dpp;
  if (i.sdwa) used |= feature_sdwa;
  if (i.clamp) used |= feature_clamp;
  if (i.output_scale) used |= feature_output_scale;
  if (i.has_op_sel) used |= feature_op_sel;
  if (i.has_op_sel_hi || i.neg_lo || i.neg_hi) used |= feature_packed;
  for (int k = 0; k < i.operand_count; ++k) {
    if (i.operands[k].negate || i.operands[k].absolute) used |= feature_sign;
  }
  return used;
}

bool features_supported(uint16_t used, uint16_t supported) {
  if (supported & feature_packed) supported |= feature_op_sel;
  if (supported & feature_sdwa_source) supported |= feature_sdwa;
  return (used & ~supported) == 0;
}

void mark_indirect(instruction* i) {
  for (int k = 0; k < i->operand_count; ++k) {
    operand& o = i->operands[k];
    const int source = k - i->destination_count;
    o.indirect = o.negate || o.absolute || o.sign_extend ||
                 (i->dpp != dpp_control::none && source == 0) ||
                 (i->sdwa && source >= 0 && source < 2 && i->source_select[source] != 6) ||
                 (i->has_op_sel && source >= 0 && ((i->op_sel >> source) & 1));
  }
}

void add_mask(register_mask* list, uint8_t* count, int limit, const operand& o) {
  if (o.kind != operand_kind::vector && o.kind != operand_kind::scalar) return;
  int first = o.kind == operand_kind::vector ? o.reg : vector_registers + o.reg;
  int left = std::max<int>(o.width, 1);
  while (left > 0 && *count < limit) {
    const int word = first / 64;
    const int n = std::min(left, 64 - first % 64);
    list[*count] = {static_cast<uint8_t>(word), low_mask(static_cast<unsigned>(n)) << (first % 64)};
    ++*count;
    first += n;
    left -= n;
  }
}

// Operands that a memory instruction fills later, and those that it reads now.
void collect_masks(instruction* i) {
  const bool is_memory = i->counts_vector || i->counts_scalar;
  bool has_destination;
  switch (i->kind) {
    case instruction_class::vector_load:
      has_destination = !i->to_lds;
      break;
    case instruction_class::vector_store:
      has_destination = false;
      break;
    case instruction_class::vector_atomic:
      has_destination = i->returns;
      break;
    case instruction_class::lds:
      has_destination = i->returns;
      break;
    default:
      has_destination = true;
      break;
  }
  for (int k = 0; k < i->operand_count; ++k) {
    const bool destination = has_destination && k < i->destination_count;
    if (destination && is_memory) {
      add_mask(i->destination_masks, &i->destination_mask_count, 4, i->operands[k]);
      // Half-register loads keep the other half.
      if (!i->d16) continue;
    }
    add_mask(i->source_masks, &i->source_mask_count, 8, i->operands[k]);
  }
  // A returning buffer atomic reads and writes operand 0.
  if (i->kind == instruction_class::vector_atomic && i->returns &&
      i->space == address_space::buffer) {
    add_mask(i->source_masks, &i->source_mask_count, 8, i->operands[0]);
  }
}

// Chooses handler and class. Null when the instruction is not emulated.
handler choose_handler(instruction* i) {
  const std::string_view b = i->base;
  if (starts_with(b, "s_load_") || starts_with(b, "s_buffer_load_")) {
    i->kind = instruction_class::smem;
    i->counts_scalar = true;
    return run_scalar_load;
  }
  const handler_entry* entry = find_handler(b);
  handler run = nullptr;
  if (entry && features_supported(features_used(*i), entry->features)) run = entry->run;
  if (starts_with(b, "global_") || starts_with(b, "flat_") || starts_with(b, "scratch_") ||
      starts_with(b, "buffer_")) {
    if (entry) {
      i->kind = instruction_class::other;
      return run;
    }
    return decode_vector_memory(i, b);
  }
  if (starts_with(b, "ds_")) {
    i->kind = instruction_class::lds;
    if (entry) {
      i->returns = b != "ds_nop";
      i->counts_scalar = i->returns;
      return run;
    }
    return decode_lds(i, b);
  }
  if (starts_with(b, "v_mfma_")) return decode_matrix(i, b);
  if (starts_with(b, "s_")) {
    if (b == "s_branch" || starts_with(b, "s_cbranch")) {
      i->kind = instruction_class::branch;
    } else if (b == "s_waitcnt") {
      i->kind = instruction_class::waitcnt;
    } else if (b == "s_nop") {
      i->kind = instruction_class::nop;
    } else if (b == "s_memtime" || b == "s_memrealtime") {
      i->kind = instruction_class::smem;
      i->counts_scalar = true;
    } else if (b == "s_setpc_b64" || b == "s_swappc_b64" || b == "s_call_b64") {
      i->kind = instruction_class::branch;
    } else if (i->operand_count == 0 || b == "s_barrier" || b == "s_sleep" || b == "s_setprio" ||
               b == "s_sethalt" || b == "s_trap" || b == "s_endpgm") {
      i->kind = instruction_class::other;
    } else {
      i->kind = instruction_class::salu;
    }
    return run;
  }
  if (starts_with(b, "v_")) {
    i->kind = is_transcendental(b) ? instruction_class::transcendental : instruction_class::valu;
    i->cycles = i->kind == instruction_class::transcendental || is_quarter_rate(b) ? 16 : 4;
    return run;
  }
  i->kind = instruction_class::other;
  return run;
}

void parse_waitcnt(std::string_view rest, instruction* i) {
  const auto field = [&](std::string_view name) -> int16_t {
    const size_t at = rest.find(name);
    if (at == std::string_view::npos) return -1;
    const std::string_view digits = rest.substr(at + name.size());
    return static_cast<int16_t>(number(digits.substr(0, digits.find(')'))));
  };
  i->wait_vector = field("vmcnt(");
  i->wait_scalar = field("lgkmcnt(");
  if (i->wait_vector < 0 && i->wait_scalar < 0 && !contains(rest, "expcnt(")) {
    // The raw immediate: everything is waited for when all fields are zero.
    const long raw = number(rest);
    i->wait_vector = static_cast<int16_t>((raw & 15) | ((raw >> 10) & 0x30));
    i->wait_scalar = static_cast<int16_t>((raw >> 8) & 15);
  }
}

}  // namespace

bool line_address(std::string_view line, uint64_t* address) {
  if (line.empty() || line[0] != '\t') return false;
  const size_t comment = line.find("// ");
  if (comment == std::string_view::npos) return false;
  *address = std::strtoull(std::string(line.substr(comment + 3, 16)).c_str(), nullptr, 16);
  return true;
}

bool decode_line(std::string_view line, instruction* out) {
  instruction i;
  if (!line_address(line, &i.pc)) return false;
  const size_t comment = line.find("// ");
  const std::string_view encoding = line.substr(line.find(':', comment) + 1);
  int words = 0;
  for (std::string_view part : split(encoding, ' ')) {
    if (part.size() != 8) break;
    ++words;
  }
  i.size = static_cast<uint8_t>(4 * std::max(words, 1));
  i.text = std::string(trim(line.substr(0, comment)));
  const std::string_view text = i.text;
  const size_t space = text.find(' ');
  std::string_view base = text.substr(0, space);
  const std::string_view rest =
      space == std::string_view::npos ? std::string_view() : trim(text.substr(space));
  for (std::string_view suffix : {"_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp"}) {
    if (ends_with(base, suffix)) {
      base.remove_suffix(suffix.size());
      break;
    }
  }
  i.base = std::string(base);
  bool understood = true;
  if (base == "s_waitcnt") {
    parse_waitcnt(rest, &i);
  } else if (base != "s_branch" && !starts_with(base, "s_cbranch")) {
    for (std::string_view part : split(rest, ',')) {
      const auto tokens = split(part, ' ');
      for (size_t k = 0; k < tokens.size(); ++k) {
        operand o;
        if (k == 0 && i.operand_count < 6 && parse_operand(tokens[k], &o)) {
          i.operands[i.operand_count++] = o;
        } else if (!parse_modifier(tokens[k], &i)) {
          understood = false;
        }
      }
    }
  }
  if (has_two_destinations(base)) i.destination_count = 2;
  i.run = choose_handler(&i);
  if (!understood || !i.run) i.run = run_unsupported;
  // From the encoding: the text may name a symbol instead of the distance.
  if (i.kind == instruction_class::branch) {
    i.branch_words = static_cast<int16_t>(
        std::strtoul(std::string(trim(encoding).substr(0, 8)).c_str(), nullptr, 16));
  }
  mark_indirect(&i);
  collect_masks(&i);
  *out = std::move(i);
  return true;
}

}  // namespace kindex::emulator
