"""pyspark-commitlog: Kafka's commit log without brokers, for PySpark, on a directory you already have.

Spark imports every top-level module named `pyspark_*` when it first looks for a data source, so importing this one
is light and does not fail: names are loaded when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Access",
    "Backlog",
    "BatchMetadata",
    "ColumnDescription",
    "CommitLog",
    "CommitLogListener",
    "Compared",
    "Consumer",
    "ConsumerRebalanceListener",
    "Copied",
    "CopiedGroup",
    "CopiedTopic",
    "DefaultSource",
    "GroupDescription",
    "GroupPartition",
    "Groups",
    "KeptOffset",
    "Maintained",
    "MaintainedGroup",
    "MemberDescription",
    "OffsetAndTimestamp",
    "OffsetReset",
    "Operation",
    "PartitionDescription",
    "ProcessLimits",
    "Producer",
    "QueryLag",
    "Record",
    "RecordMetadata",
    "Recovered",
    "Repaired",
    "ReplicaDescription",
    "Replicas",
    "Replicated",
    "ReplicationDescription",
    "RootConfig",
    "RootDescription",
    "RootReport",
    "Rule",
    "SchemaDescription",
    "Topic",
    "TopicDescription",
    "TopicPartition",
    "TopicReport",
    "VoidedRange",
    "__version__",
    "configure_spark",
    "errors",
    "metrics",
    "set_process_limits",
    "suggest",
]

if TYPE_CHECKING:
    from pyspark_commitlog import errors, metrics
    from pyspark_commitlog.api.commit_log import CommitLog
    from pyspark_commitlog.api.replicas import Replicas
    from pyspark_commitlog.api.results import (
        Access,
        Backlog,
        ColumnDescription,
        Compared,
        Copied,
        CopiedGroup,
        CopiedTopic,
        GroupDescription,
        GroupPartition,
        Groups,
        KeptOffset,
        Maintained,
        MaintainedGroup,
        MemberDescription,
        OffsetAndTimestamp,
        OffsetReset,
        Operation,
        PartitionDescription,
        Record,
        Recovered,
        Repaired,
        ReplicaDescription,
        Replicated,
        ReplicationDescription,
        RootDescription,
        RootReport,
        Rule,
        SchemaDescription,
        TopicDescription,
        TopicPartition,
        TopicReport,
        VoidedRange,
    )
    from pyspark_commitlog.api.root_config import RootConfig
    from pyspark_commitlog.api.topic import Topic
    from pyspark_commitlog.consumer import Consumer, ConsumerRebalanceListener
    from pyspark_commitlog.producer import BatchMetadata, Producer, RecordMetadata
    from pyspark_commitlog.spark.session.configure import configure_spark
    from pyspark_commitlog.spark.session.lag import QueryLag
    from pyspark_commitlog.spark.session.listener import CommitLogListener
    from pyspark_commitlog.spark.session.suggest import suggest
    from pyspark_commitlog.spark.source import DefaultSource
    from pyspark_commitlog.storage.limits import ProcessLimits, set_process_limits

#: The modules of the names that are not in `api.results`.
_HOMES = {
    "BatchMetadata": "pyspark_commitlog.producer",
    "CommitLog": "pyspark_commitlog.api.commit_log",
    "CommitLogListener": "pyspark_commitlog.spark.session.listener",
    "Consumer": "pyspark_commitlog.consumer",
    "ConsumerRebalanceListener": "pyspark_commitlog.consumer",
    "DefaultSource": "pyspark_commitlog.spark.source",
    "ProcessLimits": "pyspark_commitlog.storage.limits",
    "Producer": "pyspark_commitlog.producer",
    "QueryLag": "pyspark_commitlog.spark.session.lag",
    "RecordMetadata": "pyspark_commitlog.producer",
    "Replicas": "pyspark_commitlog.api.replicas",
    "RootConfig": "pyspark_commitlog.api.root_config",
    "Topic": "pyspark_commitlog.api.topic",
    "configure_spark": "pyspark_commitlog.spark.session.configure",
    "set_process_limits": "pyspark_commitlog.storage.limits",
    "suggest": "pyspark_commitlog.spark.session.suggest",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("errors", "metrics"):
        return import_module(f"{__name__}.{name}")
    home = _HOMES.get(name, "pyspark_commitlog.api.results")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "DefaultSource":
            home = _source_home()
        return getattr(import_module(home), name)
    except ImportError as error:
        # Spark asks for DefaultSource with hasattr: what is missing here must not break other data sources.
        raise AttributeError(f"{name} cannot be loaded: {error}") from error


def _source_home() -> str:
    """Return the module of the data source, or of the one that says what an outdated PySpark lacks."""
    import pyspark

    from pyspark_commitlog.spark.unsupported import is_outdated

    outdated = is_outdated(pyspark.__version__)
    return "pyspark_commitlog.spark.unsupported" if outdated else "pyspark_commitlog.spark.source"
