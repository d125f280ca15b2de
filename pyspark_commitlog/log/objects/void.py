"""Void where nothing can be appended: what ``log.repair.void`` does under a lock, by operations.

Objects are written again before the entry is put that gives records up, and swapped after it: a process that dies
between leaves damage, to be voided again. Of what is not settled only what settlers can't read is given up, so they
don't settle it meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_commitlog.errors import ConflictError, UsageError
from pyspark_commitlog.journal import Slot, Stored
from pyspark_commitlog.log.objects.salvage import Salvage, publish
from pyspark_commitlog.log.repair.salvage import Range
from pyspark_commitlog.log.repair.void import Answer, GivenUp, check_ranges, look, settled_ranges, void, voided
from pyspark_commitlog.log.settle_change import Change
from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.topic import TopicLog


def give_up(
    topic: TopicLog, topic_id: str, ranges: Mapping[int, Range] | None, *, force: bool = False, dry_run: bool = False
) -> tuple[GivenUp, ...]:
    """Void what can't be read, whatever the storage; see ``CommitLog.void``.

    Raises:
        UsageError: see ``choose``; or a segment or lost object holds more damage; nothing was voided.
        ConflictError: what was to be swapped is settled, merged or compacted meanwhile: do it again.
        CorruptionError: a manifest is damaged; nothing was voided.
        TopicChangedError: the topic was deleted or made again.
    """
    if topic.storage.can_append:
        return void(topic, topic_id, ranges, force=force, dry_run=dry_run)
    if force and not ranges:
        raise UsageError("force gives up records that can be read: say which, by partition and offsets")
    topic.forget_defaults()
    stored, state = topic.newest(topic_id)
    base, settled = topic.settled(topic_id)
    salvage = Salvage(topic, state, base, settled)
    check_ranges(topic, state, ranges or {}, salvage.lowest)
    fragments = salvage.fragments(ranges)
    given_up = look(topic, stored, state, settled, ranges, fragments, force=force)
    if dry_run or not given_up:
        return given_up
    if force:
        _check_settled(topic, given_up, settled)
    swaps = salvage.write(settled_ranges(given_up, settled))

    def plan(newest: Stored | None, slot: Slot) -> Answer:
        stored, state = topic.newest_at(newest, topic_id)
        lost = look(topic, stored, state, settled, ranges, fragments, force=force)
        return voided(state, settled, lost, slot.sequence)

    given_up = topic.journal.append(plan).result
    left = [swap for swap in swaps if not publish(topic, topic_id, [swap])]
    if left:
        raise ConflictError(
            f"topic {topic.name!r} was merged or compacted meanwhile; of what was to be given up some is still there: "
            "void it again"
        )
    _count_as_sound(topic, topic_id, {lost.partition for lost in given_up})
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
