"""Trigger limits over the micro-batches of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.progress import AvailableOffsets
from pyspark_commitlog.spark.progress.trigger_limits import StoredBytes, TriggerLimits, cut_by_bytes, prorate
from pyspark_commitlog.topic.topic_log import TopicLog

if TYPE_CHECKING:
    from pyspark_commitlog.topic.lookup.sizes import StoredSizes


class Throttle:
    """Limiter of micro-batches, for one run of a query."""

    def __init__(self, limits: TriggerLimits, topic: Callable[[str], TopicLog]) -> None:
        self._limits, self._topic = limits, topic
        self._last: float | None = None
        self._sizes: dict[tuple[str, str], StoredSizes] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sizes": {}}

    def cut(
        self, available: AvailableOffsets, ends: Mapping[TopicPartition, int], *, may_wait: bool
    ) -> dict[TopicPartition, int]:
        """Cut a micro-batch by every limit, to nothing if delayed.

        `may_wait` applies minOffsetsPerTrigger.
        """
        limits, ends = self._limits, dict(ends)
        waiting = {place.topic for place, end in ends.items() if available.starts[place] < end}
        if not waiting:
            return ends
        now = self._topic(min(waiting)).storage.clock.monotonic()
        waited = None if self._last is None else (now - self._last) * 1000
        if may_wait and limits.puts_off(available.starts, ends, waited):
            return {place: available.starts[place] for place in ends}
        self._last = now
        if limits.max_offsets is not None:
            ends = prorate(available.starts, ends, limits.max_offsets)
        if limits.max_bytes is not None:
            ends = cut_by_bytes(available.starts, ends, limits.max_bytes, self._stored(waiting, available.topic_ids))
        return ends

    def _stored(self, topics: Iterable[str], ids: Mapping[str, str]) -> StoredBytes:
        from pyspark_commitlog.topic.lookup.sizes import StoredSizes

        keys = {name: (name, ids[name]) for name in topics}
        self._sizes = {key: self._sizes.get(key) or StoredSizes(self._topic(key[0]), key[1]) for key in keys.values()}
        for sizes in self._sizes.values():
            sizes.look()
        of = {name: self._sizes[key] for name, key in keys.items()}
        return StoredBytes(
            lambda place, start, end: of[place.topic].estimate_bytes(place.partition, start, end),
            lambda place, start, end, budget: of[place.topic].reached(place.partition, start, end, budget),
        )
