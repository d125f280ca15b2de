"""Topic configs: Kafka's names, checked values, one place for defaults."""

from __future__ import annotations

import pytest

from pyspark_commitlog.broker_config import BROKER_NAMES, check_defaults, topic_defaults
from pyspark_commitlog.config import KEYS, Key, TopicConfig, check_config, check_names, check_together
from pyspark_commitlog.errors import ConfigError

NUMBERS = [key for key in KEYS.values() if not key.choices]
CHOICES = [key for key in KEYS.values() if key.choices]
KAFKA_DEFAULTS = {
    "max.message.bytes": 1048588,
    "message.timestamp.after.max.ms": 3_600_000,
    "message.timestamp.before.max.ms": 2**63 - 1,
    "segment.bytes": 2**30,
    "segment.ms": 604_800_000,
    "segment.jitter.ms": 0,
    "flush.messages": 2**63 - 1,
    "flush.ms": 2**63 - 1,
    "segment.index.bytes": 10_485_760,
    "index.interval.bytes": 4096,
    "retention.ms": 604_800_000,
    "retention.bytes": -1,
    "file.delete.delay.ms": 60_000,
    "delete.retention.ms": 86_400_000,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": 2**63 - 1,
}


@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_every_default_is_allowed_and_documented(key: Key) -> None:
    assert key.check(key.default) == key.default
    assert key.doc
    assert TopicConfig({}).resolved()[key.name] == key.default


@pytest.mark.parametrize(("name", "default"), KAFKA_DEFAULTS.items())
def test_where_kafka_has_the_config_the_default_is_kafkas(name: str, default: int) -> None:
    assert TopicConfig({}).number(name) == default


@pytest.mark.parametrize("key", NUMBERS, ids=lambda key: key.name)
def test_a_number_is_checked_against_both_bounds(key: Key) -> None:
    low, high = key.minimum, 2**63 - 1 if key.maximum is None else key.maximum

    assert low is not None
    assert check_config({key.name: low}) == {key.name: str(low)}
    assert key.check(high) == str(high)
    for outside in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=f"{key.name}={outside} .* it takes {low} to {high}"):
            check_config({key.name: outside})


@pytest.mark.parametrize("value", ["", "1.5", "ten", None, 1.0, "1e6", True])
def test_what_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"segment\.bytes=.* it takes a whole number"):
        check_config({"segment.bytes": value})


@pytest.mark.parametrize(("given", "stored"), [("compact", "compact"), ("delete , compact", "delete,compact")])
def test_several_policies_may_be_named(given: str, stored: str) -> None:
    assert check_config({"cleanup.policy": given}) == {"cleanup.policy": stored}
    topic = TopicConfig({"cleanup.policy": stored})
    assert (topic.has_policy("delete"), topic.has_policy("compact")) == ("delete" in stored, True)


@pytest.mark.parametrize("value", ["", "compact,", "compact,compact", "delete;compact"])
def test_what_is_no_list_of_policies_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"cleanup\.policy=.* use one or more of delete, compact"):
        check_config({"cleanup.policy": value})


@pytest.mark.parametrize(
    ("value", "told"), [("nan", "0 to 1"), ("1.01", "0 to 1"), ("-0.1", "0 to 1"), ("x", "a number")]
)
def test_what_is_no_ratio_is_refused(value: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"min\.cleanable\.dirty\.ratio=.* it takes {told}"):
        check_config({"min.cleanable.dirty.ratio": value})
    assert TopicConfig(check_config({"min.cleanable.dirty.ratio": "0.25"})).ratio("min.cleanable.dirty.ratio") == 0.25


def test_lags_that_contradict_each_other_are_refused() -> None:
    check_together({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, appends=True)
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms=6 is above max\.compaction\.lag\.ms=5"):
        check_together({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, appends=True)


@pytest.mark.parametrize("key", CHOICES, ids=lambda key: key.name)
def test_a_choice_is_one_of_a_list(key: Key) -> None:
    assert [key.check(choice) for choice in key.choices] == list(key.choices)
    with pytest.raises(ConfigError, match=f"{key.name}='best' .* use one .*of {key.choices[0]}"):
        check_config({key.name: "best"})


@pytest.mark.parametrize(("value", "stored"), [(True, "true"), (False, "false"), (" TRUE", "true"), ("False", "false")])
def test_a_flag_is_true_or_false_in_any_case(value: object, stored: str) -> None:
    assert check_config({"preallocate": value}) == {"preallocate": stored}
    assert TopicConfig({"preallocate": stored}).flag("preallocate") == (stored == "true")


def test_values_are_stored_as_text() -> None:
    assert check_config({"segment.bytes": 4096, "retention.ms": " -1 ", "compression.type": "zstd"}) == {
        "segment.bytes": "4096",
        "retention.ms": "-1",
        "compression.type": "zstd",
    }


def test_an_unknown_name_is_refused_with_the_nearest_or_all_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"^unknown topic config 'segment\.byte' \(did you mean 'segment\.bytes'\?\)$"
    ):
        check_config({"segment.byte": 1})
    with pytest.raises(ConfigError, match="unknown topic config 'colour'; known: "):
        check_names(["retention.ms", "colour"])


BROKER = [(name, topic, unit) for topic, names in BROKER_NAMES.items() for name, unit in names.items()]


@pytest.mark.parametrize(("name", "topic_name", "unit"), BROKER)
def test_a_brokers_name_takes_what_its_topic_config_takes_in_its_own_unit(
    name: str, topic_name: str, unit: int
) -> None:
    key = KEYS[topic_name]
    given = key.choices[-1] if key.choices else "0.25" if key.ratio else "77777"
    removed, checked = check_defaults({name: given, "batch.size": None})
    assert (removed, checked) == ({"batch.size"}, {name: given})
    found = topic_defaults(checked)
    assert found == {topic_name: str(77777 * unit) if given == "77777" else given}
    assert check_config(found) == found
    if key.minimum is not None:
        highest = (2**63 - 1 if key.maximum is None else key.maximum) // unit
        for edge in (max(key.minimum, 1) if unit == 1 else 1, highest):
            assert check_config(topic_defaults(check_defaults({name: edge})[1]))
        with pytest.raises(ConfigError, match=rf"{name}={highest + 1} .* to {highest}"):
            check_defaults({name: highest + 1})
        with pytest.raises(ConfigError, match=f"{name}=-2"):
            check_defaults({name: -2})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"log.retention.hours": "1"}, {"retention.ms": "3600000"}),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, {"retention.ms": "120000"}),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, {"retention.ms": "3"}),
        ({"log.retention.ms": "3", "retention.ms": "4"}, {"retention.ms": "4"}),
        ({"log.retention.hours": "-1"}, {"retention.ms": "-1"}),
        ({"log.retention.ms": "-1", "log.retention.hours": "1"}, {"retention.ms": "-1"}),
        ({"log.roll.hours": "1", "log.roll.ms": "5"}, {"segment.ms": "5"}),
        ({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "0"}, {"segment.jitter.ms": "0"}),
        ({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}, {"flush.ms": "8"}),
        ({"compression.type": "zstd", "settle.bytes": "5"}, {"compression.type": "zstd", "settle.bytes": "5"}),
        ({"of.a.later.release": "1"}, {}),
    ],
)
def test_of_several_names_the_first_in_kafkas_order_counts(given: dict[str, str], found: dict[str, str]) -> None:
    assert topic_defaults(given) == found


def test_a_brokers_name_is_none_of_a_topics() -> None:
    assert not {name for name, _, _ in BROKER} & set(KEYS)
    assert set(BROKER_NAMES) <= set(KEYS)
    with pytest.raises(ConfigError, match=r"unknown topic config 'log\.segment\.bytes'"):
        check_config({"log.segment.bytes": 4096})


def test_what_was_set_is_read_and_the_rest_is_default() -> None:
    config = TopicConfig({"segment.bytes": "4096", "compression.type": "none"})

    assert (config.number("segment.bytes"), config.number("segment.ms")) == (4096, 604_800_000)
    assert (config.text("compression.type"), config.text("cleanup.policy")) == ("none", "delete")
    assert config.resolved() == {**TopicConfig({}).resolved(), **config.stored}
