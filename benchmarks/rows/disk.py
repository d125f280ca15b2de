"""What happens after a write: settling, compaction, and what is left on the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bench import TOPIC, Bench, size
from compare import Contender, Row

from pyspark_commitlog import CommitLog
from pyspark_commitlog.topic.compaction import compact as compacting
from pyspark_commitlog.topic.maintain import settle as settling

_BYTES = "bytes"


def settle(bench: Bench) -> None:
    """Settling all records, next to the write that left them, and to a synced copy of as many bytes."""
    peers = {
        "their write": Contender(bench.write, lambda: _unsettled_root(bench)),
        "cp of the same bytes, synced": Contender(lambda files: _copy(files, bench.directory()), lambda: _logs(bench)),
    }
    bench.table.times("settle", Contender(_settle, lambda: _written(bench)), peers)


def compaction(bench: Bench) -> None:
    """Compacting all records by their keys, next to the write that left them."""

    def prepared() -> str:
        # Active segments are not compacted: small ones leave little in them.
        root = _written(bench, cleanup_policy="compact", min_cleanable_dirty_ratio=0, segment_bytes=4 << 20)
        _settle(root)
        return root

    peers = {"their write": Contender(bench.write, lambda: _unsettled_root(bench))}
    bench.table.times("compaction", Contender(_compact, prepared), peers)


def stored(bench: Bench) -> None:
    """Bytes on disk of all records, lz4 and settled; Parquet as in the write."""
    topics = Path(bench.settled) / "topics"
    ours = sum(file.stat().st_size for file in topics.rglob("*.log"))
    written = bench.directory()
    bench.input().write.parquet(written)
    peers = {"Parquet, snappy": size(written)}
    if bench.kafka is not None:
        lz4 = bench.kafka.topic()
        bench.kafka.write(bench.input(), lz4, {"kafka.compression.type": "lz4"})
        peers["Kafka topic, lz4"] = bench.kafka.bytes(lz4)
    for peer, theirs in peers.items():
        bench.table.add(Row("stored, lz4, settled", _BYTES, ours, peer, theirs))
    bench.clean()


def _unsettled_root(bench: Bench, **config: object) -> str:
    """Return a new root whose commits settle nothing by themselves."""
    limits = {"settle_bytes": 1 << 50, "settle_ms": 1 << 50, "settle_entries": 1 << 30}
    return bench.root(**limits, **config)


def _written(bench: Bench, **config: object) -> str:
    root = _unsettled_root(bench, **config)
    bench.write(root)
    return root


def _settle(root: str) -> None:
    topic = CommitLog(root).root.topic(TOPIC)
    settling.settle(topic, topic.newest()[1].topic_id)


def _compact(root: str) -> None:
    topic = CommitLog(root).root.topic(TOPIC)
    compacting.compact(topic, topic.newest()[1].topic_id)


def _logs(bench: Bench) -> list[Path]:
    return sorted(Path(bench.settled).rglob("*.log"))


def _copy(files: list[Path], target: str) -> None:
    Path(target).mkdir()
    for number, file in enumerate(files):
        copy = Path(target) / str(number)
        shutil.copyfile(file, copy)
        fd = os.open(copy, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
