"""The register of a unit at a metadata root, by itself: what it refuses to promise and to accept.

A proposer that was promised a ballot ahead accepts without reading the register before: so each change looks for itself
whether the root was restored from a copy since.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_commitlog.errors import ReplicaNotAvailableError
from pyspark_commitlog.replication.metadata.acceptor import Acceptor
from pyspark_commitlog.replication.protocol.ballots import Ballot, Register, Value
from pyspark_commitlog.storage.local.local import LocalStorage
from tests.support.replicas import Replicated

_HIGH = Ballot(1_000, "ours")


def _acceptor(roots: Replicated) -> Acceptor:
    return Acceptor(roots.id_of("n"), LocalStorage(roots.path / "n"), "topics/t/acceptor-0")


@pytest.mark.parametrize(
    "change",
    [
        lambda acceptor: acceptor.promise(_HIGH),
        lambda acceptor: acceptor.accept(_HIGH, Value(9, "ours"), b"an entry"),
    ],
    ids=["promise", "accept"],
)
@pytest.mark.parametrize("has_read", [False, True])
def test_a_restored_register_neither_promises_nor_accepts(
    tmp_path: Path, change: Callable[[Acceptor], Register], has_read: bool
) -> None:
    """It may have forgotten a higher promise, which the handle of before did not see."""
    roots = Replicated(tmp_path, metadata="mno")
    roots.create()
    roots.write(b"0")
    acceptor = _acceptor(roots)
    if has_read:
        acceptor.read()
    shutil.copytree(roots.path / "n", roots.path / "copy")
    shutil.rmtree(roots.path / "n")
    (roots.path / "copy").rename(roots.path / "n")
    before = _files(roots)
    with pytest.raises(ReplicaNotAvailableError, match="the root was restored from a copy"):
        change(acceptor)
    assert _files(roots) == before


def _files(roots: Replicated) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (roots.path / "n/topics/t/acceptor-0").iterdir()}
