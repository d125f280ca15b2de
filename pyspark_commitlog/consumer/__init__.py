"""Python client that reads: ``Consumer``, and caches shared by the process."""

from __future__ import annotations

from pyspark_commitlog.consumer.consumer import Consumer
from pyspark_commitlog.consumer.membership import ConsumerRebalanceListener

__all__ = ["Consumer", "ConsumerRebalanceListener"]
