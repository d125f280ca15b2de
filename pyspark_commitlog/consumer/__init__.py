"""Python client that reads: `Consumer`, and the process' caches."""

from __future__ import annotations

from pyspark_commitlog.consumer.consumer import Consumer
from pyspark_commitlog.consumer.membership import ConsumerRebalanceListener

__all__ = ["Consumer", "ConsumerRebalanceListener"]
