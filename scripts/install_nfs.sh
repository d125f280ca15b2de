#!/bin/sh
# Installs what tests on NFS need, if it may (as root, or through sudo that asks for no password; apt): User-mode Linux,
# a kernel that runs as a process and has NFS whatever the machine's own has, and the server. Otherwise one sentence says
# what to do.
set -u

PACKAGES="user-mode-linux nfs-kernel-server nfs-common rpcbind kmod iproute2 e2fsprogs"
PROGRAMS="linux.uml rpc.nfsd rpc.mountd exportfs mount.nfs rpcbind modprobe ip mke2fs"
PATH="$PATH:/usr/sbin:/sbin"

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

missing() {
    for program in $PROGRAMS; do
        command -v "$program" >/dev/null || printf '%s ' "$program"
    done
}

install() {
    as_root true 2>/dev/null || return
    command -v apt-get >/dev/null || return
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $PACKAGES
}

[ -z "$(missing)" ] && exit
install >&2
[ -z "$(missing)" ] && exit
echo "The tests on NFS need $(missing)- install them (Debian: apt-get install $PACKAGES)." >&2
exit 1
