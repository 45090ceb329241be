// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Loads, stores and atomics of every space.

#include <algorithm>

#include "assembly.hpp"
#include "catch_any.hpp"

using namespace emulator_test;

namespace {

using u = uint32_t;

// A kernel body's start: s[4:5] input, s[6:7] output, v1 = 16 * lane, v2 = 4 * lane.
const std::string start =
    "  s_load_dwordx4 s[4:7], s[0:1], 0x0\n  v_lshlrev_b32 v1, 4, v0\n"
    "  v_lshlrev_b32 v2, 2, v0\n  s_waitcnt lgkmcnt(0)\n";

std::vector<uint8_t> pattern(size_t bytes) {
  std::vector<uint8_t> p(bytes);
  for (size_t k = 0; k < bytes; ++k) p[k] = static_cast<uint8_t>(k * 7 + k / 251 + 128);
  return p;
}

u dword_at(const std::vector<uint8_t>& p, size_t at) {
  return p[at] | p[at + 1] << 8 | p[at + 2] << 16 | static_cast<u>(p[at + 3]) << 24;
}

}  // namespace

TEST_CASE("loads of every width", "[memory]") {
  struct load {
    std::string text;  // result in v[10:13]
    std::function<void(const std::vector<uint8_t>&, size_t lane, u* out)> expect;
  };
  const auto dwords = [](int n, size_t shift) {
    return [=](const std::vector<uint8_t>& p, size_t l, u* out) {
      for (size_t k = 0; k < static_cast<size_t>(n); ++k)
        out[k] = dword_at(p, 16 * l + shift + 4 * k);
    };
  };
  const auto part = [](std::function<u(u, u)> f) {
    return [=](const std::vector<uint8_t>& p, size_t l, u* out) {
      out[0] = f(dword_at(p, 16 * l), preset[0]);
    };
  };
  const std::string wide =
      "  v_mov_b32 v4, s5\n  v_add_co_u32 v3, vcc, s4, v1\n"
      "  v_addc_co_u32 v4, vcc, 0, v4, vcc\n  v_mov_b32 v30, v3\n"
      "  v_mov_b32 v31, v4\n";
  std::vector<load> loads = {
      {"  global_load_dword v10, v1, s[4:5]\n", dwords(1, 0)},
      {"  global_load_dword v10, v1, s[4:5] offset:12\n", dwords(1, 12)},
      {"  global_load_dwordx2 v[10:11], v1, s[4:5]\n", dwords(2, 0)},
      {"  global_load_dwordx3 v[10:12], v1, s[4:5] offset:4\n", dwords(3, 4)},
      {"  global_load_dwordx4 v[10:13], v1, s[4:5]\n", dwords(4, 0)},
      {wide + "  global_load_dwordx4 v[10:13], v[30:31], off\n", dwords(4, 0)},
      {wide + "  global_load_dword v10, v[30:31], off offset:8\n", dwords(1, 8)},
      {wide + "  flat_load_dwordx2 v[10:11], v[30:31] offset:8\n", dwords(2, 8)},
      {"  s_add_u32 s4, s4, 64\n  s_addc_u32 s5, s5, 0\n"
       "  global_load_dword v10, v1, s[4:5] offset:-64\n",
       dwords(1, 0)},
      {"  global_load_ubyte v10, v1, s[4:5]\n", part([](u x, u) { return x & 255; })},
      {"  global_load_sbyte v10, v1, s[4:5] offset:1\n",
       part([](u x, u) { return static_cast<u>(static_cast<int8_t>(x >> 8)); })},
      {"  global_load_ushort v10, v1, s[4:5]\n", part([](u x, u) { return x & 0xffff; })},
      {"  global_load_sshort v10, v1, s[4:5] offset:2\n",
       part([](u x, u) { return static_cast<u>(static_cast<int16_t>(x >> 16)); })},
      {"  global_load_ubyte_d16 v10, v1, s[4:5]\n",
       part([](u x, u old) { return (old & 0xffff0000u) | (x & 255); })},
      {"  global_load_sbyte_d16_hi v10, v1, s[4:5]\n", part([](u x, u old) {
         return (old & 0xffff) | static_cast<u>(static_cast<int8_t>(x)) << 16;
       })},
      {"  global_load_short_d16 v10, v1, s[4:5]\n",
       part([](u x, u old) { return (old & 0xffff0000u) | (x & 0xffff); })},
      {"  global_load_short_d16_hi v10, v1, s[4:5]\n",
       part([](u x, u old) { return (old & 0xffff) | x << 16; })},
      {"  s_mov_b32 s6, 0x1000\n  s_mov_b32 s7, 0x20000\n  s_mov_b64 s[8:9], s[4:5]\n"
       "  s_mov_b64 s[10:11], s[6:7]\n  buffer_load_dwordx4 v[10:13], v1, s[8:11], 0 offen\n"
       "  s_load_dwordx2 s[6:7], s[0:1], 0x8\n",
       dwords(4, 0)},
      {"  s_mov_b32 s10, 0x1000\n  s_mov_b32 s11, 0x20000\n  s_mov_b64 s[8:9], s[4:5]\n"
       "  s_movk_i32 s12, 4\n  buffer_load_dwordx2 v[10:11], v1, s[8:11], s12 offen offset:4\n",
       dwords(2, 8)},
      {"  s_mov_b32 s10, 0x1000\n  s_mov_b32 s11, 0x20000\n  s_mov_b64 s[8:9], s[4:5]\n"
       "  buffer_load_ubyte v10, v1, s[8:11], 0 offen offset:1\n",
       part([](u x, u) { return x >> 8 & 255; })},
  };
  std::vector<assembly_kernel> kernels;
  for (size_t k = 0; k < loads.size(); ++k) {
    kernels.push_back(
        {"load" + std::to_string(k), start + "  v_mov_b32 v10, 0x11223344\n" + loads[k].text +
                                         "  s_waitcnt vmcnt(0) lgkmcnt(0)\n"
                                         "  global_store_dwordx4 v1, v[10:13], s[6:7]\n"});
  }
  assembly_module module(kernels);
  const std::vector<uint8_t> p = pattern(1024);
  buffer<uint8_t> in(p);
  for (size_t k = 0; k < loads.size(); ++k) {
    INFO(loads[k].text);
    buffer<u> out(256);
    REQUIRE(module.launch(kernels[k].name, {in.get(), out.get()}) == hipSuccess);
    for (size_t l = 0; l < 64; ++l) {
      u expected[4] = {out[4 * l], out[4 * l + 1], out[4 * l + 2], out[4 * l + 3]};
      loads[k].expect(p, l, expected);
      for (size_t r = 0; r < 4; ++r) {
        if (out[4 * l + r] != expected[r]) CHECK(out[4 * l + r] == expected[r]);
      }
    }
  }
}

TEST_CASE("stores of every width", "[memory]") {
  struct store {
    std::string text;        // data in v[10:13]
    std::vector<int> bytes;  // of the 16 data bytes, in order; -1: untouched
  };
  const std::vector<store> stores = {
      {"global_store_dword v1, v10, s[6:7]", {0, 1, 2, 3}},
      {"global_store_dwordx2 v1, v[10:11], s[6:7] offset:4",
       {-1, -1, -1, -1, 0, 1, 2, 3, 4, 5, 6, 7}},
      {"global_store_dwordx3 v1, v[10:12], s[6:7]", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
      {"global_store_dwordx4 v1, v[10:13], s[6:7]",
       {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
      {"global_store_byte v1, v10, s[6:7] offset:3", {-1, -1, -1, 0}},
      {"global_store_byte_d16_hi v1, v10, s[6:7]", {2}},
      {"global_store_short v1, v10, s[6:7] offset:2", {-1, -1, 0, 1}},
      {"global_store_short_d16_hi v1, v10, s[6:7]", {2, 3}},
      {"s_mov_b64 s[8:9], s[6:7]\n  s_mov_b32 s10, 0x400\n  s_mov_b32 s11, 0x20000\n"
       "  buffer_store_dwordx2 v[10:11], v1, s[8:11], 0 offen",
       {0, 1, 2, 3, 4, 5, 6, 7}},
      {"s_mov_b64 s[8:9], s[6:7]\n  s_mov_b32 s10, 0x400\n  s_mov_b32 s11, 0x20000\n"
       "  buffer_store_short v10, v1, s[8:11], 0 offen offset:2",
       {-1, -1, 0, 1}},
  };
  std::vector<assembly_kernel> kernels;
  for (size_t k = 0; k < stores.size(); ++k) {
    kernels.push_back(
        {"store" + std::to_string(k), start +
                                          "  global_load_dwordx4 v[10:13], v1, s[4:5]\n"
                                          "  s_waitcnt vmcnt(0)\n  " +
                                          stores[k].text + "\n"});
  }
  assembly_module module(kernels);
  const std::vector<uint8_t> p = pattern(1024);
  buffer<uint8_t> in(p);
  for (size_t k = 0; k < stores.size(); ++k) {
    INFO(stores[k].text);
    buffer<uint8_t> out(1024);
    std::memset(out.get(), 0xee, 1024);
    REQUIRE(module.launch(kernels[k].name, {in.get(), out.get()}) == hipSuccess);
    int wrong = 0;
    for (size_t l = 0; l < 64; ++l) {
      for (size_t b = 0; b < 16; ++b) {
        const int from = b < stores[k].bytes.size() ? stores[k].bytes[b] : -1;
        const uint8_t expected = from < 0 ? 0xee : p[16 * l + static_cast<size_t>(from)];
        wrong += out[16 * l + b] != expected;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("raw buffers drop and zero what is out of range, dword by dword", "[memory]") {
  // 50 dwords and two bytes are in range; the buffer behind them is larger.
  const std::string resource =
      "  s_mov_b64 s[8:9], s[4:5]\n  s_mov_b32 s10, 202\n  s_mov_b32 s11, 0x20000\n"
      "  s_mov_b64 s[12:13], s[6:7]\n  s_mov_b32 s14, 202\n  s_mov_b32 s15, 0x20000\n";
  assembly_module module(kernel_list{
      {"one", start + resource +
                  "  buffer_load_dword v10, v2, s[8:11], 0 offen\n"
                  "  s_waitcnt vmcnt(0)\n  global_store_dword v2, v10, s[6:7]\n"},
      {"four",
       start + resource +
           "  v_lshlrev_b32 v3, 2, v0\n  buffer_load_dwordx4 v[10:13], v3, s[8:11], 0 offen\n"
           "  s_waitcnt vmcnt(0)\n  global_store_dwordx4 v1, v[10:13], s[6:7]\n"},
      {"negative", start + resource +
                       "  v_add_u32 v3, -8, v2\n"
                       "  buffer_load_dword v10, v3, s[8:11], 0 offen offset:16\n"
                       "  s_waitcnt vmcnt(0)\n  global_store_dword v2, v10, s[6:7]\n"},
      {"scalar", start + resource +
                     "  s_mov_b32 s16, 100\n  buffer_load_dword v10, v2, s[8:11], s16 offen\n"
                     "  s_waitcnt vmcnt(0)\n  global_store_dword v2, v10, s[6:7]\n"},
      {"store", start + resource +
                    "  v_mov_b32 v10, v0\n  v_mov_b32 v11, v0\n"
                    "  buffer_store_dwordx2 v[10:11], v2, s[12:15], 0 offen\n"},
      {"add", start + resource +
                  "  v_mov_b32 v10, 1\n"
                  "  buffer_atomic_add v10, v2, s[12:15], 0 offen\n"},
      {"scalar_load", start + resource +
                          "  s_buffer_load_dwordx4 s[20:23], s[8:11], 0xc4\n"
                          "  s_waitcnt lgkmcnt(0)\n  v_mov_b32 v10, s20\n  v_mov_b32 v11, s21\n"
                          "  v_mov_b32 v12, s22\n  v_mov_b32 v13, s23\n"
                          "  global_store_dwordx4 v1, v[10:13], s[6:7]\n"},
  });
  std::vector<u> values(64);
  for (u k = 0; k < 64; ++k) values[k] = k + 100;
  buffer<u> in(values);
  buffer<u> out(256);
  const auto in_range = [](int byte) { return byte >= 0 && byte + 4 <= 202; };
  const auto value = [&](int byte) {
    return in_range(byte) ? values[static_cast<size_t>(byte / 4)] : 0u;
  };
  REQUIRE(module.launch("one", {in.get(), out.get()}) == hipSuccess);
  for (int l = 0; l < 64; ++l) CHECK(out[static_cast<size_t>(l)] == value(4 * l));
  REQUIRE(module.launch("four", {in.get(), out.get()}) == hipSuccess);
  for (int l = 0; l < 64; ++l) {
    for (int k = 0; k < 4; ++k) {
      CHECK(out[static_cast<size_t>(4 * l + k)] == value(4 * l + 4 * k));
    }
  }
  REQUIRE(module.launch("negative", {in.get(), out.get()}) == hipSuccess);
  // Below zero the offset is a large unsigned number.
  for (int l = 0; l < 64; ++l) {
    CHECK(out[static_cast<size_t>(l)] == (l < 2 ? 0 : value(4 * l + 8)));
  }
  REQUIRE(module.launch("scalar", {in.get(), out.get()}) == hipSuccess);
  for (int l = 0; l < 64; ++l) CHECK(out[static_cast<size_t>(l)] == value(4 * l + 100));
  std::memset(out.get(), 0xff, 1024);
  REQUIRE(module.launch("store", {in.get(), out.get()}) == hipSuccess);
  for (size_t k = 0; k < 256; ++k) {
    CHECK((out[k] == ~0u) == (k >= 50));
  }
  std::memset(out.get(), 0, 1024);
  REQUIRE(module.launch("add", {in.get(), out.get()}) == hipSuccess);
  for (size_t k = 0; k < 64; ++k) CHECK(out[k] == (k < 50 ? 1u : 0u));
  REQUIRE(module.launch("scalar_load", {in.get(), out.get()}) == hipSuccess);
  CHECK(out[0] == values[49]);
  CHECK(out[1] == 0);
}

TEST_CASE("local data share", "[memory]") {
  check_rows(
      {
          {"v_lshlrev_b32 v30, 4, v0\n  ds_write_b32 v30, v1\n  ds_write_b32 v30, v2 offset:4\n"
           "  s_waitcnt lgkmcnt(0)\n  ds_read_b64 v[10:11], v30",
           [](const inputs& in, int l, u* out) {
             out[0] = in.v[1][l];
             out[1] = in.v[2][l];
           }},
          {"v_lshlrev_b32 v30, 4, v0\n  v_mov_b32 v32, v1\n  v_mov_b32 v33, v2\n"
           "  v_mov_b32 v34, v3\n  v_mov_b32 v35, v4\n  ds_write_b128 v30, v[32:35]\n"
           "  v_xor_b32 v30, 0x3f0, v30\n  s_waitcnt lgkmcnt(0)\n  ds_read_b128 v[10:13], v30",
           [](const inputs& in, int l, u* out) {
             for (int k = 0; k < 4; ++k) out[k] = in.v[k + 1][63 - l];
           }},
          {"v_lshlrev_b32 v30, 4, v0\n  v_mov_b32 v32, v1\n  v_mov_b32 v33, v2\n"
           "  v_mov_b32 v34, v3\n  ds_write_b96 v30, v[32:34]\n  s_waitcnt lgkmcnt(0)\n"
           "  ds_read_b96 v[10:12], v30",
           [](const inputs& in, int l, u* out) {
             for (int k = 0; k < 3; ++k) out[k] = in.v[k + 1][l];
           }},
          {"v_lshlrev_b32 v30, 2, v0\n  ds_write2_b32 v30, v1, v2 offset1:64\n"
           "  s_waitcnt lgkmcnt(0)\n  ds_read2_b32 v[10:11], v30 offset0:64 offset1:0",
           [](const inputs& in, int l, u* out) {
             out[0] = in.v[2][l];
             out[1] = in.v[1][l];
           }},
          {"v_lshlrev_b32 v30, 2, v0\n  ds_write2st64_b32 v30, v1, v2 offset0:1 offset1:2\n"
           "  s_waitcnt lgkmcnt(0)\n  ds_read2st64_b32 v[10:11], v30 offset0:2 offset1:1",
           [](const inputs& in, int l, u* out) {
             out[0] = in.v[2][l];
             out[1] = in.v[1][l];
           }},
          {"v_lshlrev_b32 v30, 3, v0\n  v_mov_b32 v32, v1\n  v_mov_b32 v33, v2\n"
           "  v_mov_b32 v34, v3\n  v_mov_b32 v35, v4\n"
           "  ds_write2_b64 v30, v[32:33], v[34:35] offset1:64\n  s_waitcnt lgkmcnt(0)\n"
           "  ds_read2_b64 v[10:13], v30 offset0:64 offset1:0",
           [](const inputs& in, int l, u* out) {
             out[0] = in.v[3][l];
             out[1] = in.v[4][l];
             out[2] = in.v[1][l];
             out[3] = in.v[2][l];
           }},
          {"v_lshlrev_b32 v30, 2, v0\n  ds_write_b32 v30, v1\n  s_waitcnt lgkmcnt(0)\n"
           "  ds_read_u8 v10, v30 offset:1\n  ds_read_i8 v11, v30 offset:3\n"
           "  ds_read_u16 v12, v30 offset:2\n  ds_read_i16 v13, v30",
           [](const inputs& in, int l, u* out) {
             const u x = in.v[1][l];
             out[0] = x >> 8 & 255;
             out[1] = static_cast<u>(static_cast<int8_t>(x >> 24));
             out[2] = x >> 16;
             out[3] = static_cast<u>(static_cast<int16_t>(x));
           }},
          {"v_lshlrev_b32 v30, 2, v0\n  ds_write_b32 v30, v1\n  s_waitcnt lgkmcnt(0)\n"
           "  ds_write_b8 v30, v2 offset:1\n  ds_write_b16 v30, v3 offset:2\n"
           "  s_waitcnt lgkmcnt(0)\n  ds_read_b32 v10, v30\n  ds_read_u16_d16_hi v11, v30\n"
           "  ds_read_u8_d16 v12, v30",
           [](const inputs& in, int l, u* out) {
             const u x = (in.v[1][l] & 255) | (in.v[2][l] & 255) << 8 | in.v[3][l] << 16;
             out[0] = x;
             out[1] = (preset[1] & 0xffff) | x << 16;
             out[2] = (preset[2] & 0xffff0000u) | (x & 255);
           }},
          {"v_lshlrev_b32 v30, 2, v0\n  ds_write_b16_d16_hi v30, v1\n"
           "  ds_write_b8_d16_hi v30, v2 offset:2\n  s_waitcnt lgkmcnt(0)\n"
           "  ds_read_u16 v10, v30\n  ds_read_u8 v11, v30 offset:2",
           [](const inputs& in, int l, u* out) {
             out[0] = in.v[1][l] >> 16;
             out[1] = in.v[2][l] >> 16 & 255;
           }},
          {"v_lshlrev_b32 v30, 2, v0\n  ds_write_b32 v30, v1\n  s_waitcnt lgkmcnt(0)\n"
           "  ds_add_rtn_u32 v10, v30, v2\n  ds_max_u32 v30, v3\n"
           "  ds_wrxchg_rtn_b32 v11, v30, v4",
           [](const inputs& in, int l, u* out) {
             out[0] = in.v[1][l];
             out[1] = std::max(in.v[1][l] + in.v[2][l], in.v[3][l]);
           }},
          {"v_mov_b32 v30, 0\n  v_mov_b32 v31, 1\n  ds_write_b32 v30, v30\n"
           "  s_waitcnt lgkmcnt(0)\n  ds_add_u32 v30, v31\n  s_waitcnt lgkmcnt(0)\n"
           "  ds_read_b32 v10, v30",
           [](const inputs&, int, u* out) { out[0] = 64; }},
          {"v_lshlrev_b32 v30, 2, v0\n  ds_write_b32 v30, v1\n  s_waitcnt lgkmcnt(0)\n"
           "  ds_cmpst_rtn_b32 v10, v30, v1, v2\n  ds_cmpst_b32 v30, v1, v3\n"
           "  s_waitcnt lgkmcnt(0)\n  ds_read_b32 v11, v30",
           [](const inputs& in, int l, u* out) {
             out[0] = in.v[1][l];
             out[1] = in.v[2][l] == in.v[1][l] ? in.v[3][l] : in.v[2][l];
           }},
          {"s_mov_b32 m0, 256\n  global_load_lds_dword v20, s[4:5]\n  s_waitcnt vmcnt(0)\n"
           "  v_lshlrev_b32 v30, 2, v0\n  ds_read_b32 v10, v30 offset:256",
           [](const inputs& in, int l, u* out) { out[0] = in.v[1][l]; }},
          {"s_mov_b32 m0, 512\n  s_mov_b64 s[24:25], s[4:5]\n  s_movk_i32 s26, 0x80\n"
           "  s_mov_b32 s27, 0x20000\n  buffer_load_dword v20, s[24:27], 0 offen lds\n"
           "  s_waitcnt vmcnt(0)\n  v_lshlrev_b32 v30, 2, v0\n  ds_read_b32 v10, v30 offset:512",
           [](const inputs& in, int l, u* out) { out[0] = l < 32 ? in.v[1][l] : 0; }},
      },
      input_kind::integers);
}

TEST_CASE("scratch and flat addresses", "[memory]") {
  check_rows(
      {
          {"s_mov_b32 s30, 8\n  scratch_store_dword off, v1, off offset:4\n"
           "  scratch_store_dwordx2 off, v[2:3], s30\n  s_waitcnt vmcnt(0)\n"
           "  scratch_load_dword v10, off, off offset:4\n"
           "  scratch_load_dwordx2 v[12:13], off, s30",
           [](const inputs& in, int l, u* out) {
             out[0] = in.v[1][l];
             out[2] = in.v[2][l];
             out[3] = in.v[3][l];
           }},
          {"v_and_b32 v30, 7, v0\n  v_lshlrev_b32 v30, 2, v30\n  scratch_store_short v30, v1, off\n"
           "  s_waitcnt vmcnt(0)\n  scratch_load_ushort v10, v30, off",
           [](const inputs& in, int l, u* out) { out[0] = in.v[1][l] & 0xffff; }},
          {"s_mov_b64 s[30:31], src_private_base\n  v_mov_b32 v31, s31\n  v_mov_b32 v30, 12\n"
           "  flat_store_dword v[30:31], v1\n  s_waitcnt vmcnt(0) lgkmcnt(0)\n"
           "  scratch_load_dword v10, off, off offset:12",
           [](const inputs& in, int l, u* out) { out[0] = in.v[1][l]; }},
          {"s_mov_b64 s[30:31], src_shared_base\n  v_mov_b32 v31, s31\n"
           "  v_lshlrev_b32 v30, 2, v0\n  flat_store_dword v[30:31], v1\n"
           "  s_waitcnt vmcnt(0) lgkmcnt(0)\n  ds_read_b32 v10, v30",
           [](const inputs& in, int l, u* out) { out[0] = in.v[1][l]; }},
      },
      input_kind::integers);
}

TEST_CASE("global atomics", "[memory]") {
  assembly_module module(kernel_list{
      {"add", start + "  v_mov_b32 v3, 0\n  v_mov_b32 v4, 1\n"
                      "  global_atomic_add v3, v4, s[6:7]\n"},
      {"returns", start + "  v_mov_b32 v3, 0\n  v_mov_b32 v4, 1\n"
                          "  global_atomic_add v5, v3, v4, s[6:7] sc0\n  s_waitcnt vmcnt(0)\n"
                          "  v_lshlrev_b32 v5, 2, v5\n"
                          "  global_store_dword v5, v4, s[4:5]\n"},
      {"float", start + "  v_mov_b32 v3, 0\n  v_mov_b32 v4, 0.5\n"
                        "  global_atomic_add_f32 v3, v4, s[6:7]\n"},
      {"double", start + "  v_mov_b32 v3, 0\n  v_mov_b32 v4, 0\n  v_mov_b32 v5, 0x3fe00000\n"
                         "  global_atomic_add_f64 v3, v[4:5], s[6:7]\n"},
      {"wide", start + "  v_mov_b32 v3, 0\n  v_mov_b32 v4, -1\n  v_mov_b32 v5, 0\n"
                       "  global_atomic_add_x2 v3, v[4:5], s[6:7]\n"},
      {"max", start + "  v_mov_b32 v3, 0\n  global_atomic_smax v3, v0, s[6:7]\n"},
      {"swap", start + "  global_atomic_cmpswap v2, v[10:11], s[6:7]\n"},
  });
  buffer<u> counter(2);
  buffer<u> slots(640);
  const auto reset = [&] { counter[0] = counter[1] = 0; };
  reset();
  REQUIRE(module.launch("add", {slots.get(), counter.get()}, 100) == hipSuccess);
  CHECK(counter[0] == 6400);
  reset();
  std::memset(slots.get(), 0, 640 * 4);
  REQUIRE(module.launch("returns", {slots.get(), counter.get()}, 10) == hipSuccess);
  for (size_t k = 0; k < 640; ++k) CHECK(slots[k] == 1);
  reset();
  REQUIRE(module.launch("float", {slots.get(), counter.get()}, 10) == hipSuccess);
  CHECK(f32(counter[0]) == 320.0f);
  reset();
  REQUIRE(module.launch("double", {slots.get(), counter.get()}, 10) == hipSuccess);
  CHECK(f64(counter[0], counter[1]) == 320.0);
  reset();
  REQUIRE(module.launch("wide", {slots.get(), counter.get()}, 2) == hipSuccess);
  CHECK((counter[0] | static_cast<uint64_t>(counter[1]) << 32) == 128 * 0xffffffffull);
  reset();
  REQUIRE(module.launch("max", {slots.get(), counter.get()}) == hipSuccess);
  CHECK(counter[0] == 63);
  std::memset(slots.get(), 0, 640 * 4);
  REQUIRE(module.launch("swap", {nullptr, slots.get()}) == hipSuccess);
  CHECK(slots[0] == 0);
}
