"""Counters of this process: what its producers, sinks, readers and maintenance did.

All threads add to one set of counters; a forked child begins at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

from pyspark_commitlog.errors import UnsupportedError

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client.registry import CollectorRegistry

#: Maximum sets of label values of all counters; further ones count with `OTHER` as each value.
MAX_SERIES = 1000
OTHER = "other"
#: Units in OpenTelemetry, by the word that a counter's name ends with before `_total`.
_UNITS = {"seconds": "s", "bytes": "By"}


@dataclass(frozen=True, slots=True)
class Metric:
    """Name of a metric, its labels, and what it measures."""

    name: str
    labels: tuple[str, ...]
    help: str


ENTRIES, RACES = "commitlog_entries_put_total", "commitlog_races_lost_total"
REQUESTS, BYTES = "commitlog_storage_requests_total", "commitlog_storage_bytes_total"
#: The counters, by name.
COUNTERS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(ENTRIES, ("journal", "kind"), "Entries put: commits of records have journal=topic, kind=append."),
        Metric(RACES, ("journal",), "Puts of an entry that another entry was before: each is planned and put again."),
        Metric("commitlog_settle_runs_total", (), "Runs that settle, also those that find nothing to do."),
        Metric("commitlog_settle_seconds_total", (), "Time that these runs took."),
        Metric("commitlog_compaction_runs_total", (), "Looks for segments to compact, with what they compact."),
        Metric("commitlog_compaction_seconds_total", (), "Time that these took."),
        Metric(REQUESTS, ("scheme", "verb"), "Requests to an object store by HTTP method, or calls of a filesystem."),
        Metric(BYTES, ("scheme", "verb"), "Bytes that these requests carried, without headers."),
    )
}


class MonotonicClock(Protocol):
    """A clock that measures durations."""

    def monotonic(self) -> float:
        """Monotonic seconds."""


class _Registry:
    def __init__(self) -> None:
        self.lock = RLock()  # a finalizer may count within a count
        self.values: dict[tuple[str, tuple[str, ...]], float] = {}

    def add(self, name: str, values: tuple[str, ...], by: float) -> None:
        key = name, values
        with self.lock:
            if key not in self.values and len(self.values) >= MAX_SERIES:
                key = name, (OTHER,) * len(values)
            self.values[key] = self.values.get(key, 0.0) + by

    def copy(self) -> dict[tuple[str, tuple[str, ...]], float]:
        with self.lock:
            return dict(self.values)


_registry = _Registry()


def count(name: str, *values: str, by: float = 1.0) -> None:
    """Add to a counter of `COUNTERS`; `values` are those of its labels, in order."""
    _registry.add(name, values, by)


def count_put(journal: str, kind: str, *, won: bool) -> None:
    """Count a put of an entry: its own, or a lost race."""
    count(*((ENTRIES, journal, kind) if won else (RACES, journal)))


def count_requests(url: str, verb: str, times: int = 1, size: int = 0) -> None:
    """Count requests to the store of a URL, and the bytes that they carried."""
    scheme = url.partition(":")[0]
    if times:
        count(REQUESTS, scheme, verb, by=times)
    if size:
        count(BYTES, scheme, verb, by=size)


@contextmanager
def timed(what: str, clock: MonotonicClock) -> Iterator[None]:
    """Count a run of `what` (`settle`, `compaction`), and its seconds, however it ends."""
    began = clock.monotonic()
    try:
        yield
    finally:
        count(f"commitlog_{what}_runs_total")
        count(f"commitlog_{what}_seconds_total", by=max(0.0, clock.monotonic() - began))


def reset() -> None:
    """Set all counters to zero, without their lock: a forked child may have it locked for ever."""
    global _registry
    _registry = _Registry()


def snapshot() -> dict[str, float]:
    """Return all counters that are not zero, sorted, as `name{label="value",…}` -> value.

    Durations are in seconds, sizes in bytes.
    """
    found = {}
    for (name, values), value in sorted(_registry.copy().items()):
        labels = ",".join(f'{label}="{each}"' for label, each in zip(COUNTERS[name].labels, values, strict=True))
        found[f"{name}{{{labels}}}" if labels else name] = value
    return found


def register(registry: CollectorRegistry | None = None) -> None:
    """Have the counters exposed by a registry of `prometheus_client`.

    Args:
        registry: None for its default, `prometheus_client.REGISTRY`.

    Raises:
        UnsupportedError: `prometheus_client` is not installed.
        ValueError: the registry has them already.
    """
    try:
        import prometheus_client
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"a package is missing ({error}): pip install 'pyspark-commitlog[metrics]'") from error
    collector: Any = _CounterCollector()  # of the class that they ask for in all but the name
    (prometheus_client.REGISTRY if registry is None else registry).register(collector)


def register_opentelemetry(meter: Meter | None = None) -> None:
    """Have the counters observed by OpenTelemetry, named as in `COUNTERS` without `_total`.

    Call it once: each call makes instruments of its own.

    Args:
        meter: None for the meter `pyspark_commitlog` of the global provider.

    Raises:
        UnsupportedError: `opentelemetry-api` is not installed.
    """
    try:
        from opentelemetry import metrics
    except ModuleNotFoundError as error:
        missing = f"a package is missing ({error}): pip install 'pyspark-commitlog[opentelemetry]'"
        raise UnsupportedError(missing) from error
    found = metrics.get_meter("pyspark_commitlog") if meter is None else meter
    for each in COUNTERS.values():
        name = each.name.removesuffix("_total")
        unit = _UNITS.get(name.rpartition("_")[2], "")
        found.create_observable_counter(name, [_observer(each)], unit, each.help)


def _observer(of: Metric) -> Callable[[CallbackOptions], list[Observation]]:
    def observe(options: CallbackOptions) -> list[Observation]:
        from opentelemetry.metrics import Observation

        return [
            Observation(value, dict(zip(of.labels, values, strict=True)))
            for (name, values), value in _registry.copy().items()
            if name == of.name
        ]

    return observe


class _CounterCollector:
    def describe(self) -> list[Any]:
        """Return the metric families without values: a registry takes no name twice."""
        return self._families({})

    def collect(self) -> list[Any]:
        """Return the metric families, as `prometheus_client` asks for them."""
        return self._families(_registry.copy())

    def _families(self, counted: Mapping[tuple[str, tuple[str, ...]], float]) -> list[Any]:
        from prometheus_client.core import CounterMetricFamily

        families = {
            each.name: CounterMetricFamily(each.name, each.help, labels=each.labels) for each in COUNTERS.values()
        }
        for (name, values), value in sorted(counted.items()):
            families[name].add_metric(values, value)
        return list(families.values())
