"""`Topic`: the operations of one topic but produce and consume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from pyspark_commitlog.api.describe_topic import describe_topic
from pyspark_commitlog.api.maintenance import Maintenance
from pyspark_commitlog.api.repair import repair, repair_before_void
from pyspark_commitlog.api.replica_sync import set_replication_factor
from pyspark_commitlog.config import check_config, check_names, partition_count
from pyspark_commitlog.errors import UnknownTopicError, UsageError
from pyspark_commitlog.format.schema.topic_schema import check_partitions
from pyspark_commitlog.journal import Draft, Slot, Stored
from pyspark_commitlog.model import Progress, Record, Repaired, Replicated, silent, watched
from pyspark_commitlog.root.create_topic import check_configs_together, check_typed_config
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.text import html_or_error
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.alter import alter, with_columns_changed
from pyspark_commitlog.topic.damage.verify import TopicReport, verify
from pyspark_commitlog.topic.damage.void import VoidedRange
from pyspark_commitlog.topic.damage.void_objects import give_up
from pyspark_commitlog.topic.lookup.fetch import fetch
from pyspark_commitlog.topic.lookup.timestamps import OffsetAndTimestamp, find_max_timestamp, find_time
from pyspark_commitlog.topic.maintain.maintain import Maintained
from pyspark_commitlog.topic.maintain.retention import delete_records
from pyspark_commitlog.topic.state.topic_state import TopicState
from pyspark_commitlog.topic.topic_log import TopicLog, check_partition, nothing_to_delete
from pyspark_commitlog.topic.write.writers import former_queries
from pyspark_commitlog.topic_description import TopicDescription

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds

    from pyspark_commitlog.topic.lookup.table import Bound, TopicScan


class Topic:
    """A topic of a root, by its name; it need not exist. `CommitLog.topic` and `create_topic` return it.

    Every method looks at the root's newest state.
    """

    def __init__(self, root: Root, name: str) -> None:
        self._root, self._name = root, name

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._name

    def __repr__(self) -> str:
        return f"Topic({self._root.url!r}, {self._name!r})"

    def _repr_html_(self) -> str:
        return html_or_error(self, lambda: self.describe()._repr_html_())

    def _log(self, operation: Operation = Operation.READ) -> TopicLog:
        return self._root.topic(self._name, operation)

    def describe(self) -> TopicDescription:
        """Topic's id, configs (also defaults and built-in ones), columns and partitions.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return describe_topic(self._log(Operation.DESCRIBE), unsafe=self._root.is_unsafe)

    def read(self, partition: int, offset: int, max_records: int = 1) -> tuple[Record, ...]:
        """Record at an offset of a partition, and those after it.

        Args:
            partition: its number.
            offset: of the first record; if compaction has removed it, the next one is first.
            max_records: maximum number, 1 or more.

        Returns:
            The records in order, fewer at the end of the log: none at the high watermark, as Kafka's fetch.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: no such partition, or `max_records` below 1.
            OffsetOutOfRangeError: below the log start offset or above the high watermark.
            CorruptionError: stored bytes are damaged.
        """
        return fetch(self._log(), partition, offset, max_records)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        start: Bound = None,
        end: Bound = None,
        view: str | None = None,
        filter: str | None = None,  # noqa: A002 Spark's, Arrow's and Delta's word
    ) -> pa.Table:
        """Return the records as one table; memory must hold them.

        Args:
            columns: of the table, in order; others are not even decompressed. `*` or None: all without underscore.
            start: partition -> first offset, or a time (with a zone): the first record not earlier. None, and
                partitions left out: the log start offset.
            end: where to end, before that offset or time. None, and partitions left out: the high watermark.
            view: `latest` for the newest record of each key, without null values; not with `start`.
            filter: condition in SQL that the records meet, as in `user = 'ada' AND price > 1.5`; times are in UTC.

        Returns:
            The declared columns; of an untyped topic key binary, value binary, topic string, partition int32, offset
            int64, timestamp timestamp[us, UTC], timestampType int32, headers list<struct<key string, value binary>>.
            If asked for, of any topic, _topic, _partition_id, _offset, _timestamp, _timestampType, _key, _headers. By
            partition and, without `view`, by offset.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: no such columns, partitions, view or filter; a record without key, or a typed topic, in a view.
            OffsetOutOfRangeError: below the log start offset or above the high watermark.
            CorruptionError: stored bytes are damaged.
        """
        return self._plan(columns, start, end, filter, view).table()

    def _plan(
        self, columns: Sequence[str] | None, start: Bound, end: Bound, condition: str | None, view: str | None = None
    ) -> TopicScan:
        from pyspark_commitlog.topic.lookup.table import plan_scan

        return plan_scan(self._log(), columns, start, end, view, condition)

    def dataset(
        self,
        columns: Sequence[str] | None = None,
        start: Bound = None,
        end: Bound = None,
        filter: str | None = None,  # noqa: A002
    ) -> ds.Dataset:
        """Return the records as a `pyarrow.dataset.Dataset`, for DuckDB and other engines.

        Its offsets are fixed now; every scan reads them batch by batch, and only the columns that it needs. Arguments
        and errors as of `to_arrow`. Whole-table operations such as `sort_by` raise `UnsupportedError`.
        """
        from pyspark_commitlog.topic.lookup.dataset import TopicDataset

        return TopicDataset(self._plan(columns, start, end, filter))

    def scan(
        self,
        columns: Sequence[str] | None = None,
        start: Bound = None,
        end: Bound = None,
        filter: str | None = None,  # noqa: A002
    ) -> pl.LazyFrame:
        """Return the records as a Polars LazyFrame, read as `dataset`.

        Raises:
            UnsupportedError: Polars is not installed.
        """
        from pyspark_commitlog.topic.lookup.data_frames import lazy_frame, requires

        with requires("polars"):
            return lazy_frame(self._plan(columns, start, end, filter))

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        start: Bound = None,
        end: Bound = None,
        filter: str | None = None,  # noqa: A002
    ) -> pd.DataFrame:
        """Return the records as a pandas DataFrame; memory must hold them twice.

        Types are those of `pyarrow.Table.to_pandas`: integers with nulls become float64, nested values Python objects.
        `to_arrow(…).to_pandas(types_mapper=pandas.ArrowDtype)` keeps Arrow's. Arguments and errors as of `to_arrow`.

        Raises:
            UnsupportedError: pandas is not installed.
        """
        from pyspark_commitlog.topic.lookup.data_frames import requires

        with requires("pandas"):
            import_module("pandas")  # Arrow would fail some other way
        return self.to_arrow(columns, start, end, filter=filter).to_pandas()

    def offsets_for_times(self, times: Mapping[int, int]) -> dict[int, OffsetAndTimestamp | None]:
        """Return, per partition, the first record not before a timestamp (Kafka: `offsetsForTimes`).

        Args:
            times: partition -> milliseconds since the epoch.

        Returns:
            Offset and timestamp; None if all records are earlier.

        Raises:
            UsageError: no such partition.
        """
        topic = self._log()
        _, state = topic.newest()
        for partition in times:
            check_partition(self._name, state, partition)
        return {partition: find_time(topic, state.topic_id, partition, at) for partition, at in times.items()}

    def max_timestamps(self, partitions: Iterable[int] | None = None) -> dict[int, OffsetAndTimestamp | None]:
        """Return, per partition, the record with the largest timestamp (Kafka: `OffsetSpec.maxTimestamp`, KIP-734).

        Args:
            partitions: their numbers; None for all.

        Returns:
            Offset and timestamp, in ms, of the first such record; None without records.

        Raises:
            UsageError: no such partition.
        """
        topic = self._log()
        _, state = topic.newest()
        chosen = range(state.partitions) if partitions is None else tuple(partitions)
        for partition in chosen:
            check_partition(self._name, state, partition)
        return {partition: find_max_timestamp(topic, state.topic_id, partition) for partition in chosen}

    def alter(
        self,
        config: Mapping[str, object] | None = None,
        *,
        schema: object = None,
        add: object = None,
        drop: Sequence[str] | str = (),
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, object] | None = None,
    ) -> None:
        """Change configs, or the columns of a typed topic, by one entry.

        Running readers and writers go on with the columns they began with; a restart sees the new ones. Frames stay as
        they are: an added column is null in earlier records, a dropped one's values are not shown any more.

        Args:
            config: configs to set; None takes one back to the root's default or the built-in one.
            schema: all columns afterwards, in order, in a form that `CommitLog.create_topic` takes: a name that is not
                among them is dropped, a new one added; excludes the other changes of columns.
            add: new columns, in such a form; nullable.
            drop: names of columns.
            rename: name -> new name; records and running writers stay with the column.
            widen: name -> type: whole numbers up to BIGINT, FLOAT to DOUBLE, decimals to more digits at their scale.

        Raises:
            ConfigError: a config or change of columns is not allowed; nothing was changed.
            UsageError: the topic is untyped, and columns were given.
        """
        from pyspark_commitlog.format.schema.declared import declared_change

        given = config or {}
        removed = {key for key, value in given.items() if value is None}
        check_names(removed)
        checked = check_config({key: value for key, value in given.items() if value is not None})
        columns = declared_change(schema, add, drop, rename, widen)
        seed = "" if columns is None else self._root.storage.new_id()

        def change(state: TopicState) -> TopicState:
            kept = {key: value for key, value in state.config.items() if key not in removed}
            changed = {**kept, **checked}
            check_configs_together(self._root.storage, changed)
            check_typed_config(self._root.storage, state.schema, changed, given)
            after = state if columns is None else with_columns_changed(state, self._name, columns, seed)
            return replace(after, config=changed)

        alter(self._log(Operation.ADMIN), change)

    def add_partitions(self, total: int) -> None:
        """Grow to `total` partitions. Keys hash to other partitions from then on, as in Kafka.

        Raises:
            UsageError: `total` is not above the present number, or too many for a typed topic's columns.
        """
        total = partition_count(total)

        def change(state: TopicState) -> TopicState:
            if total <= state.partitions:
                raise UsageError(f"topic {self._name!r} has {state.partitions} partitions; {total} would not add any")
            check_partitions(state.schema, total)
            grown = (0,) * (total - state.partitions)
            return replace(state, log_start=state.log_start + grown, log_end=state.log_end + grown)

        alter(self._log(Operation.ADMIN), change)

    def set_replication_factor(self, factor: int) -> Replicated:
        """Change how many roots hold the topic, while it is written and read.

        Added replicas learn everything and join the ISR. Of fewer replicas those leave first that do not answer, then
        those out of sync, then the last assigned, never the leader: one that does not answer is replaced before. A
        removed replica's files stay on its root, unread.

        Args:
            factor: number of roots, 1 or more.

        Returns:
            As `Replicas.sync`: `failed` has the roots that have not caught up yet.

        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: fewer roots can hold it, one has another topic of that name, or the root stands alone; nothing
                was changed.
            NotLeaderError: neither the leader nor another root in sync answers, and no replica was taken out; or the
                leader changed meanwhile. Run it again.
            ReplicaNotAvailableError: too few roots answer, or the metadata root does not. Run it again.
        """
        return set_replication_factor(self._root, self._name, factor)

    def delete_records(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Delete the records below an offset of each partition given: readers no longer see them, at once.

        Args:
            offsets: partition -> the first offset that stays; -1 for the high watermark, which deletes all. `maintain`
                frees the disk.

        Returns:
            The log start offset of each partition given.

        Raises:
            UsageError: no such partition.
            OffsetOutOfRangeError: beyond the high watermark; nothing was deleted.
        """
        topic = self._log(Operation.ADMIN)
        starts = delete_records(topic, topic.newest()[1].topic_id, offsets)
        return {partition: starts[partition] for partition in offsets}

    def delete(self) -> None:
        """Delete the topic. Running readers and writers get `TopicChangedError`; `maintain` removes its files.

        Raises:
            UnknownTopicError: there is no such topic.
            TopicChangedError: somebody else deleted it meanwhile.
        """
        topic = self._log(Operation.ADMIN)
        try:
            _, before = topic.newest()
        except UnknownTopicError:
            raise nothing_to_delete(topic.storage, self._name) from None

        def plan(base: Stored | None, slot: Slot) -> Draft[None]:
            _, state = topic.newest_at(base, before.topic_id)
            ended = replace(state, deleted=True, former_queries=former_queries(topic, state))
            return Draft("delete", state.topic_id, {"state": ended.to_json()}, result=None)

        topic.journal.append(plan)

    def maintain(self, *, progress: Progress = silent) -> Maintained:
        """Settle, retain, rebuild damaged indexes, compact, sweep, collect, and remove former incarnations.

        A topic with replicas is synced first (`Replicas.sync`) and maintained at this root; a root that lags far learns
        for 10 s then, and goes on afterwards. Safe beside writers and readers, and twice at once. Of a deleted topic
        only former incarnations are removed. Damaged bytes stop what needs them, not the rest: the error comes last.

        Args:
            progress: called with the step; may raise to stop, which leaves all in order.

        Raises:
            UnknownTopicError: there is no such topic.
            CorruptionError: stored bytes are damaged; names each fault.
            ExceptionGroup: several steps or partitions failed, not all by a `CommitLogError`; what does not need them
                was done.
        """
        maintenance, seen = Maintenance(self._root), watched(progress)
        with maintenance.catching_up(seen):
            return maintenance.maintain(self._name, seen)

    def verify(self, *, progress: Progress = silent) -> TopicReport:
        """Check every stored byte against the newest entries; reads only.

        Args:
            progress: called with the bytes of segments read; may raise to stop.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return verify(self._log(), progress)

    def repair(self) -> Repaired:
        """Fetch what is damaged or missing at this root from other roots that have it.

        Entries, their tables and chunks are fetched as files, checked by CRC; of segments the damaged offsets, whose
        frames are written again. Safe beside readers and writers; settling waits meanwhile. Reads all segments.

        Returns:
            What was fetched, and what no other root has: `void` gives that up.

        Raises:
            UsageError: the root stands alone.
            UnknownTopicError: there is no such topic here.
            ConflictError: a settler holds the lock all the time: run it again.
            CorruptionError: a manifest, or the newest settle entry, is damaged: take this root out and add it empty.
        """
        return repair(self._root, self._name)

    def void(
        self,
        ranges: Mapping[int, tuple[int, int]] | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> tuple[VoidedRange, ...]:
        """Give up, for ever, records whose segment, chunk or journal entry is lost or damaged.

        Readers skip their offsets, and the partition goes on. Readable records stay, unless `force` is set. Of a topic
        with replicas what other roots have is fetched first (`repair`), unless `force` is set: what none has is given
        up at all of them.

        Reads all that is unsettled, and the segments that overlap `ranges`: all without `ranges`, and all for the
        repair. With append, settling waits until it ends; readers and commits go on, but a commit may wait 10 s.

        Args:
            ranges: partition -> (first offset, offset after the last); None for all that can't be read. A range must
                not end inside what can only be given up whole: a frame, or a lost file.
            force: give up everything in `ranges`.
            dry_run: change nothing.

        Returns:
            What was given up, or would be; empty if all can be read, or is voided already.

        Raises:
            UsageError: nothing of a range is damaged, or a segment holds more damage than it; nothing was voided.
            ConflictError: the topic is being settled, merged or compacted all the time: void it again.
            CorruptionError: a manifest or the newest entry is damaged; nothing was voided.
            ReplicaNotAvailableError: a root that may have it does not answer; nothing was voided.
        """
        if not (force or dry_run):
            repair_before_void(self._root, self._name)
        topic = self._log(Operation.ADMIN)
        return give_up(topic, topic.newest()[1].topic_id, ranges, force=force, dry_run=dry_run)
