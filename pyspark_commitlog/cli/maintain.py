"""`commitlog maintain`: rounds over all topics, once or as a service."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from pyspark_commitlog.broker_config import check_interval_ms
from pyspark_commitlog.cli.common.arguments import (
    AsJson,
    Root,
    Topics,
    opened,
)
from pyspark_commitlog.cli.common.background_catch_up import CatchingUp
from pyspark_commitlog.cli.common.endings import (
    EachAlone,
    complain,
    print_lines,
    stopped_by_signals,
)
from pyspark_commitlog.cli.common.output import (
    group_maintained_lines,
    maintained_lines,
)
from pyspark_commitlog.cli.common.progress import with_progress
from pyspark_commitlog.errors import (
    NotFoundError,
    StorageDeniedError,
    UnsupportedError,
)
from pyspark_commitlog.model import Progress
from pyspark_commitlog.text import counted

if TYPE_CHECKING:
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.api.maintenance import Failure, Maintenance
    from pyspark_commitlog.api.results import Maintained, MaintainedGroup


def maintain(
    root: Root,
    topic: Topics = None,
    once: Annotated[bool, typer.Option("--once", help="One round, then end.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            help="Seconds from one round to the next; else what log.retention.check.interval.ms says, a default of the "
            "root.",
            min=0.1,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Settle, retain, compact, mend indexes and remove what nothing needs, of all topics, every 5 minutes.

    Safe twice at once and beside readers and writers. SIGTERM and Ctrl-C end it at the next step. With --once
    the exit code is 1 too if another process has held a topic's lock for 10 minutes: nothing is settled then.
    Where the first round can do nothing at all, as without a root or permission, it ends as with --once.
    """
    stop = stopped_by_signals()
    with opened(root) as log:
        from pyspark_commitlog.api.maintenance import Maintenance

        new_round = partial(_MaintainRound, Maintenance(log.root), stop, as_json=as_json)
        last = ends = new_round().run(topic)
        with CatchingUp(new_round().catch_up, stop) as beside:
            while not (once or ends.is_hopeless or stop.is_set()):
                beside.go_on()
                seconds = _pause(log, every)
                if not as_json:
                    complain(f"{last.summary}; the next round begins in {seconds:g} s")
                if not stop.wait(seconds):
                    last = new_round().run(topic)
            if once:
                ends.catch_up()
        raise typer.Exit(ends.code if once or ends.is_hopeless else 0)


def _pause(log: CommitLog, every: float | None) -> float:
    """Return how long to wait for the next round, seconds; without `every` the root's default, asked each time."""
    if every is not None:
        return every
    given: Mapping[str, str] = {}
    with suppress(Exception):  # the next round reports it
        given = log.config.get()
    return check_interval_ms(given) / 1000


#: A process that holds the lock for so long is stopped, or hangs: no step of ours takes it.
_STUCK_MS = 600_000


class _StoppedError(Exception):
    """A signal came: the round ends between two steps."""


class _MaintainRound(EachAlone):
    """One round over topics and groups, reported."""

    def __init__(self, maintenance: Maintenance, stop: threading.Event, *, as_json: bool) -> None:
        super().__init__()
        self._maintenance, self._stop, self._as_json = maintenance, stop, as_json
        self._done, self._mendable = 0, False

    @property
    def summary(self) -> str:
        """Return how many topics were maintained."""
        return f"maintained {counted(self._done, 'topic')}"

    @property
    def is_hopeless(self) -> bool:
        """Return whether no topic was maintained, and no other round will do it: no root, no permission."""
        return self.code > 0 and not self._done and not self._mendable

    def run(self, only: list[str] | None) -> _MaintainRound:
        """Maintain topics, and groups if no topics are named; return this."""
        names = only or self.ask(lambda _: self._maintenance.root.every_name())
        if names is None:
            return self
        with suppress(_StoppedError):
            for ended in self._maintenance.round(names, self._with_progress(names), groups=not only):
                self._tell(ended)
                if self._stop.is_set():
                    break
        return self

    def catch_up(self) -> None:
        """Catch up roots that lagged in the round."""
        self.ask(lambda _: self._maintenance.replicas.catch_up(self._stop.is_set))

    def report_failure(self, error: Exception, what: str = "") -> None:
        """Report a failure, and note whether a round may mend it."""
        super().report_failure(error, what)
        self._mendable = self._mendable or not isinstance(error, NotFoundError | StorageDeniedError | UnsupportedError)

    def _with_progress(self, names: list[str]) -> Iterator[tuple[str, Progress]]:
        for name, show in with_progress(names):
            if self._stop.is_set():
                raise _StoppedError
            yield name, partial(self._show, show)

    def _show(self, show: Progress, what: str, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _StoppedError
        show(what, done, total)

    def _tell(self, ended: Maintained | MaintainedGroup | Failure) -> None:
        from pyspark_commitlog.api.maintenance import Failure
        from pyspark_commitlog.api.results import Maintained

        if isinstance(ended, Failure):
            self.report_failure(ended.error, ended.what)
            return
        if isinstance(ended, Maintained):
            self._done += 1
            if ended.busy_ms >= _STUCK_MS:
                self.found_faults()
            lines = maintained_lines(ended)
        else:
            lines = group_maintained_lines(ended)
        print_lines([json.dumps(asdict(ended))] if self._as_json else lines)
