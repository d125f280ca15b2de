"""A small root on storage without append: what is settled lies in segment objects."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage, Hook
from pyspark_commitlog.topic.segments.frames import segment_span, walk
from pyspark_commitlog.topic.segments.growing import Stamped
from pyspark_commitlog.topic.segments.object_writer import ObjectWriter, SliceLimits
from pyspark_commitlog.topic.settle.pieces import tail_to_own
from pyspark_commitlog.topic.state.settle_change import Change, named_by
from pyspark_commitlog.topic.state.settle_state import Sealed, SettleState, Shared
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.world import DELAY_MS, World

#: After so long something is older than the delay, whose clock counts seconds.
LATER_MS = DELAY_MS + 1001


class UnknownMount(LocalStorage):
    """A directory of which nobody knows whether locks hold there."""

    can_append = False


@dataclass
class ObjectWorld(World):
    """A root on such a mount."""

    def storage(self, hook: Hook | None = None) -> LocalStorage | FaultyStorage:
        """Return a door to the root, told to `hook`."""
        local = UnknownMount(self.path, clock=self.clock)
        return local if hook is None else FaultyStorage(local, hook)  # type: ignore[abstract]

    def settled(self, name: str = "t") -> SettleState:
        """Return the newest settle state, as another process reads it."""
        topic = self.handle(name=name)
        return topic.settled(topic.newest()[1].topic_id)[1]

    def objects(self) -> list[str]:
        """Return the names of all segment objects that are stored."""
        return [path.rpartition("/")[2] for path in self.files(".segment")]

    def flip(self, name: str) -> None:
        """Flip a bit in the first frame of an object."""
        (path,) = self.files(name)
        data = bytearray((self.path / path).read_bytes())
        data[100] ^= 1
        (self.path / path).write_bytes(data)

    def collect_all(self, name: str = "t") -> None:
        """Settle, wait for the delay, collect."""
        self.maintain(name)
        self.clock.advance(LATER_MS)
        self.maintain(name)

    def idle(self, topic: TopicLog, entries: int = 1) -> None:
        """Put settle entries that change nothing, as another process."""
        other = self.handle(name=topic.name)
        for _ in range(entries):
            assert other.change(topic_id(topic), lambda base, before: Change(before)) is not None

    def numbers(self, topic: TopicLog) -> list[int]:
        """Return the numbers in the settle journal."""
        return self.handle(name=topic.name).settle_journal(topic_id(topic)).sequences()

    def missing(self, name: str = "t") -> set[str]:
        """Return what a settle entry names that is linked from the newest down, and is not there (property S5)."""
        topic = self.handle(name=name)
        identifier = topic.newest()[1].topic_id
        journal, missing, wanted = topic.settle_journal(identifier), set[str](), ""
        for number in reversed(journal.sequences()):
            entry = journal.read(number).entry
            if wanted and entry.write_id != wanted:
                break
            missing |= {path for path in everything(topic, topic.settle_state(entry)) if not self.has(topic, path)}
            wanted = entry.prev
        return missing

    def has(self, topic: TopicLog, path: str) -> bool:
        """Return whether a file is there, by its path below the topic id's directory."""
        return (self.path / topic.paths(topic_id(topic)).home / path).exists()

    def not_named(self, name: str = "t") -> set[str]:
        """Return the objects and manifests that are there and the newest settle entry does not name (property S9)."""
        topic = self.handle(name=name)
        home = topic.paths(topic_id(topic)).home
        files = {path.removeprefix(f"{home}/") for path in self.files() if ".tmp-" not in path}
        there = {path for path in files if path.startswith(("objects/", "manifests/"))}
        return there - everything(topic, self.settled(name))


def everything(topic: TopicLog, state: SettleState) -> set[str]:
    """Return the objects and manifests that a state names, those of partitions too."""
    named = named_by(state)
    for partition, row in enumerate(state.partitions):
        named |= {f"manifests/{leaf.name}" for leaf in topic.leaves(state.topic_id, row.manifest)}
        for segment in topic.own_segments(state, partition).every():
            assert segment.place is not None
            named.add(f"objects/{segment.place.object}")
    return named


def topic_id(topic: TopicLog) -> str:
    """Return the current incarnation."""
    return topic.newest()[1].topic_id


def own(topic: TopicLog, partition: int = 0) -> list[Sealed]:
    """Return the own pieces of a partition, as published."""
    return list(topic.own_segments(topic.settled(topic_id(topic))[1], partition).every())


def copied(topic: TopicLog, state: SettleState, partition: int, pieces: list[Sealed]) -> list[Sealed]:
    """Return one piece of the frames of some, in a new object."""
    paths = topic.paths(state.topic_id)
    sequence = topic.settled(state.topic_id)[0].sequence
    writer = ObjectWriter(topic.storage, paths, sequence, SliceLimits(2**30, 2**20, 4096))
    into = writer.slice(partition, pieces[0].base_offset)
    for each in pieces:
        for located in walk(topic.storage, segment_span(paths, partition, each)):
            frame = located.frame
            into.append(
                Stamped(
                    (frame.buffer,), frame.length, frame.base_offset, frame.last_offset, frame.max_timestamp,
                    frame.base_timestamp,
                )
            )  # fmt: skip
    into.finish()
    written = writer.finish(tier=0)
    assert written is not None
    return [written.sealed()[partition]]


def split(topic: TopicLog, number: int) -> list[Shared]:
    """Make the first objects of the tail own pieces, by an entry; return them."""
    _, state = topic.settled(topic_id(topic))
    objects, new, every = state.tail[:number], dict[int, list[Sealed]](), range(len(state.partitions))
    for partition in every:
        slices = topic.sealed(state, partition)[len(own(topic, partition)) :]
        new[partition] = copied(topic, state, partition, list(slices[:number]))
    starts = [0] * len(every)
    assert topic.change(state.topic_id, lambda base, now: tail_to_own(topic, base, now, objects, new, starts))
    return list(objects)
