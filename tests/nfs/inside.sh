#!/bin/bash
# The first process in User-mode Linux: starts the NFS server, mounts its export, runs the tests and stops the machine.
# NFS_OUT: the machine's directory for arguments and status; NFS_PYTHON: what runs pytest.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/mnt/home TMPDIR=/mnt/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
repository=$(cd "$(dirname "$0")/../.." && pwd)

# Attributes are cached as long as by default; by NFS 3 only names that are there, as the known limits ask for.
mounts() {
    mount -t nfs -o vers=4.2 10.9.0.1:/ "/mnt/${1}4" && mount -t nfs -o vers=3,nolock,lookupcache=positive 10.9.0.1:/mnt/disk "/mnt/${1}3"
}

start() {
    set -e
    mount -t proc proc /proc
    mount -t sysfs sys /sys
    for each in /run /mnt /dev/shm; do
        [ -d $each ] || mkdir $each
        mount -t tmpfs tmpfs $each
    done
    mkdir -p /mnt/{out,home,tmp,disk,a4,b4,a3,b3,lost} /run/modules/lib/modules /run/rpcbind /run/nfs
    mount -t hostfs hostfs /mnt/out -o "$NFS_OUT"
    ln -s "/usr/lib/uml/modules/$(uname -r)" /run/modules/lib/modules/
    modprobe -d /run/modules -a nfsd nfsv4 nfsv3 veth
    ip link set lo up
    # a second network and host name: to the server that is another client, whose promises (delegations) are its own
    ip netns add b
    ip link add to-b type veth peer name eth0 netns b
    ip address add 10.9.0.1/24 dev to-b
    ip link set to-b up
    nsenter --net=/run/netns/b sh -c "ip address add 10.9.0.2/24 dev eth0; ip link set eth0 up; ip link set lo up"
    mount -t tmpfs tmpfs /var/lib/nfs
    mkdir -p /var/lib/nfs/{v4recovery,rpc_pipefs}
    touch /var/lib/nfs/{etab,rmtab}
    mke2fs -q -t ext4 /dev/ubda
    mount -t ext4 /dev/ubda /mnt/disk
    mkdir -m 777 /mnt/disk/root
    mount -t nfsd nfsd /proc/fs/nfsd
    rpcbind
    exportfs -i -o rw,no_root_squash,fsid=0,no_subtree_check,insecure '*:/mnt/disk'
    rpc.mountd -p 20048
    rpc.nfsd --grace-time 10 --lease-time 10 4
    mounts a
    nsenter --net=/run/netns/b unshare --uts bash -c "hostname b; $(declare -f mounts); mounts b"
    grep ' nfs4\? ' /proc/mounts
}

# In a shell of its own: "set -e" holds only where nothing asks for the outcome.
(start) && started=yes
if [ "${started:-}" ]; then
    cd "$repository" || exit
    mapfile -t arguments </mnt/out/arguments
    [ -s /mnt/out/arguments ] || arguments=()
    PYTHONPATH=$repository "$NFS_PYTHON" -m pytest tests/nfs -p no:cacheprovider --basetemp=/mnt/tmp/pytest "${arguments[@]}"
    echo $? >/mnt/out/status
else
    echo "The NFS server did not start, or its export was not mounted: the lines above say why" >&2
    echo 1 >/mnt/out/status
fi
sync
poweroff -f
