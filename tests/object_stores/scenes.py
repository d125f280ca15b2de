"""Operations on a root in a bucket that may be cut off or spoiled anywhere, and the states that are legal afterwards."""

from __future__ import annotations

from typing import ClassVar

from pyspark_commitlog.topic.damage.verify import verify
from pyspark_commitlog.topic.maintain.settle import settle
from tests.crash.scenes import AlterDefaults, CommitChunk, CommitGroup, Create, ResetGroup, Scene
from tests.support.records import append, batch_of, read_partition, stage
from tests.support.world import CHUNKS, DELAY_MS, RETENTION_MS, World

PARTITIONS = 3
_CONFIG: dict[str, object] = {**CHUNKS, "segment.bytes": 4096, "segment.index.bytes": 480, "compression.type": "none"}


def is_whole(world: World) -> bool:
    """Return whether no stored byte of the topic is other than its entries say."""
    return verify(world.handle()).faults == ()


class CreateInBucket(Create):
    """Make a root with a topic."""

    def prepare(self, world: World) -> None:
        """Nothing is there; and a bucket needs no directory."""

    def check(self, world: World) -> None:
        """No root, no topic, or a whole one; then it is made, or is there."""
        self.make_once(world)
        append(world.handle(), batch_of([b"x", b"y", b"z"], partition=range(3)))
        assert world.values() == [b"x", b"y", b"z"]
        assert is_whole(world)


class Commit(CommitChunk):
    """Stage a chunk and commit it."""

    def check(self, world: World) -> None:
        """All of it or nothing; again with the same id: once."""
        assert world.values() in (self.before, self.after)
        for _ in range(2):
            self.act(world)
            assert world.values() == self.after
            assert is_whole(world)
        world.collect_all()
        assert world.values() == self.after


class CommitInline(Commit):
    """Commit frames that lie in the entry itself."""

    name = "inline"
    config: ClassVar[dict[str, object]] = {**CommitChunk.config, "inline.max.bytes": 65536}


class Read(Scene):
    """Read a topic of several commits."""

    name = "read"

    def prepare(self, world: World) -> None:
        """Four commits to all partitions."""
        super().prepare(world)
        for number in range(3):
            append(world.handle(), batch_of([b"%d" % number * 7000] * PARTITIONS, partition=range(PARTITIONS)))

    def act(self, world: World, hook: object = None) -> None:
        """Read a partition, and compare."""
        found = read_partition(world.handle(), 1)
        assert [record.offset for record in found] == [0, 1, 2, 3]
        assert [record.value for record in found] == [b"a1", *[b"%d" % number * 7000 for number in range(3)]]

    def check(self, world: World) -> None:
        """It can be read again."""
        self.act(world)


class AlterDefaultsInBucket(AlterDefaults):
    """Change the root's defaults; old entries go now and then, as each look for them is a request."""

    def check(self, world: World) -> None:
        """As before, or all of it; then it is done."""
        self.alter_again(world)


class ResetGroupInBucket(ResetGroup):
    """Reset a group."""

    def check(self, world: World) -> None:
        """Before or after it; then it is done."""
        found, generation = world.group_offsets(), world.log().groups.describe("g").generation
        assert (found, generation) in (([4, 4, 4], 0), ([1, 1, 1], 1))
        for _ in range(2):
            self.act(world)
            assert world.group_offsets() == [1, 1, 1]
        assert world.log().groups.verify() == ()


class CommitGroupOnce(CommitGroup):
    """Commit a group's offsets again."""

    def prepare(self, world: World) -> None:
        """Six records in each partition, of which two are committed."""
        super().prepare(world)
        world.log().groups.commit("g", {"t": dict.fromkeys(range(3), 2)})

    def act(self, world: World, hook: object = None) -> None:
        """Commit all three partitions."""
        world.log().groups.commit("g", {"t": dict.fromkeys(range(3), 3)})


#: Those that need no settling.
CORE: dict[str, Scene] = {
    scene.name: scene()
    for scene in (
        CreateInBucket,
        Commit,
        CommitInline,
        Read,
        AlterDefaultsInBucket,
        CommitGroupOnce,
        ResetGroupInBucket,
    )
}


class Maintain(Scene):
    """Settle, merge, sweep and collect."""

    name = "maintain"
    values = tuple(b"%d" % number * 700 for number in range(6))

    def prepare(self, world: World) -> None:
        """Commits of which half are settled, an orphan, and time."""
        topic = world.create(PARTITIONS, _CONFIG)
        for number, value in enumerate(self.values):
            append(topic, batch_of([value] * PARTITIONS, partition=range(PARTITIONS)))
            if number in (1, 3):
                stage(topic, batch_of([b"orphan"]))
                world.maintain()
        world.clock.advance(RETENTION_MS)

    def act(self, world: World, hook: object = None) -> None:
        """Maintain, and once more after the delay."""
        for _ in range(2):
            world.maintain()
            world.clock.advance(DELAY_MS)

    def check(self, world: World) -> None:
        """The same records all the time; in the end no chunk is left, and few entries."""
        for _ in range(3):
            self._check_values(world)
            self.act(world)
        self._check_values(world)
        assert len(world.entries()) <= 3
        assert world.files(".chunk") == []
        append(world.handle(), batch_of([b"next"], partition=[0]))
        world.maintain()
        assert world.values()[len(self.values)] == b"next"

    def _check_values(self, world: World) -> None:
        assert world.values() == [*self.values] * PARTITIONS
        assert is_whole(world)


class Retain(Scene):
    """Delete records, let go of what holds them, and collect it."""

    name = "retain"
    values = tuple(b"%d" % number + b"x" * 1200 for number in range(5))

    def prepare(self, world: World) -> None:
        """Five settled commits."""
        topic = world.create(1, _CONFIG)
        for value in self.values:
            append(topic, batch_of([value]))
            world.maintain()

    def act(self, world: World, hook: object = None) -> None:
        """Keep the last two."""
        log = world.log()
        log.topic("t").delete_records({0: 3})
        for _ in range(3):
            log.topic("t").maintain()
            world.clock.advance(DELAY_MS)

    def check(self, world: World) -> None:
        """All there, or the last two; in the end the last two."""
        assert world.values() in ([*self.values], [*self.values[3:]])
        for _ in range(2):
            self.act(world)
            assert world.values() == [*self.values[3:]]
            assert is_whole(world)


class Compact(Scene):
    """Compact a partition, and collect what was replaced."""

    name = "compact"
    written: ClassVar[list[bytes]] = [b"a1", b"b1", b"a2", b"c1", b"b2", b"z1"]

    def prepare(self, world: World) -> None:
        """Six settled commits; the first letter is the key."""
        topic = world.create(1, {**_CONFIG, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
        for value in self.written:
            append(topic, batch_of([value + b"x" * 1200], key=[value[:1]]))
            settle(topic, topic.newest()[1].topic_id)

    def act(self, world: World, hook: object = None) -> None:
        """Compact in the first round, collect in the others."""
        for _ in range(3):
            world.maintain()
            world.clock.advance(DELAY_MS)

    def check(self, world: World) -> None:
        """Some or all, in order, the last of every key among them; compacting again ends."""
        for _ in range(3):
            found = [(value or b"").rstrip(b"x") for value in world.values()]
            assert found == [value for value in self.written if value in found]
            assert {b"a2", b"c1", b"b2", b"z1"} <= set(found)
            assert is_whole(world)
            self.act(world)
        assert len(world.entries()) <= 3


#: What `maintain` does.
MAINTENANCE: dict[str, Scene] = {scene.name: scene() for scene in (Maintain, Retain, Compact)}
