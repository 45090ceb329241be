// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#include "progress.hpp"

#include <chrono>
#include <cstdio>
#include <utility>

namespace kindex_bench {
namespace {

const auto start = std::chrono::steady_clock::now();

}  // namespace

progress::progress(std::string what) : what_(std::move(what)) {
  std::fprintf(stderr, "[%5.1f s] %s\n", elapsed(), what_.c_str());
  reminder_ = std::thread([this] {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!finished_changed_.wait_for(lock, std::chrono::seconds(10), [&] { return finished_; })) {
      std::fprintf(stderr, "[%5.1f s]   still %s\n", elapsed(), what_.c_str());
    }
  });
}

progress::~progress() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    finished_ = true;
  }
  finished_changed_.notify_one();
  reminder_.join();
}

double progress::elapsed() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace kindex_bench
