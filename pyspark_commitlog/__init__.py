"""pyspark-commitlog: Kafka's commit log without brokers, for PySpark, on a directory you already have.

Spark imports every top-level module named ``pyspark_*`` when it first looks for a data source, so importing this one
is light and does not fail: names are loaded when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "CommitLog",
    "CommitLogListener",
    "Consumer",
    "ConsumerRebalanceListener",
    "DefaultSource",
    "Producer",
    "Record",
    "TopicPartition",
    "__version__",
    "compare_topics",
    "configure_spark",
    "copy_topics",
    "errors",
    "set_process_limits",
]

if TYPE_CHECKING:
    from pyspark_commitlog import errors
    from pyspark_commitlog.commit_log import CommitLog
    from pyspark_commitlog.consumer import Consumer, ConsumerRebalanceListener
    from pyspark_commitlog.copying.copy import compare_topics, copy_topics
    from pyspark_commitlog.model import Record, TopicPartition
    from pyspark_commitlog.producer import Producer
    from pyspark_commitlog.spark.session.configure import configure_spark
    from pyspark_commitlog.spark.session.listener import CommitLogListener
    from pyspark_commitlog.spark.source import DefaultSource
    from pyspark_commitlog.storage.limits import set_process_limits

_HOMES = {
    "CommitLog": "pyspark_commitlog.commit_log",
    "CommitLogListener": "pyspark_commitlog.spark.session.listener",
    "Consumer": "pyspark_commitlog.consumer",
    "ConsumerRebalanceListener": "pyspark_commitlog.consumer",
    "DefaultSource": "pyspark_commitlog.spark.source",
    "Producer": "pyspark_commitlog.producer",
    "Record": "pyspark_commitlog.model",
    "TopicPartition": "pyspark_commitlog.model",
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
