"""Objects in memory keep the contract, and a log lives there."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import pytest

from pyspark_commitlog.storage import Storage, open_storage
from pyspark_commitlog.storage.object.object_store import ObjectStorage
from pyspark_commitlog.testing.storage_contract import Opener
from tests.support.object_stores import Objects, walk, walk_typed


class TestMemory(Objects):
    """The contract, on objects in this process's memory."""

    is_shared = False

    @pytest.fixture
    def opener(self) -> Opener:
        return partial(open_storage, f"memory://{uuid.uuid4()}")

    def raw_store(self, storage: Storage) -> Any:
        assert isinstance(storage, ObjectStorage)
        return storage._client()


def test_a_log_lives_in_memory() -> None:
    walk(url := f"memory://{uuid.uuid4()}", {})
    walk_typed(url, {})
