"""Replace what a partition has of its own, or move the oldest of the tail there: operations on the settle state (O2).

A *piece* is a sealed segment in a segment object. A partition's own ones are the rows of its manifest; each of them has
an object to itself, so an object that no row names any more is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.log.segments.writer import write_manifest
from pyspark_commitlog.log.settle_change import Change
from pyspark_commitlog.log.settle_state import Manifest, Sealed, SettledPartition, SettleState, Shared
from pyspark_commitlog.log.topic import TopicLog


def replaced(own: Sequence[Sealed], old: Sequence[Sealed], new: Sequence[Sealed]) -> tuple[Sealed, ...] | None:
    """Return a partition's pieces with ``new`` in the place of ``old`` (pure).

    Args:
        own: its pieces, by base offset.
        old: those that were worked on, as they were named then.
        new: what takes their place, at the same offsets; nothing, where the first pieces are let go of.

    Returns:
        None unless exactly these pieces are still named, and neighbours (rule O2).
    """
    assert old
    at = next((number for number, piece in enumerate(own) if piece == old[0]), None)
    if at is None or tuple(own[at : at + len(old)]) != tuple(old):
        return None
    if new:
        assert (new[0].base_offset, new[-1].end_offset) == (old[0].base_offset, old[-1].end_offset)
    elif at:
        return None
    return (*own[:at], *new, *own[at + len(old) :])


def followed(own: Sequence[Sealed], new: Sequence[Sealed], log_start: int) -> tuple[Sealed, ...]:
    """Return a partition's pieces with ``new`` after them (pure).

    Where the two do not meet, what lies between was left out as it is below the log start: so is all before it.

    Raises:
        CorruptionError: it is not below ``log_start``.
    """
    if not own or not new or own[-1].end_offset == new[0].base_offset:
        return (*own, *new)
    if not own[-1].end_offset < new[0].base_offset <= log_start:
        raise CorruptionError(
            f"offsets from {own[-1].end_offset} to {new[0].base_offset} are in no segment, the log starts at "
            f"{log_start}; nothing was changed"
        )
    return tuple(new)


@dataclass
class Manifests:
    """Writes the manifests of one operation, for all its attempts.

    Where an attempt lost its number, the next one names what it wrote, if the partition's manifest is still the same
    and as many pieces follow it: so an attempt takes no longer than a settle, of which there may be one a second. What
    is below the floor by then is written again (rule O4).
    """

    topic: TopicLog
    topic_id: str
    _written: dict[tuple[int, Manifest | None, int], tuple[int, Manifest]] = field(default_factory=dict)

    def after(self, base: Stored, now: SettleState, partition: int, pieces: Sequence[Sealed]) -> Manifest | None:
        """Return the manifest of these pieces, which follows that of a state; None where there is no piece.

        Args:
            base, now: the newest settle entry and its state.
            partition: whose.
            pieces: of two lists that an operation has after the same manifest the lengths differ.
        """
        if not pieces:
            return None
        before = now.partition(partition).manifest
        begun, manifest = self._written.get((partition, before, len(pieces)), (-1, None))
        if manifest is None or begun < now.files_floor:
            paths, leaves = self.topic.paths(self.topic_id), self.topic.leaves(self.topic_id, before)
            manifest = write_manifest(self.topic.storage, paths, partition, base.sequence, pieces, leaves)
            self._written[partition, before, len(pieces)] = base.sequence, manifest
        return manifest


def replace_own(
    topic: TopicLog,
    base: Stored,
    now: SettleState,
    partition: int,
    old: Sequence[Sealed],
    new: Sequence[Sealed],
    *,
    cleaned: int | None = None,
    dropped_below: int = 0,
    manifests: Manifests | None = None,
) -> Change | None:
    """Return the change that puts ``new`` in the place of ``old``, on top of an entry; writes the manifest for it.

    Args:
        topic: whose.
        base, now: the newest settle entry and its state.
        partition: whose pieces.
        old, new: see ``replaced``; the same pieces where only ``cleaned`` rises.
        cleaned: below it every key has one record; None where that stays as it is.
        dropped_below: below it records may have been dropped.
        manifests: of this operation, the same for all its attempts; None: of this attempt alone.

    Returns:
        None where it can't be done any more: other pieces are named, or ``cleaned`` is no lower. Or it landed: ask
        ``are_named``.

    Raises:
        StorageError, OSError: the manifest could not be written.
        CorruptionError: the one before is damaged.
    """
    return replace_each(
        topic, base, now, partition, [(old, new)], cleaned=cleaned, dropped_below=dropped_below, manifests=manifests
    )


def replace_each(
    topic: TopicLog,
    base: Stored,
    now: SettleState,
    partition: int,
    swaps: Sequence[tuple[Sequence[Sealed], Sequence[Sealed]]],
    *,
    cleaned: int | None = None,
    dropped_below: int = 0,
    manifests: Manifests | None = None,
) -> Change | None:
    """Return the change that puts other pieces in the place of several runs (``old``, ``new``); see ``replace_own``."""
    row = now.partition(partition)
    own = tuple(topic.own_segments(now, partition).every())
    pieces: tuple[Sealed, ...] | None = own
    for old, new in swaps:
        pieces = None if pieces is None else replaced(pieces, old, new)
    if pieces is None:
        return None
    if cleaned is not None:
        if pieces == own and row.cleaned >= cleaned:
            return None
        row = replace(row, cleaned=max(row.cleaned, cleaned))
    row = row.with_dropped_below(max(row.dropped_below, dropped_below))
    made: tuple[str, ...] = ()
    if pieces != own:
        row, made = _write_manifest(manifests or Manifests(topic, now.topic_id), base, now, partition, row, pieces)
    fresh = [piece for _, new in swaps for piece in new]
    return Change(now.with_row(partition, row), (*made, *objects_of(fresh, own)), objects_of(own, pieces))


def tail_to_own(
    topic: TopicLog,
    base: Stored,
    now: SettleState,
    objects: Sequence[Shared],
    new: Mapping[int, Sequence[Sealed]],
    log_start: Sequence[int],
    manifests: Manifests | None = None,
) -> Change | None:
    """Return the change that names the oldest of the tail as own pieces of the partitions; writes their manifests.

    Args:
        topic, base, now: see ``replace_own``.
        objects: what is taken out of the tail.
        new: partition -> what these objects hold of it, but slices wholly below its log start.
        log_start: of each partition, no older than the one that ``new`` was made with.
        manifests: see ``replace_own``.

    Returns:
        None unless exactly these objects are the first of the tail (rule O2): own pieces lie before all of the tail.

    Raises:
        StorageError, OSError: a manifest could not be written.
        CorruptionError: the one before is damaged, or does not end where ``new`` begins.
    """
    if not objects or now.tail[: len(objects)] != tuple(objects):
        return None
    after, made, dropped = replace(now, tail=now.tail[len(objects) :]), list[str](), list[str]()
    manifests = manifests or Manifests(topic, now.topic_id)
    for partition, pieces in new.items():
        own = tuple(topic.own_segments(now, partition).every())
        every = followed(own, pieces, log_start[partition])
        row, names = _write_manifest(manifests, base, now, partition, now.partition(partition), every)
        after = after.with_row(partition, row)
        made += [*names, *objects_of(pieces, own)]
        dropped += objects_of(own, every)
    return Change(after, tuple(made), tuple(dropped))


def are_named(topic: TopicLog, settle: SettleState, partition: int, pieces: Sequence[Sealed]) -> bool:
    """Return whether all these pieces are a partition's own: an operation that made them landed (rule O2)."""
    return set(pieces) <= set(topic.own_segments(settle, partition).every())


def _write_manifest(
    manifests: Manifests,
    base: Stored,
    now: SettleState,
    partition: int,
    row: SettledPartition,
    pieces: Sequence[Sealed],
) -> tuple[SettledPartition, tuple[str, ...]]:
    """Write a manifest of these pieces; return its row and path."""
    manifest = manifests.after(base, now, partition, pieces)
    return replace(row, manifest=manifest), () if manifest is None else (f"manifests/{manifest.name}",)


def objects_of(pieces: Iterable[Sealed], others: Iterable[Sealed]) -> tuple[str, ...]:
    """Return the paths of the objects of pieces, in their order, but those that others lie in (pure)."""
    kept = {piece.place.object for piece in others if piece.place is not None}
    names = dict.fromkeys(piece.place.object for piece in pieces if piece.place is not None)
    return tuple(f"objects/{name}" for name in names if name not in kept)
