"""Manifests in parts: a change costs what it changes, whatever the number of segments (O10)."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.format.paths import ROOT_MARKER, TopicPaths
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.testing.faults import FaultyStorage
from pyspark_commitlog.topic.segments.writer import write_manifest
from pyspark_commitlog.topic.state.leaves import LEAF_SEGMENTS, Leaf, NewLeaf, plan_manifest
from pyspark_commitlog.topic.state.settle_state import Active, Manifest, Sealed, SettledPartition, SettleState
from pyspark_commitlog.topic.topic_log import TopicLog
from tests.support.world import Recorder

ID = "00000000-0000-4000-8000-000000000000"


def segments(count: int, first: int = 0) -> list[Sealed]:
    return [Sealed(n, n + 1, 0, 100, n, 8, 12, n, n, 0) for n in range(first, first + count)]


def planned(sealed: list[Sealed], before: tuple[Leaf, ...] = ()) -> tuple[int, int, int]:
    """Return how many leaves are named again, how many are new, and the segments after them."""
    parts = plan_manifest(sealed, before)
    new = [leaf for leaf in parts.leaves if isinstance(leaf, NewLeaf)]
    return len(parts.leaves) - len(new), len(new), len(parts.last)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, (0, 0, 1)), (256, (0, 0, 256)), (257, (0, 1, 1)), (512, (0, 1, 256)), (513, (0, 2, 1))]
)
def test_a_long_manifest_has_leaves(count: int, expected: tuple[int, int, int]) -> None:
    assert planned(segments(count)) == expected


class Partition:
    """A partition whose manifests are written and read back."""

    def __init__(self, path: Path) -> None:
        self.recorder = Recorder()
        path.mkdir(parents=True, exist_ok=True)
        (path / ROOT_MARKER).touch()
        self.storage = FaultyStorage(LocalStorage(path), self.recorder)  # type: ignore[abstract]
        self.paths = TopicPaths("t", ID)
        self.topic = TopicLog(self.storage, "t")
        self.manifest: Manifest | None = None
        self.storage.make_directory(self.paths.manifests)

    def write(self, sealed: list[Sealed]) -> int:
        """Publish these segments; return how many files that took."""
        before = len(self.recorder.paths("write_once"))
        leaves = self.topic.leaves(ID, self.manifest)
        self.manifest = write_manifest(self.storage, self.paths, 0, 7, sealed, leaves)
        return len(self.recorder.paths("write_once")) - before

    def read(self) -> list[Sealed]:
        """Return them as another process reads them."""
        row = SettledPartition(10**6, Active(IndexState(10**6)), self.manifest)
        return list(TopicLog(LocalStorage(self.storage.url), "t").sealed(SettleState(ID, (0, ""), 1, (row,)), 0))


def test_one_more_segment_costs_as_much_after_ten_thousand_as_after_three_hundred(tmp_path: Path) -> None:
    sizes = {}
    for count in (300, 10_000):
        partition = Partition(tmp_path / str(count))
        partition.write(segments(count))
        files = partition.write(segments(count + 1))
        assert partition.manifest is not None
        sizes[count] = partition.manifest.checked.length
        assert files == 1, "no leaf was written again"
        assert partition.read() == segments(count + 1)
    assert sizes[10_000] < sizes[300] + 10_000


def test_what_random_changes_leave_is_read_back(tmp_path: Path) -> None:
    partition, random, sealed = Partition(tmp_path), Random(7), segments(1500)
    partition.write(sealed)
    for step in range(40):
        start = random.randrange(len(sealed))
        end = min(len(sealed), start + random.choice([1, 3, 40, 300]))
        fresh = [Sealed(sealed[start].base_offset, sealed[end - 1].end_offset, step + 1, 5, step, 0, 0, 9)]
        sealed = [*sealed[:start], *fresh, *sealed[end:], *segments(random.choice([1, 30]), 10_000 * (step + 1))]
        sealed = sealed[random.choice([0, 0, 2]) :]
        partition.write(sealed)
        assert partition.read() == sealed


def test_a_change_in_one_leaf_writes_that_leaf_alone(tmp_path: Path) -> None:
    partition, sealed = Partition(tmp_path), segments(20 * LEAF_SEGMENTS)
    partition.write(sealed)
    sealed[5 * LEAF_SEGMENTS + 3] = Sealed(5 * LEAF_SEGMENTS + 3, 5 * LEAF_SEGMENTS + 4, 9, 5, 1, 0, 0, 9)
    assert partition.write(sealed) == 2, "the leaf and the manifest"
    assert partition.read() == sealed
