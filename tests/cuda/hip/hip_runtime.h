// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// <hip/hip_runtime.h> for nvcc without a HIP install: see hip_runtime_api.h. Names that device code
// uses (threadIdx, __syncthreads, __umul64hi …) are the same in both.
#pragma once

#include <cuda_runtime.h>

#include "hip_runtime_api.h"
