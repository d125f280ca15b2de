"""The checksum of a commit's records: as FORMAT.md defines it, whatever the order, and different for what differs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from pyspark_commitlog.format.columns.untyped import HEADERS, SCHEMA, TIMESTAMP
from pyspark_commitlog.topic.write import checksum as module
from pyspark_commitlog.topic.write.checksum import added, checksum
from tests.support.hashes import ALL, factor, folded, mixed, of_bytes


@dataclass(frozen=True)
class One:
    """A record; `at` in microseconds, None where no timestamp was given."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    at: int | None = None


def of_record(one: One) -> int:
    """As FORMAT.md says."""
    found = of_bytes(one.key) + of_bytes(one.value) * factor(33)
    if one.headers is not None:
        pairs = (of_bytes(key.encode()) + of_bytes(value) * factor(35) for key, value in one.headers)
        listed = sum(mixed(pair & ALL) * factor(2**33 + number) for number, pair in enumerate(pairs))
        found += (listed + (len(one.headers) + 1) * factor(34)) * factor(36)
    if one.at is not None:
        found += folded(one.at.to_bytes(8, "little", signed=True)) * factor(37) + factor(38)
    return mixed(found & ALL)


def batch_of(records: Sequence[One]) -> tuple[pa.RecordBatch, pa.Array]:
    """Return the records as a stager has them: with timestamps everywhere, and those that were given."""
    lists = [None if r.headers is None else [{"key": k, "value": v} for k, v in r.headers] for r in records]
    arrays = [
        pa.array([r.key for r in records], pa.binary()),
        pa.array([r.value for r in records], pa.binary()),
        pa.array(lists, HEADERS),
        pa.array([r.at or 17 for r in records], TIMESTAMP),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), pa.array([r.at for r in records], TIMESTAMP)


def of(*records: One) -> int:
    """Return the checksum of the records as one batch."""
    return checksum(*batch_of(records))


@pytest.fixture(params=[module._FEW, 0], ids=["few", "many"])
def any_number(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in both ways: as few records are summed up, and as many are."""
    monkeypatch.setattr(module, "_FEW", request.param)


_BYTES = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.builds(lambda data, times: data * times, st.binary(min_size=1, max_size=40), st.integers(1, 40)),
)
_PAIRS = st.lists(st.tuples(st.text(max_size=9), _BYTES), max_size=4).map(tuple)
_RECORDS = st.lists(
    st.builds(One, _BYTES, _BYTES, st.none() | _PAIRS, st.none() | st.integers(1, 2**60)), min_size=1, max_size=30
)


@settings(deadline=None)
@given(_RECORDS, st.integers(0, 29), st.sampled_from([0, module._FEW]), st.sampled_from([2**14, module._AT_A_TIME]))
def test_it_is_what_the_format_says_in_any_order_and_any_pieces(
    records: list[One], cut: int, few: int, at_a_time: int
) -> None:
    """Also of slices, whose buffers hold other rows too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_FEW", few)
        patched.setattr(module, "_AT_A_TIME", at_a_time)
        expected = sum(map(of_record, records)) & ALL
        batch, times = batch_of(records)
        assert checksum(batch, times) == expected
        assert of(*reversed(records)) == expected
        cut = min(cut, len(records))
        pieces = [(batch.slice(0, cut), times.slice(0, cut)), (batch.slice(cut), times.slice(cut))]
        assert added(*(checksum(*piece) for piece in pieces if piece[0].num_rows)) == expected


_ROW = 8 * module._WORDS.size
_BLOCK = 8 * module.BLOCK


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param(range(700), id="many"),
        pytest.param([0], id="empty"),
        pytest.param([_BLOCK - 1, _BLOCK, _BLOCK + 1], id="a block"),
        pytest.param([0, _BLOCK, *([1] * 40)], id="one block among short ones"),
        pytest.param([3, _BLOCK + 1, *([1] * 40)], id="two blocks among short ones"),
        pytest.param([_ROW - 1, _ROW, _ROW - 9], id="a row, few"),
        pytest.param([_ROW - n for n in range(40)], id="a row, many"),
        pytest.param([_ROW + 1, 0, 5 * _ROW + 77, *([_ROW] * 40)], id="longer than a row"),
        pytest.param([module._AT_A_TIME + 11, 4], id="more than at a time"),
    ],
)
def test_values_of_any_lengths_are_summed_as_the_format_says(lengths: Sequence[int]) -> None:
    rng = np.random.default_rng(1)
    records = [One(None if n % 5 == 0 else b"%d" % n, rng.bytes(length)) for n, length in enumerate(lengths)]
    assert of(*records) == sum(map(of_record, records)) & ALL
    swapped = [replace(one, key=one.value, value=one.key) for one in records]
    assert of(*swapped) == sum(map(of_record, swapped)) & ALL != of(*records)


@pytest.mark.usefixtures("any_number")
def test_the_rest_of_a_value_is_not_taken_for_zeros() -> None:
    """What is added to its last word is: its length tells it apart."""
    assert len({of(One(None, b"ab" + bytes(count))) for count in range(20)}) == 20
    assert len({of(One(bytes(left), bytes(right))) for left in range(20) for right in range(20)}) == 400


_BASE = One(b"key", b"value" * 30, (("a", b"1"), ("b", b"2")), 1_700_000_000_000_000)


@pytest.mark.usefixtures("any_number")
@pytest.mark.parametrize(
    "other",
    [
        replace(_BASE, key=None),
        replace(_BASE, key=b""),
        replace(_BASE, key=b"key\0"),
        replace(_BASE, value=None),
        replace(_BASE, value=b""),
        replace(_BASE, value=b"value" * 15 + b"Value" + b"value" * 14),
        replace(_BASE, headers=None),
        replace(_BASE, headers=()),
        replace(_BASE, headers=(("b", b"2"), ("a", b"1"))),
        replace(_BASE, headers=(("a", b"1"), ("b", None))),
        replace(_BASE, headers=(("a", b"1"), ("b", b""))),
        replace(_BASE, at=None),
        replace(_BASE, at=1_700_000_000_000_001),
        replace(_BASE, key=_BASE.value, value=_BASE.key),
    ],
)
def test_what_differs_somewhere_is_told_apart(other: One) -> None:
    assert of(_BASE) != of(other)


@pytest.mark.usefixtures("any_number")
def test_null_and_empty_differ_in_every_place() -> None:
    found = {of(One(key, value)) for key in (None, b"", b"\0") for value in (None, b"", b"\0")}
    assert len(found) == 9
    assert of(One(None, None, None)) != of(One(None, None, ()))
    beside = One(b"k", b"v", ())  # in a column that is null in part
    assert len({of(beside, One(key, value)) for key in (None, b"", b"\0") for value in (None, b"", b"\0")}) == 9
    assert of(beside, One(b"", b"", None)) != of(beside, One(b"", b"", ()))


@pytest.mark.usefixtures("any_number")
def test_a_flip_of_any_two_bits_is_noticed() -> None:
    """The highest bits of two words too: their products with odd factors cancel, but for the fold."""
    value = bytes(range(48))
    flips = [0, 7, 63, 64, 127, 191, 200, 255, 319, 383]
    found = {of(One(None, value))}
    for first in flips:
        for second in flips:
            number = int.from_bytes(value, "little") ^ 1 << first ^ (1 << second if second != first else 0)
            found.add(of(One(None, number.to_bytes(48, "little"))))
    assert len(found) == 1 + len(flips) * (len(flips) + 1) // 2


@pytest.mark.usefixtures("any_number")
def test_two_flips_are_told_from_all_other_two() -> None:
    """Also those in the same places of both halves of two words, which a fold by half a word would mix up."""
    value = int.from_bytes(bytes(range(7, 23)), "little")
    pairs = [1 << first | 1 << second for second in range(128) for first in range(second)]
    found = {of(One(None, (value ^ pair).to_bytes(16, "little"))) for pair in pairs}
    assert len(found) == len(pairs)


@pytest.mark.usefixtures("any_number")
def test_numbers_that_come_in_pairs_are_told_apart() -> None:
    """The signs of two of them, each there twice: both halves of a word change alike."""
    found = {of(One(None, struct.pack("<4f", x, x, y, y))) for x in (1.5, -1.5) for y in (2.5, -2.5)}
    assert len(found) == 4


@pytest.mark.usefixtures("any_number")
def test_records_that_exchange_a_field_are_told_apart() -> None:
    left = of(One(b"a", b"1"), One(b"b", b"2"))
    assert left != of(One(b"a", b"2"), One(b"b", b"1"))
    values = [b"%08d-----same-----%08d" % pair for pair in ((1, 2), (3, 4), (1, 4), (3, 2))]
    assert of(One(None, values[0]), One(None, values[1])) != of(One(None, values[2]), One(None, values[3]))
    assert of(One(None, b"abcdefgh12345678")) != of(One(None, b"12345678abcdefgh"))


@pytest.mark.usefixtures("any_number")
def test_bytes_under_a_null_do_not_count() -> None:
    """Arrow allows them; readers never see them."""
    offsets = pa.py_buffer(np.array([0, 12, 15], np.int32))
    hidden = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\2"), offsets, pa.py_buffer(b"hidden bytesabc")])
    plain, times = batch_of([One(None, None), One(None, b"abc")])
    assert hidden.to_pylist() == [None, b"abc"]
    assert checksum(plain.set_column(1, SCHEMA.field(1), hidden), times) == checksum(plain, times)
