"""What a copy decides, without a root: pieces, marks, configs, numbers of entries."""

from __future__ import annotations

import pytest

from pyspark_commitlog.copying.decision import Piece, chained, differing, effective, numbered
from pyspark_commitlog.copying.group_offsets import KeptOffset, moves
from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.format import entry as codec
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.format.lineage import Lineage, Verdict, compare
from pyspark_commitlog.groups.state.group_state import GroupState, Position, TopicOffsets
from pyspark_commitlog.testing.faults import on_path
from pyspark_commitlog.topic.state.topic_state import ChunkRef, Extent
from tests.support.world import World


def piece(name: str, start: int, end: int) -> Piece:
    return Piece(ChunkRef(name, 10, 0), Extent(0, 0, 0, 10, end - start, start))


def test_pieces_count_as_far_as_they_follow_one_another() -> None:
    known = {each.extent.base_offset: each for each in (piece("a", 0, 3), piece("b", 3, 5), piece("c", 7, 9))}
    assert [each.chunk.name for each in chained(0, 9, known)] == ["a", "b"]
    assert [each.chunk.name for each in chained(0, 4, known)] == ["a"], "b ends beyond what the source has"
    assert chained(1, 9, known) == []
    assert chained(0, 0, known) == []


def test_chunks_are_named_once() -> None:
    chunks, extents = numbered([piece("a", 0, 1), piece("b", 1, 2), piece("a", 2, 3)])
    assert [chunk.name for chunk in chunks] == ["a", "b"]
    assert [extent.chunk for extent in extents] == [0, 1, 0]


def test_configs_keep_what_holds_at_the_source() -> None:
    config, stored = {"a": "1"}, {"a": "1", "b": "2", "c": "3"}
    resolved = {**stored, "d": "4", "e": "5"}
    assert effective(config, stored, resolved, {"b": "2", "d": "9"}) == {"a": "1", "c": "3", "d": "4"}
    assert effective({}, {}, resolved, {}) == {}
    unset = {"compression.type": "lz4"}
    assert effective({}, {}, unset, {"compression.type": "zstd"}) == {"compression.type": "producer"}
    assert effective({}, unset, unset, {"compression.type": "zstd"}) == unset


def test_configs_of_a_copy_differ_where_they_work_otherwise() -> None:
    assert differing({"segment.ms": "5"}, {}, {"segment.ms": "5"}) == []
    assert differing({"segment.ms": "604800000"}, {}, {}) == [], "as is built in"
    assert differing({"compression.type": "producer"}, {}, {}) == []
    assert differing({"compression.type": "lz4"}, {}, {}) == ["compression.type is lz4, at the source producer"]
    assert differing({}, {"segment.ms": "6"}, {"segment.ms": "5"}) == ["segment.ms is 5, at the source 6"]


def test_groups_move_forward_only() -> None:
    there = GroupState(topics={"id": TopicOffsets("t", (5, -1, 2), (0, 0, 0))})
    positions = [Position("t", "id", partition, 3) for partition in range(4)]
    forward, kept = moves(positions, there)
    assert [at.partition for at in forward] == [1, 2, 3]
    assert kept == [KeptOffset("t", 0, 5, 3)]
    assert moves([Position("t", "id", 0, 5)], there) == ([], [])


def history(count: int, prefix: str = "w") -> list[Lineage]:
    """Return the lineages of a journal's entries."""
    lineages = [Lineage()]
    for number in range(1, count + 1):
        lineages.append(lineages[-1].advanced(f"{prefix}{number}"))
    return lineages


@pytest.mark.parametrize("begins", [1, 3, 17, 40])
def test_marks_on_the_way_contradict_no_mark_of_the_source(begins: int) -> None:
    """R15: entries of a copy between two looks at the source; readers that stopped at any of them go on."""
    source, before = history(300), Lineage()
    seen: list[Lineage] = []
    for look in (60, 61, 90, 300):
        for number in range(max(begins, before.sequence + 1), look):
            before = Lineage.of_copied_entry(number, source[look], before, f"own{number}")
            seen.append(before)
        before = source[look]
        seen.append(before)
        for later in (before, *source[look + 1 :: 37]):
            assert all(compare(position, later) is not Verdict.PARTED for position in seen)
    for position in source[begins:]:
        assert compare(position, source[300]) is not Verdict.PARTED


def test_marks_on_the_way_part_from_another_history() -> None:
    source, other = history(40), history(50, "x")
    way = Lineage.of_copied_entry(30, source[40], Lineage(), "own")
    assert compare(way, other[50]) is Verdict.PARTED


def entry(number: int, leap: int | None) -> bytes:
    return codec.encode(Entry("topic", "copy", "id", number, "w", "", {}, next=leap))


def test_an_entry_names_the_number_of_the_next() -> None:
    decoded = codec.decode(entry(1, 40), where="x", journal="topic", sequence=1)
    assert (decoded.next, decoded.following) == (40, 40)
    plain = codec.decode(entry(1, None), where="x", journal="topic", sequence=1)
    assert (plain.next, plain.following) == (None, 2)


@pytest.mark.parametrize("leap", [0, 5, 4])
def test_an_entry_that_names_itself_or_one_before_is_damaged(leap: int) -> None:
    with pytest.raises(CorruptionError, match="above 5"):
        codec.decode(entry(5, leap), where="x", journal="topic", sequence=5)


def test_a_journal_is_followed_over_the_numbers_that_it_leaves_out(world: World) -> None:
    """A reader that has seen the first entry finds those after the gap; a writer that has, puts there."""
    source = World(world.path.parent / "source", world.clock)
    source.create()
    for _ in range(20):
        source.log().topic("t").alter({"retention.ms": 5})
        source.log().topic("t").alter({"retention.ms": -1})
    reader = world.handle()
    seen: list[int] = []

    def look() -> None:
        stored = reader.journal.newest()
        assert stored is not None
        seen.append(stored.sequence)

    hook = on_path("t/journal", "put_if_absent", look, when="after", times=2)
    source.log().copy_to(world.log(hook))
    assert seen == [1, 41]
    assert world.entries() == [1, 41]
    assert world.handle().newest()[1].created == 40, "nothing is looked for in between"


def test_a_reader_that_has_seen_what_was_before_a_copy_finds_its_newest_entry(world: World) -> None:
    """From a deleted topic's last entry over the first of the copy, which leaves out numbers."""
    world.create()
    world.log().topic("t").delete()
    reader = world.handle()
    before = reader.journal.newest()
    source = World(world.path.parent / "source", world.clock)
    source.create()
    for days in range(20):
        source.log().topic("t").alter({"retention.ms": days})
    source.log().copy_to(world.log())
    newest = reader.journal.newest()
    assert before is not None
    assert newest is not None
    assert (before.sequence, newest.sequence) == (2, 21)
