"""One damaged file in a random log: what is read is right or an error of ours, and `verify` names the file's fault.

The oracle is a list of records for each partition, written beside the log; of a compacted one, without those that were
gone before the damage. Harmless, and so read as if nothing had happened, is damage to bytes that do not count
(`tests/support/damage.py` says which do): behind published lengths, and in files that the newest entries do not name.
Of what counts, `verify` may be silent when the newest entry of a journal is gone and nothing else knows of it: then
the one before it is the newest; and of an index in another one's place that by chance fits its new segment too: indexes
carry no checksum and no name, and are hints only. And a reader, but not `verify`, takes the file that a segment was
written anew from for the segment where both are exactly as long: its frames are sound, some of the records superseded.

`DAMAGE_EXAMPLES=2000` tries as many logs, and others every time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.topic.compaction.compact import compact
from pyspark_commitlog.topic.damage.verify import verify
from pyspark_commitlog.topic.lookup.fetch import fetch
from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp, find_time
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state import side_files as side_tables
from pyspark_commitlog.topic.write import writers as writers_module
from pyspark_commitlog.topic.write.writers import Transaction
from tests.property.strategies import examples
from tests.support.damage import newest, published
from tests.support.records import append, batch_of, each_record
from tests.support.world import DELAY_MS, World

pytestmark = pytest.mark.slow

_IN_MEMORY = Path("/dev/shm")
_EXAMPLES = int(os.environ.get("DAMAGE_EXAMPLES", examples(20)))
FIRST_MS = 1_000_000
PAGE = 512
CONFIGS = st.fixed_dictionaries(
    {
        "inline.max.bytes": st.sampled_from([0, 65536]),
        "segment.bytes": st.sampled_from([1024, 4096, 10_000]),
        "segment.index.bytes": st.sampled_from([48, 4096]),
        "index.interval.bytes": st.sampled_from([0, 500, 2000]),
        "compression.type": st.sampled_from(["none", "lz4", "zstd"]),
        "batch.size": st.just(1024),
        "file.delete.delay.ms": st.just(DELAY_MS),
        "retention.ms": st.just(-1),
        "cleanup.policy": st.sampled_from(["delete", "compact,delete", "compact,delete"]),
        "min.cleanable.dirty.ratio": st.just(0),
    }
)
#: What an operation does, and for "append" the partition and the size of each record.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "append", "settle", "settle a little", "collect", "inline", "cut start", "compact"]
        ),
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 3, 60, 700])), min_size=1, max_size=8),
    ),
    min_size=4,
    max_size=16,
)
PART = st.integers(0, 999).map(lambda part: part / 1000)


@dataclass(frozen=True)
class Damage:
    """A damage: its kind, and as parts of 1 which kind of file, which of those, which other one, and where in it."""

    kind: str
    sort: float
    file: float
    other: float
    at: float
    bit: int


DAMAGES = st.lists(
    st.builds(
        Damage,
        st.sampled_from(["flip", "cut", "zero page", "remove", "swap", "copy over"]),
        PART, PART, PART, PART, st.integers(0, 7),
    ),
    min_size=5,
    max_size=20,
)  # fmt: skip


@dataclass
class Log:
    """A log that is written, and beside it (value, timestamp in ms, key) of every record, by partition and offset.

    None stands for what compaction has removed.
    """

    world: World
    partitions: int
    records: list[list[tuple[bytes, int, bytes] | None]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    written: int = 0

    def do(self, step: str, rows: list[tuple[int, int]]) -> None:
        """Do one step of a history."""
        topic = self.world.handle()
        topic_id = topic.newest()[1].topic_id
        if step == "append":
            self.append(rows)
        elif step == "settle":
            settle(topic, topic_id)
        elif step == "settle a little":
            settle(topic, topic_id, budget_seconds=0)
        elif step == "collect":
            self.world.collect_all()
            self.forget()
        elif step == "inline":
            self.world.log().topic("t").alter({"inline.max.bytes": 65536 if rows[0][1] else 0})
        elif step == "cut start":
            partition = rows[0][0] % self.partitions
            self.starts[partition] += (len(self.records[partition]) - self.starts[partition]) // 3
            self.world.log().topic("t").delete_records({partition: self.starts[partition]})

        elif step == "compact":
            settle(topic, topic_id)
            compact(topic, topic_id)
            self.forget()

    def forget(self) -> None:
        """Take out of the oracle what compaction has removed, after a look whether it may have."""
        for partition, records in enumerate(self.records):
            left = {record.offset: record for record in each_record(self.world.handle(), partition)}
            last = {known[2]: offset for offset, known in enumerate(records) if known}
            assert {offset for offset in last.values() if offset >= self.starts[partition]} <= left.keys()
            for offset, record in left.items():
                known = records[offset]
                assert known is not None
                assert (record.value, record.key) == (known[0], known[2])
            gone = [n for n in range(self.starts[partition], len(records)) if n not in left]
            for offset in gone:
                records[offset] = None

    def append(self, rows: list[tuple[int, int]]) -> None:
        """Commit records to some partitions; times ascend, but for every fifth."""
        values, chosen, times, keys = [], [], [], []
        for partition, size in rows:
            self.written += 1
            values.append(b"%06d" % self.written + b"." * size)
            chosen.append(partition % self.partitions)
            times.append(FIRST_MS + 10 * self.written - (300 if self.written % 5 == 0 else 0))
            keys.append(b"%d" % (self.written % 5))
            self.records[chosen[-1]].append((values[-1], times[-1], keys[-1]))
        batch = batch_of(values, key=keys, partition=chosen, timestamp=[at * 1000 for at in times])
        append(self.world.handle(), batch, writer=Transaction(f"w{self.written}", 1))


@contextmanager
def written(
    partitions: int, config: dict[str, object], tables: int, steps: list[tuple[str, list[tuple[int, int]]]]
) -> Iterator[Log]:
    """Make a log by a history."""
    path = Path(tempfile.mkdtemp(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None))
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(side_tables, "TABLE_BYTES", tables)
            patched.setattr(writers_module, "WRITER_ROWS", 2)
            log = Log(World(path / "root"), partitions, [[] for _ in range(partitions)], [0] * partitions)
            log.world.create(partitions, config)
            for step in steps:
                log.do(*step)
        yield log
    finally:
        shutil.rmtree(path)


def strike(log: Log, damage: Damage) -> dict[Path, bytes]:
    """Damage a file, or two that are swapped; return what was there."""
    files = [log.world.path / path for path in log.world.files()]
    sorts = sorted({sort(path) for path in files})
    like = [path for path in files if sort(path) == sorts[int(damage.sort * len(sorts))]]
    path = like[int(damage.file * len(like))]
    data = path.read_bytes()
    before: dict[Path, bytes] = {path: data}
    at = int(damage.at * len(data))
    if damage.kind == "remove":
        path.unlink()
    elif damage.kind in ("swap", "copy over"):
        other = like[int(damage.other * len(like))]
        path.write_bytes(other.read_bytes())
        if damage.kind == "swap":
            before[other] = other.read_bytes() if other != path else data
            other.write_bytes(data)
    elif data and damage.kind == "cut":
        path.write_bytes(data[:at])
    elif data and damage.kind == "zero page":
        page = at - at % PAGE
        path.write_bytes(data[:page] + bytes(len(data[page : page + PAGE])) + data[page + PAGE :])
    elif data:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << damage.bit]) + data[at + 1 :])
    return before


def sort(path: Path) -> str:
    """Return what a file is, so that only like is swapped with like."""
    return f"{path.parent.name} {path.suffix}" if path.suffix == ".json" else path.suffix


def changed(before: dict[Path, bytes], counted: dict[str, int], root: Path) -> list[str]:
    """Return which of the files that were struck have lost bytes that count."""
    lost = []
    for path, data in before.items():
        name = str(path.relative_to(root))
        used = counted.get(name, 0)
        found = path.read_bytes() if path.exists() else b""
        if found[:used] != data[:used]:
            lost.append(name)
    return lost


def readings(log: Log, fraction: float) -> list[str]:
    """Read all in several ways; return the errors, fail on anything wrong."""
    told = []
    for partition, records in enumerate(log.records):
        low, high = log.starts[partition], len(records)
        middle = low + int(fraction * (high - low))
        for start, end in ((low, high), (middle, high), (middle, min(middle + 1, high))):
            told += outcome(log, partition, start, end)
        told += looked_up(log, partition, middle)
    return told


def outcome(log: Log, partition: int, start: int, end: int) -> list[str]:
    """Read a range: what comes before an error, or the end, must be the records from `start` on."""
    known = enumerate(log.records[partition][start:end], start)
    expected = [(offset, each[0], each[1] * 1000) for offset, each in known if each]
    found, told = [], []
    try:
        records = each_record(log.world.handle(), partition, start, end)
        found.extend((record.offset, record.value, record.timestamp) for record in records)
    except CommitLogError as error:
        told.append(str(error))
    assert found == expected[: len(found)]
    assert told or found == expected
    return told


def looked_up(log: Log, partition: int, offset: int) -> list[str]:
    """Look an offset and its timestamp up."""
    records, told = log.records[partition], []
    behind = ((n, each) for n, each in enumerate(records[offset:], offset) if each)
    offset, (value, at, _) = next(behind, (0, (b"", 0, b"")))
    if not value:
        return []
    late = enumerate(records[log.starts[partition] :], log.starts[partition])
    first = next((n, each[1]) for n, each in late if each and each[1] >= at)
    try:
        topic = log.world.handle()
        if topic.newest()[1].log_end[partition] < len(records):  # the newest entry is gone
            return []
        (record,) = fetch(topic, partition, offset, 1)
        assert (record.offset, record.value) == (offset, value)
    except CommitLogError as error:
        told.append(str(error))
    try:
        topic = log.world.handle()
        found = find_time(topic, topic.newest()[1].topic_id, partition, at)
        assert found == OffsetAndTimestamp(*first)
    except CommitLogError as error:
        told.append(str(error))
    return told


@given(
    partitions=st.integers(1, 3),
    config=CONFIGS,
    tables=st.sampled_from([60, 16384]),
    steps=STEPS,
    damages=DAMAGES,
)
@settings(
    max_examples=_EXAMPLES,
    deadline=None,
    derandomize="DAMAGE_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # to shrink a failure takes minutes: it is told as it was found
)
def test_a_damaged_file_is_read_right_or_not_at_all_and_verify_names_a_fault(
    partitions: int,
    config: dict[str, object],
    tables: int,
    steps: list[tuple[str, list[tuple[int, int]]]],
    damages: list[Damage],
) -> None:
    with written(partitions, config, tables, steps) as log:
        assert readings(log, 0.5) == []
        assert verify(log.world.handle()).faults == ()
        counted, last = published(log.world, log.world.handle()), newest(log.world.handle())
        for damage in damages:
            before = strike(log, damage)
            lost = changed(before, counted, log.world.path)
            told = [] if superseded(before) else readings(log, damage.other)
            faults = faults_of(log)
            if not lost:
                assert told == [], f"{damage}: nothing that counts was struck in {list(before)}"
            elif not silent(damage, lost, last):
                assert faults, f"{damage} of {lost}: {told}"
            assert faults or not told or (damage.kind, lost) == ("remove", [last[0]]), f"{damage} of {lost}: {told}"
            for path, data in before.items():
                path.write_bytes(data)
        assert readings(log, 0.5) == []


def superseded(before: dict[Path, bytes]) -> bool:
    """Return whether a segment's file of before is where it can't be told from the one that was made of it."""
    for path, data in before.items():
        found = path.read_bytes() if path.suffix == ".log" and path.exists() else data
        if found != data and len(found) == len(data):
            like = [each for each in path.parent.glob(f"{path.name.partition('.')[0]}*.log") if each != path]
            if found in [before.get(each, each.read_bytes()) for each in like]:
                return True
    return False


def faults_of(log: Log) -> list[str]:
    """Return what `verify` names, or says where nothing is left to look at."""
    try:
        return list(verify(log.world.handle()).faults)
    except CommitLogError as error:
        return [str(error)]


def silent(damage: Damage, lost: list[str], last: tuple[str, str]) -> bool:
    """Return whether `verify` may be silent."""
    if damage.kind == "remove":
        return lost[0] in last
    return damage.kind in ("swap", "copy over") and all(path.endswith("index") for path in lost)
