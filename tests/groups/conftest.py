"""What the tests of a group's members share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pyspark_commitlog.groups.assignment.assignment import Assignment
from pyspark_commitlog.groups.membership.member import GroupMember
from pyspark_commitlog.groups.state.group_state import Position
from pyspark_commitlog.groups.state.member_config import MemberConfig
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.testing.faults import Hook
from tests.support.records import append, batch_of
from tests.support.world import World

SESSION_MS = 300
BEAT_MS = 100
EAGER = ["range"]
COOPERATIVE = ["cooperative-sticky"]


def places(text: str) -> frozenset[TopicPartition]:
    """Return the partitions that a text such as `t0 t1` names."""
    return frozenset(TopicPartition(each[:-1], int(each[-1])) for each in text.split())


def told(found: frozenset[TopicPartition]) -> str:
    return " ".join(f"{place.topic}{place.partition}" for place in sorted(found))


@dataclass
class Driven:
    """A member, and what its consumer was told."""

    member: GroupMember
    name: str
    log: list[Assignment] = field(default_factory=list)

    def poll(self) -> Assignment | None:
        found = self.member.poll()
        if found is not None:
            self.log.append(found)
        return found

    def commit(self, text: str, offset: int) -> None:
        ids = {topic: topic_id for each in self.log for topic, topic_id in (each.topic_ids or {}).items()}
        self.member.commit([Position(p.topic, ids.get(p.topic, ""), p.partition, offset) for p in places(text)])

    def has(self) -> str:
        return told(self.member.assignment)


@dataclass
class Group:
    """Members of one group under a clock that a test moves."""

    world: World
    members: dict[str, Driven] = field(default_factory=dict)

    def join(self, name: str, topics: Sequence[str] = ("t",), *, hook: Hook | None = None, **more: Any) -> Driven:
        """Let a member begin; it is in the group once all polled."""
        timing = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": BEAT_MS, "initial_rebalance_delay_ms": 20}
        timing |= {key: more.pop(key) for key in list(more) if key.endswith("_ms")}
        more.setdefault("partition_assignment_strategy", EAGER)
        handle = self.world.log(hook).groups.open("g")
        ids, first = count(1), f"{ord(name):08x}"  # in the order of names; each id another one
        handle.storage.new_id = lambda: f"{first}-0000-4000-8000-{len(self.members):04x}{next(ids):08x}"  # type: ignore[method-assign]
        handle.storage.jitter = lambda: 0.5  # type: ignore[method-assign]
        topics = () if "pattern" in more else topics
        driven = Driven(GroupMember(handle, topics, client_id=name, config=MemberConfig(**timing), **more), name)
        self.members[name] = driven
        return driven

    def run(self, *names: str, ms: int = 600, step: int = 10) -> None:
        """Let time pass in which these members poll, all if none is named."""
        for _ in range(ms // step):
            self.world.clock.advance(step)
            for name in names or tuple(self.members):
                self.members[name].poll()

    def has(self) -> dict[str, str]:
        return {name: driven.has() for name, driven in self.members.items()}

    def state(self) -> Any:
        return self.world.log().groups.open("g").newest()

    def offsets(self) -> list[int | None]:
        return self.world.group_offsets()


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """A topic with ten records in each of four partitions, and a group without members."""
    world = World(tmp_path / "root")
    topic = world.create(4)
    append(topic, batch_of([b"x"] * 40, partition=[0, 1, 2, 3] * 10))
    return Group(world)
