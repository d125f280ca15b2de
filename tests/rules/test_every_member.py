"""Each member of every kind of file left out, or of a wrong type, with seals that are right: damage, or harmless.

What a file may lack is said here once more, beside what FORMAT.md says; all else that is left out is damage.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.api.verify_root import verify_root
from pyspark_commitlog.copying import copy_staging
from pyspark_commitlog.copying.topic_copy import stage_ahead
from pyspark_commitlog.errors import CommitLogError, CorruptionError, UnsupportedError
from pyspark_commitlog.format.segment_object import TRAILER_BYTES, decode_footer, decode_trailer
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.replication.metadata.acceptor import Acceptor
from pyspark_commitlog.replication.metadata.births import Births
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.root.root_marker import make_root
from pyspark_commitlog.storage.base import Holder
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.topic import topic_tables as topics
from pyspark_commitlog.topic.state import leaves, side_files as tables
from pyspark_commitlog.topic.write import writers
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.groups.conftest import Group
from tests.support.crafted import change_entry, crafted, replace_named, sealed
from tests.support.objects import ObjectWorld, split
from tests.support.records import append, batch_of
from tests.support.replicas import Replicated
from tests.support.steps import every_step
from tests.support.world import CHUNKS, World, many

pytestmark = pytest.mark.slow

#: What no act may end in, nor a report, nor a line of the log.
NOT_OURS = re.compile(r"\b(Key|Type|Attribute|Index|Value|Overflow|Assertion|Recursion|Memory|Lookup)Error\b")
CONFIG = {**CHUNKS, "segment.bytes": 1024, "batch.size": 1024, "compression.type": "none"}
MEMBER = "00000061-0000-4000-8000-000000000001"


def fill(world: World) -> None:
    """A topic with sealed segments, active ones and unsettled chunks, a group with a member, rules, defaults."""
    topic = world.create(2, CONFIG)
    for number in range(3):
        append(topic, batch_of(many(40, b"v" * 60), partition=[0, 1] * 20), writer=Transaction("w", number))
        world.maintain()
    append(topic, batch_of(many(2), partition=[0, 1]), writer=ProducerBatch("transient:p", 0, 0, 1, since=4))
    append(topic, batch_of(many(2), partition=[0, 1]), writer=Transaction("x", 1))
    world.log().groups.commit("g", {"t": {0: 1}}, metadata="m")
    group = Group(world)
    group.join("a", ["t"])
    group.run()
    world.log().config.alter({"log.retention.hours": 5})
    world.log().access.allow("*", "admin", "*")


@pytest.fixture
def inline(tmp_path: Path) -> World:
    """A root whose tables lie in the entries."""
    world = World(tmp_path / "made")
    fill(world)
    change_entry(newest_entry(world, "journal"), with_what_is_rare)
    change_entry(newest_entry(world, "*/settle"), settled_with_what_is_rare)
    return world


def newest_entry(world: World, part: str) -> Path:
    return max((world.path / "topics/t").glob(f"{part}/0*.json"))


def with_what_is_rare(body: dict[str, Any]) -> None:
    end = body["state"]["logEnd"][0]
    void = [0, end - 1, end]
    body["state"].update(voids=[void], lost=[[2, -1, -1, "", [void]]], copied=1)
    body["state"].update(formerIds=[["of-before", 1]], formerQueries=["q"])


def settled_with_what_is_rare(body: dict[str, Any]) -> None:
    body.update(filesFloor=1, marks=[[1, 1]], drops=["side/none"])
    body["partitions"][0] += [5, 1]


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A root whose tables lie beside the entries, and whose manifests have leaves."""
    monkeypatch.setattr(tables, "TABLE_BYTES", 10)
    monkeypatch.setattr(writers, "WRITER_ROWS", 1)
    monkeypatch.setattr(leaves, "LEAF_SEGMENTS", 2)
    monkeypatch.setattr(topics, "LEAF_SEGMENTS", 2)
    world = World(tmp_path / "made")
    fill(world)
    return world


@pytest.fixture
def objects(tmp_path: Path) -> ObjectWorld:
    """A root on storage without append."""
    world = ObjectWorld(tmp_path / "made")
    fill(world)
    split(world.handle(), 2)
    return world


# --- What is done with a crafted root ------------------------------------------------------------------------------

Act = Callable[[CommitLog], object]


def read_all(log: CommitLog) -> None:
    for partition in (0, 1):
        list(log.topic("t").read(partition, 0, 200))


def join(log: CommitLog) -> None:
    group = Group(World(Path(log.url)))
    group.join("b", ["t"])
    group.run(ms=800)


def hold(log: CommitLog) -> None:
    topic = log.root.topic("t")
    holder = log.root.storage.holder(topic.paths(topic.newest()[1].topic_id).lock)
    assert isinstance(holder, Holder)
    assert f"{holder}"


ROOT: tuple[Act, ...] = (
    lambda log: log.topic("t").describe(),
    lambda log: log.config.get(),
    lambda log: log.access.rules(),
    lambda log: log.replicas.describe(),
    lambda log: verify_root(log.root).faults,
    lambda log: log.maintain(),
    lambda log: log.config.alter({"log.retention.hours": 6}),
)
TOPIC: tuple[Act, ...] = (
    lambda log: log.topic("t").describe(),
    read_all,
    lambda log: log.replicas.describe(),
    lambda log: log.topic("t").verify().faults,
    lambda log: log.root.topic("t").snapshot(log.root.topic("t").newest()[1]),
    lambda log: log.root.topic("t").damaged(log.root.topic("t").newest()[1].topic_id),
    lambda log: log.groups.describe("g").faults,
    lambda log: log.topic("t").alter({"retention.ms": 10**12}),
    lambda log: append(log.root.topic("t"), batch_of(many(2), partition=[0, 1]), writer=Transaction("w", 9)),
    lambda log: log.maintain(),
)
GROUP: tuple[Act, ...] = (
    lambda log: log.groups.describe("g").faults,
    lambda log: verify_root(log.root).faults,
    join,
    lambda log: log.groups.commit("g", {"t": {0: 2}}),
    lambda log: log.groups.maintain("g"),
    lambda log: log.maintain(),
)


def failures(error: BaseException) -> Iterator[BaseException]:
    """Yield what failed, of a group each."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from failures(each)
    else:
        yield error


def refused(act: Act, log: CommitLog, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what an act says of damage; nothing where it finds none. Fail by what is no error of ours."""
    caplog.clear()
    found: list[str] = []
    try:
        done = act(log)
    except (CommitLogError, ExceptionGroup) as error:
        for failure in failures(error):
            assert isinstance(failure, CommitLogError), repr(failure)
            found += [str(failure)] * isinstance(failure, (CorruptionError, UnsupportedError))
    else:
        found += [each for each in done if isinstance(each, str)] if isinstance(done, tuple) else []
    for line in (*found, *caplog.messages):
        assert not NOT_OURS.search(line)
    return found


@dataclass(frozen=True)
class Kind:
    """A kind of file: the pattern of its path, what is done with a root that has a crafted one, what it may lack."""

    path: str
    acts: tuple[Act, ...]
    may_lack: frozenset[str] = frozenset()


def kind(path: str, acts: tuple[Act, ...], *may_lack: str) -> Kind:
    return Kind(path, acts, frozenset(may_lack))


KINDS: Mapping[str, tuple[str, Kind]] = {
    "marker": ("inline", kind(r"^commitlog\.json$", ROOT, "offsetsExpire")),
    "access": ("inline", kind("^access/journal/", ROOT)),
    "config": ("inline", kind("^config/journal/", ROOT)),
    "topic": ("inline", kind("^topics/t/journal/", TOPIC, "state.copied", "state.lost")),
    "settle": (
        "inline",
        kind(r"/settle/0.*json$", TOPIC, "othersUnsettled", "filesFloor", "marks", "drops"),
    ),
    "group": ("inline", kind("^groups/g/journal/", GROUP, "state.members")),
    "member": ("inline", kind("^groups/g/members/", GROUP)),
    "lock note": ("inline", kind(r"lock\.holder$", (hold,), "host", "pid", "since")),
    "short manifest": ("inline", kind("/manifests/", TOPIC)),
    "topic beside": ("beside", kind("^topics/t/journal/", TOPIC)),
    "settle beside": ("beside", kind(r"/settle/0.*json$", TOPIC, "othersUnsettled")),
    "group beside": ("beside", kind("^groups/g/journal/", GROUP, "state.members")),
    "members": ("beside", kind(r"\.members$", GROUP)),
    "partitions": ("beside", kind(r"\.partitions$", TOPIC)),
    "chunks": ("beside", kind(r"\.chunks$", TOPIC)),
    "extents": ("beside", kind(r"\.extents$", TOPIC)),
    "writers": ("beside", kind(r"\.writers$", TOPIC)),
    "manifest": ("beside", kind("/manifests/", TOPIC)),
    "leaf": ("beside", kind("/manifests/", TOPIC)),
    "settle of objects": ("objects", kind(r"/settle/0.*json$", TOPIC, "othersUnsettled", "marks", "drops")),
    "manifest of objects": ("objects", kind("/manifests/", TOPIC)),
}


def file_of(world: World, name: str, path: str) -> Path:
    """Return the newest file of a kind: of manifests one that the newest settle entry names, in parts if there is one."""
    files = [each for each in world.path.rglob("*") if re.search(path, str(each.relative_to(world.path)))]
    if "/manifests/" in path:
        named = max(world.path.rglob("settle/0*.json")).read_text() + "".join(
            each.read_text() for each in world.path.rglob("*.partitions")
        )
        files = [each for each in files if each.name in named]
    newest = max(files)
    return newest.with_name(json.loads(newest.read_text())["leaves"][-1][0]) if name == "leaf" else newest


@every_step
@pytest.mark.parametrize("name", KINDS)
def test_each_member_is_required_or_may_be_left_out_and_nothing_else_comes_of_it(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, every: int
) -> None:
    fixture, of = KINDS[name]
    made: World = request.getfixturevalue(fixture)
    path = file_of(made, name, of.path).relative_to(made.path)
    line, newline, inline = (made.path / path).read_bytes().partition(b"\n")
    body = json.loads(line)
    is_sealed = bool(newline) and "crc" in body
    if is_sealed:
        del body["crc"]
    assert [refused(act, copied(made, tmp_path / "whole").log(), caplog) for act in of.acts] == [[]] * len(of.acts)
    passed, damaged = set(), 0
    for number, each in enumerate(crafted(body, max(1, every // 2))):  # of a small file a few, too
        world = copied(made, tmp_path / str(number))
        if is_sealed:
            (world.path / path).write_bytes(sealed(each.body) + inline)
        else:
            replace_named(world.path, world.path / path, json.dumps(each.body, separators=(",", ":")).encode())
        try:
            found = [line for act in of.acts for line in refused(act, world.log(), caplog)]
        except AssertionError as error:
            raise AssertionError(f"{path}: {each}") from error
        damaged += bool(found)
        passed |= {each.left_out} - {""} if not found else set()
        shutil.rmtree(world.path)
    assert passed == of.may_lack
    assert damaged > 2 or name == "lock note"


def copied(made: World, path: Path) -> World:
    """Return a copy of a root, as another one."""
    shutil.copytree(made.path, path, dirs_exist_ok=True)
    return type(made)(path, made.clock)


# --- Roots that belong together ----------------------------------------------------------------------------------------


@pytest.fixture
def several(tmp_path: Path) -> Replicated:
    """Two roots with data and three that decide, with a topic and a group."""
    roots = Replicated(tmp_path, "ab", metadata="mno")
    roots.create()
    roots.write(b"a")
    roots.write(b"b")
    roots.log().groups.commit("g", {"t": {0: 1}})
    roots.log().config.alter({"log.retention.hours": 5})
    return roots


def register_at(roots: Replicated, unit: str) -> Callable[[], object]:
    acceptor = Acceptor(roots.id_of("m"), LocalStorage(roots.path / "m", clock=roots.clock), f"{unit}/acceptor-0")
    return lambda: (acceptor.read(), acceptor.held())


#: A root, a file there, what reads it first, and what it may lack.
SHARED: Mapping[str, tuple[str, str, Callable[[Replicated], object], frozenset[str]]] = {
    "marker": ("a", "commitlog.json", lambda roots: roots.log().topics(), frozenset({"offsetsExpire"})),
    "list": ("a", "replicas/journal", lambda roots: Roots(roots.storage("a")).listed(), frozenset()),
    "births": ("m", "replicas/births", lambda roots: Births(roots.storage("m")).refuse_copy(), frozenset()),
    "a topic's register": ("m", "topics/t/acceptor-0", lambda roots: register_at(roots, "topics/t")(), frozenset()),
    "a group's register": ("m", "groups/g/acceptor-0", lambda roots: register_at(roots, "groups/g")(), frozenset()),
    "a setting's register": ("m", "config/acceptor-0", lambda roots: register_at(roots, "config")(), frozenset()),
    "topic": ("a", "topics/t/journal", lambda roots: roots.at("a").newest(), frozenset()),
    "group": (
        "a",
        "groups/g/journal",
        lambda roots: GroupLog(LocalStorage(roots.path / "a"), "g").newest(),
        frozenset({"state.leaderEpoch"}),
    ),
}
BESIDE: tuple[Act, ...] = (*TOPIC[:6], *ROOT[:5], GROUP[0], GROUP[1])


@every_step
@pytest.mark.parametrize("name", SHARED)
def test_each_member_of_what_several_roots_share_is_required_or_may_be_left_out(
    several: Replicated, caplog: pytest.LogCaptureFixture, name: str, every: int
) -> None:
    root, where, read, may_lack = SHARED[name]
    path = several.path / root / where
    path = path if path.is_file() else max(path.iterdir())
    whole, times = path.read_bytes(), path.stat().st_mtime_ns
    line, _, inline = whole.partition(b"\n")
    body = json.loads(line)
    del body["crc"]
    passed: set[str] = set()
    for each in crafted(body, every):
        path.write_bytes(sealed(each.body) + inline)
        os.utime(path, ns=(times, times))
        try:
            damaged = refused(lambda log: read(several), several.log(), caplog)
            for act in BESIDE:
                refused(act, several.log(), caplog)
        except AssertionError as error:
            raise AssertionError(f"{path}: {each}") from error
        passed |= set() if damaged else {each.left_out} - {""}
    assert passed == may_lack
    path.write_bytes(whole)
    os.utime(path, ns=(times, times))
    several.write(b"c")
    assert several.values("b") == [b"a", b"b", b"c"]


def test_a_marker_of_one_of_several_roots_is_not_taken_for_a_root_that_stands_alone(several: Replicated) -> None:
    """What was written there would be decided by nobody else."""
    change_entry(several.path / "a/commitlog.json", lambda body: body.pop("replicas"))
    with pytest.raises(CorruptionError, match=r"commitlog.json: replicas is False, expected true if readFeatures"):
        several.log().create_topic("u")


# --- What lies in no entry -------------------------------------------------------------------------------------------


def test_a_note_of_a_copy_without_one_of_its_members_is_no_note(tmp_path: Path) -> None:
    """Notes are hints: one that is not whole is passed over, and its records are read again."""
    source, noted = World(tmp_path / "source"), World(tmp_path / "noted")
    append(source.create(1), batch_of(many(4)))
    make_root(noted.log().root)
    stage_ahead(source.handle(), noted.handle(), [0])
    state = source.handle().newest()[1]
    paths = noted.handle().paths(state.topic_id)
    (note,) = (noted.path / paths.copied).iterdir()
    body = json.loads(note.read_bytes())
    del body["crc"]
    assert copy_staging.noted_pieces(noted.storage(), paths, state) != {}
    for number, each in enumerate(crafted(body)):
        there = copied(noted, tmp_path / f"{number}")
        (there.path / paths.copied / note.name).write_bytes(sealed(each.body))
        assert not each.left_out or copy_staging.noted_pieces(there.storage(), paths, state) == {}, each
        source.log().copy_to(there.log(), ["t"])
        assert there.values() == source.values(), each


def test_a_footer_without_one_of_its_members_is_damage(objects: ObjectWorld) -> None:
    """Of a segment object: it names what partitions have there."""
    path = max(objects.path.rglob("objects/*.segment"))
    whole = path.read_bytes()
    length = decode_trailer(whole[-TRAILER_BYTES:], "").length
    body = json.loads(whole[-TRAILER_BYTES - length : -TRAILER_BYTES])
    for each in crafted(body):
        data = json.dumps(each.body).encode()
        if each.left_out:
            with pytest.raises(CorruptionError, match=r"^o\.segment: "):
                decode_footer(data, "o.segment")
        with suppress(CorruptionError):
            footer = decode_footer(data, "o.segment")
            assert len([footer.of(partition) for partition in (0, 1)]) == 2
