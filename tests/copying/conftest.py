"""A root to copy from, and one to copy to: on a local disk, or where nothing can be appended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pyspark_commitlog.copying.copy import Copied
from pyspark_commitlog.testing.faults import Hook
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.objects import ObjectWorld
from tests.support.records import Record, append, batch_of, read_topic
from tests.support.verify import verify
from tests.support.world import CHUNKS, World


@dataclass
class Pair:
    """Two roots under one clock."""

    source: World
    there: World

    def copy(self, *, hook: Hook | None = None, from_hook: Hook | None = None, groups: bool = False) -> Copied:
        """Copy topic t as a process of its own, both roots told to hooks."""
        return self.source.log(from_hook).copy_to(self.there.log(hook), ["t"], groups=groups)

    def put(self, *values: bytes, partition: int = 0) -> None:
        """Commit records to the source, as one commit."""
        append(self.source.handle(), batch_of(list(values), partition=[partition] * len(values)))

    def states(self) -> tuple[TopicState, TopicState]:
        """Return what both ends say of the topic."""
        return self.source.handle().newest()[1], self.there.handle().newest()[1]

    def check(self) -> None:
        """Fail unless both ends have the same records and history, every byte sound."""
        source, there = self.states()
        assert there.lineage == source.lineage
        assert there.log_end == source.log_end
        assert there.log_start == source.log_start
        assert records(self.there.handle()) == records(self.source.handle())
        assert [each.faults for each in self.source.log().compare_with(self.there.log(), ["t"])] == [()]
        verify(self.there.handle())
        settled = self.there.handle().settled(there.topic_id)[1]
        assert settled.damaged == ()
        assert tuple(settled.partition(p).end_offset for p in range(there.partitions)) == there.log_end


def records(topic: TopicLog) -> list[Record]:
    """Return all records of a topic, with all that a reader sees of each."""
    return list(read_topic(topic))


@pytest.fixture(params=["local", "object"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    """Two roots; topic t is at the source."""
    source = World(tmp_path / "source")
    kind = World if request.param == "local" else ObjectWorld
    return Pair(source, kind(tmp_path / "there", source.clock))


@pytest.fixture
def locals_(tmp_path: Path) -> Pair:
    """Two roots on local disks; topic t with two partitions and three commits is at the source."""
    source = World(tmp_path / "source")
    pair = Pair(source, World(tmp_path / "there", source.clock))
    source.create(2, CHUNKS)
    for value in (b"a", b"b", b"c"):
        pair.put(value)
    return pair
