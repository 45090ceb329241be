// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "harness.hpp"

#include <benchmark/benchmark.h>
#include <hip/hip_runtime_api.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include <kindex/version.hpp>

#include "progress.hpp"
#include "support/platform.hpp"

namespace kindex_bench {
namespace {

using kindex_test::check;

/// The programs print tables of their own.
class no_display : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

/// The value of the last --benchmark_format=... or of its environment variable; "" if not given.
std::string requested_format(int argc, char** argv) {
  const char* const environment = std::getenv("BENCHMARK_FORMAT");
  std::string format = environment == nullptr ? "" : environment;
  const char flag[] = "--benchmark_format=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], flag, sizeof flag - 1) == 0) format = argv[i] + sizeof flag - 1;
  }
  return format;
}

bool lists_tests(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--benchmark_list_tests", 22) == 0 &&
        std::strstr(argv[i], "=false") == nullptr) {
      return true;
    }
  }
  return false;
}

void add_context() {
  benchmark::AddCustomContext("kindex", std::to_string(KINDEX_VERSION_MAJOR) + "." +
                                            std::to_string(KINDEX_VERSION_MINOR) + "." +
                                            std::to_string(KINDEX_VERSION_PATCH));
  benchmark::AddCustomContext("device", device_name());
  if (kindex_test::is_emulated()) {
    benchmark::AddCustomContext("mode", "emulated: counts and floors, not times");
    return;
  }
  benchmark::AddCustomContext("mode", "measured");
  benchmark::AddCustomContext("read_ceiling_gb_per_s", text_of("%.0f", ceilings().read));
  benchmark::AddCustomContext("copy_ceiling_gb_per_s", text_of("%.0f", ceilings().copy));
  benchmark::AddCustomContext("write_ceiling_gb_per_s", text_of("%.0f", ceilings().write));
}

counters usual_counters(const case_result& result) {
  counters numbers = {{"tokens", static_cast<double>(result.size.tokens)},
                      {"bytes", static_cast<double>(result.size.bytes())},
                      {"checked_values", static_cast<double>(result.checked.values)},
                      {"check_ok", result.checked.ok() ? 1.0 : 0.0}};
  if (result.time.has_value()) {
    const double rate = result.gigabytes_per_second();
    numbers["gb_per_s"] = rate;
    numbers["share_of_read_ceiling"] = rate / ceilings().read;
    numbers["share_of_copy_ceiling"] = rate / ceilings().copy;
    numbers["fastest_us"] = result.time->fastest;
    numbers["slowest_us"] = result.time->slowest;
    numbers["launches"] = result.time->launches;
    numbers["graph"] = result.time->graph ? 1.0 : 0.0;
  }
  if (result.rotated_outputs.has_value()) {
    numbers["rotated_outputs_us"] = result.rotated_outputs->median;
  }
  if (result.overlapped.has_value()) numbers["overlapped_us"] = result.overlapped->median;
  if (result.among_reads.has_value()) numbers["among_reads_us"] = *result.among_reads;
  return numbers;
}

}  // namespace

std::string case_result::verdict() const {
  if (!error.empty()) return error;
  if (!checked.ok()) return "WRONG: " + checked.first_difference;
  return "ok (" + grouped(static_cast<std::uint64_t>(checked.values)) + " values)";
}

double case_result::gigabytes_per_second() const {
  return time.has_value() ? static_cast<double>(size.bytes()) / time->median * 1e-3 : 0;
}

harness::harness(int argc, char** argv) {
  const std::string format = requested_format(argc, argv);
  own_display_ = format.empty();
  if (format == "json" || format == "csv") text_ = stderr;
  const bool only_lists = lists_tests(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) std::exit(2);
  if (only_lists) return;

  int devices = 0;
  const hipError_t status = hipGetDeviceCount(&devices);
  if (status != hipSuccess || devices == 0) {
    std::fprintf(stderr,
                 "no device: %s. `./run.sh bench` runs this program on the emulator where there is "
                 "no GPU.\n",
                 status == hipSuccess ? "none found" : hipGetErrorString(status));
    std::exit(1);
  }
  add_context();
}

void harness::add(const std::string& name, std::function<std::unique_ptr<bench_case>()> make) {
  const auto run = [this, name, make = std::move(make)](benchmark::State& state) {
    case_result result;
    result.name = name;
    for ([[maybe_unused]] auto _ : state) {
      try {
        result = measure(name, *make());
      } catch (const std::exception& failure) {
        result.error = failure.what();
      }
      // On the emulator there is no time to report.
      state.SetIterationTime(result.time.has_value() ? result.time->median * 1e-6 : 0);
    }
    counters numbers = usual_counters(result);
    if (extra_) {
      for (const auto& [key, value] : extra_(result)) numbers[key] = value;
    }
    for (const auto& [key, value] : numbers) state.counters[key] = value;
    if (!result.ok()) {
      state.SkipWithError(result.verdict().c_str());
    } else if (result.counts.has_value()) {
      state.SetLabel("emulated: counts, no time");
    }
    const auto same = std::find_if(results_.begin(), results_.end(),
                                   [&](const case_result& old) { return old.name == name; });
    if (same == results_.end()) {
      results_.push_back(result);
    } else {
      *same = result;
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

case_result harness::measure(const std::string& name, bench_case& subject) const {
  case_result result;
  result.name = name;
  result.size = subject.size();
  const progress line((kindex_test::is_emulated() ? "emulating " : "measuring ") + name);
  // The last one is set 0, whose output is checked: it may have the same buffer as all others.
  const auto launch = [&](std::int64_t i, hipStream_t stream) {
    return subject.launch((i + 1) % subject.num_sets(), stream);
  };
  const auto time_with = [&](kindex_test::graph_edges edges) {
    return time_launches(launch, subject.num_sets(), result.size.bytes(), subject.where(), edges);
  };
  const auto check_launches = [&](const char* which) {
    const check_result checked = subject.check_output();
    result.checked.values += checked.values;
    if (!checked.ok()) result.checked.first_difference = which + checked.first_difference;
  };
  subject.spoil_output();
  if (kindex_test::is_emulated()) {
    const unsigned long long findings = emulator_findings();
    const emulator_recording recording(subject.cache().view().data, subject.cache().bytes());
    check(subject.launch(0, nullptr), "launch");
    check(hipDeviceSynchronize(), "hipDeviceSynchronize");
    result.counts = recording.counts();
    if (emulator_findings() != findings) {
      throw std::runtime_error("the emulator found faults in the kernel");
    }
  } else {
    result.time = time_with(kindex_test::graph_edges::full);
  }
  check_launches("");
  if (!variants_ || kindex_test::is_emulated() || !result.checked.ok()) return result;
  if (subject.has_outputs()) {
    subject.rotate_outputs(true);
    subject.spoil_output();
    result.rotated_outputs = time_with(kindex_test::graph_edges::full);
    check_launches("outputs rotated: ");
    subject.rotate_outputs(false);
  }
  if (kindex_test::has_programmatic_edges()) {
    subject.spoil_output();
    result.overlapped = time_with(kindex_test::graph_edges::programmatic);
    check_launches("overlapped: ");
  }
  if (subject.where() == inputs::in_memory) {
    result.among_reads = time_among_reads(launch, subject.num_sets());
  }
  return result;
}

int harness::run() {
  no_display none;
  const std::size_t selected =
      own_display_ ? benchmark::RunSpecifiedBenchmarks(&none) : benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  std::fflush(stdout);
  if (selected == 0) return 1;
  return std::all_of(results_.begin(), results_.end(),
                     [](const case_result& result) { return result.ok(); })
             ? 0
             : 1;
}

const case_result* harness::find(const std::string& name) const {
  for (const case_result& result : results_) {
    if (result.name == name && result.ok()) return &result;
  }
  return nullptr;
}

std::string device_name() {
  int device = 0;
  hipDeviceProp_t properties;
  check(hipGetDevice(&device), "hipGetDevice");
  check(hipGetDeviceProperties(&properties, device), "hipGetDeviceProperties");
  return properties.name;
}

// Text ------------------------------------------------------------------------------------------

std::string text_of(const char* format, ...) {
  char text[512];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::string grouped(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

void text_table::print(std::FILE* to) const {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows_) {
    if (row.size() == 1) continue;
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const std::vector<std::string>& row : rows_) {
    std::string line = row.front();
    for (std::size_t i = 1; i < row.size(); ++i) {
      if (i == 1) line.resize(std::max(line.size(), widths[0]), ' ');
      line += "  " + std::string(widths[i] - std::min(widths[i], row[i].size()), ' ') + row[i];
    }
    std::fprintf(to, "%s\n", line.c_str());
  }
}

}  // namespace kindex_bench
