"""Lag of a query, from Spark's report of a micro-batch. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark_commitlog.metrics import Metric
from pyspark_commitlog.spark.progress.source_offset import TOPIC_IDS, SourceOffset

#: Source of the offsets in errors.
_PROGRESS = "offsets of the query's progress"
#: Characters of the id shown for a query without a name.
_ID_SHOWN = 8
_OF_PARTITION = ("query", "source", "topic", "partition")
#: Metrics of `prometheus`, gauges of each query's last micro-batch, by name.
QUERY_METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("commitlog_query_active", ("query",), "1 while the query runs, 0 when it has ended."),
        Metric("commitlog_query_input_rows", ("query",), "Records that the micro-batch read."),
        Metric("commitlog_query_output_rows", ("query",), "Rows that it wrote; absent if the sink does not say."),
        Metric("commitlog_query_input_rows_per_second", ("query",), "Records per second that arrived before it."),
        Metric("commitlog_query_processed_rows_per_second", ("query",), "Records per second that it read."),
        Metric(
            "commitlog_query_duration_seconds",
            ("query", "phase"),
            "Time of each phase in Spark's `durationMs`: addBatch reads, writes and commits; triggerExecution is all.",
        ),
        Metric("commitlog_query_offset", _OF_PARTITION, "The next offset that the query reads."),
        Metric("commitlog_query_lag", _OF_PARTITION, "Offsets between that and the high watermark."),
        Metric("commitlog_query_behind_bytes", _OF_PARTITION, "Stored bytes that the query has not read."),
        Metric("commitlog_query_behind_seconds", _OF_PARTITION, "Age of the first record that it has not read."),
    )
}


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Position of a query in a partition.

    Attributes:
        offset: the next offset to read.
        behind_bytes: stored bytes not read; None if not looked up.
        behind_ms: age of the first record not read; 0 without one, None if not looked up.
        source: number of the source in the query: several may read one topic.
    """

    topic: str
    partition: int
    offset: int
    high_watermark: int
    behind_bytes: int | None = None
    behind_ms: int | None = None
    source: int = 0

    @property
    def lag(self) -> int:
        """Number of offsets not read yet."""
        return max(0, self.high_watermark - self.offset)


@dataclass(frozen=True, slots=True)
class QueryLag:
    """A query after a micro-batch.

    Attributes:
        query: its name, else its id.
        rows: records read from commit logs.
        input_rate: records per second, as `process_rate`.
        title: the name for display.
        output_rows: rows written; None if the sink does not say.
        durations_ms: Spark's `durationMs`: ms by phase, of which `addBatch` reads, writes and commits.
    """

    query: str
    batch: int
    at: str
    rows: int
    input_rate: float
    process_rate: float
    partitions: tuple[PartitionLag, ...]
    title: str = ""
    output_rows: int | None = None
    durations_ms: Mapping[str, int] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """Total lag of all partitions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def behind_bytes(self) -> int | None:
        """Stored bytes not read; None unless known of all partitions."""
        known = [partition.behind_bytes for partition in self.partitions if partition.behind_bytes is not None]
        return sum(known) if len(known) == len(self.partitions) else None

    @property
    def behind_ms(self) -> int | None:
        """Age of the oldest unread record; None unless known everywhere."""
        known = [partition.behind_ms for partition in self.partitions if partition.behind_ms is not None]
        return max(known, default=0) if len(known) == len(self.partitions) else None

    def of_topic(self, topic: str) -> QueryLag:
        """Return the same micro-batch with the partitions of one topic alone."""
        return replace(self, partitions=tuple(each for each in self.partitions if each.topic == topic))

    def to_dict(self) -> dict[str, Any]:
        """Lag in JSON form."""
        return {
            "query": self.query,
            "batch": self.batch,
            "timestamp": self.at,
            "rows": self.rows,
            "numOutputRows": self.output_rows,
            "inputRowsPerSecond": self.input_rate,
            "processedRowsPerSecond": self.process_rate,
            "durationMs": dict(self.durations_ms),
            "lag": self.lag,
            "topics": {
                topic: {"lag": of.lag, "behindBytes": of.behind_bytes, "behindMs": of.behind_ms}
                for topic, of in ((each.topic, self.of_topic(each.topic)) for each in self.partitions)
            },
            "partitions": [
                {
                    "source": partition.source,
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "offset": partition.offset,
                    "highWatermark": partition.high_watermark,
                    "lag": partition.lag,
                    "behindBytes": partition.behind_bytes,
                    "behindMs": partition.behind_ms,
                }
                for partition in self.partitions
            ],
        }


def lag_of(progress: Mapping[str, Any]) -> QueryLag | None:
    """Lag in a `StreamingQueryProgress`; None without a commit log."""
    sources = {number: source for number, source in enumerate(progress["sources"]) if _is_ours(source)}
    if not sources:
        return None
    partitions = tuple(sorted(_partitions(sources), key=lambda each: (each.topic, each.partition, each.source)))
    name, topics = progress.get("name"), ", ".join(dict.fromkeys(partition.topic for partition in partitions))
    return QueryLag(
        query=name or progress["id"],
        batch=progress["batchId"],
        at=progress["timestamp"],
        rows=sum(source["numInputRows"] for source in sources.values()),
        input_rate=sum(_number(source.get("inputRowsPerSecond")) for source in sources.values()),
        process_rate=sum(_number(source.get("processedRowsPerSecond")) for source in sources.values()),
        partitions=partitions,
        title=name or f"{topics} ({progress['id'][:_ID_SHOWN]})",
        output_rows=_output_rows(progress.get("sink")),
        durations_ms=progress.get("durationMs", {}),
    )


def _output_rows(sink: Mapping[str, Any] | None) -> int | None:
    rows = (sink or {}).get("numOutputRows", -1)  # -1: the sink does not say
    return rows if rows >= 0 else None


def _number(rate: float | None) -> float:
    return 0.0 if rate is None else float(rate)


def _is_ours(source: Mapping[str, Any]) -> bool:
    end = _offset(source.get("endOffset"))
    return end is not None and TOPIC_IDS in end


def _offset(offset: object) -> dict[str, Any] | None:
    parsed = json.loads(offset) if isinstance(offset, str) and offset.startswith("{") else offset
    return parsed if isinstance(parsed, dict) else None


def _partitions(sources: Mapping[int, Mapping[str, Any]]) -> Iterable[PartitionLag]:
    for number, source in sources.items():
        end, latest = _offset(source["endOffset"]) or {}, _offset(source.get("latestOffset")) or {}
        high = SourceOffset.from_json(latest, _PROGRESS).offsets if latest else {}
        for place, offset in SourceOffset.from_json(end, _PROGRESS).offsets.items():
            most = max(offset, high.get(place, offset))
            yield PartitionLag(place.topic, place.partition, offset, most, source=number)


def prometheus(queries: Iterable[QueryLag], ended: Iterable[QueryLag] = ()) -> str:
    """Lag of queries in Prometheus' text format.

    `ended` are queries, the newest last: a name is shown once, by the running query or else the newest.
    """
    running = list(queries)
    newest = {query.query: (query, 0) for query in ended} | {query.query: (query, 1) for query in running}
    rows: dict[str, list[str]] = {name: [] for name in QUERY_METRICS}
    for query, active in newest.values():
        for name, sample in _samples(query, active):
            rows[name].append(sample)
    return "".join(
        f"{line}\n"
        for name, samples in rows.items()
        if samples
        for line in (
            f"# HELP {name} {QUERY_METRICS[name].help}",
            f"# TYPE {name} gauge",
            *(name + row for row in samples),
        )
    )


def _samples(query: QueryLag, active: int) -> Iterator[tuple[str, str]]:
    own = f'query="{_escaped(query.query)}"'
    yield "commitlog_query_active", f"{{{own}}} {active}"
    yield "commitlog_query_input_rows", f"{{{own}}} {query.rows}"
    if query.output_rows is not None:
        yield "commitlog_query_output_rows", f"{{{own}}} {query.output_rows}"
    yield "commitlog_query_input_rows_per_second", f"{{{own}}} {query.input_rate}"
    yield "commitlog_query_processed_rows_per_second", f"{{{own}}} {query.process_rate}"
    for phase, took_ms in query.durations_ms.items():
        yield "commitlog_query_duration_seconds", f'{{{own},phase="{_escaped(phase)}"}} {took_ms / 1000}'
    for partition in query.partitions:
        of = f'source="{partition.source}",topic="{partition.topic}",partition="{partition.partition}"'
        labels = f"{{{own},{of}}}"
        yield "commitlog_query_offset", f"{labels} {partition.offset}"
        yield "commitlog_query_lag", f"{labels} {partition.lag}"
        if partition.behind_bytes is not None:
            yield "commitlog_query_behind_bytes", f"{labels} {partition.behind_bytes}"
        if partition.behind_ms is not None:
            yield "commitlog_query_behind_seconds", f"{labels} {partition.behind_ms / 1000}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
