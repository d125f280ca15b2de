"""Voiding without append: `topic.damage.void` by operations.

Objects are rewritten before the voiding entry and swapped after it; a crash between leaves damage, to void again. Only
unreadable unsettled records are given up, so no settler races.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from pyspark_commitlog.errors import ConflictError, UsageError
from pyspark_commitlog.journal import Slot, Stored
from pyspark_commitlog.topic.damage.salvage import Range
from pyspark_commitlog.topic.damage.salvage_objects import Looked, Salvage, Swap, publish
from pyspark_commitlog.topic.damage.void import Answer, VoidedRange, check_ranges, look, settled_ranges, void, voided
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import SettleState
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Maximum of looks at a changing log.
_MAX_LOOKS = 100


def give_up(
    topic: TopicLog, topic_id: str, ranges: Mapping[int, Range] | None, *, force: bool = False, dry_run: bool = False
) -> tuple[VoidedRange, ...]:
    """Void unreadable records on any storage; see `Topic.void`.

    Raises:
        UsageError: see `choose`, or there is more damage; nothing was voided.
        ConflictError: merging or compaction interfered: repeat.
        CorruptionError: a manifest is damaged; nothing was voided.
        TopicChangedError: the incarnation is gone.
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
    """The log changed meanwhile; missing files may be collected."""


class _Look:
    """One examination of the settled log; `known` has earlier findings.

    Raises:
        UsageError, CorruptionError, TopicChangedError: as `give_up`.
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

    def given_up(self, stored: Stored, state: TopicState) -> tuple[SettleState, tuple[VoidedRange, ...]]:
        """Settle state used, and the offsets to give up.

        A missing file is lost only if a settle entry read after the look needs it (rule R8).

        Raises:
            _MovedError: it does not; the look is void.
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
        try:
            return self._salvage.write(lost)
        except UsageError:
            self._confirm_state()
            raise

    def _confirm_state(self) -> SettleState:
        _, now = self.topic.settled(self.topic_id)
        if not self._salvage.is_named(now, self._fragments):
            raise _MovedError
        return now


def _is_passed(before: SettleState, now: SettleState, ends: Iterable[tuple[int, int]]) -> bool:
    return any(end > before.partition(p).end_offset != now.partition(p).end_offset for p, end in ends)


def _void(found: _Look, *, dry_run: bool) -> tuple[VoidedRange, ...]:
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


def _check_settled(topic: TopicLog, given_up: Sequence[VoidedRange], settled: SettleState) -> None:
    """Refuse to force away records that a settler may be moving now."""
    stopped = settled.marked
    for lost in given_up:
        end = settled.partition(lost.partition).end_offset
        if lost.end > end and lost.partition not in stopped:
            raise UsageError(
                f"topic {topic.name!r} partition {lost.partition}: offsets from {max(lost.start, end)} on are not "
                "settled, and may be settled at this moment; nothing was voided: run maintain first, then force"
            )


def _count_as_sound(topic: TopicLog, topic_id: str, partitions: set[int]) -> None:
    """Clear partitions' damage, by an entry in any case.

    A settler about to publish some must look again, and finds it voided.
    """
    topic.change(topic_id, lambda _, now: Change(now.without_damage(partitions)))
