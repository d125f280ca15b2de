"""Filesystem types and sources of mounts."""

from __future__ import annotations

import os
from pathlib import Path

#: Local filesystems, on which locks and appends are safe. Others (nfs, 9p, fuse …) are not appended to.
LOCAL_TYPES = frozenset([
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "jfs", "reiserfs", "bcachefs", "tmpfs", "ramfs", "overlay",
    "apfs", "hfs",
])  # fmt: skip


def mount_type(path: Path) -> str:
    """Filesystem type of `path`; `apfs` if unknown (macOS)."""
    return _mount(path)[0]


def mount_source(path: Path) -> str:
    """Mount's source, e.g. a server's export; empty if unknown."""
    return _mount(path)[1]


def _mount(path: Path) -> tuple[str, str]:
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except FileNotFoundError:
        return "apfs", ""
    real = os.path.realpath(path)
    best, kind, source = "", "unknown", ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = left.split()[4].replace("\\040", " ")
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, (kind, source) = point, right.split(" ")[:2]
    return kind, source
