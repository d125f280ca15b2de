"""A handle on one group: its journal, and what its newest entry says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark_commitlog.config import DAY_MS, TopicConfig
from pyspark_commitlog.errors import CommitLogError, GroupResetError, OffsetOutOfRangeError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import to_json_bytes
from pyspark_commitlog.groups.state import GroupState, Position, committed, ended, fenced
from pyspark_commitlog.journal import Draft, Journal, Slot, Stored
from pyspark_commitlog.log.defaults import RootDefaults
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog, check_partition
from pyspark_commitlog.storage import Storage

log = logging.getLogger("pyspark_commitlog")

#: All rows of an entry together: bounds what a commit writes, and what a look reads.
MAX_STATE_BYTES = 2**20
MAX_METADATA_BYTES = 4096
_KEPT_ENTRIES = 2
_COLLECT_EVERY = 16


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a commit came to: the state behind it, and what it could not move, because it was reset since."""

    state: GroupState
    fenced: tuple[Position, ...]


def _no_side(topic_id: str, file: str) -> str:
    raise AssertionError("entries of this journal are bounded")


class GroupLog:
    """One group of a root. Opening touches nothing; every answer comes from the newest entry.

    Not safe for use by several threads at once.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.name = paths.check_group_name(name)
        self.directory = paths.group_journal(name)
        self.journal = Journal(storage, self.directory, "group", _no_side)
        self._topics: dict[str, TopicLog] = {}

    def topic(self, name: str) -> TopicLog:
        """Return the handle of a topic."""
        if name not in self._topics:
            self._topics[name] = TopicLog(self.storage, name)
        return self._topics[name]

    def topic_state(self, name: str, topic_id: str | None = None) -> TopicState:
        """Return what a topic is now, made durable before offsets are built on it (rule R5).

        Raises:
            UnknownTopicError, TopicChangedError: see ``TopicLog.newest``.
        """
        topic = self.topic(name)
        stored, state = topic.newest(topic_id)
        topic.journal.sync_exposed(stored)
        return state

    def newest(self) -> GroupState:
        """Return the group's state, durable; an empty one where nothing was ever committed.

        Raises:
            CorruptionError: the newest entry is damaged.
        """
        stored = self.journal.newest()
        if stored is not None:
            self.journal.sync_exposed(stored)
        return state_of(stored)

    def advance(
        self, positions: Sequence[Position], generation: int, metadata: str = "", *, strict: bool = False
    ) -> Advanced:
        """Commit positions: of each partition the higher offset stays.

        Args:
            positions: what to commit.
            generation: that the committer follows.
            metadata: a text to keep with them.
            strict: refuse the whole commit if a part of it was reset since; else the others are committed.

        Raises:
            UnknownTopicError, TopicChangedError: a topic is gone, or another one now.
            UsageError: a partition that does not exist, or too much of all.
            OffsetOutOfRangeError: an offset below 0 or beyond the high watermark.
            GroupResetError: a part was reset, and ``strict`` is set.
            OutcomeUnknownError: do it again: what landed changes nothing the second time.
        """
        if len(metadata.encode()) > MAX_METADATA_BYTES:
            raise UsageError(f"metadata has {len(metadata.encode())} bytes, at most {MAX_METADATA_BYTES} are allowed")
        refused: tuple[Position, ...] = ()

        def change(state: GroupState, slot: Slot) -> GroupState:
            nonlocal refused
            refused = fenced(state, positions, generation)
            if refused and strict:
                raise self._reset_since(refused, generation, state)
            out = set(refused)
            counted = [at for at in positions if at not in out]
            self._check(counted)
            return committed(state, counted, self.storage.clock.now_ms(), metadata)

        return Advanced(self.change("commit", change), refused)

    def end(self) -> None:
        """Delete the group: no offset is left, and who followed it before can't commit any more."""
        self.change("delete", lambda state, slot: ended(state, slot.write_id) if state.names() else state)

    def change(self, kind: str, change: Callable[[GroupState, Slot], GroupState]) -> GroupState:
        """Put what ``change`` makes of the newest state; nothing, where it returns the very same.

        ``change`` is called on every attempt (rule R9).
        """
        after = GroupState()

        def plan(base: Stored | None, slot: Slot) -> Draft | None:
            nonlocal after
            before = state_of(base)
            after = before if before.last_reset == slot.write_id else change(before, slot)
            if after is not before:
                if base is None:
                    self.storage.make_directory(self.directory)
                return Draft(kind, "", {"state": self._bounded(after)})
            if base is not None:  # what is there already is what the caller is told: it must be durable (rule R5)
                self.journal.sync_exposed(base)
            return None

        stored = self.journal.append(plan)
        if stored is not None and (kind != "commit" or stored.sequence % _COLLECT_EVERY == 0):
            self._collect()
        return after

    def _bounded(self, state: GroupState) -> object:
        told = state.to_json()
        size = len(to_json_bytes(told))
        if size > MAX_STATE_BYTES:
            raise UsageError(
                f"group {self.name!r}: its offsets would take {size} bytes, at most {MAX_STATE_BYTES} are allowed: "
                "use several groups"
            )
        return told

    def _check(self, positions: Iterable[Position]) -> None:
        states: dict[str, TopicState] = {}
        for at in positions:
            if at.topic not in states:
                states[at.topic] = self.topic_state(at.topic, at.topic_id)
            check_partition(at.topic, states[at.topic], at.partition)
            high = states[at.topic].log_end[at.partition]
            if not 0 <= at.offset <= high:
                raise OffsetOutOfRangeError(
                    f"group {self.name!r}: {at.topic} partition {at.partition}: offset {at.offset} can't be committed, "
                    f"the high watermark is {high}; nothing was committed"
                )

    def _reset_since(self, refused: Sequence[Position], generation: int, state: GroupState) -> GroupResetError:
        at = refused[0]
        return GroupResetError(
            f"group {self.name!r}: {at.topic} partition {at.partition} was reset, or deleted, in generation "
            f"{state.since(at.topic_id, at.partition)}, the commit follows generation {generation}: nothing was "
            f"committed. Read on from the group's offsets, in generation {state.generation}"
        )

    # --- old entries --------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Delete entries that nobody can need; a failure is a warning: what was put is committed."""
        try:
            delay = TopicConfig(RootDefaults(self.storage).by_topic_name()).number("file.delete.delay.ms")
            self.collect(delay)
        except (CommitLogError, OSError) as error:
            log.warning("group %r: old entries were not collected, and will be later: %s", self.name, error)

    def collect(self, delay_ms: int) -> int:
        """Delete, ascending, the entries whose next one is older than the delay, never the newest two.

        Returns:
            How many went.
        """
        sequences, now, gone = self.journal.sequences(), self.storage.clock.now_ms(), 0
        for sequence, following in pairwise(sequences[: 1 - _KEPT_ENTRIES]):
            try:
                stored = self.storage.info(f"{self.directory}/{paths.entry_name(following)}")
            except FileNotFoundError:  # another collector is ahead of us
                continue
            if stored.modified_ms + delay_ms > now:
                break
            self.journal.delete(sequence)
            gone += 1
        self.storage.remove_abandoned(self.directory, now - DAY_MS)
        return gone


def state_of(stored: Stored | None) -> GroupState:
    """Return what an entry says; an empty state for none."""
    return GroupState() if stored is None else GroupState.from_json(stored.entry.body["state"])
