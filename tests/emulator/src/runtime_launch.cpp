// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Fat binaries, modules, kernel launches and device symbols.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "runtime.hpp"

namespace kindex::emulator {
namespace {

constexpr char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr size_t bundle_magic_size = sizeof bundle_magic - 1;
constexpr char compressed_magic[] = "CCOB";
constexpr uint32_t wrapper_magic = 0x48495046;  // "HIPF"

// One registered fat binary; its code object is loaded when something in it is first used.
struct fat_binary {
  const uint8_t* data = nullptr;
  size_t size = 0;
  std::once_flag once;
  std::unique_ptr<code_object> object;
  hipError_t error = hipErrorNoBinaryForGpu;

  code_object* load();
};

struct host_symbol {
  fat_binary* binary = nullptr;
  std::string name;
  size_t size = 0;
};

struct registry {
  std::mutex mutex;
  std::map<const void*, host_symbol> functions;
  std::map<const void*, host_symbol> variables;
  std::vector<code_object*> objects;
};

registry& global() {
  static registry* const instance = new registry;
  return *instance;
}

bool is_gfx942(const std::string& triple) { return triple.find("gfx942") != std::string::npos; }

// The gfx942 entry of an offload bundle. Null when there is none.
const uint8_t* find_in_bundle(const uint8_t* bundle, uint64_t* size, std::string* others) {
  uint64_t count;
  std::memcpy(&count, bundle + bundle_magic_size, 8);
  const uint8_t* at = bundle + bundle_magic_size + 8;
  for (uint64_t k = 0; k < count; ++k) {
    uint64_t header[3];
    std::memcpy(header, at, sizeof header);
    const std::string triple(reinterpret_cast<const char*>(at) + sizeof header, header[2]);
    at += sizeof header + header[2];
    if (is_gfx942(triple) && header[1]) {
      *size = header[1];
      return bundle + header[0];
    }
    if (triple.compare(0, 4, "host") != 0) *others += " " + triple;
  }
  return nullptr;
}

// An ELF file does not say how long it is: the section headers are its end.
size_t elf_size(const uint8_t* data) {
  uint64_t sections;
  uint16_t entry_size;
  uint16_t count;
  std::memcpy(&sections, data + 40, 8);
  std::memcpy(&entry_size, data + 58, 2);
  std::memcpy(&count, data + 60, 2);
  return sections + static_cast<size_t>(entry_size) * count;
}

// From a bundle or a bare code object to a loaded one.
std::unique_ptr<code_object> load_image(const void* image, size_t size, hipError_t* error) {
  const uint8_t* data = static_cast<const uint8_t*>(image);
  uint64_t bytes = size;
  std::string message;
  *error = hipErrorInvalidImage;
  if (std::memcmp(data, compressed_magic, 4) == 0) {
    std::fprintf(stderr,
                 "kindex emulator: compressed offload bundle; build with "
                 "--no-offload-compress\n");
    return nullptr;
  }
  if (std::memcmp(data, bundle_magic, bundle_magic_size) == 0) {
    std::string others;
    data = find_in_bundle(data, &bytes, &others);
    if (!data) {
      std::fprintf(stderr, "kindex emulator: no gfx942 code in this fat binary, only%s\n",
                   others.empty() ? " host code" : others.c_str());
      *error = hipErrorNoBinaryForGpu;
      return nullptr;
    }
  } else if (std::memcmp(data, "\177ELF", 4) != 0) {
    std::fprintf(stderr, "kindex emulator: neither an offload bundle nor a code object\n");
    return nullptr;
  }
  if (bytes == 0) bytes = elf_size(data);
  auto object = code_object::load(data, bytes, &message);
  if (!object) {
    std::fprintf(stderr, "kindex emulator: %s\n", message.c_str());
    *error = hipErrorNoBinaryForGpu;
    return nullptr;
  }
  registry& r = global();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.objects.push_back(object.get());
  *error = hipSuccess;
  return object;
}

code_object* fat_binary::load() {
  std::call_once(once, [this] { object = load_image(data, size, &error); });
  return object.get();
}

hipError_t find_variable(const void* symbol, void** address, size_t* size) {
  host_symbol found;
  {
    registry& r = global();
    const std::lock_guard<std::mutex> lock(r.mutex);
    const auto it = r.variables.find(symbol);
    if (it == r.variables.end()) return hipErrorInvalidSymbol;
    found = it->second;
  }
  code_object* object = found.binary->load();
  if (!object) return found.binary->error;
  return object->find_variable(found.name, address, size) ? hipSuccess : hipErrorInvalidSymbol;
}

hipError_t copy_symbol(const void* symbol, void* to, const void* from, size_t bytes, size_t offset,
                       bool to_symbol, hipStream_t stream) {
  void* address;
  size_t size;
  if (const hipError_t error = find_variable(symbol, &address, &size)) return fail(error);
  if (offset + bytes > size || (!to && !to_symbol) || (!from && to_symbol)) {
    return fail(hipErrorInvalidValue);
  }
  char* place = static_cast<char*>(address) + offset;
  return result(submit(stream, hipGraphNodeTypeMemcpy, [=]() -> hipError_t {
    std::memcpy(to_symbol ? place : to, to_symbol ? from : place, bytes);
    return hipSuccess;
  }));
}

struct call_configuration {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  hipStream_t stream = nullptr;
};
thread_local std::vector<call_configuration> configurations;

launch_request make_request(code_object* object, const std::string& name, const uint32_t grid[3],
                            const uint32_t block[3], size_t shared) {
  launch_request r;
  r.object = object;
  r.kernel = name;
  std::copy(grid, grid + 3, r.grid);
  std::copy(block, block + 3, r.block);
  r.dynamic_lds = static_cast<uint32_t>(std::min<size_t>(shared, 0x7fffffff));
  return r;
}

hipError_t to_error(launch_status status) {
  switch (status) {
    case launch_status::success:
      return hipSuccess;
    case launch_status::invalid_configuration:
      return hipErrorInvalidConfiguration;
    case launch_status::not_found:
      return hipErrorInvalidDeviceFunction;
    case launch_status::unsupported:
      return hipErrorNotSupported;
    case launch_status::failure:
      break;
  }
  return hipErrorLaunchFailure;
}

// Waves per compute unit, by registers and LDS, as blocks of a given size.
int blocks_per_unit(const kernel_resources& k, int block, size_t dynamic_lds) {
  const int waves = (block + lanes_per_wave - 1) / lanes_per_wave;
  const int registers =
      static_cast<int>((k.vector_registers + k.accumulation_registers + 7) / 8 * 8);
  const int per_simd = std::min(8, 512 / std::max(registers, 8));
  int blocks = per_simd * 4 / waves;
  const size_t lds = k.static_lds + dynamic_lds;
  if (lds) blocks = std::min(blocks, static_cast<int>(65536 / lds));
  return blocks;
}

hipError_t occupancy(int* blocks, code_object* object, const std::string& name, int block,
                     size_t dynamic_lds) {
  kernel_resources k;
  if (!blocks || block <= 0) return fail(hipErrorInvalidValue);
  if (!query_kernel(*object, name, &k)) return fail(hipErrorInvalidDeviceFunction);
  *blocks = blocks_per_unit(k, block, dynamic_lds);
  return hipSuccess;
}

}  // namespace

bool find_host_function(const void* host, code_object** object, std::string* name,
                        hipError_t* error) {
  fat_binary* binary;
  {
    registry& r = global();
    const std::lock_guard<std::mutex> lock(r.mutex);
    const auto it = r.functions.find(host);
    if (it == r.functions.end()) {
      *error = hipErrorInvalidDeviceFunction;
      return false;
    }
    binary = it->second.binary;
    *name = it->second.name;
  }
  *object = binary->load();
  *error = binary->error;
  return *object != nullptr;
}

bool inside_code_object(uint64_t address, size_t bytes) {
  registry& r = global();
  const std::lock_guard<std::mutex> lock(r.mutex);
  for (const code_object* object : r.objects) {
    for (const region& s : object->segments()) {
      if (address >= s.begin && address + bytes <= s.end) return true;
    }
  }
  return false;
}

hipError_t launch(const launch_request& request, hipStream_t stream) {
  // Configuration errors show at the call, also when it is only recorded.
  const launch_status checked = check_launch(request);
  if (checked != launch_status::success) return fail(to_error(checked));
  const auto run = [](const launch_request& r) {
    const hipError_t error = to_error(execute_launch(r));
    if (error != hipSuccess) set_launch_failure(error);
    return error;
  };
  if (!capture_of(stream)) return result(run(request));
  return result(submit(stream, hipGraphNodeTypeKernel, [=] { return run(request); }));
}

}  // namespace kindex::emulator

using namespace kindex::emulator;

KINDEX_EMULATOR_API void** __hipRegisterFatBinary(const void* data) {
  struct wrapper {
    uint32_t magic;
    uint32_t version;
    const uint8_t* binary;
    void* unused;
  };
  const wrapper* w = static_cast<const wrapper*>(data);
  if (!w || w->magic != wrapper_magic) {
    std::fprintf(stderr, "kindex emulator: not a HIP fat binary\n");
    return nullptr;
  }
  auto* binary = new fat_binary;
  binary->data = w->binary;
  return reinterpret_cast<void**>(binary);
}

KINDEX_EMULATOR_API void __hipUnregisterFatBinary(void**) {}

KINDEX_EMULATOR_API void __hipRegisterFunction(void** modules, const void* host, char*,
                                               const char* device, unsigned, void*, void*, void*,
                                               void*, int*) {
  registry& r = global();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.functions[host] = {reinterpret_cast<fat_binary*>(modules), device, 0};
}

KINDEX_EMULATOR_API void __hipRegisterVar(void** modules, void* variable, char*, char* device, int,
                                          size_t size, int, int) {
  registry& r = global();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.variables[variable] = {reinterpret_cast<fat_binary*>(modules), device, size};
}

KINDEX_EMULATOR_API void __hipRegisterManagedVar(void*, void**, void*, const char* name, size_t,
                                                 unsigned) {
  std::fprintf(stderr, "kindex emulator: __managed__ variable %s is not supported\n", name);
}
KINDEX_EMULATOR_API void __hipRegisterSurface(void**, void*, char*, char*, int, int) {}
KINDEX_EMULATOR_API void __hipRegisterTexture(void**, void*, char*, char*, int, int, int) {}

KINDEX_EMULATOR_API hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                          hipStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                         hipStream_t* stream) {
  if (configurations.empty()) return fail(hipErrorMissingConfiguration);
  const call_configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *stream = c.stream;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipLaunchKernel(const void* function, dim3 grid, dim3 block,
                                               void** arguments, size_t shared,
                                               hipStream_t stream) {
  if (!function) return fail(hipErrorInvalidDeviceFunction);
  code_object* object;
  std::string name;
  hipError_t error;
  if (!find_host_function(function, &object, &name, &error)) return fail(error);
  const uint32_t g[3] = {grid.x, grid.y, grid.z};
  const uint32_t b[3] = {block.x, block.y, block.z};
  launch_request request = make_request(object, name, g, b, shared);
  const kernel_info* kernel = object->find_kernel(name);
  if (!kernel) return fail(hipErrorInvalidDeviceFunction);
  request.arguments = pack_arguments(*kernel, arguments);
  return launch(request, stream);
}

KINDEX_EMULATOR_API hipError_t hipExtLaunchKernel(const void* function, dim3 grid, dim3 block,
                                                  void** arguments, size_t shared,
                                                  hipStream_t stream, hipEvent_t start,
                                                  hipEvent_t stop, int) {
  if (start) (void)hipEventRecord(start, stream);
  const hipError_t error = hipLaunchKernel(function, grid, block, arguments, shared, stream);
  if (stop) (void)hipEventRecord(stop, stream);
  return error;
}

KINDEX_EMULATOR_API hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  if (!module || !image) return fail(hipErrorInvalidValue);
  hipError_t error;
  auto object = load_image(image, 0, &error);
  if (!object) return fail(error);
  *module = new ihipModule_t;
  (*module)->object = std::move(object);
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned,
                                                   hipJitOption*, void**) {
  return hipModuleLoadData(module, image);
}

KINDEX_EMULATOR_API hipError_t hipModuleLoad(hipModule_t* module, const char* path) {
  if (!module || !path) return fail(hipErrorInvalidValue);
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(hipErrorFileNotFound);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() < 64) return fail(hipErrorInvalidImage);
  return hipModuleLoadData(module, bytes.data());
}

KINDEX_EMULATOR_API hipError_t hipModuleUnload(hipModule_t module) {
  if (!module) return fail(hipErrorInvalidHandle);
  {
    registry& r = global();
    const std::lock_guard<std::mutex> lock(r.mutex);
    r.objects.erase(std::remove(r.objects.begin(), r.objects.end(), module->object.get()),
                    r.objects.end());
  }
  delete module;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module,
                                                    const char* name) {
  if (!function || !name) return fail(hipErrorInvalidValue);
  if (!module) return fail(hipErrorInvalidHandle);
  if (!module->object->find_kernel(name)) return fail(hipErrorNotFound);
  const std::lock_guard<std::mutex> lock(global().mutex);
  module->functions.push_back(std::make_unique<ihipModuleSymbol_t>());
  *function = module->functions.back().get();
  (*function)->object = module->object.get();
  (*function)->name = name;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipModuleGetGlobal(hipDeviceptr_t* address, size_t* size,
                                                  hipModule_t module, const char* name) {
  if (!module) return fail(hipErrorInvalidHandle);
  void* found;
  size_t bytes;
  if (!name || !module->object->find_variable(name, &found, &bytes)) return fail(hipErrorNotFound);
  if (address) *address = found;
  if (size) *size = bytes;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x,
                                                     unsigned grid_y, unsigned grid_z,
                                                     unsigned block_x, unsigned block_y,
                                                     unsigned block_z, unsigned shared,
                                                     hipStream_t stream, void** arguments,
                                                     void** extra) {
  if (!function) return fail(hipErrorInvalidHandle);
  const uint32_t g[3] = {grid_x, grid_y, grid_z};
  const uint32_t b[3] = {block_x, block_y, block_z};
  launch_request request = make_request(function->object, function->name, g, b, shared);
  const kernel_info* kernel = function->object->find_kernel(function->name);
  if (!kernel) return fail(hipErrorInvalidDeviceFunction);
  if (arguments) {
    request.arguments = pack_arguments(*kernel, arguments);
  } else if (extra) {
    const uint8_t* buffer = nullptr;
    size_t size = 0;
    for (int k = 0; extra[k] != HIP_LAUNCH_PARAM_END; k += 2) {
      if (extra[k] == HIP_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = static_cast<const uint8_t*>(extra[k + 1]);
      } else if (extra[k] == HIP_LAUNCH_PARAM_BUFFER_SIZE) {
        size = *static_cast<const size_t*>(extra[k + 1]);
      } else {
        return fail(hipErrorInvalidValue);
      }
    }
    if (!buffer && size) return fail(hipErrorInvalidValue);
    request.arguments.assign(buffer, buffer + size);
  }
  return launch(request, stream);
}

KINDEX_EMULATOR_API hipError_t hipFuncSetAttribute(const void*, hipFuncAttribute, int) {
  return hipSuccess;
}
KINDEX_EMULATOR_API hipError_t hipFuncSetCacheConfig(const void*, hipFuncCache_t) {
  return hipSuccess;
}
KINDEX_EMULATOR_API hipError_t hipFuncSetSharedMemConfig(const void*, hipSharedMemConfig) {
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes,
                                                    const void* function) {
  if (!attributes) return fail(hipErrorInvalidValue);
  code_object* object;
  std::string name;
  hipError_t error;
  if (!find_host_function(function, &object, &name, &error)) return fail(error);
  kernel_resources k;
  if (!query_kernel(*object, name, &k)) return fail(hipErrorInvalidDeviceFunction);
  std::memset(attributes, 0, sizeof *attributes);
  attributes->numRegs = static_cast<int>(k.vector_registers);
  attributes->sharedSizeBytes = k.static_lds;
  attributes->localSizeBytes = k.scratch;
  attributes->maxThreadsPerBlock = static_cast<int>(k.max_block);
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(65536 - k.static_lds);
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int block, size_t dynamic_lds, unsigned) {
  code_object* object;
  std::string name;
  hipError_t error;
  if (!find_host_function(function, &object, &name, &error)) return fail(error);
  return occupancy(blocks, object, name, block, dynamic_lds);
}

KINDEX_EMULATOR_API hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                            const void* function,
                                                                            int block,
                                                                            size_t dynamic_lds) {
  return hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block, dynamic_lds,
                                                               0);
}

KINDEX_EMULATOR_API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, hipFunction_t function, int block, size_t dynamic_lds) {
  if (!function) return fail(hipErrorInvalidHandle);
  return occupancy(blocks, function->object, function->name, block, dynamic_lds);
}

KINDEX_EMULATOR_API hipError_t hipOccupancyMaxPotentialBlockSize(int* grid, int* block,
                                                                 const void* function,
                                                                 size_t dynamic_lds, int limit) {
  if (!grid || !block) return fail(hipErrorInvalidValue);
  code_object* object;
  std::string name;
  hipError_t error;
  if (!find_host_function(function, &object, &name, &error)) return fail(error);
  kernel_resources k;
  if (!query_kernel(*object, name, &k)) return fail(hipErrorInvalidDeviceFunction);
  int size = static_cast<int>(k.max_block);
  if (limit > 0) size = std::min(size, limit);
  *block = std::max(1, size / lanes_per_wave * lanes_per_wave);
  *grid = blocks_per_unit(k, *block, dynamic_lds) * 304;
  return hipSuccess;
}

KINDEX_EMULATOR_API hipError_t hipGetSymbolAddress(void** address, const void* symbol) {
  size_t size;
  if (!address) return fail(hipErrorInvalidValue);
  return result(find_variable(symbol, address, &size));
}

KINDEX_EMULATOR_API hipError_t hipGetSymbolSize(size_t* size, const void* symbol) {
  void* address;
  if (!size) return fail(hipErrorInvalidValue);
  return result(find_variable(symbol, &address, size));
}

KINDEX_EMULATOR_API hipError_t hipMemcpyToSymbol(const void* symbol, const void* from, size_t bytes,
                                                 size_t offset, hipMemcpyKind) {
  if (const hipError_t error = reject_during_capture()) return fail(error);
  return copy_symbol(symbol, nullptr, from, bytes, offset, true, nullptr);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyToSymbolAsync(const void* symbol, const void* from,
                                                      size_t bytes, size_t offset, hipMemcpyKind,
                                                      hipStream_t stream) {
  return copy_symbol(symbol, nullptr, from, bytes, offset, true, stream);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyFromSymbol(void* to, const void* symbol, size_t bytes,
                                                   size_t offset, hipMemcpyKind) {
  if (const hipError_t error = reject_during_capture()) return fail(error);
  return copy_symbol(symbol, to, nullptr, bytes, offset, false, nullptr);
}
KINDEX_EMULATOR_API hipError_t hipMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes,
                                                        size_t offset, hipMemcpyKind,
                                                        hipStream_t stream) {
  return copy_symbol(symbol, to, nullptr, bytes, offset, false, stream);
}
