"""Roots that belong together, under one clock, each of which can be taken away or made to fail."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog import Consumer
from pyspark_commitlog.api.commit_log import CommitLog
from pyspark_commitlog.errors import StorageFullError
from pyspark_commitlog.groups.state.group_log import GroupLog
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.model import silent
from pyspark_commitlog.replication.leader.decided_log import DecidedLog
from pyspark_commitlog.replication.protocol.entry_fields import state_of
from pyspark_commitlog.replication.protocol.replica_state import ReplicaState
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage, Hook
from pyspark_commitlog.testing.manual_clock import ManualClock
from pyspark_commitlog.topic.compaction import compact as compaction
from pyspark_commitlog.topic.compaction.compact import compact
from pyspark_commitlog.topic.damage.salvage import segments_of
from pyspark_commitlog.topic.damage.verify import verify
from pyspark_commitlog.topic.maintain.settle import settle
from pyspark_commitlog.topic.segments.frames import check_whole, segment_span, walk
from pyspark_commitlog.topic.segments.rewrite import rows_of
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import Committed, commit
from pyspark_commitlog.topic.write.writers import ProducerBatch, Transaction
from tests.support.records import batch_of, read_topic, stage
from tests.support.world import CHUNKS

LAG_MS = 30_000
CONFIG = {**CHUNKS, "replica.lag.time.max.ms": LAG_MS}
METADATA = "m"
#: Of a topic that each round of maintenance compacts once its segments are a second old.
COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": 0,
    "min.cleanable.dirty.ratio": 0,
    "segment.ms": 1000,
}


class BoundedClock(ManualClock):
    """A clock that fails a test where it waits for longer than any lag: what waits for ever hangs nobody."""

    def __init__(self) -> None:
        super().__init__()
        self._until_ms = self.now_ms() + 10 * LAG_MS

    def sleep(self, seconds: float) -> None:
        """Move on instead of waiting, as long as a test may wait."""
        super().sleep(seconds)
        assert self.now_ms() < self._until_ms, "it waits for ever"


@dataclass
class Replicated:
    """Roots `a`, `b`, … with data, and `m` that decides. `log` and `topic` stand for one process each.

    `hooks` has what is called for each operation at a root, by its name (`testing.faults`). `unknown` are roots
    whose mounts are not known to append. `metadata` names those that decide.
    """

    path: Path
    names: str = "abc"
    clock: ManualClock = field(default_factory=ManualClock)
    hooks: dict[str, Hook] = field(default_factory=dict)
    unknown: str = ""
    metadata: str = METADATA

    def create(
        self, partitions: int = 1, config: Mapping[str, object] = CONFIG, name: str = "t", **declared: Any
    ) -> TopicLog:
        """Make the roots, and a topic, `declared` with a schema; return a handle on it at its leader."""
        if not (self.path / self.metadata[0]).exists():
            open_at = [str(self.path / each) for each in self.names]
            CommitLog.create(open_at, [str(self.path / each) for each in self.metadata])
        self.log().create_topic(name, partitions, config, **declared)
        return self.topic(name=name)

    def storage(self, root: str = "a") -> Storage:
        """Return a door to a root, as a new process opens it."""
        return _Rooted(self, root)

    def log(self, root: str = "a") -> CommitLog:
        """Return another process' log, opened at a root."""
        return CommitLog.on(self.storage(root))

    def topic(self, root: str = "a", name: str = "t") -> TopicLog:
        """Return another process' handle, to write with: at the leader, whatever root was opened."""
        return TopicLog(self.storage(root), name).route(writing=True)

    def at(self, root: str, name: str = "t") -> TopicLog:
        """Return another process' handle, to read with at this very root."""
        return TopicLog(self.storage(root), name)

    def decided_log(self, root: str = "", name: str = "t") -> DecidedLog:
        """Return what another process decides with."""
        root = root or next(each for each in self.metadata if (self.path / each).exists())
        return self.at(root, name).journal.decided_log()

    def state(self, name: str = "t") -> ReplicaState:
        """Return what the newest decided entry says of replicas."""
        return state_of(self.decided_log(name=name).places.newest().entry)

    def id_of(self, root: str) -> str:
        """Return a root's id."""
        listed = self.decided_log().places.roots.listed()
        return next(each.id for each in (*listed.data, *listed.metadata) if Path(each.url).name == root)

    def named(self, *ids: str) -> str:
        """Return roots by their names."""
        return "".join(name for name in self.names if self.id_of(name) in ids)

    def leader(self) -> str:
        """Return the name of the leader."""
        return self.named(self.state().leader)

    def isr(self) -> str:
        """Return the names of those that are in sync."""
        return self.named(*self.state().isr)

    def write(
        self,
        *values: bytes,
        writer: Transaction | ProducerBatch | None = None,
        acks_all: bool = True,
        hw_later: bool = False,
        topic: TopicLog | None = None,
        everywhere: bool = False,
    ) -> Committed:
        """Write records as another process does: stage at the leader, or at all that are in sync, and commit."""
        topic = topic or self.topic()
        staged = stage(topic, batch_of(list(values)), everywhere=everywhere)
        return commit(topic, staged.topic_id, [staged], writer, acks_all=acks_all, hw_later=hw_later)

    def values(self, root: str) -> list[bytes | None]:
        """Return what a fresh process reads at a root."""
        return [record.value for record in read_topic(self.at(root))]

    def take_away(self, root: str) -> None:
        """Take a root away, as a disk that is pulled out."""
        (self.path / root).rename(self.path / f"away-{root}")

    def give_back(self, root: str) -> None:
        """Give a root back as it was."""
        (self.path / f"away-{root}").rename(self.path / root)


def no_device(operation: str, path: str, moment: str) -> None:
    """A hook: every operation fails."""
    raise OSError(errno.EIO, "injected: the device is gone")


def takes_no_entry(operation: str, path: str, moment: str) -> None:
    """A hook: the disk is full for entries."""
    if operation == "put_if_absent" and "journal" in path:
        raise OSError(errno.ENOSPC, "injected")


def takes_no_chunk(operation: str, path: str, moment: str) -> None:
    """A hook: the disk is full for chunks."""
    if operation == "create" and "/staged/" in path:
        raise StorageFullError("injected: no space is left")


def no_groups(operation: str, path: str, moment: str) -> None:
    """A hook: every operation on a group fails."""
    if path.startswith("groups/"):
        no_device(operation, path, moment)


def once_at(operation: str, part: str, act: Callable[[], object], when: str = "before") -> Hook:
    """Return a hook that acts at the first such operation on such a path."""
    done = []

    def hook(found: str, path: str, moment: str) -> None:
        if not done and (found, moment) == (operation, when) and part in path:
            done.append(True)
            act()

    return hook


def settle_at(roots: Replicated, root: str) -> None:
    """Settle at a root."""
    topic = roots.at(root)
    settle(topic, topic.newest()[1].topic_id)


def compact_at(roots: Replicated, root: str) -> None:
    """Compact at a root, and nothing else."""
    topic = roots.at(root)
    compact(topic, topic.newest()[1].topic_id)


def cut_off_after_a_piece(roots: Replicated, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a round of compaction without append be killed after its first piece was published."""
    publish, published = compaction.publish_piece, list[int]()

    def once(topic: TopicLog, topic_id: str, partition: int, *args: Any) -> bool:
        if published:
            raise KeyboardInterrupt
        published.append(partition)
        return publish(topic, topic_id, partition, *args)

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "publish_piece", once)
        with pytest.raises(KeyboardInterrupt):
            compact_at(roots, root)
    topic = roots.at(root)
    assert topic.settled(topic.newest()[1].topic_id)[1].partition(0).cleaned == 0


def faults(roots: Replicated, root: str) -> tuple[str, ...]:
    """Return what `verify` finds damaged at a root."""
    return verify(roots.at(root), silent).faults


def segment(roots: Replicated, root: str) -> Path:
    """Return a file with settled records: a partition's first segment, or a segment object."""
    files = [*(roots.path / root).glob("topics/t/*/0/*.log"), *(roots.path / root).glob("topics/t/*/objects/*")]
    return max(files, key=lambda path: path.stat().st_size)


def settled_rows(topic: TopicLog, partition: int, topic_id: str = "") -> set[int]:
    """Return the offsets of the records that lie in a partition's segments, read or not."""
    topic_id = topic_id or topic.newest()[1].topic_id
    found: set[int] = set()
    for segment, _ in segments_of(topic, topic.settled(topic_id)[1], partition):
        span = segment_span(topic.paths(topic_id), partition, segment)
        for located in walk(topic.storage, span):
            found.update(rows_of(located.frame, check_whole(located, span)[0], ())[1].tolist())
    return found


def void_here(roots: Replicated, root: str) -> set[int]:
    """Return the void offsets of partition 0 of which a root has records in its segments."""
    topic = roots.at(root)
    voids = [offset for void in topic.newest()[1].voids_of(0) for offset in range(void.start, void.end)]
    return settled_rows(topic, 0) & set(voids)


def elect(roots: Replicated, leader: str) -> None:
    """Have a root elected, as another process does."""
    roots.decided_log().elections.elect(roots.id_of(leader), why="test")


def group(roots: Replicated, at: str = "a") -> GroupLog:
    """Return another process' handle on group `g`."""
    return roots.log(at).root.group("g")


def commit_offset(roots: Replicated, offset: int, handle: GroupLog | None = None) -> None:
    """Commit an offset of `t-0` for group `g`."""
    handle = handle or group(roots)
    topic = handle.topic_state("t")
    handle.advance([Position("t", topic.topic_id, 0, offset, topic.lineage)])


def committed_offset(roots: Replicated, at: str = "a") -> int | None:
    """Return what a process finds that asks where the group is."""
    handle = group(roots, at)
    return handle.newest().offsets(handle.topic_state("t").topic_id).get(0)


def poll(consumer: Consumer, until: int) -> list[bytes | None]:
    """Return the values that a consumer polls, once there are so many."""
    values: list[bytes | None] = []
    for _ in range(200):
        values += [record.value for record in consumer.poll(0.1)]
        if len(values) >= until:
            break
    return values


class _Rooted(FaultyStorage):  # type: ignore[misc]
    """A root of `Replicated`; the others are opened under the same clock, with their own hooks."""

    def __init__(self, of: Replicated, root: str) -> None:
        def hook(operation: str, path: str, moment: str) -> None:
            if root in of.hooks:
                of.hooks[root](operation, path, moment)

        local = LocalStorage(of.path / root, clock=of.clock)
        if root in of.unknown:
            local._can_append = False
        super().__init__(local, hook)
        self._of = of

    def peer(self, url: str) -> Storage:
        """Return another root as this process sees it."""
        return _Rooted(self._of, Path(url).name)
