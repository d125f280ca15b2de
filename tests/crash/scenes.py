"""Operations that may be cut off anywhere, and the states that are legal afterwards."""

from __future__ import annotations

import copy
import shutil
from abc import ABC, abstractmethod
from itertools import count
from pathlib import Path
from typing import ClassVar
from unittest import mock

from pyspark_commitlog.errors import (
    ConflictError,
    CorruptionError,
    GroupResetError,
    RootNotFoundError,
    StagedExpiredError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.collect.collect import collect, sweep
from pyspark_commitlog.topic.maintain.check_indexes import recover
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.writers import Transaction
from tests.support.records import append, batch_of, stage
from tests.support.verify import verify
from tests.support.world import CHUNKS, DELAY_MS, RETENTION_MS, World

_CONFIG: dict[str, object] = {**CHUNKS, "segment.bytes": 2048, "segment.index.bytes": 480, "compression.type": "none"}
_WRITER = Transaction("w", 7)


class Scene(ABC):
    """One operation."""

    name: ClassVar[str]
    config: ClassVar[dict[str, object]] = _CONFIG

    def prepare(self, world: World) -> None:
        """Make what the operation finds."""
        topic = world.create(3, self.config)
        append(topic, batch_of([b"a0", b"a1", b"a2"], partition=range(3)))

    @abstractmethod
    def act(self, world: World, hook: Hook | None = None) -> None:
        """Run the operation, as a process of its own."""

    @abstractmethod
    def check(self, world: World) -> None:
        """Check that a fresh process finds a legal state, and that the operation can be run again."""


class Create(Scene):
    """Make a root with a topic."""

    name = "create"

    def prepare(self, world: World) -> None:
        """Nothing is there."""
        world.path.mkdir()

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Create the topic."""
        world.log(hook).create_topic("t", 3, _CONFIG)

    def check(self, world: World) -> None:
        """No root, no topic, or a whole one; then it is made, or is there."""
        self.make_once(world)
        assert world.log().topic("t").describe().config["segment.bytes"] == "2048"
        append(world.handle(), batch_of([b"x", b"y", b"z"], partition=range(3)))
        world.maintain()
        assert world.values() == [b"x", b"y", b"z"]
        assert verify(world.handle()) == 3

    def make_once(self, world: World) -> None:
        """Create the topic, or be refused because it is there."""
        try:
            found = world.log().topics()
        except RootNotFoundError:
            found = []
        assert found in ([], ["t"])
        try:
            self.act(world)
            assert found == []
        except TopicExistsError:
            assert found == ["t"]


class CommitChunk(Scene):
    """Stage a chunk and commit it."""

    name = "commit"
    columns: ClassVar[list[int]] = [0, 1, 2, 2]
    before: ClassVar[list[bytes]] = [b"a0", b"a1", b"a2"]
    after: ClassVar[list[bytes]] = [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2", b"c2"]

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Write four records into three partitions."""
        topic = world.handle(hook)
        append(topic, batch_of([b"b0", b"b1", b"b2", b"c2"], partition=self.columns), writer=_WRITER)

    def check(self, world: World) -> None:
        """All of it or nothing; again with the same id: once."""
        assert world.values() in (self.before, self.after)
        for _ in range(2):
            self.act(world)
            assert world.values() == self.after
        world.collect_all()
        assert world.values() == self.after
        assert verify(world.handle()) == 7


class CommitInline(CommitChunk):
    """Commit frames that lie in the entry itself."""

    name = "inline"

    def prepare(self, world: World) -> None:
        """A topic that takes small writes inline."""
        topic = world.create(3, {**_CONFIG, "inline.max.bytes": 65536})
        append(topic, batch_of([b"a0", b"a1", b"a2"], partition=range(3)))


class Settle(Scene):
    """Move commits into segments that roll."""

    name = "settle"

    def prepare(self, world: World) -> None:
        """One settled commit and three that are due."""
        super().prepare(world)
        world.maintain()
        topic = world.handle()
        for number in range(3):
            append(topic, batch_of([b"%d" % number * 700] * 2, partition=[0, 1]))

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Settle."""
        topic = world.handle(hook)
        settle(topic, topic.newest()[1].topic_id)

    def check(self, world: World) -> None:
        """The same records before, meanwhile and after."""
        numbers = [b"%d" % number * 700 for number in range(3)]
        expected = [b"a0", *numbers, b"a1", *numbers, b"a2"]
        assert world.values() == expected
        assert verify(world.handle()) in (3, 6, 9)
        self.act(world)
        assert verify(world.handle()) == 9
        assert len(world.files("/0/")) >= 6, "it rolled"
        assert world.values() == expected
        append(world.handle(), batch_of([b"next"], partition=[0]))
        world.collect_all()
        assert world.values() == [b"a0", *numbers, b"next", b"a1", *numbers, b"a2"]
        assert verify(world.handle()) == 10


class SettlePreallocated(Settle):
    """The same with disk reserved for the active segments."""

    name = "settle-preallocated"
    config: ClassVar[dict[str, object]] = {**_CONFIG, "preallocate": True}


class SettleSideBySide(Settle):
    """The same with a thread for each partition."""

    name = "settle-side-by-side"

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Settle as where each partition has much."""
        with mock.patch("pyspark_commitlog.topic.maintain.settle._THREAD_BYTES", 1):
            super().act(world, hook)


class Collect(Settle):
    """Delete what is settled."""

    name = "collect"

    def prepare(self, world: World) -> None:
        """All is settled, and the delay over."""
        super().prepare(world)
        for _ in range(2):
            world.maintain()
            append(world.handle(), batch_of([b"more"], partition=[2]))
        world.clock.advance(DELAY_MS)

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Collect."""
        topic = world.handle(hook)
        collect(topic, topic.newest()[1].topic_id)

    def check(self, world: World) -> None:
        """The same records; entries without a hole; in the end nothing is left that could go."""
        expected = world.values()
        assert len(expected) == 11
        left = world.entries()
        assert left == list(range(left[0], left[-1] + 1))
        self.act(world)
        assert world.values() == expected
        for _ in range(2):
            world.collect_all()
        assert len(world.entries()) == 2
        assert len(world.files("/settle/0")) == 2
        assert world.values() == expected
        assert verify(world.handle()) == 11


class Sweep(Scene):
    """Delete orphans."""

    name = "sweep"

    def prepare(self, world: World) -> None:
        """Two orphans, a committed chunk, and time."""
        super().prepare(world)
        stage(world.handle(), batch_of([b"orphan"]))
        stage(world.handle(), batch_of([b"late"]))
        append(world.handle(), batch_of([b"b"], partition=[0]))
        world.clock.advance(RETENTION_MS)

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Sweep."""
        topic = world.handle(hook)
        sweep(topic, topic.newest()[1].topic_id)

    def check(self, world: World) -> None:
        """What is committed is there; an orphan is either committed by its driver, and readable, or refused."""
        expected = [b"a0", b"b", b"a1", b"a2"]
        assert world.values() == expected
        topic = world.handle()
        late = stage(topic, batch_of([b"in time"], partition=[2]))
        self.act(world)
        self.act(world)
        assert len(world.files(".chunk")) == 3
        commit(topic, late.topic_id, [late])
        assert world.values() == [*expected, b"in time"]


class SweepThenCommit(Sweep):
    """Delete orphans; then the driver of one wakes up."""

    name = "sweep-commit"

    def prepare(self, world: World) -> None:
        """An orphan whose driver sleeps."""
        super().prepare(world)
        staged = stage(world.handle(), batch_of([b"driver"], partition=[2]))
        append(world.handle(), batch_of([b"c"], partition=[0]))
        world.clock.advance(RETENTION_MS)
        self.staged = staged

    def check(self, world: World) -> None:
        """Refused or committed; never committed without its chunk."""
        expected = [b"a0", b"b", b"c", b"a1", b"a2"]
        assert world.values() == expected
        topic = world.handle()
        try:
            commit(topic, self.staged.topic_id, [self.staged])
            assert topic.newest()[1].staged_floor == 0
            expected = [*expected, b"driver"]
        except StagedExpiredError:
            assert topic.newest()[1].staged_floor > 0
        assert world.values() == expected
        self.act(world)
        assert world.values() == expected


class Retain(Scene):
    """Delete records, let go of their segments, and of the files after the delay."""

    name = "retain"

    def prepare(self, world: World) -> None:
        """Four sealed segments and an active one."""
        topic = world.create(1, _CONFIG)
        topic_id = topic.newest()[1].topic_id
        for number in range(5):
            append(topic, batch_of([b"%d" % number + b"x" * 1200]))
            settle(topic, topic_id)

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Keep the last two."""
        log = world.log(hook)
        log.topic("t").delete_records({0: 3})
        for _ in range(3):
            log.topic("t").maintain()
            world.clock.advance(DELAY_MS)

    def check(self, world: World) -> None:
        """All there or the last two; in the end the last two, and no file of the others."""
        found = [int((value or b"").rstrip(b"x")) for value in world.values()]
        assert found in ([0, 1, 2, 3, 4], [3, 4])
        self.act(world)
        assert [int((value or b"").rstrip(b"x")) for value in world.values()] == [3, 4]
        assert [path.rsplit("/", 1)[1] for path in world.files(".log")] == [f"{3:020d}.log", f"{4:020d}.log"]
        append(world.handle(), batch_of([b"5"]))
        world.maintain()
        assert verify(world.handle()) == 3


class Compact(Scene):
    """Compact a partition, and remove the replaced files after the delay."""

    name = "compact"
    written: ClassVar[list[bytes]] = [b"a1", b"b1", b"a2", b"c1", b"z1"]

    def prepare(self, world: World) -> None:
        """Four sealed segments and an active one; the first letter is the key."""
        topic = world.create(1, {**_CONFIG, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
        for value in self.written:
            append(topic, batch_of([value + b"x" * 1200], key=[value[:1]]))
            settle(topic, topic.newest()[1].topic_id)

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Compact in the first round, collect in the others."""
        log = world.log(hook)
        for _ in range(3):
            log.topic("t").maintain()
            world.clock.advance(DELAY_MS)

    def check(self, world: World) -> None:
        """All, or the last of every key; in the end those, and no file of the others."""
        last = self.written[1:]
        assert [(value or b"").rstrip(b"x") for value in world.values()] in (self.written, last)
        for _ in range(2):
            self.act(world)
        assert [(value or b"").rstrip(b"x") for value in world.values()] == last
        topic = world.handle()
        topic_id = topic.newest()[1].topic_id
        row = topic.settled(topic_id)[1].partition(0)
        named = {segment.stem for segment in (*topic.sealed(topic.settled(topic_id)[1], 0), row.active)}
        assert {path.rsplit("/", 1)[1].removesuffix(".log") for path in world.files(".log")} == named
        verify(world.handle())


class VoidSegments(Scene):
    """Give up a record of a sealed segment, one of the active one, and a chunk."""

    name = "void-segments"

    def prepare(self, world: World) -> None:
        """A sealed segment, an active one, and a chunk that is not settled, with damage in each."""
        topic = world.create(1, {**_CONFIG, "batch.size": 1024, "segment.bytes": 5000})
        for value in (b"a", b"b", b"c"):
            append(topic, batch_of([value + b"x" * 1200]), batch_of([value * 2 + b"x" * 1200]))
            settle(topic, topic.newest()[1].topic_id)
        append(topic, batch_of([b"lost"]))
        first, *_, last = sorted(path for path in world.files("/0/") if path.endswith(".log"))
        chunk = max(world.files(".chunk"))
        for path in (first, last, chunk):
            data = bytearray((world.path / path).read_bytes())
            data[300] ^= 1
            (world.path / path).write_bytes(data)
        append(topic, batch_of([b"end"]))

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Give up what can't be read."""
        world.log(hook).topic("t").void()

    def check(self, world: World) -> None:
        """What can be read is there, at its offset; the rest is an error, or given up."""
        try:
            told = [(value or b"").rstrip(b"x") for value in world.values()]
            assert told == [b"aa", b"b", b"bb", b"cc", b"end"]
        except CorruptionError:
            pass
        self.act(world)
        for _ in range(3):
            assert [(value or b"").rstrip(b"x") for value in world.values()] == [b"aa", b"b", b"bb", b"cc", b"end"]
            world.collect_all()
        verify(world.handle())


class AlterDefaults(Scene):
    """Change the root's defaults."""

    name = "defaults"

    def prepare(self, world: World) -> None:
        """Some were set, several times."""
        super().prepare(world)
        for number in range(3):
            world.log().config.alter({"log.segment.bytes": 4096 + number})

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Set two more, take one back."""
        world.log(hook).config.alter({"log.segment.bytes": None, "log.roll.hours": 2, "settle.entries": 1})

    def check(self, world: World) -> None:
        """As before, or all of it; then it is done, and no entry is left that could go."""
        self.alter_again(world)
        world.log().config.alter({"log.roll.ms": 5})
        assert len([path for path in world.files(root="config") if ".tmp-" not in path]) == 2
        append(world.handle(), batch_of([b"more"], partition=[0]))
        assert world.log().topic("t").describe().config["segment.ms"] == "5"

    def alter_again(self, world: World) -> None:
        """As before, or all of it; then it is done."""
        after = {"log.roll.hours": "2", "settle.entries": "1"}
        assert world.log().config.get() in ({"log.segment.bytes": "4098"}, after)
        self.act(world)
        assert world.log().config.get() == after


class Recover(Scene):
    """Rebuild indexes, of other lengths than published."""

    name = "recover"

    def prepare(self, world: World) -> None:
        """Sealed segments and an active one with no index left; index.interval.bytes has changed."""
        topic = world.create(1, {**_CONFIG, "segment.bytes": 3000, "batch.size": 1024})
        for number in range(9):
            append(topic, batch_of([b"%d" % number + b"x" * 500]))
        settle(topic, topic.newest()[1].topic_id)
        for path in world.files("index"):
            (world.path / path).unlink()
        world.log().topic("t").alter({"index.interval.bytes": 0})

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Rebuild."""
        topic = world.handle(hook)
        recover(topic, topic.newest()[1].topic_id)

    def check(self, world: World) -> None:
        """The same records all the time; in the end every index is as it must be."""
        expected = [b"%d" % number + b"x" * 500 for number in range(9)]
        assert world.values() == expected
        self.act(world)
        assert verify(world.handle()) == 9
        append(world.handle(), batch_of([b"next"]))
        world.collect_all()
        assert world.values() == [*expected, b"next"]
        assert verify(world.handle()) == 10


class Void(Scene):
    """Give up a chunk that is lost, and settle."""

    name = "void"

    def prepare(self, world: World) -> None:
        """The second of three chunks is gone."""
        super().prepare(world)
        topic = world.handle()
        before = set(world.files(".chunk"))
        append(topic, batch_of([b"b1"], partition=[1]))
        (lost,) = set(world.files(".chunk")) - before
        append(topic, batch_of([b"c1"], partition=[1]))
        (world.path / lost).unlink()

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Void; settle."""
        world.log(hook).topic("t").void()
        topic = world.handle(hook)
        settle(topic, topic.newest()[1].topic_id)

    def check(self, world: World) -> None:
        """Voided or not; in the end it is, and settled."""
        if world.handle().newest()[1].voids:
            assert world.values() == [b"a0", b"a1", b"c1", b"a2"]
        self.act(world)
        assert world.values() == [b"a0", b"a1", b"c1", b"a2"]
        assert verify(world.handle()) == 5
        world.collect_all()
        assert world.values() == [b"a0", b"a1", b"c1", b"a2"]


class Delete(Scene):
    """Delete a topic and remove its files."""

    name = "delete"

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Delete, and maintain after the delay."""
        world.log(hook).topic("t").delete()
        world.clock.advance(DELAY_MS)
        world.log(hook).topic("t").maintain()

    def check(self, world: World) -> None:
        """There whole, or gone; in the end gone, and the name is free."""
        world.clock.advance(DELAY_MS)
        try:
            assert world.values() == [b"a0", b"a1", b"a2"]
            assert world.log().topics() == ["t"]
            self.act(world)
        except UnknownTopicError:
            assert world.log().topics() == []
        world.maintain()
        assert world.files(".chunk") == []
        world.create(1)
        append(world.handle(), batch_of([b"new"]))
        assert world.values() == [b"new"]


class CommitGroup(Scene):
    """Commit a group's offsets, for the first time and again."""

    name = "group-commit"

    def prepare(self, world: World) -> None:
        """Six records in each partition."""
        topic = world.create(3, self.config)
        append(topic, batch_of([b"x"] * 18, partition=[0, 1, 2] * 6))

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Commit all three partitions, several times."""
        groups = world.log(hook).groups
        for offset in (1, 2, 3):
            groups.commit("g", {"t": dict.fromkeys(range(3), offset)})

    def check(self, world: World) -> None:
        """One of the commits, or none; then all of them, and another's goes on top."""
        found = world.group_offsets()
        assert found in ([], [1, 1, 1], [2, 2, 2], [3, 3, 3])
        self.act(world)
        assert world.group_offsets() == [3, 3, 3]
        world.log().groups.commit("g", {"t": {1: 6}})
        assert world.group_offsets() == [3, 6, 3]
        assert world.log().groups.verify() == ()


class ResetGroup(CommitGroup):
    """Reset a group, and collect its old entries."""

    name = "group-reset"

    def prepare(self, world: World) -> None:
        """A group with a history, and time."""
        super().prepare(world)
        for offset in range(5):
            world.log().groups.commit("g", {"t": dict.fromkeys(range(3), offset)})
            world.clock.advance(DELAY_MS)

    def act(self, world: World, hook: Hook | None = None) -> None:
        """Back to the second record."""
        world.log(hook).groups.reset("g", offset=1, dry_run=False)

    def check(self, world: World) -> None:
        """Before or after it; who followed before is fenced if it landed. Then it is done, and old entries are gone."""
        found, generation = world.group_offsets(), world.log().groups.describe("g").generation
        assert (found, generation) in (([4, 4, 4], 0), ([1, 1, 1], 1))
        try:
            world.log().groups.commit("g", {"t": {0: 6}}, generation=0)
            assert generation == 0
        except GroupResetError:
            assert generation == 1
        self.act(world)
        assert world.group_offsets() == [1, 1, 1]
        world.clock.advance(DELAY_MS)
        self.act(world)
        assert len([path for path in world.files(root="groups") if ".tmp-" not in path]) == 2


class Prepared:
    """A scene that is prepared once, and copied for each step at which its operation is cut off.

    Args:
        name: of the scene.
        path: an empty directory.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._scene, self._world, self._copies = copy.copy(SCENES[name]), World(path / "before"), count()
        self._scene.prepare(self._world)

    def copy(self) -> tuple[Scene, World]:
        """Return the scene and a copy of its world, times included."""
        world = World(self._world.path.with_name(str(next(self._copies))))
        shutil.copytree(self._world.path, world.path)
        world.clock.advance(self._world.clock.now_ms() - world.clock.now_ms())
        return copy.copy(self._scene), world


SCENES: dict[str, Scene] = {
    scene.name: scene()
    for scene in (
        Create,
        CommitChunk,
        CommitInline,
        Settle,
        SettlePreallocated,
        SettleSideBySide,
        Collect,
        Sweep,
        SweepThenCommit,
        Retain,
        Recover,
        Void,
        VoidSegments,
        Compact,
        AlterDefaults,
        CommitGroup,
        ResetGroup,
        Delete,
    )
}
#: Errors that are bugs when an operation is run on a storage that fails.
NEVER = (ConflictError, CorruptionError)
