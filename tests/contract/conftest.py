"""Processes that race: started once, as each imports the package anew."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest


@pytest.fixture(scope="session")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Return four processes."""
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as started:
        yield started
