"""Void: give up records whose bytes are lost, so that their partition can go on. An operator's decision.

One entry says which offsets. Of those that are not settled, readers pass over them with a warning, and the settler puts
frames without rows in their place; damaged segments are written anew (``salvage``). The one exception to I2 and I3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark_commitlog.errors import ConflictError, UsageError
from pyspark_commitlog.journal import Draft, Slot, Stored
from pyspark_commitlog.log.read.damage import Piece
from pyspark_commitlog.log.read.unsettled import Hole, Pending, Source, covered, read_pending, scan, sources_of
from pyspark_commitlog.log.repair.salvage import Range, salvaged, settled_pieces
from pyspark_commitlog.log.settle_state import SettleState
from pyspark_commitlog.log.state import TopicState, Void, merged
from pyspark_commitlog.log.topic import TopicLog, check_partition

log = logging.getLogger("pyspark_commitlog.log")

_LOCK_TRIES = 100
_LOCK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Offsets [start, end) that are voided, or would be.

    At most ``records`` of them were visible (those below the log start offset were not, and compaction may have removed
    some); ``why`` names the file and the fault.
    """

    partition: int
    start: int
    end: int
    records: int
    why: str


def void(
    topic: TopicLog,
    topic_id: str,
    ranges: Mapping[int, tuple[int, int]] | None,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> tuple[GivenUp, ...]:
    """Void what can't be read; see ``CommitLog.void``. Every attempt looks at all that is not settled anew (rule R9).

    The settler's lock is held meanwhile: what is settled stays as it is. Segments are written anew before the entry is
    put that gives records up, and swapped behind it: whoever dies between leaves damage, to be voided again.

    Raises:
        UsageError: see ``choose``; nothing was voided.
        ConflictError: a settler holds the lock all the time.
        CorruptionError: a manifest is damaged; nothing was voided.
        TopicChangedError: the topic was deleted or made again.
    """
    if force and not ranges:
        raise UsageError("force gives up records that can be read: say which, by partition and offsets")
    topic.forget_defaults()
    with _settling_stopped(topic, topic_id):
        stored, state = topic.newest(topic_id)
        base, settled = topic.settled(topic_id)
        _check_ranges(topic, state, settled, ranges or {})
        pieces = settled_pieces(topic, settled, topic_id, ranges)
        found = look(topic, stored, state, settled, ranges, pieces, force=force)
        lost = _settled_ranges(found, settled)
        if dry_run or not found:
            return tuple(found)
        if lost:
            base = topic.reserve(base, settled) or base
        after = salvaged(topic, state, base, settled, lost)

        def plan(newest: Stored | None, slot: Slot) -> Draft | None:
            stored, state = topic.newest_at(newest, topic_id)
            found[:] = look(topic, stored, state, settled, ranges, pieces, force=force)
            return _voided(state, settled, found) if found else None

        topic.journal.append(plan)
        after = after.without_damage({each.partition for each in found})
        if lost or after != settled:
            topic.publish(base, after)
    return tuple(found)


def _settled_ranges(found: Sequence[GivenUp], settled: SettleState) -> dict[int, list[Range]]:
    """Return what is given up and begins in a segment, per partition (pure)."""
    lost: dict[int, list[Range]] = {}
    for each in found:
        if each.start < settled.partition(each.partition).settled:
            lost.setdefault(each.partition, []).append((each.start, each.end))
    return lost


def void_unsynced(topic: TopicLog, topic_id: str) -> bool:
    """Void what power loss took of chunks that were never synced (acks=0; rule R5). Only a settler calls it, locked.

    Any other damage stays: it is an operator's to judge.

    Returns:
        Whether there was any.
    """
    found: list[GivenUp] = []

    def plan(base: Stored | None, slot: Slot) -> Draft | None:
        stored, state = topic.newest_at(base, topic_id)
        if state.unsynced_from is None:
            return None
        _, settled = topic.settled(topic_id)
        found[:] = look(topic, stored, state, settled, None, {}, force=False, since=state.unsynced_from)
        return _voided(state, settled, found) if found else None

    topic.journal.append(plan)
    for each in found:
        log.error(
            "topic %r partition %d: offsets %d to %d (%d records), written with acks=0, are lost and voided: %s",
            topic.name, each.partition, each.start, each.end - 1, each.records, each.why,
        )  # fmt: skip
    return bool(found)


def _voided(state: TopicState, settle: SettleState, found: Sequence[GivenUp]) -> Draft:
    """Return the entry; voids that neither readers nor the settler meet any more are forgotten."""
    met = [min(start, settle.partition(partition).settled) for partition, start in enumerate(state.log_start)]
    kept = [each for each in state.voids if each.end > met[each.partition]]
    voids = merged([*kept, *(Void(each.partition, each.start, each.end) for each in found)])
    return Draft("void", state.topic_id, {"state": replace(state, voids=voids).to_json()})


@contextmanager
def _settling_stopped(topic: TopicLog, topic_id: str) -> Iterator[None]:
    for _ in range(_LOCK_TRIES):
        with topic.settling(topic_id) as held:
            if held:
                yield
                return
        topic.storage.clock.sleep(_LOCK_SECONDS)
    raise ConflictError(
        f"topic {topic.name!r} is being settled or maintained all the time; nothing was voided: try again. The lock of "
        f"the settlers is held by {topic.busy}"
    )


def look(
    topic: TopicLog,
    newest: Stored,
    state: TopicState,
    settled: SettleState,
    ranges: Mapping[int, Range] | None,
    of_segments: Mapping[int, Sequence[Piece]],
    *,
    force: bool,
    since: int = 0,
) -> list[GivenUp]:
    """Return what is to be given up, now; with ``since`` only of chunks that this entry or a later one names.

    ``of_segments`` are the settled pieces that count, per partition.
    """
    pending = _all_pending(topic, settled, state, newest)
    sources = sources_of(pending, settled, state.partitions)
    if since:
        sources = {partition: [each for each in some if _since(each, since)] for partition, some in sources.items()}
    found: list[GivenUp] = []
    for partition in sorted({*sources, *of_segments} if ranges is None else ranges):
        start = settled.partition(partition).settled
        behind = _pieces(topic, state.topic_id, sources.get(partition, ()), start)
        pieces = [*of_segments.get(partition, ()), *behind]
        voids = [replace(v, start=max(v.start, start)) for v in state.voids_of(partition) if v.end > start]
        where = f"topic {topic.name!r} partition {partition}"
        chosen = choose(pieces, ranges[partition] if ranges else None, voids, force=force, where=where)
        found += _given_up(partition, chosen, state.log_start[partition])
    return found


def _all_pending(topic: TopicLog, settled: SettleState, state: TopicState, newest: Stored) -> list[Pending]:
    found: list[Pending] = []
    while not found or found[-1].sequence < newest.sequence:
        more = read_pending(topic, settled, state, newest, lambda: False, first=found[-1].sequence + 1 if found else 0)
        if not more:
            break
        found += more
    return found


def _since(source: Source | Hole, sequence: int) -> bool:
    """Return whether an extent's chunk was staged without fsync (acks=0), by that entry or a later one."""
    if isinstance(source, Hole) or source.chunk is None or source.entry.sequence < sequence:
        return False
    return "unsynced" in source.entry.body


def _check_ranges(topic: TopicLog, state: TopicState, settled: SettleState, ranges: Mapping[int, Range]) -> None:
    for partition, wanted in ranges.items():
        check_partition(topic.name, state, partition)
        row = settled.partition(partition)
        sealed = topic.sealed(state.topic_id, row)
        low = sealed[0].base_offset if sealed else row.active.base_offset
        high = state.log_end[partition]
        start, end = wanted
        if not low <= start < end <= high:
            raise UsageError(
                f"topic {topic.name!r} partition {partition}: {start} to {end} (exclusive) is no range of offsets "
                f"between {low}, where its first segment begins, and the high watermark {high}"
            )


def _pieces(topic: TopicLog, topic_id: str, sources: Sequence[Source | Hole], settled: int) -> Iterator[Piece]:
    for source in sources:
        if isinstance(source, Hole):
            pieces: Iterable[Piece] = (Piece(source.start, source.end, None, source.why),)
        else:
            pieces = scan(topic, topic_id, source)
        for piece in pieces:
            if piece.end > settled:
                yield replace(piece, start=max(piece.start, settled))


def choose(
    pieces: Sequence[Piece], wanted: tuple[int, int] | None, voids: Sequence[Void], *, force: bool, where: str
) -> list[Piece]:
    """Return the pieces to give up (pure): those that can't be read; with ``force`` all in the range.

    Raises:
        UsageError: the range holds nothing that can't be read, or it ends inside a piece.
    """
    start, end = wanted or (pieces[0].start, pieces[-1].end) if pieces else (0, 0)
    inside = [piece for piece in pieces if piece.start < end and start < piece.end]
    chosen = [p for p in inside if (p.located is None or force) and not covered(voids, p.start, p.end)]
    for piece in chosen:
        if piece.start < start or piece.end > end:
            what = "can only be given up whole" if piece.located is None else "are one frame"
            raise UsageError(f"{where}: offsets {piece.start} to {piece.end} (exclusive) {what}; nothing was voided")
    if wanted and not chosen and not all(covered(voids, p.start, p.end) for p in inside):
        raise UsageError(
            f"{where}: all offsets from {start} to {end - 1} can be read; nothing was voided. force gives them up all "
            "the same"
        )
    return chosen


def _given_up(partition: int, pieces: Sequence[Piece], log_start: int) -> Iterator[GivenUp]:
    """Yield one range per run of pieces with one fault (pure)."""
    before: GivenUp | None = None
    for piece in pieces:
        records = max(0, piece.end - max(piece.start, log_start))
        why = piece.why or "these can be read, and are given up by force"
        if before is not None and (before.end, before.why) == (piece.start, why):
            before = replace(before, end=piece.end, records=before.records + records)
            continue
        if before is not None:
            yield before
        before = GivenUp(partition, piece.start, piece.end, records, why)
    if before is not None:
        yield before
