"""Options of the source and the sink: names, defaults, and what docs/reference says of them."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.config import PRINCIPAL_VARIABLE
from pyspark_commitlog.storage.pace import DEFAULT_IDLE_POLL_INTERVAL_MS, MAX_IDLE_POLL_INTERVAL_MS


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the source or the sink.

    Attributes:
        name: as users write it; it is looked up without case.
        doc: Markdown for docs/reference.
        default: its text if it is not given; empty: it has none.
        without: Markdown for what holds without it, if it has no default.
    """

    name: str
    doc: str
    default: str = ""
    without: str = ""


_PRINCIPAL = f"`{PRINCIPAL_VARIABLE}`"
_STORAGE = Option(
    "storage.<option>",
    "for a root that is a URL, under the names of fsspec's filesystems ([object stores](../how-to/object-stores.md)); "
    "as `storage_options` of `CommitLog`. With a plain path it is an error",
)
_ONE_OF = "required: one of the three"

SOURCE_OPTIONS = (
    Option("path", "the [root](#the-root); also what `load(…)` is given", without="required"),
    Option("subscribe", "topics, separated by commas", without=_ONE_OF),
    Option("subscribePattern", "a regular expression for whole names of topics", without=_ONE_OF),
    Option("assign", 'partitions: `{"flights": [0, 1]}`', without=_ONE_OF),
    Option(
        "startingOffsets",
        "`earliest`, `latest` (streams only), `group` (where `groupId` is, earliest where it has nothing committed), "
        "or "
        'JSON `{"flights": {"0": 42, "1": -2}}` (-2 earliest, -1 latest). JSON may leave partitions out: they start '
        "at the earliest. Counts for a new query only",
        without="batch: earliest, stream: latest",
    ),
    Option(
        "endingOffsets",
        "`latest` or JSON; partitions left out end at the latest. A stream reads no further, over restarts too: a "
        "bounded backfill with `trigger(availableNow=True)`; under other triggers the query waits there",
        without="latest",
    ),
    Option(
        "startingTimestamp",
        "a [time](#times) for all partitions: start at the first record that is not earlier. Goes before "
        "`startingOffsets`, as the next one",
    ),
    Option("startingOffsetsByTimestamp", 'the same by partition, as JSON: `{"flights": {"0": "2014-01-01"}}`'),
    Option(
        "startingOffsetsByTimestampStrategy",
        "where all records of a partition are earlier: `error`, or start at the `latest`",
        "error",
    ),
    Option("endingTimestamp", "end before the first record that is not earlier; streams too"),
    Option("endingOffsetsByTimestamp", "the same by partition, as JSON"),
    Option(
        "maxOffsetsPerTrigger",
        "records per micro-batch, shared out by backlog so that no partition starves",
        without="no limit",
    ),
    Option(
        "minOffsetsPerTrigger",
        "put a micro-batch off until so many records wait. The first one of a run does not wait, and "
        "`Trigger.AvailableNow` never does",
        without="no limit",
    ),
    Option(
        "maxTriggerDelay",
        "how long after the micro-batch before it is put off at most, once a record waits: `15m`, `30s`, `500ms`",
        "15m",
    ),
    Option(
        "maxBytesPerTrigger",
        "stored bytes per micro-batch, about, shared out by the bytes that wait; see below",
        without="no limit",
    ),
    Option(
        "minPartitions",
        "cut the largest ranges until there are so many Spark partitions",
        without="one per topic-partition",
    ),
    Option("maxRecordsPerPartition", "no Spark partition with more offsets than this", without="no limit"),
    Option("includeHeaders", "adds the `headers` column", "false"),
    Option(
        "columns",
        "the columns to read, in that order: `value, offset`; `*` is all but `headers`, of [typed "
        "topics](../how-to/typed-topics.md) all declared ones",
        without="`*`",
    ),
    Option("failOnDataLoss", "`false`: where records are gone, warn and go on; see below", "true"),
    Option(
        "groupId",
        "a streaming query commits its progress to this group; its checkpoint stays what it restarts from. Batch reads "
        "commit nothing",
    ),
    Option("kafka.group.id", "the same, under Kafka's name"),
    Option(
        "groupShare",
        "`1/3`: of each topic only the partitions whose number divided by 3 leaves 0; `2/3` and `3/3` are for the "
        "group's other queries",
        without="all",
    ),
    Option("pushDownPredicate", "batch only: filters choose what is read; see [below](#filters-that-prune)", "false"),
    Option(
        "principal",
        "the principal that reads, where the root has [access rules](../how-to/access.md)",
        without=_PRINCIPAL,
    ),
    Option(
        "view",
        "batch only: `latest` gives the newest record of each key up to the end, without those whose value is null: "
        "[the topic as a table](#a-topic-as-a-table)",
        without="every record",
    ),
    Option(
        "filter",
        "a condition in SQL; only rows for which it is true are returned, by batch reads and streams; see "
        "[below](#filters-in-the-source)",
        without="every row",
    ),
    Option(
        "idlePollIntervalMs",
        "streams on object stores and unknown mounts: mean interval in milliseconds, for each topic, between requests "
        "that find nothing. So a record is seen about so late after a silence, and at once where records flow; 1 to "
        f"{MAX_IDLE_POLL_INTERVAL_MS}",
        f"{DEFAULT_IDLE_POLL_INTERVAL_MS}",
    ),
    _STORAGE,
)

SINK_OPTIONS = (
    Option("path", "the root; also what `save(…)` and `start(…)` are given", without="required"),
    Option("topic", "the topic; overrides a `topic` column", without="the column"),
    Option(
        "acks",
        "`all` or `1` (the same while a root has one replica); `0`: write tasks don't wait for the disk, and power "
        "loss may take records that were committed (on local disks; elsewhere, and with replicas, `0` is as `1`)",
        "all",
    ),
    Option("partitioner", "for records without key: `sticky` or `roundrobin`", "sticky"),
    Option(
        "txnAppId",
        "with `txnVersion`, of a batch write: a version that was committed is not written again (with a warning where "
        "its records are others, by number or checksum); a lower one is an error. Works in `foreachBatch` with the "
        "batch id as version",
        without="at least once",
    ),
    Option("txnVersion", "the version of this write: a whole number that grows"),
    Option(
        "skipOlderBatches",
        "turns the error of a lower version (and a stream's for a batch id below its last) into a skip with a warning",
        "false",
    ),
    Option(
        "createTopic",
        "`true` makes topics that are missing (and the root), `typed` a missing topic with the DataFrame's columns "
        "([typed topics](../how-to/typed-topics.md)); [see below](#new-topics)",
        "false",
    ),
    Option("numPartitions", "with `createTopic`: partitions of what it makes", "1"),
    Option("keyColumn", "with `createTopic=typed`: the column that is the records' key", without="none"),
    Option("timestampColumn", "with `createTopic=typed`: the column that is the records' timestamp", without="none"),
    Option(
        "mergeSchema",
        "`true`: a typed topic's columns become those of the DataFrame, too: [added, and "
        "widened](../how-to/typed-topics.md#change-the-columns)",
        "false",
    ),
    Option(
        "topic.<config>",
        'with `createTopic`: a config of what it makes, as in `.option("topic.retention.ms", -1)`',
        without="[defaults](topic-configs.md)",
    ),
    Option(
        "compression",
        "`none`, `lz4` or `zstd`, unless the topic's `compression.type` is set to another than `producer`",
        without="the topic's `compression.type`",
    ),
    Option(
        "principal",
        "the principal that writes, where the root has [access rules](../how-to/access.md)",
        without=_PRINCIPAL,
    ),
    _STORAGE,
)
