"""A reader of one topic at one root: what it shows, as it comes, and some of it again."""

from __future__ import annotations

import random
from contextlib import suppress

from pyspark_commitlog.errors import OffsetOutOfRangeError
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.nemesis.history import Overtaken, Read, Shown
from tests.nemesis.playing import Play
from tests.support.records import Record, read_partition

#: Looks of a reader until it opens the topic again, and reads so many offsets at most of what it has read before.
_AGAIN_EVERY, _AGAIN_OFFSETS = 25, 2_000
#: The header that numbers a record without a value.
NUMBERED = "number"


class Reader:
    """Reads a topic at a root; the topic is opened again from time to time."""

    def __init__(self, asked: Play, name: str, chance: random.Random) -> None:
        self.name = name
        self._asked, self._chance, self._recorder = asked, chance, asked.recorders[name]
        self._topic: TopicLog | None = None
        self._ends, self._looks, self._life = dict[int, int](), 0, 0

    def look(self) -> None:
        """Read what is new; after many looks some of what is not, too, and of what is deleted.

        Raises:
            CommitLogError, OSError: it can't be read now.
        """
        again = self._topic is None or self._looks % _AGAIN_EVERY == 0
        life = self._asked.life()
        if self._topic is None or again or life != self._life:  # a handle on a bucket may go by what it saw before
            self._topic, self._life = self._asked.stage.topic(self._asked.root, self.name), life
        stored, state = self._topic.newest()
        if self._asked.life() != life:  # what it shows may be of either: what is read of it is not judged
            return
        root = self._asked.root
        self._recorder.add(Shown(root, stored.sequence, state.log_end, life, state.log_start))
        for partition, (start, end) in enumerate(zip(state.log_start, state.log_end, strict=True)):
            if again:
                self._read_again(self._topic, partition, start, end, life)
            self._read_new(self._topic, partition, start, end)
        self._looks += 1

    def _read_again(self, topic: TopicLog, partition: int, start: int, end: int, life: int) -> None:
        at = self._chance.randrange(start, end) if start < end else end
        if at < end:
            self._read(topic, partition, at, min(end, at + _AGAIN_OFFSETS))
        if start:  # what is deleted nobody gets
            at = self._chance.randrange(start)
            with suppress(OffsetOutOfRangeError):
                read = read_at(self._asked.root, topic, partition, at, min(end, at + _AGAIN_OFFSETS))
                if self._asked.life() == life:  # a root that is set back has it again, for a while
                    self._recorder.add(read)

    def _read_new(self, topic: TopicLog, partition: int, start: int, end: int) -> None:
        at = self._ends.get(partition, 0)
        if at >= end:
            return
        try:
            self._read(topic, partition, at, end)
        except OffsetOutOfRangeError:  # it is behind, or the root that was set back is
            _, state = topic.newest()
            if at >= state.log_start[partition]:
                raise
            self._recorder.add(Overtaken(self._asked.root, partition, at))
            self._ends[partition] = state.log_start[partition]
            return
        self._ends[partition] = end

    def _read(self, topic: TopicLog, partition: int, start: int, end: int) -> None:
        self._recorder.add(read_at(self._asked.root, topic, partition, start, end))


def read_at(root: str, topic: TopicLog, partition: int, start: int, end: int) -> Read:
    """Read a range of a partition at a root."""
    records = read_partition(topic, partition, start, end)
    return Read(root, partition, start, end, tuple((each.offset, text_of(each)) for each in records))


def text_of(record: Record) -> str:
    """Return a record as histories have it: its value; of one with a key `key=value`, or `key=!number` (see `keyed`)."""
    if record.key is None:
        return (record.value or b"").decode()
    number = dict(record.headers or ()).get(NUMBERED)
    return keyed(record.key.decode(), (number or record.value or b"").decode(), deletes=record.value is None)


def keyed(key: str, number: str, *, deletes: bool) -> str:
    """Return how histories have a record with a key, which deletes that or not."""
    return f"{key}={'!' if deletes else ''}{number}"
