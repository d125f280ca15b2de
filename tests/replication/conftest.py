"""Roots that do not hang have time, however busy the machine is."""

from __future__ import annotations

import pytest

from pyspark_commitlog.storage import deadline_storage


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no call of a root be given up soon; who tests that sets limits of its own."""
    for name in ("LOOK_SECONDS", "PUT_SECONDS", "DATA_SECONDS"):
        monkeypatch.setattr(deadline_storage, name, 120.0)
