"""Contract of `Storage`: subclass one of these classes."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import UnsupportedError
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.testing.contract_base import Opener
from pyspark_commitlog.testing.contract_files import AppendContract, FileContract
from pyspark_commitlog.testing.contract_locks import LockContract, TurnContract
from pyspark_commitlog.testing.contract_puts import PutContract
from pyspark_commitlog.testing.contract_reads import ReadContract

__all__ = ["ObjectContract", "Opener", "StorageContract"]


class _EveryContract(PutContract, FileContract, ReadContract, TurnContract):
    """All storages' tests."""


class StorageContract(_EveryContract, AppendContract, LockContract):
    """Tests of a storage that appends in place.

    Subclasses give the fixture `opener` (an `Opener`), and raw access.
    """


class ObjectContract(_EveryContract):
    """Tests of a storage without append; subclasses give the same."""

    has_directories = False

    def test_nothing_is_appended_to_and_nothing_locked(self, storage: Storage) -> None:
        with pytest.raises(UnsupportedError, match="can't be appended to"):
            storage.open_append("0/1.log")
        with storage.try_lock("0/lock") as held:
            assert not held
        assert not storage.can_append
        assert self.raw_names(storage, "") == []
