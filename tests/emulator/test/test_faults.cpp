// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Planted bugs: each is found, named, and fails its launch; the same kernel without it passes.

#include "assembly.hpp"
#include "catch_any.hpp"
#include "emulator.h"

using namespace emulator_test;

namespace {

const std::string start =
    "  s_load_dwordx4 s[4:7], s[0:1], 0x0\n  v_lshlrev_b32 v1, 4, v0\n"
    "  v_lshlrev_b32 v2, 2, v0\n  s_waitcnt lgkmcnt(0)\n";

struct quiet {
  quiet() { kindex_emulator_expect_findings(1); }
  ~quiet() { kindex_emulator_expect_findings(0); }
};

std::string last_finding() {
  char text[1024];
  kindex_emulator_last_finding(text, sizeof text);
  return text;
}

void check_found(assembly_module& module, const std::string& kernel, std::vector<void*> pointers,
                 std::vector<std::string> words, hipError_t error = hipErrorLaunchFailure,
                 unsigned threads = 64) {
  const quiet q;
  INFO(kernel);
  const uint64_t before = kindex_emulator_findings();
  CHECK(module.launch(kernel, pointers, 1, threads) == error);
  CHECK(kindex_emulator_findings() > before);
  const std::string text = last_finding();
  INFO(text);
  words.insert(words.end(), {kernel, "pc 0x", "workgroup (0,0,0)", "wave "});
  for (const std::string& word : words) CHECK(text.find(word) != std::string::npos);
}

}  // namespace

TEST_CASE("global accesses out of bounds, by one byte", "[faults]") {
  assembly_module module(kernel_list{
      {"load_byte", start + "  global_load_ubyte v3, v0, s[4:5] offset:1\n"},
      {"load_byte_before", start + "  global_load_ubyte v3, v0, s[4:5] offset:-1\n"},
      {"store_byte", start + "  global_store_byte v0, v1, s[6:7] offset:1\n"},
      {"store_byte_before", start + "  global_store_byte v0, v1, s[6:7] offset:-1\n"},
      {"load_ok", start + "  global_load_ubyte v3, v0, s[4:5]\n"},
      {"load_wide", start + "  global_load_dwordx4 v[4:7], v1, s[4:5]\n"},
      {"scalar", start + "  s_load_dword s8, s[4:5], 0x40\n"},
      {"null", "  v_mov_b32 v2, 0\n  v_mov_b32 v3, 0\n  global_load_dword v4, v[2:3], off\n"},
      {"atomic", start + "  v_mov_b32 v3, 64\n  global_atomic_add v3, v0, s[6:7]\n"},
  });
  buffer<uint8_t> in(64);
  buffer<uint8_t> out(64);
  buffer<uint8_t> odd(1023);
  CHECK(module.launch("load_ok", {in.get(), out.get()}) == hipSuccess);
  check_found(module, "load_byte", {in.get(), out.get()},
              {"global load out of bounds", "1 bytes", "0 bytes past the end of a buffer of 64",
               "lane 63", "global_load_ubyte"});
  check_found(module, "load_byte_before", {in.get(), out.get()},
              {"global load out of bounds", "lane 0"});
  check_found(module, "store_byte", {in.get(), out.get()},
              {"global store out of bounds", "lane 63", "global_store_byte"});
  check_found(module, "store_byte_before", {in.get(), out.get()},
              {"global store out of bounds", "lane 0"});
  // The last lane's last byte is one too many.
  check_found(module, "load_wide", {odd.get(), out.get()},
              {"global load out of bounds", "16 bytes", "lane 63", "starts at byte 1008"});
  check_found(module, "scalar", {in.get(), out.get()},
              {"global load out of bounds", "4 bytes", "s_load_dword"});
  check_found(module, "null", {}, {"global load out of bounds", "near the null pointer"});
  check_found(module, "atomic", {in.get(), out.get()}, {"global store out of bounds"});
}

TEST_CASE("use after free, and host memory", "[faults]") {
  assembly_module module(kernel_list{{"load", start + "  global_load_dword v3, v2, s[4:5]\n"}});
  void* gone;
  REQUIRE(hipMalloc(&gone, 256) == hipSuccess);
  REQUIRE(module.launch("load", {gone}) == hipSuccess);
  REQUIRE(hipFree(gone) == hipSuccess);
  check_found(module, "load", {gone}, {"use after free", "freed buffer of 256 bytes", "lane 0"});
  std::vector<uint32_t> host(64);
  check_found(module, "load", {host.data()}, {"global load out of bounds"});
  REQUIRE(hipHostRegister(host.data(), 256, 0) == hipSuccess);
  CHECK(module.launch("load", {host.data()}) == hipSuccess);
  REQUIRE(hipHostUnregister(host.data()) == hipSuccess);
}

TEST_CASE("LDS out of bounds and misaligned", "[faults]") {
  const std::string body = "  v_lshlrev_b32 v2, 2, v0\n  v_mov_b32 v4, 0\n  v_mov_b32 v5, 0\n";
  assembly_module module(kernel_list{
      {"inside", body + "  ds_write_b32 v2, v0\n", 256},
      {"store", body + "  ds_write_b32 v2, v0 offset:4\n", 256},
      {"load", body + "  ds_read_b32 v3, v2 offset:4\n", 256},
      {"one_byte", body + "  ds_write_b8 v2, v0 offset:3\n", 255},
      {"atomic", body + "  ds_add_u32 v2, v0 offset:4\n", 256},
      {"wide", body + "  ds_read_b64 v[4:5], v2\n", 1024},
      {"wider", body + "  v_lshlrev_b32 v2, 3, v0\n  ds_read_b128 v[4:7], v2\n", 4096},
      {"odd", body + "  ds_read_b32 v3, v0\n", 1024},
  });
  CHECK(module.launch("inside", {}) == hipSuccess);
  check_found(module, "store", {}, {"LDS store out of bounds", "256 of 256", "lane 63"});
  check_found(module, "load", {}, {"LDS load out of bounds", "256 of 256", "lane 63"});
  check_found(module, "one_byte", {}, {"LDS store out of bounds", "255 of 255", "lane 63"});
  check_found(module, "atomic", {}, {"LDS store out of bounds", "lane 63"});
  check_found(module, "wide", {}, {"misaligned LDS access", "8 bytes at 4", "lane 1"});
  check_found(module, "wider", {}, {"misaligned LDS access", "16 bytes at 8", "lane 1"});
  check_found(module, "odd", {}, {"misaligned LDS access", "4 bytes at 1", "lane 1"});
}

TEST_CASE("misaligned global accesses", "[faults]") {
  assembly_module module(kernel_list{
      {"dword", start + "  global_load_dword v3, v2, s[4:5] offset:2\n"},
      {"wide", start + "  global_load_dwordx4 v[4:7], v1, s[4:5] offset:4\n"},
      {"half", start + "  global_store_short v2, v0, s[4:5] offset:1\n"},
      {"atomic", start + "  v_mov_b32 v3, 4\n  v_mov_b32 v4, 0\n  v_mov_b32 v5, 0\n"
                         "  global_atomic_add_x2 v3, v[4:5], s[4:5]\n"},
  });
  buffer<uint8_t> data(2048);
  CHECK(module.launch("dword", {data.get()}) == hipSuccess);
  setenv("KINDEX_EMULATOR_ALIGNED", "1", 1);
  // Wider accesses need the alignment of a dword only.
  CHECK(module.launch("wide", {data.get()}) == hipSuccess);
  check_found(module, "dword", {data.get()}, {"misaligned global access", "4 bytes", "lane 0"});
  check_found(module, "half", {data.get()}, {"misaligned global access", "2 bytes"});
  check_found(module, "atomic", {data.get()}, {"misaligned global atomic", "8 bytes"});
  unsetenv("KINDEX_EMULATOR_ALIGNED");
}

TEST_CASE("LDS races between barriers", "[faults]") {
  const std::string body =
      "  v_lshlrev_b32 v2, 2, v0\n  v_sub_u32 v3, 508, v2\n  ds_write_b32 v2, v0\n";
  const std::string other_wave = "  v_lshrrev_b32 v4, 6, v0\n  v_lshlrev_b32 v4, 1, v4\n";
  assembly_module module(kernel_list{
      {"race", body + "  s_waitcnt lgkmcnt(0)\n  ds_read_b32 v5, v3\n", 512},
      {"fine", body + "  s_waitcnt lgkmcnt(0)\n  s_barrier\n  ds_read_b32 v5, v3\n", 512},
      {"early", body + "  s_barrier\n  ds_read_b32 v5, v3\n", 512},
      {"write_write", "  v_and_b32 v2, 63, v0\n  v_lshlrev_b32 v2, 2, v2\n  ds_write_b32 v2, v0\n",
       512},
      {"read_write",
       "  v_lshlrev_b32 v2, 2, v0\n  v_sub_u32 v3, 508, v2\n"
       "  ds_read_b32 v5, v3\n  s_waitcnt lgkmcnt(0)\n  ds_write_b32 v2, v0\n",
       512},
      // Two waves write different halves of one dword: no race.
      {"halves", other_wave + "  ds_write_b16 v4, v0\n", 64},
      {"halves_race",
       other_wave + "  ds_write_b16 v4, v0\n  v_mov_b32 v5, 0\n"
                    "  s_waitcnt lgkmcnt(0)\n  ds_read_b32 v6, v5\n",
       64},
      // Atomics of several waves on one place are no race, a plain read of it is.
      {"atomics", "  v_mov_b32 v2, 0\n  v_mov_b32 v3, 1\n  ds_add_u32 v2, v3\n", 64},
      {"atomic_read",
       "  v_mov_b32 v2, 0\n  v_mov_b32 v3, 1\n  ds_add_u32 v2, v3\n"
       "  s_waitcnt lgkmcnt(0)\n  ds_read_b32 v4, v2\n",
       64},
  });
  for (const char* ok : {"fine", "halves", "atomics"}) {
    INFO(ok);
    CHECK(module.launch(ok, {}, 1, 128) == hipSuccess);
  }
  const auto found = [&](const char* kernel, std::vector<std::string> words) {
    words.push_back("LDS race");
    check_found(module, kernel, {}, words, hipErrorLaunchFailure, 128);
  };
  found("race", {"without a barrier"});
  found("early", {"without a barrier", "ds_read_b32"});
  found("write_write", {"written, and written by wave 0", "wave 1"});
  found("read_write", {"without a barrier"});
  found("halves_race", {"LDS race: byte 2", "without a barrier"});
  found("atomic_read", {"without a barrier"});
  // One wave is its own barrier.
  CHECK(module.launch("race", {}, 1, 64) == hipSuccess);
}

TEST_CASE("registers used before s_waitcnt", "[faults]") {
  assembly_module module(kernel_list{
      {"vector", start + "  global_load_dword v3, v2, s[4:5]\n  v_add_u32 v4, 1, v3\n"},
      {"stored", start + "  global_load_dword v3, v2, s[4:5]\n"
                         "  global_store_dword v2, v3, s[6:7]\n"},
      {"overwritten", start + "  global_load_dword v3, v2, s[4:5]\n  v_mov_b32 v3, 0\n"},
      {"second", start + "  global_load_dword v3, v2, s[4:5]\n"
                         "  global_load_dword v4, v2, s[4:5]\n  s_waitcnt vmcnt(1)\n"
                         "  v_add_u32 v5, v3, v3\n  v_add_u32 v5, v4, v4\n"},
      {"counted", start + "  global_load_dword v3, v2, s[4:5]\n"
                          "  global_load_dword v4, v2, s[4:5]\n  s_waitcnt vmcnt(1)\n"
                          "  v_add_u32 v5, v3, v3\n  s_waitcnt vmcnt(0)\n  v_add_u32 v5, v4, v4\n"},
      {"scalar", start + "  s_load_dword s8, s[4:5], 0x0\n  s_add_u32 s9, s8, 1\n"},
      {"scalar_order", start + "  s_load_dword s8, s[4:5], 0x0\n  s_load_dword s9, s[4:5], 0x4\n"
                               "  s_waitcnt lgkmcnt(1)\n  s_add_u32 s10, s8, 1\n"},
      {"lds", start + "  ds_read_b32 v3, v2\n  v_add_u32 v4, 1, v3\n", 256},
      {"matrix", start + "  global_load_dwordx2 v[4:5], v2, s[4:5]\n"
                         "  v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[4:5], v[4:5], 0\n"},
      {"flat", start + "  v_mov_b32 v4, s4\n  v_mov_b32 v5, s5\n  flat_load_dword v3, v[4:5]\n"
                       "  s_waitcnt vmcnt(0)\n  v_add_u32 v4, 1, v3\n"},
      {"source", start + "  global_store_dword v2, v0, s[6:7]\n  v_mov_b32 v0, 0\n"},
      {"again", start + "  global_load_dword v3, v2, s[4:5]\n  global_load_dword v3, v2, s[4:5]\n"
                        "  s_waitcnt vmcnt(0)\n  v_add_u32 v4, 1, v3\n"},
  });
  buffer<uint32_t> in(128);
  buffer<uint32_t> out(128);
  const std::vector<void*> p = {in.get(), out.get()};
  for (const char* ok : {"counted", "source", "again"}) {
    INFO(ok);
    CHECK(module.launch(ok, p) == hipSuccess);
  }
  const std::string words = "used before the s_waitcnt that makes it valid";
  check_found(module, "vector", p, {"register v3 " + words, "v_add_u32"});
  check_found(module, "stored", p, {"register v3 " + words, "global_store_dword"});
  check_found(module, "overwritten", p, {"register v3 " + words, "v_mov_b32"});
  check_found(module, "second", p, {"register v4 " + words});
  check_found(module, "scalar", p, {"register s8 " + words, "s_add_u32"});
  check_found(module, "scalar_order", p, {"register s8 " + words});
  check_found(module, "lds", p, {"register v3 " + words});
  check_found(module, "matrix", p, {"register v4 " + words, "v_mfma"});
  check_found(module, "flat", p, {"register v3 " + words});
}

TEST_CASE("what is not emulated is said", "[faults]") {
  assembly_module module(kernel_list{
      {"unknown", "  v_cubeid_f32 v1, v2, v3, v4\n"},
      {"modifier", "  v_mul_lo_u16_e64 v1, v2, v3\n  v_mad_u32_u24 v1, v2, v3, v4 clamp\n"},
      {"skipped", "  s_branch over\n  v_cubeid_f32 v1, v2, v3, v4\nover:\n  s_nop 0\n"},
      {"rounding", "  s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3\n"},
      {"trap", "  s_trap 2\n"},
      {"endless", "forever:\n  s_nop 0\n  s_branch forever\n"},
      {"scratch", "  scratch_store_dword off, v0, off offset:64\n", 0, 64},
  });
  check_found(module, "unknown", {}, {"unsupported instruction", "v_cubeid_f32"},
              hipErrorNotSupported);
  check_found(module, "modifier", {}, {"unsupported instruction", "clamp"}, hipErrorNotSupported);
  check_found(module, "rounding", {}, {"rounding mode"}, hipErrorNotSupported);
  check_found(module, "trap", {}, {"s_trap"});
  check_found(module, "scratch", {}, {"scratch store out of bounds", "64 of 64"});
  CHECK(module.launch("skipped", {}) == hipSuccess);
  setenv("KINDEX_EMULATOR_LIMIT", "1000", 1);
  check_found(module, "endless", {}, {"endless loop"});
  unsetenv("KINDEX_EMULATOR_LIMIT");
}

TEST_CASE("findings are sticky until the error is read", "[faults]") {
  assembly_module module(kernel_list{{"trap", "  s_trap 2\n"}});
  const quiet q;
  CHECK(module.launch("trap", {}) == hipErrorLaunchFailure);  // reads the error
  CHECK(hipDeviceSynchronize() == hipSuccess);
  CHECK(hipGetLastError() == hipSuccess);
}
