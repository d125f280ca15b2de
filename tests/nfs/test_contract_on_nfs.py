"""The door to a directory on NFS keeps the contract while the server changes the directory past the client."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.local.probe import probe
from pyspark_commitlog.testing.storage_contract import ObjectContract, Opener
from tests.nfs.conftest import Mounts
from tests.support.directory import RawDirectory


@pytest.mark.parametrize("mounts", ["4"], ids=["NFS 4.2"], indirect=True)
class TestNfs(RawDirectory, ObjectContract):
    """The contract; what is looked at lies on the server's disk.

    By NFS 3 a client knows that names changed only by the time of the directory: two changes in one tick of the server's
    clock are one to it, for a minute at most.
    """

    has_directories = True

    @pytest.fixture
    def opener(self, mounts: Mounts) -> Opener:
        self._disk = mounts.disk
        return partial(LocalStorage, mounts.a)

    def raw_root(self, storage: Storage) -> Path:
        return self._disk

    def test_nothing_is_appended_to_and_nothing_locked(self, storage: Storage) -> None:
        """The server has locks, which others may not ask for: nothing rests on them."""
        assert not storage.can_append
        with storage.turn("", 0.01) as came:
            assert not came


def test_the_probe_finds_it_safe(mounts: Mounts) -> None:
    findings = probe(LocalStorage(mounts.a))
    print("\n".join(f"{each.what}: {each.told}" for each in findings))
    assert all(each.safe for each in findings)
    assert {each.what: each.held for each in findings}["append"] is False
