"""Creates a topic at one root, or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark_commitlog.config import (
    REPLICATION_FACTOR,
    TopicConfig,
    check_config,
    check_together,
    partition_count,
    replication_factor,
    truth_value,
)
from pyspark_commitlog.errors import ConfigError, UsageError
from pyspark_commitlog.format import paths
from pyspark_commitlog.format.marker import UNSAFE_SINGLE_WRITER
from pyspark_commitlog.format.schema.topic_schema import Declaration, TopicSchema, check_partitions, declare
from pyspark_commitlog.replication.admin.replicating import have_new_ones_join
from pyspark_commitlog.replication.metadata.metadata_roots import Deciders
from pyspark_commitlog.replication.protocol.roots import Roots
from pyspark_commitlog.root.root import Root
from pyspark_commitlog.root.root_marker import make_root
from pyspark_commitlog.storage import Storage
from pyspark_commitlog.topic.access import Operation
from pyspark_commitlog.topic.collect.creation import Creation, plan_creation, refuse_existing
from pyspark_commitlog.topic.defaults import RootDefaults
from pyspark_commitlog.topic.replica_fetch.catch_up import TopicSegments
from pyspark_commitlog.topic.state.home import make_home
from pyspark_commitlog.topic.topic_log import TopicLog

#: Configs that a typed topic can't have all values of.
_OF_TYPED = ("cleanup.policy", "message.timestamp.type", "retention.ms")


def create_topic(
    root: Root, name: str, partitions: int, config: Mapping[str, object], declaration: Declaration | None = None
) -> None:
    """Create a topic; see `CommitLog.create_topic`."""
    paths.check_topic_name(name)
    partitions = partition_count(partitions)
    config = dict(config)
    unsafe = truth_value(UNSAFE_SINGLE_WRITER, config.pop(UNSAFE_SINGLE_WRITER, False))
    factor = replication_factor(config.pop(REPLICATION_FACTOR, None))
    checked = check_config(config)
    check_configs_together(root.storage, checked)
    schema = None if declaration is None else declare(declaration, root.storage.new_id())
    check_typed_config(root.storage, schema, checked)
    check_partitions(schema, partitions)
    make_root(root, unsafe=unsafe)
    root.check_store()
    root.local_access.check(Operation.ADMIN, name)
    topic = TopicLog(root.storage, name)
    topic_id = root.storage.new_id()

    plan = plan_creation(topic, topic_id, partitions, checked, schema)
    if root.is_replicated:
        _create_replicated(topic, topic_id, partitions, plan, factor)
        return
    if factor not in (None, 1):
        raise UsageError(
            f"{REPLICATION_FACTOR}={factor} needs roots that belong together, and {root.url} stands "
            "alone: make them with CommitLog.create(replicas=[…]), or `commitlog replicas create`"
        )
    refuse_existing(topic, topic.journal.newest())
    make_home(root.storage, topic.paths(topic_id), partitions)
    root.storage.make_directory(paths.journal(name))
    topic.journal.append(plan)


def _create_replicated(topic: TopicLog, topic_id: str, partitions: int, plan: Creation, factor: int | None) -> None:
    """Create a topic on several roots; new ones catch up at once."""
    decided_log = topic.journal.decided_log()
    decider = decided_log.places.decider()
    base = decided_log.places.decided()
    refuse_existing(topic, base)
    roots = Roots.of(topic.storage)
    if any(address.id == decider.id for address in roots.listed().data):  # it learns by the put
        make_home(decider.storage, topic.paths(topic_id), partitions)
    decided_log.create(plan, factor, len(Deciders(roots).names(paths.TOPICS)))
    if base is not None:
        have_new_ones_join(decided_log, base, TopicSegments(topic.name))


def declaration(schema: object, key: str | None, timestamp: str | None) -> Declaration | None:
    """Return what a caller declared; None for an untyped topic."""
    if schema is not None:
        from pyspark_commitlog.format.schema.declared import declared_fields

        return Declaration(declared_fields(schema), key, timestamp)
    for role, column in (("key", key), ("timestamp", timestamp)):
        if column is not None:
            raise UsageError(f"{role}={column!r} names a column, and there is no schema: declare one")
    return None


def check_typed_config(
    storage: Storage, schema: TopicSchema | None, own: Mapping[str, str], changed: Iterable[str] = _OF_TYPED
) -> None:
    """Refuse a topic's configs that its schema rules out, if some of them are changed.

    Raises:
        ConfigError: it is compacted, or its timestamp column and its configs contradict each other.
    """
    if schema is None or not set(changed) & set(_OF_TYPED):
        return
    config = {**RootDefaults(storage).by_topic_name(), **own}
    given = TopicConfig(config)
    if given.has_policy("compact"):
        raise ConfigError("cleanup.policy=compact is not there for typed topics yet: leave it out, or the schema")
    timestamp = schema.by_id(schema.timestamp)
    if timestamp is None:
        return
    if given.text("message.timestamp.type") == "LogAppendTime":
        raise ConfigError(
            f"message.timestamp.type=LogAppendTime would overwrite column {timestamp.name!r}, which is the records' "
            "timestamp: leave out one of them"
        )
    if given.has_policy("delete") and "retention.ms" not in config:
        raise ConfigError(
            f"column {timestamp.name!r} is the records' timestamp, by which retention.ms deletes: 7 days by default, "
            "so old data would go with the first maintenance. Set retention.ms, to -1 to keep all"
        )


def check_configs_together(storage: Storage, config: Mapping[str, str]) -> None:
    """Refuse configs that contradict each other, the root's defaults or the storage."""
    defaults = RootDefaults(storage).by_topic_name()
    check_together({**defaults, **config}, appends=storage.can_append)
