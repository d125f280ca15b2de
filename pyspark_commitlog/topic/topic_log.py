"""Handle on one topic, by both journals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    ReplicaNotAvailableError,
    TopicChangedError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import Entry
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.journal.anchor import FRESH_SECONDS
from pyspark_commitlog.storage import Holder, OutputFile, Storage
from pyspark_commitlog.text import did_you_mean, similar_names
from pyspark_commitlog.topic.defaults import RootDefaults
from pyspark_commitlog.topic.state.home import settle_draft
from pyspark_commitlog.topic.state.settle_change import (
    MARKS_A_RETENTION,
    Collecting,
    Operation,
    begun_at,
    published_after,
)
from pyspark_commitlog.topic.state.settle_state import Damage, SettleState
from pyspark_commitlog.topic.state.side_files import side_files
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_tables import TopicTables

#: Estimated bytes of a handle in caches: the parsed newest entries.
HANDLE_BYTES = 2**15
#: Seconds for which a writer trusts its view of the settle journal and defaults if a look is a request, like Kafka's
#: `metadata.max.age.ms`.
RECENT_SECONDS = 300.0


def check_partition(topic: str, state: TopicState, partition: int) -> None:
    """Refuse a partition that a topic does not have."""
    if not 0 <= partition < state.partitions:
        raise UsageError(f"topic {topic!r} has partitions 0 to {state.partitions - 1}, not {partition}")


class TopicLog(TopicTables):
    """One topic of a root, as of the newest entries. Not thread-safe.

    `decided`: read what several metadata roots decided, not this root's copy.
    """

    def __init__(self, storage: Storage, name: str, *, decided: bool = False) -> None:
        super().__init__(storage, name, decided=decided)
        self._settled: tuple[Stored, SettleState] | None = None
        self._root_defaults = RootDefaults(storage)
        self._defaults: Mapping[str, str] | None = None
        self._defaults_at = 0.0
        self._in_steps = False
        #: Whether a writer found the chunks it named, if a look is a request.
        self.chunks_found = False
        #: Holder of the settlers' lock at the last failed attempt.
        self.busy: Holder | None = None
        #: Write id of the last settle entry that `change` put.
        self.published: str | None = None
        #: Monotonic time of a writer's last warning about it.
        self.warned: float | None = None
        #: Monotonic time of the last check of the topic's maintenance.
        self.maintenance_checked: float | None = None
        self._collecting = Collecting()

    # --- replicas ----------------------------------------------------------------------------------------

    def route(self, *, writing: bool) -> TopicLog:
        """Return a handle at the leader, or at a root to read; raise if there is none."""
        storage = self.journal.leader() if writing else self.journal.nearest()
        if storage is self.storage and not self._decided:
            return self
        handle = TopicLog(storage, self.name)
        if not self._decided:
            handle.journal.go_on_with(self.journal.known_everywhere())
        return handle

    def readable(self) -> TopicLog:
        """Handle at a root that has the records."""
        return self.route(writing=False) if self.journal.is_replicated else self

    def is_away(self) -> bool:
        """Whether this root does not answer while other roots may."""
        if not self.journal.is_replicated and not self.storage.others and self.storage.together is None:
            return False
        try:
            return not self.storage.exists(paths.ROOT_MARKER)
        except OSError:
            return True

    def at_fallback_root(self) -> TopicLog:
        """Handle at another of the known roots that answers."""
        return TopicLog(self.journal.fallback_root(), self.name)

    def at_leader(self) -> TopicLog:
        """Return a handle at the leader."""
        return self.route(writing=True) if self.journal.is_replicated else self

    def creates_chunks(self, state: TopicState, *, acks_all: bool) -> Callable[[str], OutputFile]:
        """Return the factory of chunks: local, or at all in-sync replicas.

        Chunks at replicas are durable; the commit does not sync them again.
        """
        if not state.is_replicated:
            return self.storage.create
        return self.journal.creates(acks_all=acks_all)

    # --- logical -----------------------------------------------------------------------------------------

    def newest(self, topic_id: str | None = None) -> tuple[Stored, TopicState]:
        """Newest entry and its state.

        Raises:
            UnknownTopicError: there is no such topic.
            ReplicaNotAvailableError: a root of several does not answer.
            TopicChangedError: incarnation `topic_id` was deleted or recreated.
        """
        return self.newest_at(self.journal.newest(), topic_id)

    def newest_durable(self, topic_id: str | None = None, *, fresh: bool = False) -> tuple[Stored, TopicState]:
        """Newest entry and state, synced (R5); raises as `newest`.

        For effects that outlive the entry: its writer may have died before the directory's sync. `fresh`: for callers
        that write here and delete by it.
        """
        stored, state = self.newest(topic_id)
        if fresh:
            self.journal.assure(stored)
        else:
            self.journal.sync_exposed(stored)
        return stored, state

    def newest_at(self, stored: Stored | None, topic_id: str | None) -> tuple[Stored, TopicState]:
        """Check the newest entry; returns and raises as `newest`."""
        if stored is None and self.is_away():
            raise ReplicaNotAvailableError(f"topic {self.name!r}: the root {self.storage.url} does not answer")
        if stored is None:
            raise self._unknown()
        state = self.state_of(stored.entry)
        if topic_id is not None and (state.deleted or state.topic_id != topic_id):
            raise self.changed(state, topic_id)
        if state.deleted:
            raise self._unknown()
        return stored, state

    def ended(self, topic_id: str) -> TopicState | None:
        """Last state of an ended incarnation, if still known."""
        stored = self.journal.newest()
        if stored is None:
            return None
        state = self.state_of(stored.entry)
        if state.topic_id != topic_id:  # the incarnation before ended with the entry before this one's first
            try:
                state = self.state_of(self.journal.read(state.created - 1).entry)
            except (FileNotFoundError, CorruptionError):  # collected
                return None
        return state if state.deleted and state.topic_id == topic_id else None

    def _unknown(self) -> UnknownTopicError:
        return unknown_topic(self.storage, self.name)

    def changed(self, state: TopicState, topic_id: str) -> TopicChangedError:
        """Error for a caller with an ended incarnation."""
        now = "it is deleted" if state.deleted else f"it was made again with id {state.topic_id}"
        return TopicChangedError(
            f"topic {self.name!r} (id {topic_id}) in {self.storage.url} is gone: {now}. Its offsets mean nothing any "
            "more: start the query again, with a new checkpoint"
        )

    def state_of(self, entry: Entry) -> TopicState:
        """State that an entry carries."""
        return TopicState.from_entry(entry.topic_id, entry.body, entry.lineage, partial(self.columns, entry.topic_id))

    # --- physical ----------------------------------------------------------------------------------------

    @contextmanager
    def settling(self, topic_id: str) -> Iterator[bool]:
        """Try the settlers' lock; rereads both journals under it (R3).

        Yields whether it was free; if not, `busy` is its holder. No settle journal: the topic was deleted, or the disk
        is not mounted.
        """
        lock = self.paths(topic_id).lock
        with ExitStack() as stack:
            try:
                held = stack.enter_context(self.storage.try_lock(lock))
            except FileNotFoundError as error:
                raise self._no_settle_journal(topic_id) from error
            if held:
                self.journal.forget()
                self.settle_journal(topic_id).forget()
            else:
                self.busy = self.storage.holder(lock)
            yield held

    def publish(self, base: Stored, after: SettleState) -> Stored | None:
        """Put a settle entry on `base` (rule R3); None if outdated."""

        def plan(newest: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
            if newest is None or newest.entry.write_id != base.entry.write_id:
                return Unchanged(None)
            return settle_draft(after, slot)

        return self.settle_journal(after.topic_id).append(plan).stored

    def change(self, topic_id: str, operation: Operation, state: TopicState | None = None) -> Stored | None:
        """Change the settle state without a lock, replanned after lost races.

        `operation` checks its preconditions on every attempt; they cannot hold again after success, so after an unknown
        outcome the newest entry decides (rule O2). `state` is the topic's, if the root has no entry of it.

        Returns:
            The entry; None if nothing was put: given up, files below the floor (rule O4), or landed before.

        Raises:
            OutcomeUnknownError, ConflictError, StorageError: see `Journal.append`; safe to repeat.
        """

        def plan(newest: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
            if newest is None:
                raise self._no_settle_journal(topic_id)
            before = self.settle_state(newest.entry)
            change = operation(newest, before)
            if change is None or any(begun_at(path) < before.files_floor for path in change.made):
                return Unchanged(None)
            now = state or self.newest_at(self.journal.recent(RECENT_SECONDS), None)[1]  # for the interval alone
            every = self.config(now).number("staged.retention.ms") // MARKS_A_RETENTION
            after = published_after(before, change, *self.settle_journal(topic_id).dated(newest), every)
            more = [f"side/{file}" for file in side_files(newest.entry)]
            leaves = self._leaves_of(before, after) - self._leaves_of(after, before)
            more += [f"manifests/{name}" for name in sorted(leaves)]
            return settle_draft(replace(after, drops=(*after.drops, *more)), slot)

        stored = self.settle_journal(topic_id).append(plan, repeatable=True).stored
        self.published = self.published if stored is None else stored.entry.write_id
        return stored

    def collecting(self, topic_id: str) -> Collecting:
        """Return this handle's progress of collecting an incarnation."""
        if self._collecting.topic_id != topic_id:
            self._collecting = Collecting(topic_id)
        return self._collecting

    def go_on_collecting(self, memory: Collecting) -> None:
        """Take over the collecting progress of another handle of this process."""
        self._collecting = memory

    def reserve(self, base: Stored, settled: SettleState) -> Stored | None:
        """Put `base` again, to own the next number for segments' names; None as from `publish`.

        Else a task that outlives its driver's lock could overwrite files of the next driver (rule R1).
        """
        return self.publish(base, settled)

    def settled(self, topic_id: str, *, within: float = 0.0) -> tuple[Stored, SettleState]:
        """Newest settle entry and state, at most `within` seconds old.

        Read it after the logical one (rule R12).
        """
        journal = self.settle_journal(topic_id)
        while (stored := journal.recent(within)) is not None:
            if self._settled is not None and self._settled[0].entry is stored.entry:
                return self._settled
            try:
                self._settled = stored, self.settle_state(stored.entry)
                return self._settled
            except FileNotFoundError as error:  # its table was collected meanwhile: there is a newer entry
                if journal.newest() == stored:
                    raise CorruptionError(
                        f"topic {self.name!r}: {error.filename or error} is missing, and the newest settle entry "
                        "names it: restore it from a copy"
                    ) from error
        raise self._no_settle_journal(topic_id)

    def _no_settle_journal(self, topic_id: str) -> TopicChangedError:
        return TopicChangedError(
            f"topic {self.name!r} (id {topic_id}) in {self.storage.url} has no settle journal: it was deleted"
        )

    def anchors(self, topic_id: str) -> tuple[tuple[int, str], ...]:
        """Return (number, file identity) of both newest entries, for `resume`.

        Empty if this incarnation is gone.
        """
        newest = self.journal.newest(), self.settle_journal(topic_id).newest()
        found = tuple((stored.sequence, stored.info.identity) for stored in newest if stored is not None)
        return found if len(found) == len(newest) else ()

    def resume(self, topic_id: str, anchors: Sequence[tuple[int, str]]) -> None:
        """Continue from another process's `anchors`, without listing."""
        for journal, (sequence, identity) in zip((self.journal, self.settle_journal(topic_id)), anchors, strict=False):
            journal.resume(sequence, identity)

    def damaged(self, topic_id: str) -> tuple[Damage, ...]:
        """Damaged partitions; usually one look.

        If a look is a request, the view may be `RECENT_SECONDS` old.
        """
        stored = self.settle_journal(topic_id).recent(RECENT_SECONDS)
        return self.settled(topic_id)[1].damaged if stored is not None and "damaged" in stored.entry.body else ()

    def config(self, state: TopicState) -> TopicConfig:
        """Effective config: the topic's, the root's, or built-in.

        Reads the root's defaults once per operation (`forget_defaults`).
        """
        if self._defaults is None:
            self._defaults = self._root_defaults.by_topic_name()
            self._defaults_at = self.storage.clock.monotonic()
        return TopicConfig({**self._defaults, **state.config}, can_compact=state.schema is None)

    def forget_defaults(self, *, kept: bool = False) -> None:
        """Start an operation: `config` rereads the root's defaults.

        `kept`: for writers, at most every `RECENT_SECONDS` if a look is a request.
        """
        least = RECENT_SECONDS if kept else FRESH_SECONDS if self._in_steps else 0.0
        asked = not self.storage.can_append and self.storage.clock.monotonic() - self._defaults_at < least
        self._defaults = self._defaults if asked else None

    @contextmanager
    def in_steps(self) -> Iterator[None]:
        """Read the root's defaults now, and inside at most every 5 s."""
        self.forget_defaults()
        self._in_steps = True
        try:
            yield
        finally:
            self._in_steps = False


def unknown_topic(storage: Storage, name: str) -> UnknownTopicError:
    """Error for a missing topic; suggests a similar name."""
    url = storage.url
    return UnknownTopicError(f"{_no_topic(storage, name)}: create it with ").advising(
        f"CommitLog({url!r}).create_topic({name!r}, partitions=…)", f"commitlog topics create {url} {name}"
    )


def nothing_to_delete(storage: Storage, name: str) -> UnknownTopicError:
    """Error for the deletion of a missing topic."""
    return UnknownTopicError(f"{_no_topic(storage, name)}: all that there are: ").advising(
        f"CommitLog({storage.url!r}).topics()", f"commitlog topics list {storage.url}"
    )


def _no_topic(storage: Storage, name: str) -> str:
    return f"unknown topic {name!r} in {storage.url}{did_you_mean(_similar_topic(storage, name))}"


def _similar_topic(storage: Storage, name: str) -> str | None:
    with suppress(CommitLogError, OSError):  # the error is about the name that was given
        for similar in similar_names(name, storage.names(paths.TOPICS)):
            topic = TopicLog(storage, similar)
            stored = topic.journal.newest()
            if stored is not None and not topic.state_of(stored.entry).deleted:
                return similar
    return None
