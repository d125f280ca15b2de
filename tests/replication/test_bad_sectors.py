"""A sector under a segment that can't be read (EIO): verify names the file, repair fetches it from another root.

A process that has such a file mapped is killed (SIGBUS), so what looks for damage reads.

1. It lies under the frames, or under an index, which only its settler needs.
2. The other root has one, too, at the same offsets or at others.
3. It lies under an object that partitions share: under the footer, too, which says what it holds.
4. Nobody else has it: that is said, of all else everything is fetched.
"""

from __future__ import annotations

import errno
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from pyspark_commitlog.format.segment_object import TRAILER_BYTES, decode_footer
from pyspark_commitlog.storage.local.local import LocalStorage
from pyspark_commitlog.storage.os_errors import explained
from pyspark_commitlog.topic import topic_tables as topics
from pyspark_commitlog.topic.write.commit import commit
from tests.crash.conftest import fast_path as fast_path
from tests.support.records import batch_of, stage
from tests.support.replicas import CONFIG, Replicated, faults, segment, settle_at

LARGE = Random(0).randbytes(20_000)


class Killed(BaseException):
    """What a SIGBUS is to the process."""


class Sectors:
    """Files of which a sector can't be read, as they are: what takes their places is whole."""

    def __init__(self) -> None:
        self._bad: dict[tuple[Path, int], tuple[int, int]] = {}

    def spoil(self, path: Path, start: int = 0, length: int = 512) -> None:
        """Have bytes of a file be such."""
        self._bad[path, path.stat().st_ino] = start, start + length

    def hit(self, path: Path, start: int, length: int | None) -> bool:
        """Return whether who reads so much of a file meets them."""
        with suppress(FileNotFoundError):
            bad = self._bad.get((path, path.stat().st_ino), (0, 0))
            return bad[0] < (sys.maxsize if length is None else start + length) and start < bad[1]
        return False


@pytest.fixture
def sectors(monkeypatch: pytest.MonkeyPatch) -> Sectors:
    found, read, map_ = Sectors(), LocalStorage.read, LocalStorage.map

    def bad_read(self: LocalStorage, path: str, start: int = 0, length: int | None = None) -> bytes:
        with explained(self._root, f"read {path}"):
            if found.hit(self._root / path, start, length):
                raise OSError(errno.EIO, "injected: a bad sector", path)
        return read(self, path, start, length)

    def bad_map(self: LocalStorage, path: str, start: int, length: int) -> pa.Buffer:
        if not self.can_append:
            return pa.py_buffer(self.read(path, start, length))
        if found.hit(self._root / path, start, length):
            raise Killed
        return map_(self, path, start, length)

    monkeypatch.setattr(LocalStorage, "read", bad_read)
    monkeypatch.setattr(LocalStorage, "map", bad_map)
    return found


@pytest.fixture
def roots(fast_path: Path) -> Replicated:
    return Replicated(fast_path)


def write_to(roots: Replicated, value: bytes, partition: int) -> None:
    topic = roots.topic()
    staged = stage(topic, batch_of([value], partition=[partition]), everywhere=True)
    commit(topic, staged.topic_id, [staged])


def settled(roots: Replicated, at: str) -> list[bytes]:
    """Have roots settle six records, each in a frame of its own; return them."""
    roots.create(config={**CONFIG, "index.interval.bytes": 1, "batch.size": 25_000})
    values = [b"%d" % n + LARGE for n in range(6)]
    for value in values:
        roots.write(value)
        for root in at:
            settle_at(roots, root)
    return values


def frame_at(path: Path, value: bytes) -> int:
    """Return a position inside the frame of a value."""
    return path.read_bytes().index(value) + 9_000


def is_named(roots: Replicated, root: str, bad: Path) -> bool:
    """Return whether `verify` says which file of which root is bad."""
    named = (str(bad.relative_to(roots.path / root)), str(roots.path / root))
    return any(all(name in fault for name in named) for fault in faults(roots, root))


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
def test_a_segment_on_a_bad_sector_is_fetched(roots: Replicated, sectors: Sectors, suffix: str) -> None:
    values = settled(roots, "ab")
    bad = segment(roots, "b").with_suffix(f".{suffix}")
    assert bad.stat().st_size
    sectors.spoil(bad, length=sys.maxsize)
    assert is_named(roots, "b", bad)
    done = roots.log("b").topic("t").repair()
    assert (done.left, done.ranges) == ((), ((0, 0, 6),))
    assert roots.values("b") == values
    assert not faults(roots, "b")
    roots.write(b"next")
    settle_at(roots, "b")
    assert roots.values("b") == [*values, b"next"]


@pytest.mark.parametrize("lost", [0, 3, 5])
def test_frames_beside_a_bad_sector_stay(roots: Replicated, sectors: Sectors, lost: int) -> None:
    values = settled(roots, "ab")
    path = segment(roots, "b")
    sectors.spoil(path, frame_at(path, values[lost]))
    done = roots.log("b").topic("t").repair()
    assert (done.left, done.ranges) == ((), ((0, lost, lost + 1),))
    assert roots.values("b") == values
    assert not faults(roots, "b")


def test_two_roots_with_bad_sectors_make_each_other_whole(roots: Replicated, sectors: Sectors) -> None:
    values = settled(roots, "abc")
    for root, lost in (("a", 1), ("b", 4), ("c", 2)):
        path = segment(roots, root)
        sectors.spoil(path, frame_at(path, values[lost]))
    for root in "bca":  # b asks a first
        assert roots.log(root).topic("t").repair().left == ()
        assert roots.values(root) == values
        assert not faults(roots, root)


def test_what_lies_on_bad_sectors_at_all_roots_is_named(roots: Replicated, sectors: Sectors) -> None:
    values = settled(roots, "abc")
    for root in "abc":
        path = segment(roots, root)
        sectors.spoil(path, frame_at(path, values[2]))
    (left,) = roots.log("b").topic("t").repair().left
    assert "offsets 2 to 2 are damaged" in left
    assert f"{segment(roots, 'b').relative_to(roots.path / 'b')} of {roots.path / 'b'} can't be read" in left


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_chunk_on_a_bad_sector_is_named_while_it_is_needed(
    roots: Replicated, sectors: Sectors, is_settled: bool
) -> None:
    roots.create()
    roots.write(LARGE, everywhere=True)
    if is_settled:
        settle_at(roots, "b")
    (bad,) = (roots.path / "b").glob("topics/t/*/staged/*.chunk")
    sectors.spoil(bad)
    assert is_named(roots, "b", bad) is not is_settled
    assert roots.log("b").topic("t").repair().left == ()
    assert not faults(roots, "b")


def test_what_can_not_be_asked_is_not_taken_for_damaged(roots: Replicated) -> None:
    settled(roots, "ab")

    def no_answer(operation: str, path: str, moment: str) -> None:
        if operation == "read" and path.endswith(".log"):
            raise OSError(errno.ETIMEDOUT, "injected: no answer")

    roots.hooks["b"] = no_answer
    with pytest.raises(OSError, match="no answer"):
        roots.log("b").topic("t").repair()


def in_objects(fast_path: Path) -> tuple[Replicated, Path]:
    """Have `b` settle records of two partitions to one object; return it."""
    roots = Replicated(fast_path, unknown="b")
    roots.create(2, {**CONFIG, "index.interval.bytes": 1})
    for partition in (0, 1, 0, 1):
        write_to(roots, b"%d" % partition + LARGE, partition)
    settle_at(roots, "b")
    topics._footers.clear()  # another process has to read it
    return roots, segment(roots, "b")


@pytest.mark.parametrize("part", ["first log", "second log", "index", "footer"])
def test_an_object_on_a_bad_sector_is_fetched(fast_path: Path, sectors: Sectors, part: str) -> None:
    roots, bad = in_objects(fast_path)
    data = bad.read_bytes()
    at = data.index(b'{"slices"')
    (_, first), (second, _) = decode_footer(data[at:-TRAILER_BYTES], "").positioned()
    starts = {"first log": 100, "second log": second + 100, "index": first.parts[0].length, "footer": at}
    sectors.spoil(bad, starts[part], 4)
    expected = roots.values("a")
    assert is_named(roots, "b", bad)
    assert roots.log("b").topic("t").repair().left == ()
    assert roots.values("b") == expected
    assert not faults(roots, "b")
    roots.log("b").topic("t").maintain()
    assert not faults(roots, "b")


def test_what_shares_an_object_with_what_nobody_has_is_said(fast_path: Path, sectors: Sectors) -> None:
    roots, bad = in_objects(fast_path)
    sectors.spoil(bad, 100, 4)
    for root in "ac":
        settle_at(roots, root)
        path = segment(roots, root)
        sectors.spoil(path, 100, 4)
    assert "offsets 0 to 1 are damaged" in " ".join(roots.log("b").topic("t").repair().left)
