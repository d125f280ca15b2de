"""Real servers keep the contract of a storage that does not append, and a log lives on each."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pyspark_commitlog.storage import Storage, open_storage
from pyspark_commitlog.storage.object.object_options import Opener as ClientOpener
from pyspark_commitlog.testing.storage_contract import Opener
from tests.object_stores.conftest import on
from tests.object_stores.servers import SERVERS, Bucket
from tests.support.object_stores import Objects, walk, walk_typed

pytestmark = pytest.mark.slow


@on(*SERVERS)
class TestServer(Objects):
    """The contract, on a server."""

    tick_ms = 1000

    @pytest.fixture(autouse=True)
    def _at(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @pytest.fixture
    def opener(self, bucket: Bucket) -> Opener:
        return partial(open_storage, f"{bucket.url}/root", bucket.options)

    def raw_store(self, storage: Storage) -> Any:
        return ClientOpener(storage.url, self._bucket.options)(retries=True)


@on(*SERVERS)
def test_a_log_lives_in_a_bucket(bucket: Bucket) -> None:
    walk(f"{bucket.url}/root", bucket.options)
    walk_typed(f"{bucket.url}/root", bucket.options)
