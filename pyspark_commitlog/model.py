"""Values that rooms exchange: frozen, compared by content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, NamedTuple, SupportsIndex

from pyspark_commitlog.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_whole(value: object) -> int | None:
    """Python integer of any kind of whole number, such as NumPy's; None for other values."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return index(value)
    except TypeError:  # NumPy's bool
        return None


def whole_number(name: str, value: object) -> int:
    """Like `as_whole`; refuses other values."""
    number = as_whole(value)
    if number is None:
        raise UsageError(f"{name}={value!r} is not allowed: it takes a whole number")
    return number


class TopicPartition(NamedTuple):
    """A partition of a topic, by name.

    A tuple: plans of a thousand partitions hash, compare and sort them, which a dataclass does in Python.
    """

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `start` (inclusive) to `end` (exclusive) of one partition of one topic id (rule R8).

    `planned`: the topic's entry at the plan (`Lineage.position`), or empty. `anchors`: where a task goes on in the
    topic's journals without listing them (`TopicLog.anchors`).
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    planned: str = field(default="", compare=False)
    anchors: tuple[tuple[int, str], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Record:
    """One record (Kafka: `ConsumerRecord`).

    `timestamp_us` is exact, in microseconds since 1970; `timestamp` is Kafka's, in milliseconds. `timestamp_type` is 0
    for CreateTime, the producer's clock, and 1 for LogAppendTime. Key or value may be None. `headers` are pairs of name
    and value, in order; a name may come twice. The value of a typed topic's record is a dict of its columns, as Arrow
    converts them (`to_pylist`), and its key the key column's bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | dict[str, Any] | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def timestamp(self) -> int:
        """Timestamp in milliseconds since 1970, cut off as in Kafka's frames."""
        return self.timestamp_us // 1000

    @property
    def datetime(self) -> datetime:
        """Exact timestamp, in UTC.

        Raises:
            OverflowError: beyond the year 9999.
        """
        return _EPOCH + timedelta(microseconds=self.timestamp_us)


@dataclass(frozen=True, slots=True)
class Replicated:
    """Result of `Replicas.sync` for a topic; roots by their ids.

    `leader` and `isr` are the present ones. `elected`: the new leader, if the former one did not answer. `joined` are
    in sync again, `shrunk` no more. `failed` maps replicas that lag to the reason. `hw_raised`: readers see more.
    """

    topic: str
    leader: str
    isr: tuple[str, ...]
    elected: str | None = None
    joined: tuple[str, ...] = ()
    shrunk: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    hw_raised: bool = False


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of `Replicas.recover` for a topic (or a `group NAME`); roots by their ids.

    `root-wide defaults` and `access rules` are named if no root has them whole, with a `fault`.

    `ends`: number of the newest entry that each root has learned. `root`: the one with the longest journal, which is
    taken. `in_sync`: whether it was in sync, as far as it knows. `gone`: lost offsets, (partition, start, end).
    `fault`: why nothing can be taken. `done`: it goes on at the new metadata root already. `failed`: roots that have
    not learned it yet, or hold damage, and why.
    """

    topic: str
    ends: Mapping[str, int]
    root: str | None = None
    in_sync: bool = False
    gone: tuple[tuple[int, int, int], ...] = ()
    fault: str | None = None
    done: bool = False
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Repaired:
    """Result of `Topic.repair` at one root.

    `root`: its directory or URL. `files`: entries, tables and chunks fetched. `ranges`: offsets whose frames were,
    (partition, start, end). `left`: remaining damage and its reason. `away`: silent roots that may have it.
    """

    topic: str
    root: str
    files: tuple[str, ...] = ()
    ranges: tuple[tuple[int, int, int], ...] = ()
    left: tuple[str, ...] = ()
    away: tuple[str, ...] = ()


#: Is called with what is being done, how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


class Watched:
    """A `Progress` that remembers what it raised: that ends all work, other failures only what needs them."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._raised: BaseException | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        try:
            self._progress(what, done, total)
        except BaseException as error:  # Ctrl-C, too
            self._raised = error
            raise

    @property
    def has_raised(self) -> bool:
        """Whether it raised."""
        return self._raised is not None

    def ended_by(self, error: BaseException) -> bool:
        """Whether this is what it raised."""
        return self._raised is error


def watched(progress: Progress) -> Watched:
    """Make a progress remember, unless it does."""
    return progress if isinstance(progress, Watched) else Watched(progress)
