#!/usr/bin/env bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# .github/workflows/lint.sh [format|tidy|docs|scripts]...: all four unless named. Needs clang-format-19,
# clang-tidy-19, doxygen, cmake, shellcheck, python3-yaml and the packages that ./run.sh installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ $# -gt 0 ]] || set -- format tidy docs scripts
failed=0

format() {
  git ls-files '*.hpp' '*.h' '*.cpp' '*.hip' | xargs clang-format-19 --dry-run --Werror
}

# The public headers, as a C++ compiler and as the examples see them; and the kernels, all that the
# tests call, in the device pass for gfx942. Not those of Hopper: clang 19 cannot read the headers of
# CUDA 13. Off: checks whose advice the code goes against on purpose: adjacent parameters of one
# type, narrowing that is meant, floats compared bit by bit, small vectors filled in a loop, loops
# that step in their condition.
tidy() {
  local checks='-*,bugprone-*,performance-*,portability-*,misc-definitions-in-headers'
  checks+=',-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions'
  checks+=',-bugprone-implicit-widening-of-multiplication-result,-bugprone-macro-parentheses'
  checks+=',-performance-no-int-to-ptr,-performance-enum-size,-portability-template-virtual-member-function'
  checks+=',-bugprone-branch-clone,-bugprone-misplaced-widening-cast'
  checks+=',-bugprone-suspicious-memory-comparison,-performance-inefficient-vector-operation'
  checks+=',-bugprone-assignment-in-if-condition'
  local -a options=(--quiet "--checks=$checks" '--warnings-as-errors=*'
                    '--header-filter=(include/kindex|examples)/.*')
  clang-tidy-19 "${options[@]}" include/kindex/{validate,reference}.hpp -- -x c++ -std=c++17 \
    -Wno-pragma-once-outside-header -D__HIP_PLATFORM_AMD__
  local -a hip=(-x hip --offload-arch=gfx942 -nogpulib -std=c++17 -Iinclude)
  clang-tidy-19 "${options[@]}" examples/{minimal,graph_capture,migrate}/*.hip -- "${hip[@]}" \
    --cuda-host-only
  clang-tidy-19 "${options[@]}" tests/support/ops_*.hip -- "${hip[@]}" --cuda-device-only -Itests
}

docs() {
  mkdir -p build
  doxygen Doxyfile
  docs/make_layout_svg.py --check
  cmake -DREADME=README.md -DEXAMPLE=examples/minimal/minimal.hip -P examples/check_readme.cmake
}

# The shell scripts; and that the workflows are YAML.
scripts() {
  git ls-files '*.sh' .ci/run | xargs shellcheck --severity=warning
  python3 -c 'import sys, yaml
for name in sys.argv[1:]:
    yaml.safe_load(open(name))' .github/workflows/*.yml
}

for step in "$@"; do
  case $step in
    format | tidy | docs | scripts) ;;
    *) echo "unknown step \"$step\": it is format, tidy, docs or scripts" >&2; exit 2 ;;
  esac
  # Not as a condition, or set -e would be off inside.
  set +e
  (set -e; "$step")
  status=$?
  set -e
  if [[ $status -eq 0 ]]; then echo "$step: ok"; else echo "$step: FAILED"; failed=1; fi
done
exit $failed
