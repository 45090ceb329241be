#!/usr/bin/env bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# Breaks the library in many ways, one at a time, and shows that the tests notice: see --help.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() {
  cat <<'USAGE'
Usage: tests/mutation/check.sh [options] [NAME...]

Applies every mutation of mutations.sh, or those whose names match a NAME (a shell pattern), to a
copy of the headers; compiles the few kernels that it touches; runs the tests that should notice,
with all other kernels as they are. A mutation is killed if a test fails, crashes or does not end. Ends
with "killed N of N"; exit status 1 if one survived.

  --build DIR   a build for the emulator (default: build/emulated, which is made or brought up to
                date first; a DIR given here is taken as it is)
  --jobs N      that many mutations at a time (default: the number of CPUs)
  --scratch DIR where the mutants go, and stay (default: a temporary folder)
  --control     compile every listed kernel from unchanged headers, run all listed tests: must pass
  --list        names only
USAGE
}

say() { printf 'mutation: %s\n' "$*" >&2; }
fail() { say "$*"; exit 2; }

build=
scratch=
jobs=$(nproc)
action=run
wanted=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --build) build=$(cd "$2" && pwd); shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --scratch) mkdir -p "$2"; scratch=$(cd "$2" && pwd); shift 2 ;;
    --control) action=control; shift ;;
    --list) action=list; shift ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option \"$1\"" ;;
    *) wanted+=("$1"); shift ;;
  esac
done

# ---- the list ---------------------------------------------------------------------------------

names=() files=() kinds=() kernels=() specs=() olds=() news=()

add() {
  local text
  text=$(cat && echo .)  # command substitution drops newlines at the end
  text=${text%$'\n.'}
  [[ $text == *$'\n====\n'* ]] || fail "\"$2\": no line ==== between the old text and the new one"
  kinds+=("$1") names+=("$2") files+=("$3") kernels+=("$4") specs+=("$5")
  olds+=("${text%%$'\n====\n'*}") news+=("${text#*$'\n====\n'}")
}

# device NAME HEADER KERNELS TESTS      with "old text, ====, new text" on stdin
device() { add device "$@"; }
# host NAME HEADER SOURCE TESTS         SOURCE: the file of kindex_host_tests that notices
host() { add host "$@"; }
# hopper NAME HEADER TESTS              tests of the model of Hopper
hopper() { add hopper "$1" "$2" none "$3"; }

# shellcheck source=mutations.sh
source "$here/mutations.sh"

selected=()
for i in "${!names[@]}"; do
  [[ ${#wanted[@]} -gt 0 ]] || selected+=("$i")
  for pattern in "${wanted[@]}"; do
    # shellcheck disable=SC2053
    if [[ ${names[i]} == $pattern ]]; then
      selected+=("$i")
      break
    fi
  done
done
[[ ${#selected[@]} -gt 0 ]] || fail "no mutation has such a name"
if [[ $action == list ]]; then
  for i in "${selected[@]}"; do printf '%s\n' "${names[i]}"; done
  exit 0
fi

# ---- what the build knows ---------------------------------------------------------------------

if [[ -z $build ]]; then
  build=$root/build/emulated
  cd "$root"
  cmake --preset emulated > /dev/null
  cmake --build --preset emulated --target kindex_tests kindex_host_tests kindex_emulator \
    kindex_hopper_model_tests
fi
if [[ -z $scratch ]]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi

# command_of VARIABLE TARGET PATTERN: the one command for TARGET that has PATTERN, in words.
command_of() {
  local line
  line=$(ninja -C "$build" -t commands "$2" | grep -E -- "$3" | tail -n 1) || true
  [[ -n $line ]] || fail "$build has no command for $2 with $3"
  line=${line#: && } line=${line% && :}
  read -ra "${1?}" <<< "$line"
}

# Words of a compile command but for its files: those come from the caller.
only_options() {
  local -n words=$1
  local kept=() i
  for ((i = 0; i < ${#words[@]}; ++i)); do
    case ${words[i]} in
      -MD | -Werror) ;;
      -MT | -MF | -o | -c) ((++i)) ;;
      *) kept+=("${words[i]}") ;;
    esac
  done
  words=("${kept[@]}")
}

hip=() cxx=() cxx_hopper=()
command_of hip kindex_tests '/ops_gather\.hip( |$)'
command_of cxx kindex_host_tests '/host_layout\.cpp( |$)'
command_of cxx_hopper kindex_hopper_model_tests '/hopper_model/test_logits\.cpp( |$)'
command_of link_tests kindex_tests '-o bin/kindex_tests( |$)'
command_of link_host kindex_host_tests '-o bin/kindex_host_tests( |$)'
command_of link_hopper kindex_hopper_model_tests '-o bin/kindex_hopper_model_tests( |$)'
only_options hip
only_options cxx
only_options cxx_hopper

# symbol_of NAME: the operation that the tests call.
symbol_of() {
  nm "$build/bin/kindex_tests" | grep -oE "_ZN11kindex_test${#1}$1ERKN6kindex[A-Za-z0-9_]*" | sort -u
}
store_symbol=$(symbol_of store)
gather_symbol=$(symbol_of gather)
logits_symbol=$(symbol_of paged_mqa_logits)

compile_wrap() {
  "${cxx[@]}" -DKINDEX_STORE_SYMBOL="\"$store_symbol\"" -DKINDEX_GATHER_SYMBOL="\"$gather_symbol\"" \
    -DKINDEX_LOGITS_SYMBOL="\"$logits_symbol\"" -c "$here/wrap.cpp" -o "$scratch/wrap.o"
}

# link OUTPUT-PROGRAM COMMAND-VARIABLE OLD-OBJECT NEW-OBJECT EXTRA...
link() {
  local output=$1 old=$3 new=$4 word
  local -n from=$2
  local words=()
  for word in "${from[@]}"; do
    case $word in
      bin/kindex_tests | bin/kindex_host_tests | bin/kindex_hopper_model_tests) word=$output ;;
      */"$old") word=$new ;;
    esac
    words+=("$word")
  done
  (cd "$build" && "${words[@]}" "${@:5}")
}

# ---- mutants ----------------------------------------------------------------------------------

# mutate INDEX: a copy of the headers, changed and in a namespace of its own. An index without a
# mutation gives the control.
mutate() {
  local i=$1 dir=$scratch/$1
  rm -rf "$dir"
  mkdir -p "$dir"
  cp -r "$root/include" "$dir/"
  if [[ -n ${names[i]:-} ]]; then
    local header=$dir/include/kindex/${files[i]} text old=${olds[i]}
    text=$(< "$header") || return 1
    local without=${text//"$old"/}
    local times=$(((${#text} - ${#without}) / ${#old}))
    if [[ $times -ne 1 ]]; then
      echo "the old text is $times times in ${files[i]}, not once"
      return 1
    fi
    printf '%s%s%s\n' "${text%%"$old"*}" "${news[i]}" "${text#*"$old"}" > "$header"
    [[ ${kinds[i]} == device ]] || return 0
  fi
  # All mutants of a batch are in one translation unit, beside the library itself in one program.
  find "$dir/include" -name '*.hpp' -exec \
    sed -i "s/\bkindex::/kindex_mutant$i::/g; s/namespace kindex {/namespace kindex_mutant$i {/" {} +
  if ! grep -q "namespace kindex_mutant$i {" "$dir/include/kindex/config.hpp"; then
    echo "config.hpp does not open namespace kindex"
    return 1
  fi
}

# build_device INDEX...: one program with these mutants, $scratch/FIRST/tests.
build_device() {
  local i dir=$scratch/$1
  {
    echo '#include <hip/hip_runtime.h>'
    echo '#include "mutation/registry.hpp"'
    echo 'namespace kindex_test { hipError_t device_attribute(int*, hipDeviceAttribute_t, int); }'
    echo '#define hipDeviceGetAttribute ::kindex_test::device_attribute'
    for i in "$@"; do
      echo "#include \"$scratch/$i/include/kindex/kindex.hpp\""
      echo "#define KINDEX_MUTANT $i"
      echo "#define KINDEX_MUTANT_NAMESPACE kindex_mutant$i"
      echo "#define KINDEX_MUTANT_KERNELS ${kernels[i]}"
      echo '#include "mutation/mutant.hpp"'
      printf '#undef %s\n' KINDEX_MUTANT KINDEX_MUTANT_NAMESPACE KINDEX_MUTANT_KERNELS
    done
  } > "$dir/mutants.hip"
  "${hip[@]}" -w -c "$dir/mutants.hip" -o "$dir/mutants.o" &&
    link "$dir/tests" link_tests none none "$dir/mutants.o" "$scratch/wrap.o" \
      -Wl,--wrap="$store_symbol" -Wl,--wrap="$gather_symbol" -Wl,--wrap="$logits_symbol"
}

# build_host INDEX: the host tests with one source compiled again.
build_host() {
  local dir=$scratch/$1 source=${kernels[$1]}
  "${cxx[0]}" -I"$dir/include" "${cxx[@]:1}" -w -O0 -c "$root/tests/$source.cpp" -o "$dir/mutant.o" &&
    link "$dir/tests" link_host "$source.cpp.o" "$dir/mutant.o"
}

# build_hopper INDEX: the model's tests, which include the headers.
build_hopper() {
  local dir=$scratch/$1
  cp "$root/tests/hopper_model/mma_sm90.hpp" "$dir/include/kindex/detail/" &&
    "${cxx_hopper[0]}" -I"$dir/include" "${cxx_hopper[@]:1}" -w \
      -c "$root/tests/hopper_model/test_logits.cpp" -o "$dir/mutant.o" &&
    link "$dir/tests" link_hopper test_logits.cpp.o "$dir/mutant.o"
}

# verdict INDEX PROGRAM: runs the tests; one line.
verdict() {
  local i=$1 log=$scratch/$1.log status=0 how calls seconds=$SECONDS
  # The limit is on the instructions of one wave: many times what the longest test needs.
  KINDEX_MUTANT=$i KINDEX_EMULATOR_LIMIT=20000000 LD_LIBRARY_PATH=$build/emulator \
    timeout 300 "$2" "${specs[i]}" --abort > "$log" 2>&1 || status=$?
  calls=$(sed -n 's/^mutant: \(.* calls\)$/, \1/p' "$log")
  # The name of the case that failed stands between two lines of dashes.
  how=$(sed -n '/^-----/{n;p;q}' "$log")
  [[ $status -ne 124 ]] || how="does not end: ${how:-${specs[i]}}"
  if grep -qE 'No test(s ran| cases matched)' "$log"; then
    echo "BROKEN    ${names[i]}: no test matches ${specs[i]}"
  elif [[ $status -eq 0 && $calls == ', 0 calls' ]]; then
    echo "BROKEN    ${names[i]}: ${specs[i]} never calls ${kernels[i]}"
  elif [[ $status -eq 0 ]]; then
    echo "SURVIVED  ${names[i]} (${specs[i]}$calls)"
  elif [[ $calls == ', 0 calls' ]]; then
    echo "BROKEN    ${names[i]}: without a mutated kernel, $how fails"
  else
    echo "killed    ${names[i]} <- ${how:-crash in ${specs[i]}} ($((SECONDS - seconds)) s$calls)"
  fi
}

# check_batch INDEX...: verdicts on mutations of one kind.
check_batch() {
  local i kind=${kinds[$1]} mutants=()
  for i in "$@"; do
    if mutate "$i" > "$scratch/$i.log" 2>&1; then
      mutants+=("$i")
    else
      echo "BROKEN    ${names[i]}: $(tail -n 1 "$scratch/$i.log")"
    fi
  done
  [[ ${#mutants[@]} -gt 0 ]] || return 0
  local first=${mutants[0]}
  if "build_$kind" "${mutants[@]}" > "$scratch/$first.log" 2>&1; then
    for i in "${mutants[@]}"; do verdict "$i" "$scratch/$first/tests"; done
  elif [[ ${#mutants[@]} -gt 1 ]]; then
    for i in "${mutants[@]}"; do check_batch "$i"; done
  else
    echo "BROKEN    ${names[first]}: does not compile: $(grep -m 1 error "$scratch/$first.log")"
  fi
  for i in "${mutants[@]}"; do rm -rf "${scratch:?}/$i"; done
}

control() {
  local i=${#names[@]} specs_of_all
  kernels[i]=$(for k in "${selected[@]}"; do
    [[ ${kinds[k]} != device ]] || grep -oE '[SGL]\([^)]*\)' <<< "${kernels[k]}"
  done | sort -u | tr '\n' ' ')
  specs_of_all=$(for k in "${selected[@]}"; do
    [[ ${kinds[k]} != device ]] || printf '%s\n' "${specs[k]}"
  done | sort -u | paste -sd ,)
  mutate "$i" && build_device "$i"
  KINDEX_MUTANT=$i LD_LIBRARY_PATH=$build/emulator "$scratch/$i/tests" "$specs_of_all" \
    --durations yes
}

compile_wrap
if [[ $action == control ]]; then
  control
  exit
fi

results=$scratch/results
: > "$results"
in_background() {
  while [[ $(jobs -rp | wc -l) -ge $jobs ]]; do wait -n || true; done
  check_batch "$@" | tee -a "$results" &
}
batch=()
for i in "${selected[@]}"; do
  if [[ ${kinds[i]} != device ]]; then
    in_background "$i"
    continue
  fi
  batch+=("$i")
  if [[ ${#batch[@]} -eq 8 ]]; then
    in_background "${batch[@]}"
    batch=()
  fi
done
[[ ${#batch[@]} -eq 0 ]] || in_background "${batch[@]}"
wait

killed=$(grep -c '^killed' "$results" || true)
grep -vE '^killed' "$results" || true
echo "killed $killed of ${#selected[@]}"
[[ $killed -eq ${#selected[@]} ]]
