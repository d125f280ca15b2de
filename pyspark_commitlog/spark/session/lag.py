"""Lag of a query, from Spark's report of a micro-batch. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_commitlog.spark.progress.source_offset import TOPIC_IDS, SourceOffset

#: Source of the offsets in errors.
_PROGRESS = "offsets of the query's progress"
#: Characters of the id shown for a query without a name.
_ID_SHOWN = 8
#: Metrics of `prometheus` with their help texts.
_METRICS = {
    "commitlog_query_active": "1 while the query runs, 0 when it has ended: all else is of its last micro-batch.",
    "commitlog_query_input_rows_per_second": "Records per second that arrived before the last micro-batch.",
    "commitlog_query_processed_rows_per_second": "Records per second that the last micro-batch read.",
    "commitlog_query_offset": "The next offset that the query reads.",
    "commitlog_query_lag": "Offsets between that and the high watermark.",
    "commitlog_query_behind_bytes": "Stored bytes that the query has not read.",
    "commitlog_query_behind_seconds": "Age of the first record that the query has not read.",
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
        input_rate: records per second, as `process_rate`.
        title: the name for display.
    """

    query: str
    batch: int
    at: str
    rows: int
    input_rate: float
    process_rate: float
    partitions: tuple[PartitionLag, ...]
    title: str = ""

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

    def to_dict(self) -> dict[str, Any]:
        """Lag in JSON form."""
        return {
            "query": self.query,
            "batch": self.batch,
            "timestamp": self.at,
            "rows": self.rows,
            "inputRowsPerSecond": self.input_rate,
            "processedRowsPerSecond": self.process_rate,
            "lag": self.lag,
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
    )


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
    rows: dict[str, list[str]] = {name: [] for name in _METRICS}
    for query, active in newest.values():
        for name, sample in _samples(query, active):
            rows[name].append(sample)
    return "".join(
        f"{line}\n"
        for name, samples in rows.items()
        if samples
        for line in (f"# HELP {name} {_METRICS[name]}", f"# TYPE {name} gauge", *(name + row for row in samples))
    )


def _samples(query: QueryLag, active: int) -> Iterator[tuple[str, str]]:
    own = f'query="{_escaped(query.query)}"'
    yield "commitlog_query_active", f"{{{own}}} {active}"
    yield "commitlog_query_input_rows_per_second", f"{{{own}}} {query.input_rate}"
    yield "commitlog_query_processed_rows_per_second", f"{{{own}}} {query.process_rate}"
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
