// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The runner of Catch2 2, where its package does not bring one: here once, as plain C++, because it
// takes longer to compile than any test.
#define CATCH_CONFIG_MAIN
#include "catch.hpp"
