"""The sink: tasks stage records, the driver commits one entry per topic.

A streaming query writes exactly once per topic: query id and batch id are the commit's writer id. A batch write is at
least once, unless `txnAppId` and `txnVersion` identify it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import ArrayType, NullType, StructField, StructType

from pyspark_commitlog.config import TopicConfig
from pyspark_commitlog.errors import (
    InvalidRecordError,
    OptionError,
    RootNotAvailableError,
    RootNotFoundError,
    TopicChangedError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)
from pyspark_commitlog.format.paths import ROOT_MARKER, check_topic_name
from pyspark_commitlog.format.schema.topic_schema import RESERVED, Declaration
from pyspark_commitlog.format.schema.types import as_nullable
from pyspark_commitlog.spark.common.opening import OpenRoot, opened
from pyspark_commitlog.spark.common.root_failover import tried_elsewhere
from pyspark_commitlog.spark.common.session_zone import session_zone
from pyspark_commitlog.spark.common.worker import enter_task, memory_explained
from pyspark_commitlog.spark.write.local_times import as_instants
from pyspark_commitlog.spark.write.messages import StagedMessage, check_messages
from pyspark_commitlog.spark.write.sink_options import SinkOptions, sink_options
from pyspark_commitlog.text import UPDATE_ADVICE
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.maintain.settle import settle_after_commit
from pyspark_commitlog.topic.settle.settle_load import is_look_due, weight
from pyspark_commitlog.topic.topic_log import TopicLog
from pyspark_commitlog.topic.write.commit import commit
from pyspark_commitlog.topic.write.partitioner import Partitioner
from pyspark_commitlog.topic.write.records import TopicLimits, check_columns
from pyspark_commitlog.topic.write.staging import Staged, Stager, TopicStagers, row_checks, split_topics
from pyspark_commitlog.topic.write.writers import QUERY, Transaction

if TYPE_CHECKING:
    from pyspark_commitlog.format.schema.topic_schema import Field, TopicSchema
    from pyspark_commitlog.root.root import Root
    from pyspark_commitlog.topic.state.topic_state import TopicState


def _with_nulls(schema: StructType) -> StructType:
    """Return the schema with nulls in `array()`: PySpark needs them for Arrow."""
    void = ArrayType(NullType())
    kinds = ((field.name, field.dataType) for field in schema.fields)
    return StructType(
        [StructField(name, void if kind == ArrayType(NullType(), False) else kind) for name, kind in kinds]
    )


class _Writing:
    #: Whether the query may be older than this writer: Spark makes one for each micro-batch.
    _may_have_begun_before = False
    #: Version of the topic's schema when this writer was made.
    _version = 0
    #: Error for Spark's truncate.
    _OVERWRITE = "a log cannot be overwritten: use .mode('append'); to start over, delete the topic and create it again"

    def __init__(self, open_root: OpenRoot, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        if overwrite:
            raise UsageError(self._OVERWRITE)
        self._open_root = open_root
        self._options: SinkOptions = sink_options(options)
        self._schema = schema
        self._declaration = self._declare()
        self._check(to_arrow_schema(_with_nulls(schema), timezone="UTC"))

    def _declare(self) -> Declaration | None:
        """Return the columns of a typed topic to create: nullable, as in tables that Spark creates."""
        create = self._options.create
        if create is None or not create.is_typed:
            return None
        fields = self._fields()
        nullable = tuple(replace(field, type=as_nullable(field.type), nullable=True) for field in fields)
        return Declaration(nullable, create.key_column, create.timestamp_column)

    def _check(self, schema: pa.Schema) -> None:
        topic = self._options.topic
        if topic is None:
            check_columns("(topic column)", schema)
            if "topic" not in schema.names:
                raise OptionError(
                    "option 'topic' is missing, and there is no 'topic' column: name the topic to write to"
                )
            return
        state = self._state_of(topic)
        if state is None:
            if self._declaration is None:  # wrong columns make no topic
                check_columns(topic, schema)
            _, state = self._topic(self._log(), topic).newest()
        if self._options.merge_schema:
            state = self._merge(topic, state)
        self._version = state.schema.version if state.schema is not None else 0
        limits = TopicLimits.of(topic, state.partitions, TopicConfig({}))
        row_checks(state.schema, limits, self._began()).check_columns(schema)

    def _merge(self, topic: str, state: TopicState) -> TopicState:
        """Have a typed topic take all columns that are written, by one entry if it does not yet."""
        from pyspark_commitlog.format.schema.schema_change import SchemaChange, plan_merge
        from pyspark_commitlog.topic.alter import alter, with_columns_changed

        log, fields = self._log(), self._mergeable(state.schema)
        seed, begun = log.storage.new_id(), self._may_have_begun_before
        if state.schema is not None and plan_merge(state.schema, fields, is_running=begun) == SchemaChange():
            return state

        def change(state: TopicState) -> TopicState:
            added = plan_merge(state.schema, fields, is_running=begun) if state.schema else SchemaChange()
            return with_columns_changed(state, topic, added, seed)

        return alter(log.topic(topic, Operation.ADMIN), change)

    def _fields(self, taken: Callable[[StructField], bool] = lambda _: True) -> tuple[Field, ...]:
        """Return the columns that are written, without those of the log."""
        from pyspark_commitlog.format.schema.declared import declared_fields

        return declared_fields(
            StructType([each for each in self._schema.fields if each.name not in RESERVED and taken(each)])
        )

    def _mergeable(self, schema: TopicSchema | None) -> tuple[Field, ...]:
        """Return the columns that are written, without NULL literals, and types that only a writer has (collations)."""
        names = () if schema is None else schema.names
        stored = {"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"}
        return self._fields(
            lambda each: (
                each.dataType != NullType()
                and (each.name not in names or each.dataType.simpleString().partition("(")[0] in stored)
            )
        )

    def _state_of(self, topic: str) -> TopicState | None:
        try:
            return self._log().topic(topic, Operation.WRITE).newest()[1]
        except (RootNotFoundError, UnknownTopicError):
            return None

    def _log(self) -> Root:
        return opened(self._open_root, self._options)

    def _topic(self, log: Root, name: str) -> TopicLog:
        create = self._options.create
        if create is not None and self._may_make(log, name):
            from pyspark_commitlog.root.create_topic import create_topic

            with suppress(TopicExistsError):  # another writer was first
                create_topic(log, name, create.partitions, create.config or {}, self._declaration)
        return log.topic(name, Operation.WRITE)

    def _may_make(self, log: Root, name: str) -> bool:
        try:
            log.topic(name, Operation.WRITE).newest()
        except (RootNotFoundError, UnknownTopicError):
            return True
        return False

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stage a task's records; runs in the task."""
        task = enter_task()
        log = self._log()
        stagers = TopicStagers(lambda name: self._opened_stager(log, name, task))
        zone = session_zone()
        try:
            with memory_explained():
                for batch in iterator:
                    for name, rows in self._by_topic(batch):
                        stagers.add(name, as_instants(rows, zone) if stagers.of(name).takes_instants else rows)
                return StagedMessage(stagers.finish(), self._query_id())
        finally:
            stagers.discard()

    def _opened_stager(self, log: Root, name: str, task: int) -> Stager:
        return tried_elsewhere(lambda: self._stager(self._topic(log, name), task), lambda: bool(log.storage.others))

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:  # overrides a column, as in Spark's Kafka sink
            yield self._options.topic, batch
        else:
            for name, rows in split_topics(batch):
                if not name:
                    raise InvalidRecordError("a record's topic is null: set the topic column or the option 'topic'")
                yield check_topic_name(name), rows

    def _stager(self, topic: TopicLog, task: int) -> Stager:
        stored, state = topic.newest()
        config = topic.config(state)
        batch_bytes = config.number("batch.size")
        # Commits begin at consecutive partitions; else those of a single small task would all go to the first.
        first = task + stored.sequence - state.created
        partitioner = Partitioner(state.partitions, self._options.partitioner, batch_bytes, first)
        return Stager(topic.storage, topic.paths(state.topic_id), state, stored.sequence, partitioner, config,
                      durable=self._options.durable, summed=self._is_numbered(),
                      codec=self._options.compression,
                      create=topic.creates_chunks(state, acks_all=self._options.acks_all),
                      began=self._began())  # fmt: skip

    def _began(self) -> int:
        """Version of the schema since which names count that columns had."""
        return self._version

    def _is_numbered(self) -> bool:
        """Whether the commit has a writer id, so needs checksums (R6)."""
        return True

    def _query_id(self) -> str | None:
        return None

    def _commit(self, messages: Sequence[StagedMessage | None], writer: Transaction | None) -> None:
        """Commit topics in name order; a replay skips those committed (R7)."""
        by_topic: dict[str, list[Staged]] = {}
        for message in messages:
            for task in message.staged if message else ():
                by_topic.setdefault(task.topic, []).append(task)
        log = self._log()
        for name in sorted(by_topic):
            staged = by_topic[name]
            ids = {task.topic_id for task in staged}
            if len(ids) > 1:
                raise TopicChangedError(
                    f"topic {name!r} was deleted and made again while this write was running; nothing was committed "
                    "to it: run the write again"
                )
            tried_elsewhere(
                partial(self._commit_topic, log, name, staged, writer),
                lambda: bool(log.storage.others),
                repeatable=writer is not None,
            )

    def _commit_topic(self, log: Root, name: str, staged: Sequence[Staged], writer: Transaction | None) -> None:
        topic, topic_id = log.topic(name, Operation.WRITE), staged[0].topic_id
        durable, acks_all = self._options.durable, self._options.acks_all
        if not commit(topic, topic_id, staged, writer, durable=durable, acks_all=acks_all).skipped:
            size = weight(extent.length for task in staged for extent in task.extents)
            if is_look_due(topic.storage, topic_id, size):
                settle_after_commit(topic, topic_id)

    def _abort(self) -> None:
        """Delete nothing: Spark may abort after a commit that landed (R2)."""


class CommitLogWriter(_Writing, DataSourceArrowWriter):
    """Batch sink, for mode append."""

    def _is_numbered(self) -> bool:
        return self._options.txn is not None

    def commit(self, messages: list[StagedMessage | None]) -> None:  # type: ignore[override]
        """Make the write visible, in all partitions of a topic at once."""
        check_messages(messages, self._options.topic)
        txn = self._options.txn
        writer = Transaction(f"txn:{txn[0]}", txn[1], self._options.skip_older) if txn else None
        self._commit(messages, writer)

    def abort(self, messages: list[StagedMessage | None]) -> None:  # type: ignore[override]
        """Delete nothing; see `_abort`."""
        self._abort()


class CommitLogStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Streaming sink: exactly once per topic by (query id, batch id)."""

    _may_have_begun_before = True
    #: Error for output mode complete; Spark refuses update itself.
    _OVERWRITE = (
        "a log cannot be overwritten, so there is no outputMode('complete'), and Spark offers no Python sink 'update': "
        f"use outputMode('append'), or, for an aggregation, {UPDATE_ADVICE}"
    )

    def __init__(self, open_root: OpenRoot, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(open_root, options, schema, overwrite)
        if self._options.txn:
            raise OptionError("options 'txnAppId' and 'txnVersion' are for batch writes; a stream has its query id")

    def _check(self, schema: pa.Schema) -> None:
        """Check as the base, but accept a missing root."""
        try:
            super()._check(schema)
        except RootNotFoundError:
            if self._options.create is None:
                raise

    def _may_make(self, log: Root, name: str) -> bool:
        """Whether the topic never existed; a deleted one is not recreated."""
        if not super()._may_make(log, name):
            return False
        try:
            return log.topic(name, Operation.WRITE).journal.newest() is None
        except RootNotFoundError as error:
            batch = _local_property("streaming.sql.batchId")
            if batch is None:
                raise
            if int(batch) > 0:
                raise RootNotAvailableError.at(log.url) from error
            return True

    def _query_id(self) -> str | None:
        return _local_property("sql.streaming.queryId")

    def _began(self) -> int:
        """Return 0 for a query that may have written before, as the driver can't tell: any former name counts."""
        return self._version if _local_property("streaming.sql.batchId") == "0" else 0

    def commit(self, messages: list[StagedMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Make the micro-batch visible; skip one committed before."""
        check_messages(messages, self._options.topic)
        if batchId == 0:
            self._make_root()
        ids = {message.query_id for message in messages if message and message.staged}
        if not ids:
            return
        query_id = ids.pop()
        if ids or query_id is None:
            raise UsageError(f"batch {batchId}: its tasks name no single streaming query; nothing was committed")
        self._commit(messages, Transaction(f"{QUERY}{query_id}", batchId, self._options.skip_older))

    def abort(self, messages: list[StagedMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Delete nothing; see `_abort`."""
        self._abort()

    def _make_root(self) -> None:
        """Create the root after a first batch without records."""
        create, log = self._options.create, self._log()
        if create is not None and not log.storage.exists(ROOT_MARKER):
            from pyspark_commitlog.root.root_marker import make_root

            make_root(log)


def _local_property(name: str) -> str | None:
    context = TaskContext.get()
    return context.getLocalProperty(name) if context else None
