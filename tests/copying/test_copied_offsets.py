"""Offsets of consumer groups go along, forward only, and none is beyond what was copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_commitlog import Consumer
from pyspark_commitlog.copying.group_offsets import CopiedGroup, KeptOffset
from pyspark_commitlog.errors import ConflictError, CorruptionError, OutcomeUnknownError, StorageUnreadableError
from pyspark_commitlog.testing.faults import on_path
from tests.copying.conftest import Pair
from tests.support.consumers import DEFAULTS, drain
from tests.support.records import append, batch_of
from tests.support.restores import Copy
from tests.support.world import failing, once, raising


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
    locals_.source.log().copy_to(there, ["t"], groups=True)
    append(locals_.there.handle(), batch_of([b"d"]))
    with Consumer(there, "t", **{**DEFAULTS, "group_id": "g"}) as consumer:
        assert [record.value for record in drain(consumer)] == [b"d"]


def other_group(pair: Pair) -> None:
    """Have one more group, named after `g`, at offset 1 of another topic."""
    pair.source.create(name="u")
    append(pair.source.handle(name="u"), batch_of([b"u"]))
    pair.source.log().groups.commit("h", {"u": {0: 1}})


def test_offsets_of_a_topic_that_was_deleted_and_made_again_are_left_out(locals_: Pair) -> None:
    """The group's row is of a topic that is gone, under the name of one that is there: no other group waits for it."""
    commit(locals_, 3)
    other_group(locals_)
    locals_.source.log().topic("t").delete()
    locals_.source.create(2)
    locals_.put(b"new")
    copied = locals_.source.log().copy_to(locals_.there.log(), groups=True)
    assert copied.groups == (CopiedGroup("h", 1),)
    assert locals_.there.group_offsets() == []


def test_offsets_of_before_a_restore_are_cut_back(locals_: Pair, tmp_path: Path) -> None:
    """The group is idle: its offset is that of a history that is gone."""
    older = Copy(locals_.source.path, tmp_path / "aside")
    locals_.put(b"gone")
    commit(locals_, 4)
    older.one_topic()
    other_group(locals_)
    assert locals_.source.log().copy_to(locals_.there.log(), groups=True).groups == (
        CopiedGroup("g", 1), CopiedGroup("h", 1),
    )  # fmt: skip
    assert locals_.there.group_offsets() == [3, None]


def test_a_group_that_can_not_be_copied_stops_no_other(locals_: Pair) -> None:
    commit(locals_, 1)
    other_group(locals_)
    broken = on_path("groups/g/", "put_if_absent", failing("g is broken"), times=99)
    with pytest.raises(OutcomeUnknownError, match="g is broken"):
        locals_.source.log().copy_to(locals_.there.log(broken), groups=True)
    assert locals_.there.group_offsets("h") == [1]
    (entry,) = (locals_.source.path / "groups/g/journal").iterdir()
    entry.write_bytes(b"{}")
    locals_.source.log().groups.commit("h", {"t": {0: 1}})
    with pytest.raises(CorruptionError, match="groups/g/journal"):
        locals_.source.log().copy_to(locals_.there.log(), groups=True)
    assert locals_.there.log().groups.describe("h").partitions[0].topic == "t"


def test_a_group_that_may_not_be_read_stops_no_other(locals_: Pair) -> None:
    commit(locals_, 1)
    other_group(locals_)
    denied = StorageUnreadableError("groups/g: permission denied")
    hidden = on_path("groups/g/", "names", raising(denied), times=99)
    source = locals_.source.log(hidden)
    assert source.groups.list() == ("g", "h")
    assert source.groups.unnamed() == ()
    with pytest.raises(StorageUnreadableError, match="permission denied"):
        source.copy_to(locals_.there.log(), groups=True)
    assert locals_.there.group_offsets("h") == [1]


def test_a_topic_that_is_damaged_stops_neither_groups_nor_topics(locals_: Pair) -> None:
    commit(locals_, 1)
    other_group(locals_)
    newest = max((locals_.source.path / "topics/t/journal").iterdir())
    newest.write_bytes(b"{}")
    with pytest.raises(CorruptionError, match="topics/t/journal"):
        locals_.source.log().copy_to(locals_.there.log(), groups=True)
    assert locals_.there.log().topics() == ["u"]
    assert locals_.there.group_offsets("h") == [1]


def test_an_offset_that_is_reset_meanwhile_does_not_count_as_copied(locals_: Pair) -> None:
    commit(locals_, 1)
    locals_.copy(groups=True)
    commit(locals_, 2)
    reset = once(lambda: locals_.there.log().groups.reset("g", offset=0, dry_run=False))
    hook = on_path("groups/g/", "put_if_absent", reset)
    assert locals_.copy(groups=True, hook=hook).groups == (CopiedGroup("g", 0),)
    assert locals_.there.group_offsets() == [0, 0]


def test_groups_of_topics_that_were_copied_go_along_where_another_topic_is_refused(locals_: Pair) -> None:
    other_group(locals_)
    locals_.copy()
    append(locals_.there.handle(), batch_of([b"own"]))
    commit(locals_, 3)
    with pytest.raises(ConflictError, match="has been written to") as refused:
        locals_.source.log().copy_to(locals_.there.log(), groups=True)
    assert refused.value.__notes__ == ["copied all the same: topics 'u'; offsets of groups 'h'"]
    assert locals_.there.group_offsets("h") == [1]
    assert locals_.there.group_offsets("g") == [], "its topic was not copied"
    with pytest.raises(ConflictError) as refused:
        locals_.copy()
    assert not hasattr(refused.value, "__notes__"), "nothing was copied"
