"""Names below a root: what they look like, and which names are not ours."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.paths import TopicPaths

ID = "6a1f0c9e-0000-4000-8000-00000000002a"
HOME = f"topics/orders/{ID}"
PATHS = TopicPaths("orders", ID)


def test_the_tree() -> None:
    number = "0000000000000000000"

    assert paths.ROOT_MARKER == "commitlog.json"
    assert paths.CONFIG_JOURNAL == "config/journal"
    assert paths.topic("orders") == "topics/orders"
    assert f"{paths.journal('orders')}/{paths.entry_name(7)}" == f"topics/orders/journal/{number}7.json"
    assert paths.group_journal("my group") == "groups/my%20group/journal"
    assert PATHS.home == HOME
    assert (PATHS.settle, PATHS.lock) == (f"{HOME}/settle", f"{HOME}/settle/lock")
    assert PATHS.chunk(paths.chunk_name(7, ID)) == f"{HOME}/staged/{number}7-{ID}.chunk"
    assert f"{PATHS.side}/{paths.side_name(7, ID, 'extents')}" == f"{HOME}/side/{number}7.{ID}.extents"
    assert f"{PATHS.manifests}/{paths.manifest_name(3, 7, ID)}" == f"{HOME}/manifests/3-{number}7-{ID}.json"
    assert PATHS.partition(3) == f"{HOME}/3"
    assert PATHS.segment_file(3, paths.segment_stem(7), "log") == f"{HOME}/3/{number}7.log"
    assert PATHS.segment_file(3, paths.segment_stem(7, 1), "index") == f"{HOME}/3/{number}7.1.index"


def test_names_sort_as_their_numbers_do() -> None:
    numbers = [0, 9, 10, 999, 10**10, 2**63 - 1]

    for build in (paths.entry_name, paths.segment_stem, lambda n: paths.chunk_name(n, ID)):
        assert sorted(map(build, numbers)) == [build(n) for n in numbers]


@pytest.mark.parametrize(
    "name",
    [
        "", "1.json", "0000000000000000000x.json", "000000000000000000001.json", "00000000000000000001.json ",
        "00000000000000000001.json\n", "00000000000000000001.jsonx", "x00000000000000000001.json", "lock",
        f".tmp-{ID}", "\N{ARABIC-INDIC DIGIT ONE}" * 20 + ".json",
    ],
)  # fmt: skip
def test_other_names_are_no_entries(name: str) -> None:
    assert paths.parse_entry(name) is None


@pytest.mark.parametrize("ending", [".log.deleted", ".0.log", ".01.log", "..log", ".txnindex", "", ".log\n"])
def test_other_names_are_no_segments(ending: str) -> None:
    assert paths.parse_segment("00000000000000000001.log") == (1, 0, "log")
    assert paths.parse_segment(f"00000000000000000001{ending}") is None


def test_other_names_are_no_chunks_side_files_or_manifests() -> None:
    number = f"{7:020d}"

    chunks = (f"{number}-{ID[:-1]}.chunk", f"7-{ID}.chunk", f"{number}.{ID}.chunk")
    sides = (f"{number}.{ID}.", f"{number}.{ID}.Extents", f"{number}-{ID}.extents")
    manifests = (f"-1-{number}-{ID}.json", f"03-{number}-{ID}.json", f"3-7-{ID}.json")

    assert [paths.parse_chunk(name) for name in chunks] == [None] * 3
    assert [paths.parse_side(name) for name in sides] == [None] * 3
    assert [paths.parse_manifest(name) for name in manifests] == [None] * 3


@pytest.mark.parametrize("name", [ID, "00000000-0000-0000-0000-000000000000"])
def test_a_uuid_is_a_topic_id(name: str) -> None:
    assert paths.is_topic_id(name)


@pytest.mark.parametrize("name", ["journal", ID.upper(), ID + "\n", ID[:-1], f"x{ID}"])
def test_nothing_else_is_a_topic_id(name: str) -> None:
    assert not paths.is_topic_id(name)


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "x" * 249, "_one"])
def test_allows_the_topic_names_that_kafka_allows(name: str) -> None:
    assert paths.check_topic_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "a\n", "a\\b", "a\0", None, 7])
def test_refuses_other_topic_names_and_says_what_is_allowed(name: str) -> None:
    with pytest.raises(UsageError, match="1 to 249 of a-z A-Z 0-9"):
        paths.check_topic_name(name)


@pytest.mark.parametrize("name", ["__", "__consumer_offsets"])
def test_names_with_two_underscores_are_reserved(name: str) -> None:
    with pytest.raises(UsageError, match="reserved"):
        paths.check_topic_name(name)
