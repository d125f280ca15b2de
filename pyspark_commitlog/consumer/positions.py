"""A consumer's positions, what its group has committed, and where its topics begin and end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from pyspark_commitlog.consumer.consumer_config import check_number, check_places
from pyspark_commitlog.consumer.fetcher import backlog
from pyspark_commitlog.consumer.subscriber import Subscriber
from pyspark_commitlog.errors import GroupResetError, TopicChangedError, UsageError
from pyspark_commitlog.groups.state.group_state import NEVER, Position
from pyspark_commitlog.log.read.timestamps import OffsetAndTimestamp
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import check_partition
from pyspark_commitlog.model import TopicPartition


class Positions(Subscriber):
    """The part of ``Consumer`` that says where it reads. A position is the offset of the next record to hand out."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset. One that is out of range is found by the next poll (``auto_offset_reset``).

        Raises:
            UsageError: the partition is not assigned, or the offset is below 0.
        """
        check_number("offset", offset, least=0)
        with self._lock:
            self._check_assigned([partition])
            self._move({partition: offset})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the log start offset of some partitions, or of all that are assigned."""
        with self._lock:
            self._move(self.beginning_offsets(self._chosen(partitions)))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the high watermark of some partitions, or of all that are assigned."""
        with self._lock:
            self._move(self.end_offsets(self._chosen(partitions)))

    def _move(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._forget_ahead(offsets)
        for place, offset in offsets.items():
            self._reading.seek(place, offset)

    def _chosen(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Return the partitions that a call is about: those given, or all that are assigned."""
        self._check_open()
        if not self._reading.places:
            self._follow_assignment()
        chosen = check_places(partitions) or tuple(sorted(self._reading.places))
        self._check_assigned(chosen)
        return chosen

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        for place in check_places(partitions):
            if place not in self._reading.places:
                raise UsageError(
                    f"topic {place.topic!r} partition {place.partition} is not assigned to this consumer: assign it, "
                    "or poll once behind subscribe"
                )

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that will be handed out.

        Raises:
            UsageError: the partition is not assigned.
            OffsetOutOfRangeError: there is no position yet, and ``auto_offset_reset`` is ``none``.
            TopicChangedError: there is no position yet, and the topic was deleted.
        """
        with self._lock:
            self._check_assigned([partition])
            if self._reading.places[partition].position is None:
                self._reading.look()
            place = self._reading.places[partition]
            if place.position is None:
                raise TopicChangedError(
                    f"topic {partition.topic!r} partition {partition.partition} has no position: the topic (id "
                    f"{place.topic_id}) was deleted, or made again with fewer partitions. Subscribe anew"
                )
            return place.position

    def pause(self, *partitions: TopicPartition) -> None:
        """Have polls leave out some partitions, until ``resume``; their positions stay."""
        with self._lock:
            self._check_assigned(partitions)
            self._forget_ahead(partitions)
            for place in partitions:
                self._reading.places[place].paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Read paused partitions again."""
        with self._lock:
            self._check_assigned(partitions)
            for place in partitions:
                self._reading.places[place].paused = False

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {key for key, place in self._reading.places.items() if place.paused}

    def lag(self) -> dict[TopicPartition, int]:
        """Return how many offsets lie between the position and the high watermark of each assigned partition."""
        with self._lock:
            self._check_open()
            return backlog(self._reading.places, self._reading.look())

    # --- where topics begin and end ------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition, assigned or not.

        Raises:
            UnknownTopicError, UsageError: there is no such topic, or partition.
        """
        return {place: state.log_start[place.partition] for place, state in self._states(partitions).items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition, assigned or not; raises as ``beginning_offsets``."""
        return {place: state.log_end[place.partition] for place, state in self._states(partitions).items()}

    def _states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, TopicState]:
        with self._lock:
            self._check_open()
            found = {}
            for place in check_places(partitions):
                found[place] = self._view(place.topic).topic
                check_partition(place.topic, found[place], place.partition)
            return found

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition that is not before a timestamp (ms); None if all are earlier."""
        self._check_open()
        return {
            place: self._log.offsets_for_times(place.topic, {place.partition: at})[place.partition]
            for place, at in times.items()
        }

    # --- commits -----------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, metadata: str = "") -> None:
        """Commit to the group, and return when that is durable.

        Forward only: where the group is further already, it stays (to go back, reset the group).

        Args:
            offsets: the offset of the next record of each partition; None: all positions, so all that was handed out.
            metadata: a text to keep with them.

        Raises:
            UsageError: the consumer has no group.
            OffsetOutOfRangeError: an offset beyond the high watermark.
            CommitFailedError: a partition, or the generation, is not the member's any more; nothing was committed.
                Poll, and commit what is assigned then.
            FencedInstanceIdError: another process has joined with this ``group_instance_id``; nothing was committed.
            GroupResetError: the group was reset meanwhile; nothing was committed, and the next poll goes on from there.
            OutcomeUnknownError: commit again: what landed changes nothing the second time.
        """
        with self._lock:
            self._check_open()
            if self._group is None:
                raise UsageError("there is no group to commit to: make the consumer with group_id=…")
            try:
                self._group.commit(self._explicit(offsets), self._generation, metadata)
            except GroupResetError:
                self._group_state()
                raise

    async def acommit(self, offsets: Mapping[TopicPartition, int] | None = None, metadata: str = "") -> None:
        """Do as ``commit`` without blocking the event loop."""
        await asyncio.to_thread(self.commit, offsets, metadata)

    def _explicit(self, offsets: Mapping[TopicPartition, int] | None) -> list[Position]:
        if offsets is None:
            return self._positions()
        states = self._states(offsets)
        places = self._reading.places
        seen = {p: places[p].lineage if p in places else None for p in offsets}
        return [Position(p.topic, states[p].topic_id, p.partition, offset, seen[p]) for p, offset in offsets.items()]

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the offset that the group has committed for a partition; None if it never did.

        Raises:
            UsageError: the consumer has no group.
        """
        with self._lock:
            self._check_open()
            if self._group is None:
                raise UsageError("there is no group that could have committed: make the consumer with group_id=…")
            offset = self._group.state().offset(self._states([partition])[partition].topic_id, partition.partition)
            return None if offset == NEVER else offset
