"""Operations on a root in a bucket that may be cut off or spoiled anywhere, and the states that are legal afterwards."""

from __future__ import annotations

from typing import ClassVar

from pyspark_commitlog.errors import RootNotFoundError, TopicExistsError
from pyspark_commitlog.log.repair.verify import verify
from tests.crash.scenes import AlterDefaults, CommitChunk, CommitGroup, Create, ResetGroup, Scene
from tests.support.records import append, batch_of, read_partition
from tests.support.world import World

PARTITIONS = 3


def is_whole(world: World) -> bool:
    """Return whether no stored byte of the topic is other than its entries say."""
    return verify(world.handle()).faults == ()


class CreateInBucket(Create):
    """Make a root with a topic."""

    def prepare(self, world: World) -> None:
        """Nothing is there; and a bucket needs no directory."""

    def check(self, world: World) -> None:
        """No root, no topic, or a whole one; then it is made, or is there."""
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
        append(world.handle(), batch_of([b"x", b"y", b"z"], partition=range(3)))
        assert world.values() == [b"x", b"y", b"z"]
        assert is_whole(world)


class Commit(CommitChunk):
    """Stage a chunk and commit it."""

    def check(self, world: World) -> None:
        """All of it or nothing; again with the same id: once."""
        before = [b"a0", b"a1", b"a2"]
        after = [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2", b"c2"]
        assert world.values() in (before, after)
        for _ in range(2):
            self.act(world)
            assert world.values() == after
            assert is_whole(world)
        world.collect_all()
        assert world.values() == after


class CommitInline(Commit):
    """Commit frames that lie in the entry itself."""

    name = "inline"
    config: ClassVar[dict[str, object]] = {**CommitChunk.config, "inline.max.bytes": 65536}


class CommitLarge(Commit):
    """Commit a chunk that takes an upload in parts."""

    name = "large"
    columns: ClassVar[list[int]] = [0]
    config: ClassVar[dict[str, object]] = {**CommitChunk.config, "segment.bytes": 2**27}
    value = bytes(range(256)) * (9 * 4096)

    def act(self, world: World, hook: object = None) -> None:
        """Write 9 MiB."""
        append(world.handle(), batch_of([self.value], partition=[0]), writer=self.writer)


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
    for scene in (CreateInBucket, Commit, CommitInline, Read, AlterDefaults, CommitGroupOnce, ResetGroup)
}
