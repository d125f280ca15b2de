"""The mounts that `inside.sh` makes: two clients of one export, by NFS 4.2 and by NFS 3."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

_MOUNTS = Path("/mnt")
#: The exported directory, on the server's own disk.
DISK = _MOUNTS / "disk"


@dataclass(frozen=True)
class Mounts:
    """One directory of the server, as its two clients see it, and on the server's disk."""

    a: Path
    b: Path
    disk: Path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all of them to `make test-nfs`."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.external)


@pytest.fixture(params=["4", "3"], ids=["NFS 4.2", "NFS 3"])
def mounts(request: pytest.FixtureRequest) -> Mounts:
    """A directory of this test's own."""
    name = uuid.uuid4().hex
    (DISK / "root" / name).mkdir()
    a, b = (_MOUNTS / f"{client}{request.param}" / "root" / name for client in "ab")
    return Mounts(a, b, DISK / "root" / name)
