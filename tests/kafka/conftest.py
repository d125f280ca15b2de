"""The tools that the tests in this directory share: missing ones make them fail, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka import toolchain


@pytest.fixture(scope="session")
def java() -> toolchain.Java:
    """Return Java with Kafka's jars."""
    try:
        return toolchain.java()
    except toolchain.ToolMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session")
def clients_python() -> Path:
    """Return the Python that has Kafka's client libraries."""
    try:
        return toolchain.clients_python()
    except toolchain.ToolMissingError as missing:
        pytest.fail(str(missing), pytrace=False)
