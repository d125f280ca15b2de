"""A small root on storage without append: what is settled lies in segment objects."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.log.frames import segment_span, walk
from pyspark_commitlog.log.objects.pieces import tail_to_own
from pyspark_commitlog.log.segments.object_writer import ObjectWriter, SliceLimits
from pyspark_commitlog.log.segments.writer import Stamped
from pyspark_commitlog.log.settle_state import Sealed, SettleState, Shared
from pyspark_commitlog.log.topic import TopicLog
from pyspark_commitlog.storage.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage, Hook
from tests.support.world import World


class UnknownMount(LocalStorage):
    """A directory of which nobody knows whether locks hold there."""

    can_append = False


@dataclass
class ObjectWorld(World):
    """A root on such a mount."""

    def storage(self, hook: Hook | None = None) -> LocalStorage | FaultyStorage:
        """Return a door to the root, told to ``hook``."""
        local = UnknownMount(self.path, clock=self.clock)
        return local if hook is None else FaultyStorage(local, hook)  # type: ignore[abstract]

    def settled(self, name: str = "t") -> SettleState:
        """Return the newest settle state, as another process reads it."""
        topic = self.handle(name=name)
        return topic.settled(topic.newest()[1].topic_id)[1]

    def objects(self) -> list[str]:
        """Return the names of all segment objects that are stored."""
        return [path.rpartition("/")[2] for path in self.files(".segment")]


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
