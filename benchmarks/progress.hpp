// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// Lines on stderr that say what a long run is doing.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace kindex_bench {

/// Says what has begun, with the time since the program's start, and every ten seconds that it is
/// still at it.
class progress {
 public:
  explicit progress(std::string what);
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress();

  /// Seconds since the program's start.
  static double elapsed();

 private:
  std::string what_;
  std::mutex mutex_;
  std::condition_variable finished_changed_;
  bool finished_ = false;
  std::thread reminder_;
};

}  // namespace kindex_bench
