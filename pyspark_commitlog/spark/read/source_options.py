"""Options of the source, named as in Spark's Kafka source."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark_commitlog.config import PRINCIPAL_VARIABLE
from pyspark_commitlog.errors import CorruptionError, OptionError, UsageError
from pyspark_commitlog.format.given_json import RepeatedKeyError, parse_json
from pyspark_commitlog.format.paths import check_group_name
from pyspark_commitlog.spark.common.given_options import PATH_ADVICE, GivenOptions, instant_ms
from pyspark_commitlog.spark.common.known_options import SOURCE_OPTIONS
from pyspark_commitlog.spark.progress.splits import Split
from pyspark_commitlog.spark.progress.topic_selection import (
    QueryGroup,
    TopicSelection,
    by_name,
    by_partition,
    by_pattern,
)
from pyspark_commitlog.spark.progress.trigger_limits import TriggerLimits
from pyspark_commitlog.storage import environment
from pyspark_commitlog.storage.pace import DEFAULT_IDLE_POLL_INTERVAL_MS, MAX_IDLE_POLL_INTERVAL_MS

if TYPE_CHECKING:
    from pyspark_commitlog.spark.progress.source_offset import SourceOffset
    from pyspark_commitlog.spark.read.declared_columns import PinnedSchema
    from pyspark_commitlog.topic.read.filter.condition import Test

log = logging.getLogger("pyspark_commitlog.spark")

EARLIEST, LATEST = -2, -1
#: Start at the group's offsets.
GROUP = -3
_NAMED = {"earliest": EARLIEST, "latest": LATEST}
_SHARE = re.compile(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})")


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Start or end by timestamp (ms), for all partitions or for some.

    `strict`: a partition with only earlier records is an error; else it takes the latest offset.
    """

    at: int | Mapping[str, Mapping[int, int]]
    strict: bool = False

    @property
    def topics(self) -> frozenset[str]:
        """Topics that are named."""
        return frozenset() if isinstance(self.at, int) else frozenset(self.at)

    def of(self, topic: str, partitions: int) -> dict[int, int]:
        """Return partition -> ms of the partitions with a timestamp."""
        if isinstance(self.at, int):
            return dict.fromkeys(range(partitions), self.at)
        return dict(self.at.get(topic, {}))


#: Start or end: EARLIEST or LATEST for all partitions, or an offset (or one of them) for some.
Offsets = int | dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a reader, checked.

    `schemas`: of typed topics, as they were when the query's columns were chosen; None: look now.
    """

    path: str
    selection: TopicSelection
    starting: Offsets | Timestamps | None
    ending: Offsets | Timestamps | None
    limits: TriggerLimits
    split: Split
    columns: tuple[str, ...] | None
    include_headers: bool
    fail_on_data_loss: bool
    push_down: bool
    tests: tuple[Test, ...] = ()
    newest_per_key: bool = False
    group: QueryGroup | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    principal: str | None = None
    idle_poll_interval_ms: int = DEFAULT_IDLE_POLL_INTERVAL_MS
    topic_ids: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    schemas: Mapping[str, PinnedSchema] | None = None

    def check_incarnations(self, option: str, topic_ids: Mapping[str, str]) -> None:
        """Refuse a query's offsets, of `option`, of a former incarnation of a topic.

        Offsets without topic ids pass.
        """
        for topic, meant in self.topic_ids.get(option, {}).items():
            topic_id = topic_ids.get(topic, meant)
            if meant != topic_id:
                raise OptionError(
                    f"option {option!r}: its offsets are of topic {topic!r} with id {meant}; the topic was deleted and "
                    f"made again since, with id {topic_id}: leave '__topic_ids' out if the offsets are of this one"
                )


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse a reader's options."""
    given = GivenOptions(options, SOURCE_OPTIONS, "source")
    if given.text("checkpointLocation") is not None:
        log.warning("option 'checkpointLocation' does nothing on a reader: give it to writeStream")
    group = _group(given)
    selection = _selection(given)
    if group is not None:
        selection = replace(selection, share=group.share)
    return SourceOptions(
        path=given.required("path", PATH_ADVICE),
        selection=selection,
        starting=_times(given, "starting", selection) or _starting(given, selection, group),
        ending=_times(given, "ending", selection) or _offsets(given, "endingOffsets", selection),
        limits=_limits(given),
        split=Split(given.number("minPartitions", 1), given.number("maxRecordsPerPartition", 1)),
        columns=given.names("columns"),
        include_headers=given.flag("includeHeaders"),
        fail_on_data_loss=given.flag("failOnDataLoss"),
        group=group,
        push_down=given.flag("pushDownPredicate"),
        tests=_tests(given),
        newest_per_key=_view(given),
        storage=given.storage,
        principal=given.text("principal") or environment(PRINCIPAL_VARIABLE),
        idle_poll_interval_ms=_idle_poll_interval(given),
        topic_ids=_topic_ids(given),
    )


#: Excluded by `view=latest`, which reads all of a partition, in one task, before any filter.
_NOT_OF_A_VIEW = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "minPartitions",
                  "maxRecordsPerPartition", "groupShare", "filter")  # fmt: skip


def _view(given: GivenOptions) -> bool:
    view = given.text("view")
    if view is None:
        return False
    if given.word("view") != "latest":
        raise OptionError(f"option 'view'={view!r}: use latest, the newest record of each key")
    named = [name for name in _NOT_OF_A_VIEW if given.text(name) is not None]
    if given.flag("pushDownPredicate"):
        named.append("pushDownPredicate")
    if named:
        raise OptionError(
            f"options 'view' and {', '.join(map(repr, named))} exclude each other: the newest record of each key is of "
            "all records from the start on; filter the DataFrame instead"
        )
    return True


def _tests(given: GivenOptions) -> tuple[Test, ...]:
    condition = given.text("filter")
    if condition is None:
        return ()
    from pyspark_commitlog.topic.read.filter.condition import parse_condition

    try:
        return parse_condition(condition)
    except UsageError as error:
        raise OptionError(f"option 'filter': {error}") from None


def _limits(given: GivenOptions) -> TriggerLimits:
    limits = TriggerLimits(
        max_offsets=given.number("maxOffsetsPerTrigger", 1),
        min_offsets=given.number("minOffsetsPerTrigger", 1),
        max_bytes=given.number("maxBytesPerTrigger", 1),
        max_delay_ms=given.milliseconds("maxTriggerDelay"),
    )
    most, least = limits.max_offsets, limits.min_offsets
    if most is not None and least is not None and least > most:
        raise OptionError(
            f"option 'minOffsetsPerTrigger'='{least}' is above 'maxOffsetsPerTrigger'='{most}': it must not be"
        )
    return limits


def _idle_poll_interval(given: GivenOptions) -> int:
    text = given.text("idlePollIntervalMs") or given.default("idlePollIntervalMs")
    try:
        interval = int(text)
    except ValueError:
        interval = 0
    if not 1 <= interval <= MAX_IDLE_POLL_INTERVAL_MS:
        allowed = f"1 to {MAX_IDLE_POLL_INTERVAL_MS}"
        raise OptionError(f"option 'idlePollIntervalMs'={text!r}: use a whole number of milliseconds, {allowed}")
    return interval


_SUBSCRIBE = {"subscribe": by_name, "subscribePattern": by_pattern, "assign": by_partition}


def _selection(given: GivenOptions) -> TopicSelection:
    asked = {name: value for name in _SUBSCRIBE if (value := given.text(name)) is not None}
    if not asked:
        example = "name the topics to read, for example .option('subscribe', 'flights')"
        raise given.missing("subscribe", f"{example}; or give 'subscribePattern' or 'assign'")
    if len(asked) > 1:
        options = " and ".join(f"{name!r}={value!r}" for name, value in asked.items())
        raise OptionError(f"options {options} exclude each other: give exactly one of {', '.join(_SUBSCRIBE)}")
    ((name, value),) = asked.items()
    return _SUBSCRIBE[name](value)


def _group(given: GivenOptions) -> QueryGroup | None:
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
        return QueryGroup(name)
    match = _SHARE.fullmatch(share)
    if match is None or not int(match[1]) <= int(match[2]):
        raise OptionError(f"option 'groupShare'={share!r}: use k/n with k from 1 to n, such as 1/3, for n queries")
    return QueryGroup(name, (int(match[1]), int(match[2])))


def _starting(given: GivenOptions, selection: TopicSelection, group: QueryGroup | None) -> Offsets | None:
    if given.word("startingOffsets") != "group":
        return _offsets(given, "startingOffsets", selection)
    if group is None:
        raise OptionError("option 'startingOffsets'='group' needs 'groupId': the group whose offsets are meant")
    return GROUP


def _times(given: GivenOptions, side: str, selection: TopicSelection) -> Timestamps | None:
    name = "startingOffsetsByTimestampStrategy"
    strategy = given.word(name) or given.default(name)
    if strategy not in ("error", "latest"):
        raise OptionError(f"option 'startingOffsetsByTimestampStrategy'={strategy!r}: use error or latest")
    strict = side == "starting" and strategy == "error"
    common = given.instant(f"{side}Timestamp")
    if common is not None:
        return Timestamps(common, strict)
    name = f"{side}OffsetsByTimestamp"
    text = given.text(name)
    if text is None:
        return None
    example = f'{{"{_example(selection)}": {{"0": 1700000000000}}}}, in milliseconds, or "2026-01-31T12:00" in UTC'
    return Timestamps(_by_partition(name, text, selection, 0, f"JSON like {example}", partial(_instant, name)), strict)


def _instant(name: str, value: object) -> int:
    """Instant in ms; one before 1970 is refused later."""
    if type(value) is int and value < 0:
        return value
    return instant_ms(name, value if isinstance(value, str) else str(_require_int(value)))


def _example(selection: TopicSelection) -> str:
    return selection.topics[0] if selection.topics else "flights"


def _offsets(given: GivenOptions, name: str, selection: TopicSelection) -> Offsets | None:
    text = given.text(name)
    if text is None:
        return None
    if (word := given.word(name)) in _NAMED:
        return _NAMED[word]
    offset = _query_offset(given, name)
    if offset is not None:
        placed: dict[str, dict[str, int]] = {}
        for place, number in offset.offsets.items():
            placed.setdefault(place.topic, {})[str(place.partition)] = number
        text = json.dumps(placed)
    example = f'{{"{_example(selection)}": {{"0": 42, "1": -2}}}} (-2 is earliest, -1 latest)'
    return _by_partition(name, text, selection, EARLIEST, f"earliest, latest, or JSON like {example}", _require_int)


def _by_partition(
    name: str, text: str, selection: TopicSelection, minimum: int, use: str, number_of: Callable[[object], int]
) -> dict[str, dict[int, int]]:
    try:
        parsed = {topic: _numbers(topic, numbers, number_of) for topic, numbers in parse_json(text).items()}
    except OptionError:
        raise
    except RepeatedKeyError as error:
        raise OptionError(f"option {name!r}={text!r}: {error}") from None
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f"option {name!r}={text!r}: use {use}") from None
    _check_selected(name, parsed, selection, minimum)
    return parsed


def _check_selected(
    name: str, parsed: Mapping[str, Mapping[int, int]], selection: TopicSelection, minimum: int
) -> None:
    for topic, numbers in parsed.items():
        if not selection.takes(topic):
            raise OptionError(f"option {name!r} names topic {topic!r}, subscribed are {selection.in_words}")
        for partition, offset in numbers.items():
            if selection.assigned is not None and partition not in selection.assigned[topic]:
                raise OptionError(f"option {name!r} names {topic} partition {partition}, which 'assign' leaves out")
            if partition < 0 or offset < minimum:
                what = "offset" if minimum == EARLIEST else "timestamp"
                raise OptionError(f"option {name!r}: {topic} partition {partition} {what} {offset} is not possible")


def _numbers(topic: str, numbers: Mapping[str, object], number_of: Callable[[object], int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for partition, value in numbers.items():
        if int(partition) in found:  # "0" beside "00"
            raise RepeatedKeyError(f"{topic} partition {int(partition)} stands there twice: keep one")
        found[int(partition)] = number_of(value)
    return found


def _query_offset(given: GivenOptions, name: str) -> SourceOffset | None:
    """Parse an offset of a query's progress or checkpoint; None if it is something else."""
    text = given.text(name)
    if text is None or not text.lstrip().startswith("{"):
        return None
    from pyspark_commitlog.spark.progress.source_offset import TOPIC_IDS, SourceOffset

    try:
        parsed = parse_json(text)
    except ValueError:
        return None  # refused by `_by_partition`
    if not isinstance(parsed, dict) or TOPIC_IDS not in parsed:
        return None
    try:
        return SourceOffset.from_json(parsed, f"option {name!r}")
    except CorruptionError as error:
        raise OptionError(f"{error}; give the offset as lastProgress or the checkpoint has it, by json.dumps") from None


def _topic_ids(given: GivenOptions) -> dict[str, Mapping[str, str]]:
    found = ((name, _query_offset(given, name)) for name in ("startingOffsets", "endingOffsets"))
    return {name: offset.topic_ids for name, offset in found if offset is not None}


def _require_int(value: object) -> int:
    if type(value) is not int:  # JSON's 1.5 and true, which int() would take
        raise TypeError(value)
    return value
