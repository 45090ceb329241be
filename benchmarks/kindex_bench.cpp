// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The scenario "8k1k cc64": 64 concurrent requests with 8,192 tokens of prompt and up to 1,024 of
// output, so contexts of 8,192 to 9,216 tokens; 64 heads, one query row, 128 dims, shuffled pages.
//
// On a GPU: times. On the emulator: counts of the machine code, and what they and the published
// figures of the hardware allow at best.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "floor_model.hpp"
#include "harness.hpp"
#include "support/platform.hpp"

namespace kindex_bench {
namespace {

constexpr char decode_store[] = "8k1k_cc64/store_decode";
constexpr char prefill_store[] = "8k1k_cc64/store_prefill";
constexpr char chunk_gather[] = "8k1k_cc64/gather_chunk";
constexpr char logits_preshuffled[] = "8k1k_cc64/logits_page64_preshuffled";
constexpr char logits_plain[] = "8k1k_cc64/logits_page64_plain";
constexpr char logits_page1[] = "8k1k_cc64/logits_page1_plain";

constexpr std::int64_t prefill_tokens = 8192;
// Engines gather the context of a prefill in chunks of about this many tokens, whole requests each.
constexpr std::int64_t chunk_tokens = 131072;
// Before page 64: a table entry for every token that the longest possible context could have.
constexpr std::int64_t page1_table_width = 131072;

std::shared_ptr<const cache_pool> scenario_pool(int page_size, kindex::page_layout layout) {
  cache_shape shape;
  shape.lens = uniform_lens(64, 8192, 9216);
  shape.page_size = page_size;
  shape.layout = layout;
  if (page_size == 1) shape.table_width = page1_table_width;
  return make_cache_pool(shape, 3);
}

std::int64_t sequences_of_a_chunk(const cache_shape& shape) {
  std::int64_t tokens = 0;
  std::int64_t count = 0;
  while (count < static_cast<std::int64_t>(shape.lens.size())) {
    tokens += shape.lens[static_cast<std::size_t>(count)];
    if (tokens > chunk_tokens) break;
    ++count;
  }
  return count;
}

void add_cases(harness& cases) {
  using kindex::page_layout;
  const auto paged = [] { return scenario_pool(64, page_layout::preshuffled); };
  cases.add(decode_store, [=] { return make_store_case(paged(), store_tokens::newest, 64); });
  cases.add(prefill_store,
            [=] { return make_store_case(paged(), store_tokens::sequence, prefill_tokens); });
  cases.add(chunk_gather, [=] {
    const auto pool = paged();
    return make_gather_case(pool, sequences_of_a_chunk(pool->shape));
  });
  cases.add(logits_preshuffled, [=] { return make_logits_case(paged(), {}); });
  cases.add(logits_plain,
            [] { return make_logits_case(scenario_pool(64, page_layout::plain), {}); });
  cases.add(logits_page1,
            [] { return make_logits_case(scenario_pool(1, page_layout::plain), {}); });
}

// On the emulator -------------------------------------------------------------------------------

kernel_work work_of(const case_result& result) {
  const struct kindex_emulator_counters& counted = result.counts->total;
  kernel_work work;
  work.bytes = static_cast<double>(result.size.bytes());
  work.mfma_cycles = counted.mfma_cycles;
  work.valu_cycles = counted.valu_cycles;
  work.lds_cycles = counted.lds_cycles;
  work.instructions = counted.wave_instructions;
  work.waves = counted.waves;
  work.workgroups = counted.workgroups;
  work.registers = static_cast<int>(counted.last_vgprs + counted.last_agprs);
  work.lds_bytes = static_cast<int>(counted.max_lds_bytes);
  return work;
}

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// What of the 64-byte segments that instructions touched they had use for.
double segment_use(std::uint64_t distinct_bytes, std::uint64_t segments) {
  return ratio(distinct_bytes, 64 * segments);
}

double tiles_of(const case_result& result) { return static_cast<double>(result.size.tokens) / 16; }

bool moves_into_cache(const case_result& result) {
  return result.name == decode_store || result.name == prefill_store;
}

/// Bytes of the cache that lanes asked for (or wrote), in units of what the tokens have there.
double cache_traffic(const case_result& result) {
  const struct kindex_emulator_traffic& traffic = result.counts->watched;
  return ratio(moves_into_cache(result) ? traffic.lane_bytes_stored
                                        : traffic.lane_bytes_loaded + traffic.scalar_bytes_loaded,
               static_cast<std::uint64_t>(result.size.cache_bytes));
}

double cache_segment_use(const case_result& result) {
  const struct kindex_emulator_traffic& traffic = result.counts->watched;
  return moves_into_cache(result)
             ? segment_use(traffic.distinct_bytes_stored, traffic.segments_stored)
             : segment_use(traffic.distinct_bytes_loaded, traffic.segments_loaded);
}

counters emulated_counters(const case_result& result) {
  if (!result.counts.has_value() || !has_emulator_counters()) return {};
  const struct kindex_emulator_counters& c = result.counts->total;
  const double tiles = tiles_of(result);
  counters numbers = {{"workgroups", static_cast<double>(c.workgroups)},
                      {"waves", static_cast<double>(c.waves)},
                      {"registers", static_cast<double>(c.last_vgprs + c.last_agprs)},
                      {"scratch_bytes", static_cast<double>(c.last_scratch_bytes)},
                      {"lds_bytes", static_cast<double>(c.max_lds_bytes)},
                      {"wave_instructions", static_cast<double>(c.wave_instructions)},
                      {"mfma", static_cast<double>(c.mfma)},
                      {"valu", static_cast<double>(c.valu + c.transcendental)},
                      {"salu", static_cast<double>(c.salu + c.branch)},
                      {"smem", static_cast<double>(c.smem)},
                      {"vector_loads", static_cast<double>(c.vector_loads)},
                      {"vector_stores", static_cast<double>(c.vector_stores)},
                      {"lds_ops", static_cast<double>(c.lds_ops)},
                      {"waits", static_cast<double>(c.waitcnt)},
                      {"instructions_per_tile", static_cast<double>(c.wave_instructions) / tiles},
                      {"mfma_per_tile", static_cast<double>(c.mfma) / tiles},
                      {"valu_per_tile", static_cast<double>(c.valu + c.transcendental) / tiles},
                      {"bytes_loaded", static_cast<double>(c.lane_bytes_loaded)},
                      {"bytes_stored", static_cast<double>(c.lane_bytes_stored)},
                      {"cache_bytes_per_owned_byte", cache_traffic(result)},
                      {"segments_loaded", static_cast<double>(c.segments_loaded)},
                      {"segments_stored", static_cast<double>(c.segments_stored)},
                      {"cache_segment_use", cache_segment_use(result)},
                      {"lds_conflict_factor", ratio(c.lds_cycles, c.lds_ideal_cycles)}};
  for (const machine* on : {&mi300x, &mi355x}) {
    const floor_times times = floors(*on, work_of(result));
    for (int i = 0; i < num_resources; ++i) {
      const auto which = static_cast<resource>(i);
      numbers[std::string("floor_us_") + on->name + "_" + to_string(which)] = times.of(which);
    }
  }
  return numbers;
}

std::string short_name(const std::string& name) { return name.substr(name.find('/') + 1); }

/// Splits store_decode into the lines of a column's head.
void add_heads(text_table& table, const std::vector<const case_result*>& shown) {
  std::vector<std::string> heads[3] = {{""}, {""}, {""}};
  for (const case_result* result : shown) {
    std::string rest = short_name(result->name);
    for (std::vector<std::string>& head : heads) {
      const std::size_t end = rest.find('_');
      head.push_back(rest.substr(0, end));
      rest = end == std::string::npos ? "" : rest.substr(end + 1);
    }
  }
  for (std::vector<std::string>& head : heads) table.add(head);
}

void print_emulated(const harness& cases) {
  std::vector<const case_result*> shown;
  for (const case_result& result : cases.results()) {
    if (result.error.empty()) shown.push_back(&result);
  }
  std::FILE* const out = cases.text();
  if (!has_emulator_counters()) {
    std::fprintf(out, "This emulator has no counters: only the results were checked.\n");
    return;
  }
  text_table table;
  add_heads(table, shown);
  using describe = std::function<std::string(const case_result&)>;
  const auto row = [&](const char* label, const describe& cell) {
    std::vector<std::string> cells = {label};
    for (const case_result* result : shown) cells.push_back(cell(*result));
    table.add(std::move(cells));
  };
  using emulator_counters = struct kindex_emulator_counters;
  const auto count = [&](const char* label, std::uint64_t (*of)(const emulator_counters&)) {
    row(label, [=](const case_result& r) { return grouped(of(r.counts->total)); });
  };
  const auto per_tile = [&](const char* label, std::uint64_t (*of)(const emulator_counters&)) {
    row(label, [=](const case_result& r) {
      return text_of("%.1f", static_cast<double>(of(r.counts->total)) / tiles_of(r));
    });
  };
  const auto instructions = [](const emulator_counters& c) { return c.wave_instructions; };
  const auto mfma = [](const emulator_counters& c) { return c.mfma; };
  const auto valu = [](const emulator_counters& c) { return c.valu + c.transcendental; };
  const auto scalar = [](const emulator_counters& c) { return c.salu + c.smem + c.branch; };
  const auto loads = [](const emulator_counters& c) { return c.vector_loads; };
  const auto stores = [](const emulator_counters& c) { return c.vector_stores; };

  row("tokens",
      [](const case_result& r) { return grouped(static_cast<std::uint64_t>(r.size.tokens)); });
  count("workgroups", [](const emulator_counters& c) { return c.workgroups; });
  count("waves", [](const emulator_counters& c) { return c.waves; });
  row("registers", [](const case_result& r) {
    return std::to_string(r.counts->total.last_vgprs + r.counts->total.last_agprs);
  });
  row("waves that fit a SIMD", [](const case_result& r) {
    return std::to_string(floors(mi300x, work_of(r)).waves_per_simd);
  });
  count("LDS bytes of a workgroup", [](const emulator_counters& c) { return c.max_lds_bytes; });
  row("scratch bytes",
      [](const case_result& r) { return std::to_string(r.counts->total.last_scratch_bytes); });

  table.add_heading("instructions of waves");
  count("  all", instructions);
  count("  MFMA", mfma);
  count("  VALU", valu);
  count("  scalar, branches", scalar);
  count("  vector loads", loads);
  count("  vector stores", stores);
  count("  LDS", [](const emulator_counters& c) { return c.lds_ops; });
  count("  waits, no-ops, others",
        [](const emulator_counters& c) { return c.waitcnt + c.nop + c.other + c.vector_atomics; });
  table.add_heading("of these, for 16 tokens");
  per_tile("  all", instructions);
  per_tile("  MFMA", mfma);
  per_tile("  VALU", valu);
  per_tile("  scalar, branches", scalar);
  per_tile("  vector loads", loads);

  table.add_heading("memory");
  row("  bytes needed",
      [](const case_result& r) { return grouped(static_cast<std::uint64_t>(r.size.bytes())); });
  count("  bytes loaded by lanes", [](const emulator_counters& c) { return c.lane_bytes_loaded; });
  count("  bytes stored by lanes", [](const emulator_counters& c) { return c.lane_bytes_stored; });
  row("  cache bytes moved / owned",
      [](const case_result& r) { return text_of("%.3f", cache_traffic(r)); });
  count("  64-byte segments loaded", [](const emulator_counters& c) { return c.segments_loaded; });
  count("  64-byte segments stored", [](const emulator_counters& c) { return c.segments_stored; });
  row("  bytes used of those of the cache",
      [](const case_result& r) { return text_of("%.3f", cache_segment_use(r)); });
  row("  LDS passes / without conflicts", [](const case_result& r) {
    const emulator_counters& c = r.counts->total;
    return c.lds_ideal_cycles == 0 ? std::string("-")
                                   : text_of("%.2f", ratio(c.lds_cycles, c.lds_ideal_cycles));
  });

  for (const machine* on : {&mi300x, &mi355x}) {
    table.add_heading(text_of("floors in us on %s: %d compute units, %.1f GHz, %.1f TB/s", on->name,
                              on->compute_units, on->gigahertz, on->terabytes_per_second));
    for (int i = 0; i < num_resources; ++i) {
      const auto which = static_cast<resource>(i);
      row(text_of("  %s", to_string(which)).c_str(),
          [=](const case_result& r) { return text_of("%.2f", floors(*on, work_of(r)).of(which)); });
    }
    row("  largest",
        [=](const case_result& r) { return to_string(floors(*on, work_of(r)).largest()); });
    row("  over the next", [=](const case_result& r) {
      const floor_times times = floors(*on, work_of(r));
      return text_of("%.1fx %s", times.margin(), to_string(times.second()));
    });
  }
  std::fprintf(out,
               "\nCounts and floors, not times: the machine code of the kernels ran on %s.\n\n",
               device_name().c_str());
  table.print(out);
  std::fprintf(
      out,
      "\nA floor is what one resource allows if it never waits and all others cost nothing: bytes\n"
      "needed at the memory's peak; MFMA and VALU issue cycles, spread evenly over the SIMDs; LDS\n"
      "passes, over the compute units; one wave's instructions, four cycles each, for every round\n"
      "of workgroups that the launch takes. Bytes needed: a store 388 a token, a gather 264, "
      "logits\n"
      "132, q, weights and 4 a logit; for page 1 the page ids (4 a token) come on top.\n"
      "llvm-mca's view of the main loops: tests/codegen/mca.sh.\n");
}

// On a GPU --------------------------------------------------------------------------------------

void print_measured(const harness& cases) {
  std::FILE* const out = cases.text();
  text_table table;
  table.add({"", "tokens", "us", "fastest", "GB/s", "of read", "of copy"});
  bool captured = true;
  for (const case_result& result : cases.results()) {
    if (!result.time.has_value()) continue;
    const double rate = result.gigabytes_per_second();
    captured = captured && result.time->graph;
    table.add({short_name(result.name), grouped(static_cast<std::uint64_t>(result.size.tokens)),
               text_of("%.2f", result.time->median), text_of("%.2f", result.time->fastest),
               text_of("%.0f", rate), text_of("%.0f %%", 100 * rate / ceilings().read),
               text_of("%.0f %%", 100 * rate / ceilings().copy)});
  }
  std::fprintf(out,
               "\n%s. Medians of %s, inputs rotated beyond the caches, outputs in one buffer.\n"
               "Ceilings in this run: read %.0f GB/s, copy %.0f GB/s, write %.0f GB/s.\n\n",
               device_name().c_str(), captured ? "graph replays" : "launches without a graph",
               ceilings().read, ceilings().copy, ceilings().write);
  table.print(out);
  const case_result* const before = cases.find(logits_page1);
  if (before == nullptr) return;
  std::fprintf(out, "\n");
  for (const char* name : {logits_preshuffled, logits_plain}) {
    const case_result* const after = cases.find(name);
    if (after == nullptr) continue;
    std::fprintf(out, "%s is %.2f times as fast as %s\n", short_name(name).c_str(),
                 before->time->median / after->time->median, short_name(logits_page1).c_str());
  }
}

int run(int argc, char** argv) {
  harness cases(argc, argv);
  add_cases(cases);
  cases.extra_counters(emulated_counters);
  const int status = cases.run();
  if (cases.results().empty()) return status;
  if (kindex_test::is_emulated()) {
    print_emulated(cases);
  } else {
    print_measured(cases);
  }
  std::fprintf(cases.text(), "\n");
  for (const case_result& result : cases.results()) {
    std::fprintf(cases.text(), "check: %s: %s\n", short_name(result.name).c_str(),
                 result.verdict().c_str());
  }
  return status;
}

}  // namespace
}  // namespace kindex_bench

int main(int argc, char** argv) {
  try {
    return kindex_bench::run(argc, argv);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
