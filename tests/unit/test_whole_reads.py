"""What a settler reads whole, several at a time: inline bytes, and small chunks that it needs more than one share of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from pyspark_commitlog.format.entry import Checked, Entry
from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.topic.read import whole_reads
from pyspark_commitlog.topic.read.unsettled import Source
from pyspark_commitlog.topic.read.whole_reads import WholeReads, plan_reads
from pyspark_commitlog.topic.state.topic_state import INLINE, ChunkRef, Extent

ENTRY = Entry("topic", "append", "", 1, "", "", {})


def shares(name: str, length: int, count: int) -> Iterator[Source]:
    """Yield so many shares of a chunk."""
    for partition in range(count):
        yield Source(ENTRY, Extent(0, partition, 0, 10, 1, 0), ChunkRef(name, length, 0))


def inline(number: int, count: int = 1, length: int = 1) -> Iterator[Source]:
    """Yield so many shares of what is inline in an entry."""
    entry = replace(ENTRY, write_id=f"{number}", inline=Checked(length, 0))
    for partition in range(count):
        yield Source(entry, Extent(INLINE, partition, 0, 10, 1, 0), None)


def planned(sources: list[Source]) -> list[str]:
    """Return what is read whole of them, where nothing is at hand."""
    return list(plan_reads(sources, lambda _: False))


def test_only_small_ones_are_read_whole() -> None:
    large, alone = whole_reads.CHUNK_BYTES, whole_reads.ALONE_BYTES
    sources = [
        *shares("shared", large, 2),
        *shares("large", large + 1, 2),
        *shares("alone", alone, 1),
        *shares("long", alone + 1, 1),
    ]
    assert planned(sources) == ["shared", "alone"]


def test_all_of_them_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_reads, "MOST_BYTES", 250)
    sources = [source for number in range(4) for source in shares(f"{number}", 100, 2)]
    assert planned(sources) == ["0", "1"]
    more = [source for number in range(4) for source in inline(number, 2, 100)]
    assert planned([*sources, *more]) == ["0", "1"]
    assert planned(more) == ["0", "1"]


class Stored:
    """A store of which some chunks, or entries, are gone; it notes what was asked for, and has some entries at hand."""

    def __init__(self, *gone: str, at_hand: str = "") -> None:
        self.gone, self.asked, self._at_hand = set(gone), list[str](), at_hand

    def read(self, path: str, position: int, length: int) -> bytes:
        """Return as many bytes of a chunk."""
        return self._found(path.rpartition("/")[2].removesuffix(".chunk"), length)

    def inline(self, entry: Entry) -> bytes:
        """Return what is inline in an entry."""
        if self.at_hand(entry) is not None:
            return b"here"
        return self._found(entry.write_id, 1)

    def at_hand(self, entry: Entry) -> bytes | None:
        """Return it where it is at hand."""
        return b"here" if entry.write_id in self._at_hand.split() else None

    def forget(self) -> None:
        """Have nothing at hand any more."""
        self._at_hand = ""

    def _found(self, name: str, length: int) -> bytes:
        self.asked.append(name)
        if name in self.gone:
            raise FileNotFoundError(name)
        return name.encode() * length


def reads_of(store: Stored, *partitions: list[Source]) -> Callable[[Source], bytes]:
    """Return what returns the bytes that a source of a run lies in."""
    topic = SimpleNamespace(storage=store, journal=store, paths=partial(TopicPaths, "t"))
    reads = WholeReads(topic, "id", partitions)  # type: ignore[arg-type]

    def read(source: Source) -> bytes:
        if source.chunk is None:
            return reads.inline(source.entry)
        found = reads.chunk(source.chunk)
        assert found is not None
        return found.to_pybytes()

    return read


@pytest.mark.parametrize("kind", ["chunks", "inline"])
def test_those_that_come_next_are_read_at_once(kind: str) -> None:
    sources = [source for number in range(10) for source in sources_of(kind, number)]
    store = Stored()
    read = reads_of(store, sources)
    for number, (count, source) in enumerate(zip([8] * 8 + [10] * 2, sources, strict=True)):
        assert read(source) == b"%d" % number
        assert len(store.asked) == count


def sources_of(kind: str, number: int) -> Iterator[Source]:
    """Yield one source of a kind."""
    return inline(number) if kind == "inline" else shares(f"{number}", 1, 1)


def test_what_is_not_read_whole_is_read_by_those_who_ask() -> None:
    store, (other,) = Stored(), inline(5)
    reads = WholeReads(SimpleNamespace(storage=store, journal=store, paths=partial(TopicPaths, "t")), "id", [])  # type: ignore[arg-type]
    assert reads.chunk(ChunkRef("another", 1, 0)) is None
    assert reads.inline(other.entry) == b"5"


@pytest.mark.parametrize("kind", ["chunks", "inline"])
def test_one_that_is_gone_is_asked_for_in_its_turn(kind: str) -> None:
    """Its partition ends there, and no other one, and not before."""
    sources = [source for number in range(4) for source in sources_of(kind, number)]
    store = Stored("2")
    read = reads_of(store, sources)
    assert [read(sources[0]), read(sources[1])] == [b"0", b"1"]
    with pytest.raises(FileNotFoundError):
        read(sources[2])
    assert read(sources[3]) == b"3"
    assert sorted(store.asked) == ["0", "1", "2", "2", "3"]


def test_what_is_read_beside_one_that_is_gone_is_kept() -> None:
    """Each partition asks for that one again, and for nothing else."""
    entries = [list(inline(number, 3)) for number in range(4)]
    store = Stored("0")
    partitions = [[sources[partition] for sources in entries] for partition in range(3)]
    read = reads_of(store, *partitions)
    for sources in partitions:
        with pytest.raises(FileNotFoundError):
            read(sources[0])
    assert sorted(store.asked) == ["0", "0", "0", "1", "2", "3"]


def test_what_is_inline_is_read_once_for_all_partitions() -> None:
    entries = [list(inline(number, 2)) for number in range(3)]
    store = Stored()
    partitions = [[sources[partition] for sources in entries] for partition in range(2)]
    read = reads_of(store, *partitions)
    assert [read(source) for sources in partitions for source in sources] == [b"0", b"1", b"2"] * 2
    assert sorted(store.asked) == ["0", "1", "2"]


def test_what_is_at_hand_is_not_asked_for() -> None:
    """What this process has written takes no request, and no threads; and one for all partitions once it is forgotten."""
    entries = [list(inline(number, 2)) for number in range(3)]
    store = Stored(at_hand="0 1")
    partitions = [[sources[partition] for sources in entries] for partition in range(2)]
    read = reads_of(store, *partitions)
    assert read(partitions[0][0]) == b"here"
    assert store.asked == []
    store.forget()
    assert [read(partitions[0][1]), read(partitions[0][2])] == [b"1", b"2"]
    assert [read(source) for source in partitions[1]] == [b"0", b"1", b"2"]
    assert sorted(store.asked) == ["0", "1", "2"]


def test_those_that_are_read_at_a_time_are_not_at_hand() -> None:
    """Of many that this process has written and few that others have, those are asked for together."""
    sources = [source for number in range(20) for source in inline(number)]
    store = Stored(at_hand=" ".join(f"{number}" for number in range(20) if number % 4))
    read = reads_of(store, sources)
    assert read(sources[0]) == b"0"
    assert sorted(store.asked) == ["0", "12", "16", "4", "8"]


def test_what_is_at_hand_counts_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_reads, "MOST_BYTES", 250)
    sources = [source for number in range(4) for source in inline(number, 2, 100)]
    assert list(plan_reads(sources, lambda entry: entry.write_id in "02")) == ["0", "1", "2", "3"]
