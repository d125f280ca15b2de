"""The directory of a partition's segments."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.log.frames import FilePart, Span, segment_part, segment_span
from pyspark_commitlog.log.settle_state import Active, Sealed
from pyspark_commitlog.storage import Storage


@dataclass(frozen=True, slots=True)
class SegmentDir:
    """Where a partition's segments lie."""

    storage: Storage
    paths: TopicPaths
    partition: int

    def file(self, segment: Active | Sealed, suffix: str) -> str:
        """Return the path of a segment's file."""
        return self.part(segment, suffix).path

    def part(self, segment: Active | Sealed, suffix: str) -> FilePart:
        """Return where a segment's ``log``, ``index`` or ``timeindex`` lies, as far as published."""
        return segment_part(self.paths, self.partition, segment, suffix)

    def span(self, segment: Active | Sealed) -> Span:
        """Return all frames of a segment, as far as published."""
        return segment_span(self.paths, self.partition, segment)
