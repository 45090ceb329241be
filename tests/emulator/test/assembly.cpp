// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "assembly.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "catch_any.hpp"

namespace emulator_test {
namespace {

std::string temporary_path() {
  char name[] = "/tmp/kindex-emulator-test-XXXXXX";
  const int fd = mkstemp(name);
  REQUIRE(fd >= 0);
  std::fclose(fdopen(fd, "w"));
  return name;
}

void write_kernel(std::ostream& out, const assembly_kernel& k) {
  out << ".text\n.globl " << k.name << "\n.p2align 8\n.type " << k.name << ",@function\n"
      << k.name << ":\n"
      << k.body << "\n  s_endpgm\n"
      << ".L" << k.name << "_end:\n.size " << k.name << ", .L" << k.name << "_end-" << k.name
      << "\n.rodata\n.p2align 6\n.amdhsa_kernel " << k.name
      << "\n  .amdhsa_group_segment_fixed_size " << k.lds
      << "\n  .amdhsa_private_segment_fixed_size " << k.scratch
      << "\n  .amdhsa_user_sgpr_kernarg_segment_ptr 1"
         "\n  .amdhsa_next_free_vgpr 512\n  .amdhsa_accum_offset 256"
         "\n  .amdhsa_float_denorm_mode_32 3"
         "\n  .amdhsa_next_free_sgpr 96\n  .amdhsa_system_vgpr_workitem_id 0"
         "\n.end_amdhsa_kernel\n";
}

void write_metadata(std::ostream& out, const assembly_kernel& k) {
  out << "  - .name: " << k.name << "\n    .symbol: " << k.name
      << ".kd\n    .kernarg_segment_size: 32\n    .kernarg_segment_align: 8"
         "\n    .group_segment_fixed_size: "
      << k.lds << "\n    .private_segment_fixed_size: " << k.scratch
      << "\n    .wavefront_size: 64\n    .sgpr_count: 96\n    .vgpr_count: 512"
         "\n    .max_flat_workgroup_size: "
      << k.max_block << "\n    .args:\n";
  for (int a = 0; a < 4; ++a) {
    out << "      - .offset: " << 8 * a
        << "\n        .size: 8\n        .value_kind: global_buffer"
           "\n        .address_space: global\n";
  }
}

std::string prologue() {
  std::string s =
      "  s_load_dwordx4 s[4:7], s[0:1], 0x0\n"
      "  s_load_dwordx2 s[8:9], s[0:1], 0x10\n"
      "  v_lshlrev_b32 v20, 2, v0\n"
      "  s_waitcnt lgkmcnt(0)\n"
      "  s_load_dwordx8 s[16:23], s[8:9], 0x0\n";
  for (int k = 1; k <= 6; ++k) {
    s += "  global_load_dword v" + std::to_string(k) +
         ", v20, s[4:5] offset:" + std::to_string(256 * (k - 1)) + "\n";
  }
  char line[64];
  for (int k = 0; k < 4; ++k) {
    std::snprintf(line, sizeof line, "  v_mov_b32 v%d, 0x%x\n", 10 + k, preset[k]);
    s += line;
  }
  return s + "  s_waitcnt vmcnt(0) lgkmcnt(0)\n";
}

std::string epilogue() {
  std::string s = "\n  s_waitcnt vmcnt(0) lgkmcnt(0)\n  s_mov_b64 exec, -1\n";
  for (int k = 0; k < 4; ++k) {
    s += "  global_store_dword v20, v" + std::to_string(10 + k) +
         ", s[6:7] offset:" + std::to_string(256 * k) + "\n";
  }
  return s;
}

bool same(uint32_t a, uint32_t b, compare how) {
  if (a == b) return true;
  if (how == compare::f32) return std::isnan(f32(a)) && std::isnan(f32(b));
  if (how == compare::f16) {
    const auto equal = [](uint32_t x, uint32_t y) {
      return (x & 0xffff) == (y & 0xffff) || (std::isnan(f16(x)) && std::isnan(f16(y)));
    };
    return equal(a, b) && equal(a >> 16, b >> 16);
  }
  return false;
}

}  // namespace

assembly_module::assembly_module(const kernel_list& kernels) {
  std::ostringstream source;
  source << ".amdgcn_target \"amdgcn-amd-amdhsa--gfx942\"\n.amdhsa_code_object_version 5\n";
  for (const assembly_kernel& k : kernels) write_kernel(source, k);
  source << ".amdgpu_metadata\n---\namdhsa.version: [ 1, 2 ]\namdhsa.kernels:\n";
  for (const assembly_kernel& k : kernels) write_metadata(source, k);
  source << "...\n.end_amdgpu_metadata\n";

  const std::string base = temporary_path();
  std::ofstream(base + ".s") << source.str();
  const std::string command = std::string(KINDEX_TEST_CLANG) +
                              " -x assembler -target amdgcn-amd-amdhsa -mcpu=gfx942 " + base +
                              ".s -o " + base + ".co";
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
  std::ifstream file(base + ".co", std::ios::binary);
  const std::vector<char> image((std::istreambuf_iterator<char>(file)),
                                std::istreambuf_iterator<char>());
  std::remove(base.c_str());
  std::remove((base + ".s").c_str());
  std::remove((base + ".co").c_str());
  REQUIRE(hipModuleLoadData(&module_, image.data()) == hipSuccess);
}

assembly_module::~assembly_module() { (void)hipModuleUnload(module_); }

hipError_t assembly_module::launch(const std::string& name, std::vector<void*> pointers,
                                   unsigned blocks, unsigned threads, unsigned lds) {
  hipFunction_t function;
  const hipError_t found = hipModuleGetFunction(&function, module_, name.c_str());
  if (found != hipSuccess) return found;
  pointers.resize(4, nullptr);
  std::vector<void*> arguments;
  for (void*& p : pointers) arguments.push_back(&p);
  const hipError_t error = hipModuleLaunchKernel(function, blocks, 1, 1, threads, 1, 1, lds,
                                                 nullptr, arguments.data(), nullptr);
  (void)hipGetLastError();
  return error;
}

inputs make_inputs(input_kind kind, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> real(-100.0f, 100.0f);
  const float special[] = {0.0f,      -0.0f,    1.0f,          -1.0f,     INFINITY, -INFINITY,
                           NAN,       0.5f,     -0.5f,         1.5f,      2.5f,     1e-40f,
                           -1e-40f,   65504.0f, 0x1p-126f,     3.4e38f,   1e30f,    -1e30f,
                           0x1p-149f, 16777216, 0.9999999404f, 1.0000001f};
  constexpr int specials = sizeof special / sizeof special[0];
  const uint32_t whole[] = {0, 1, 2, 31, 32, 0x7fffffff, 0x80000000u, 0xffffffffu, 0xffff, 0x10000};
  inputs in = {};
  for (int k = 1; k <= 6; ++k) {
    for (int l = 0; l < 64; ++l) {
      uint32_t x = random();
      switch (kind) {
        case input_kind::integers:
          if (l >= 40 && l < 60) x = whole[random() % 10];
          break;
        case input_kind::floats:
          if (l < 20) {
            x = u32(real(random));
          } else if (l < 54) {
            x = u32(special[random() % specials]);
          }
          break;
        case input_kind::small_floats:
          x = u32(real(random) / 16);
          break;
        case input_kind::doubles:
          // Odd registers are high halves.
          if (k % 2 == 0) {
            const double d = l < 40 ? static_cast<double>(real(random)) * 1.1
                                    : static_cast<double>(special[random() % specials]);
            in.v[k - 1][l] = static_cast<uint32_t>(bits<uint64_t>(d));
            x = static_cast<uint32_t>(bits<uint64_t>(d) >> 32);
          }
          break;
        case input_kind::halves:
          if (l < 32) x = h16(real(random) / 8) | h16(real(random) / 8) << 16;
          break;
      }
      in.v[k][l] = x;
    }
  }
  for (int k = 16; k < 24; ++k) {
    in.s[k] = kind == input_kind::integers ? static_cast<uint32_t>(random()) : u32(real(random));
  }
  return in;
}

void check_rows(const std::vector<row>& rows, input_kind kind, compare how) {
  std::vector<assembly_kernel> kernels;
  for (size_t k = 0; k < rows.size(); ++k) {
    assembly_kernel kernel;
    kernel.name = "row" + std::to_string(k);
    kernel.body = prologue() + "  " + rows[k].text + epilogue();
    kernel.lds = 4096;
    kernel.scratch = 64;
    kernels.push_back(kernel);
  }
  assembly_module module(kernels);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const inputs in = make_inputs(kind, seed);
    buffer<uint32_t> vectors(6 * 64);
    std::memcpy(vectors.get(), in.v[1], 6 * 64 * 4);
    buffer<uint32_t> scalars(8);
    std::memcpy(scalars.get(), &in.s[16], 32);
    for (size_t k = 0; k < rows.size(); ++k) {
      INFO(rows[k].text << " seed " << seed);
      buffer<uint32_t> out(4 * 64);
      REQUIRE(module.launch(kernels[k].name, {vectors.get(), out.get(), scalars.get()}) ==
              hipSuccess);
      int wrong = 0;
      std::ostringstream first;
      for (int l = 0; l < 64; ++l) {
        uint32_t expected[4];
        std::memcpy(expected, preset, sizeof expected);
        rows[k].expect(in, l, expected);
        bool equal;
        const auto got = [&](int r) { return out[static_cast<size_t>(64 * r + l)]; };
        if (how == compare::f64) {
          const double a = f64(got(0), got(1));
          const double b = f64(expected[0], expected[1]);
          equal =
              (got(0) == expected[0] && got(1) == expected[1]) || (std::isnan(a) && std::isnan(b));
        } else {
          equal = true;
          for (int r = 0; r < 4; ++r) equal = equal && same(got(r), expected[r], how);
        }
        if (!equal && wrong++ == 0) {
          first << std::hex << "lane " << l << ": got " << got(0) << " " << got(1) << " " << got(2)
                << " " << got(3) << ", expected " << expected[0] << " " << expected[1] << " "
                << expected[2] << " " << expected[3] << "; v1 " << in.v[1][l] << " v2 "
                << in.v[2][l] << " v3 " << in.v[3][l];
        }
      }
      INFO(first.str());
      CHECK(wrong == 0);
    }
  }
}

}  // namespace emulator_test
