"""Copy of one topic: an entry under the source's number and history.

A copy is always exactly the source after some entry, of all partitions at once (docs/explanation/design/copies.md).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from pyspark_commitlog.config import check_together
from pyspark_commitlog.copying.copy_staging import Stage, noted_pieces, remove_notes
from pyspark_commitlog.copying.decision import (
    DestinationHead,
    Piece,
    begun_state,
    check_destination,
    check_starts,
    copied_state,
    differing,
    effective,
    every_writer,
    looked_ms,
    numbered,
    on_the_way,
    starts,
)
from pyspark_commitlog.errors import (
    CommitLogError,
    ConflictError,
    CorruptionError,
    LogTruncationError,
    OffsetOutOfRangeError,
    UsageError,
    as_reported,
)
from pyspark_commitlog.format import paths as names
from pyspark_commitlog.format.entry import to_json_bytes
from pyspark_commitlog.format.index import IndexState
from pyspark_commitlog.format.lineage import Lineage
from pyspark_commitlog.format.schema.topic_schema import TopicSchema
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.model import Progress, silent
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.maintain.settle import settle_on
from pyspark_commitlog.topic.state.home import settle_draft
from pyspark_commitlog.topic.state.schema_state import loaded_schema, place_schema
from pyspark_commitlog.topic.state.settle_state import Active, SettledPartition, SettleState
from pyspark_commitlog.topic.state.side_files import TABLE_BYTES, named_side, place_tables
from pyspark_commitlog.topic.state.topic_state import TopicState, Writers, chunks_to_json, with_mark
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import check_chunks, check_damaged
from pyspark_commitlog.topic.write.writers import WRITER_ROWS

logger = logging.getLogger("pyspark_commitlog.copying")

#: Looks at the source while retention or another copy is faster.
_LOOKS = 10
#: Budget of a settling run before it publishes, seconds.
_SETTLE_SECONDS = 5.0
_MARK_MS = 3_600_000
#: Config of how long a tombstone stays at the source.
_STAY = "delete.retention.ms"


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """Outcome of a topic's copy.

    Offsets `copied`, up to the source's entry `sequence`.
    """

    topic: str
    copied: int
    sequence: int
    log_end: tuple[int, ...]


class _PutOutcome(Enum):
    DONE = "done"
    ON_THE_WAY = "on the way"
    AGAIN = "again"


@dataclass(frozen=True, slots=True)
class _Source:
    state: TopicState
    writers: Writers
    config: Mapping[str, str] = field(default_factory=dict)


def copy_topic(source: TopicLog, destination: TopicLog, progress: Progress = silent) -> CopiedTopic:
    """Copy what the destination lacks, then settle it there.

    Args:
        source, destination: handles of the topic in both roots, of this call alone.
        progress: gets a title, and offsets done and in all; may raise to stop.

    Raises:
        TopicExistsError, ConflictError, LogTruncationError: see `check_destination`; nothing was copied.
        UnknownTopicError, TopicChangedError: the source is missing, or was deleted meanwhile.
        ConfigError: the destination's storage does not allow the configs.
        KafkaStorageError: a partition is damaged at the destination.
        UsageError: a new topic at one of several roots.
        CorruptionError: the source is damaged; what was staged stays.
        OutcomeUnknownError: run it again: it copies once.
    """
    for _ in range(_LOOKS):
        done = _CopyRound(source, destination, progress).run()
        if done is not None:
            _settle(destination, progress)
            return done
    raise ConflictError(
        f"topic {source.name!r}: while it was copied to {destination.storage.url}, retention or another copy was "
        f"faster {_LOOKS} times; run it again"
    )


def stage_ahead(
    source: TopicLog, destination: TopicLog, partitions: Collection[int], progress: Progress = silent
) -> None:
    """Stage some partitions for a later `copy_topic`, to share its work.

    Nothing is visible yet; what retention overtakes is left to that.
    """
    _CopyRound(source, destination, progress).stage_ahead(partitions)


class _CopyRound:
    def __init__(self, source: TopicLog, destination: TopicLog, progress: Progress) -> None:
        self._from, self._to, self._progress = source, destination, progress
        self._begun: Sequence[int] = ()
        self._before = self._destination_head()  # before the source, so that its history is no older
        self._source = self._look()

    def _destination_head(self) -> DestinationHead | None:
        stored = self._to.journal.newest()
        return None if stored is None else DestinationHead(stored, self._to.state_of(stored.entry))

    def _look(self) -> _Source:
        self._from.forget_defaults()
        self._to.forget_defaults()
        while True:
            newest, state = self._from.newest_durable()
            try:
                rows = every_writer(self._from.snapshot(state), state.writers)
                state = replace(state, schema=loaded_schema(state.schema))
            except (FileNotFoundError, CorruptionError) as error:  # its tables were collected: there is a newer entry
                if self._from.newest()[0] == newest:
                    raise as_reported(error) from error.__cause__
                continue
            stored = self._from.config(state)
            own = self._defaults()
            config = effective(state.config, stored.stored, stored.resolved(), own)
            check_together({**own, **config}, appends=self._to.storage.can_append)
            return _Source(state, Writers(None, rows, state.writers.forgotten), config)

    def _defaults(self) -> Mapping[str, str]:
        return self._to.config(TopicState("", False, {}, (0,), (0,), 0)).stored

    def run(self) -> CopiedTopic | None:
        """Copy; None to look again, as somebody was faster."""
        state, start = self._source.state, self._start()
        self._warn_of_configs()
        began_ms = self._to.storage.now_ms() if self._is_compacted else 0
        pieces = self._stage(start)
        if pieces is not None:
            self._warn_of_tombstones(start, pieces, began_ms)
        if pieces is None or self._commit(start, pieces) is _PutOutcome.AGAIN:
            return None
        remove_notes(self._to.storage, self._to.paths(state.topic_id))
        copied = sum(end - first for first, end in zip(start, state.log_end, strict=True))
        return CopiedTopic(self._from.name, copied, state.lineage.sequence, state.log_end)

    def stage_ahead(self, partitions: Collection[int]) -> None:
        self._stage(self._start(), partitions)

    def _start(self) -> tuple[int, ...]:
        state = self._source.state
        check_destination(self._before, state, self._from.name, self._to.storage.url)
        if self._before is None or self._before.state.deleted:
            check_stands_alone(self._to.storage, [self._from.name])
            self._begun = make_home(self._to, state)
            state = self._look_after(self._begun)
        start = starts(self._begun, self._before, state)
        check_starts(start, state, self._from.name, self._to.storage.url)
        return start

    def _look_after(self, begun: Sequence[int]) -> TopicState:
        if any(first > end for first, end in zip(begun, self._source.state.log_end, strict=False)):
            self._source = self._look()
        return self._source.state

    def _stage(self, start: Sequence[int], partitions: Collection[int] | None = None) -> list[Piece] | None:
        """Stage what is missing; None if retention was faster."""
        state, storage = self._source.state, self._to.storage
        total, done = sum(state.log_end) - sum(start), 0

        def staged(offsets: int) -> None:
            nonlocal done
            done += offsets
            self._progress("copy", done, total)

        newest = self._before.stored.sequence if self._before else 0
        stage = Stage(self._from, state, self._to, start, newest, staged, self._latest_ms)
        known = noted_pieces(storage, self._to.paths(state.topic_id), state)
        try:
            return stage.run(known, partitions)
        except LogTruncationError:
            raise
        except OffsetOutOfRangeError as error:
            logger.info("topic %r: %s: looked at again", self._from.name, error)
            return None

    def _warn_of_configs(self) -> None:
        # defaults have changed without an entry
        before = self._before
        if before is None or before.state.deleted or before.stored.sequence != self._source.state.lineage.sequence:
            return
        differ = differing(before.state.config, self._source.config, self._defaults())
        if differ:
            logger.warning(
                "topic %r: configs of its copy in %s differ, and come with the next commit to the source: %s",
                self._from.name, self._to.storage.url, "; ".join(differ),
            )  # fmt: skip

    @property
    def _is_compacted(self) -> bool:
        return self._from.config(self._source.state).has_policy("compact")

    def _warn_of_tombstones(self, start: Sequence[int], pieces: Sequence[Piece], began_ms: int) -> None:
        state, storage = self._source.state, self._to.storage
        if not self._is_compacted or tuple(start) == state.log_end:
            return
        since_ms, stay_ms = looked_ms(self._before, pieces, began_ms), self._from.config(state).number(_STAY)
        age_ms = storage.now_ms() - since_ms if since_ms else 0
        if age_ms <= stay_ms:
            return
        logger.warning(
            "topic %r: its copy in %s goes on with what was copied %d minutes ago, and %s is %d: tombstones of it may "
            "be gone, and keys that were deleted since live on in the copy. If any were, copy it whole to an empty "
            "root, and run copies more often",
            self._from.name, storage.url, age_ms // 60_000, _STAY, stay_ms,
        )  # fmt: skip

    def _latest_ms(self, partition: int) -> int:
        state = self._source.state
        _, settled = self._to.settled(state.topic_id)
        row = settled.partition(partition)
        segments = self._to.segments(settled, partition)
        latest = max((row.active.max_timestamp, *segments.latest[-1:]))
        return latest if latest >= 0 else self._to.storage.clock.now_ms()

    # --- entries -----------------------------------------------------------------------------------------

    def _commit(self, start: Sequence[int], pieces: Sequence[Piece]) -> _PutOutcome:
        def plan(base: Stored | None, slot: Slot) -> Draft[_PutOutcome] | Unchanged[_PutOutcome]:
            head = None if base is None else DestinationHead(base, self._to.state_of(base.entry))
            return self._planned(head, slot, start, pieces)

        outcome = _PutOutcome.ON_THE_WAY
        while outcome is _PutOutcome.ON_THE_WAY:
            outcome = self._to.journal.append(plan).result
        return outcome

    def _planned(
        self, head: DestinationHead | None, slot: Slot, start: Sequence[int], pieces: Sequence[Piece]
    ) -> Draft[_PutOutcome] | Unchanged[_PutOutcome]:
        source, living = self._source.state, _living(head)
        if living is not None and living.stored.sequence > source.lineage.sequence:
            return Unchanged(_PutOutcome.AGAIN)  # another look at the source shows whose entry that is
        try:
            check_destination(head, source, self._from.name, self._to.storage.url)
        except LogTruncationError:  # another copy looked later, or the source was restored: look again
            return Unchanged(_PutOutcome.AGAIN)
        if living is not None and living.stored.sequence == source.lineage.sequence:
            return Unchanged(_PutOutcome.DONE)
        if starts(self._begun, head, source) != tuple(start) or slot.sequence > source.lineage.sequence:
            return Unchanged(_PutOutcome.AGAIN)
        if slot.sequence == source.lineage.sequence:
            return self._final_draft(head, slot, pieces)
        if living is None:
            schema, sides = place_schema(source.schema, slot.sequence, slot.write_id)
            begun = start[: len(self._begun)]
            state, lineage = begun_state(head, replace(source, schema=schema), begun, self._source.config, slot)
            return _draft(state, slot, lineage=lineage, leap=source.lineage.sequence, sides=sides)
        state, lineage = on_the_way(living, source, slot)
        return _draft(state, slot, lineage=lineage)

    def _final_draft(self, head: DestinationHead | None, slot: Slot, pieces: Sequence[Piece]) -> Draft[_PutOutcome]:
        source, living = self._source, _living(head)
        writers, sides = _place_writers(source.writers, slot)
        schema, columns = _place_schema(source.state.schema, living, slot)
        from_source = replace(source.state, schema=schema)
        state = copied_state(head, from_source, self._begun, writers, source.config, slot)
        if living is not None:
            state = with_mark(state, living.stored.sequence, living.stored.info.modified_ms, _MARK_MS)
        chunks, extents = numbered(pieces)
        partitions = {extent.partition for extent in extents}
        check_damaged(self._to.damaged(source.state.topic_id), partitions, self._to.name)
        check_chunks(self._to, source.state.topic_id, chunks)
        large = {"extents": [each.to_json() for each in extents], "chunks": chunks_to_json(chunks)} if pieces else {}
        tables = place_tables(large, slot.sequence, slot.write_id)
        body = {"state": state.to_json(), **tables.body}
        sides = {**sides, **columns, **tables.sides}
        return Draft("copy", state.topic_id, body, sides=sides, lineage=source.state.lineage, result=_PutOutcome.DONE)


def _living(head: DestinationHead | None) -> DestinationHead | None:
    return None if head is None or head.state.deleted else head


def _draft(
    state: TopicState,
    slot: Slot,
    *,
    lineage: Lineage,
    leap: int | None = None,
    sides: Mapping[str, bytes] = MappingProxyType({}),
) -> Draft[_PutOutcome]:
    after = leap if leap is not None and leap > slot.sequence + 1 else None
    body, going_on = {"state": state.to_json()}, _PutOutcome.ON_THE_WAY
    return Draft("copy", state.topic_id, body, sides=sides, lineage=lineage, next=after, result=going_on)


def _place_schema(
    schema: TopicSchema | None, living: DestinationHead | None, slot: Slot
) -> tuple[TopicSchema | None, dict[str, bytes]]:
    """Place a schema's columns, in the side file that has them already if it is unchanged."""
    there = None if living is None else living.state.schema
    if there is not None and schema is not None and there.version == schema.version and there == schema:
        return there, {}
    return place_schema(schema, slot.sequence, slot.write_id)


def _place_writers(writers: Writers, slot: Slot) -> tuple[Writers, dict[str, bytes]]:
    rows = {name: row.to_json() for name, row in writers.rows.items()}
    if len(rows) <= WRITER_ROWS and len(to_json_bytes(rows)) <= TABLE_BYTES:
        return writers, {}
    data = to_json_bytes(rows)
    snapshot = named_side("writers", data, slot.sequence, slot.write_id)
    return Writers(snapshot, {}, writers.forgotten), {"writers": data}


def check_stands_alone(destination: Storage, topics: Sequence[str]) -> None:
    """Refuse to begin copies at one of several roots.

    Entries name replicas there.

    Raises:
        UsageError: it is one; nothing was made.
    """
    if topics and destination.together is not None:
        raise UsageError(
            f"{destination.url} belongs together with others, and a copy begins at a root that stands alone: of "
            f"{', '.join(map(repr, topics))} nothing was copied. Copy to another root, then have others added to it: "
        ).advising("CommitLog.replicas.add", "commitlog replicas add")


def make_home(destination: TopicLog, source: TopicState) -> tuple[int, ...]:
    """Make a topic id's directories and first settle entry; return first offsets.

    All copies begin there.
    """
    home, storage = destination.paths(source.topic_id), destination.storage
    for directory in (home.settle, home.staged, home.side, home.manifests, home.copied, names.journal(home.name)):
        storage.make_directory(directory)
    rows = tuple(SettledPartition(start, Active(IndexState(start))) for start in source.log_start)

    def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
        if base is not None:
            return Unchanged(None)
        return settle_draft(SettleState(home.topic_id, (0, ""), 1, rows), slot)

    destination.settle_journal(home.topic_id).append(plan)
    _, settled = destination.settled(home.topic_id)
    return tuple(row.end_offset for row in settled.partitions)


def _settle(destination: TopicLog, progress: Progress) -> None:
    """Settle what was copied; failures are warnings, for maintenance."""
    _, state = destination.newest()
    total, moved = sum(state.log_end), 0
    while True:
        try:
            done = settle_on(destination, state.topic_id, budget_seconds=_SETTLE_SECONDS)
        except (CommitLogError, OSError) as error:
            logger.warning("topic %r: copied, but settling failed and will be tried again: %s", destination.name, error)
            return
        moved += done.records
        for failure in done.failures:
            logger.warning("topic %r: copied, but a part of it can't be settled: %s", destination.name, failure)
        if done.sequence is None or done.complete:
            return
        progress("settle", moved, max(total, moved))
