// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// Catch2 version 2 or 3, whichever is installed.

#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
