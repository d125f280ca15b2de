"""Spark options: names and meanings of Spark's Kafka source and sink wherever one exists.

Option names ignore case. An unknown option, a value out of range, or two options that exclude each other is an error
that names the option, the value and what is allowed.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from pyspark_commitlog.config import COMPRESSIONS, LONG_MAX, MAX_PARTITIONS, PRINCIPAL_VARIABLE, check_config
from pyspark_commitlog.errors import ConfigError, OptionError
from pyspark_commitlog.format.paths import check_group_name, check_topic_name, is_text
from pyspark_commitlog.spark.limits import MAX_TRIGGER_DELAY_MS, Limits
from pyspark_commitlog.spark.splits import Split
from pyspark_commitlog.spark.subscription import Subscription, by_name, by_partition, by_pattern
from pyspark_commitlog.storage import environment

log = logging.getLogger("pyspark_commitlog.spark")

EARLIEST, LATEST = -2, -1
#: Suffixes of a duration, and their milliseconds (Spark: ``JavaUtils.timeStringAsMs``).
_UNITS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}
#: Start where the group is.
GROUP = -3
_NAMED = {"earliest": EARLIEST, "latest": LATEST}
_SHARE = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})")
_STORAGE = "storage."
_TOPIC = "topic."
_KAFKA_PREFIXES = ("kafka.", "kafkaconsumer.", "fetchoffset.")
_PASS = ("checkpointlocation", "queryname")
#: How the sink places records without a key (``log.write.partitioner``).
PARTITIONERS = ("sticky", "roundrobin")
_ASYNC = "asyncProgressTrackingEnabled"
#: A writer id has 4,096 characters at most (``log.write.writers``), of which some are ours.
_MAX_APP_ID = 4000
#: Spark hands a sink all options of the query.
_PASS_TO_SINK = (*_PASS, _ASYNC.lower(), "asyncprogresstrackingcheckpointintervalms",
                 "_asyncprogresstrackingoverridesinksupportcheck")  # fmt: skip
#: What Spark adds where it asks for the columns of a SQL table: the table's properties, and its options once more.
_TABLE = ("location", "owner", "provider", "comment", "collation", "external", "is_managed_location", "table_type")
_TABLE_OPTION = "option."
#: Spark hands a table's own OPTIONS to no Python source.
_IN_SQL = " (in SQL: FROM t WITH (path = '…', subscribe = '…'), INSERT INTO t WITH (path = '…', topic = '…') VALUES …)"
_SOURCE = ("path", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
           "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingTimestamp",
           "endingOffsetsByTimestamp", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
           "maxBytesPerTrigger", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "columns",
           "failOnDataLoss", "groupId", "kafka.group.id", "groupShare", "pushDownPredicate", "principal",
           "view")  # fmt: skip
_SINK = ("path", "topic", "acks", "partitioner", "txnAppId", "txnVersion", "skipOlderBatches", "createTopic",
         "numPartitions", "topic.<config>", "compression", "principal")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Times:
    """Where to start or end by timestamp (ms): one for all partitions, or one for some.

    ``strict``: a partition all of whose records are earlier is an error; else it starts or ends at the latest.
    """

    at: int | Mapping[str, Mapping[int, int]]
    strict: bool = False

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics that are named."""
        return frozenset() if isinstance(self.at, int) else frozenset(self.at)

    def of(self, topic: str, partitions: int) -> dict[int, int]:
        """Return partition -> ms of the partitions that were given a timestamp."""
        if isinstance(self.at, int):
            return dict.fromkeys(range(partitions), self.at)
        return dict(self.at.get(topic, {}))


@dataclass(frozen=True, slots=True)
class Group:
    """The group that a query belongs to, and its share: the partitions whose number leaves ``k`` - 1, divided by n."""

    name: str
    share: tuple[int, int] = (1, 1)


#: Where to start or end: one of EARLIEST and LATEST for all partitions, or an offset (or one of them) for some.
Offsets = int | dict[str, dict[int, int]]


class _Given:
    """The options as given, looked up without regard to case; every name must be known."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}
        self._names = {name.lower(): name for name in options}
        self.storage = self._under(_STORAGE)
        self.topic = self._under(_TOPIC) if "topic.<config>" in known else {}
        self._check(known, what)

    def _under(self, prefix: str) -> dict[str, str]:
        """Return the options whose names start with a prefix, without it."""
        return {self._names[n][len(prefix) :]: v for n, v in self._values.items() if n.startswith(prefix)}

    def _check(self, known: tuple[str, ...], what: str) -> None:
        lower = {name.lower() for name in known}
        passed = _PASS_TO_SINK if what == "sink" else _PASS
        kafka = []
        for name in self._values:
            if name in lower or name in passed or name.startswith(_STORAGE):
                continue
            if self.topic and name.startswith(_TOPIC):
                continue
            if "provider" in self._values and (name in _TABLE or name.startswith(_TABLE_OPTION)):
                continue
            if name.startswith(_KAFKA_PREFIXES) or name == "groupidprefix":
                kafka.append(self._names[name])
                continue
            close = get_close_matches(name, lower, n=1)
            near = next((n for n in known if close and n.lower() == close[0]), None)
            hint = f" (did you mean {near!r}?)" if near else ""
            raise OptionError(f"unknown option {self._names[name]!r}{hint}; the {what} takes: {', '.join(known)}")
        if kafka:
            log.warning("options for Kafka clients do nothing here: %s", ", ".join(sorted(kafka)))

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return value or None

    def missing(self, name: str, advice: str) -> OptionError:
        """Return the error for an option that must be there; with no option at all it may be SQL that gave none."""
        return OptionError(f"option {name!r} is missing: {advice}{'' if self._values else _IN_SQL}")

    def required(self, name: str, advice: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.missing(name, advice)
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"option {name!r}={value!r}: use true or false")
        return value.lower() == "true"

    def number(self, name: str, minimum: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = minimum - 1
        if not minimum <= number <= LONG_MAX:
            raise OptionError(f"option {name!r}={value!r}: use a whole number, at least {minimum}, of 64 bits")
        return number

    def names(self, name: str) -> tuple[str, ...] | None:
        value = self.text(name)
        return None if value is None else tuple(part.strip() for part in value.split(","))

    def milliseconds(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        found = re.fullmatch(r"\s*([0-9]+)\s*([a-z]*)\s*", value.lower())
        if found is None or found[2] not in _UNITS:
            raise OptionError(
                f"option {name!r}={value!r}: use a duration like 15m, 30s or 500ms; without unit it is ms"
            )
        return int(int(found[1]) * _UNITS[found[2]])


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader was asked for."""

    path: str
    subscription: Subscription
    starting: Offsets | Times | None
    ending: Offsets | Times | None
    limits: Limits
    split: Split
    columns: tuple[str, ...] | None
    include_headers: bool
    fail_on_data_loss: bool
    push_down: bool
    newest_per_key: bool = False
    group: Group | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """How to make a topic that is missing."""

    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a writer was asked for; ``create`` is None where a missing topic is an error."""

    path: str
    topic: str | None
    partitioner: str
    txn: tuple[str, int] | None
    skip_older: bool
    durable: bool
    compression: str | None
    create: NewTopic | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    principal: str | None = None


_PATH = "give the root of the commit log, for example .option('path', '/data/commitlog') or .load('/data/commitlog')"


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Return a reader's options, checked.

    Raises:
        OptionError: names the option, the value and what is allowed.
    """
    given = _Given(options, _SOURCE, "source")
    group = _group(given)
    subscription = _subscription(given)
    if group is not None:
        subscription = replace(subscription, share=group.share)
    return SourceOptions(
        path=given.required("path", _PATH),
        subscription=subscription,
        starting=_times(given, "starting", subscription) or _starting(given, subscription, group),
        ending=_times(given, "ending", subscription) or _offsets(given, "endingOffsets", subscription),
        limits=_limits(given),
        split=Split(given.number("minPartitions", 1), given.number("maxRecordsPerPartition", 1)),
        columns=given.names("columns"),
        include_headers=given.flag("includeHeaders", False),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        group=group,
        push_down=given.flag("pushDownPredicate", False),
        newest_per_key=_view(given),
        storage=given.storage,
        principal=given.text("principal") or environment(PRINCIPAL_VARIABLE),
    )


#: What ``view=latest`` excludes: it looks at all of a partition, in one task, before any filter.
_NOT_OF_A_VIEW = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "minPartitions",
                  "maxRecordsPerPartition", "groupShare")  # fmt: skip


def _view(given: _Given) -> bool:
    """Return whether the newest record of each key is asked for."""
    view = given.text("view")
    if view is None:
        return False
    if view.lower() != "latest":
        raise OptionError(f"option 'view'={view!r}: use latest, the newest record of each key")
    named = [name for name in _NOT_OF_A_VIEW if given.text(name) is not None]
    if given.flag("pushDownPredicate", False):
        named.append("pushDownPredicate")
    if named:
        raise OptionError(
            f"options 'view' and {', '.join(map(repr, named))} exclude each other: the newest record of each key is of "
            "all records from the start on; filter the DataFrame instead"
        )
    return True


def _limits(given: _Given) -> Limits:
    """Return how much a micro-batch takes, and when it is put off."""
    delay = given.milliseconds("maxTriggerDelay")
    limits = Limits(
        max_offsets=given.number("maxOffsetsPerTrigger", 1),
        min_offsets=given.number("minOffsetsPerTrigger", 1),
        max_bytes=given.number("maxBytesPerTrigger", 1),
        max_delay_ms=MAX_TRIGGER_DELAY_MS if delay is None else delay,
    )
    most, least = limits.max_offsets, limits.min_offsets
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"option 'minOffsetsPerTrigger'='{least}' is above 'maxOffsetsPerTrigger'='{most}': it must not be"
        )
    return limits


_SUBSCRIBE = {"subscribe": by_name, "subscribePattern": by_pattern, "assign": by_partition}


def _subscription(given: _Given) -> Subscription:
    """Return which topics and partitions to read; exactly one of three options tells, as in Spark's Kafka source."""
    found = {name: value for name in _SUBSCRIBE if (value := given.text(name)) is not None}
    if not found:
        example = "name the topics to read, for example .option('subscribe', 'flights')"
        raise given.missing("subscribe", f"{example}; or give 'subscribePattern' or 'assign'")
    if len(found) > 1:
        told = " and ".join(f"{name!r}={value!r}" for name, value in found.items())
        raise OptionError(f"options {told} exclude each other: give exactly one of {', '.join(_SUBSCRIBE)}")
    ((name, value),) = found.items()
    return _SUBSCRIBE[name](value)


def _group(given: _Given) -> Group | None:
    """Return the group that the query belongs to, by either name of the option."""
    own, kafka, share = given.text("groupId"), given.text("kafka.group.id"), given.text("groupShare")
    if own and kafka and own != kafka:
        raise OptionError(f"options 'groupId'={own!r} and 'kafka.group.id'={kafka!r} name two groups: give one")
    name = own or kafka
    if name is None:
        if share is not None:
            raise OptionError(f"option 'groupShare'={share!r} needs 'groupId': the group that is shared")
        return None
    check_group_name(name)
    if share is None:
        return Group(name)
    match = _SHARE.fullmatch(share)
    if match is None or not int(match[1]) <= int(match[2]):
        raise OptionError(f"option 'groupShare'={share!r}: use k/n with k from 1 to n, such as 1/3, for n queries")
    return Group(name, (int(match[1]), int(match[2])))


def _starting(given: _Given, subscription: Subscription, group: Group | None) -> Offsets | None:
    if (given.text("startingOffsets") or "").lower() != "group":
        return _offsets(given, "startingOffsets", subscription)
    if group is None:
        raise OptionError("option 'startingOffsets'='group' needs 'groupId': the group whose offsets are meant")
    return GROUP


def _times(given: _Given, side: str, subscription: Subscription) -> Times | None:
    """Return where to start or end by timestamp; one for all goes before one for each, as in Spark's Kafka source."""
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"option 'startingOffsetsByTimestampStrategy'={strategy!r}: use error or latest")
    strict = side == "starting" and strategy == "error"
    common = given.number(f"{side}Timestamp", 0)
    if common is not None:
        return Times(common, strict)
    name = f"{side}OffsetsByTimestamp"
    text = given.text(name)
    if text is None:
        return None
    example = f'{{"{_example(subscription)}": {{"0": 1700000000000}}}}, in milliseconds'
    return Times(_by_partition(name, text, subscription, 0, f"JSON like {example}"), strict)


def _example(subscription: Subscription) -> str:
    return subscription.topics[0] if subscription.topics else "flights"


def _offsets(given: _Given, name: str, subscription: Subscription) -> Offsets | None:
    text = given.text(name)
    if text is None:
        return None
    if text.lower() in _NAMED:
        return _NAMED[text.lower()]
    example = f'{{"{_example(subscription)}": {{"0": 42, "1": -2}}}} (-2 is earliest, -1 latest)'
    return _by_partition(name, text, subscription, EARLIEST, f"earliest, latest, or JSON like {example}")


def _by_partition(
    name: str, text: str, subscription: Subscription, minimum: int, use: str
) -> dict[str, dict[int, int]]:
    """Return topic -> partition -> number, from JSON."""
    try:
        parsed = {topic: {int(p): _whole(o) for p, o in found.items()} for topic, found in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f"option {name!r}={text!r}: use {use}") from None
    for topic, found in parsed.items():
        if not subscription.takes(topic):
            raise OptionError(f"option {name!r} names topic {topic!r}, subscribed are {subscription.told}")
        for partition, offset in found.items():
            if subscription.assigned is not None and partition not in subscription.assigned[topic]:
                raise OptionError(f"option {name!r} names {topic} partition {partition}, which 'assign' leaves out")
            if partition < 0 or offset < minimum:
                what = "offset" if minimum == EARLIEST else "timestamp"
                raise OptionError(f"option {name!r}: {topic} partition {partition} {what} {offset} is not possible")
    return parsed


def _whole(value: object) -> int:
    if type(value) is not int:  # JSON's 1.5 and true, which int() would take
        raise TypeError(value)
    return value


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Return a writer's options, checked.

    Raises:
        OptionError: names the option, the value and what is allowed.
    """
    given = _Given(options, _SINK, "sink")
    if given.flag(_ASYNC, False):
        raise OptionError(
            f"option {_ASYNC!r}='true': after a restart Spark may use a batch id that is committed here for other "
            "records, and they would be skipped, so lost: leave the option out, or set it to false"
        )
    acks = (given.text("acks") or "all").lower()
    if acks not in ("all", "-1", "1", "0"):
        raise OptionError(f"option 'acks'={acks!r}: use all (the default), 1 or 0")
    partitioner = (given.text("partitioner") or "sticky").lower()
    if partitioner not in PARTITIONERS:
        raise OptionError(f"option 'partitioner'={partitioner!r}: use one of {', '.join(PARTITIONERS)}")
    app, version = given.text("txnAppId"), given.number("txnVersion", 0)
    if (app is None) != (version is None):
        raise OptionError("options 'txnAppId' and 'txnVersion' go together: give both or none")
    if app is not None and (len(app) > _MAX_APP_ID or not is_text(app)):
        raise OptionError(f"option 'txnAppId'={app[:80]!r}: use a text of up to {_MAX_APP_ID} characters")
    topic = given.text("topic")
    return SinkOptions(
        path=given.required("path", _PATH.replace(".load(", ".save(")),
        topic=check_topic_name(topic) if topic else None,
        partitioner=partitioner,
        txn=(app, version) if app is not None and version is not None else None,
        skip_older=given.flag("skipOlderBatches", False),
        durable=acks != "0",
        compression=_compression(given),
        create=_new_topic(given),
        storage=given.storage,
        principal=given.text("principal") or environment(PRINCIPAL_VARIABLE),
    )


def _compression(given: _Given) -> str | None:
    """Return the codec of this writer's frames; None for the topic's."""
    text = given.text("compression")
    if text is not None and text.lower() not in COMPRESSIONS:
        raise OptionError(f"option 'compression'={text!r}: use one of {', '.join(COMPRESSIONS)}")
    return None if text is None else text.lower()


def _new_topic(given: _Given) -> NewTopic | None:
    """Return how to make topics that are missing, where ``createTopic`` says so."""
    partitions = given.number("numPartitions", 1)
    if not given.flag("createTopic", False):
        alone = [f"{_TOPIC}{name}" for name in given.topic] + (["numPartitions"] if partitions else [])
        if alone:
            raise OptionError(f"option {alone[0]!r} goes with createTopic=true: it says how a missing topic is made")
        return None
    partitions = partitions or 1
    if partitions > MAX_PARTITIONS:
        raise OptionError(f"option 'numPartitions'='{partitions}': use a whole number, at most {MAX_PARTITIONS}")
    try:
        return NewTopic(partitions, check_config(given.topic))
    except ConfigError as error:
        raise OptionError(f"options 'topic.<config>': {error}") from None
