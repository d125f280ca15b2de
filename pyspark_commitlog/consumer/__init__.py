"""The Python client's reading side: ``Consumer``, and what all consumers of a process share. Knows nothing of Spark."""

from __future__ import annotations

from pyspark_commitlog.consumer.consumer import Consumer
from pyspark_commitlog.consumer.membership import ConsumerRebalanceListener

__all__ = ["Consumer", "ConsumerRebalanceListener"]
