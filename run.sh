#!/usr/bin/env bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# One command from a fresh clone to a result: see ./run.sh --help.
set -euo pipefail

self=./run.sh
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'EOF'
Usage:
  ./run.sh test  [--all] [options] [ctest options]
  ./run.sh bench [options] [benchmark arguments]
  ./run.sh --help

  test     builds and runs the test suite. The few long tests run with --all only.
  bench    builds and runs the benchmark of the 8k1k scenario: store, gather and paged MQA
           logits on real-size input.

Each does its own set-up. It looks which Debian packages are missing, names them, installs them
with apt-get (as root, or through sudo), configures with CMake, builds with Ninja and runs. A
second run finds everything in place and starts at once. Without root and without sudo it prints
the line to run and stops. Builds go to build/<device>, nothing else in the tree is touched.

Options:
  --device WHERE   where the kernels run (default: auto)
      auto         amd if rocminfo lists a gfx942 or gfx950 GPU; else nvidia if nvidia-smi
                   works and nvcc is on the PATH; else emulated
      emulated     no GPU needed: the gfx942 machine code of the same programs is interpreted on
                   the CPU, every memory access checked. Counts are real, times are not.
      amd          an AMD Instinct GPU and ROCm 6 or newer
      nvidia       a Hopper GPU (sm_90a) and the CUDA toolkit; HIP is not needed
  --all            test: run the long tests too
  --werror         compiler warnings are errors
  --jobs N         compile N files at a time (default: the number of CPUs)
  --no-install     install nothing: name the missing packages and stop
  -h, --help       this text

ctest options:
  -R, -E REGEX   -L, -LE LABEL   -V, -VV   -N   --stop-on-failure   --rerun-failed
                   passed on to ctest, as is everything after "--". One test per file, by its name:
                   -R '^store$' runs tests/test_store.cpp, -R '^host.fp8$' tests/host_fp8.cpp,
                   -R store whatever has "store" in its name.
  Labels:
      host         views, params, validate, fp8 and the reference: plain C++; the charts
      device       the kernels, on the device: bytes, logits, bounds, graphs, streams, refusals
      example      the programs of examples/, the README's code, the drawing of the layout
      headers      each header alone and twice, all at once, macros, a build for several targets
      compile_fail what must not compile, and what the compiler says of it
      consumer     the package in-tree and installed, and a bare include path
      codegen      registers, LDS, scratch and loop lengths of the kernels, against budgets
      emulator     the emulator itself
      hopper_model the Hopper kernel of the logits on a model of the machine: no GPU needed
      long         minutes each: with --all only

Benchmark arguments: all others, for example
  --benchmark_list_tests   --benchmark_filter=REGEX   --benchmark_format=json

Examples:
  ./run.sh test -R logits
  ./run.sh test --all --device amd
  ./run.sh bench --benchmark_filter=gather

Exit status: 0 all well; 1 something failed, with the reason above; 2 bad arguments.
Environment: ROCM_PATH (default /opt/rocm); HIPCXX, a clang++ to compile HIP with.
EOF
}

say() { printf 'run.sh: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
bad_argument() { say "$*"; say "see $self --help"; exit 2; }

# ---- arguments --------------------------------------------------------------------------------

command=
device=auto
all=false
werror=OFF
install=true
jobs=
pass_on=()

positive_integer() { [[ $1 =~ ^[1-9][0-9]*$ ]]; }

parse() {
  [[ $# -gt 0 ]] || bad_argument "no command: it is test or bench"
  case $1 in
    test | bench) command=$1; shift ;;
    -h | --help | help) usage; exit 0 ;;
    *) bad_argument "unknown command \"$1\": it is test or bench" ;;
  esac
  while [[ $# -gt 0 ]]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --device=* | --jobs=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
      --device | --jobs)
        [[ $# -ge 2 ]] || bad_argument "$1 needs a value"
        if [[ $1 == --device ]]; then device=$2; else jobs=$2; fi
        shift 2; continue ;;
      --werror) werror=ON; shift; continue ;;
      --no-install) install=false; shift; continue ;;
      --) shift; pass_on+=("$@"); break ;;
    esac
    if [[ $command == bench ]]; then
      [[ $1 != --all ]] || bad_argument "--all is an option of test, not of bench"
      pass_on+=("$1"); shift; continue
    fi
    case $1 in
      --all) all=true; shift ;;
      -R | -E | -L | -LE)
        [[ $# -ge 2 ]] || bad_argument "$1 needs a value"
        pass_on+=("$1" "$2"); shift 2 ;;
      -V | -VV | -N | --stop-on-failure | --rerun-failed) pass_on+=("$1"); shift ;;
      *) bad_argument "unknown argument \"$1\" of test (what follows \"--\" goes to ctest)" ;;
    esac
  done
  case $device in
    auto | emulated | amd | nvidia) ;;
    *) bad_argument "unknown device \"$device\": it is auto, emulated, amd or nvidia" ;;
  esac
  [[ -z $jobs ]] || positive_integer "$jobs" || bad_argument "--jobs \"$jobs\" is not a positive number"
  [[ -n $jobs ]] || jobs=$(nproc)
}

# ---- device -----------------------------------------------------------------------------------

rocm_root=${ROCM_PATH:-/opt/rocm}

# Names of the GPUs that the ROCm runtime sees, one a line.
amd_gpus() {
  local tool
  [[ -e /dev/kfd ]] || return 0
  for tool in "$rocm_root/bin/rocminfo" rocminfo; do
    if command -v "$tool" > /dev/null; then
      "$tool" 2> /dev/null | sed -n 's/^ *Name: *\(gfx[0-9a-f]*\) *$/\1/p' | sort -u
      return 0
    fi
  done
}

choose_device() {
  [[ $device == auto ]] || return 0
  local gpus
  gpus=$(amd_gpus || true)
  if grep -qE '^(gfx942|gfx950)$' <<< "$gpus"; then
    device=amd
  elif command -v nvidia-smi > /dev/null && nvidia-smi > /dev/null 2>&1 &&
    command -v nvcc > /dev/null; then
    device=nvidia
  else
    device=emulated
    if [[ -n $gpus ]]; then
      say "the AMD GPU here (${gpus//$'\n'/, }) is not one that kindex has kernels for"
    elif [[ -e /dev/kfd ]]; then
      say "/dev/kfd is here, but no ROCm that sees a GPU (no rocminfo, or it lists none)"
    fi
  fi
  say "device: $device (choose with --device)"
}

check_device() {
  local header major
  case $device in
    amd)
      for header in {"$rocm_root",/usr}/include/hip/hip_version.h; do
        [[ -e $header ]] || continue
        major=$(sed -n 's/^#define HIP_VERSION_MAJOR \([0-9]*\)$/\1/p' "$header")
        [[ ${major:-0} -ge 6 ]] ||
          fail "--device amd needs ROCm 6 or newer (in $rocm_root, or where ROCM_PATH points); $header is of version ${major:-unknown}"
        break
      done
      [[ -n $(amd_gpus || true) ]] || say "no AMD GPU seen here: the programs will build, but not run" ;;
    nvidia)
      command -v nvcc > /dev/null ||
        fail "--device nvidia needs nvcc, of the CUDA toolkit, on the PATH" ;;
  esac
}

# ---- packages ---------------------------------------------------------------------------------

# The packages that this device's build and run need and that dpkg does not have, one a line.
missing_packages() {
  local -a need=(g++ catch2 libbenchmark-dev)
  # These may come from elsewhere (pip, a vendor's image): what counts is the command.
  command -v cmake > /dev/null || need+=(cmake)
  command -v ninja > /dev/null || need+=(ninja-build)
  if [[ $device == emulated || ($device == amd && ! -d $rocm_root/include/hip) ]]; then
    local v
    v=$(clang_version)
    # clang-tools has clang-offload-bundler; llvm the disassembler that the emulator reads with.
    need+=("clang-$v" "lld-$v" "llvm-$v" "clang-tools-$v" libamdhip64-dev librocprim-dev)
    need+=("$(device_libs_package "$v")")
    # Where CMake's HIP language works unaided it links with compiler-rt.
    [[ $distribution == debian12 ]] || need+=("libclang-rt-$v-dev")
  fi
  dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${need[@]}" 2> /dev/null |
    awk '$2 == "installed" { print $1 }' > "$scratch/installed" || true
  printf '%s\n' "${need[@]}" | grep -vxF -f "$scratch/installed" || true
}

# Debian 12 has clang 19 and device libraries that any clang reads. Later releases name the
# libraries after the one clang that they fit.
clang_version() {
  local v
  if [[ $distribution != debian12 ]]; then
    for v in 24 23 22 21 20; do
      if apt-cache show "rocm-device-libs-$v" > /dev/null 2>&1; then
        echo "$v"
        return
      fi
    done
  fi
  echo 19
}

device_libs_package() {
  if apt-cache show "rocm-device-libs-$1" > /dev/null 2>&1; then
    echo "rocm-device-libs-$1"
  else
    echo rocm-device-libs
  fi
}

# as_root=(), (sudo) or, where neither works, false.
become_root() {
  as_root=()
  [[ $(id -u) -ne 0 ]] || return 0
  as_root=(sudo)
  # Without a terminal sudo must not ask for a password.
  command -v sudo > /dev/null && { sudo -n true 2> /dev/null || { [[ -t 0 && -t 2 ]] && sudo -v; }; }
}

apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" < /dev/null >> "$log" 2>&1; }

install_packages() {
  # shellcheck source=/dev/null
  distribution=$(. /etc/os-release 2> /dev/null; echo "${ID:-}${VERSION_ID:-}")
  if ! command -v dpkg-query > /dev/null || ! command -v apt-get > /dev/null; then
    say "no dpkg and apt-get here, so not looking for packages. Needed: CMake 3.25, Ninja, g++, Catch2, Google Benchmark; for AMD targets a clang that knows gfx942, HIP and rocPRIM"
    return 0
  fi
  log=$root/build/apt.log
  mkdir -p "$root/build"
  : > "$log"
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT

  # Outside Debian 12 the names of the packages depend on the release: apt must know its packages.
  local updated=false
  if [[ $distribution != debian12 ]] && $install && ! compgen -G '/var/lib/apt/lists/*_Packages*' > /dev/null &&
    become_root; then
    say "apt-get update (no package lists here yet)"
    apt_get update && updated=true
  fi

  local -a missing
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  say "missing Debian packages: ${missing[*]}"
  local line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  $install || fail "not installing them (--no-install). The line to run as root: $line"
  if ! become_root; then
    say "neither root nor sudo here. Run this line as root, then $self $command again:"
    printf '%s\n' "$line"
    exit 1
  fi

  say "installing them${as_root[*]:+ with sudo}, a minute or two (log: build/apt.log)"
  # A failing update (one mirror down) need not matter: the install says whether it does.
  $updated || apt_get update || say "apt-get update failed; trying to install all the same"
  if ! apt_get install -y --no-install-recommends "${missing[@]}"; then
    tail -n 20 "$log" >&2
    fail "apt-get could not install them. The line to run as root: $line"
  fi
  say "installed"
}

# ---- build and run ----------------------------------------------------------------------------

configure_and_build() {  # target...
  local build=$root/build/$device log=$root/build/$device/configure.log
  mkdir -p "$build"
  cd "$root"
  if ! cmake --preset "$device" -DKINDEX_WERROR=$werror > "$log" 2>&1; then
    cat "$log" >&2
    fail "cmake could not configure for device $device"
  fi
  say "building in build/$device ($jobs at a time)"
  cmake --build --preset "$device" --parallel "$jobs" "${@/#/--target=}" ||
    fail "the build failed"
}

run_tests() {
  configure_and_build
  local -a args=("${pass_on[@]}")
  $all || args+=(-LE '^long$')
  ctest --preset "$device" --parallel "$(nproc)" "${args[@]}" || exit 1
}

run_benchmark() {
  configure_and_build kindex_bench
  if [[ $device == emulated ]]; then
    export LD_LIBRARY_PATH=$root/build/emulated/emulator${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  fi
  "$root/build/$device/bin/kindex_bench" "${pass_on[@]}"
}

parse "$@"
choose_device
install_packages
check_device
case $command in
  test) run_tests ;;
  bench) run_benchmark ;;
esac
