"""`verify` looks at every file that it finds: whichever bit of whichever file flips, the file is named."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pyspark_commitlog.api.verify_root import verify_root
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.groups.membership.member_files import MemberFiles
from pyspark_commitlog.groups.state.members import MemberFile, Profile
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.state import side_files as side_tables
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World

CONFIG = {**CHUNKS, "segment.bytes": 8192, "index.interval.bytes": 100, "batch.size": 1024, "compression.type": "none",
          "segment.index.bytes": 1024}  # fmt: skip
#: What may flip without a word. Notes of who held a lock and what maintenance did are for people, and are written at each
#: run; a member's file is written anew with each heartbeat, and nothing that lasts rests on it: a flip that leaves it a
#: member's file may pass.
HINTS = ("/settle/lock.holder", "/settle/maintained", "/settle/maintenance-runs", "/members/")


@pytest.fixture
def rich(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two lives of a topic, all kinds of entries, tables and segments, settled and not; defaults, rules, a group; strays."""
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 20)
    world.create(2, CONFIG)
    append(world.handle(), batch_of([b"of an earlier life"]))
    world.log().topic("t").delete()
    topic = world.create(2, CONFIG)
    noise = random.Random(1)
    for first in range(0, 160, 10):
        values = [b"%d " % number + noise.randbytes(200) for number in range(first, first + 10)]
        append(topic, batch_of(values, partition=[n % 2 for n in range(10)]), writer=Transaction(f"w{first}", 1))
        settle(topic, topic.newest()[1].topic_id)
    world.maintain()
    world.log().topic("t").delete_records({0: 5})
    world.maintain()
    append(topic, batch_of([b"late"] * 4, partition=[0, 1, 0, 1]), writer=Transaction("late", 1))
    world.log().topic("t").alter({"inline.max.bytes": 65536})
    append(world.handle(), batch_of([b"inline"]))
    log = world.log()
    for hours in (24, 48):
        log.config.alter({"log.retention.hours": hours})
    log.access.allow("*", "admin")
    log.groups.reset("g", ["t"], "earliest", dry_run=False)
    files = MemberFiles(world.storage(), "g")
    files.write("00000000-0000-4000-8000-000000000001", MemberFile(Profile("c", "h"), 1))
    home = topic.paths(topic.newest()[1].topic_id)
    for stray in (
        home.staged,
        home.side,
        home.manifests,
        home.partition(0),
        "topics/t/journal",
        "groups/g/journal",
        "config",
    ):
        (world.path / stray / "stray").write_bytes(b"x")
    return world


def told(world: World) -> tuple[list[str], list[str]]:
    """Return what `verify` names: faults, and what nothing refers to."""
    faults, unnamed = list[str](), list[str]()
    root = verify_root(world.log().root)
    faults += root.faults
    unnamed += root.unnamed
    try:
        report = world.log().topic("t").verify()
    except CorruptionError as error:
        return [*faults, str(error)], unnamed
    return [*faults, *report.faults], [*unnamed, *report.unnamed]


def beyond(world: World) -> dict[str, int]:
    """Return how many bytes of the files of active segments count: what lies behind is a settler's work that was cut off."""
    topic = world.handle()
    topic_id = topic.newest()[1].topic_id
    paths, found = topic.paths(topic_id), {}
    for partition, row in enumerate(topic.settled(topic_id)[1].partitions):
        at = row.active.index
        for suffix, length in (("log", row.active.length), ("index", at.offset_bytes), ("timeindex", at.time_bytes)):
            found[paths.segment_file(partition, row.active.stem, suffix)] = length
    return found


def test_a_sound_root_has_no_fault_and_what_nothing_refers_to_is_named(rich: World) -> None:
    faults, unnamed = told(rich)
    assert faults == []
    assert {path.rpartition("/")[2] for path in unnamed} >= {"stray"}
    assert sum(path.endswith("/stray") for path in unnamed) == 7


def test_whichever_bit_flips_its_file_is_named(rich: World) -> None:
    chance, kinds = random.Random(7), set()
    counted = beyond(rich)
    every = [str(path.relative_to(rich.path)) for path in rich.path.rglob("*") if path.is_file()]
    for path in sorted(every):
        full = rich.path / path
        sound, size = full.read_bytes(), counted.get(path, full.stat().st_size)
        if not size or any(hint in path for hint in HINTS):
            continue
        kinds.add(path.rpartition("/")[2].rpartition(".")[2])
        for position in {0, size - 1, *(chance.randrange(size) for _ in range(2))}:
            damaged = bytearray(sound)
            damaged[position] ^= 1 << chance.randrange(8)
            full.write_bytes(damaged)
            faults, unnamed = told(rich)
            assert is_named(path, faults, unnamed), f"{path}, byte {position} of {size}: {faults}"
        full.write_bytes(sound)
    assert kinds >= {"json", "chunk", "log", "index", "timeindex", "extents", "chunks", "partitions"}
    assert told(rich)[0] == []


def is_named(path: str, faults: list[str], unnamed: list[str]) -> bool:
    """Return whether a fault names a file, or a note it or one of its directories."""
    number = Path(path).name.partition(".")[0].lstrip("0")
    entry = f"entry {number} of" if "/journal/" in path else path
    above = [path, *map(str, Path(path).parents)]
    return any(path in fault or entry in fault for fault in faults) or any(each in unnamed for each in above)
