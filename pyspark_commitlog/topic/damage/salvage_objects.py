"""Rewrite of damaged objects, own or shared, without lost offsets.

A lost tail object is inferred from the segments around it, and covered by empty frames. Other slices are copied with
their CRCs, damaged or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import takewhile

import pyarrow as pa

from pyspark_commitlog.errors import CorruptionError, UsageError
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.format.frame import NO_TIMESTAMP
from pyspark_commitlog.format.segment_object import Slice
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.storage.os_errors import unreadable_is_damage
from pyspark_commitlog.topic.damage.salvage import Range, Remaining, WithoutLost, counts, overlap, segment_fragments
from pyspark_commitlog.topic.read.damage import Fragment
from pyspark_commitlog.topic.segments.cutting import Timed
from pyspark_commitlog.topic.segments.directory import SegmentDir
from pyspark_commitlog.topic.segments.frames import WINDOW_BYTES
from pyspark_commitlog.topic.segments.object_writer import ObjectWriter, SliceLimits
from pyspark_commitlog.topic.segments.rewrite import Rules, fill_slice, rewrite_frames
from pyspark_commitlog.topic.settle.merge import replaced_in_tail
from pyspark_commitlog.topic.settle.pieces import Manifests, are_named, replace_each
from pyspark_commitlog.topic.state.settle_change import MAX_DROPS, Change
from pyspark_commitlog.topic.state.settle_state import Sealed, SettledPartition, SettleState, Shared, sealed_slice
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Fragments by segment, see `Salvage.fragments`.
Looked = dict[tuple[int, Sealed], list[Fragment]]


@dataclass(frozen=True, slots=True)
class RewriteUnit:
    """Tail objects to rewrite: one readable, or adjacent unreadable ones.

    `gaps` are the offsets that unreadable ones must have had.
    """

    objects: tuple[Shared, ...]
    slices: tuple[tuple[int, Slice], ...] = ()
    gaps: Mapping[int, Range] | None = None
    why: str = ""

    def held(self) -> Iterator[tuple[int, Range]]:
        """Yield (partition, offsets) that it has or must have had."""
        yield from ((piece.partition, (piece.base_offset, piece.end_offset)) for _, piece in self.slices)
        yield from (self.gaps or {}).items()

    def hit_by(self, lost: Mapping[int, Sequence[Range]]) -> set[int]:
        """Its partitions with some of these offsets."""
        return {partition for partition, offsets in self.held() if _is_hit(offsets, lost.get(partition, ()))}

    def segments(self) -> Iterator[tuple[int, Sealed]]:
        """Yield the readable segments, each after its partition."""
        for position, piece in self.slices:
            yield piece.partition, sealed_slice(self.objects[0].name, position, piece)


class SharedLossError(UsageError):
    """A shared object's rewrite fails: another partition lost more of it."""

    def __init__(self, message: str, partitions: Set[int]) -> None:
        super().__init__(message)
        self.partitions = partitions


@dataclass(frozen=True, slots=True)
class Swap:
    """Replacement of an own piece, or of a unit by an object.

    A unit of unknown content is replaced by nothing.
    """

    old: Sealed | RewriteUnit
    partition: int = -1
    own: tuple[Sealed, ...] = ()
    shared: tuple[Shared, ...] = ()


class Salvage:
    """Readable part of the settled log, and its rewrite.

    `remaining` replaces damage; None gives it up.

    Raises:
        CorruptionError: a manifest is damaged.
    """

    def __init__(
        self,
        topic: TopicLog,
        state: TopicState,
        settled: SettleState,
        remaining: Remaining | None = None,
    ) -> None:
        self._topic, self._state, self._settled = topic, state, settled
        self._number = 0
        self._remaining = WithoutLost(topic, state.topic_id) if remaining is None else remaining
        self._paths = topic.paths(state.topic_id)
        self._own = [
            tuple(topic.own_segments(settled, partition).every()) for partition in range(len(settled.partitions))
        ]
        self._units = self._read_units()

    def _read_units(self) -> list[RewriteUnit]:
        units: list[RewriteUnit] = []
        for shared in self._settled.tail:
            try:
                with unreadable_is_damage(self._topic.storage, self._paths.object(shared.name)):
                    footer = self._topic.footer(self._state.topic_id, shared)
                units.append(RewriteUnit((shared,), tuple(footer.positioned())))
            except (FileNotFoundError, CorruptionError) as error:
                path = self._paths.object(shared.name)
                why = f"{path} is missing" if isinstance(error, FileNotFoundError) else str(error)
                before = units.pop() if units and units[-1].why else RewriteUnit(())
                units.append(RewriteUnit((*before.objects, shared), why="; ".join(filter(None, (before.why, why)))))
        for at, unit in enumerate(units):
            if unit.why:
                units[at] = replace(unit, gaps=self._gaps(units, at))
        return units

    def _gaps(self, units: Sequence[RewriteUnit], at: int) -> dict[int, Range]:
        gaps: dict[int, Range] = {}
        for partition, row in enumerate(self._settled.partitions):
            ends = [each.end_offset for each in self._own[partition][-1:]]
            ends += [end for unit in units[:at] for p, (_, end) in unit.held() if p == partition]
            bases = [base for unit in units[at + 1 :] for p, (base, _) in unit.held() if p == partition]
            end = min(bases, default=row.end_offset)
            start = max(ends, default=min(self._state.log_start[partition], end))
            if start < end:
                gaps[partition] = start, end
        return gaps

    def lowest(self, partition: int) -> int:
        """Return a partition's first named offset."""
        if partition < len(self._own) and self._own[partition]:
            return self._own[partition][0].base_offset
        bases = [base for unit in self._units for p, (base, _) in unit.held() if p == partition]
        return min(bases, default=self._settled.partition(partition).end_offset)

    def fragments(self, ranges: Mapping[int, Range] | None, known: Looked | None = None) -> dict[int, list[Fragment]]:
        """Damage per partition; inside `ranges` also readable fragments.

        `known`: cache of looks with the same ranges.
        """
        found: dict[int, list[Fragment]] = {}
        known = {} if known is None else known
        for partition, segment in self._segments():
            wanted = _wanted(ranges, partition)
            if wanted is None or overlap(wanted, (segment.base_offset, segment.end_offset)):
                found.setdefault(partition, []).extend(self._look(partition, segment, wanted, known))
        for partition, fragment in self._gap_fragments(ranges):
            found.setdefault(partition, []).append(fragment)
        return {partition: sorted(some, key=lambda each: each.start) for partition, some in found.items() if some}

    def _look(self, partition: int, segment: Sealed, wanted: Range | None, known: Looked) -> list[Fragment]:
        if (partition, segment) not in known:
            every = segment_fragments(self._topic, self._state.topic_id, partition, segment, segment.end_offset)
            known[partition, segment] = [each for each in every if counts(each, wanted)]
        return known[partition, segment]

    def _gap_fragments(self, ranges: Mapping[int, Range] | None) -> Iterator[tuple[int, Fragment]]:
        for unit in self._units:
            for partition, gap in (unit.gaps or {}).items():
                wanted = _wanted(ranges, partition)
                if wanted is None or overlap(wanted, gap):
                    yield partition, Fragment(*gap, None, unit.why)

    def is_named(self, now: SettleState, found: Mapping[int, Sequence[Fragment]]) -> bool:
        """Whether a later settle state names all segments of these fragments."""
        lost = {partition: [(each.start, each.end) for each in some] for partition, some in found.items()}
        for partition, ranges in lost.items():
            hit = [each for each in self._own[partition] if _is_hit((each.base_offset, each.end_offset), ranges)]
            if hit and not are_named(self._topic, now, partition, hit):
                return False
        return all(set(unit.objects) <= set(now.tail) for unit in self._units if unit.hit_by(lost))

    def _segments(self) -> Iterator[tuple[int, Sealed]]:
        for partition, pieces in enumerate(self._own):
            yield from ((partition, piece) for piece in pieces)
        for unit in self._units:
            yield from unit.segments()

    def write(self, lost: Mapping[int, Sequence[Range]]) -> list[Swap]:
        """Rewrite everything with `lost` offsets; unnamed until `publish`.

        Raises:
            SharedLossError: an object has further damage.
            UsageError: a segment has.
            StorageError: no space or permission.
        """
        swaps: list[Swap] = []
        self._number = self._topic.settled(self._state.topic_id)[0].sequence  # segments may have been read long ago
        for partition, ranges in lost.items():
            before = NO_TIMESTAMP
            for piece in self._own[partition]:
                if _is_hit((piece.base_offset, piece.end_offset), ranges):
                    swaps.append(Swap(piece, partition, self._rewritten(partition, piece, ranges, before)))
                before = piece.max_timestamp
        for unit in self._units:
            if unit.hit_by(lost) or (unit.why and not unit.gaps):
                shared = self._shared(unit, lost)
                swaps.append(Swap(unit, shared=() if shared is None else (shared,)))
        return swaps

    def _rewritten(self, partition: int, piece: Sealed, lost: Sequence[Range], latest_ms: int) -> tuple[Sealed, ...]:
        left = self._remaining.of_segment(partition, piece, piece.end_offset, lost)
        directory = SegmentDir(self._topic.storage, self._paths, partition)
        base, end, rules = piece.base_offset, piece.end_offset, self._rules()
        written = rewrite_frames(
            directory, base, end, left, rules, number=self._number, latest_ms=latest_ms, lost_ms=piece.max_timestamp
        )
        return tuple(written)

    def _rules(self) -> Rules:
        now_ms = self._topic.storage.clock.now_ms()
        return Rules.of(self._topic.config(self._state), log_start=0, cleaned=0, now_ms=now_ms)

    def _shared(self, unit: RewriteUnit, lost: Mapping[int, Sequence[Range]]) -> Shared | None:
        limits = SliceLimits.of(self._topic.config(self._state))
        writer = ObjectWriter(self._topic.storage, self._paths, self._number, limits)
        with call_on_error(writer.discard):
            for position, piece in unit.slices:
                self._slice(writer, unit, position, piece, lost)
            for partition, (start, end) in sorted((unit.gaps or {}).items()):
                needed = max(start, min(end, self._state.log_start[partition])), end
                self._check_given_up(unit, partition, needed, lost, unit.why)
                left = self._remaining.of_gap(partition, *needed) if needed[0] < end else ()
                self._fill(writer, unit, partition, (start, end), left, self._after_ms(unit, partition))
            written = writer.finish(max(shared.tier for shared in unit.objects))
        return None if written is None else written.shared

    def _check_given_up(
        self, unit: RewriteUnit, partition: int, needed: Range, lost: Mapping[int, Sequence[Range]], why: str
    ) -> None:
        """Refuse lost offsets that are neither given up nor found elsewhere."""
        start, end = needed
        if start == end or any(first <= start and end <= last for first, last in lost.get(partition, ())):
            return
        raise SharedLossError(
            f"topic {self._topic.name!r} partition {partition}: offsets {start} to {end} (exclusive) "
            f"are lost with the same object ({why}); nothing was voided: give them up, too",
            unit.hit_by(lost),
        )

    def _slice(
        self, writer: ObjectWriter, unit: RewriteUnit, at: int, piece: Slice, lost: Mapping[int, Sequence[Range]]
    ) -> None:
        segment, partition = sealed_slice(unit.objects[0].name, at, piece), piece.partition
        if piece.end_offset <= self._state.log_start[partition]:  # unneeded, and perhaps damaged
            self._fill(writer, unit, partition, (piece.base_offset, piece.end_offset), (), piece.max_timestamp)
            return
        if _is_hit((piece.base_offset, piece.end_offset), ranges := lost.get(partition, ())):
            left = self._remaining.of_segment(partition, segment, piece.end_offset, ranges)
            self._fill(writer, unit, partition, (piece.base_offset, piece.end_offset), left, piece.max_timestamp)
            return
        storage, path, end = self._topic.storage, self._paths.object(unit.objects[0].name), at + piece.length
        starts = range(at, end, WINDOW_BYTES)
        data: Iterator[pa.Buffer] = (storage.map(path, start, min(WINDOW_BYTES, end - start)) for start in starts)
        try:
            with unreadable_is_damage(storage, path):
                writer.copy(piece, data)
        except (FileNotFoundError, CorruptionError) as error:  # although its footer was cached
            self._check_given_up(unit, partition, (piece.base_offset, piece.end_offset), lost, str(error))

    def _fill(
        self,
        writer: ObjectWriter,
        unit: RewriteUnit,
        partition: int,
        offsets: Range,
        left: Iterable[Timed],
        lost_ms: int,
    ) -> None:
        into, latest_ms = writer.slice(partition, offsets[0]), self._before_ms(unit, partition)
        fill_slice(into, offsets[1], left, self._rules(), self._state.topic_id, partition, latest_ms, lost_ms)

    def _before_ms(self, unit: RewriteUnit, partition: int) -> int:
        known = [piece.max_timestamp for piece in self._own[partition]]
        for other in takewhile(lambda other: other is not unit, self._units):
            known += [piece.max_timestamp for _, piece in other.slices if piece.partition == partition]
        return max(known, default=NO_TIMESTAMP)

    def _after_ms(self, unit: RewriteUnit, partition: int) -> int:
        units = iter(self._units)
        any(other is unit for other in units)  # up to that
        following = (piece for other in units for _, piece in other.slices if piece.partition == partition)
        return next((piece.max_timestamp for piece in following), NO_TIMESTAMP)


def _wanted(ranges: Mapping[int, Range] | None, partition: int) -> Range | None:
    return None if ranges is None else ranges.get(partition, (0, 0))


def _is_hit(offsets: Range, lost: Sequence[Range]) -> bool:
    return any(overlap(offsets, each) for each in lost)


def publish(
    topic: TopicLog,
    topic_id: str,
    swaps: Sequence[Swap],
    rows: Mapping[int, Callable[[SettledPartition], SettledPartition | None]] | None = None,
) -> bool:
    """Publish all swaps or none; return whether they are published.

    None if another process took a source (O2): one segment may have a key's tombstone and another an older record.
    `rows` change partitions' rows further; None from one gives up.
    """
    manifests, own = Manifests(topic, topic_id), dict[int, list[tuple[Sequence[Sealed], Sequence[Sealed]]]]()
    for swap in swaps:
        if isinstance(swap.old, Sealed):
            own.setdefault(swap.partition, []).append(([swap.old], swap.own))

    def swapped(base: Stored, now: SettleState) -> Change | None:
        after, made, dropped = now, list[str](), list[str]()
        for partition, some in own.items():
            change = replace_each(topic, base, after, partition, some, manifests=manifests)
            if change is None:
                return None
            after, made, dropped = change.after, [*made, *change.made], [*dropped, *change.dropped]
        for swap in swaps:
            if isinstance(swap.old, RewriteUnit):
                tail = replaced_in_tail(after.tail, swap.old.objects, swap.shared)
                if tail is None:
                    return None
                after = replace(after, tail=tail)
                made += [f"objects/{shared.name}" for shared in swap.shared]
        for partition, changed in (rows or {}).items():
            row = changed(after.partition(partition))
            if row is None:
                return None
            after = after.with_row(partition, row)
        return Change(after, tuple(made), tuple(dropped[: MAX_DROPS // 2]))  # the rest is the sweep's

    if topic.change(topic_id, swapped) is not None:
        return True
    now = topic.settled(topic_id)[1]  # the reply may have been lost
    return all(_is_published(topic, now, swap) for swap in swaps)


def _is_published(topic: TopicLog, now: SettleState, swap: Swap) -> bool:
    if isinstance(swap.old, Sealed):
        return are_named(topic, now, swap.partition, swap.own)
    return set(swap.shared) <= set(now.tail) and not set(swap.old.objects) & set(now.tail)
