"""Void where nothing can be appended: what ``log.repair.void`` does under a lock, by operations.

Objects are written again before the entry is put that gives records up, and swapped after it: a process that dies
between leaves damage, to be voided again. Of what is not settled only what settlers can't read is given up, so they
don't settle it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from pyspark_commitlog.errors import ConflictError, UsageError
from pyspark_commitlog.journal import Slot, Stored
from pyspark_commitlog.log.objects.salvage_objects import Looked, Salvage, Swap, publish
from pyspark_commitlog.log.repair.salvage import Range
from pyspark_commitlog.log.repair.void import Answer, GivenUp, check_ranges, look, settled_ranges, void, voided
from pyspark_commitlog.log.settle_change import Change
from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog

#: How many times it looks at what took the place of what it had looked at.
_MAX_LOOKS = 100


def give_up(
    topic: TopicLog, topic_id: str, ranges: Mapping[int, Range] | None, *, force: bool = False, dry_run: bool = False
) -> tuple[GivenUp, ...]:
    """Void what can't be read, whatever the storage; see ``CommitLog.void``.

    Raises:
        UsageError: see ``choose``; or a segment or lost object holds more damage; nothing was voided.
        ConflictError: what was to be swapped was merged or compacted after the entry was put, or is all the time: do
            it again.
        CorruptionError: a manifest is damaged; nothing was voided.
        TopicChangedError: the topic was deleted or made again.
    """
    if topic.storage.can_append:
        return void(topic, topic_id, ranges, force=force, dry_run=dry_run)
    if force and not ranges:
        raise UsageError("force gives up records that can be read: say which, by partition and offsets")
    topic.forget_defaults()
    known: Looked = {}
    for _ in range(_MAX_LOOKS):
        with suppress(_MovedError):
            return _void(_Look(topic, topic_id, ranges, known, force=force), dry_run=dry_run)
    raise ConflictError(f"topic {topic.name!r} is merged or compacted all the time; nothing was voided: try again")


class _MovedError(Exception):
    """What was found is settled, merged or compacted meanwhile: where it is missing, it may have been collected."""


class _Look:
    """One look at the settled log for what is to be given up.

    Args:
        topic, topic_id: whose.
        ranges, force: see ``CommitLog.void``.
        known: what looks before this one found.

    Raises:
        UsageError, CorruptionError, TopicChangedError: as ``give_up``.
    """

    def __init__(
        self, topic: TopicLog, topic_id: str, ranges: Mapping[int, Range] | None, known: Looked, *, force: bool
    ) -> None:
        self.topic, self.topic_id, self.force = topic, topic_id, force
        self._ranges = ranges
        _, state = topic.newest(topic_id)
        self._began = topic.settled(topic_id)[1]
        self._salvage = Salvage(topic, state, self._began)
        check_ranges(topic, state, ranges or {}, self._salvage.lowest)
        self._fragments = self._salvage.fragments(ranges, known)

    def given_up(self, stored: Stored, state: TopicState) -> tuple[SettleState, tuple[GivenUp, ...]]:
        """Return the settle state that was gone by, and what is to be given up by it and by this entry of the topic.

        What is missing is lost only where a settle entry that was read after the look still needs it (rule R8).

        Raises:
            _MovedError: it does not; nothing may be given up by this look.
        """
        _, before = self.topic.settled(self.topic_id)
        try:
            lost = look(self.topic, stored, state, before, self._ranges, self._fragments, force=self.force)
        except UsageError:
            self._confirm_state()
            raise
        now = self._confirm_state()
        ends, wanted = [(each.partition, each.end) for each in lost], (self._ranges or {}).items()
        if _is_passed(before, now, ends) or _is_passed(self._began, now, [(p, end) for p, (_, end) in wanted]):
            raise _MovedError
        return before, lost

    def write(self, lost: Mapping[int, Sequence[Range]]) -> list[Swap]:
        """Write what holds these offsets again; raises as ``Salvage.write`` and ``given_up``."""
        try:
            return self._salvage.write(lost)
        except UsageError:
            self._confirm_state()
            raise

    def _confirm_state(self) -> SettleState:
        """Return the newest settle state; raises as ``given_up`` if fragments moved."""
        _, now = self.topic.settled(self.topic_id)
        if not self._salvage.is_named(now, self._fragments):
            raise _MovedError
        return now


def _is_passed(before: SettleState, now: SettleState, ends: Iterable[tuple[int, int]]) -> bool:
    """Return whether of partitions of which not all was settled, up to these offsets, more is by now (pure)."""
    return any(end > before.partition(p).end_offset != now.partition(p).end_offset for p, end in ends)


def _void(found: _Look, *, dry_run: bool) -> tuple[GivenUp, ...]:
    """Void what was found; raises as ``give_up`` and ``_Look.given_up``."""
    topic, topic_id = found.topic, found.topic_id
    settled, given_up = found.given_up(*topic.newest(topic_id))
    if dry_run or not given_up:
        return given_up
    if found.force:
        _check_settled(topic, given_up, settled)
    swaps = found.write(settled_ranges(given_up, settled))

    def plan(newest: Stored | None, slot: Slot) -> Answer:
        stored, state = topic.newest_at(newest, topic_id)
        settled, lost = found.given_up(stored, state)
        return voided(state, settled, lost, slot.sequence)

    given_up = topic.journal.append(plan).result
    left = [swap for swap in swaps if not publish(topic, topic_id, [swap])]
    _count_as_sound(topic, topic_id, {lost.partition for lost in given_up})
    if left:
        raise ConflictError(
            f"topic {topic.name!r} was merged or compacted meanwhile; of what was to be given up some is still there: "
            "void it again"
        )
    return given_up


def _check_settled(topic: TopicLog, given_up: Sequence[GivenUp], settled: SettleState) -> None:
    """Refuse to give up by force what a settler may move at this very moment: what no damage stops."""
    stopped = settled.marked
    for lost in given_up:
        end = settled.partition(lost.partition).end_offset
        if lost.end > end and lost.partition not in stopped:
            raise UsageError(
                f"topic {topic.name!r} partition {lost.partition}: offsets from {max(lost.start, end)} on are not "
                "settled, and may be settled at this moment; nothing was voided: run maintain first, then force"
            )


def _count_as_sound(topic: TopicLog, topic_id: str, partitions: set[int]) -> None:
    """Take back what is published of the partitions' damage; with an entry whether or not there is any.

    So a settler that is about to publish some has to look again, and finds it voided.
    """
    topic.change(topic_id, lambda _, now: Change(now.without_damage(partitions)))
