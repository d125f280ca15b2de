"""What a topic's last maintenance runs did, for people: a small advisory file."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from pyspark_commitlog.errors import CommitLogError, CorruptionError
from pyspark_commitlog.format.shape import Shape, Whole, decode
from pyspark_commitlog.storage.base import write_whole
from pyspark_commitlog.topic.topic_log import TopicLog

#: Runs that are kept, and more bytes than those take.
MOST_RUNS, _MOST_BYTES = 20, 2**16


class MaintenanceRun(Shape):
    """Numbers of what a run did, and its end in ms."""

    at_ms: Whole
    settled_records: Whole = 0
    merges: Whole = 0
    deleted_records: Whole = 0
    released_segments: Whole = 0
    compacted_segments: Whole = 0
    rebuilt_indexes: Whole = 0
    removed_files: Whole = 0
    removed_incarnations: Whole = 0
    failures: Whole = 0

    @property
    def only_failed(self) -> bool:
        """Whether nothing was done, and something failed."""
        return self.failures > 0 and self == MaintenanceRun(self.at_ms, failures=self.failures)


class _Runs(Shape):
    runs: Annotated[tuple[MaintenanceRun, ...], Meta(max_length=MOST_RUNS)]


def note_run(topic: TopicLog, topic_id: str, run: MaintenanceRun) -> None:
    """Add a run, unless it did nothing; not durable, errors ignored.

    Of runs in a row that only failed the last one is kept: a fault that lasts takes no other's place.
    """
    if run == MaintenanceRun(run.at_ms):
        return
    with suppress(CommitLogError, OSError):
        former = _read(topic, topic_id)
        if former and former[-1].only_failed and run.only_failed:
            former = former[:-1]
        kept = _Runs((*former, run)[-MOST_RUNS:])
        output = topic.storage.create(topic.paths(topic_id).maintenance_runs)
        write_whole(output, msgspec.json.encode(kept), durable=False)


def former_runs(topic: TopicLog, topic_id: str) -> tuple[MaintenanceRun, ...]:
    """Return the last runs that did something, oldest first; none if the file is missing or damaged."""
    with suppress(CommitLogError, OSError):
        return _read(topic, topic_id)
    return ()


def _read(topic: TopicLog, topic_id: str) -> tuple[MaintenanceRun, ...]:
    path = topic.paths(topic_id).maintenance_runs
    with suppress(FileNotFoundError, CorruptionError):
        runs: _Runs = decode(topic.storage.read(path, 0, _MOST_BYTES), _Runs, path)
        return runs.runs
    return ()
