#!/usr/bin/env bash
# SPDX-FileCopyrightText: The kindex authors
# SPDX-License-Identifier: MIT

# The README's promise, tried: a minimal Debian 12 in a folder, a clone of the committed state in
# it, and ./run.sh as root with nothing else installed. Or Debian sid: a newer clang, HIP, Catch2 and
# CMake.
#
#   tests/fresh_machine.sh DIR [run.sh arguments as one word]...
#   tests/fresh_machine.sh /var/tmp/fresh                          test, test again, bench
#   tests/fresh_machine.sh /var/tmp/fresh "test --all"
#   SUITE=sid tests/fresh_machine.sh /var/tmp/sid test
#
# Needs root and debootstrap. DIR must not exist; it is left behind to look at (nothing stays
# mounted). The mirror is MIRROR from the environment, or this machine's own.
set -euo pipefail

[[ ${1:--} != -* ]] || { echo 'usage: tests/fresh_machine.sh DIR [run.sh arguments]...' >&2; exit 2; }
dir=$1
shift
[[ $# -gt 0 ]] || set -- test test bench
[[ ! -e $dir ]] || { echo "$dir exists" >&2; exit 2; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2016  # apt expands it
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | head -n 1)}

debootstrap --variant=minbase "${SUITE:-bookworm}" "$dir" ${mirror:+"$mirror"} > "$dir.log" 2>&1 ||
  { tail -n 5 "$dir.log" >&2; exit 1; }
# The way to the mirror (proxy, date checks) is this machine's, not part of what is tried.
apt-config dump | grep -E '^Acquire::(https?::|Check-)' > "$dir/etc/apt/apt.conf.d/90host" || true
cp /etc/resolv.conf "$dir/etc/resolv.conf"
[[ ! -e /etc/hosts ]] || cp /etc/hosts "$dir/etc/hosts"
rm -rf "$dir"/var/lib/apt/lists/*  # as in a container image
git clone --quiet "$root" "$dir/root/kindex"

trap 'umount "$dir/proc" "$dir/dev" 2> /dev/null || true' EXIT
mount -t proc proc "$dir/proc"
mount --bind /dev "$dir/dev"

packages() { chroot "$dir" dpkg-query -W | wc -l; }
echo "fresh Debian $(cat "$dir/etc/debian_version"), $(packages) packages, commit $(git -C "$root" rev-parse --short HEAD)"
failures=0
for arguments in "$@"; do
  echo "== ./run.sh $arguments"
  start=$SECONDS
  status=0
  # shellcheck disable=SC2016
  chroot "$dir" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /bin/bash -c 'cd /root/kindex && ./run.sh $1' - "$arguments" < /dev/null || status=$?
  echo "== ./run.sh $arguments: exit status $status after $((SECONDS - start)) s, now $(packages) packages"
  [[ $status -eq 0 ]] || failures=$((failures + 1))
done
exit "$((failures > 0))"
