"""Offsets of consumer groups go along, forward only, and none is beyond what was copied."""

from __future__ import annotations

from pyspark_commitlog import Consumer
from pyspark_commitlog.copying.copy import copy_topics
from pyspark_commitlog.copying.group_offsets import CopiedGroup, KeptOffset
from pyspark_commitlog.testing.faults import on_path
from tests.copying.conftest import Pair
from tests.support.consumers import DEFAULTS, drain
from tests.support.records import append, batch_of
from tests.support.world import once


def commit(pair: Pair, offset: int, *, partition: int = 0, metadata: str = "") -> None:
    pair.source.log().groups.commit("g", {"t": {partition: offset}}, metadata=metadata)


def test_a_group_goes_on_where_it_was(pair: Pair) -> None:
    pair.source.create(2)
    pair.put(b"a", b"b", b"c")
    commit(pair, 2, metadata="why")
    assert pair.copy(groups=True).groups == (CopiedGroup("g", 1),)
    assert pair.there.group_offsets() == [2, None]
    assert pair.there.log().groups.describe("g").metadata == {"t": "why"}
    pair.put(b"d")
    commit(pair, 4)
    assert pair.copy(groups=True).groups == (CopiedGroup("g", 1),)
    assert pair.there.group_offsets() == [4, None]
    assert pair.copy(groups=True).groups == (CopiedGroup("g", 0),)


def test_without_groups_none_are_copied(pair: Pair) -> None:
    pair.source.create()
    pair.put(b"a")
    commit(pair, 1)
    assert pair.copy().groups == ()
    assert pair.there.group_offsets() == []


def test_a_group_that_is_further_at_the_copy_stays(pair: Pair) -> None:
    pair.source.create()
    pair.put(b"a", b"b", b"c")
    commit(pair, 1)
    pair.copy(groups=True)
    pair.there.log().groups.commit("g", {"t": {0: 3}})
    assert pair.copy(groups=True).groups == (CopiedGroup("g", 0, (KeptOffset("t", 0, 3, 1),)),)
    assert pair.there.group_offsets() == [3]


def test_what_a_group_commits_while_it_is_copied_comes_with_the_next_copy(locals_: Pair) -> None:
    """Offsets are read before the topics: else one would lie beyond what was copied, and be refused."""

    def further() -> None:
        locals_.put(b"more", b"and more")
        locals_.source.log().groups.commit("g", {"t": {0: 5}})

    commit(locals_, 3)
    locals_.copy(groups=True, hook=on_path("t/journal", "put_if_absent", once(further), when="after"))
    assert locals_.there.group_offsets() == [3, None]
    locals_.copy(groups=True)
    assert locals_.there.group_offsets() == [5, None]


def test_a_consumer_of_the_group_goes_on_at_the_copy_once_it_is_switched(locals_: Pair) -> None:
    source, there = str(locals_.source.path), str(locals_.there.path)
    with Consumer(source, "t", **{**DEFAULTS, "group_id": "g"}) as consumer:
        assert [record.value for record in drain(consumer)] == [b"a", b"b", b"c"]
        consumer.commit()
    copy_topics(source, there, ["t"], groups=True)
    append(locals_.there.handle(), batch_of([b"d"]))
    with Consumer(there, "t", **{**DEFAULTS, "group_id": "g"}) as consumer:
        assert [record.value for record in drain(consumer)] == [b"d"]
