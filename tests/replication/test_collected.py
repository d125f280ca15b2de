"""What a root collects while a replica lags: never the entry at the high watermark, which its readers go by."""

from __future__ import annotations

import errno
from pathlib import Path

from pyspark_commitlog.topic.collect.collect import collect
from tests.support.replicas import Replicated
from tests.support.world import DELAY_MS


def no_device(operation: str, path: str, moment: str) -> None:
    raise OSError(errno.EIO, "injected: the device is gone")


def test_the_entry_at_the_high_watermark_stays(tmp_path: Path) -> None:
    roots = Replicated(tmp_path)
    roots.create()
    roots.write(b"0")
    for root in "ab":
        roots.log(root).topic("t").maintain()
    roots.clock.advance(DELAY_MS)
    roots.hooks["c"] = no_device
    for _ in range(3):
        roots.write(b"above", acks_all=False)
    topic = roots.at("b")
    shown, state = topic.newest()
    collect(topic, state.topic_id)
    assert shown.sequence in topic.journal.sequences()
    assert roots.values("b") == [b"0"]
