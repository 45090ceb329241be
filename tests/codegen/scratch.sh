#!/usr/bin/env bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# Whether a kernel in a program uses scratch, spills vector registers or has accumulation registers:
#   tests/codegen/scratch.sh PROGRAM LEAST [READELF]
# Budgets have one instantiation of each kind; this looks at all that a program has, of which there must
# be at least LEAST. READELF is LLVM's (default: llvm-readelf-19), which reads the code objects' notes.
set -euo pipefail

if [[ $# -lt 2 || $# -gt 3 ]]; then
  sed -n '5,8s/^# //p' "$0"
  exit 2
fi
program=$1 least=$2 readelf=${3:-llvm-readelf-19}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

objcopy -O binary --only-section=.hip_fatbin "$program" "$scratch/all"
# The section is one bundle after another, a bundle for each translation unit, with one code object.
mapfile -t starts < <(LC_ALL=C grep -abo -P '\x7fELF' "$scratch/all" | cut -d: -f1)
[[ ${#starts[@]} -gt 0 ]] || { echo "scratch.sh: no code object in $program" >&2; exit 1; }
for start in "${starts[@]}"; do
  tail -c "+$((start + 1))" "$scratch/all" > "$scratch/object"
  "$readelf" --notes "$scratch/object" 2> /dev/null
done |
  awk -v least="$least" '
    $2 == ".agpr_count:" { accumulation = $3 }
    $1 == ".private_segment_fixed_size:" { ++kernels; used = $2 }
    $1 == ".symbol:" && used > 0 { print "scratch of", used, "bytes:", $2; ++faults }
    $1 == ".symbol:" && accumulation > 0 { print accumulation, "accumulation registers:", $2; ++faults }
    $1 == ".symbol:" { symbol = $2 }
    $1 == ".vgpr_spill_count:" && $2 > 0 { print $2, "vector registers spilled:", symbol; ++faults }
    END {
      printf "%d kernels, %d faults\n", kernels, faults
      if (kernels < least) print "fewer kernels than the " least " expected"
      exit faults > 0 || kernels < least
    }'
