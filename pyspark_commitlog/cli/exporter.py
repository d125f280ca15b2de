"""`commitlog metrics`: lag, offsets and what waits, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.cli.common.arguments import Root, listening, opened, parse_listen
from pyspark_commitlog.cli.common.endings import complain, print_lines, stopped_by_signals
from pyspark_commitlog.cli.common.metric_samples import Sample, group_samples, topic_samples
from pyspark_commitlog.errors import (
    CommitLogError,
    UnknownGroupError,
    UnknownTopicError,
    UnsupportedError,
    UsageError,
)
from pyspark_commitlog.failures import ErrorBoundary, Failures
from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.storage.process import results_of

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.groups.consumer_groups import Groups
    from pyspark_commitlog.groups.descriptions import GroupDescription, GroupPartition

#: Names of former topics and groups, and of what others put there, are no failures.
_ABSENT = (UnknownTopicError, UnknownGroupError, UsageError)


def metrics(
    root: Root,
    listen: Annotated[
        str,
        typer.Option(metavar="ADDRESS:PORT", help="Where to serve them; port 0: any that is free. There is no login."),
    ] = "127.0.0.1:9308",
    once: Annotated[bool, typer.Option("--once", help="Print them, then end.")] = False,
    lag_seconds: Annotated[
        bool,
        typer.Option(
            "--lag-seconds",
            help="Lag of groups in seconds too: reads a record of each partition that a group lags in.",
        ),
    ] = False,
) -> None:
    """Serve metrics of topics and groups to Prometheus, as OpenMetrics, until SIGTERM or Ctrl-C.

    Each scrape asks the root; scrapes at the same time share the answers. A topic or group that can't be
    described is counted, reported on stderr, and stops no other; with --once the exit code is 1 then.
    """
    with opened(root) as log:
        address = parse_listen(listen)
        try:
            from pyspark_commitlog.cli.common.scrape_server import OPEN_METRICS, Exposition, ScrapeServer, SharedCall
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                f"a package is missing ({error}): pip install 'pyspark-commitlog[cli,metrics]'"
            ) from error
        log.root.check()  # without a root there is nothing to serve
        collector = RootCollector(log, lag_seconds=lag_seconds)
        if once:
            text, _ = Exposition(collector.collect()).encode(OPEN_METRICS)
            print_lines(text.decode().removesuffix("\n").split("\n"))
            raise typer.Exit(1 if collector.failed else 0)
        stop, collected = stopped_by_signals(), SharedCall(lambda: Exposition(collector.collect()))
        with listening(address):
            server = ScrapeServer(*address, lambda accept: collected().encode(accept))
        complain(f"serving the metrics of {log.url} at {server.url}")
        server.serve_until(stop)


class RootCollector:
    """Describes all topics and groups of a log as samples.

    Attributes:
        failed: what failed in the last collection -> its error. Each is reported on stderr once while it lasts.
    """

    def __init__(self, log: CommitLog, *, lag_seconds: bool) -> None:
        self._log, self._lag_seconds = log, lag_seconds
        self.failed: dict[str, str] = {}

    def collect(self) -> list[Sample]:
        """Return the samples of all that can be described, and how much can't."""
        root = self._log.root
        began, samples, faults = root.storage.clock.monotonic(), list[Sample](), Failures()
        failed: dict[str, str] = {}
        with faults.collected():
            root.check()
            samples += self._described("topic", root.listed(), self._topic, failed)
            groups = self._log.groups
            samples += self._described("group", groups.list(), partial(self._group, groups), failed)
        counts = Counter(what.partition(" ")[0] for what in failed)
        values = {
            "commitlog_up": not faults,
            "commitlog_failed_topics": counts["topic"],
            "commitlog_failed_groups": counts["group"],
            "commitlog_collection_duration_seconds": root.storage.clock.monotonic() - began,
        }
        self._report(failed | ({root.url: str(faults[0])} if faults else {}))
        return [*samples, *(Sample(name, (), float(value)) for name, value in values.items())]

    def _described(
        self, kind: str, names: Sequence[str], of: Callable[[str], Iterable[Sample]], failed: dict[str, str]
    ) -> list[Sample]:
        def described(name: str) -> list[Sample]:
            with ErrorBoundary(lambda error: _note(failed, f"{kind} {name}", error)):
                return list(of(name))
            return []

        found = results_of(described, names, self._log.root.storage.requests_at_once)
        return [sample for samples in found for sample in samples]

    def _topic(self, name: str) -> Iterable[Sample]:
        return topic_samples(self._log.topic(name).describe())

    def _group(self, groups: Groups, name: str) -> Iterable[Sample]:
        group = groups.describe(name)
        return group_samples(group, self._lags_ms(group) if self._lag_seconds else {})

    def _lags_ms(self, group: GroupDescription) -> dict[TopicPartition, int]:
        rows = [row for row in group.partitions if row.offset is not None]
        ages = results_of(self._age_ms, rows, self._log.root.storage.requests_at_once)
        found = zip(rows, ages, strict=True)
        return {TopicPartition(row.topic, row.partition): age for row, age in found if age is not None}

    def _age_ms(self, row: GroupPartition) -> int | None:
        """Age of the first record that is not committed; 0 without one, None if it can't be read."""
        if not row.lag:
            return 0
        first = max(row.offset or 0, row.log_start_offset)
        try:
            records = self._log.topic(row.topic).read(row.partition, first)
        except (CommitLogError, OSError):  # retention may have deleted it meanwhile
            return None
        now_ms = self._log.root.storage.clock.now_ms()
        return max(0, now_ms - records[0].timestamp_us // 1000) if records else 0

    def _report(self, failed: dict[str, str]) -> None:
        for what, why in failed.items():
            if self.failed.get(what) != why:
                complain(f"{what}: error: {why}")
        self.failed = failed


def _note(failed: dict[str, str], what: str, error: Exception) -> None:
    if not isinstance(error, _ABSENT):
        failed[what] = str(error)
