"""How many objects a topic has, and how often its bytes are written: the plans of merges, run for a month (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from pyspark_commitlog.format.entry import Checked
from pyspark_commitlog.topic.settle.merge import replaced_in_tail
from pyspark_commitlog.topic.settle.merge_plan import FAN_IN, LATE, plan_own, plan_tail
from pyspark_commitlog.topic.settle.pieces import replaced
from pyspark_commitlog.topic.state.settle_state import Place, Sealed, Shared

MIB, GB = 2**20, 10**9
SEGMENT = 2**30
#: What a commit merges at most, by the defaults of the configs.
COMMIT = 4 * 16 * MIB
MONTH = 30 * 24 * 3600


@dataclass
class Topic:
    """A topic as its plans see it: sizes, no bytes. `most` as `merge` takes it."""

    partitions: int
    most: int | None = None
    damaged: frozenset[str] = frozenset()
    tail: tuple[Shared, ...] = ()
    logs: dict[str, Mapping[int, int]] = field(default_factory=dict)
    own: dict[int, tuple[Sealed, ...]] = field(default_factory=dict)
    committed: int = 0
    written: int = 0
    made: int = 0
    history: list[int] = field(default_factory=list)

    @property
    def objects(self) -> int:
        return len(self.tail) + sum(map(len, self.own.values()))

    def settle(self, sizes: Mapping[int, int]) -> None:
        """Commit and settle so many bytes of each partition, then merge what is due."""
        size = sum(sizes.values())
        self.committed, self.written = self.committed + size, self.written + size
        self.tail = (*self.tail, self._shared(sizes, 0))
        own = self.own.copy()
        self.merge_tail()
        if self.own != own:
            self.merge_own()
        self.history.append(self.objects)

    def merge_tail(self) -> None:
        while self._merge_tail():
            pass

    def merge_own(self) -> None:
        while self._merge_own():
            pass

    def _shared(self, sizes: Mapping[int, int], tier: int) -> Shared:
        self.made += 1
        self.written += sum(sizes.values())
        shared = Shared(f"object-{self.made}", tier, sum(sizes.values()), Checked(0, 0))
        self.logs[shared.name] = sizes
        return shared

    def _piece(self, partition: int, size: int) -> Sealed:
        self.made += 1
        self.written += size
        return Sealed(0, 0, 0, size, 0, 0, 0, 0, 0, 0, Place(f"object-{self.made}", 0))

    def _merge_tail(self) -> bool:
        plans = plan_tail(self.tail, lambda shared: self.logs[shared.name], SEGMENT, self.damaged)
        allowed = (each for each in plans if self.most is None or each.size_bytes <= self.most or each.late)
        plan = next(allowed, None)
        if plan is None:
            return False
        sums = dict.fromkeys(range(self.partitions), 0)
        for shared in plan.objects:
            for partition, size in self.logs.pop(shared.name).items():
                sums[partition] += size
        made = [] if plan.split else [self._shared(sums, plan.tier)]
        tail = replaced_in_tail(self.tail, plan.objects, made)
        assert tail is not None
        self.tail = tail
        if plan.split:
            for partition, size in sums.items():
                self.own[partition] = (*self.own.get(partition, ()), self._piece(partition, size))
        return True

    def _merge_own(self) -> bool:
        for partition, pieces in self.own.items():
            found = plan_own(pieces, SEGMENT)
            size = sum(piece.length for piece in found)
            if found and (self.most is None or size <= self.most):
                after = replaced(pieces, found, [self._piece(partition, size)])
                assert after is not None
                self.own[partition] = after
                return True
        return False


def run(
    partitions: int,
    commits: int,
    commit_bytes: int,
    entries: int,
    *,
    most: int | None,
    spread: float = 0.5,
    damaged: frozenset[str] = frozenset(),
) -> Topic:
    """Commit so often, settled each so many entries; partitions and settles differ by `spread`."""
    topic, chance = Topic(partitions, most, damaged), Random(partitions)
    share = commit_bytes * entries / partitions
    for _ in range(commits // entries):
        busy = chance.uniform(1 - spread, 1 + spread)
        topic.settle({p: int(share * busy * chance.uniform(1 - spread, 1 + spread)) for p in range(partitions)})
    return topic


@pytest.mark.parametrize("entries", [60, 64])
def test_a_month_of_a_commit_a_second_leaves_few_objects(entries: int) -> None:
    """At most 6 objects a GB, by the mean of the last three days, and 6 bytes written for each; the commit is one."""
    topic = run(10, MONTH, 10_000, entries, most=None)
    days = topic.history[-3 * 24 * 3600 // entries :]
    assert sum(days) / len(days) / (topic.committed / GB) <= 6
    assert max(days) / (topic.committed / GB) <= 7, "at any time"
    assert topic.written <= 6 * topic.committed


@pytest.mark.parametrize("partitions", [1, 10, 100])
@pytest.mark.parametrize("most", [pytest.param(None, id="maintained"), pytest.param(COMMIT, id="by commits alone")])
def test_five_thousand_small_commits_leave_twenty_objects_at_most(partitions: int, most: int | None) -> None:
    topic = run(partitions, 5_000, 1_500, 64, most=most)
    assert max(topic.history) <= 20
    assert topic.written <= 4 * topic.committed


@pytest.mark.parametrize("partitions", [10, 100])
def test_without_maintenance_the_tail_has_a_bound(partitions: int) -> None:
    """Of a month of a commit a second: each settle entry repeats the tail."""
    topic = run(partitions, MONTH, 10_000, 60, most=COMMIT)
    tiers = Counter(shared.tier for shared in topic.tail)
    assert max(tiers.values()) < LATE + FAN_IN
    assert len(tiers) <= 5
    topic.most = None
    topic.merge_tail()
    topic.merge_own()
    assert max(Counter(shared.tier for shared in topic.tail).values()) < FAN_IN, "maintain merges the rest"


@pytest.mark.parametrize(("most", "objects"), [(None, 40), (COMMIT, 120)])
def test_beside_a_damaged_object_the_tail_is_short_after_a_month(most: int | None, objects: int) -> None:
    """Nothing after it becomes own objects, all that time."""
    topic = run(10, MONTH, 10_000, 60, most=most, damaged=frozenset({"object-1"}))
    assert (topic.tail[0].name, topic.own) == ("object-1", {})
    assert len(topic.tail) <= objects
    assert topic.written <= 6 * topic.committed


def test_sizes_that_differ_by_far_are_merged_all_the_same() -> None:
    topic = run(10, MONTH // 4, 100_000, 60, most=None, spread=0.99)
    assert topic.objects / (topic.committed / GB) <= 6
    assert topic.written <= 6 * topic.committed
