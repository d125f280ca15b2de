"""R10: clocks decide when things go, never whether that is safe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import StagedExpiredError
from pyspark_commitlog.groups.state.group_entries import oldest_needed
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.read.reader import PartitionReader
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.support.records import append, batch_of, stage
from tests.support.world import DELAY_MS, RETENTION_MS, World, many

_YEAR = 365 * 86_400_000


@dataclass
class Machine:
    """Another machine on the same root, whose clock is off."""

    path: Path
    off_ms: int
    clock: ManualClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = ManualClock(ManualClock().now_ms() + self.off_ms)

    def maintain(self) -> int:
        """Maintain by this machine's clock; return the chunks swept."""
        return CommitLog.on(LocalStorage(self.path, clock=self.clock)).topic("t").maintain().swept_chunks


def test_a_sweeper_whose_clock_is_ahead_loses_nothing_that_is_committed(world: World) -> None:
    """R10, R1, I4: it sweeps a chunk of this very minute: its committer is refused, all else stays."""
    topic = world.create()
    append(topic, batch_of([b"a"]))
    running = stage(topic, batch_of([b"running"]))
    append(topic, batch_of([b"b"]))
    assert Machine(world.path, _YEAR).maintain() == 1
    with pytest.raises(StagedExpiredError):
        commit(topic, running.topic_id, [running], Transaction("w", 1))
    assert world.values() == [b"a", b"b"]
    append(topic, batch_of([b"running"]), writer=Transaction("w", 1))
    assert world.values() == [b"a", b"b", b"running"]


def test_a_collector_whose_clock_is_ahead_stops_no_reader(world: World) -> None:
    """R10, R8, I3: files go under a running reader long before their delay: it looks again, and goes on."""
    topic = world.create()
    for number in range(4):
        append(topic, batch_of(many(10, b"%d-" % number)))
    rows = PartitionReader(topic, topic.newest()[1].topic_id, 0).read(0, 40)
    found = [next(rows)]
    ahead = Machine(world.path, _YEAR)
    for _ in range(3):
        ahead.maintain()
        ahead.clock.advance(_YEAR)
    found += list(rows)
    assert sum(each.count for each in found) == 40


def test_a_clock_that_is_behind_deletes_nothing_early_and_breaks_nothing(world: World) -> None:
    """R10: entries from the future: nothing is old enough to go; writers and readers do not care."""
    topic = world.create()
    running = stage(topic, batch_of([b"running"]))
    append(topic, batch_of([b"a"]))
    world.clock.advance(RETENTION_MS)
    append(topic, batch_of([b"b"]))
    behind = Machine(world.path, -_YEAR)
    chunks = world.files(".chunk")
    assert behind.maintain() == 0
    assert behind.maintain() == 0
    assert world.files(".chunk") == chunks
    commit(topic, running.topic_id, [running])
    assert world.values() == [b"a", b"b", b"running"]


def test_a_clock_that_was_ahead_once_does_not_keep_orphans_for_ever(world: World) -> None:
    """R10, R1: an entry from the future was remembered by its time; later ones are remembered all the same."""
    topic = world.create()
    world.clock.advance(_YEAR)
    append(topic, batch_of([b"a"]))
    append(topic, batch_of([b"b"]))
    world.clock.advance(-_YEAR)
    stage(topic, batch_of([b"orphan"]))
    for _ in range(8):  # a topic that is never idle: its newest entry alone is never old enough
        world.clock.advance(RETENTION_MS // 4)
        append(topic, batch_of([b"c"]))
    assert world.maintain().swept_chunks == 1


def test_lives_that_ended_while_a_clock_was_ahead_are_removed(world: World) -> None:
    """R10, R14: what came later, with its own time, tells that they ended before."""
    world.create()
    world.clock.advance(_YEAR)
    world.log().topic("t").delete()
    world.clock.advance(-_YEAR)
    world.create()
    world.clock.advance(DELAY_MS - 1)
    assert world.maintain().removed_lives == 0
    world.clock.advance(1)
    assert world.maintain().removed_lives == 1


@pytest.mark.parametrize(
    ("ages", "found"),
    [
        ([], 0),
        ([5], 0),
        ([10], 1),
        ([30, 20, 10, 9, 1], 3),
        ([30, None, 20], 3),
        ([30, -99, -99, 20, 5], 4),
        ([-99, -99, 5], 0),
        ([30, -99, 9], 1),
    ],
)
def test_the_newest_entry_that_is_old_enough_is_found_whatever_lies_between(ages: list[int | None], found: int) -> None:
    """Ages in ms, negative from the future; the delay is 10."""
    entries = [(number, None if age is None else 1000 - age) for number, age in enumerate(ages, 1)]
    assert oldest_needed(entries, 1000, 10) == found


def test_a_passing_producers_row_survives_a_clock_that_is_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """R10, I5: rows are stamped with the later of this clock and the newest entry's storage time."""
    from pyspark_commitlog.topic.write import writers as module

    monkeypatch.setattr(module, "WRITER_ROWS", 2)
    topic = world.create()
    behind = CommitLog.on(LocalStorage(world.path, clock=ManualClock(1_000_000_000_000))).root.topic("t")
    batch = ProducerBatch(f"{module.TRANSIENT}w", 0, 0, 0, since=1)
    append(behind, batch_of([b"once"]), writer=batch)
    append(topic, batch_of([b"x"]))
    for number in range(4):
        append(topic, batch_of([b"x"]), writer=Transaction(f"other{number}", 1))
    assert append(topic, batch_of([b"once"]), writer=batch).skipped
