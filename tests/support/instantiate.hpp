// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// For the translation units that instantiate the library (ops_*.hip): kindex's headers, with the
// number of compute units under the tests' control. Few of them make each block walk over many
// pages and sequences without millions of tokens.
#pragma once

#include <hip/hip_runtime.h>

#include "support/ops.hpp"

#define hipDeviceGetAttribute ::kindex_test::device_attribute
#include <kindex/kindex.hpp>
#undef hipDeviceGetAttribute
