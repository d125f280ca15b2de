"""`CommitLogListener`: lag of streaming queries."""

from __future__ import annotations

import atexit
import html
import json
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_commitlog.errors import CommitLogError
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.spark.session.lag import PartitionLag, QueryLag, lag_of, prometheus
from pyspark_commitlog.spark.session.live import POINTS, Live, draw, svg
from pyspark_commitlog.text import UPDATE_ADVICE
from pyspark_commitlog.topic.lookup.fetch import timestamp_at
from pyspark_commitlog.topic.lookup.sizes import StoredSizes

log = logging.getLogger("pyspark_commitlog.spark")

#: Ended queries whose last report is kept.
_ENDED = 100
#: Longest wait for pending reports at the end of a process, ms.
_DRAIN_MS = 5000
_listeners: WeakSet[CommitLogListener] = WeakSet()
#: Spark's message for it: it asks no sink in Python.
_UPDATE_REFUSED = "commitlog does not support Update mode"


class CommitLogListener(StreamingQueryListener):
    """Listener that tracks the lag of streaming queries on commit logs.

    `spark.streams.addListener(CommitLogListener("/data/commitlog"))`. In a notebook, a cell that ends with the
    listener shows a table; `live()` shows table and plot, and updates them.

    Args:
        root: root of the topics, to look up bytes and time behind; None (default) omits them.
        storage_options: options for the root's URL, named as fsspec's.
        principal: for access rules; None takes `COMMITLOG_PRINCIPAL`.
        tell: called with each `QueryLag`; None logs a line at INFO.
    """

    def __init__(
        self,
        root: str | None = None,
        storage_options: dict[str, object] | None = None,
        *,
        principal: str | None = None,
        tell: Callable[[QueryLag], None] | None = None,
    ) -> None:
        self._log = None if root is None else Root(root, storage_options, principal)
        self._tell = tell or _log_line
        self._lags: dict[str, QueryLag] = {}
        self._ended: dict[str, QueryLag] = {}  # the newest last
        self._history: dict[str, deque[QueryLag]] = {}
        self._live: list[Live] = []
        _listeners.add(self)

    def onQueryStarted(self, event: Any) -> None:
        """Ignore the start of a query."""

    def onQueryProgress(self, event: Any) -> None:
        """Record the lag of the query that made progress."""
        self.take(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:
        """Ignore an idle query; its last report holds."""

    def onQueryTerminated(self, event: Any) -> None:
        """Keep the query's last report for `prometheus`; drop its history.

        Log advice if Spark refused output mode update.
        """
        query = str(event.id)
        if _UPDATE_REFUSED in (event.exception or ""):
            log.error("query %s: Spark offers no Python sink the output mode 'update': use %s", query, UPDATE_ADVICE)
        self._history.pop(query, None)
        last = self._lags.pop(query, None)
        if last is not None:
            self._ended.pop(query, None)
            self._ended[query] = last
        while len(self._ended) > _ENDED:
            del self._ended[next(iter(self._ended))]

    def take(self, progress: dict[str, Any]) -> None:
        """Record Spark's report of a micro-batch (`StreamingQueryProgress`, as JSON)."""
        lag = lag_of(progress)
        if lag is None:
            return
        if self._log is not None:
            sizes: dict[str, StoredSizes] = {}
            lag = replace(lag, partitions=tuple(_looked_up(self._log, row, sizes) for row in lag.partitions))
        self._lags[progress["id"]] = lag
        self._ended.pop(progress["id"], None)
        self._history.setdefault(progress["id"], deque(maxlen=POINTS)).append(lag)
        self._tell(lag)
        if self._live:
            shown = self._view()
            for live in self._live:
                live.update(shown)

    def lags(self) -> list[QueryLag]:
        """Return the lag of each running query after its last micro-batch."""
        lags = self._lags.copy()  # Spark's thread removes ended queries
        return [lags[query] for query in sorted(lags)]

    def to_dict(self) -> dict[str, Any]:
        """Return the lags in JSON form, by query."""
        return {lag.query: lag.to_dict() for lag in self.lags()}

    def prometheus(self) -> str:
        """Return the lags in Prometheus' text format.

        Includes the last 100 queries that have ended: `trigger(availableNow=True)` ends by itself.
        """
        return prometheus(self.lags(), tuple(self._ended.copy().values()))

    def live(self) -> None:
        """Show a table and a plot, updated after every micro-batch.

        Raises:
            UsageError: the `notebook` extra is not installed.
        """
        self._live.append(Live(self._view()))

    def _view(self) -> str:
        history = {query: tuple(batches) for query, batches in self._history.copy().items()}
        return self._repr_html_() + svg(draw(history))

    def _repr_html_(self) -> str:
        names = (
            "query", "batch", "arriving/s", "read/s", "topic", "partition", "offset", "high watermark", "lag",
            "bytes behind", "time behind",
        )  # fmt: skip
        head = "".join(f"<th>{name}</th>" for name in names)
        rows = (
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in _cells(lag, row))}</tr>"
            for lag in self.lags()
            for row in lag.partitions
        )
        return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _looked_up(root: Root, row: PartitionLag, sizes: dict[str, StoredSizes]) -> PartitionLag:
    """Add bytes and time behind, unless the log has changed meanwhile."""
    if not row.lag:
        return replace(row, behind_bytes=0, behind_ms=0)
    try:
        topic = root.topic(row.topic)
        if row.topic not in sizes:
            looked = StoredSizes(topic, topic.newest()[1].topic_id)
            looked.look()
            sizes[row.topic] = looked
        stored = sizes[row.topic].estimate_bytes(row.partition, row.offset, row.high_watermark)
        oldest_ms = timestamp_at(topic, row.partition, row.offset)
    except (CommitLogError, FileNotFoundError) as error:
        log.warning("topic %r partition %d: the lag is known by offsets only: %s", row.topic, row.partition, error)
        return row
    age = 0 if oldest_ms is None else max(0, topic.storage.clock.now_ms() - oldest_ms)
    return replace(row, behind_bytes=stored, behind_ms=age)


def _cells(lag: QueryLag, row: PartitionLag) -> tuple[str, ...]:
    return (
        lag.title or lag.query, f"{lag.batch}", f"{lag.input_rate:,.0f}", f"{lag.process_rate:,.0f}",
        row.topic, f"{row.partition}", f"{row.offset:,}", f"{row.high_watermark:,}", f"{row.lag:,}",
        "" if row.behind_bytes is None else f"{row.behind_bytes:,}",
        "" if row.behind_ms is None else f"{row.behind_ms / 1000:,.1f} s",
    )  # fmt: skip


def _log_line(lag: QueryLag) -> None:
    log.info(
        "query %s batch %d: %d records, %.0f/s arriving, %.0f/s read, lag %d%s",
        lag.query, lag.batch, lag.rows, lag.input_rate, lag.process_rate, lag.lag, _details(lag),
    )  # fmt: skip


def _details(lag: QueryLag) -> str:
    if not lag.lag:
        return ""
    stored, age = lag.behind_bytes, lag.behind_ms
    known = "" if stored is None or age is None else f" ({stored} bytes, {age / 1000:.1f} s behind)"
    worst = max(lag.partitions, key=lambda partition: partition.lag)
    return f"{known}, most in {worst.topic} partition {worst.partition}: {worst.lag}"


@atexit.register
def _remove_all() -> None:
    """Remove the listeners of a session that was not stopped.

    Else Spark, which ends after Python, logs a stack trace for each undeliverable report.
    """
    added = [listener for listener in list(_listeners) if "_jlistenerobj" in vars(listener)]
    if not added:
        return
    from pyspark import SparkContext  # Spark Connect's client lacks it
    from pyspark.sql import SparkSession

    context, session = SparkContext._active_spark_context, SparkSession._instantiatedSession
    if context is None or session is None:
        return
    with suppress(Exception):  # the JVM has ended
        for listener in added:
            session.streams.removeListener(listener)
        context._jsc.sc().listenerBus().waitUntilEmpty(_DRAIN_MS)
