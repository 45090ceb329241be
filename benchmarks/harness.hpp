// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// What the benchmark programs share: cases as Google Benchmark's benchmarks, checked and measured
// on a GPU, checked and counted on the emulator.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator.hpp"
#include "support/launch.hpp"
#include "timing.hpp"
#include "workload.hpp"

namespace kindex_bench {

/// What became of one case.
struct case_result {
  std::string name;
  case_size size;
  check_result checked;
  std::optional<timing> time;             ///< on a GPU
  std::optional<timing> rotated_outputs;  ///< see measure_variants, also for the next two
  std::optional<timing> overlapped;
  std::optional<double> among_reads;      ///< microseconds
  std::optional<emulator_counts> counts;  ///< on the emulator
  std::string error;                      ///< empty if it ran

  bool ok() const { return error.empty() && checked.ok(); }
  /// "ok (n values)", or what is wrong.
  std::string verdict() const;
  double gigabytes_per_second() const;
};

/// Named numbers, for the JSON output.
using counters = std::map<std::string, double>;

class harness {
 public:
  /// Takes Google Benchmark's arguments. Exits for --help and unknown ones.
  harness(int argc, char** argv);

  /// Adds a case, which is made when its turn comes.
  void add(const std::string& name, std::function<std::unique_ptr<bench_case>()> make);
  /// Numbers to report beside the usual ones.
  void extra_counters(std::function<counters(const case_result&)> make) {
    extra_ = std::move(make);
  }

  /// On a GPU, measures every case also with outputs that rotate as inputs do, if it has any; with
  /// programmatic edges, where a launch begins while the one before it ends, if the device has
  /// them; and among reads of other memory (timing.hpp).
  void measure_variants() { variants_ = true; }

  /// Runs what the filter selects. Returns the program's exit code: 0 if all of it was right.
  int run();

  /// In the order in which they ran.
  const std::vector<case_result>& results() const { return results_; }
  /// Null if it did not run, or failed.
  const case_result* find(const std::string& name) const;

  /// Where text for people goes: stdout, unless that holds JSON or CSV.
  std::FILE* text() const { return text_; }

 private:
  case_result measure(const std::string& name, bench_case& subject) const;

  std::FILE* text_ = stdout;
  bool own_display_ = true;
  bool variants_ = false;
  std::function<counters(const case_result&)> extra_;
  std::vector<case_result> results_;
};

/// Name of the device, as its runtime has it.
std::string device_name();

// Text ------------------------------------------------------------------------------------------

/// printf into a string.
__attribute__((format(printf, 1, 2))) std::string text_of(const char* format, ...);

/// 1234567 as "1,234,567".
std::string grouped(std::uint64_t value);

/// Columns under each other: the first to the left, the others to the right.
class text_table {
 public:
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// A line on its own, which does not widen columns.
  void add_heading(std::string heading) { rows_.push_back({std::move(heading)}); }
  void print(std::FILE* to) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kindex_bench
