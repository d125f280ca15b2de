"""How many threads a settler takes."""

from __future__ import annotations

import pytest

from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.topic.maintain.settle import _threads
from pyspark_commitlog.topic.read.unsettled import Hole, Source
from pyspark_commitlog.topic.state.topic_state import Extent

MIB = 2**20


@pytest.mark.parametrize(
    ("lengths", "threads"),
    [([], 1), ([4000], 1), ([8 * MIB - 1], 1), ([5 * MIB, 3 * MIB], 2), ([20 * MIB], 3), ([500 * MIB] * 3, 4)],
)
def test_one_more_for_each_8_mib_up_to_four(lengths: list[int], threads: int) -> None:
    entry = Entry("topic", "append", "id", 1, "w", "", {})
    sources = [Source(entry, Extent(0, 0, 0, length, 1, 0), None) for length in lengths]
    assert _threads([*sources, Hole(0, 5, 10**12, "")]) == threads
