"""Checks of a copy's destination, and a copy's next entry. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark_commitlog.config import PRODUCERS, TopicConfig
from pyspark_commitlog.errors import ConflictError, LogTruncationError, TopicExistsError
from pyspark_commitlog.format.lineage import Lineage, Verdict, compare
from pyspark_commitlog.journal import Slot, Stored
from pyspark_commitlog.topic.collect.collect import former_incarnations
from pyspark_commitlog.topic.state.topic_state import ChunkRef, Extent, TopicState, WriterRow, Writers
from pyspark_commitlog.topic.write.writers import FORMER_QUERIES

#: Advice of errors that only another root helps with.
_ELSEWHERE = "copy it to another root"


@dataclass(frozen=True, slots=True)
class DestinationHead:
    """Newest entry of the topic at the destination, and its state."""

    stored: Stored
    state: TopicState


@dataclass(frozen=True, slots=True)
class Piece:
    """Copied frames of one partition in a chunk; `extent.chunk` is unused.

    `staged_ms`: storage time when an earlier run staged them; 0 for this one.
    """

    chunk: ChunkRef
    extent: Extent
    staged_ms: int = 0


def check_destination(head: DestinationHead | None, source: TopicState, topic: str, where: str) -> None:
    """Refuse a destination that is not just a copy of the source.

    `head` was read before `source`; `where` is for messages.

    Raises:
        TopicExistsError: another topic has, or had, the name there.
        ConflictError: the copy was written to, or never was one.
        LogTruncationError: the source was restored from something older than this copy.
    """
    if head is None:
        return
    state, at = head.state, f"topic {topic!r} in {where}"
    if state.deleted:
        if source.topic_id in {state.topic_id, *(former for former, _ in state.former_ids)}:
            raise TopicExistsError(f"{at} was a copy of this topic, and was deleted there: {_ELSEWHERE}")
        if head.stored.entry.following > source.lineage.sequence:
            raise TopicExistsError(
                f"{at} was deleted, and its journal ends with entry {head.stored.sequence}, that of the source with "
                f"{source.lineage.sequence}: {_ELSEWHERE}"
            )
        return
    if state.topic_id != source.topic_id:
        raise TopicExistsError(
            f"{at} is another one: its id is {state.topic_id}, that of the source {source.topic_id}; nothing was "
            f"copied: {_ELSEWHERE}, or delete that topic"
        )
    if not state.copied:
        raise ConflictError(
            f"{at} is the topic itself, and was never a copy: nothing is copied over it. To have it there again, copy "
            "it to an empty root"
        )
    if not state.is_copy:
        raise ConflictError(
            f"{at} has been written to since it was copied (entry {head.stored.sequence}, "
            f"{head.stored.entry.kind!r}): it is a topic of its own now; nothing was copied"
        )
    if compare(state.lineage, source.lineage) is Verdict.PARTED:
        raise LogTruncationError(
            f"{at} is a copy up to journal entry {state.lineage.sequence}, and the journal of the source, which ends "
            f"with entry {source.lineage.sequence}, is another one: the source was restored; {_ELSEWHERE}"
        )


def starts(begun: Sequence[int], head: DestinationHead | None, source: TopicState) -> tuple[int, ...]:
    """First offset of each partition that is not copied yet.

    `begun`: where a topic that is not there yet begins. Partitions added since begin at 0.
    """
    there = begun if head is None or head.state.deleted else head.state.log_end
    return tuple(there[p] if p < len(there) else 0 for p in range(source.partitions))


def check_starts(start: Sequence[int], source: TopicState, topic: str, where: str) -> None:
    """Refuse to begin above the source's ends, as an earlier copy did.

    Raises:
        LogTruncationError: the source was restored from something older.
    """
    for partition, (first, end) in enumerate(zip(start, source.log_end, strict=True)):
        if first > end:
            raise LogTruncationError(
                f"topic {topic!r} in {where}: what is to come of partition {partition} begins at offset {first} there, "
                f"and the source ends at {end}: the source was restored; {_ELSEWHERE}"
            )


def looked_ms(head: DestinationHead | None, pieces: Sequence[Piece], began_ms: int) -> int:
    """Storage time of a copy's first read; 0 if unknown.

    What the source deleted since may have been compacted unread, tombstone and all.
    """
    before = 0 if head is None or head.state.deleted else head.stored.info.modified_ms
    return min((ms for ms in (before, began_ms, *(each.staged_ms for each in pieces)) if ms > 0), default=0)


def chained(start: int, end: int, by_start: Mapping[int, Piece]) -> list[Piece]:
    """Consecutive pieces from `start` on, up to `end`."""
    pieces = []
    while start < end and (piece := by_start.get(start)) is not None and piece.extent.end_offset <= end:
        pieces.append(piece)
        start = piece.extent.end_offset
    return pieces


def numbered(pieces: Sequence[Piece]) -> tuple[list[ChunkRef], list[Extent]]:
    """Return an entry's tables for these pieces."""
    numbers: dict[ChunkRef, int] = {}
    extents = [replace(each.extent, chunk=numbers.setdefault(each.chunk, len(numbers))) for each in pieces]
    return list(numbers), extents


def created_at(head: DestinationHead | None, slot: Slot) -> int:
    """Return `created` of a copy's entry: records are looked for after it.

    Numbers that an entry leaves out are not looked up.
    """
    if head is None or head.state.deleted or head.stored.entry.next is not None:
        return slot.sequence - 1
    return head.state.created


def on_the_way(head: DestinationHead, source: TopicState, slot: Slot) -> tuple[TopicState, Lineage]:
    """State and lineage of an entry that only catches up."""
    state = replace(head.state, created=created_at(head, slot), copied=slot.sequence)
    return state, Lineage.of_copied_entry(slot.sequence, source.lineage, head.state.lineage, slot.write_id)


def begun_state(
    head: DestinationHead | None, source: TopicState, begun: Sequence[int], config: Mapping[str, str], slot: Slot
) -> tuple[TopicState, Lineage]:
    """State and lineage of the first entry, of an empty topic."""
    lineage = head.state.lineage if head else Lineage()
    state = TopicState(
        topic_id=source.topic_id,
        deleted=False,
        config=config,
        log_start=tuple(begun),
        log_end=tuple(begun),
        created=slot.sequence,
        former_ids=former_incarnations(head.stored, head.state) if head else (),
        former_queries=_former_queries(head, source),
        copied=slot.sequence,
        schema=source.schema,
    )
    return state, Lineage.of_copied_entry(slot.sequence, source.lineage, lineage, slot.write_id)


def copied_state(
    head: DestinationHead | None,
    source: TopicState,
    begun: Sequence[int],
    writers: Writers,
    config: Mapping[str, str],
    slot: Slot,
) -> TopicState:
    """State with the records.

    The source's, but for the root's part. Its log starts are not below `begun`.
    """
    before = begun if head is None or head.state.deleted else head.state.log_start
    former = head.state.former_ids if head else ()
    if head is not None and head.state.deleted:
        former = former_incarnations(head.stored, head.state)
    return replace(
        source,
        config=config,
        log_start=tuple(map(max, source.log_start, (*before, *(0,) * (source.partitions - len(before))))),
        created=created_at(head, slot),
        writers=writers,
        staged_floor=head.state.staged_floor if head and not head.state.deleted else 0,
        marks=head.state.marks if head and not head.state.deleted else (),
        former_ids=former,
        former_queries=_former_queries(head, source),
        unsynced_from=None,
        copied=slot.sequence,
    )


def _former_queries(head: DestinationHead | None, source: TopicState) -> tuple[str, ...]:
    others = head.state.former_queries if head else ()
    return tuple(dict.fromkeys((*others, *source.former_queries)))[-FORMER_QUERIES:]


def effective(
    config: Mapping[str, str], stored: Mapping[str, str], resolved: Mapping[str, str], defaults: Mapping[str, str]
) -> dict[str, str]:
    """Configs that make a copy behave as its source.

    Args:
        config: set for the topic at the source.
        stored: with the source root's defaults.
        resolved: with the built-in ones.
        defaults: of the destination's root.
    """
    given = {name: value for name, value in stored.items() if name in config or defaults.get(name) != value}
    unset = {**resolved, "compression.type": PRODUCERS}  # as the writer asks, not as the default says
    return {**given, **{name: unset[name] for name in defaults if name not in stored and name in resolved}}


def differing(there: Mapping[str, str], config: Mapping[str, str], defaults: Mapping[str, str]) -> list[str]:
    """In words the configs of a copy that differ in effect.

    `defaults` are of the destination's root, where `config` is to be set.
    """
    own, wanted = (_working({**defaults, **given}) for given in (there, config))
    return [f"{name} is {value}, at the source {wanted[name]}" for name, value in own.items() if wanted[name] != value]


def _working(stored: dict[str, str]) -> dict[str, str]:
    return {**TopicConfig(stored).resolved(), "compression.type": stored.get("compression.type", PRODUCERS)}


def every_writer(snapshot: Mapping[str, WriterRow], writers: Writers) -> dict[str, WriterRow]:
    """All rows of a writers' table."""
    return {**snapshot, **writers.rows}
