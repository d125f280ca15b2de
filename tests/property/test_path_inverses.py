"""Names are built and parsed in one place, and each is the inverse of the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

from pyspark_commitlog.format import paths
from tests.property.strategies import examples, quick, sequences, uuids

#: 20 digits hold every sequence.
ID = "6a1f0c9e-0000-4000-8000-00000000002a"
#: What names are made of, and what looks like it.
ALPHABET = st.sampled_from(
    [*"0123456789.-_abcdefx/ \n", "\N{ARABIC-INDIC DIGIT ONE}", ".json", ".log", ID, f"{7:020d}"]
)


@quick
@given(sequences)
def test_entries(sequence: int) -> None:
    assert paths.parse_entry(paths.entry_name(sequence)) == sequence


@quick
@given(sequences, uuids)
def test_chunks(sequence: int, unique: str) -> None:
    assert paths.parse_chunk(paths.chunk_name(sequence, unique)) == sequence


@quick
@given(sequences, uuids, st.sampled_from(("chunks", "extents", "partitions", "writers")))
def test_side_files(sequence: int, unique: str, kind: str) -> None:
    assert paths.parse_side(paths.side_name(sequence, unique, kind)) == sequence


@quick
@given(st.integers(0, 99_999), sequences, uuids)
def test_manifests(partition: int, sequence: int, unique: str) -> None:
    assert paths.parse_manifest(paths.manifest_name(partition, sequence, unique)) == (partition, sequence)


@quick
@given(sequences, st.integers(0, 1000), st.sampled_from(("log", "index", "timeindex")))
def test_segments(base_offset: int, rewrite: int, suffix: str) -> None:
    name = f"{paths.segment_stem(base_offset, rewrite)}.{suffix}"

    assert paths.parse_segment(name) == (base_offset, rewrite, suffix)


@quick
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20) | st.text("%2E.~ü/ab", min_size=1))
def test_groups(name: str) -> None:
    assume(not name.startswith("__"))  # no group may have such a name
    directory = paths.group_directory(name)
    assert paths.parse_group(directory) == name
    assert not directory.startswith(".")
    assert not {"/", "\\", "\0", "\n"} & set(directory)


def rebuilt_group(name: str, group: str) -> str:
    return paths.group_directory(group)


def rebuilt_entry(name: str, sequence: int) -> str:
    return paths.entry_name(sequence)


def rebuilt_chunk(name: str, sequence: int) -> str:
    return paths.chunk_name(sequence, name[21:57])


def rebuilt_side(name: str, sequence: int) -> str:
    return paths.side_name(sequence, name[21:57], name[58:])


def rebuilt_manifest(name: str, parsed: tuple[int, int]) -> str:
    return paths.manifest_name(*parsed, name[-41:-5])


def rebuilt_segment(name: str, parsed: tuple[int, int, str]) -> str:
    return f"{paths.segment_stem(*parsed[:2])}.{parsed[2]}"


@pytest.mark.parametrize(
    ("parse", "rebuild", "example"),
    [
        (paths.parse_entry, rebuilt_entry, f"{7:020d}.json"),
        (paths.parse_group, rebuilt_group, "%2Ea%2Fb.c"),
        (paths.parse_chunk, rebuilt_chunk, f"{7:020d}-{ID}.chunk"),
        (paths.parse_side, rebuilt_side, f"{7:020d}.{ID}.extents"),
        (paths.parse_manifest, rebuilt_manifest, f"3-{7:020d}-{ID}.json"),
        (paths.parse_segment, rebuilt_segment, f"{7:020d}.2.log"),
    ],
)
def test_a_name_that_parses_is_one_that_we_build(
    parse: Callable[[str], Any], rebuild: Callable[[str, Any], str], example: str
) -> None:
    """Names near to ours: a few characters of one of ours replaced, left out or added."""
    seen = 0

    @settings(quick, max_examples=examples(400))
    @given(st.integers(0, len(example)), st.integers(0, 3), st.lists(ALPHABET, max_size=2).map("".join))
    def check(at: int, left_out: int, added: str) -> None:
        nonlocal seen
        name = example[:at] + added + example[at + left_out :]
        parsed = parse(name)
        if parsed is not None:
            seen += 1
            assert rebuild(name, parsed) == name

    check()
    assert parse(example) is not None
    assert seen


@quick
@given(st.text("a._-/\\\0\n", max_size=4) | st.integers(245, 255).map(lambda length: "x" * length))
def test_a_topic_name_is_a_name_for_a_directory(name: str) -> None:
    try:
        paths.check_topic_name(name)
    except ValueError:
        return
    assert name not in ("", ".", "..")
    assert not {"/", "\\", "\0", "\n"} & set(name)
    assert len(name) <= 249
