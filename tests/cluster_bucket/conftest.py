"""Spark with S3A on an S3 server: these tests run by `make test-cluster-bucket` only, which fetches and installs both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster_bucket.s3a import POM
from tests.kafka.toolchain import ToolMissingError, jars
from tests.object_stores.servers import Bucket, ServerMissingError, Versitygw
from tests.spark.conftest import workers as workers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this directory."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.external)


@pytest.fixture(scope="session")
def s3a() -> Path:
    """The directory of S3A's jars."""
    try:
        return jars(POM)
    except ToolMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versitygw]:
    """A running server."""
    server = Versitygw(tmp_path_factory.mktemp("versitygw"))
    try:
        server.start()
    except ServerMissingError as missing:
        pytest.fail(str(missing), pytrace=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def bucket(server: Versitygw) -> Bucket:
    """How to open a bucket on it."""
    server.create("cluster")
    return server.bucket("cluster")
