"""Everything fails at once: `make test-nemesis MINUTES=30`. Exit code 1 if a promise was broken.

Topics live on three disks, file systems of their own, one perhaps behind an S3 server, and a fourth decides. Producers
(acks all and 1), writers of numbered batches and queries of Spark write; one topic is compacted, of another the oldest
records are deleted; readers follow each root; each root is maintained and replicated by a process of its own, and
leaders are elected for no reason. Meanwhile, by chance of a seed:
processes are killed and stopped, disks are taken away and given back, also empty or with old contents, filled, made
read-only and slow; they hang, and flip bits; clocks of processes are apart. In the end everything is mended, and what
was acknowledged and seen is compared with what each root has (`checker`, `cleaned`).
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark_commitlog import CommitLog
from tests.nemesis import spark_writer
from tests.nemesis.bucket import Bucket
from tests.nemesis.cast import Cast
from tests.nemesis.checker import faults
from tests.nemesis.cleaned import compacted_faults, retained_faults
from tests.nemesis.disks import Disk, enter_namespace
from tests.nemesis.ending import after, committed, settle_down
from tests.nemesis.gateway import Gateway, is_installed
from tests.nemesis.history import (
    Acked,
    Batches,
    Committed,
    Deleted,
    Event,
    Failed,
    Overtaken,
    Polled,
    Read,
    Shown,
    histories_of,
)
from tests.nemesis.stage import COMPACTED, DATA, GROUP, METADATA, PARTITIONS, RETAINED, TOPIC, TOPICS, Stage
from tests.nemesis.striking import Nemesis, Place

_CONFIG = {
    "replica.lag.time.max.ms": 2_000,
    "min.insync.replicas": 2,
    "segment.bytes": 256 * 1024,
    "settle.ms": 2_000,
}
#: What each topic has of its own: small segments, where they are to be written again, or to go.
_CONFIGS: dict[str, dict[str, object]] = {
    TOPIC: {},
    COMPACTED: {
        "cleanup.policy": "compact", "segment.bytes": 3 * 1024, "min.cleanable.dirty.ratio": 0.2,
        "delete.retention.ms": 5_000, "settle.ms": 1_000,
    },
    RETAINED: {"segment.bytes": 2 * 1024, "settle.ms": 1_000},
}  # fmt: skip
#: By what the oldest records go, by chance; and how many offsets of a partition that leaves at least.
_RETENTION = (({"retention.bytes": 8 * 1024}, 10), ({"retention.ms": 6_000}, 0))
#: How long what is settled stays, by chance: a root that is away for long has to catch up from segments, or learns.
_DELAYS_MS = (4_000, 4_000, 60_000)
#: The roots that decide, by chance: one, or three by majority.
_DECIDING = (METADATA[:1], METADATA)
#: Up to so many seconds writers write as fast as they can; in a longer run they, and faults, wait so many times longer.
_SHORT_SECONDS, _LONG_PAUSE = 300, 4.0
#: Which root is in a bucket, by chance; or none.
_BUCKETS = ("", *DATA, "b")
#: Whether records are in entries or in chunks, by chance.
_INLINE_BYTES = (0, 4096)


def run(
    seconds: float, seed: int, home: Path, bucket: str | None = None, *, moto: bool = False, queries: int = 0
) -> list[str]:
    """Run for so long; return what was wrong.

    Args:
        seconds, seed: how long, and what is drawn.
        home: a directory for all of it.
        bucket: the root that is in one; empty for none, None for what is drawn.
        queries: how many queries of Spark write, too.
        moto: in moto, also where versitygw is installed: it is slower, and spoils requests, too.
    """
    chance = random.Random(seed)
    for name in ("histories", "notes", "said", "lives"):
        (home / name).mkdir(parents=True)
    drawn = {"file.delete.delay.ms": chance.choice(_DELAYS_MS), "inline.max.bytes": chance.choice(_INLINE_BYTES)}
    deciding, (retention, least) = chance.choice(_DECIDING), chance.choice(_RETENTION)
    drawn_bucket = chance.choice(_BUCKETS) if moto or is_installed() else ""
    bucket = drawn_bucket if bucket is None else bucket
    print(drawn, retention, "decided by", *deciding, *(["in a bucket", bucket] if bucket else []), flush=True)
    in_bucket = Bucket if moto or not is_installed() else Gateway
    disks = {name: in_bucket(home, name) if name == bucket else Disk(home, name) for name in (*DATA, *deciding)}
    stage = _set_up(home, disks)
    roots, metadata = ([stage.url(name) for name in names] for names in (DATA, deciding))
    log = CommitLog.create(roots, metadata, stage.options)
    for topic, config in _CONFIGS.items():
        log.create_topic(topic, PARTITIONS, {**_CONFIG, **drawn, **config, **(retention if topic == RETAINED else {})})
    pause = 1.0 if seconds <= _SHORT_SECONDS else _LONG_PAUSE
    cast = Cast(home, chance, queries=queries, pause=pause)
    nemesis = Nemesis(stage, cast, disks, chance, pause)
    try:
        cast.start()
        nemesis.run(seconds)
        cast.end()
    finally:
        cast.kill_all()
    histories, wrong = _judged(stage, least)
    wrong = [*cast.wrong, *nemesis.wrong, *wrong]
    wrong += [f"written below {name} while it was away: {', '.join(found[:5])}"
              for name, disk in disks.items() if (found := disk.strays())]  # fmt: skip
    _tell(seed, nemesis.done, histories, wrong)
    if wrong:
        for name, disk in disks.items():
            disk.save(home / "kept" / name)
    for disk in disks.values():
        disk.leave()
    return wrong


def _judged(stage: Stage, least: int) -> tuple[list[list[Event]], list[str]]:
    """Have all topics settle down; return what happened, and what is wrong."""
    began, home, final = time.monotonic(), stage.home, dict[str, dict[str, list[Read]]]()
    wrong, groups = list[str](), list[Committed]()
    for topic in TOPICS:
        final[topic], found = settle_down(stage, topic)
        wrong += found
    print(f"settled down in {time.monotonic() - began:.0f} s")
    wrong += after(f"look at group {GROUP}", lambda: groups.extend(committed(stage)) or [])
    whole, compacted, retained = (histories_of(home, topic) for topic in TOPICS)
    whole.append([spark_writer.committed(home, name) for name in spark_writer.writers(home)])
    wrong += faults(whole, final[TOPIC], groups)
    wrong += [f"{COMPACTED}: {fault}" for fault in compacted_faults(compacted, final[COMPACTED])]
    wrong += [f"{RETAINED}: {fault}" for fault in retained_faults(retained, final[RETAINED], least)]
    _tell_of_cleaning(final)
    return [*whole, *compacted, *retained], wrong


def _tell_of_cleaning(final: Mapping[str, Mapping[str, Sequence[Read]]]) -> None:
    """Print how much is left at each root."""
    for topic in (COMPACTED, RETAINED):
        left = {
            root: ", ".join(f"{len(read.records)} of {read.start} to {read.end}" for read in reads)
            for root, reads in final[topic].items()
        }
        print(f"left of {topic}: {left}")


def _set_up(home: Path, disks: Mapping[str, Place]) -> Stage:
    """Have all processes find the roots that are in buckets."""
    buckets = [disk for disk in disks.values() if isinstance(disk, Bucket | Gateway)]
    stage = Stage(home, {each.name: each.url for each in buckets}, buckets[0].options if buckets else {})
    stage.set_up()
    return stage


def _tell(seed: int, done: Counter[str], histories: list[list[Event]], wrong: list[str]) -> None:
    events = [event for history in histories for event in history]
    kinds = (Acked, Shown, Read, Committed, Polled, Overtaken, Deleted, Failed)
    counts = {kind.__name__: sum(isinstance(event, kind) for event in events) for kind in kinds}
    counts["batches of queries"] = sum(event.committed for event in events if isinstance(event, Batches))
    print(f"\nseed {seed}: {dict(done)}; {counts}")
    errors = [event for event in events if isinstance(event, Failed)]
    of_queries = [event for event in errors if event.what.startswith("query ")]
    print(f"what failed, and was tried again: {dict(_counted(errors))}")
    print(f"queries that ended, and were started again: {dict(_counted(of_queries)) or 'none'}")
    print(f"Broken promises: {len(wrong) or 'none'}")
    for fault in wrong[:40]:
        print(f"- {fault[:600]}")


def _counted(errors: list[Failed]) -> Counter[str]:
    return Counter(event.error.partition(":")[0] for event in errors)


def main() -> int:
    """Run the nemesis that the command line asks for."""
    enter_namespace("tests.nemesis", sys.argv[1:])
    parser = argparse.ArgumentParser(description="Everything fails at once.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--bucket", choices=("", *DATA), help="which root is in a bucket; empty for none")
    parser.add_argument("--moto", action="store_true", help="have it in moto, also where versitygw is installed")
    parser.add_argument(
        "--queries", type=int, default=0, help="how many queries of Spark write, too (0; they need Java)"
    )
    parser.add_argument("--keep", help="where to put histories, and the roots where a promise was broken")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes end with this one
    home = Path(asked.keep or tempfile.mkdtemp(prefix="nemesis-")).absolute()
    wrong = run(asked.minutes * 60, asked.seed, home, asked.bucket, moto=asked.moto, queries=asked.queries)
    if not wrong and not asked.keep:
        shutil.rmtree(home, ignore_errors=True)  # mounts stay until the namespace goes
    elif wrong:
        print(f"What was found lies in {home}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
