"""Lineages against brute force: two histories as lists of write ids."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pytest
from hypothesis import given, settings, strategies as st

from pyspark_commitlog.format.lineage import NO_LINEAGE, REACH, Lineage, Verdict, common, compare, marked_sequences

#: How many entries two histories have in common, and how many each has behind that.
LENGTHS = st.tuples(st.integers(0, 150), st.integers(0, 150), st.integers(0, 150))


def grown(lineage: Lineage, name: str, count: int) -> Lineage:
    """Return the lineage of a journal that has so many more entries."""
    for number in range(count):
        lineage = lineage.advanced(f"{name} {number}")
    return lineage


@settings(deadline=None)
@given(LENGTHS, st.booleans())
def test_what_is_said_of_two_histories_holds(lengths: tuple[int, int, int], as_position: bool) -> None:
    """PARTED is never said of one history, SAME never of two; what is common is."""
    shared, mine_more, theirs_more = lengths
    start = grown(NO_LINEAGE, "shared", shared)
    mine, theirs = grown(start, "mine", mine_more), grown(start, "theirs", theirs_more)
    if mine.sequence == 0:
        return
    seen = Lineage.of_position(mine.position) if as_position else mine
    assert seen is not None
    verdict = compare(seen, theirs)
    assert common(seen, theirs) <= shared
    if mine_more == 0:
        assert verdict is not Verdict.PARTED
    else:
        assert verdict is not Verdict.SAME
    if theirs.sequence < mine.sequence:
        assert verdict is Verdict.PARTED


@settings(deadline=None)
@given(st.integers(0, 100), st.integers(1, 60), st.integers(0, 600))
def test_a_loss_is_noticed_until_eight_times_as_much_was_committed(shared: int, lost: int, since: int) -> None:
    """docs/explanation/design/restored-roots.md: what can't be noticed."""
    start = grown(NO_LINEAGE, "shared", shared)
    seen = Lineage.of_position(grown(start, "mine", lost).position)
    assert seen is not None
    verdict = compare(seen, grown(start, "theirs", since))
    if since <= REACH // 2 * lost:
        assert verdict is Verdict.PARTED


@settings(deadline=None)
@given(st.integers(1, 600))
def test_one_history_is_the_same_from_entry_to_entry(count: int) -> None:
    """A reader that looks once in `REACH` entries is never in doubt."""
    before = grown(NO_LINEAGE, "shared", count)
    now = before
    for number in range(REACH):
        now = now.advanced(f"more {number}")
        assert compare(before, now) is Verdict.SAME


@given(st.integers(1, 2**40))
def test_few_marks_cover_any_history_and_follow_from_the_number(sequence: int) -> None:
    marks = marked_sequences(sequence)
    assert len(marks) <= REACH + 1 + (REACH // 2) * sequence.bit_length()
    assert marks == tuple(sorted(marks, reverse=True))
    assert marks[0] == sequence
    assert set(marked_sequences(sequence + 1)) <= {*marks, sequence + 1}


def test_the_marks_are_those_of_brute_force() -> None:
    for sequence in range(1, 1000):
        expected = [
            each
            for each in range(sequence, 0, -1)
            if any(each % 2**k == 0 and sequence - each <= REACH * 2**k for k in range(11))
        ]
        assert list(marked_sequences(sequence)) == expected


def test_an_entry_has_the_marks_that_follow_from_its_number() -> None:
    """The entry before leaves out the one that goes, wherever it stands."""
    lineage, every = NO_LINEAGE, dict[int, str]()
    for number in range(1, 3000):
        lineage = lineage.advanced(f"entry {number}")
        every[number] = lineage.marks[:8]
        assert lineage.marks == "".join(every[sequence] for sequence in marked_sequences(number))


@given(st.integers(1, 2**50))
def test_so_has_one_of_any_number(sequence: int) -> None:
    marks = {each: f"{place:08}" for place, each in enumerate(marked_sequences(sequence))}
    after = Lineage(sequence, "".join(marks.values())).advanced("next")
    assert after.marks[8:] == "".join(marks[each] for each in marked_sequences(sequence + 1)[1:])


def test_a_mark_is_what_FORMAT_says() -> None:
    first = b64encode(hashlib.sha256(b"one").digest()[:6])
    second = b64encode(hashlib.sha256(first + b"two").digest()[:6])
    lineage = NO_LINEAGE.advanced("one").advanced("two")
    assert lineage.marks == (second + first).decode()
    assert lineage.position == f"2:{second.decode()}"


@pytest.mark.parametrize("text", ["", "7", "0:abcdabcd", "7:", "7:abc", "x:abcdabcd", "7:abcdabc!", "-1:abcdabcd"])
def test_what_is_no_position_is_none(text: str) -> None:
    """It says nothing of any history: as in a checkpoint of before."""
    assert Lineage.of_position(text) is None


@pytest.mark.parametrize("text", ["7:abcdabcd", "7:" + "abcdabcd" * 9, "9" * 18 + ":abcdabcd"])
def test_a_position_with_too_few_marks_or_too_many_is_read_all_the_same(text: str) -> None:
    found = Lineage.of_position(text)
    assert found is not None
    assert found.at[found.sequence] == "abcdabcd"


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 300))
def test_an_entry_that_follows_none_is_of_another_history(below: int, gap: int, more: int) -> None:
    """What gives up a damaged journal goes on above its numbers: FORMAT.md's marks, and PARTED from all that was seen."""
    seen = grown(NO_LINEAGE, "damaged", below)
    begun = Lineage.superseding(below + gap, "given up")
    assert tuple(begun.at) == marked_sequences(begun.sequence)
    later = grown(begun, "since", more)
    assert tuple(later.at) == marked_sequences(later.sequence)
    assert compare(begun, later) is not Verdict.PARTED
    assert compare(seen, later) is not Verdict.SAME
    if below in later.at:
        assert compare(seen, later) is Verdict.PARTED
