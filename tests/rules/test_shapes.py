"""What others may have written is checked where it is read: a right CRC makes no value right."""

from __future__ import annotations

import copy
import json
import resource
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from awscrt.checksums import crc32c

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.format.entry import to_json_bytes
from pyspark_commitlog.replication.protocol.roots import root_id
from pyspark_commitlog.topic.state import side_files as side_tables
from tests.support.crafted import ABSURD, Change, change_entry, leaves, sealed
from tests.support.entries import rewrite
from tests.support.records import append, batch_of
from tests.support.world import CHUNKS, World, many


def newest(world: World, part: str) -> Path:
    return max(path for path in world.path.rglob("*.json") if part in str(path))


@pytest.fixture(autouse=True)
def every_kind_of_file(world: World) -> None:
    """A topic with a sealed segment, an active one and unsettled chunks, a group with a member's row, rules, defaults."""
    topic = world.create(2, {**CHUNKS, "segment.bytes": 3000, "batch.size": 1024, "compression.type": "none"})
    for _ in range(3):
        append(topic, batch_of(many(100, b"v" * 60), partition=[0, 1] * 50))
        world.maintain()
    append(topic, batch_of(many(4), partition=[0, 1] * 2))
    log = world.log()
    log.groups.commit("g", {"t": {0: 1}})
    log.config.alter({"log.retention.hours": 5})
    log.access.allow("*", "admin", "*")


JOURNAL, SETTLE, GROUP = "topics/t/journal/", "/settle/", "groups/g/journal/"


@pytest.mark.parametrize(
    ("part", "change", "field", "found"),
    [
        (JOURNAL, lambda b: b["state"].update(logEnd=[5, -1]), r"\$.state.logEnd\[1\] is -1", ">= 0"),
        (JOURNAL, lambda b: b["state"].update(logStart=[999, 0]), r"state.logStart\[0\] is 999", "at most logEnd, 152"),
        (JOURNAL, lambda b: b["state"].update(logStart=[0]), r"state.logStart is \(0,\)", "2 offsets"),
        (JOURNAL, lambda b: b["state"].update(logEnd=10**9), r"\$.state.logEnd is 1000000000", "array"),
        (JOURNAL, lambda b: b["state"].update(logEnd=[0] * 10_001), r"\$.state.logEnd is list of 10001", "<= 10000"),
        (JOURNAL, lambda b: b["state"].update(logEnd=[2**63, 1]), r"\$.state.logEnd\[0\] is 9223372036854775808", ""),
        (JOURNAL, lambda b: b["state"].update(config={"segment.bytes": "many"}), "config 'segment.bytes' is 'many'", "a whole"),
        (JOURNAL, lambda b: b["state"].update(config={"segment.bytes": 5}), r"\$.state.config", "str"),
        (JOURNAL, lambda b: b["state"].pop("deleted"), r"\$.state", "deleted"),
        (JOURNAL, lambda b: b["state"].update(voids=[[10**9, 0, 1]]), r"\$.state.voids\[0\]\[0\] is 1000000000", "<"),
        (JOURNAL, lambda b: b["state"].update(voids=[[0, 5, 5]]), r"state.voids\[0\] is \[0, 5, 5\]", "offsets"),
        (JOURNAL, lambda b: b["state"].update(voids=[[0, 5, 6], [0, 2, 3]]), r"state.voids\[1\] is \[0, 2, 3\]", "after"),
        (JOURNAL, lambda b: b["state"].update(voids=[[0, 2, 4], [0, 3, 5]]), r"state.voids\[1\] is \[0, 3, 5\]", "after"),
        (JOURNAL, lambda b: b["state"].update(voids=[[1, 2, 3], [0, 5, 6]]), r"state.voids\[1\] is \[0, 5, 6\]", "after"),
        (JOURNAL, lambda b: b["state"].update(lost=[[1, 0, 0, "r", [[0, 5, 5]]]]), r"lost\[0\]\[4\]\[0\] is", "offsets"),
        (JOURNAL, lambda b: b["state"].update(lost=[[10**9, 0, 0, "r", []]]), r"lost\[0\]\[0\] is 1000000000", "own"),
        (JOURNAL, lambda b: b.update(extents=[[0, 10**9, 0, 0, 0, 0]]), r"\$.extents\[0\]\[1\] is 1000000000", "<"),
        (JOURNAL, lambda b: b.update(extents=[[0, 0, 0]]), r"\$.extents\[0\]", "length 6"),
        (JOURNAL, lambda b: b["chunks"][0].update(name="../../x"), r"\$.chunks\[0\].name is '../../x'", "regex"),
        (JOURNAL, lambda b: b.update(chunks={"file": "a/b", "length": 1, "crc": "00000000"}), r"\$.chunks.file", "regex"),
        (JOURNAL, lambda b: b.update(topicId="../t"), r"\$.topicId is '../t'", "regex"),
        (JOURNAL, lambda b: b.update(inline={"length": 10**15, "crc": "00000000"}), r"\$.inline.length is 10+", "<= 1048576"),
        (JOURNAL, lambda b: b.update(readFeatures=5), r"\$.readFeatures is 5", "array"),
        (JOURNAL, lambda b: b["state"]["writers"].update(rows={"w": [1, 2]}), r"\$.state.writers.rows", "length"),
        (JOURNAL, lambda b: b["state"]["writers"].update(rows={"w": [1, 1, 1, 1, None, 0]}), r"writers.rows", "an epoch with"),
        (JOURNAL, lambda b: b["state"].pop("schemas"), r"\$.state", "schemas"),
        (JOURNAL, lambda b: b["state"].update(replicas={}), "state.replicas is {}", "none, as readFeatures names none"),
        (JOURNAL, lambda b: b.update(readFeatures=["replicas"]), "state.replicas is None", "what readFeatures names"),
        (SETTLE, lambda b: b["partitions"][0].extend([0, 0, 0]), r"\$.partitions\[0\]", "at most length 6"),
        (SETTLE, lambda b: b["partitions"][0][2].append(0), r"\$.partitions\[0\]\[2\]", "at most length 13"),
        (SETTLE, lambda b: b.update(through=[1]), r"\$.through", "length 2"),
        (SETTLE, lambda b: b.update(damaged=[[0, 1]]), r"\$.damaged\[0\]", "length 3"),
        (SETTLE, lambda b: b["partitions"][0].__setitem__(0, -5), r"\$.partitions\[0\]\[0\] is -5", ">= 0"),
        (SETTLE, lambda b: b["partitions"][0][2].__setitem__(3, 2**32), r"\$.partitions\[0\]\[2\]\[3\]", "<= 4294967295"),
        (SETTLE, lambda b: b["partitions"][0][1].__setitem__(0, "../x"), r"\$.partitions\[0\]\[1\]\[0\] is '../x'", "regex"),
        (GROUP, lambda b: b["state"].update(generation=-1), r"\$.state.generation is -1", ">= 0"),
        (GROUP, lambda b: next(iter(b["state"]["topics"].values())).update(name="a/b"), r"\$.state.topics", "regex"),
        (GROUP, lambda b: next(iter(b["state"]["topics"].values())).update(offsets=[-2]), r"\$.state.topics", ">= -1"),
        (GROUP, lambda b: b["state"].update(members={"rows": {}}), r"\$: ?object missing|\$ is", "required field"),
        ("config/journal/", lambda b: b.update(config={"log.retention.hours": "x"}), "config is", "can be read"),
        ("config/journal/", lambda b: b.update(config={"segment.bytes": "-7"}), "config 'segment.bytes' is '-7'", ""),
        ("access/journal/", lambda b: b.update(rules=[["a", "fly", "*"]]), r"\$.rules\[0\]\[1\] is 'fly'", "invalid"),
        ("access/journal/", lambda b: b.update(rules=[["a", "read", "a/*"]]), r"rules\[0\] is", "topic"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_named_with_file_field_and_what_was_expected(
    world: World, part: str, change: Change, field: str, found: str
) -> None:
    path = newest(world, part)
    change_entry(path, change)
    with pytest.raises(CorruptionError, match=field) as caught:
        use(world, part)
    told = str(caught.value)
    assert str(path.relative_to(world.path)) in told
    assert found in told


def use(world: World, part: str) -> None:
    """Do what reads the newest entry of a journal."""
    if part.startswith("access"):
        world.log().root.topic("t")
    elif part.startswith("config"):
        world.log().config.get()
    elif part == GROUP:
        world.log().groups.commit("g", {"t": {0: 2}})
    else:
        topic = world.handle()
        _, state = topic.newest()
        topic.settled(state.topic_id)


@pytest.mark.parametrize("kind", ["extents", "chunks", "partitions", "writers", "manifests"])
def test_tables_beside_entries_are_checked_too(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_tables, "TABLE_BYTES", 10)
    if kind != "manifests":
        append(world.handle(), batch_of(many(4), partition=[0, 1] * 2))
        world.maintain()
        append(world.handle(), batch_of(many(4), partition=[0, 1] * 2))
    rows: dict[str, Any] = {
        "extents": [[10**9] * 6],
        "chunks": [{"name": "a/b", "length": 1, "crc": "00000000"}],
        "partitions": [[0, None, [0] * 3, 0]],
        "manifests": [[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]],
    }
    if kind == "writers":
        data = to_json_bytes({"w": [-2, 0, 0, 0, None]})
        path = world.path / next(path for path in world.files("side/"))
        side = path.with_name(path.name.rpartition(".")[0] + ".writers")
        side.write_bytes(data)
        named = {"file": side.name, "length": len(data), "crc": f"{crc32c(data):08x}"}
        change_entry(newest(world, JOURNAL), lambda b: b["state"]["writers"].update(snapshot=named))
        topic = world.handle()
        with pytest.raises(CorruptionError, match=r"writers: .*>= -1"):
            topic.snapshot(topic.newest()[1])
        return
    data = to_json_bytes(rows[kind])
    named_as = {"length": len(data), "crc": f"{crc32c(data):08x}"}
    if kind == "manifests":
        path = newest(world, "manifests/")
        path.write_bytes(data)
        change_entry(
            newest(world, SETTLE),
            lambda b: [
                row[1].__setitem__(slice(1, 3), [len(data), named_as["crc"]]) for row in b["partitions"] if row[1]
            ],
        )
    else:
        part = SETTLE if kind == "partitions" else JOURNAL
        path = max((world.path / name for name in world.files(f".{kind}")), key=str)
        path.write_bytes(data)
        change_entry(newest(world, part), lambda b: b[kind].update(named_as))
    report = world.log().topic("t").verify()
    assert any(path.name in fault for fault in report.faults), report.faults


def read_all(world: World) -> None:
    list(world.log().topic("t").read(0, 0, 200))


ACTS: dict[str, tuple[Callable[[World], object], ...]] = {
    JOURNAL: (lambda world: world.log().topic("t").describe(), read_all, lambda world: world.log().topic("t").verify()),
    SETTLE: (read_all, lambda world: world.log().topic("t").verify()),
    GROUP: (lambda world: world.log().groups.describe("g"), lambda world: world.log().groups.verify()),
}


@pytest.mark.parametrize("part", ACTS)
def test_nothing_but_errors_of_ours_comes_of_any_absurd_value_anywhere(world: World, part: str) -> None:
    """Each field of the newest entry in turn, with absurd values: told, or harmless; nothing else, and no memory."""
    path = newest(world, part)
    line, _, inline = path.read_bytes().partition(b"\n")
    body = json.loads(line)
    del body["crc"]
    values = cycle(ABSURD)
    for act in ACTS[part]:
        act(world)
    peak, failed = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for place in leaves(body):
        for absurd in islice(values, 3 if place else 0):
            changed = copy.deepcopy(body)
            target = changed
            for step in place[:-1]:
                target = target[step]
            target[place[-1]] = absurd
            path.write_bytes(sealed(changed) + inline)
            failed += sum(not answers(world, act) for act in ACTS[part])
    assert failed > 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 64 * 1024, "KiB"


def test_a_marker_without_its_id_is_damage(world: World) -> None:
    rewrite(world.path / "commitlog.json", lambda fields: fields.pop("rootId"))
    with pytest.raises(CorruptionError, match=r"commitlog.json: .*rootId"):
        root_id(world.storage())


def answers(world: World, act: Callable[[World], object]) -> bool:
    with suppress(CommitLogError):
        act(world)
        return True
    return False


def test_what_another_release_writes_more_is_passed_over(world: World) -> None:
    """Unknown members are not refused: what must not be passed over is a feature."""
    change_entry(newest(world, JOURNAL), lambda b: (b.update(more=1), b["state"].update(more=[{}])))
    assert world.log().topic("t").describe().partitions[0].high_watermark == 152
    change_entry(newest(world, JOURNAL), lambda b: b.update(readFeatures=["more"]))
    with pytest.raises(CommitLogError, match="uses more, unknown to this release"):
        world.log().topic("t").describe()


def test_an_extent_that_claims_more_than_the_entry_holds_is_damage(world: World) -> None:
    world.log().topic("t").alter({"inline.max.bytes": 1000})
    append(world.handle(), batch_of([b"x"], partition=[0]))
    change_entry(newest(world, JOURNAL), lambda b: b["extents"][0].__setitem__(2, 10**9))
    with pytest.raises(CorruptionError):
        read_all(world)


def test_an_extent_of_a_partition_that_there_is_not_is_damage(world: World) -> None:
    change_entry(newest(world, JOURNAL), lambda b: b["extents"][1].__setitem__(1, 2))
    with pytest.raises(
        CorruptionError, match="a partition of extents is 2, expected below 2, as many as the topic has"
    ):
        read_all(world)


def test_frames_that_go_on_beyond_what_their_extent_says_are_damage(world: World) -> None:
    """A record of the next entry would be passed over for one that lies at no offset."""
    topic = world.create(name="u")
    for batch in ([b"a", b"b"], [b"c"]):
        append(topic, batch_of(batch))
    changes: list[tuple[int, Change]] = [
        (2, lambda b: (b["extents"][0].__setitem__(4, 1), b["state"].update(logEnd=[1]))),
        (3, lambda b: (b["extents"][0].__setitem__(5, 1), b["state"].update(logEnd=[2]))),
    ]
    for number, change in changes:
        change_entry(world.path / "topics/u/journal" / f"{number:020d}.json", change)
    assert world.handle(name="u").newest()[1].log_end == (2,)
    with pytest.raises(CorruptionError, match="goes on to offset 2, its frames end at 1"):
        world.values("u")
    with pytest.raises(CorruptionError, match="goes on to offset 2, its frames end at 1"):
        world.log().topic("u").read(0, 0, 1)


def test_frames_that_go_on_beyond_what_the_settle_entry_says_are_damage(world: World) -> None:
    append(world.create(name="u"), batch_of([b"a", b"b"]))
    world.maintain("u")
    change_entry(max((world.path / "topics/u").rglob("settle/*.json")), lambda b: b["partitions"][0].__setitem__(0, 1))
    with pytest.raises(CorruptionError, match="goes on to offset 2, its frames end at 1"):
        world.log().topic("u").read(0, 0, 1)
