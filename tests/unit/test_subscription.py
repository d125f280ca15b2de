"""Which topics and partitions a query's options ask for."""

from __future__ import annotations

import pytest

from pyspark_commitlog.errors import OptionError, UsageError
from pyspark_commitlog.spark.progress.topic_selection import TopicSelection, by_name, by_partition, by_pattern
from pyspark_commitlog.spark.read.source_options import source_options


def subscription(**options: str) -> TopicSelection:
    """Return what a query's options ask for."""
    return source_options({"path": "/root", **options}).selection


def test_a_pattern_takes_whole_names_only_and_no_reserved_ones() -> None:
    names = ["orders", "orders-eu", "my-orders", "__orders", "no topic", "orders.us"]
    assert by_pattern("orders.*").select_topics(names) == ["orders", "orders-eu", "orders.us"]
    assert by_pattern("orders").select_topics(names) == ["orders"]
    assert by_pattern(".*").select_topics(names) == ["my-orders", "orders", "orders-eu", "orders.us"]


def test_names_take_all_partitions_assignments_those_that_are_told() -> None:
    assert by_name("b, a,,b").topics == ("a", "b")
    assert by_name("a").partitions("a", 3) == range(3)
    assigned = by_partition('{"b": [2, 0, 2], "a": [1]}')
    assert (assigned.topics, assigned.partitions("b", 3), assigned.partitions("a", 2)) == (("a", "b"), (0, 2), (1,))
    with pytest.raises(OptionError, match="'assign': topic 'b' has partitions 0 to 1, not 2"):
        assigned.partitions("b", 2)


@pytest.mark.parametrize(
    "text", ["t", "[]", "{}", '{"t": []}', '{"t": 0}', '{"t": [-1]}', '{"t": [true]}', '{"t": ["0"]}']
)
def test_an_assignment_must_be_lists_of_partitions(text: str) -> None:
    with pytest.raises(OptionError, match=r"option 'assign'=.*: use JSON like"):
        subscription(assign=text)


def test_other_mistakes_are_told() -> None:
    with pytest.raises(OptionError, match=r"'subscribePattern'='orders\[': not a regular expression of Python: unterm"):
        subscription(subscribePattern="orders[")
    with pytest.raises(UsageError, match="topic name '__x' is not allowed"):
        subscription(assign='{"__x": [0]}')
    with pytest.raises(OptionError, match=r"'subscribe' is missing: .* or give 'subscribePattern' or 'assign'"):
        subscription()


@pytest.mark.parametrize(
    "two", [("subscribe", "subscribePattern"), ("subscribe", "assign"), ("subscribePattern", "assign")]
)
def test_exactly_one_of_three(two: tuple[str, str]) -> None:
    given = {"subscribe": "a", "subscribePattern": "a.*", "assign": '{"a": [0]}'}
    with pytest.raises(OptionError, match=f"'{two[0]}'=.* and '{two[1]}'=.* exclude each other: give exactly one of"):
        subscription(**{name: given[name] for name in two})


def test_offsets_of_what_is_not_read_are_refused() -> None:
    with pytest.raises(OptionError, match=r"names topic 'b', subscribed are those that match 'a.*'"):
        source_options({"path": "/root", "subscribePattern": "a.*", "startingOffsets": '{"b": {"0": 1}}'})
    with pytest.raises(OptionError, match="'startingOffsets' names a partition 1, which 'assign' leaves out"):
        source_options({"path": "/root", "assign": '{"a": [0]}', "startingOffsets": '{"a": {"1": 1}}'})


@pytest.mark.parametrize("text", ["[a-z&&[^x]]", "t[a[b]]", r"[\]a&&b]", "[]&&a]", "[^a&&b]", "a[[b]"])
def test_a_class_that_java_nests_or_intersects_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"'subscribePattern'=.*'\[' or '&&' inside a class .* in Java"):
        subscription(subscribePattern=text)


@pytest.mark.parametrize("text", ["[a-z][0-9]", r"[\[a]", "a&&b|[a]", r"\[a[b]", "[]a][b]", "(?!x)[a-z]+"])
def test_classes_that_mean_the_same_in_java_and_python_are_taken(text: str) -> None:
    pattern = subscription(subscribePattern=text).pattern
    assert pattern is not None
    assert pattern.pattern == text


ID = "4f1f4b5e0a0c4d6c9d0d7f4c3b2a1908"


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("startingOffsets", '{"t": {"0": 3}, "t": {"1": 2}}', "the key 't' stands there twice"),
        ("startingOffsets", '{"t": {"0": 3, "0": 2}}', "the key '0' stands there twice"),
        ("endingOffsets", '{"t": {"0": 3, "00": 2}}', "t partition 0 stands there twice"),
        ("startingOffsetsByTimestamp", '{"t": {"0": 3, "0": 2}}', "the key '0' stands there twice"),
        ("endingOffsetsByTimestamp", '{"t": {"1": 3, "01": 2}}', "t partition 1 stands there twice"),
    ],
)
def test_json_that_names_a_place_twice_is_refused(option: str, text: str, told: str) -> None:
    with pytest.raises(OptionError, match=f"option '{option}'=.*{told}"):
        source_options({"path": "/root", "subscribe": "t", option: text})


def test_an_assignment_that_names_a_topic_twice_is_refused() -> None:
    with pytest.raises(OptionError, match=r"option 'assign'=.*the key 't' stands there twice"):
        subscription(assign='{"t": [0], "t": [1]}')


def test_an_offset_of_a_query_that_was_changed_is_refused_by_name() -> None:
    text = f'{{"t": {{"0": "x"}}, "__topic_ids": {{"t": "{ID}"}}}}'
    with pytest.raises(OptionError, match=r"option 'startingOffsets'.*'0'.*give the offset as lastProgress"):
        source_options({"path": "/root", "subscribe": "t", "startingOffsets": text})


def test_an_offset_of_a_query_brings_topic_ids_to_check() -> None:
    text = f'{{"t": {{"0": 3, "1": 0}}, "__topic_ids": {{"t": "{ID}"}}}}'
    options = source_options({"path": "/root", "subscribe": "t", "startingOffsets": text})
    assert options.starting == {"t": {0: 3, 1: 0}}
    options.check_incarnations("startingOffsets", {"t": ID})
    options.check_incarnations("endingOffsets", {"t": "another"})
    with pytest.raises(OptionError, match=f"'startingOffsets': its offsets are of topic 't' with id {ID}; .* another"):
        options.check_incarnations("startingOffsets", {"t": "another"})
