"""Replacement of own pieces, and moves from the tail (rule O2).

A *piece* is a sealed segment in a segment object. Own pieces are a manifest's rows, each with an object to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark_commitlog.errors import CorruptionError
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.segments.writer import write_manifest
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import (
    Manifest,
    Sealed,
    SettledPartition,
    SettleState,
    Shared,
    objects_of,
)
from pyspark_commitlog.topic.topic_log import TopicLog


def replaced(own: Sequence[Sealed], old: Sequence[Sealed], new: Sequence[Sealed]) -> tuple[Sealed, ...] | None:
    """Replace `old` by `new` among a partition's pieces (pure).

    None unless exactly these are named and adjacent (O2). Offsets must match; first pieces may also go without
    replacement.
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
    """Append pieces (pure).

    Raises:
        CorruptionError: there is a gap that is not below `log_start`.
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
    """Writer of an operation's manifests, shared by its attempts.

    An attempt reuses an earlier manifest if base and number of pieces are the same, to win races against frequent
    settles. Files below the floor are written again (O4).
    """

    topic: TopicLog
    topic_id: str
    _written: dict[tuple[int, Manifest | None, int], tuple[int, Manifest]] = field(default_factory=dict)

    def after(self, base: Stored, now: SettleState, partition: int, pieces: Sequence[Sealed]) -> Manifest | None:
        """Manifest of some pieces; None if there are none.

        Different lists of one operation after the same manifest must differ in length.
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
    """Change that replaces own pieces; writes the manifest.

    None if other pieces are named, `cleaned` is not higher, or it has landed: ask `are_named`.

    Args:
        topic, partition: the partition.
        base, now: the newest settle entry and its state.
        old, new: see `replaced`; equal if only `cleaned` rises.
        cleaned, dropped_below: of the row.
        manifests: shared by the operation's attempts.

    Raises:
        StorageError, OSError: the manifest could not be written.
        CorruptionError: the previous manifest is damaged.
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
    """Like `replace_own`, for several (`old`, `new`)."""
    row = now.partition(partition)
    own = tuple(topic.own_segments(now, partition).every())
    pieces = _replaced_each(own, swaps)
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


def _replaced_each(
    own: tuple[Sealed, ...], swaps: Sequence[tuple[Sequence[Sealed], Sequence[Sealed]]]
) -> tuple[Sealed, ...] | None:
    pieces: tuple[Sealed, ...] | None = own
    for old, new in swaps:
        pieces = None if pieces is None else replaced(pieces, old, new)
    return pieces


def tail_to_own(
    topic: TopicLog,
    base: Stored,
    now: SettleState,
    objects: Sequence[Shared],
    new: Mapping[int, Sequence[Sealed]],
    log_start: Sequence[int],
    manifests: Manifests | None = None,
) -> Change | None:
    """Change that moves the oldest tail objects to own pieces.

    None unless exactly these `objects` are the first of the tail (O2). `new` are their pieces above the log start, by
    partition.

    Raises:
        StorageError, OSError: a manifest could not be written.
        CorruptionError: the previous one is damaged, or ends before `new`.
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
    """Whether a partition names all these pieces (rule O2)."""
    return set(pieces) <= set(topic.own_segments(settle, partition).every())


def _write_manifest(
    manifests: Manifests,
    base: Stored,
    now: SettleState,
    partition: int,
    row: SettledPartition,
    pieces: Sequence[Sealed],
) -> tuple[SettledPartition, tuple[str, ...]]:
    manifest = manifests.after(base, now, partition, pieces)
    return replace(row, manifest=manifest), () if manifest is None else (f"manifests/{manifest.name}",)
