#!/bin/sh
# Runs the tests of this directory in User-mode Linux: a real Linux kernel, as a process, that sees this machine's files
# read-only. In it runs Linux's own NFS server, and its own client mounts one export twice.
# usage: run.sh PYTHON [arguments of pytest]
set -eu
PATH="$PATH:/usr/sbin:/sbin"
here=$(cd "$(dirname "$0")" && pwd)
python=$1
shift
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
truncate -s 4G "$out/disk"
for each in "$@"; do printf '%s\n' "$each"; done >"$out/arguments"
linux.uml mem=2G rootfstype=hostfs root=/dev/root hostfs=/ ro "ubda=$out/disk" quiet con=null con0=fd:0,fd:1 ssl=null \
    uml_dir="$out" init="$here/inside.sh" NFS_OUT="$out" NFS_PYTHON="$python" </dev/null
[ -s "$out/status" ] || { echo "User-mode Linux ended before the tests did: its last lines are above" >&2; exit 1; }
exit "$(cat "$out/status")"
