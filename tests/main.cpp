// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT

// The runner of version 2, which takes longer to compile than any test: here once, as plain C++.
// With version 3 this file is empty and the linked Catch2WithMain has the runner.
#define CATCH_CONFIG_MAIN
#include "catch.hpp"
