"""How far a query is behind its topics, from what Spark reports of a micro-batch. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_commitlog.spark.read.source_offset import TOPIC_IDS, SourceOffset

#: What errors call the offsets that Spark reports.
_PROGRESS = "offsets of the query's progress"
#: Of the id of a query without a name, characters.
_ID_SHOWN = 8
#: The metrics of ``prometheus``, and what they mean.
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
    """Where a query is in a partition: the next offset that it reads, the high watermark, and what lies between.

    ``behind_bytes`` are the stored bytes that it has not read, ``behind_ms`` the age of the first such record: 0 where
    there is none, None where nobody looked. ``source`` is the number of the source that reads it, among all of the
    query's, as in its checkpoint: several may read one topic.
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
        """Return how many offsets are not read yet."""
        return max(0, self.high_watermark - self.offset)


@dataclass(frozen=True, slots=True)
class QueryLag:
    """A query after a micro-batch: rates in records per second, and its partitions, sorted.

    ``query`` is its name, or its id where it has none; ``title`` what people read: the name, or its topics and the
    first characters of the id.
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
        """Return the lag of all partitions together."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def behind_bytes(self) -> int | None:
        """Return the stored bytes that it has not read; None where they are not known of all partitions."""
        known = [partition.behind_bytes for partition in self.partitions if partition.behind_bytes is not None]
        return sum(known) if len(known) == len(self.partitions) else None

    @property
    def behind_ms(self) -> int | None:
        """Return the age of the oldest first record not read; None where it is not known of all partitions."""
        known = [partition.behind_ms for partition in self.partitions if partition.behind_ms is not None]
        return max(known, default=0) if len(known) == len(self.partitions) else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
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
    """Return the lag in a ``StreamingQueryProgress``, as JSON; None where no source of the query is a commit log."""
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
    """Spark leaves rates out where it has none."""
    return 0.0 if rate is None else float(rate)


def _is_ours(source: Mapping[str, Any]) -> bool:
    end = _offset(source.get("endOffset"))
    return end is not None and TOPIC_IDS in end


def _offset(offset: object) -> dict[str, Any] | None:
    """Spark reports an offset as JSON, or as the text of it."""
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
    """Return the lag of queries in Prometheus' text format.

    ``ended`` are those that no longer run, the newest last: of those with one name the newest is shown, and none whose
    name a running one has.
    """
    running = list(queries)
    newest = {query.query: (query, 0) for query in ended} | {query.query: (query, 1) for query in running}
    rows: dict[str, list[str]] = {name: [] for name in _METRICS}
    for query, active in newest.values():
        own = f'query="{_escaped(query.query)}"'
        rows["commitlog_query_active"].append(f"{{{own}}} {active}")
        rows["commitlog_query_input_rows_per_second"].append(f"{{{own}}} {query.input_rate}")
        rows["commitlog_query_processed_rows_per_second"].append(f"{{{own}}} {query.process_rate}")
        for partition in query.partitions:
            of = f'source="{partition.source}",topic="{partition.topic}",partition="{partition.partition}"'
            labels = f"{{{own},{of}}}"
            rows["commitlog_query_offset"].append(f"{labels} {partition.offset}")
            rows["commitlog_query_lag"].append(f"{labels} {partition.lag}")
            if partition.behind_bytes is not None:
                rows["commitlog_query_behind_bytes"].append(f"{labels} {partition.behind_bytes}")
            if partition.behind_ms is not None:
                rows["commitlog_query_behind_seconds"].append(f"{labels} {partition.behind_ms / 1000}")
    lines = [
        line
        for name, samples in rows.items()
        if samples
        for line in (f"# HELP {name} {_METRICS[name]}", f"# TYPE {name} gauge", *(name + row for row in samples))
    ]
    return "\n".join(lines) + "\n" if lines else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
