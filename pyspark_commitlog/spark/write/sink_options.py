"""Options of the sink, named as Kafka's in Spark and Delta's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_commitlog.config import COMPRESSIONS, MAX_PARTITIONS, PRINCIPAL_VARIABLE, check_config
from pyspark_commitlog.errors import ConfigError, OptionError
from pyspark_commitlog.format.paths import check_topic_name, is_text
from pyspark_commitlog.spark.common.given_options import PASSED, PATH_ADVICE, TOPIC_PREFIX, GivenOptions
from pyspark_commitlog.spark.common.known_options import SINK_OPTIONS
from pyspark_commitlog.storage import environment

#: Partitioners of records without a key (`topic.write.partitioner`).
PARTITIONERS = ("sticky", "roundrobin")
_CREATE, _TYPED = "createTopic", "typed"
_ASYNC = "asyncProgressTrackingEnabled"
#: A writer id has at most 4,096 characters (`topic.write.commit`), including our prefix.
_MAX_APP_ID = 4000
# Spark hands a sink all options of the query.
_PASSED_TO_SINK = (*PASSED, _ASYNC.lower(), "asyncprogresstrackingcheckpointintervalms",
                   "_asyncprogresstrackingoverridesinksupportcheck")  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewTopic:
    """Partitions and configs of a topic that the sink creates.

    `is_typed`: with the DataFrame's columns; two of them may be its key and timestamp.
    """

    partitions: int
    config: Mapping[str, str]
    is_typed: bool = False
    key_column: str | None = None
    timestamp_column: str | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a writer; without `create` a missing topic is an error."""

    path: str
    topic: str | None
    partitioner: str
    txn: tuple[str, int] | None
    skip_older: bool
    durable: bool
    acks_all: bool
    compression: str | None
    create: NewTopic | None = None
    merge_schema: bool = False
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    principal: str | None = None


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse a writer's options."""
    given = GivenOptions(options, SINK_OPTIONS, "sink", _PASSED_TO_SINK)
    _refuse_async(given)
    acks, partitioner, txn = _acks(given), _partitioner(given), _txn(given)
    topic = given.text("topic")
    return SinkOptions(
        path=given.required("path", PATH_ADVICE.replace(".load(", ".save(")),
        topic=check_topic_name(topic) if topic else None,
        partitioner=partitioner,
        txn=txn,
        skip_older=given.flag("skipOlderBatches"),
        durable=acks != "0",
        acks_all=acks in ("all", "-1"),
        compression=_compression(given),
        create=_new_topic(given),
        merge_schema=_merge_schema(given, topic),
        storage=given.storage,
        principal=given.text("principal") or environment(PRINCIPAL_VARIABLE),
    )


def _refuse_async(given: GivenOptions) -> None:
    if given.flag(_ASYNC):
        raise OptionError(
            f"option {_ASYNC!r}='true': after a restart Spark may use a batch id that is committed here for other "
            "records, and they would be skipped, so lost: leave the option out, or set it to false"
        )


def _acks(given: GivenOptions) -> str:
    acks = given.word("acks") or given.default("acks")
    if acks not in ("all", "-1", "1", "0"):
        raise OptionError(f"option 'acks'={acks!r}: use all (the default), 1 or 0")
    return acks


def _partitioner(given: GivenOptions) -> str:
    partitioner = given.word("partitioner") or given.default("partitioner")
    if partitioner not in PARTITIONERS:
        raise OptionError(f"option 'partitioner'={partitioner!r}: use one of {', '.join(PARTITIONERS)}")
    return partitioner


def _txn(given: GivenOptions) -> tuple[str, int] | None:
    app, version = given.text("txnAppId"), given.number("txnVersion", 0)
    if (app is None) != (version is None):
        raise OptionError("options 'txnAppId' and 'txnVersion' go together: give both or none")
    if app is None or version is None:
        return None
    if len(app) > _MAX_APP_ID or not is_text(app):
        raise OptionError(f"option 'txnAppId'={app[:80]!r}: use a text of up to {_MAX_APP_ID} characters")
    return app, version


def _compression(given: GivenOptions) -> str | None:
    codec = given.word("compression")
    if codec is not None and codec not in COMPRESSIONS:
        raise OptionError(f"option 'compression'={codec!r}: use one of {', '.join(COMPRESSIONS)}")
    return codec


def _merge_schema(given: GivenOptions, topic: str | None) -> bool:
    merge = given.flag("mergeSchema")
    if merge and given.text(_CREATE) is not None and given.word(_CREATE) != _TYPED and given.flag(_CREATE):
        raise OptionError("option 'mergeSchema' goes with createTopic=typed: createTopic=true makes an untyped topic")
    if merge and not topic:
        raise OptionError("option 'mergeSchema' goes with 'topic': it changes the columns of that typed topic")
    return merge


def _new_topic(given: GivenOptions) -> NewTopic | None:
    partitions = given.number("numPartitions", 1)
    key, timestamp = given.text("keyColumn"), given.text("timestampColumn")
    is_typed = given.word(_CREATE) == _TYPED
    for name, column in (("keyColumn", key), ("timestampColumn", timestamp)):
        if column is not None and not is_typed:
            raise OptionError(f"option {name!r} goes with createTopic=typed: it names a column of a new typed topic")
    if not is_typed and not given.flag(_CREATE):
        alone = [f"{TOPIC_PREFIX}{name}" for name in given.topic] + (["numPartitions"] if partitions else [])
        if alone:
            raise OptionError(f"option {alone[0]!r} goes with createTopic=true: it says how a missing topic is made")
        return None
    partitions = partitions or int(given.default("numPartitions"))
    if partitions > MAX_PARTITIONS:
        raise OptionError(f"option 'numPartitions'='{partitions}': use a whole number, at most {MAX_PARTITIONS}")
    try:
        return NewTopic(partitions, check_config(given.topic), is_typed, key, timestamp)
    except ConfigError as error:
        raise OptionError(f"options 'topic.<config>': {error}") from None
