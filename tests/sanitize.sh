#!/usr/bin/env bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# The device tests under compute-sanitizer, on a machine with an NVIDIA GPU; several files at a time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat << 'END'
Usage: tests/sanitize.sh [options] [TOOL...]

Runs the test files (or one, or parts of them) under each TOOL of compute-sanitizer: memcheck, racecheck,
synccheck, initcheck; all four unless named. One line for each run, then "clean: N of N"; exit status 1
if one was not. Not run: long cases, files that allocate many GB, and the counts of the emulator.

  --build DIR      where bin/kindex_tests is (default: build/nvidia)
  --file NAME      this file only, as test_store; may be repeated
  --cases PATTERN  only cases whose names match, of all files; may be repeated
  --jobs N         that many at a time (default: half the CPUs)
  --timeout S      seconds that one run may take (default: 600)
  --logs DIR       where what the tools print stays (default: build/sanitize)
END
}

bad_argument() { echo "sanitize.sh: $*; see tests/sanitize.sh --help" >&2; exit 2; }

build=build/nvidia
jobs=$((($(nproc) + 1) / 2))
timeout=600
logs=build/sanitize
tools=() files=() cases=()
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --build | --file | --cases | --jobs | --timeout | --logs)
      [[ $# -ge 2 ]] || bad_argument "$1 needs a value"
      case $1 in
        --build) build=$2 ;;
        --file) files+=("$2") ;;
        --cases) cases+=("$2") ;;
        --jobs) jobs=$2 ;;
        --timeout) timeout=$2 ;;
        --logs) logs=$2 ;;
      esac
      shift 2 ;;
    memcheck | racecheck | synccheck | initcheck) tools+=("$1"); shift ;;
    *) bad_argument "unknown argument \"$1\"" ;;
  esac
done
[[ $jobs =~ ^[1-9][0-9]*$ ]] || bad_argument "--jobs \"$jobs\" is not a positive number"
[[ $timeout =~ ^[1-9][0-9]*$ ]] || bad_argument "--timeout \"$timeout\" is not a positive number"
[[ ${#tools[@]} -gt 0 ]] || tools=(memcheck racecheck synccheck initcheck)
[[ -x $build/bin/kindex_tests ]] ||
  { echo "sanitize.sh: no $build/bin/kindex_tests: ./run.sh test --device nvidia" >&2; exit 2; }
command -v compute-sanitizer > /dev/null ||
  { echo "sanitize.sh: no compute-sanitizer, of the CUDA toolkit, on the PATH" >&2; exit 2; }
for file in "${files[@]}"; do
  compgen -G "tests/$file.*" > /dev/null || bad_argument "no test file \"$file\""
done

# One line for each run: a name, and what kindex_tests is given.
runs=()
if [[ ${#cases[@]} -gt 0 ]]; then
  runs=("${cases[@]}")
else
  if [[ ${#files[@]} -eq 0 ]]; then
    mapfile -t files < <(basename -a tests/test_*.{cpp,hip} | sed 's/\..*//' |
      grep -vE '_large$|_addresses$|^test_counts$')
  fi
  for file in "${files[@]}"; do runs+=("[#$file]~[long]"); done
fi

mkdir -p "$logs"
results=$(mktemp)
trap 'rm -f "$results"' EXIT

run_one() {  # tool run
  local log clean=clean status=0 start=$SECONDS
  log=$logs/$1.$(tr -cs 'A-Za-z0-9\n' _ <<< "$2").log
  # Errors of the API are what some tests ask for. Tests that fail need not be the tool's affair, but
  # are not clean either.
  timeout "$timeout" compute-sanitizer --tool "$1" --error-exitcode 9 --report-api-errors no \
    "$build/bin/kindex_tests" '-#' "$2" > "$log" 2>&1 || status=$?
  if [[ $status -eq 124 ]]; then
    clean="NOT CLEAN: over $timeout s"
  elif [[ $status -ne 0 ]] || ! grep -qE 'SUMMARY: 0 (errors|hazards)' "$log" ||
    ! grep -q 'All tests passed' "$log"; then
    clean="NOT CLEAN: exit status $status, $log"
  fi
  echo "$1 $2: $clean ($((SECONDS - start)) s; $(grep -hoE '(SUMMARY: .*|All tests passed.*)' "$log" | tr '\n' ' '))" |
    tee -a "$results"
}

for tool in "${tools[@]}"; do
  for run in "${runs[@]}"; do
    while [[ $(jobs -rp | wc -l) -ge $jobs ]]; do wait -n || true; done
    run_one "$tool" "$run" &
  done
done
wait
total=$((${#tools[@]} * ${#runs[@]}))
num_clean=$(grep -c ': clean (' "$results" || true)
echo "clean: $num_clean of $total"
[[ $num_clean -eq $total ]]
