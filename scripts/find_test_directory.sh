#!/bin/sh
# Prints where the tests' roots lie: in memory where there is plenty, on the disk of $TMPDIR elsewhere.
# Most tests are about what is written and read, not about how long a disk takes to sync it: that was a third of their time.
set -u

GIB=1048576 # KiB

fits() {
    grep -q '^tmpfs /dev/shm ' /proc/mounts && ! grep -q '^tmpfs /dev/shm .*noexec' /proc/mounts || return 1
    [ -w /dev/shm ] && [ "$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')" -ge $((6 * GIB)) ] || return 1
    [ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -ge $((12 * GIB)) ]
}

if fits 2>/dev/null; then echo /dev/shm; else echo "${TMPDIR:-/tmp}"; fi
