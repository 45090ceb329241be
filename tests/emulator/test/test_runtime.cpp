// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The HIP API: memory, streams, graphs, launches and the introspection functions.

#include <dlfcn.h>

#include <atomic>
#include <thread>

#include "assembly.hpp"
#include "catch_any.hpp"
#include "emulator.h"

using namespace emulator_test;

namespace {

// out[i] = in[i] + 1, for one wave per workgroup.
const char* const increment = R"(
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_lshl_b32 s8, s2, 6
  v_add_u32 v0, s8, v0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_add_u32 v2, 1, v2
  global_store_dword v1, v2, s[6:7]
)";

}  // namespace

TEST_CASE("device properties in both modes", "[runtime]") {
  hipDeviceProp_t p;
  REQUIRE(hipGetDeviceProperties(&p, 0) == hipSuccess);
  CHECK(std::string(p.gcnArchName) == "gfx942:sramecc+:xnack-");
  CHECK(p.warpSize == 64);
  CHECK(p.multiProcessorCount == 304);
  CHECK(p.sharedMemPerBlock == 65536);
  CHECK(p.major == 9);
  CHECK(p.minor == 4);
  int value = 0;
  CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, 0) == hipSuccess);
  CHECK(value == 304);
  CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 1) == hipErrorInvalidDevice);
  kindex_emulator_set_fp8(1);
  REQUIRE(hipGetDeviceProperties(&p, 0) == hipSuccess);
  kindex_emulator_set_fp8(0);
  CHECK(std::string(p.gcnArchName) == "gfx950:sramecc+:xnack-");
  CHECK(p.minor == 5);
  CHECK(std::string(hipGetErrorString(hipErrorInvalidValue)) == "invalid argument");
  CHECK(std::string(hipGetErrorName(hipErrorNoBinaryForGpu)) == "hipErrorNoBinaryForGpu");
  (void)hipGetLastError();
}

TEST_CASE("allocation is lazy, exact and checked", "[runtime]") {
  void* large = nullptr;
  // Far more than this machine has; only touched pages cost anything.
  REQUIRE(hipMalloc(&large, size_t{20} << 30) == hipSuccess);
  auto* bytes = static_cast<unsigned char*>(large);
  bytes[(size_t{20} << 30) - 1] = 7;
  CHECK(bytes[size_t{9} << 30] == 0);
  hipPointerAttribute_t a;
  CHECK(hipPointerGetAttributes(&a, bytes + 1000) == hipSuccess);
  CHECK(a.devicePointer == bytes + 1000);
  CHECK(hipFree(bytes + 1) == hipErrorInvalidValue);
  CHECK(hipFree(large) == hipSuccess);
  CHECK(hipFree(large) == hipErrorInvalidValue);
  CHECK(hipFree(nullptr) == hipSuccess);
  CHECK(hipMalloc(nullptr, 4) == hipErrorInvalidValue);

  void* small = nullptr;
  REQUIRE(hipMalloc(&small, 100) == hipSuccess);
  char host[200] = {};
  CHECK(hipMemcpy(host, small, 100, hipMemcpyDeviceToHost) == hipSuccess);
  CHECK(hipMemcpy(host, small, 101, hipMemcpyDeviceToHost) == hipErrorInvalidValue);
  CHECK(hipMemcpy(host, host + 100, 50, hipMemcpyHostToDevice) == hipErrorInvalidValue);
  CHECK(hipMemset(small, 1, 101) == hipErrorInvalidValue);
  CHECK(hipMemset(small, 3, 100) == hipSuccess);
  CHECK(hipMemsetD32(small, 0x01020304, 25) == hipSuccess);
  CHECK(static_cast<unsigned char*>(small)[97] == 3);
  CHECK(hipMemcpy2D(host, 20, small, 10, 10, 5, hipMemcpyDeviceToHost) == hipSuccess);
  CHECK(hipFree(small) == hipSuccess);
  (void)hipGetLastError();
}

TEST_CASE("invalid configurations", "[runtime]") {
  assembly_module module(
      kernel_list{{"k", "  s_nop 0\n", 40000}, {"small", "  s_nop 0\n", 0, 0, 256}});
  CHECK(module.launch("k", {}) == hipSuccess);
  CHECK(module.launch("k", {}, 0) == hipErrorInvalidConfiguration);
  CHECK(module.launch("k", {}, 1, 0) == hipErrorInvalidConfiguration);
  CHECK(module.launch("k", {}, 1, 1025) == hipErrorInvalidConfiguration);
  CHECK(module.launch("k", {}, 1, 64, 65536 - 40000) == hipSuccess);
  CHECK(module.launch("k", {}, 1, 64, 65536 - 40000 + 1) == hipErrorInvalidConfiguration);
  CHECK(module.launch("small", {}, 1, 512) == hipErrorInvalidConfiguration);
  hipModule_t none;
  const char junk[64] = "no code object";
  CHECK(hipModuleLoadData(&none, junk) == hipErrorInvalidImage);
  CHECK(hipModuleLoad(&none, "/nonexistent") == hipErrorFileNotFound);
  (void)hipGetLastError();
}

TEST_CASE("capture and replay", "[runtime]") {
  assembly_module module(kernel_list{{"k", increment}});
  buffer<uint32_t> in(64);
  buffer<uint32_t> middle(64);
  buffer<uint32_t> out(64);
  std::vector<uint32_t> host(64, 0);
  hipStream_t stream;
  hipStream_t side;
  REQUIRE(hipStreamCreate(&stream) == hipSuccess);
  REQUIRE(hipStreamCreateWithFlags(&side, hipStreamNonBlocking) == hipSuccess);
  hipStreamCaptureStatus status;
  REQUIRE(hipStreamIsCapturing(stream, &status) == hipSuccess);
  CHECK(status == hipStreamCaptureStatusNone);

  hipEvent_t fork;
  hipEvent_t join;
  REQUIRE(hipEventCreate(&fork) == hipSuccess);
  REQUIRE(hipEventCreate(&join) == hipSuccess);
  REQUIRE(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
  REQUIRE(hipStreamIsCapturing(stream, &status) == hipSuccess);
  CHECK(status == hipStreamCaptureStatusActive);
  for (size_t k = 0; k < 64; ++k) middle[k] = 77;
  REQUIRE(hipMemcpyAsync(middle.get(), in.get(), 256, hipMemcpyDeviceToDevice, stream) ==
          hipSuccess);
  REQUIRE(hipEventRecord(fork, stream) == hipSuccess);
  REQUIRE(hipStreamWaitEvent(side, fork, 0) == hipSuccess);
  REQUIRE(hipMemsetAsync(out.get(), 0, 256, side) == hipSuccess);
  REQUIRE(hipEventRecord(join, side) == hipSuccess);
  REQUIRE(hipStreamWaitEvent(stream, join, 0) == hipSuccess);
  REQUIRE(hipMemcpyAsync(host.data(), middle.get(), 256, hipMemcpyDeviceToHost, stream) ==
          hipSuccess);
  CHECK(middle[0] == 77);  // nothing has run yet
  hipGraph_t graph;
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipSuccess);
  REQUIRE(hipStreamIsCapturing(side, &status) == hipSuccess);
  CHECK(status == hipStreamCaptureStatusNone);
  size_t nodes = 0;
  REQUIRE(hipGraphGetNodes(graph, nullptr, &nodes) == hipSuccess);
  CHECK(nodes == 3);
  hipGraphExec_t exec;
  REQUIRE(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0) == hipSuccess);
  REQUIRE(hipGraphDestroy(graph) == hipSuccess);
  for (uint32_t round = 0; round < 3; ++round) {
    for (size_t k = 0; k < 64; ++k) in[k] = round * 100 + static_cast<uint32_t>(k);
    REQUIRE(hipGraphLaunch(exec, stream) == hipSuccess);
    REQUIRE(hipStreamSynchronize(stream) == hipSuccess);
    CHECK(host[5] == round * 100 + 5);
    CHECK(out[5] == 0);
  }
  REQUIRE(hipGraphExecDestroy(exec) == hipSuccess);

  // What a capture forbids invalidates it.
  REQUIRE(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal) == hipSuccess);
  void* p = nullptr;
  CHECK(hipMalloc(&p, 16) == hipErrorStreamCaptureUnsupported);
  CHECK(hipStreamEndCapture(stream, &graph) == hipErrorStreamCaptureInvalidated);
  REQUIRE(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed) == hipSuccess);
  CHECK(hipStreamSynchronize(stream) == hipErrorStreamCaptureUnsupported);
  CHECK(hipStreamEndCapture(stream, &graph) == hipErrorStreamCaptureInvalidated);
  CHECK(hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal) ==
        hipErrorStreamCaptureUnsupported);
  CHECK(hipStreamEndCapture(stream, &graph) == hipErrorIllegalState);
  REQUIRE(hipEventDestroy(fork) == hipSuccess);
  REQUIRE(hipEventDestroy(join) == hipSuccess);
  REQUIRE(hipStreamDestroy(side) == hipSuccess);
  REQUIRE(hipStreamDestroy(stream) == hipSuccess);
  CHECK(hipStreamSynchronize(stream) == hipErrorInvalidHandle);
  (void)hipGetLastError();
}

TEST_CASE("results do not depend on the number of threads", "[runtime]") {
  assembly_module module(kernel_list{{"k", increment}});
  buffer<uint32_t> in(64 * 500);
  for (uint32_t k = 0; k < 64 * 500; ++k) in[k] = k * 3;
  std::vector<std::vector<uint32_t>> results;
  std::vector<struct kindex_emulator_counters> counters;
  for (int threads : {1, 2, 7}) {
    kindex_emulator_threads(threads);
    kindex_emulator_counters_reset();
    buffer<uint32_t> out(64 * 500);
    REQUIRE(module.launch("k", {in.get(), out.get()}, 500) == hipSuccess);
    results.push_back(out.copy());
    struct kindex_emulator_counters c;
    kindex_emulator_counters(&c);
    counters.push_back(c);
  }
  kindex_emulator_threads(0);
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
  CHECK(results[0][640] == 640 * 3 + 1);
  CHECK(std::memcmp(&counters[0], &counters[2], sizeof counters[0]) == 0);
}

TEST_CASE("several host threads launch at once", "[runtime]") {
  assembly_module module(kernel_list{{"k", increment}});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      buffer<uint32_t> in(64 * 20);
      buffer<uint32_t> out(64 * 20);
      for (int round = 0; round < 10; ++round) {
        for (uint32_t k = 0; k < 64 * 20; ++k) in[k] = t * 1000000 + k;
        hipStream_t stream;
        if (hipStreamCreate(&stream) != hipSuccess) ++wrong;
        if (module.launch("k", {in.get(), out.get()}, 20) != hipSuccess) ++wrong;
        for (uint32_t k = 0; k < 64 * 20; ++k) wrong += out[k] != t * 1000000 + k + 1;
        if (hipStreamDestroy(stream) != hipSuccess) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("counters", "[runtime]") {
  assembly_module module(kernel_list{{"k", increment},
                                     {"strided", R"(
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 7, v0
  v_lshlrev_b32 v3, 7, v0
  s_nop 3
  s_waitcnt lgkmcnt(0)
  global_load_dwordx2 v[4:5], v1, s[4:5]
  ds_write_b32 v3, v0
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_exp_f32 v6, v4
  v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[4:5], v[4:5], 0
  s_barrier
)",
                                      8192}});
  buffer<uint32_t> in(64 * 32);
  buffer<uint32_t> out(64 * 32);
  kindex_emulator_counters_reset();
  struct kindex_emulator_counters c;
  REQUIRE(module.launch("k", {in.get(), out.get()}, 10) == hipSuccess);
  kindex_emulator_counters(&c);
  CHECK(c.launches == 1);
  CHECK(c.workgroups == 10);
  CHECK(c.waves == 10);
  CHECK(c.wave_instructions == 100);
  CHECK(c.valu == 30);
  CHECK(c.salu == 10);
  CHECK(c.vector_loads == 10);
  CHECK(c.vector_stores == 10);
  CHECK(c.smem == 10);
  CHECK(c.waitcnt == 20);
  CHECK(c.other == 10);
  CHECK(c.lane_bytes_loaded == 2560);
  CHECK(c.segments_loaded == 40);
  CHECK(c.distinct_bytes_loaded == 2560);
  CHECK(c.lane_bytes_stored == 2560);
  CHECK(c.segments_stored == 40);
  CHECK(c.loads_by_width[2] == 10);

  kindex_emulator_counters_reset();
  const int id = kindex_emulator_watch(in.get(), 1024);
  REQUIRE(id >= 0);
  REQUIRE(module.launch("strided", {in.get(), out.get()}) == hipSuccess);
  kindex_emulator_counters(&c);
  CHECK(c.nop == 1);
  CHECK(c.transcendental == 1);
  CHECK(c.mfma == 1);
  CHECK(c.mfma_flops == 2 * 16 * 16 * 32);
  CHECK(c.mfma_cycles == 16);
  CHECK(c.lds_ops == 1);
  CHECK(c.lds_ideal_cycles == 2);
  CHECK(c.lds_cycles == 64);  // every lane in the same bank
  CHECK(c.barriers == 1);
  CHECK(c.segments_loaded == 64);
  CHECK(c.lane_bytes_loaded == 512);
  CHECK(c.loads_by_width[3] == 1);
  CHECK(c.max_lds_bytes == 8192);
  CHECK(c.last_vgprs == 256);
  struct kindex_emulator_traffic t;
  REQUIRE(kindex_emulator_watch_read(id, &t) == 0);
  // 8 of the 64 lanes lie in the first 1024 bytes.
  CHECK(t.loads == 1);
  CHECK(t.lane_bytes_loaded == 64);
  CHECK(t.segments_loaded == 8);
  CHECK(t.stores == 0);
  kindex_emulator_unwatch(id);
  CHECK(kindex_emulator_watch_read(id, &t) == -1);
  CHECK(kindex_emulator_version() == KINDEX_EMULATOR_VERSION);
}

TEST_CASE("the C interface is found at run time", "[runtime]") {
  CHECK(dlsym(RTLD_DEFAULT, "kindex_emulator_counters") != nullptr);
  CHECK(dlsym(RTLD_DEFAULT, "kindex_emulator_expect_findings") != nullptr);
}
