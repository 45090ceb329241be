// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// kindex's headers, with the number of compute units under the tests' control: few of them make
// each block walk over many pages and sequences without millions of tokens. All of a test program's
// translation units with device code include kindex through this header, or its inline functions
// would have two definitions.
#pragma once

#include <hip/hip_runtime.h>

#include "support/ops.hpp"

#define hipDeviceGetAttribute ::kindex_test::device_attribute
#include <kindex/kindex.hpp>
#undef hipDeviceGetAttribute
