"""The steps of `maintain` on one topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pyspark_commitlog.errors import TopicChangedError
from pyspark_commitlog.failures import Failures
from pyspark_commitlog.model import Progress, Watched, watched
from pyspark_commitlog.storage import Holder
from pyspark_commitlog.topic.collect.collect import Collected, collect, remove_former, sweep, sweep_tables
from pyspark_commitlog.topic.collect.collect_metadata import collect_decided
from pyspark_commitlog.topic.collect.sweep_objects import sweep_objects
from pyspark_commitlog.topic.compaction.compact import Compacted, compact, idle_reasons
from pyspark_commitlog.topic.maintain.check_indexes import recover
from pyspark_commitlog.topic.maintain.last_maintained import note_maintained
from pyspark_commitlog.topic.maintain.maintenance_runs import MaintenanceRun, note_run
from pyspark_commitlog.topic.maintain.retention import Retained, collect_segments, retain
from pyspark_commitlog.topic.maintain.settle import settle_on
from pyspark_commitlog.topic.settle.merge import NOTHING_MERGED, Merged, merge
from pyspark_commitlog.topic.settle.settle_run import Settled
from pyspark_commitlog.topic.topic_log import TopicLog

#: Seconds after which a settling run publishes and reports progress.
SETTLE_SECONDS = 5.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Maintained:
    """Result of `Topic.maintain` on one topic.

    Attributes:
        rebuilt_indexes: number of segments.
        swept_files, merged: without append only.
        not_compacted: reason -> partitions, if nothing was compacted.
        busy, busy_ms: holder of the settlers' lock that a step met, and for how long.
    """

    topic: str
    settled_records: int
    retained: Retained
    compacted: tuple[Compacted, ...]
    collected: Collected
    swept_chunks: int
    removed_lives: int
    rebuilt_indexes: int = 0
    swept_files: int = 0
    busy: Holder | None = None
    busy_ms: int = 0
    merged: Merged = NOTHING_MERGED
    not_compacted: dict[str, int] = field(default_factory=dict)


def maintain_topic(topic: TopicLog, progress: Progress) -> Maintained:
    """Maintain a topic; see `Topic.maintain`."""
    with topic.in_steps():
        return _maintain(topic, progress)


def _maintain(topic: TopicLog, progress: Progress) -> Maintained:
    stored = topic.journal.newest()
    if stored is not None:
        topic.journal.assure(stored)  # rule R5: its former incarnations are acted upon
        if topic.state_of(stored.entry).deleted:
            collect_decided(topic)
            return Maintained(topic.name, 0, Retained({}), (), Collected(), 0, remove_former(topic, stored))
    stored, state = topic.newest_at(stored, None)
    topic_id, steps = state.topic_id, _Steps(watched(progress))
    topic.busy = None
    settled = steps.run("settle", lambda: _settle_all(topic, topic_id, steps.progress), Settled(None))
    steps.failures.extend(settled.failures)
    merged = NOTHING_MERGED
    if not topic.storage.can_append:
        merged = steps.run("merge", lambda: merge(topic, topic_id), NOTHING_MERGED)
    retained = steps.run("retain", lambda: retain(topic, topic_id), Retained({}))
    rebuilt = steps.run("check indexes", lambda: recover(topic, topic_id), 0)
    compacted = steps.run("compact", lambda: compact(topic, topic_id, progress=steps.progress), list[Compacted]())
    idle = dict[str, int]()
    if not (compacted or topic.busy):
        idle = steps.run("compact", lambda: idle_reasons(topic, topic_id), idle)
    swept = steps.run("sweep", lambda: sweep(topic, topic_id), 0)
    files = steps.run("sweep files", lambda: _sweep_files(topic, topic_id), 0)
    collected = steps.run("collect", lambda: collect(topic, topic_id, thorough=True), Collected())
    segments = steps.run("collect segments", lambda: collect_segments(topic, topic_id), 0)
    steps.run("collect decided entries", lambda: collect_decided(topic), 0)
    removed = steps.run("remove former incarnations", lambda: remove_former(topic, stored), 0)
    done = Maintained(
        topic=topic.name,
        settled_records=settled.records,
        retained=retained,
        compacted=tuple(compacted),
        collected=replace(collected, segments=collected.segments + segments),
        swept_chunks=swept,
        swept_files=files,
        removed_lives=removed,
        rebuilt_indexes=settled.rebuilt + rebuilt,
        busy=topic.busy,
        busy_ms=_held_ms(topic),
        merged=merged,
        not_compacted=idle,
    )
    note_maintained(topic, topic_id)
    note_run(topic, topic_id, _run_of(done, topic.storage.clock.now_ms(), len(steps.failures)))
    steps.failures.raise_if_any(f"topic {topic.name!r}: {len(steps.failures)} steps failed")
    return done


def _run_of(done: Maintained, now_ms: int, failures: int) -> MaintenanceRun:
    gone = done.collected
    removed = gone.chunks + gone.entries + gone.settle_entries + gone.files + gone.segments
    return MaintenanceRun(
        now_ms,
        settled_records=done.settled_records,
        merges=done.merged.merges,
        deleted_records=sum(after - before for before, after in done.retained.log_start.values()),
        released_segments=done.retained.segments,
        compacted_segments=sum(compacted.segments[0] for compacted in done.compacted),
        rebuilt_indexes=done.rebuilt_indexes,
        removed_files=removed + done.swept_chunks + done.swept_files,
        removed_incarnations=done.removed_lives,
        failures=failures,
    )


def _sweep_files(topic: TopicLog, topic_id: str) -> int:
    swept = None if topic.storage.can_append else sweep_objects(topic, topic_id)
    return 0 if swept is None else swept + sweep_tables(topic, topic_id)


def _held_ms(topic: TopicLog) -> int:
    known = topic.busy is not None and topic.busy.since_ms >= 0
    return max(0, topic.storage.clock.now_ms() - topic.busy.since_ms) if topic.busy is not None and known else 0


def _settle_all(topic: TopicLog, topic_id: str, progress: Progress) -> Settled:
    _, state = topic.newest(topic_id)
    _, before = topic.settled(topic_id)
    due = sum(end - before.partition(partition).end_offset for partition, end in enumerate(state.log_end))
    moved, rebuilt = 0, 0
    while True:
        done = settle_on(topic, topic_id, budget_seconds=SETTLE_SECONDS)
        moved, rebuilt = moved + done.records, rebuilt + done.rebuilt
        if done.sequence is None or done.complete:
            return replace(done, records=moved, rebuilt=rebuilt)
        progress("settle", moved, max(moved, due))


class _Steps:
    """Runs all steps despite failures: later ones may free disk."""

    def __init__(self, progress: Watched) -> None:
        self.progress, self.failures = progress, Failures(progress, TopicChangedError)

    def run(self, name: str, step: Callable[[], _T], otherwise: _T) -> _T:
        """Return a step's result, or `otherwise` if it fails."""
        self.progress(name, 0, 1)
        with self.failures.collected():
            return step()
        return otherwise
