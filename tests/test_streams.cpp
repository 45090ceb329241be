// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Launches beside one another: several streams, several threads, and after someone else's error.
#include <memory>
#include <string>
#include <thread>

#include "catch.hpp"
#include "support/launch.hpp"
#include "support/logits_problem.hpp"

namespace {

using namespace kindex_test;

std::vector<std::unique_ptr<logits_problem>> different_problems() {
  std::vector<std::unique_ptr<logits_problem>> problems;
  for (const page_geometry geometry : all_page_geometries()) {
    if (geometry.page_size % 64 == 16) continue;
    test_case test;
    test.page_size = geometry.page_size;
    test.layout = geometry.layout;
    test.next_n = 1 + static_cast<int>(problems.size()) % 3;
    test.num_heads = problems.size() % 2 == 0 ? 64 : 32;
    test.lens = {200, 0, 65, 700 - geometry.page_size};
    test.seed = 40 + problems.size();
    problems.push_back(std::make_unique<logits_problem>(test));
  }
  return problems;
}

TEST_CASE("streams: launches on several streams do not see one another", "[streams][class_L]") {
  const std::vector<std::unique_ptr<logits_problem>> problems = different_problems();
  std::vector<std::unique_ptr<device_stream>> streams;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    streams.push_back(std::make_unique<device_stream>());
  }
  for (int round = 0; round < (is_emulated() ? 2 : 50); ++round) {
    for (const auto& problem : problems) problem->logits().reset();
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (std::size_t i = 0; i < problems.size(); ++i) {
        REQUIRE(problems[i]->run()(streams[i]->get()) == hipSuccess);
      }
    }
    for (const auto& stream : streams) stream->synchronize();
    for (const auto& problem : problems) {
      INFO(problem->test().name());
      problem->logits().download();
      REQUIRE(problem->check() == "");
    }
  }
}

TEST_CASE("streams: several threads launch at once", "[streams][class_L]") {
  const std::vector<std::unique_ptr<logits_problem>> problems = different_problems();
  std::vector<std::string> reports(problems.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    threads.emplace_back([&, i] {
      // Catch2's assertions belong to the main thread.
      try {
        for (int round = 0; round < 3 && reports[i].empty(); ++round) {
          reports[i] = problems[i]->launch_and_check();
        }
      } catch (const std::exception& error) {
        reports[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < problems.size(); ++i) {
    INFO(problems[i]->test().name());
    CHECK(reports[i] == "");
  }
}

TEST_CASE("streams: an error before the call is not reported as the call's", "[streams]") {
  test_case test;
  test.lens = {70};
  logits_problem problem(test);
  int value = 0;
  // Leaves an error behind that hipGetLastError would return until someone asks.
  REQUIRE(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 9999) != hipSuccess);
  CHECK(problem.launch_and_check() == "");
  (void)hipGetLastError();
}

}  // namespace
