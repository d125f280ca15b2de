"""Merging of segment objects, to keep them few.

The tail is merged by tiers into larger shared objects, and from about 8 MiB per partition into own objects, up to
`segment.bytes`. Any number of processes may merge; duplicates are given up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from pyspark_commitlog.errors import as_reported, combine_errors
from pyspark_commitlog.failures import call_on_error
from pyspark_commitlog.journal import Stored
from pyspark_commitlog.topic.segments.frames import earliest_ms, segment_span
from pyspark_commitlog.topic.segments.growing import Stamped, stamped
from pyspark_commitlog.topic.segments.object_writer import ObjectWriter, SliceLimits, Written
from pyspark_commitlog.topic.settle.frame_joiner import FrameJoiner
from pyspark_commitlog.topic.settle.merge_plan import OwnMerge, TailMerge, is_tier_due, plan_own, plan_tail
from pyspark_commitlog.topic.settle.pieces import Manifests, are_named, replace_own, tail_to_own
from pyspark_commitlog.topic.settle.sources import DamagedError, Sources, damage_of, read_frames
from pyspark_commitlog.topic.state.settle_change import Change
from pyspark_commitlog.topic.state.settle_state import Sealed, SettleState, Shared
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog

#: Newest own pieces that a commit considers.
_RECENT = 64


@dataclass(frozen=True, slots=True)
class Merged:
    """Number of published merges, and bytes written."""

    merges: int = 0
    size_bytes: int = 0

    def plus(self, size_bytes: int) -> Merged:
        """Add one merge."""
        return Merged(self.merges + 1, self.size_bytes + size_bytes)


NOTHING_MERGED = Merged()


class _TooLargeError(Exception):
    """A slice would not fit into a segment."""


class _InVainError(Exception):
    """Another process took or released the sources."""


def merge(
    topic: TopicLog, topic_id: str, *, most_bytes: int | None = None, enough: Callable[[], bool] = lambda: False
) -> Merged:
    """Merge what is due, smallest first, asking `enough` before each.

    `most_bytes`: largest merge, unless it is late; None: unlimited, own pieces too.

    Raises:
        CorruptionError: some sources are damaged; all other merges were published.
        StorageError: the current merge was not published.
    """
    done, tried, own = NOTHING_MERGED, set[object](), most_bytes is None
    damage: dict[str | int, Exception] = {}
    while not enough():
        base, settled = topic.settled(topic_id)
        if not own and not is_tier_due(settled.tail):  # the common case, without further reads
            break
        work = _Merge(topic, topic.newest(topic_id)[1], base, settled, damage)
        try:
            plan = work.plan(most_bytes, own=own)
            if plan is None or plan in tried:
                break
            tried.add(plan)
            done = done.plus(work.run(plan))
            own = own or (isinstance(plan, TailMerge) and plan.split)
        except _InVainError:
            continue
        except DamagedError as error:
            if error.is_damage(settled, topic.settled(topic_id)[1]):
                damage |= dict.fromkeys(error.parts, as_reported(error.error))
    if damage:
        failures = list(dict.fromkeys(damage.values()))
        raise combine_errors(failures, f"topic {topic.name!r}: {len(failures)} merges failed")
    return done


def split(topic: TopicLog, topic_id: str, objects: Sequence[Shared]) -> int:
    """Split the first tail objects into own pieces; return bytes written.

    0 if another process took one.

    Raises:
        CorruptionError: one is damaged; only those before it were split.
        StorageError: nothing was published.
    """
    if not objects:
        return 0
    base, settled = topic.settled(topic_id)
    try:
        return _Merge(topic, topic.newest(topic_id)[1], base, settled).run(TailMerge(tuple(objects), split=True))
    except _InVainError:
        return 0
    except DamagedError as error:
        if error.is_damage(settled, topic.settled(topic_id)[1]):
            damaged = error.parts
            split(topic, topic_id, tuple(takewhile(lambda shared: shared.name not in damaged, objects)))
            raise as_reported(error.error) from error
        return 0


class _Merge:
    """Planning and work of one merge.

    `state` is read after `settled`, see `Sources`; `base` gives names (rule O1); `damaged` are left out.
    """

    def __init__(
        self,
        topic: TopicLog,
        state: TopicState,
        base: Stored,
        settled: SettleState,
        damaged: Collection[str | int] = (),
    ) -> None:
        self._topic, self._state, self._base, self._settled = topic, state, base, settled
        self._damaged = damaged
        self._config = topic.config(state)
        self._limits = SliceLimits.of(self._config)
        self._paths = topic.paths(state.topic_id)

    def plan(self, most_bytes: int | None, *, own: bool) -> TailMerge | OwnMerge | None:
        """Return a due merge within the limit, or None; the tail first.

        `own` includes own pieces, whose manifests are read.

        Raises:
            DamagedError: a source can't be read.
        """
        for tail in plan_tail(self._settled.tail, self._log_bytes, self._limits.segment_bytes, self._damaged):
            if most_bytes is None or tail.size_bytes <= most_bytes or tail.late:
                return tail
        if not own or self._config.has_policy("compact"):  # compaction joins pieces too
            return None
        return self._plan_own(most_bytes)

    def _plan_own(self, most_bytes: int | None) -> OwnMerge | None:
        for partition in range(len(self._settled.partitions)):
            if partition in self._damaged:
                continue
            with damage_of(partition):
                pieces = tuple(self._topic.own_segments(self._settled, partition).every())
            found = plan_own(pieces if most_bytes is None else pieces[-_RECENT:], self._limits.segment_bytes)
            if found and (most_bytes is None or sum(piece.length for piece in found) <= most_bytes):
                return OwnMerge(partition, found)
        return None

    def _log_bytes(self, shared: Shared) -> dict[int, int]:
        with damage_of(shared.name):
            slices = self._topic.footer(self._settled.topic_id, shared).slices
        return {piece.partition: piece.parts[0].length for piece in slices}

    def run(self, plan: TailMerge | OwnMerge) -> int:
        """Run and publish a merge; return the bytes written.

        Raises:
            _InVainError, DamagedError: it was overtaken, or a source can't be read.
        """
        if isinstance(plan, OwnMerge):
            with damage_of(plan.partition):
                return self._merge_own(plan)
        with damage_of(*(shared.name for shared in plan.objects)):
            return self._merge_tail(plan)

    def _merge_tail(self, plan: TailMerge) -> int:
        if plan.split:
            return self._split(plan)
        try:
            return self._join(plan)
        except _TooLargeError:
            end = self._settled.tail.index(plan.objects[-1]) + 1
            return self._split(replace(plan, objects=self._settled.tail[:end], split=True))

    # --- the tail ----------------------------------------------------------------------------------------

    def _join(self, plan: TailMerge) -> int:
        """Replace tail objects by one, or none if below the log start."""
        written = self._write_shared(plan)
        made = () if written is None else (written.shared,)

        def join(_: Stored, now: SettleState) -> Change | None:
            tail = replaced_in_tail(now.tail, plan.objects, made)
            if tail is None:
                return None
            return Change(replace(now, tail=tail), tuple(f"objects/{shared.name}" for shared in made))

        published = self._topic.change(self._state.topic_id, join)
        if published is None and not (made and made[0] in self._topic.settled(self._state.topic_id)[1].tail):
            raise _InVainError
        return sum(shared.size_bytes for shared in made)

    def _write_shared(self, plan: TailMerge) -> Written | None:
        sources = Sources(self._topic, self._state, plan.objects)
        writer = self._writer()
        with call_on_error(writer.discard):
            for partition, pieces in sources.partitions.items():
                into = writer.slice(partition, pieces[0].base_offset)
                for frame in self._frames(partition, pieces, sources):
                    if into.full(frame):
                        raise _TooLargeError
                    into.append(frame)
                into.finish()
            if replaced_in_tail(self._topic.settled(self._state.topic_id)[1].tail, plan.objects, ()) is None:
                raise _InVainError  # reread before the bytes are put (rule O13)
            return writer.finish(plan.tier)

    def _frames(self, partition: int, pieces: Sequence[Sealed], sources: Sources) -> Iterator[Stamped]:
        frame_bytes = min(self._config.number("batch.size"), self._limits.segment_bytes)
        merger = FrameJoiner(frame_bytes, self._config.codec(), self._state.topic_id, partition)
        for piece in pieces:
            for found in sources.frames(partition, piece):
                yield from merger.offer(found)
        yield from merger.drain()

    # --- own pieces --------------------------------------------------------------------------------------

    def _split(self, plan: TailMerge) -> int:
        sources, new, size = Sources(self._topic, self._state, plan.objects), dict[int, list[Sealed]](), 0
        for partition, pieces in sources.partitions.items():
            new[partition], written = self._write_own(partition, self._frames(partition, pieces, sources))
            size += written
        manifests, starts = Manifests(self._topic, self._state.topic_id), self._state.log_start

        def split(base: Stored, now: SettleState) -> Change | None:
            return tail_to_own(self._topic, base, now, plan.objects, new, starts, manifests)

        if self._topic.change(self._state.topic_id, split) is None:
            self._check_landed(new.items())
        return size

    def _merge_own(self, plan: OwnMerge) -> int:
        new, size = self._write_own(plan.partition, self._copies(plan.partition, plan.pieces))
        manifests = Manifests(self._topic, self._state.topic_id)

        def swap(base: Stored, now: SettleState) -> Change | None:
            return replace_own(self._topic, base, now, plan.partition, plan.pieces, new, manifests=manifests)

        if self._topic.change(self._state.topic_id, swap) is None:
            self._check_landed([(plan.partition, new)])
        return size

    def _check_landed(self, new: Iterable[tuple[int, Sequence[Sealed]]]) -> None:
        """Raise unless the result is named: then only the reply was lost (O2)."""
        _, now = self._topic.settled(self._state.topic_id)
        if not all(are_named(self._topic, now, partition, pieces) for partition, pieces in new):
            raise _InVainError

    def _write_own(self, partition: int, frames: Iterator[Stamped]) -> tuple[list[Sealed], int]:
        made, size, frame = list[Sealed](), 0, next(frames, None)
        while frame is not None:
            writer = self._writer()
            with call_on_error(writer.discard):
                into = writer.slice(partition, frame.base_offset)
                while frame is not None and not into.full(frame):
                    into.append(frame)
                    frame = next(frames, None)
                into.finish()
                written = writer.finish(0)
            assert written is not None
            made.append(written.sealed()[partition])
            size += written.shared.size_bytes
        return made, size

    def _copies(self, partition: int, pieces: Sequence[Sealed]) -> Iterator[Stamped]:
        """Yield own pieces' frames unchanged; small ones were joined in the tail."""
        for piece in pieces:
            for found in read_frames(self._topic.storage, segment_span(self._paths, partition, piece), piece):
                yield stamped(found.frame, earliest_ms(found.frame, found.payload))

    def _writer(self) -> ObjectWriter:
        return ObjectWriter(self._topic.storage, self._paths, self._base.sequence, self._limits)


def replaced_in_tail(tail: Sequence[Shared], old: Sequence[Shared], new: Sequence[Shared]) -> tuple[Shared, ...] | None:
    """Replace adjacent objects of the tail; None if they changed (O2; pure)."""
    at = next((number for number, shared in enumerate(tail) if shared == old[0]), None)
    if at is None or tuple(tail[at : at + len(old)]) != tuple(old):
        return None
    return (*tail[:at], *new, *tail[at + len(old) :])
