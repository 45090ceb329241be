// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
#pragma once

// Catch2, version 2 (Debian 12) or 3, with the names of both.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
// Version 2 cannot skip: say so and leave the test case.
#define SKIP(...)                  \
  do {                             \
    WARN("skipped: " __VA_ARGS__); \
    return;                        \
  } while (false)
#endif
