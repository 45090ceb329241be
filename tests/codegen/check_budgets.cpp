// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// check_budgets KERNELS.s BUDGETS.txt [MORE]
//     Reads what the compiler made of the kernels and compares it with their budgets. Prints a
//     table; exit status 1 if a budget is exceeded or a kernel is missing. MORE: registers that the
//     logits may take beyond their budgets.
// check_budgets KERNELS.s --loop KERNEL LAYOUT PAGE HEADS
//     Prints the main loop of a kernel, named as in the budgets, as llvm-mca can read it (mca.sh).
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct kernel {
  std::vector<std::string> lines;  // labels "name:" and instructions
  std::map<std::string, int> facts;
};

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Kernels by mangled name: their text, and the figures in the comments after it.
std::map<std::string, kernel> read_assembly(const char* path) {
  std::map<std::string, kernel> kernels;
  std::ifstream file(path);
  const std::regex label(R"(^(\.?\w+):.*)"), fact(R"(^; (\w+): (\d+).*)"),
      instruction(R"(^\s+([a-z]\w*_\w+.*?)\s*(;.*)?$)");
  std::string line, name;
  std::smatch match;
  while (std::getline(file, line)) {
    if (std::regex_match(line, match, label)) {
      if (starts_with(match.str(1), "_Z")) name = match.str(1);
      if (!name.empty()) kernels[name].lines.push_back(match.str(1) + ":");
    } else if (!name.empty() && std::regex_match(line, match, fact)) {
      kernels[name].facts[match.str(1)] = std::stoi(match.str(2));
    } else if (!name.empty() && kernels[name].facts.empty() &&
               std::regex_match(line, match, instruction)) {
      kernels[name].lines.push_back(match.str(1));
    }
  }
  return kernels;
}

bool is_matrix(const std::string& text) { return starts_with(text, "v_mfma_f32_32x32x16_fp8_fp8"); }
bool is_k_load(const std::string& text) {
  return std::regex_search(text, std::regex("^(buffer|global)_load_dwordx4"));
}

/// llvm-mca 19 crashes on buffer accesses: a global one with the same registers.
std::string without_buffer(const std::string& text) {
  static const std::regex buffer(R"(^buffer_(load|store)(\w+) (\S+), (v\d+), s\[(\d+):.*)");
  std::smatch match;
  if (!std::regex_match(text, match, buffer)) return text;
  const std::string data = match.str(3), offset = match.str(4);
  const int base = std::stoi(match.str(5));
  return "global_" + match.str(1) + match.str(2) + " " +
         (match.str(1) == "load" ? data + ", " + offset : offset + ", " + data) + ", s[" +
         std::to_string(base) + ":" + std::to_string(base + 1) + "]";
}

/// The target of a branch, or "".
std::string branch_target(const std::string& text) {
  std::smatch match;
  static const std::regex branch(R"(^s_c?branch\w*\s+(\.\w+))");
  return std::regex_search(text, match, branch) ? match.str(1) : "";
}

using places = std::map<std::string, std::size_t>;

/// The last line of the block that the conditional branch at `from` leaves for, if that block lies
/// out of line, as clang 21 places what is seldom needed: it ends with a branch, and all of its
/// branches come back behind the first. Else 0.
std::size_t end_of_detour(const kernel& k, const places& place, std::size_t from) {
  const auto first = place.find(branch_target(k.lines[from]));
  if (!starts_with(k.lines[from], "s_cbranch") || first == place.end() || first->second < from)
    return 0;
  for (std::size_t i = first->second + 1; i < k.lines.size() && k.lines[i].back() != ':'; ++i) {
    const auto back = place.find(branch_target(k.lines[i]));
    if (back == place.end()) continue;
    if (back->second < from || back->second > first->second) return 0;
    if (starts_with(k.lines[i], "s_branch")) return i;
  }
  return 0;
}

/// The smallest loop with at least these many matrix instructions and loads of K: the way through
/// it on which forward branches are taken, but for detours, that is without the blocks that fetch
/// page ids now and then. Loops inside are gone through once.
std::vector<std::string> smallest_loop(const kernel& k, int least_matrix, int least_k_loads) {
  places place;
  for (std::size_t i = 0; i < k.lines.size(); ++i) {
    if (k.lines[i].back() == ':') place[k.lines[i].substr(0, k.lines[i].size() - 1)] = i;
  }
  std::vector<bool> in_detour(k.lines.size());
  for (std::size_t i = 0; i < k.lines.size(); ++i) {
    const std::size_t last = end_of_detour(k, place, i);
    for (std::size_t j = last == 0 ? 1 : place[branch_target(k.lines[i])]; j <= last; ++j) {
      in_detour[j] = true;
    }
  }
  std::size_t best_first = 0, best_last = 0;
  for (std::size_t i = 0; i < k.lines.size(); ++i) {
    const auto target = place.find(branch_target(k.lines[i]));
    if (target == place.end() || target->second > i || in_detour[i]) continue;
    int matrix = 0, k_loads = 0;
    for (std::size_t j = target->second; j < i; ++j) {
      matrix += is_matrix(k.lines[j]);
      k_loads += is_k_load(k.lines[j]);
    }
    if (matrix >= least_matrix && k_loads >= least_k_loads &&
        (best_last == 0 || i - target->second < best_last - best_first)) {
      best_first = target->second;
      best_last = i;
    }
  }
  std::vector<std::string> way;
  for (std::size_t i = best_first; i < best_last; ++i) {
    if (k.lines[i].back() == ':') continue;
    way.push_back(k.lines[i]);
    const auto target = place.find(branch_target(k.lines[i]));
    if (target != place.end() && target->second > i && target->second < best_last &&
        !in_detour[target->second]) {
      i = target->second;
    }
  }
  return way;
}

int count(const std::vector<std::string>& way, const char* pattern) {
  const std::regex regex(pattern);
  int matches = 0;
  for (const std::string& text : way) matches += std::regex_search(text, regex);
  return matches;
}

struct flight {
  int most = 0;         ///< KiB of K on its way when a wait begins, at the most
  int least = 1 << 20;  ///< and still on its way when one ends, at the least
};

/// Follows the loads through the second round of the loop; they are counted in order.
flight follow_loads(const std::vector<std::string>& way) {
  std::vector<int> pending;  // KiB of each, oldest first
  static const std::regex wait(R"(vmcnt\((\d+)\))");
  const auto kib = [&] {
    int sum = 0;
    for (const int p : pending) sum += p;
    return sum;
  };
  flight result;
  for (int round = 0; round < 2; ++round) {
    for (const std::string& text : way) {
      std::smatch match;
      if (starts_with(text, "buffer_") || starts_with(text, "global_")) {
        pending.push_back(is_k_load(text) ? 1 : 0);
      } else if (std::regex_search(text, match, wait)) {
        if (round == 1) result.most = std::max(result.most, kib());
        const std::size_t keep = std::stoul(match.str(1));
        if (pending.size() > keep) {
          pending.erase(pending.begin(), pending.end() - static_cast<std::ptrdiff_t>(keep));
        }
        if (round == 1) result.least = std::min(result.least, kib());
      }
    }
  }
  return result;
}

/// A line of the budgets: kernel, layout, page size, heads.
const kernel* find_kernel(const std::map<std::string, kernel>& kernels,
                          const std::vector<std::string>& words) {
  const bool logits = words[0] == "logits";
  const std::string geometry =
      "cache_geometryILi" + words[2] + "ELNS0_11page_layoutE" + (words[1] == "plain" ? "0" : "1");
  // 64 and 32: q of one row in registers. 64n and n: q of any number of rows in shared memory.
  const bool shared = words[3].back() == 'n';
  const std::string heads = words[3] == "n" ? "0" : words[3].substr(0, 2);
  const std::string source =
      logits ? std::string("query_sourceE") + (shared ? "1" : "0") + "ELi" + heads + "E" : "";
  for (const auto& [name, k] : kernels) {
    if (contains(name, (logits ? "paged_mqa_logits" : words[0]) + "_kernel") &&
        contains(name, geometry) && contains(name, source)) {
      return &k;
    }
  }
  return nullptr;
}

/// Matrix instructions that the main loop of some logits has: 8 for 32 heads and 32 tokens. With q
/// in shared memory it is the loop over the rows of 64 heads, or over blocks of 32 heads.
int matrix_instructions(const std::string& heads) {
  if (heads == "32" || heads == "n") return 16;
  return 32;
}

/// The loop that the budgets are about.
std::vector<std::string> main_loop(const kernel& k, const std::string& heads) {
  return smallest_loop(k, matrix_instructions(heads), 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 7 && argv[2] == std::string("--loop")) {
    const std::vector<std::string> words(argv + 3, argv + 7);
    const std::map<std::string, kernel> kernels = read_assembly(argv[1]);
    const kernel* const found = find_kernel(kernels, words);
    if (found == nullptr) {
      std::fprintf(stderr, "check_budgets: there is no such kernel\n");
      return 1;
    }
    for (const std::string& text : main_loop(*found, words[3])) {
      if (branch_target(text).empty()) std::printf("%s\n", without_buffer(text).c_str());
    }
    return 0;
  }
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr,
                 "usage: check_budgets KERNELS.s BUDGETS.txt [MORE]\n"
                 "       check_budgets KERNELS.s --loop KERNEL LAYOUT PAGE HEADS\n");
    return 2;
  }
  const int more_registers = argc == 4 ? std::stoi(argv[3]) : 0;
  const std::map<std::string, kernel> kernels = read_assembly(argv[1]);
  std::ifstream budgets(argv[2]);
  std::string line;
  int failed = 0, passed = 0;
  std::printf("%-8s %-12s %4s %5s | %9s %10s %4s | %5s %5s %6s %5s %6s %6s | %s\n", "kernel",
              "layout", "page", "heads", "registers", "waves/SIMD", "LDS", "loop", "MFMA", "vector",
              "loads", "no-ops", "waits", "KiB in flight");
  while (std::getline(budgets, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string operation, layout, page, heads, most_registers, most_loop, most_vector, most_waits,
        least_kib;
    words >> operation >> layout >> page >> heads >> most_registers >> most_loop >> most_vector >>
        most_waits >> least_kib;
    const bool logits = operation == "logits";
    const kernel* const found = find_kernel(kernels, {operation, layout, page, heads});
    if (found == nullptr) {
      std::printf("%s\n  FAILED: there is no such kernel\n", line.c_str());
      ++failed;
      continue;
    }
    std::vector<std::string> faults;
    const auto at_most = [&](const char* what, int value, const std::string& limit) {
      if (limit != "-" && value > std::stoi(limit)) {
        faults.push_back(std::string(what) + " " + std::to_string(value) + ", more than " + limit);
      }
    };
    const auto fact = [&](const char* what) {
      const auto entry = found->facts.find(what);
      return entry == found->facts.end() ? 1 << 20 : entry->second;
    };
    const int registers = fact("TotalNumVgprs");
    at_most("registers", registers - (logits ? more_registers : 0), most_registers);
    at_most("scratch bytes", fact("ScratchSize"), "0");
    at_most("LDS bytes", fact("LDSByteSize"), "8192");
    at_most("accumulation registers", fact("NumAgprs"), "0");
    std::vector<std::string> way;
    flight k_flight{0, 0};
    if (logits) {
      way = main_loop(*found, heads);
      // K is loaded in that loop, or in the one around it that goes through two units.
      const std::vector<std::string> units = smallest_loop(*found, matrix_instructions(heads), 8);
      k_flight = follow_loads(units);
      if (count(way, "^v_mfma") != matrix_instructions(heads) ||
          count(units, "_load_dwordx4") % 8 != 0)
        faults.push_back("the main loop was not found");
      at_most("instructions of the loop", static_cast<int>(way.size()), most_loop);
      at_most("vector instructions", count(way, "^v_(?!mfma)"), most_vector);
      at_most("full waits", count(units, "vmcnt\\(0\\)"), most_waits);
      at_most("stores to LDS", count(units, "^ds_(write|add|swizzle)"), "0");
      at_most("K loads of less than 16 bytes",
              count(units, "^(buffer|global)_load_(dwordx[23]|ubyte|ushort)"), "0");
      at_most("moves through accumulation registers", count(found->lines, "^v_accvgpr"), "0");
      at_most("accesses to scratch", count(found->lines, "^scratch_"), "0");
      if (count(way, "_load_dwordx4") == 0) {
        at_most("loads from memory, and waits for them, in the inner loop",
                count(way, "^(buffer|global)_load|vmcnt"), "0");
      }
      if (k_flight.most < 8) {
        faults.push_back("a unit of K is not on its way: " + std::to_string(k_flight.most) +
                         " KiB");
      }
      if (least_kib != "-" && k_flight.least < std::stoi(least_kib)) {
        faults.push_back("KiB still on the way " + std::to_string(k_flight.least) + ", less than " +
                         least_kib);
      }
    }
    const int waves = registers == 0 ? 8 : std::min(8, 512 / ((registers + 7) / 8 * 8));
    std::printf("%-8s %-12s %4s %5s | %9d %10d %4d | %5zu %5d %6d %5d %6d %6d | %d-%d\n",
                operation.c_str(), layout.c_str(), page.c_str(), heads.c_str(), registers, waves,
                fact("LDSByteSize"), way.size(), count(way, "^v_mfma"), count(way, "^v_(?!mfma)"),
                count(way, "^(buffer|global)_load"), count(way, "^s_nop"), count(way, "^s_waitcnt"),
                k_flight.least, k_flight.most);
    for (const std::string& fault : faults) std::printf("  FAILED: %s\n", fault.c_str());
    ++(faults.empty() ? passed : failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
