#!/usr/bin/env bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# Writes docs/faults.md: which tests rule out which class of faults. The tests say so themselves,
# by a tag [class_X]; the programs that have them list them. Runs every tagged case for its number
# of assertions.
#
#   docs/faults.sh [--build DIR] [--cases-only]
#
#   --build DIR    a build with kindex_tests and kindex_host_tests (default: build/emulated)
#   --cases-only   runs nothing, counts cases only: takes a second
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/emulated
counting=true
while [[ $# -gt 0 ]]; do
  case $1 in
    --build) build=$2; shift 2 ;;
    --cases-only) counting=false; shift ;;
    *) printf 'faults.sh: unknown argument "%s"\n' "$1" >&2; exit 2 ;;
  esac
done
[[ ! -d $build/emulator ]] ||
  export LD_LIBRARY_PATH=$build/emulator${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# class|what it is|what these tests cannot see
classes='A|Addresses in 32 bits: wrong beyond 2, 4 or 8 GiB, or 2^31 elements|
B|Layout of a page, page table: writer and reader disagree|
C|Reads or writes past the end of a row, table or array; rows and columns that need a clamp|
D|Sentinels: slots and page ids that are none, rows beyond the lengths|
E|Empty work: no tokens, no sequences, no pages|
F|NaN, stale or unwritten values that reach the result|
G|Several query rows of a sequence (speculative decoding): what each of them sees|
H|fp8 conversion: rounding, subnormals, signs, saturation|
I|One fp8 format taken for the other|
J|Scales: value, place, floor, rounding, several in a token|
K|Strides and alignments that are not the dense ones|
L|Races and hangs|Races in shared memory are found by the emulator, those in global memory show on a GPU only: run the suite there too
M|Graph capture: one graph, other lengths, tables, slots and data|The emulator records and replays; what a driver refuses to capture shows on a GPU only
N|Shapes, batches and devices; what is not supported is refused, by name|
O|Cost: work that grows with what it should not|Counted in instructions and bytes, by the emulator; time is for the benchmark on a GPU
P|Waves: odd numbers of tokens, masks of 64 lanes|
R|Where work is split: lengths on and beside the borders|
S|Two caches of different kinds in one process|'

# list PROGRAM FILTER: names of cases, one a line. Catch2 has changed how, and version 2 exits with
# their number.
names_only=(--list-tests --verbosity quiet)
if grep -q -- --list-test-names-only < <("$build/bin/kindex_tests" --help); then
  names_only=(--list-test-names-only)
fi
list() { "$build/bin/$1" "${names_only[@]}" "$2" || true; }

declare -A assertions
count() {  # program, case: sets `counted`
  local key="$1/$2" output
  if [[ -z ${assertions[$key]:-} ]]; then
    # These have a meaning in a filter.
    # shellcheck disable=SC2001
    output=$("$build/bin/$1" "$(sed 's/[][,\\*"]/\\&/g' <<< "$2")" 2> /dev/null) || {
      printf 'faults.sh: "%s" fails\n' "$2" >&2
      exit 1
    }
    output=$(grep -oE '[0-9]+ assertions?' <<< "$output" | tail -n 1) || {
      printf 'faults.sh: "%s" did not run\n' "$2" >&2
      exit 1
    }
    assertions[$key]=${output%% *}
  fi
  counted=${assertions[$key]}
}

table='' sections=''
while IFS='|' read -r class what limit; do
  device=0 host=0 total=0 lines=
  for program in kindex_tests kindex_host_tests; do
    long=$(list "$program" "[class_$class][long]")
    while IFS= read -r name; do
      [[ -n $name ]] || continue
      if [[ $program == kindex_tests ]]; then device=$((device + 1)); else host=$((host + 1)); fi
      if grep -qxF -- "$name" <<< "$long"; then
        lines+="- $name (long: \`./run.sh test --all\`)"$'\n'
        continue
      fi
      notes=()
      [[ $program == kindex_tests ]] || notes+=(host)
      if $counting; then
        count "$program" "$name"
        total=$((total + counted))
        notes+=("$counted")
      fi
      lines+="- $name${notes[*]:+ (${notes[*]})}"$'\n'
    done < <(list "$program" "[class_$class]")
  done
  if [[ -z $lines ]]; then
    printf 'faults.sh: no test has the tag [class_%s]\n' "$class" >&2
    exit 1
  fi
  table+="| [$class](#class-${class,,}) | $what | $device | $host |"
  ! $counting || table+=" $total |"
  table+=$'\n'
  sections+=$'\n'"## Class $class"$'\n\n'"$what.${limit:+ *$limit.*}"$'\n\n'"$lines"
done <<< "$classes"

cat > "$root/docs/faults.md" << END
<!-- SPDX-FileCopyrightText: The kindex authors -->
<!-- SPDX-License-Identifier: MIT -->
<!-- Written by docs/faults.sh from the tests' tags [class_X]: do not edit. -->

# Faults and the tests that rule them out

Kinds of faults that users of such kernels have reported, and the test cases that would notice. One
case goes through many shapes, page sizes, layouts and formats. An assertion is anything from one
value to the whole output of a launch, compared bit by bit or within the contract's tolerance, guard
bytes included. Device tests run the kernels, on a GPU or on the emulator; host tests check the
arithmetic, the refusals and the reference that device tests compare with.
\`kindex_tests '[class_A]'\` runs the tests of class A.

That the tests notice is itself tested: \`tests/mutation/check.sh\` breaks the library in many ways,
one at a time, and each must turn a test red.

| class | fault | device cases | host cases |$($counting && echo ' assertions |')
|---|---|---|---|$($counting && echo '---|')
$table$sections
END
