"""pyspark-commitlog: Kafka's commit log without brokers, for PySpark, on a directory you already have.

Spark imports every top-level module named ``pyspark_*`` when it first looks for a data source, so importing this one
is light and does not fail: names are loaded when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Access",
    "Backlog",
    "BatchMetadata",
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
    "Replicated",
    "ReplicationDescription",
    "RootDescription",
    "RootReport",
    "Rule",
    "TopicDescription",
    "TopicPartition",
    "TopicReport",
    "VoidedRange",
    "__version__",
    "compare_topics",
    "configure_spark",
    "copy_topics",
    "errors",
    "set_process_limits",
]

if TYPE_CHECKING:
    from pyspark_commitlog import errors
    from pyspark_commitlog.access import Access, Operation, Rule
    from pyspark_commitlog.commit_log import CommitLog
    from pyspark_commitlog.consumer import Consumer, ConsumerRebalanceListener
    from pyspark_commitlog.copying.comparison import Compared
    from pyspark_commitlog.copying.copy import Copied, compare_topics, copy_topics
    from pyspark_commitlog.copying.group_offsets import CopiedGroup, KeptOffset
    from pyspark_commitlog.copying.topic_copy import CopiedTopic
    from pyspark_commitlog.groups.consumer_groups import Groups
    from pyspark_commitlog.groups.descriptions import (
        GroupDescription,
        GroupPartition,
        MaintainedGroup,
        MemberDescription,
        OffsetReset,
    )
    from pyspark_commitlog.log.maintain.run import Maintained
    from pyspark_commitlog.log.read.timestamps import OffsetAndTimestamp
    from pyspark_commitlog.log.repair.verify import RootReport, TopicReport
    from pyspark_commitlog.log.repair.void import VoidedRange
    from pyspark_commitlog.model import (
        Backlog,
        PartitionDescription,
        Record,
        Recovered,
        Repaired,
        ReplicaDescription,
        Replicated,
        ReplicationDescription,
        RootDescription,
        TopicDescription,
        TopicPartition,
    )
    from pyspark_commitlog.producer import BatchMetadata, Producer, RecordMetadata
    from pyspark_commitlog.spark.session.configure import configure_spark
    from pyspark_commitlog.spark.session.lag import QueryLag
    from pyspark_commitlog.spark.session.listener import CommitLogListener
    from pyspark_commitlog.spark.source import DefaultSource
    from pyspark_commitlog.storage.limits import ProcessLimits, set_process_limits

_HOMES = {
    "Access": "pyspark_commitlog.access",
    "Backlog": "pyspark_commitlog.model",
    "BatchMetadata": "pyspark_commitlog.producer",
    "CommitLog": "pyspark_commitlog.commit_log",
    "CommitLogListener": "pyspark_commitlog.spark.session.listener",
    "Compared": "pyspark_commitlog.copying.comparison",
    "Consumer": "pyspark_commitlog.consumer",
    "ConsumerRebalanceListener": "pyspark_commitlog.consumer",
    "Copied": "pyspark_commitlog.copying.copy",
    "CopiedGroup": "pyspark_commitlog.copying.group_offsets",
    "CopiedTopic": "pyspark_commitlog.copying.topic_copy",
    "DefaultSource": "pyspark_commitlog.spark.source",
    "GroupDescription": "pyspark_commitlog.groups.descriptions",
    "GroupPartition": "pyspark_commitlog.groups.descriptions",
    "Groups": "pyspark_commitlog.groups.consumer_groups",
    "KeptOffset": "pyspark_commitlog.copying.group_offsets",
    "Maintained": "pyspark_commitlog.log.maintain.run",
    "MaintainedGroup": "pyspark_commitlog.groups.descriptions",
    "MemberDescription": "pyspark_commitlog.groups.descriptions",
    "OffsetAndTimestamp": "pyspark_commitlog.log.read.timestamps",
    "OffsetReset": "pyspark_commitlog.groups.descriptions",
    "Operation": "pyspark_commitlog.access",
    "PartitionDescription": "pyspark_commitlog.model",
    "ProcessLimits": "pyspark_commitlog.storage.limits",
    "Producer": "pyspark_commitlog.producer",
    "QueryLag": "pyspark_commitlog.spark.session.lag",
    "Record": "pyspark_commitlog.model",
    "RecordMetadata": "pyspark_commitlog.producer",
    "Recovered": "pyspark_commitlog.model",
    "Repaired": "pyspark_commitlog.model",
    "ReplicaDescription": "pyspark_commitlog.model",
    "Replicated": "pyspark_commitlog.model",
    "ReplicationDescription": "pyspark_commitlog.model",
    "RootDescription": "pyspark_commitlog.model",
    "RootReport": "pyspark_commitlog.log.repair.verify",
    "Rule": "pyspark_commitlog.access",
    "TopicDescription": "pyspark_commitlog.model",
    "TopicPartition": "pyspark_commitlog.model",
    "TopicReport": "pyspark_commitlog.log.repair.verify",
    "VoidedRange": "pyspark_commitlog.log.repair.void",
    "compare_topics": "pyspark_commitlog.copying.copy",
    "configure_spark": "pyspark_commitlog.spark.session.configure",
    "copy_topics": "pyspark_commitlog.copying.copy",
    "set_process_limits": "pyspark_commitlog.storage.limits",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("pyspark_commitlog.errors")
    home = _HOMES.get(name)
    if home is None:
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
