"""`verify` and readers on storage without append: damage to any byte of an object is named, and never handed out."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.api.verify_root import verify_root
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format.paths import entry_name, group_journal, group_members, object_name
from pyspark_commitlog.journal import Stored, own_writes
from pyspark_commitlog.storage import FileInfo
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.damage.check_object import NamedObject, object_faults
from pyspark_commitlog.topic.damage.verify import TopicReport, verify
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import SettleState
from tests.support.damage import cut, flip, remove, zero
from tests.support.objects import ObjectWorld, topic_id
from tests.support.records import append, batch_of, read_topic
from tests.support.world import CHUNKS, Recorder, once

CONFIG = {**CHUNKS, "segment.bytes": 4096, "index.interval.bytes": 100, "batch.size": 1024, "compression.type": "none"}


@pytest.fixture
def settled(unlocked: ObjectWorld) -> ObjectWorld:
    """Three objects that two partitions share."""
    topic = unlocked.create(2, CONFIG)
    noise = random.Random(1)
    for first in range(0, 30, 10):
        values = [b"%d " % number + noise.randbytes(400) for number in range(first, first + 10)]
        times = [10**12 + 1000 * number for number in range(first, first + 10)]
        append(topic, batch_of(values, partition=[number % 2 for number in range(10)], timestamp=times))
        settle(topic, topic_id(topic))
    return unlocked


def look(world: ObjectWorld) -> TopicReport:
    return verify(world.handle())


def path_of(world: ObjectWorld, number: int) -> Path:
    """Return the file of an object of the tail."""
    topic = world.handle()
    return world.path / topic.paths(topic_id(topic)).object(world.settled().tail[number].name)


def test_sound_objects_have_no_fault(settled: ObjectWorld) -> None:
    report = look(settled)
    assert (report.faults, report.unnamed, report.under_way) == ((), (), ())
    assert report.segments == 6
    assert report.segment_bytes > 12_000


@pytest.mark.parametrize("damage", [flip, cut, zero, remove])
def test_damage_to_an_object_is_named(settled: ObjectWorld, damage: Callable[[Path, random.Random], None]) -> None:
    chance = random.Random(damage.__name__)
    for number in range(3):
        path = path_of(settled, number)
        sound = path.read_bytes()
        for _ in range(20 if damage is flip else 2):
            damage(path, chance)
            assert any(path.name in fault for fault in look(settled).faults)
            path.write_bytes(sound)
    assert look(settled).faults == ()


def test_each_byte_of_an_object_counts(settled: ObjectWorld) -> None:
    """Logs, indexes, footer and trailer: each byte belongs to what has a CRC."""
    path, shared, storage = path_of(settled, 0), settled.settled().tail[0], settled.storage()
    name, sound = str(path.relative_to(settled.path)), path.read_bytes()

    def is_named() -> bool:
        try:
            return any(name in fault for fault in object_faults(storage, name, NamedObject(shared)))
        except CorruptionError as error:
            return name in str(error)

    assert not is_named()
    for position in range(len(sound)):
        with path.open("r+b") as file:
            file.seek(position)
            file.write(bytes([sound[position] ^ 0x10]))
        assert is_named(), position
        with path.open("r+b") as file:
            file.seek(position)
            file.write(sound[position : position + 1])
    assert not is_named()


def test_no_reader_hands_out_another_record_whichever_byte_is_damaged(settled: ObjectWorld) -> None:
    path, expected = path_of(settled, 1), read_topic(settled.handle())
    sound, refused = path.read_bytes(), 0
    for position in range(0, len(sound), 67):
        damaged = bytearray(sound)
        damaged[position] ^= 0x10
        path.write_bytes(bytes(damaged))
        try:
            assert read_topic(settled.handle()) == expected, position
        except CorruptionError:
            refused += 1
    assert refused > 50


def test_an_object_in_the_place_of_another_is_named(settled: ObjectWorld) -> None:
    first, second = path_of(settled, 0), path_of(settled, 1)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    faults = look(settled).faults
    assert any(first.name in fault for fault in faults)
    assert any(second.name in fault for fault in faults)


def test_one_lost_object_hides_no_other_damage(settled: ObjectWorld) -> None:
    path_of(settled, 0).unlink()
    last = path_of(settled, 2)
    damaged = bytearray(last.read_bytes())
    damaged[100] ^= 1
    last.write_bytes(bytes(damaged))
    faults = look(settled).faults
    assert any(path_of(settled, 0).name in fault for fault in faults)
    assert any(last.name in fault for fault in faults)


def test_an_object_that_no_entry_names_is_under_way_unless_it_can_never_be_named(settled: ObjectWorld) -> None:
    """O4: below the floor nothing is ever named again."""
    topic = settled.handle()
    paths = topic.paths(topic_id(topic))
    for number in (0, 9):
        (settled.path / paths.object(object_name(number, "00000000-0000-4000-8000-000000000001"))).write_bytes(b"x")
    (settled.path / paths.object("stray")).write_bytes(b"x")
    report = look(settled)
    assert report.faults == ()
    assert [path.rpartition("/")[2] for path in report.unnamed] == ["stray"]
    assert len(report.under_way) == 2
    raise_floor(settled, 5)
    report = look(settled)
    assert [path.rpartition("/")[2][:20] for path in report.unnamed] == [f"{0:020d}", "stray"]
    assert [path.rpartition("/")[2][:20] for path in report.under_way] == [f"{9:020d}"]


def raise_floor(world: ObjectWorld, floor: int) -> None:
    topic = world.handle()
    topic.change(topic_id(topic), lambda _, now: Change(replace(now, files_floor=floor)))


def test_an_entry_that_the_next_was_not_built_on_is_named_and_not_believed(settled: ObjectWorld) -> None:
    """O6: what a ghost names may be gone."""
    topic = settled.handle()
    settles = settled.path / topic.paths(topic_id(topic)).settle
    entries = sorted(path for path in settles.iterdir() if path.name.endswith(".json"))
    gone = entries[1]
    gone.unlink()
    report = look(settled)
    assert report.faults == ()
    assert [path.rpartition("/")[2] for path in report.unnamed] == [entries[0].name]


def test_objects_that_are_replaced_while_they_are_looked_at_have_no_fault(settled: ObjectWorld) -> None:
    """R8: what the newest entry does not name any more may be gone."""
    victim = path_of(settled, 0)

    def swap(_: Stored, now: SettleState) -> Change:
        first, *others = now.tail
        copy = replace(first, name=object_name(2, "00000000-0000-4000-8000-000000000002"))
        victim.with_name(copy.name).write_bytes(victim.read_bytes())
        return Change(replace(now, tail=(copy, *others)))

    def collected() -> None:
        topic = settled.handle()
        published = topic.change(topic_id(topic), swap)
        topic.change(topic_id(topic), lambda _, now: Change(now))
        assert published is not None
        for number in range(1, published.sequence):
            (settled.path / topic.paths(topic_id(topic)).settle / entry_name(number)).unlink()
        victim.unlink()

    late = settled.handle(on_path(".segment", "map", once(collected)))
    assert verify(late).faults == ()


def test_a_reader_reads_the_newest_entry_again_where_an_object_is_missing(settled: ObjectWorld) -> None:
    """R8: it is a loss only if that names it, too."""
    name = path_of(settled, 1)
    name.unlink()
    with pytest.raises(CorruptionError, match=name.name):
        read_topic(settled.handle())


def test_entries_that_are_requests_are_looked_at_several_at_a_time(
    unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS and fsspec too. What is found stands in the order of the entries all the same."""
    topic = unlocked.create(1, CONFIG)
    for number in range(8):
        append(topic, batch_of([b"%d" % number]))
    chunks = sorted(unlocked.path.glob("topics/*/*/staged/*"))
    for path in chunks[1::2]:
        path.unlink()
    together, began = threading.Barrier(2), list[str]()
    info = LocalStorage.info

    def waiting(self: LocalStorage, path: str) -> FileInfo:
        if "/staged/" in path and len(began) < 2:
            began.append(path)
            together.wait(10)
        return info(self, path)

    monkeypatch.setattr(LocalStorage, "info", waiting)
    faults = [fault for fault in look(unlocked).faults if "staged" in fault]
    missing = [path.name for path in chunks[1::2]]
    assert [next(name for name in missing if name in fault) for fault in faults] == missing


@pytest.mark.parametrize(
    ("operation", "files"), [("fetch", "journal/*"), ("fetch", "*/settle/0*"), ("info", "*/staged/*")]
)
def test_what_nobody_needs_any_more_is_looked_at_several_at_a_time(
    unlocked: ObjectWorld, monkeypatch: pytest.MonkeyPatch, operation: str, files: str
) -> None:
    """Old entries, settle entries and chunks: where each is some requests, or a round trip to a server."""
    topic = unlocked.create(1, CONFIG)
    for number in range(4):
        append(topic, batch_of([b"%d" % number]))
        settle(topic, topic_id(topic))
    awaited = {str(path.relative_to(unlocked.path)) for path in sorted(unlocked.path.glob(f"topics/*/{files}"))[:2]}
    together, began, asked = threading.Barrier(2), list[str](), getattr(LocalStorage, operation)

    def waiting(self: LocalStorage, path: str, *args: object) -> object:
        if path in awaited and len(began) < 2:
            began.append(path)
            together.wait(10)
        return asked(self, path, *args)

    monkeypatch.setattr(LocalStorage, operation, waiting)
    report = look(unlocked)
    assert (report.faults, report.unnamed) == ((), ())
    assert set(began) == awaited
    assert len(awaited) == 2


@pytest.mark.parametrize(
    ("act", "operation", "awaited"),
    [
        (lambda log: verify_root(log.root).faults, "fetch", [f"config/journal/{entry_name(n)}" for n in (1, 2)]),
        (lambda log: log.groups.verify(), "fetch", [f"{group_journal(group)}/{entry_name(1)}" for group in "gh"]),
        (lambda log: log.groups.list()[2:], "fetch", [f"{group_journal(group)}/{entry_name(2)}" for group in "gh"]),
        (lambda log: log.groups.unnamed(), "names", [group_members(group) for group in "gh"]),
    ],
    ids=["settings", "groups", "names of groups", "strays"],
)
def test_what_belongs_to_no_topic_is_looked_at_several_at_a_time(
    unlocked: ObjectWorld,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[CommitLog], Sequence[str]],
    operation: str,
    awaited: list[str],
) -> None:
    append(unlocked.create(1, CONFIG), batch_of([b"0"]))
    log = unlocked.log()
    for hours, to in ((24, "latest"), (48, "earliest")):
        log.config.alter({"log.retention.hours": hours})
        for group in "gh":
            log.groups.reset(group, ["t"], to, dry_run=False)
    own_writes.own_puts.renew()
    together, began, asked = threading.Barrier(2), set[str](), getattr(LocalStorage, operation)

    def waiting(self: LocalStorage, path: str, *args: object) -> object:
        if path in awaited and path not in began:
            began.add(path)
            together.wait(10)
        return asked(self, path, *args)

    monkeypatch.setattr(LocalStorage, operation, waiting)
    assert not act(unlocked.log())
    assert began == {*awaited}


def test_what_is_inline_is_looked_at_once(unlocked: ObjectWorld) -> None:
    """Not for each partition that has a share of it; once more among all that lies there."""
    topic = unlocked.create(4, {"inline.max.bytes": 2**20})
    for _ in range(3):
        append(topic, batch_of([random.Random(1).randbytes(2**16)] * 4, partition=[0, 1, 2, 3]))
    own_writes.own_puts.renew()
    recorder = Recorder()
    assert verify(unlocked.handle(recorder)).faults == ()
    reads = Counter(path for path in recorder.paths("read") if "/journal/" in path)
    assert list(reads.values()) == [2] * 3


def test_how_much_waits_is_asked_once(unlocked: ObjectWorld) -> None:
    """Not for each partition: each look at it reads entries."""
    topic = unlocked.create(6, CONFIG)
    for number in range(4):
        append(topic, batch_of([b"%d" % number]))
    recorder = Recorder()
    report = verify(unlocked.handle(recorder))
    reads = Counter(path for path in recorder.paths("fetch") if "/journal/" in path)
    assert max(count for path, count in reads.items() if path != max(reads)) <= 3
    assert report.unsettled.entries == 4
