"""Records that a root had settled before an unclean election made their offsets void."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.log.frames import check_whole, segment_span, walk
from pyspark_commitlog.log.read.damage import Fragment
from pyspark_commitlog.log.repair.salvage import overlap, segments_of
from pyspark_commitlog.log.segments.cutting import has_void_rows
from pyspark_commitlog.log.settle_state import Active, Sealed, SettleState
from pyspark_commitlog.log.state import TopicState, Void
from pyspark_commitlog.log.topic import TopicLog


def void_records(topic: TopicLog, state: TopicState, settled: SettleState) -> dict[int, list[Fragment]]:
    """Return per partition the settled frames that have records at void offsets.

    Of a topic with replicas; no others learn of a void after they have settled it. Only headers are read of segments
    that overlap none.

    Raises:
        CorruptionError: a manifest is damaged.
    """
    found: dict[int, list[Fragment]] = {}
    for partition in range(state.partitions if state.is_replicated else 0):
        voids = [void for void in state.voids_of(partition) if void.end > state.log_start[partition]]
        for segment, end in segments_of(topic, settled, partition) if voids else ():
            if any(overlap((void.start, void.end), (segment.base_offset, end)) for void in voids):
                found.setdefault(partition, []).extend(_void_in(topic, state, partition, segment, voids))
    return {partition: some for partition, some in found.items() if some}


def _void_in(
    topic: TopicLog, state: TopicState, partition: int, segment: Active | Sealed, voids: Sequence[Void]
) -> Iterator[Fragment]:
    span = segment_span(topic.paths(state.topic_id), partition, segment)
    try:
        for located in walk(topic.storage, span):
            start, end = located.base_offset, located.next_offset
            if any(overlap((void.start, void.end), (start, end)) for void in voids):
                payload, _ = check_whole(located, span)
                if has_void_rows(located.frame, payload, voids):
                    yield Fragment(start, end, None, "an election made records there void after they were settled")
    except (FileNotFoundError, CorruptionError):  # damage, which is repaired first
        return
