"""Options of a producer (Kafka: `ProducerConfig`). Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark_commitlog.config import COMPRESSIONS
from pyspark_commitlog.errors import OptionError

#: Chooses a record's partition: (key, number of partitions) -> partition.
ChoosePartition = Callable[[bytes | None, int], int]
PARTITIONERS = ("murmur2", "roundrobin", "sticky")
_INT_MAX = 2**31 - 1
_MAX_BUFFER = 2**40
_MAX_ID_LENGTH = 256
#: Records sent within this fraction of their timeout, at most so many seconds, expire together.
_TOGETHER_PART, _TOGETHER_SECONDS = 1 / 20, 1.0

#: Least and largest values of numeric options.
_NUMBERS = {
    "linger_ms": (0, _INT_MAX),
    "batch_size": (0, _INT_MAX),
    "buffer_memory": (1, _MAX_BUFFER),
    "request_timeout_ms": (0, _INT_MAX),
    "delivery_timeout_ms": (0, _INT_MAX),
    "max_block_ms": (0, _INT_MAX),
    "metadata_max_age_ms": (0, _INT_MAX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Options of a producer, as `Producer` documents them; bytes and ms."""

    acks: str | int
    linger_ms: int
    batch_size: int
    buffer_memory: int
    compression: str | None
    partitioner: str | ChoosePartition
    producer_id: str | None
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    metadata_max_age_ms: int = 5000

    @property
    def durable(self) -> bool:
        """Whether records must survive power loss: all but acks=0."""
        return str(self.acks) != "0"

    @property
    def acks_all(self) -> bool:
        """Whether acknowledged records must be on all in-sync replicas."""
        return str(self.acks) in ("all", "-1")

    @property
    def together_seconds(self) -> float:
        """Span (s) of sends that expire together."""
        return min(self.longest_together_seconds, _TOGETHER_SECONDS)

    @property
    def longest_together_seconds(self) -> float:
        """Span (s) for records in a chunk, which is large."""
        return self.delivery_timeout_ms / 1000 * _TOGETHER_PART

    def check(self) -> ProducerConfig:
        """Return these options, checked one by one and together.

        Raises:
            OptionError: names the option, its value and what is allowed.
        """
        for name, (least, most) in _NUMBERS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise OptionError(f"option {name}={value!r} is not allowed: it takes a whole number, {least} to {most}")
        if type(self.acks) not in (str, int) or self.acks not in ("all", "-1", "1", "0", -1, 1, 0):  # not True, 1.0
            raise OptionError(f"option acks={self.acks!r} is not allowed: use 'all' (the default), 1 or 0")
        if self.compression not in (None, *COMPRESSIONS):
            allowed = ", ".join(COMPRESSIONS)
            raise OptionError(f"option compression={self.compression!r} is not allowed: use {allowed} or None")
        if not callable(self.partitioner) and self.partitioner not in PARTITIONERS:
            allowed = ", ".join(PARTITIONERS)
            raise OptionError(
                f"option partitioner={self.partitioner!r} is not allowed: use {allowed}, or a function "
                "(key, number of partitions) -> partition"
            )
        self._check_id()
        self._check_together()
        return self

    def _check_id(self) -> None:
        name = self.producer_id
        if name is None:
            return
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_ID_LENGTH or not name.isprintable():
            raise OptionError(
                f"option producer_id={name!r} is not allowed: it takes a text of 1 to {_MAX_ID_LENGTH} characters"
            )
        if not self.durable:
            raise OptionError(
                f"option producer_id={name!r} is not allowed with acks=0: power loss could take records that "
                "last_sequence counts; use acks='all'"
            )

    def _check_together(self) -> None:
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise OptionError(
                f"option delivery_timeout_ms={self.delivery_timeout_ms} is not allowed: it takes at least linger_ms + "
                f"request_timeout_ms = {self.linger_ms + self.request_timeout_ms}"
            )
