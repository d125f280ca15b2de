"""End of a stream: a bounded backfill with `trigger(availableNow=True)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark_commitlog.model import TopicPartition
from pyspark_commitlog.spark.progress.topic_selection import TopicSelection
from pyspark_commitlog.spark.read.source_options import LATEST, Offsets, Timestamps
from pyspark_commitlog.spark.read.source_reader import by_time, by_timestamp, check_end, check_partitions
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog


class Bounds:
    """Offsets that a stream does not pass.

    `asked` has offsets, or times: the end is before the first record not earlier. None, the latest, or a partition left
    out: no bound.
    """

    def __init__(
        self, asked: Offsets | Timestamps | None, selection: TopicSelection, topic: Callable[[str], TopicLog]
    ) -> None:
        check_end(asked)
        self._asked, self._selection, self._topic = asked, selection, topic
        self._known: dict[TopicPartition, int] = {}
        self._ids: dict[str, str] = {}
        times = asked.at if isinstance(asked, Timestamps) else None
        named = asked if times is None else times
        self._named: Mapping[str, Mapping[int, int]] = named if isinstance(named, Mapping) else {}
        self._option = "endingOffsets" if times is None else by_timestamp("endingOffsets")
        if isinstance(asked, dict):
            self._keep(asked)

    def cut(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        states: Mapping[str, TopicState],
    ) -> dict[TopicPartition, int]:
        """Cut the ends of a micro-batch, never below their starts.

        Looks up a time while unread records exist and none is known to be late enough.
        """
        for name, named in self._named.items():
            if name in states:
                check_partitions(self._option, name, states[name], named)
        if isinstance(self._asked, Timestamps):
            for name, state in states.items():
                self._look_up(self._asked, name, state, starts, ends)
        return {place: min(end, max(self._known.get(place, end), starts[place])) for place, end in ends.items()}

    def _look_up(
        self,
        asked: Timestamps,
        name: str,
        state: TopicState,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._forget_former(name, state.topic_id)
        due = [
            partition
            for partition in self._selection.partitions(name, state.partitions)
            if (place := TopicPartition(name, partition)) in ends
            and place not in self._known
            and starts[place] < ends[place]
        ]
        if due:  # not cut to `ends`: records put since are to be read, too
            self._keep({name: by_time(self._topic(name), state, asked, due)})

    def _forget_former(self, name: str, topic_id: str) -> None:
        if self._ids.get(name) not in (None, topic_id):
            self._known = {place: end for place, end in self._known.items() if place.topic != name}
        self._ids[name] = topic_id

    def _keep(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        for name, offsets in ends.items():
            for partition, offset in offsets.items():
                if offset != LATEST:
                    self._known[TopicPartition(name, partition)] = offset
