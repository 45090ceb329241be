// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

#include "launch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "executor.hpp"
#include "introspection.hpp"

namespace kindex::emulator {
namespace {

constexpr uint32_t max_lds_bytes = 65536;
constexpr uint32_t max_block_items = 1024;
// What a kernel gets whose call graph the compiler could not bound.
constexpr uint32_t dynamic_stack_bytes = 16384;
constexpr uint64_t default_instruction_limit = 400'000'000;

// The kernel descriptor, as the loader finds it in the image.
struct kernel_descriptor {
  uint32_t group_segment_bytes;
  uint32_t private_segment_bytes;
  uint32_t kernarg_bytes;
  uint8_t reserved0[4];
  int64_t entry_offset;
  uint8_t reserved1[20];
  uint32_t resources3;
  uint32_t resources1;
  uint32_t resources2;
  uint16_t properties;
  uint16_t kernarg_preload;
  uint8_t reserved2[4];
};
static_assert(sizeof(kernel_descriptor) == 64);

enum : uint16_t {
  property_private_buffer = 1,
  property_dispatch_pointer = 2,
  property_queue_pointer = 4,
  property_kernarg_pointer = 8,
  property_dispatch_id = 16,
  property_flat_scratch = 32,
  property_private_size = 64,
  property_dynamic_stack = 1 << 11,
};

struct dispatch_packet {
  uint16_t header = 2;
  uint16_t setup = 3;
  uint16_t block[3] = {};
  uint16_t reserved0 = 0;
  uint32_t grid[3] = {};
  uint32_t private_bytes = 0;
  uint32_t group_bytes = 0;
  uint64_t kernel_object = 0;
  uint64_t kernarg = 0;
  uint64_t reserved1 = 0;
  uint64_t completion = 0;
};
static_assert(sizeof(dispatch_packet) == 64);

kernel_descriptor descriptor_of(const code_object& object, const kernel_info& kernel) {
  kernel_descriptor d;
  std::memcpy(&d, object.image() + kernel.descriptor, sizeof d);
  return d;
}

bool begins_with(const std::string& s, const char* prefix) {
  return s.compare(0, std::strlen(prefix), prefix) == 0;
}

void fill_hidden_arguments(const kernel_info& kernel, const launch_request& r,
                           std::vector<uint8_t>* bytes) {
  for (const kernel_argument& a : kernel.arguments) {
    if (!begins_with(a.kind, "hidden_")) continue;
    uint64_t value = 0;
    if (begins_with(a.kind, "hidden_block_count_")) {
      value = r.grid[a.kind.back() - 'x'];
    } else if (begins_with(a.kind, "hidden_group_size_")) {
      value = r.block[a.kind.back() - 'x'];
    } else if (a.kind == "hidden_grid_dims") {
      value = r.grid[2] * r.block[2] > 1 ? 3 : r.grid[1] * r.block[1] > 1 ? 2 : 1;
    } else if (a.kind == "hidden_dynamic_lds_size") {
      value = r.dynamic_lds;
    } else if (a.kind == "hidden_private_base") {
      value = private_aperture >> 32;
    } else if (a.kind == "hidden_shared_base") {
      value = shared_aperture >> 32;
    }
    std::memcpy(bytes->data() + a.offset, &value, std::min<uint32_t>(a.size, 8));
  }
}

bool environment_flag(const char* name, bool fallback) {
  const char* value = std::getenv(name);
  return value && *value ? std::strcmp(value, "0") != 0 : fallback;
}

uint64_t environment_number(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value && *value ? std::strtoull(value, nullptr, 0) : fallback;
}

// One launch at a time: streams of several host threads take turns.
std::mutex& launch_mutex() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace

std::vector<uint8_t> pack_arguments(const kernel_info& kernel, void* const* arguments) {
  std::vector<uint8_t> bytes(kernel.argument_bytes, 0);
  size_t index = 0;
  for (const kernel_argument& a : kernel.arguments) {
    if (begins_with(a.kind, "hidden_")) continue;
    if (a.offset + a.size <= bytes.size()) {
      std::memcpy(bytes.data() + a.offset, arguments[index], a.size);
    }
    ++index;
  }
  return bytes;
}

launch_status check_launch(const launch_request& r) {
  const kernel_info* kernel = r.object ? r.object->find_kernel(r.kernel) : nullptr;
  if (!kernel) return launch_status::not_found;
  uint64_t items = 1;
  for (int axis = 0; axis < 3; ++axis) {
    items *= r.block[axis];
    if (r.grid[axis] == 0 || r.block[axis] == 0 || r.block[axis] > max_block_items) {
      return launch_status::invalid_configuration;
    }
    // The packet counts work items in 32 bits.
    if (static_cast<uint64_t>(r.grid[axis]) * r.block[axis] > 0xffffffffull) {
      return launch_status::invalid_configuration;
    }
  }
  if (items > max_block_items || items > kernel->max_block) {
    return launch_status::invalid_configuration;
  }
  const kernel_descriptor d = descriptor_of(*r.object, *kernel);
  if (static_cast<uint64_t>(d.group_segment_bytes) + r.dynamic_lds > max_lds_bytes) {
    return launch_status::invalid_configuration;
  }
  return launch_status::success;
}

bool query_kernel(code_object& object, const std::string& name, kernel_resources* out) {
  const kernel_info* kernel = object.find_kernel(name);
  if (!kernel) return false;
  const kernel_descriptor d = descriptor_of(object, *kernel);
  const uint32_t total = ((d.resources1 & 63) + 1) * 8;
  const uint32_t arch = std::min(total, ((d.resources3 & 63) + 1) * 4);
  out->vector_registers = arch;
  out->accumulation_registers = total - arch;
  out->scalar_registers = (((d.resources1 >> 6) & 15) + 1) * 8;
  out->static_lds = d.group_segment_bytes;
  out->scratch = d.private_segment_bytes;
  out->max_block = kernel->max_block;
  return true;
}

launch_status execute_launch(const launch_request& r) {
  const launch_status checked = check_launch(r);
  if (checked != launch_status::success) return checked;
  const kernel_info& kernel = *r.object->find_kernel(r.kernel);
  const kernel_descriptor d = descriptor_of(*r.object, kernel);
  kernel_resources resources;
  query_kernel(*r.object, r.kernel, &resources);

  std::vector<uint8_t> arguments = r.arguments;
  // Compilers widen argument loads up to the alignment of the segment.
  const size_t argument_space = (std::max<size_t>(kernel.argument_bytes, 1) + 63) / 64 * 64;
  arguments.resize(std::max(argument_space, arguments.size()), 0);
  fill_hidden_arguments(kernel, r, &arguments);

  launch_state launch;
  launch.object = r.object;
  launch.kernel_name = r.kernel;
  std::copy(std::begin(r.grid), std::end(r.grid), std::begin(launch.grid));
  std::copy(std::begin(r.block), std::end(r.block), std::begin(launch.block));
  launch.lds_bytes = d.group_segment_bytes + r.dynamic_lds;
  launch.scratch_bytes = d.private_segment_bytes;
  if (kernel.dynamic_stack || (d.properties & property_dynamic_stack)) {
    launch.scratch_bytes += dynamic_stack_bytes;
  }
  launch.vector_rows = std::min(256u, std::max(resources.vector_registers, 4u));
  launch.accumulator_rows = std::min(256u, resources.accumulation_registers);
  launch.mode = (d.resources1 >> 12) & 0xff;
  launch.resources2 = d.resources2;
  launch.checks = checks_enabled();
  launch.ocp = ocp_mode();
  // ROCm runs gfx9 with unaligned global accesses allowed.
  launch.allow_unaligned = !environment_flag("KINDEX_EMULATOR_ALIGNED", false);
  const char* sums = std::getenv("KINDEX_EMULATOR_MFMA_SUM");
  launch.double_sums = sums && std::strcmp(sums, "double") == 0;
  launch.register_fill =
      static_cast<uint32_t>(environment_number("KINDEX_EMULATOR_REGISTER_FILL", 0));
  launch.instruction_limit = environment_number("KINDEX_EMULATOR_LIMIT", default_instruction_limit);

  dispatch_packet packet;
  for (int axis = 0; axis < 3; ++axis) {
    packet.block[axis] = static_cast<uint16_t>(r.block[axis]);
    packet.grid[axis] = r.grid[axis] * r.block[axis];
  }
  packet.private_bytes = launch.scratch_bytes;
  packet.group_bytes = launch.lds_bytes;
  packet.kernel_object = r.object->address_of(kernel.descriptor);
  packet.kernarg = reinterpret_cast<uint64_t>(arguments.data());

  std::vector<uint32_t>& scalars = launch.user_scalars;
  const auto push_pair = [&](uint64_t value) {
    scalars.push_back(static_cast<uint32_t>(value));
    scalars.push_back(static_cast<uint32_t>(value >> 32));
  };
  if (d.properties & property_private_buffer) {
    push_pair(0);
    push_pair(0);
  }
  if (d.properties & property_dispatch_pointer) push_pair(reinterpret_cast<uint64_t>(&packet));
  if (d.properties & property_queue_pointer) push_pair(0);
  if (d.properties & property_kernarg_pointer) push_pair(packet.kernarg);
  if (d.properties & property_dispatch_id) push_pair(0);
  if (d.properties & property_flat_scratch) push_pair(0);
  if (d.properties & property_private_size) scalars.push_back(launch.scratch_bytes);
  // Arguments preloaded into scalar registers; the code for hardware without that comes first.
  const uint32_t preload_count = d.kernarg_preload & 127;
  const uint32_t preload_offset = d.kernarg_preload >> 7;
  for (uint32_t k = 0; k < preload_count; ++k) {
    uint32_t word = 0;
    const size_t at = 4 * static_cast<size_t>(preload_offset + k);
    if (at + 4 <= arguments.size()) std::memcpy(&word, arguments.data() + at, 4);
    scalars.push_back(word);
  }
  scalars.resize((d.resources2 >> 1) & 31, 0);

  const std::lock_guard<std::mutex> lock(launch_mutex());
  const uint64_t entry = kernel.descriptor + static_cast<uint64_t>(d.entry_offset);
  launch.entry = r.object->instruction_at(entry + (preload_count ? 256 : 0));
  if (!launch.entry) {
    std::fprintf(stderr, "kindex emulator: cannot disassemble %s\n", r.kernel.c_str());
    return launch_status::unsupported;
  }
  launch.regions = memory().snapshot();
  launch.watches = active_watches();
  launch.extra_regions = r.object->segments();
  launch.extra_regions.push_back({packet.kernarg, packet.kernarg + arguments.size(), false});
  const uint64_t packet_address = reinterpret_cast<uint64_t>(&packet);
  launch.extra_regions.push_back({packet_address, packet_address + sizeof packet, false});
  std::sort(launch.extra_regions.begin(), launch.extra_regions.end(),
            [](const region& a, const region& b) { return a.begin < b.begin; });

  const launch_outcome outcome = run_launch(launch);
  account_launch(launch, resources, outcome);
  if (outcome.finding_total == 0) return launch_status::success;
  const bool unsupported =
      std::any_of(outcome.findings.begin(), outcome.findings.end(),
                  [](const finding& f) { return f.kind == finding_kind::unsupported; });
  return unsupported ? launch_status::unsupported : launch_status::failure;
}

}  // namespace kindex::emulator
