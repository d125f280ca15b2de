"""``CommitLog``: a root and its topics, for Python code, notebooks and jobs. No Spark needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, overload

from pyspark_commitlog.access import Operation
from pyspark_commitlog.config import (
    ALL,
    REPLICATION_FACTOR,
    check_config,
    check_names,
    check_together,
    partition_count,
    replication_factor,
    truth_value,
)
from pyspark_commitlog.errors import (
    CommitLogError,
    CorruptionError,
    StorageDeniedError,
    StorageError,
    StorageFullError,
    StorageUnreadableError,
    SyncFailedError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedError,
    UsageError,
)
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.entry import FORMAT_VERSION, REPLICAS, Json, seal
from pyspark_commitlog.format.marker import UNSAFE_SINGLE_WRITER
from pyspark_commitlog.format.shape import checked_json
from pyspark_commitlog.groups.consumer_groups import Groups
from pyspark_commitlog.journal import Draft, Slot, Stored, Unchanged
from pyspark_commitlog.log.defaults import RootDefaults
from pyspark_commitlog.log.home import make_home
from pyspark_commitlog.log.last_maintained import since_maintained_ms
from pyspark_commitlog.log.maintain.catch_up import TopicSegments
from pyspark_commitlog.log.maintain.collect import former_incarnations
from pyspark_commitlog.log.maintain.retention import delete_records
from pyspark_commitlog.log.maintain.run import Maintained, maintain_topic
from pyspark_commitlog.log.objects.sources import settled_with_tail
from pyspark_commitlog.log.objects.void_objects import give_up
from pyspark_commitlog.log.read.backlog import backlog
from pyspark_commitlog.log.read.fetch import fetch
from pyspark_commitlog.log.read.replica_progress import describe_replication, log_ends
from pyspark_commitlog.log.read.timestamps import OffsetAndTimestamp, find_max_timestamp, find_time
from pyspark_commitlog.log.repair.verify import RootReport, TopicReport, verify
from pyspark_commitlog.log.repair.void import VoidedRange
from pyspark_commitlog.log.state import TopicState
from pyspark_commitlog.log.topic import TopicLog, check_partition, nothing_to_delete
from pyspark_commitlog.log.write.writers import former_queries
from pyspark_commitlog.model import (
    PartitionDescription,
    Progress,
    Record,
    TopicDescription,
    Watched,
    silent,
    watched,
)
from pyspark_commitlog.replicas.metadata_roots import Deciders
from pyspark_commitlog.replicas.replicating import have_new_ones_join
from pyspark_commitlog.replicas.root_creation import make_roots
from pyspark_commitlog.replicas.roots import Roots
from pyspark_commitlog.replicas.settings import spread
from pyspark_commitlog.replication import ReplicatedRoot
from pyspark_commitlog.root import Root
from pyspark_commitlog.storage import NotPutError, Storage, open_peer
from pyspark_commitlog.storage.race import DIRECTORY as PROBES
from pyspark_commitlog.storage.write_once import CLOCK

if TYPE_CHECKING:
    import pyarrow as pa

#: How often a root's marker is put where no answer comes.
_MARKER_TRIES = 5


class CommitLog(ReplicatedRoot):
    """A root of topics, and all that can be done with them but reading and writing records in bulk.

    Opening touches nothing; the first ``create_topic`` makes the root.

    Args:
        root: a directory, or a URL: ``s3://``, ``gs://``, ``az://``, ``abfs://``, ``file://``.
        storage_options: for a URL, under the names of fsspec's filesystems (docs/how-to/object-stores.md).
        principal: the one that asks, where the root has access rules; None for what ``COMMITLOG_PRINCIPAL`` says.
    """

    @classmethod
    def of(cls, root: Root) -> CommitLog:
        """Return all that can be done with a root that is opened."""
        return cls.on(root._storage, root._principal)

    # --- the root ----------------------------------------------------------------------------------------

    @classmethod
    def create_root(
        cls,
        replicas: Sequence[str],
        metadata: Sequence[str] = (),
        storage_options: Mapping[str, object] | None = None,
    ) -> CommitLog:
        """Make roots that belong together: the topics made there live on several of them (Kafka: replication).

        Args:
            replicas: directories or URLs, 1 to 16, each on a disk, machine or bucket of its own.
            metadata: where it is decided what comes next: one of them, or a small directory anywhere else, or three or
                five of these, which decide by majority. Without it nothing can be written; the first of ``replicas``
                where none is given.
            storage_options: for those that are URLs.

        Returns:
            The log, opened at the first root.

        Raises:
            UsageError: a root is there already, or is named twice; of several metadata roots one holds data, or there
                are 2 or 4 of them. Nothing that was there is changed.
            StorageError: one of them can't be made; run it again.
        """
        data, deciding = (
            [open_peer(url, storage_options, storage_options) for url in urls]
            for urls in (replicas, metadata or replicas[:1])
        )
        return cls.on(make_roots(data, deciding, lambda storage: cls.on(storage).make_root(one_of_several=True)))

    def make_root(self, unsafe: bool = False, *, one_of_several: bool = False) -> None:
        """Make the root, if it is not there.

        Args:
            unsafe: make it also where the store is not known to keep the log safe from two writers at once.
            one_of_several: it belongs together with others (``create_root``).

        Raises:
            UnsupportedError: what is there is of another format version, or the store is not safe.
            StorageError: it can't be made.
        """
        if not self._storage.exists(paths.ROOT_MARKER):
            self._storage.make_directory("")
            if not unsafe:
                self._check_store()
            marker: Json = {
                "format": "commitlog",
                "formatVersion": FORMAT_VERSION,
                "rootId": self._storage.new_id(),
                "readFeatures": [REPLICAS] if one_of_several else [],
                "writeFeatures": [REPLICAS] if one_of_several else [],
                **({UNSAFE_SINGLE_WRITER: True} if unsafe else {}),
                **({REPLICAS: True} if one_of_several else {}),
            }
            self._put_marker(seal(marker))
        self._check_root()
        if unsafe and not self._unsafe:
            raise UsageError(
                f"{UNSAFE_SINGLE_WRITER} is for a root that is made, and {self._storage.url} is there already"
            )
        if one_of_several and not self._is_one_of_several:
            raise UsageError(f"{self._storage.url} is a root already that stands alone: name an empty place")

    def _make_one_of_several(self, storage: Storage) -> None:
        self.on(storage, self._principal).make_root(one_of_several=True)

    def _become_one_of_several(self) -> None:
        marker = checked_json(self._marker(), dict[str, object], f"{self.url}/{paths.ROOT_MARKER}")
        said = {name: value for name, value in marker.items() if name != "crc"}
        features = {"readFeatures": [REPLICAS], "writeFeatures": [REPLICAS], REPLICAS: True}
        self._storage.write_once(paths.ROOT_MARKER, seal({**said, **features}))  # in the place of the one before
        self._check_root()

    def _put_marker(self, marker: bytes) -> None:
        """Put the root's marker until it is there, whoever's it is: at most ``_MARKER_TRIES`` times."""
        for _ in range(_MARKER_TRIES):
            try:
                self._storage.put_if_absent(paths.ROOT_MARKER, marker)
            except FileExistsError:
                return
            except (NotPutError, StorageFullError, StorageDeniedError, SyncFailedError):
                raise
            except OSError as error:  # the request was lost, or only the reply
                last = error
            else:
                return
            if self._storage.exists(paths.ROOT_MARKER):
                return
        raise StorageError(f"cannot make a commit log at {self._storage.url}: {last}; create the topic again") from last

    def defaults(self) -> dict[str, str]:
        """Return the root-wide defaults of topic configs that are set, by the names that were given.

        Raises:
            RootNotFoundError: there is no root here.
            CorruptionError: they are damaged.
        """
        self._check_root()
        return dict(RootDefaults(self._storage).as_given())

    def alter_defaults(self, config: Mapping[str, object]) -> None:
        """Change root-wide defaults of topic configs; running writers and settlers go by them from their next commit.

        What is set for a topic wins over a default of the root, and that over the built-in one.

        Args:
            config: Kafka's broker-wide names (``log.retention.hours``, ``log.segment.bytes``, …) and those of topic
                configs; ``None`` as a value removes a default.

        Raises:
            RootNotFoundError: there is no root here.
            ConfigError: nothing was changed.
        """
        self._check_root()
        self._access.check(Operation.ADMIN, ALL)
        if not self._is_one_of_several:
            RootDefaults(self._storage).alter(config)
            return
        roots = Roots.of(self._storage)
        decided = RootDefaults(self.deciding) if self._deciders is None else RootDefaults(self._storage, roots)
        decided.alter(config)
        spread(roots, paths.CONFIG_JOURNAL)

    @property
    def groups(self) -> Groups:
        """The root's consumer groups.

        Raises:
            RootNotFoundError, UnsupportedError: the root can't be used.
        """
        self._check_root()
        deciders = self._deciders
        storage = self.deciding if deciders is None else self._storage
        learns = self._is_one_of_several and (deciders is not None or storage is not self._storage)
        return Groups(
            storage, self._access, replicated=self._is_one_of_several, deciders=deciders,
            learner=self._storage if learns else None,
        )  # fmt: skip

    # --- topics ------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        if_not_exists: bool = False,
    ) -> None:
        """Create a topic (and the root, if it is the first).

        Args:
            name: 1 to 249 of ``a-z A-Z 0-9 . _ -``.
            partitions: 1 to 10,000; it can grow later, never shrink.
            config: Kafka's topic configs, and ours (docs/reference/topic-configs.md); ``unsafe.single.writer`` is for
                the root that is made (docs/how-to/object-stores.md).
            if_not_exists: do nothing where the topic is there already, whatever its partitions and configs.

        Raises:
            UsageError, ConfigError: nothing was made.
            UnsupportedError: the store takes two puts of one name; nothing was made.
            TopicExistsError: the topic is there already.
            ReplicaNotAvailableError: fewer roots answer than ``replication.factor``, or none; nothing was made. A topic
                that is made again where it was does not ask them.
        """
        try:
            self._create_topic(name, partitions, config or {})
        except TopicExistsError:
            if not if_not_exists:
                raise

    def _create_topic(self, name: str, partitions: int, config: Mapping[str, object]) -> None:
        paths.check_topic_name(name)
        partitions = partition_count(partitions)
        config = dict(config)
        unsafe = truth_value(UNSAFE_SINGLE_WRITER, config.pop(UNSAFE_SINGLE_WRITER, False))
        factor = replication_factor(config.pop(REPLICATION_FACTOR, None))
        checked = check_config(config)
        self._check_together(checked)
        self.make_root(unsafe)
        self._check_store()
        self._access.check(Operation.ADMIN, name)
        topic = TopicLog(self._storage, name)
        topic_id = self._storage.new_id()

        def plan(base: Stored | None, slot: Slot) -> Draft[None]:
            self._refuse_existing(topic, base)
            state = TopicState(
                topic_id=topic_id,
                deleted=False,
                config=checked,
                log_start=(0,) * partitions,
                log_end=(0,) * partitions,
                created=slot.sequence,
                former_ids=former_incarnations(topic.journal.timed(base), topic.state_of(base.entry)) if base else (),
                former_queries=topic.state_of(base.entry).former_queries if base else (),
            )
            return Draft("create", topic_id, {"state": state.to_json()}, result=None)

        if self._is_one_of_several:
            self._create_replicated(topic, topic_id, partitions, plan, factor)
            return
        if factor not in (None, 1):
            raise UsageError(
                f"{REPLICATION_FACTOR}={factor} needs roots that belong together, and {self._storage.url} stands "
                "alone: make them with CommitLog.create_root(replicas=[…]), or `commitlog replicas create`"
            )
        self._refuse_existing(topic, topic.journal.newest())
        make_home(self._storage, topic.paths(topic_id), partitions)
        self._storage.make_directory(paths.journal(name))
        topic.journal.append(plan)

    def _create_replicated(
        self, topic: TopicLog, topic_id: str, partitions: int, plan: Callable[..., Draft[None]], factor: int | None
    ) -> None:
        """Create a topic on several of the roots that belong together; those that are new to it catch up at once."""
        order = topic.journal.order()
        decider = order.places.decider()
        base = order.places.decided()
        self._refuse_existing(topic, base)
        roots = Roots.of(self._storage)
        if any(address.id == decider.id for address in roots.listed().data):  # it learns by the put
            make_home(decider.storage, topic.paths(topic_id), partitions)
        order.create(plan, factor, len(Deciders(roots).names(paths.TOPICS)))
        if base is not None:
            have_new_ones_join(order, base, TopicSegments(topic.name))

    def _check_together(self, config: Mapping[str, str]) -> None:
        """Refuse configs of a topic that contradict each other, the root's defaults or its storage."""
        defaults = RootDefaults(self._storage).by_topic_name()
        check_together({**defaults, **config}, appends=self._storage.can_append)

    def _refuse_existing(self, topic: TopicLog, base: Stored | None) -> None:
        if base is not None and not topic.state_of(base.entry).deleted:
            raise TopicExistsError(f"topic {topic.name!r} exists already in {self._storage.url}")

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted, but for those that this user may not read.

        Where there are access rules, those that the principal may use.

        Raises:
            RootNotFoundError: there is no root here.
        """
        self._check_root()
        return [name for name in self.listed() if self._is_live(name)]

    def every_name(self) -> list[str]:
        """Return the names of all topics, deleted and damaged ones too: their files are maintenance's.

        Raises:
            RootNotFoundError: there is no root here.
        """
        self._check_root()
        return [name for name in self._storage.names(paths.TOPICS) if self._has_entries(name)]

    def unseen_topics(self, names: Collection[str]) -> list[str]:
        """Return the topics that are there and not among ``names``, sorted: this principal, or user, may not read them.

        Raises:
            RootNotFoundError: there is no root here.
        """
        self._check_root()
        return [name for name in self._names() if name not in names and self._may_be_live(name)]

    def _may_be_live(self, name: str) -> bool:
        try:
            topic = TopicLog(self._storage, name)
            (topic.route(writing=False) if self._is_one_of_several else topic).newest()
        except (UnknownTopicError, UsageError):
            return False
        except CommitLogError:
            pass  # it can't be read: nobody knows
        return True

    def _has_entries(self, name: str) -> bool:
        """Return whether a directory is a topic's: not one that is being made, or of somebody else."""
        try:
            return TopicLog(self._storage, name).journal.newest() is not None
        except UsageError:
            return False
        except CommitLogError:
            return True

    def _is_live(self, name: str) -> bool:
        try:
            topic = TopicLog(self._storage, name)
            (topic.route(writing=False) if self._is_one_of_several else topic).newest()
        except (StorageUnreadableError, UnknownTopicError, UsageError):
            return False
        except CorruptionError:
            pass  # an error for its users
        return True

    def describe(self, name: str) -> TopicDescription:
        """Return a topic's id, configs (defaults of the root and built-in ones included) and partitions.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        topic = self.topic(name, Operation.DESCRIBE)
        newest, state = topic.newest_durable()
        settle_state, slices = settled_with_tail(topic, state.topic_id)
        log_ends_here = log_ends(topic, state)
        waiting = backlog(topic, newest, state, settle_state)
        left = [max(0, end - settle_state.partition(number).end_offset) for number, end in enumerate(state.log_end)]
        partitions = []
        for number in range(state.partitions):
            row = settle_state.partition(number)
            sealed, size = (row.manifest.segments, row.manifest.size_bytes) if row.manifest else (0, 0)
            partitions.append(
                PartitionDescription(
                    partition=number,
                    log_start_offset=state.log_start[number],
                    high_watermark=state.log_end[number],
                    log_end_offset=log_ends_here[number],
                    segments=sealed + len(slices.get(number, ())) + topic.storage.can_append,
                    size_bytes=size + sum(slices.get(number, ())) + row.active.length,
                    unsettled=left[number],
                    unsettled_bytes=left[number] * waiting.size_bytes // max(1, sum(left)),
                )
            )
        damaged = {damage.partition: damage.why for damage in settle_state.damaged}
        config = topic.config(state)
        return TopicDescription(
            name,
            state.topic_id,
            config.resolved(),
            tuple(partitions),
            waiting,
            damaged,
            tuple(sorted(config.stored)),
            since_maintained_ms(topic, state.topic_id),
            bool(self._unsafe),
            describe_replication(topic, newest),
        )

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions. Keys hash to other partitions from then on, as in Kafka.

        Raises:
            UsageError: ``total`` is not above the present number.
        """
        total = partition_count(total)

        def change(state: TopicState) -> TopicState:
            if total <= state.partitions:
                raise UsageError(f"topic {name!r} has {state.partitions} partitions; {total} would not add any")
            grown = (0,) * (total - state.partitions)
            return replace(state, log_start=state.log_start + grown, log_end=state.log_end + grown)

        self._alter(name, change)

    def alter_topic(self, name: str, config: Mapping[str, object]) -> None:
        """Change configs of a topic; ``None`` as a value takes a config back to the root's default or the built-in one.

        Where all is as it is to be, nothing is put.

        Raises:
            ConfigError: nothing was changed.
        """
        removed = {key for key, value in config.items() if value is None}
        check_names(removed)
        checked = check_config({key: value for key, value in config.items() if value is not None})

        def change(state: TopicState) -> TopicState:
            kept = {key: value for key, value in state.config.items() if key not in removed}
            changed = {**kept, **checked}
            self._check_together(changed)
            return replace(state, config=changed)

        self._alter(name, change)

    def read(self, topic: str, partition: int, offset: int, max_records: int = 1) -> tuple[Record, ...]:
        """Return the record that a topic, a partition and an offset name, and those after it.

        Args:
            topic: its name.
            partition: its number.
            offset: of the first record. Where a rewritten segment has left it out, the next one that is there is first.
            max_records: how many at most, 1 or more.

        Returns:
            The records in order, fewer where the log ends: none at the high watermark, as Kafka's fetch.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: a partition that does not exist, or ``max_records`` below 1.
            OffsetOutOfRangeError: an offset below the log start offset or above the high watermark.
            CorruptionError: stored bytes are damaged.
        """
        return fetch(self.topic(topic), partition, offset, max_records)

    def to_arrow(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        start: Mapping[int, int] | datetime | None = None,
        end: Mapping[int, int] | datetime | None = None,
        view: str | None = None,
    ) -> pa.Table:
        """Return the records of a topic as one table; memory must hold them.

        Args:
            topic: its name.
            columns: of the table, in their order; others are not even decompressed. None: all.
            start: where to begin: partition -> offset, or the first record that is not before a time (with a zone).
                None, and partitions left out: at the log start offset.
            end: where to end, before that offset or time. None, and partitions left out: at the high watermark.
            view: ``latest`` for the newest record of each key, those with a null value left out; ``start`` is
                not allowed then.

        Returns:
            key binary, value binary, topic string, partition int32, offset int64, timestamp timestamp[us, UTC],
            timestampType int32, headers list<struct<key string, value binary>>; by partition and, without ``view``,
            by offset.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: columns, partitions or a view that do not exist; a record without key in a view.
            OffsetOutOfRangeError: an offset below the log start offset or above the high watermark.
            CorruptionError: stored bytes are damaged.
        """
        from pyspark_commitlog.log.read.table import read_table

        return read_table(self.topic(topic), columns, start, end, view)

    def offsets_for_times(self, name: str, times: Mapping[int, int]) -> dict[int, OffsetAndTimestamp | None]:
        """Return, per partition, the first record that is not before a timestamp (Kafka: ``offsetsForTimes``).

        Args:
            name: of the topic.
            times: partition -> milliseconds since the epoch.

        Returns:
            Offset and timestamp of that record; None where all records are earlier.

        Raises:
            UsageError: a partition that does not exist.
        """
        topic = self.topic(name)
        _, state = topic.newest()
        for partition in times:
            check_partition(name, state, partition)
        return {partition: find_time(topic, state.topic_id, partition, at) for partition, at in times.items()}

    def max_timestamps(
        self, name: str, partitions: Iterable[int] | None = None
    ) -> dict[int, OffsetAndTimestamp | None]:
        """Return, per partition, the record with the largest timestamp (Kafka: ``OffsetSpec.maxTimestamp``, KIP-734).

        Args:
            name: of the topic.
            partitions: their numbers; None for all.

        Returns:
            Offset and timestamp, in ms, of that record, of several the first; None where there is no record.

        Raises:
            UsageError: a partition that does not exist.
        """
        topic = self.topic(name)
        _, state = topic.newest()
        chosen = range(state.partitions) if partitions is None else tuple(partitions)
        for partition in chosen:
            check_partition(name, state, partition)
        return {partition: find_max_timestamp(topic, state.topic_id, partition) for partition in chosen}

    def delete_records(self, name: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete the records below an offset of each partition given: readers no longer see them, at once.

        Args:
            name: of the topic.
            offsets: partition -> the first offset that stays; -1 for the high watermark, which deletes all that is
                there now. ``maintain`` frees the disk.

        Returns:
            The log start offset of each partition that was given.

        Raises:
            UsageError: a partition that does not exist.
            OffsetOutOfRangeError: an offset beyond the high watermark; nothing was deleted.
        """
        topic = self.topic(name, Operation.ADMIN)
        starts = delete_records(topic, topic.newest()[1].topic_id, offsets)
        return {partition: starts[partition] for partition in offsets}

    def void(
        self,
        name: str,
        ranges: Mapping[int, tuple[int, int]] | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> tuple[VoidedRange, ...]:
        """Give up records whose segment, chunk or journal entry is lost or damaged, for ever.

        Readers skip their offsets, and the partition goes on. Records that can be read stay, unless ``force`` is set.
        Without ``ranges`` all segments are read; settling waits meanwhile. Of a topic with replicas what other roots
        have is fetched from there first (``repair``), but with ``force``: what none has is given up, at all of them.

        Args:
            name: of the topic.
            ranges: partition -> (first offset, offset after the last); None for all that can't be read. A range must
                not end inside what can only be given up whole: a frame, or all that a lost file holds.
            force: give up everything in ``ranges``.
            dry_run: change nothing, only tell.

        Returns:
            What was given up, or would be; empty when all can be read, or is voided already.

        Raises:
            UsageError: nothing of a range is damaged, or a segment holds more damage than it; nothing was voided.
            ConflictError: the topic is being settled, merged or compacted all the time: void it again.
            CorruptionError: a manifest or the newest entry is damaged; nothing was voided.
            ReplicaNotAvailableError: a root does not answer that may have it; nothing was voided.
        """
        if not (force or dry_run):
            self._repair_before_void(name)
        topic = self.topic(name, Operation.ADMIN)
        return give_up(topic, topic.newest()[1].topic_id, ranges, force=force, dry_run=dry_run)

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Running readers and writers get ``TopicChangedError``; ``maintain`` removes its files.

        Raises:
            UnknownTopicError: there is no such topic.
            TopicChangedError: somebody else deleted it meanwhile.
        """
        topic = self.topic(name, Operation.ADMIN)
        try:
            _, before = topic.newest()
        except UnknownTopicError:
            raise nothing_to_delete(topic.storage, name) from None

        def plan(base: Stored | None, slot: Slot) -> Draft[None]:
            _, state = topic.newest_at(base, before.topic_id)
            ended = replace(state, deleted=True, former_queries=former_queries(topic, state))
            return Draft("delete", state.topic_id, {"state": ended.to_json()}, result=None)

        topic.journal.append(plan)

    def _alter(self, name: str, change: Callable[[TopicState], TopicState]) -> None:
        topic = self.topic(name, Operation.ADMIN)
        _, before = topic.newest()

        def plan(base: Stored | None, slot: Slot) -> Draft[None] | Unchanged[None]:
            _, state = topic.newest_at(base, before.topic_id)
            after = change(state)
            if after == state:  # no entry: a copy that nobody has written to stays one
                return Unchanged(None)
            return Draft("alter", state.topic_id, {"state": after.to_json()}, result=None)

        topic.journal.append(plan)

    # --- maintenance -------------------------------------------------------------------------------------

    @overload
    def maintain(self, name: str, *, progress: Progress = ..., catch_up: bool = ...) -> Maintained: ...

    @overload
    def maintain(
        self, name: None = None, *, progress: Progress = ..., catch_up: bool = ...
    ) -> tuple[Maintained, ...]: ...

    def maintain(
        self, name: str | None = None, *, progress: Progress = silent, catch_up: bool = True
    ) -> Maintained | tuple[Maintained, ...]:
        """Settle all of a topic, retain, rebuild damaged indexes, compact, sweep, collect, remove former incarnations.

        Of a topic with replicas the one at this root; before it all learn what is decided (``replicate``). A root that
        lags far learns for 10 s then, and goes on when all is maintained (``catch_up``).
        Safe beside writers and readers, and twice at once. Of a deleted topic it only removes former incarnations.
        Damaged bytes stop what needs them, not the rest: the error comes when all is done that can be.

        Args:
            name: of the topic; None for all of them, and for the groups (``Groups.maintain``).
            progress: is called with what is being done; it may raise to end the work there, which leaves all in order.
            catch_up: wait for roots that lag; False: the caller calls ``catch_up`` when all topics had their turn.

        Raises:
            UnknownTopicError: there is no such topic.
            CorruptionError: stored bytes are damaged; names each fault.
            ExceptionGroup: of all topics and groups some failed; the others were maintained. Of one topic: several
                steps or partitions failed, not all by a ``CommitLogError``; what does not need them was done.
        """
        seen = watched(progress)
        with self._catching_up(seen) if catch_up else nullcontext():
            return self._maintain_all(seen) if name is None else self._maintain(name, seen)

    @contextmanager
    def _catching_up(self, progress: Watched) -> Iterator[None]:
        """Have roots that lag catch up after what is done within, unless the caller's progress ended that."""
        waits = True
        try:
            yield
        except Exception as error:
            waits = not progress.ended_by(error)
            raise
        finally:
            if waits:
                self.catch_up()

    def _maintain(self, name: str, progress: Progress) -> Maintained:
        lags = self._replicate_first(name)
        self._drop_void_records(name)
        try:
            try:
                return maintain_topic(self.topic(name, Operation.ADMIN), progress)
            except (CorruptionError, ExceptionGroup):
                if not self._repair_unsettled(name):
                    raise
            return maintain_topic(self.topic(name, Operation.ADMIN), progress)
        finally:
            if lags:  # not before: what copies it elsewhere needs the lock, and the files
                self._lagging[name] = lags

    def _maintain_all(self, progress: Watched) -> tuple[Maintained, ...]:
        done, failed, names = [], list[Exception](), self.every_name()
        self.replace_leaders(names)
        for name in names:
            try:
                done.append(self._maintain(name, progress))
            except Exception as error:
                if progress.ended_by(error):
                    raise
                failed.append(error)
        failed += self._maintain_groups()
        if failed:
            raise ExceptionGroup(f"{len(failed)} topics or groups could not be maintained", failed)
        return tuple(done)

    def _maintain_groups(self) -> list[Exception]:
        """Maintain every group; return what failed."""
        try:
            names, failed = self.groups.every_name(), list[Exception]()
        except Exception as error:  # noqa: BLE001 raised by the caller, with what failed of the topics
            return [error]
        for group in names:
            try:
                self.groups.maintain(group)
            except Exception as error:  # noqa: BLE001 as above
                failed.append(error)
        return failed

    def verify_root(self) -> RootReport:
        """Check what belongs to no topic: the root's marker, its defaults, access rules and groups; reads only.

        Raises:
            RootNotFoundError: there is no root here.
        """
        try:
            self._check_root()
        except (CorruptionError, UnsupportedError) as error:
            return RootReport((str(error),), ())
        storage = self._storage
        journals = (paths.CONFIG_JOURNAL, paths.ACCESS_JOURNAL)
        faults = [*RootDefaults(storage).faults(), *self._access.faults()]
        groups = Groups(storage, self._access)
        known = {
            paths.ROOT_MARKER,
            paths.TOPICS,
            paths.GROUPS,
            paths.REPLICAS,
            PROBES,
            CLOCK,
            *(path.partition("/")[0] for path in journals),
        }
        unnamed = [name for name in storage.names("") if name not in known]
        for path in journals:
            home, journal = path.split("/")
            there = (name for name in storage.names(home) if not paths.is_acceptor(name))
            unnamed += [f"{home}/{name}" for name in there if name != journal]
            unnamed += [f"{path}/{name}" for name in storage.names(path) if paths.parse_entry(name) is None]
        return RootReport((*faults, *groups.verify()), (*unnamed, *groups.unnamed()))

    def verify(self, name: str, *, progress: Progress = silent) -> TopicReport:
        """Check every stored byte of a topic against what its newest entries say; reads only.

        Args:
            name: of the topic.
            progress: is called with how many bytes of segments were looked at; it may raise to end the work there.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return verify(self.topic(name), progress)
