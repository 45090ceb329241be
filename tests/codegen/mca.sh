#!/usr/bin/env bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# llvm-mca's view of a main loop: tests/codegen/mca.sh BUILD [KERNEL LAYOUT PAGE HEADS]
# The kernel is named as in budgets.txt; without one: logits preshuffled 64 64. BUILD is a build for
# the emulator in which `ctest -L codegen` has run. LLVM_MCA names another llvm-mca than llvm-mca-19;
# without one the script says so and exits with 77.
# Its model is one wave on one SIMD, one of its cycles is four of the clock, and a load takes 80 of them:
# it shows what the instructions need of one SIMD, not how long a loop takes.
set -euo pipefail

if [[ $# -ne 1 && $# -ne 5 ]]; then
  sed -n '5,10s/^# //p' "$0"
  exit 2
fi
mca=${LLVM_MCA:-llvm-mca-19}
if ! command -v "$mca" > /dev/null; then
  echo "mca.sh: $mca is not installed (Debian: llvm-19), or LLVM_MCA names none" >&2
  exit 77
fi
build=$1
shift
[[ $# -gt 0 ]] || set -- logits preshuffled 64 64
"$build/bin/kindex_check_budgets" "$build/tests/codegen/kernels.s" --loop "$@" |
  "$mca" -mtriple=amdgcn -mcpu=gfx942 -iterations=100
