"""Compaction holds a bounded part of the keys, and compares all of them. In processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.peak import run_alone


def run(what: str, root: Path, keys: int, buffer_mb: int) -> str:
    """Run a step of `tests.support.manykeys`; return what it printed."""
    return run_alone("tests.support.manykeys", what, root, keys, buffer_mb)


@pytest.mark.parametrize(
    ("keys", "buffer_mb", "bound_mb"),
    [(600_000, 4, 250), pytest.param(10_000_000, 128, 1000, marks=pytest.mark.nightly)],
)
def test_a_topic_of_many_long_keys_is_compacted_in_bounded_memory(
    tmp_path: Path, keys: int, buffer_mb: int, bound_mb: int
) -> None:
    """Three versions of every 64-byte key; the keys of the small one would take 40 MB, 115 MB with all versions."""
    root = tmp_path / "log"
    run("write", root, keys, buffer_mb)
    peak_mb = int(run("compact", root, keys, buffer_mb).split()[-1])
    assert peak_mb < bound_mb
    assert "right" in run("check", root, keys, buffer_mb)
