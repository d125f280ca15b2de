"""A partition's segment directory."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_commitlog.format.paths import TopicPaths
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.segments.frames import FilePart, Span, segment_part, segment_span
from pyspark_commitlog.topic.state.settle_state import Active, Sealed


@dataclass(frozen=True, slots=True)
class SegmentDir:
    """Directory of a partition's segments."""

    storage: Storage
    paths: TopicPaths
    partition: int

    def file(self, segment: Active | Sealed, suffix: str) -> str:
        """Path of a segment's file."""
        return self.part(segment, suffix).path

    def part(self, segment: Active | Sealed, suffix: str) -> FilePart:
        """Return the published bytes of a segment's `log`, `index` or `timeindex`."""
        return segment_part(self.paths, self.partition, segment, suffix)

    def span(self, segment: Active | Sealed) -> Span:
        """Span of a segment's published frames."""
        return segment_span(self.paths, self.partition, segment)
