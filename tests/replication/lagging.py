"""Roots of which one lags too far to learn: what it needs is collected at the others."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from pyspark_commitlog.config import DAY_MS
from pyspark_commitlog.model import silent
from pyspark_commitlog.topic.damage.verify import verify
from tests.replication.scenes import no_device
from tests.support.replicas import CONFIG, Replicated, settle_at
from tests.support.world import DELAY_MS


def lagging(
    path: Path,
    *,
    wiped: bool = False,
    unknown: str = "",
    partitions: int = 1,
    settled: bool = False,
) -> Replicated:
    """Return roots of which `c` is out of sync, and lacks what the others have settled and collected.

    `settled`: it has settled something before, in more than one segment.
    """
    roots = Replicated(path, unknown=unknown)
    roots.create(partitions, {**CONFIG, "replica.lag.time.max.ms": 1_000, "segment.bytes": 2_000})
    roots.write(b"first")
    if settled:
        for number in range(3):
            roots.write(Random(number).randbytes(1_500))
            settle_at(roots, "c")
    roots.hooks["c"] = no_device
    for number in range(3):
        roots.write(b"%d" % number, b"%d again" % number)
    assert roots.isr() == "ab"
    for waited_ms in (DELAY_MS, DAY_MS, DELAY_MS):  # it is waited for as long as `staged.retention.ms`
        for root in "ab":
            roots.log(root).topic("t").maintain()
        roots.clock.advance(waited_ms)
    del roots.hooks["c"]
    assert len(list((path / "a/topics/t").glob("*/staged/*.chunk"))) <= 1  # of an entry that stays
    if wiped:
        shutil.rmtree(path / "c/topics/t")
    return roots


def expected() -> list[bytes]:
    return [b"first", *(value for n in range(3) for value in (b"%d" % n, b"%d again" % n))]


def whole(roots: Replicated, values: list[bytes]) -> None:
    """Each root has these records, and nothing of it is damaged."""
    for root in roots.names:
        assert roots.values(root) == values, f"at {root}"
        assert not verify(roots.at(root), silent).faults, f"at {root}"
