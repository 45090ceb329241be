// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The version, as literals: works without CMake, and CMake reads it from here.
#pragma once

#define KINDEX_VERSION_MAJOR 0
#define KINDEX_VERSION_MINOR 1
#define KINDEX_VERSION_PATCH 0

/// Monotone in every part: compare with `>=`.
#define KINDEX_VERSION \
  (KINDEX_VERSION_MAJOR * 10000 + KINDEX_VERSION_MINOR * 100 + KINDEX_VERSION_PATCH)
