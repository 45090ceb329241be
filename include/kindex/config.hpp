// SPDX-FileCopyrightText: The kindex authors
// SPDX-License-Identifier: MIT
//
// The only header that looks at compiler and target macros. Every symbol below is always defined,
// the flags to 0 or 1, so that a misspelt one shows under -Wundef.
#pragma once

#include "version.hpp"

// Compilers -------------------------------------------------------------------------------------
/// 1 while a compiler that understands __global__ reads the file (HIP clang or nvcc), host or
/// device pass. Nvcc's macro is split in two: PyTorch's hipify, which rewrites the headers of an
/// AMD extension, would make HIP's of it, and changed copies of all of kindex.
#if defined(__HIP__) || defined(__CUDA\
CC__)
#define KINDEX_DEVICE_COMPILER 1
// For hipify as well: it adds this line to a header that says __global__ and lacks it.
#include <hip/hip_runtime.h>
#else
#define KINDEX_DEVICE_COMPILER 0
#endif

/// 1 for clang from 20 on, whose code for the matrix instructions and what follows them needs help
/// that earlier versions do not (seen with 21; detail/mma_gfx9.hpp).
#if defined(__clang__) && __clang_major__ >= 20
#define KINDEX_CLANG_20 1
#else
#define KINDEX_CLANG_20 0
#endif

/// 1 where HIP's NVIDIA platform is in use: nvcc, and C++ compilers that are told as HIP wants it.
#if defined(__NVCC__) || defined(__HIP_PLATFORM_NVIDIA__)
#define KINDEX_PLATFORM_NVIDIA 1
#else
#define KINDEX_PLATFORM_NVIDIA 0
#endif

/// 1 in the pass that makes device code.
#if defined(__HIP_DEVICE_COMPILE__) || defined(__CUDA_ARCH__)
#define KINDEX_DEVICE_PASS 1
#else
#define KINDEX_DEVICE_PASS 0
#endif

// Targets (all 0 in a host pass) ----------------------------------------------------------------
#if defined(__gfx942__)
#define KINDEX_TARGET_GFX942 1
#else
#define KINDEX_TARGET_GFX942 0
#endif

#if defined(__gfx950__)
#define KINDEX_TARGET_GFX950 1
#else
#define KINDEX_TARGET_GFX950 0
#endif

/// CDNA3 and CDNA4: wave64, fp8 MFMA, packed fp32 math.
#if KINDEX_TARGET_GFX942 || KINDEX_TARGET_GFX950
#define KINDEX_TARGET_CDNA 1
#else
#define KINDEX_TARGET_CDNA 0
#endif

/// Hopper with its architecture-specific instructions (wgmma): compiled for sm_90a.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define KINDEX_TARGET_SM90A 1
#else
#define KINDEX_TARGET_SM90A 0
#endif

/// 1 if the kernels have a body for the target at hand. Elsewhere they compile to nothing and the
/// launchers refuse the device (`hipErrorNotSupported`): including kindex never fails.
#if KINDEX_TARGET_CDNA || KINDEX_TARGET_SM90A
#define KINDEX_TARGET_SUPPORTED 1
#else
#define KINDEX_TARGET_SUPPORTED 0
#endif

// Decorations -----------------------------------------------------------------------------------
#if KINDEX_DEVICE_COMPILER
#define KINDEX_HOST_DEVICE __host__ __device__
#define KINDEX_DEVICE __device__ __forceinline__
#define KINDEX_KERNEL __attribute__((visibility("hidden"))) __global__
#else
#define KINDEX_HOST_DEVICE
#define KINDEX_DEVICE
#define KINDEX_KERNEL
#endif

/// Launch bounds of a kernel that fills the machine: threads of a block and, on AMD, the waves that
/// must fit one SIMD, which is its register budget. At two or more (256 registers) clang also keeps
/// matrix results out of the accumulation registers, which the vector instructions that follow
/// could not read. On NVIDIA one block a multiprocessor, which lets warpgroups share out the
/// registers.
#if KINDEX_PLATFORM_NVIDIA
#define KINDEX_LAUNCH_BOUNDS(threads, waves_per_simd) __launch_bounds__(threads, 1)
#else
#define KINDEX_LAUNCH_BOUNDS(threads, waves_per_simd) \
  __launch_bounds__(threads) __attribute__((amdgpu_waves_per_eu(waves_per_simd)))
#endif

/// Before a loop that seldom runs: one version of it, with little code and few registers.
#if defined(__clang__)
#define KINDEX_PLAIN_LOOP \
  _Pragma("clang loop unroll(disable) vectorize(disable) interleave(disable)")
#elif KINDEX_DEVICE_COMPILER
#define KINDEX_PLAIN_LOOP _Pragma("unroll 1")
#else
#define KINDEX_PLAIN_LOOP
#endif

// The namespace carries the version: two versions in one process do not pick each other's kernels.
#define KINDEX_NAMESPACE_BEGIN \
  namespace kindex {           \
  inline namespace v0_1 {
#define KINDEX_NAMESPACE_END \
  }                          \
  }
