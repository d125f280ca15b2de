"""Segments of partitions, and what maintenance has done and will do, as plain data for the page (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark_commitlog.cli.ui.views import error_view
from pyspark_commitlog.text import counted
from pyspark_commitlog.topic.maintain.due import DueWork
from pyspark_commitlog.topic.maintain.maintenance_runs import MaintenanceRun

#: Partitions whose segments are asked for together, and newest segments of each that are sent.
SEGMENT_ROWS, MOST_SEGMENTS = 20, 200


def maintenance_view(
    works: Sequence[DueWork],
    failures: Mapping[int, Exception],
    runs: Sequence[MaintenanceRun],
    first: int,
    total: int,
) -> dict[str, Any]:
    """Return a page of partitions with their segments, the work that is due, and former runs, newest first."""
    return {
        "runs": [{"at": run.at_ms, "did": done_lines(run)} for run in reversed(runs)],
        "total": total,
        "from": first,
        "rows": [work_row(work) for work in works],
        "failures": [
            f"partition {partition}: {error_view(error)['message']}" for partition, error in sorted(failures.items())
        ],
    }


def work_row(work: DueWork) -> dict[str, Any]:
    """Return a partition's segments, oldest first, and what is due; `earlier` sums up segments that are not sent."""
    earlier, sent = work.segments[:-MOST_SEGMENTS], work.segments[-MOST_SEGMENTS:]
    return {
        "partition": work.partition,
        "logStart": work.log_start,
        "settledEnd": work.settled_end,
        "cleaned": work.cleaned,
        "bytes": sum(segment.size_bytes for segment in work.segments),
        "unsettled": work.unsettled,
        "unsettledBytes": work.unsettled_bytes,
        "earlier": {"segments": len(earlier), "bytes": sum(segment.size_bytes for segment in earlier)},
        "segments": [
            {
                "base": segment.base_offset,
                "end": segment.end_offset,
                "bytes": segment.size_bytes,
                "latest": None if segment.max_timestamp < 0 else segment.max_timestamp,
                "active": segment.is_active,
                "due": segment.end_offset <= work.due_log_start,
            }
            for segment in sent
        ],
        "due": due_lines(work),
    }


def due_lines(work: DueWork) -> list[str]:
    """Return what `maintain` would do to a partition, in words."""
    lines = []
    if work.unsettled:
        lines.append(f"settle {counted(work.unsettled, 'record')} ({work.unsettled_bytes:,} bytes)")
    if work.due_segments:
        below = f"; the log starts at {work.due_log_start:,}" if work.due_log_start > work.log_start else ""
        lines.append(f"delete {counted(work.due_segments, 'segment')} ({work.due_bytes:,} bytes){below}")
    if work.compact_segments:
        lines.append(f"compact {counted(work.compact_segments, 'segment')} ({work.compact_bytes:,} bytes)")
    if work.idle:
        lines.append(f"not compact: {work.idle}")
    return lines


def done_lines(run: MaintenanceRun) -> list[str]:
    """Return what a run of `maintain` did to a topic, in words."""
    numbers = {
        "settled": (run.settled_records, "record"),
        "merged segment objects in": (run.merges, "step"),
        "deleted": (run.deleted_records, "record"),
        "let go of": (run.released_segments, "segment"),
        "compacted": (run.compacted_segments, "segment"),
        "rebuilt the indexes of": (run.rebuilt_indexes, "segment"),
        "removed": (run.removed_files, "file"),
        "removed what was left of": (run.removed_incarnations, "former incarnation"),
    }
    lines = [f"{verb} {counted(number, noun)}" for verb, (number, noun) in numbers.items() if number]
    return [*lines, f"met {counted(run.failures, 'error')}"] if run.failures else lines
