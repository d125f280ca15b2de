"""The door to one of several roots keeps the contract of the one that it hands on to."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path

import pytest

from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.limited import limited
from pyspark_commitlog.storage.local import LocalStorage
from pyspark_commitlog.testing.storage_contract import Opener, StorageContract
from tests.support.directory import RawDirectory


def opened(root: Path) -> Storage:
    return limited(LocalStorage(root))


class TestLimitedStorage(RawDirectory, StorageContract):
    """A local directory behind limits."""

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        """Return what opens the directory, as another process would."""
        (tmp_path / "root").mkdir()
        return partial(opened, tmp_path / "root")


def test_what_is_mapped_is_a_copy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    piece = limited(LocalStorage(tmp_path)).map("file", 0, 6)
    (tmp_path / "file").write_bytes(b"after!")
    assert bytes(piece) == b"before", "a page of a mapped file is read when it is touched, whoever does, however long"


def test_it_goes_to_other_processes(tmp_path: Path) -> None:
    storage = limited(LocalStorage(tmp_path))
    storage.others = ("one", "other")
    again = pickle.loads(pickle.dumps(storage))
    again.put_if_absent("file", b"1")
    assert (storage.read("file"), again.others, again.url) == (b"1", storage.others, storage.url)


def test_limits_are_put_once(tmp_path: Path) -> None:
    storage = limited(LocalStorage(tmp_path))
    assert limited(storage) is storage
