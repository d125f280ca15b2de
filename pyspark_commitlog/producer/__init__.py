"""`Producer` (Kafka: `KafkaProducer`) and its results, loaded lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["BatchMetadata", "Producer", "RecordMetadata"]

if TYPE_CHECKING:
    from pyspark_commitlog.producer.batches import BatchMetadata, RecordMetadata
    from pyspark_commitlog.producer.client import Producer

_HOMES = {"BatchMetadata": "batches", "Producer": "client", "RecordMetadata": "batches"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
