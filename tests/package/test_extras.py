"""Each extra alone: what it brings is all that its part of the package needs. `make package` runs these.

One environment has the wheel and its requirements; that of an extra imports those, and has nothing else but what
pip installs for the extra. So what an extra forgot is missing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.object_stores.servers import ACCESS_KEY, REGION, SECRET_KEY, Bucket
from tests.support.environments import Environment, environment
from tests.support.name_node import NameNode

pytestmark = pytest.mark.external

REPOSITORY = Path(__file__).resolve().parents[2]
HOME = REPOSITORY / "build" / "package"
PYTHONS = os.environ.get("PYTHONS", "").split() or [sys.executable]
#: Refuses connections.
CLOSED = "http://127.0.0.1:9"
STORES = {
    "gcs": ("gs://bucket/log", {"token": "anon", "endpoint_url": CLOSED}),
    "azure": ("az://container/log", {"account_name": "a", "account_key": "YWFh", "endpoint": f"{CLOSED}/a"}),
}


@pytest.fixture(scope="module", params=PYTHONS)
def core(request: pytest.FixtureRequest, distributions: Any) -> Iterator[Environment]:
    """The wheel with its requirements, in an environment of each Python that is asked for."""
    with environment(HOME / "core", request.param) as made:
        made.install(str(distributions.wheel))
        yield made


@pytest.fixture
def with_extra(core: Environment, distributions: Any) -> Iterator[Callable[..., Environment]]:
    """A function that makes an environment with an extra on top of the core's packages."""
    with environment(HOME / "extra", str(core.python)) as made:
        made.add_packages(core.site_packages)

        def install(extra: str) -> Environment:
            made.install("--no-deps", "--ignore-installed", str(distributions.wheel))  # with its command
            made.install(f"{distributions.wheel}[{extra}]")
            return made

        yield install


def test_the_core_alone(core: Environment, smoke: Callable[..., None]) -> None:
    smoke(core, "core")


def test_the_core_in_spark(core: Environment, smoke: Callable[..., None]) -> None:
    smoke(core, "spark")


@pytest.mark.parametrize(
    "extra",
    [
        "cli",
        "metrics",
        "opentelemetry",
        "pandas",
        "polars",
        "ui",
        "notebook",
        "connect",
        "testing",
        "docs",
        "sail",
        "upserts",
    ],
)
def test_an_extra(with_extra: Callable[..., Environment], smoke: Callable[..., None], extra: str) -> None:
    smoke(with_extra(extra), extra)


def test_s3(
    with_extra: Callable[..., Environment], smoke: Callable[..., None], moto_bucket: Bucket, tmp_path: Path
) -> None:
    options = {
        "key": ACCESS_KEY, "secret": SECRET_KEY, "region_name": REGION,
        "endpoint_url": moto_bucket.options["endpoint_url"],
    }  # fmt: skip
    smoke(with_extra("s3"), "bucket", f"{moto_bucket.url}/{tmp_path.name}/log", json.dumps(options))


@pytest.mark.parametrize("extra", STORES)
def test_a_store_without_a_server(
    with_extra: Callable[..., Environment], smoke: Callable[..., None], extra: str
) -> None:
    url, options = STORES[extra]
    smoke(with_extra(extra), "unreachable", url, json.dumps(options))


def test_hdfs(with_extra: Callable[..., Environment], smoke: Callable[..., None]) -> None:
    smoke(with_extra("hdfs"), "bucket", f"{NameNode().url}/log", "{}")
