"""`Producer` (Kafka: `KafkaProducer`) and its results, loaded lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["BatchMetadata", "Producer", "RecordMetadata"]

if TYPE_CHECKING:
    from pyspark_commitlog.producer.producer import Producer
    from pyspark_commitlog.producer.records.batches import BatchMetadata, RecordMetadata

_HOMES = {"BatchMetadata": "records.batches", "Producer": "producer", "RecordMetadata": "records.batches"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
