"""The counters of a process: what is counted, by whom, and how they are read."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, NumberDataPoint, Sum
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pyspark_commitlog import CommitLog, Producer, metrics
from pyspark_commitlog.errors import ConflictError, UnsupportedError
from pyspark_commitlog.storage import open_storage
from pyspark_commitlog.testing.manual_clock import ManualClock
from tests.support.children import in_a_child
from tests.support.filesystems import open_shelf
from tests.support.records import append, batch_of
from tests.support.world import World

PUT = 'commitlog_entries_put_total{journal="topic",kind="append"}'
LOST = 'commitlog_races_lost_total{journal="topic"}'


@pytest.fixture(autouse=True)
def _from_zero() -> Iterator[None]:
    metrics.reset()
    yield
    metrics.reset()


def test_a_commit_and_a_settling_are_counted(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path))
    topic = log.create_topic("clicks")
    assert metrics.snapshot()['commitlog_entries_put_total{journal="topic",kind="create"}'] == 1
    assert PUT not in metrics.snapshot()
    for _ in range(3):
        append(log.root.topic("clicks"), batch_of([b"x"]))
    assert metrics.snapshot()[PUT] == 3
    assert "commitlog_settle_runs_total" not in metrics.snapshot()
    topic.maintain()
    found = metrics.snapshot()
    assert found["commitlog_settle_runs_total"] >= 1
    assert found["commitlog_settle_seconds_total"] > 0
    assert found['commitlog_entries_put_total{journal="settle",kind="settle"}'] >= 1
    assert LOST not in found


def test_a_compaction_is_counted(tmp_path: Path) -> None:
    log = CommitLog(str(tmp_path))
    log.create_topic("plain").maintain()
    assert "commitlog_compaction_runs_total" not in metrics.snapshot()
    log.create_topic("compacted", 2, config={"cleanup.policy": "compact"}).maintain()
    assert metrics.snapshot()["commitlog_compaction_runs_total"] == 2
    assert metrics.snapshot()["commitlog_compaction_seconds_total"] >= 0


def test_a_race_that_another_writer_won_is_counted(tmp_path: Path) -> None:
    world = World(tmp_path / "root")
    world.create()
    puts: list[str] = []

    def come_first(operation: str, path: str, moment: str) -> None:
        if (operation, moment) == ("put_if_absent", "before"):
            puts.append(path)
            if len(puts) == 1:
                append(world.handle(), batch_of([b"first"]))

    append(world.handle(come_first), batch_of([b"second"]))
    assert metrics.snapshot()[LOST] == 1
    assert metrics.snapshot()[PUT] == 2
    assert len(puts) == 2
    assert world.values() == [b"first", b"second"]


def test_requests_and_bytes_have_the_scheme_and_the_verb() -> None:
    storage = open_storage(f"memory://{uuid.uuid4()}")
    storage.put_if_absent("a", b"12345")
    storage.write_once("b", b"123")
    with pytest.raises(FileExistsError):
        storage.put_if_absent("a", b"other")
    output = storage.create("c")
    output.write(b"1234567")
    output.close()
    storage.read("a", 1, 2)
    storage.info("a")
    storage.names("")
    storage.delete("a")
    assert metrics.snapshot() == {
        'commitlog_storage_bytes_total{scheme="memory",verb="GET"}': 2,
        'commitlog_storage_bytes_total{scheme="memory",verb="PUT"}': 5 + 3 + 7,
        'commitlog_storage_requests_total{scheme="memory",verb="DELETE"}': 1,
        'commitlog_storage_requests_total{scheme="memory",verb="GET"}': 1,
        'commitlog_storage_requests_total{scheme="memory",verb="HEAD"}': 1,
        'commitlog_storage_requests_total{scheme="memory",verb="LIST"}': 1,
        'commitlog_storage_requests_total{scheme="memory",verb="PUT"}': 4,
    }


def test_a_filesystem_of_fsspec_has_its_calls(tmp_path: Path) -> None:
    storage = open_shelf(f"shelf://{tmp_path}/root")
    storage.put_if_absent("a", b"12345")
    storage.write_once("b", b"123")
    output = storage.create("c")
    output.write(b"1234567")
    output.close()
    assert storage.read("c") == b"1234567"
    storage.names("")
    storage.delete("a")
    assert metrics.snapshot() == {
        'commitlog_storage_bytes_total{scheme="shelf",verb="read"}': 7,
        'commitlog_storage_bytes_total{scheme="shelf",verb="write"}': 5 + 3 + 7,
        'commitlog_storage_requests_total{scheme="shelf",verb="delete"}': 1,
        'commitlog_storage_requests_total{scheme="shelf",verb="list"}': 1,
        'commitlog_storage_requests_total{scheme="shelf",verb="read"}': 2,
        'commitlog_storage_requests_total{scheme="shelf",verb="write"}': 3,
    }


def test_a_commit_is_counted_once_whoever_decides_it(tmp_path: Path) -> None:
    data, deciding = ([f"{tmp_path}/{kind}{number}" for number in range(count)] for kind, count in (("d", 2), ("m", 3)))
    for log in (
        CommitLog.create(data, [f"{tmp_path}/alone"]),
        CommitLog.create([f"{root}x" for root in data], deciding),
    ):
        log.create_topic("clicks")
        metrics.reset()
        with Producer(log.url) as producer:
            producer.send("clicks", "x").result()
        found = metrics.snapshot()
        assert found[PUT] == 1
        assert ('commitlog_entries_put_total{journal="acceptor",kind="accept"}' in found) == log.url.endswith("x")


def test_a_local_disk_has_no_requests(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.put_if_absent("a", b"1")
    storage.read("a")
    assert metrics.snapshot() == {}


def test_a_forked_child_begins_at_zero_whatever_its_parent_does() -> None:
    metrics.count(metrics.RACES, "topic")
    with metrics._registry.lock:  # a thread of the parent counts

        def check() -> None:
            assert metrics.snapshot() == {}
            metrics.count(metrics.RACES, "topic")
            assert metrics.snapshot() == {LOST: 1}

        in_a_child(check)
    assert metrics.snapshot() == {LOST: 1}


def test_threads_lose_no_count() -> None:
    def work() -> None:
        for _ in range(5000):
            metrics.count(metrics.RACES, "topic")

    threads = [Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert metrics.snapshot() == {LOST: 20_000}


def test_labels_are_bounded() -> None:
    for number in range(metrics.MAX_SERIES + 5):
        metrics.count(metrics.RACES, f"{number}")
    found = metrics.snapshot()
    assert len(found) == metrics.MAX_SERIES + 1
    assert found['commitlog_races_lost_total{journal="other"}'] == 5
    metrics.count(metrics.RACES, "0")
    assert metrics.snapshot()['commitlog_races_lost_total{journal="0"}'] == 2


def test_a_run_counts_however_it_ends() -> None:
    clock = ManualClock()

    def settle() -> None:
        with metrics.timed("settle", clock):
            clock.advance(1500)
            raise ConflictError

    with pytest.raises(ConflictError):
        settle()
    assert metrics.snapshot() == {"commitlog_settle_runs_total": 1, "commitlog_settle_seconds_total": 1.5}


def test_a_registry_of_prometheus_has_them_all_once() -> None:
    registry = CollectorRegistry()
    metrics.register(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.register(registry)
    metrics.count_put("topic", "append", won=True)
    metrics.count_requests("s3://bucket/log", "PUT", 2, 10)
    families = {each.name: each for each in text_string_to_metric_families(generate_latest(registry).decode())}
    assert {f"{name}_total" for name in families} == set(metrics.COUNTERS)
    assert {each.type for each in families.values()} == {"counter"}
    samples = {(each.name, *each.labels.values()): each.value for one in families.values() for each in one.samples}
    assert samples == {
        ("commitlog_entries_put_total", "topic", "append"): 1,
        ("commitlog_storage_requests_total", "s3", "PUT"): 2,
        ("commitlog_storage_bytes_total", "s3", "PUT"): 10,
    }


def observed(reader: InMemoryMetricReader) -> dict[str, Metric]:
    """Return what a reader of OpenTelemetry collects, by name."""
    data = reader.get_metrics_data()
    resources = [] if data is None else data.resource_metrics
    return {each.name: each for of in resources for scope in of.scope_metrics for each in scope.metrics}


def test_opentelemetry_observes_what_is_counted() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    metrics.register_opentelemetry(provider.get_meter("test"))
    assert observed(reader) == {}
    metrics.count_put("topic", "append", won=True)
    metrics.count_requests("s3://bucket/log", "PUT", 2, 10)
    metrics.count_requests("s3://bucket/log", "GET")
    metrics.count("commitlog_settle_seconds_total", by=1.5)
    found = observed(reader)
    samples = {
        (name, *(point.attributes or {}).values()): point.value
        for name, metric in found.items()
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }
    assert samples == {
        ("commitlog_entries_put", "topic", "append"): 1,
        ("commitlog_storage_requests", "s3", "PUT"): 2,
        ("commitlog_storage_requests", "s3", "GET"): 1,
        ("commitlog_storage_bytes", "s3", "PUT"): 10,
        ("commitlog_settle_seconds",): 1.5,
    }
    assert all(isinstance(metric.data, Sum) and metric.data.is_monotonic for metric in found.values())
    assert {name: metric.unit for name, metric in found.items() if metric.unit} == {
        "commitlog_storage_bytes": "By",
        "commitlog_settle_seconds": "s",
    }
    metrics.count_requests("s3://bucket/log", "GET")
    (get,) = (
        point.value
        for point in observed(reader)["commitlog_storage_requests"].data.data_points
        if isinstance(point, NumberDataPoint) and (point.attributes or {})["verb"] == "GET"
    )
    assert get == 2
    provider.shutdown()


def test_the_global_meter_of_opentelemetry_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    metrics.register_opentelemetry()
    metrics.count(metrics.RACES, "topic")
    data = reader.get_metrics_data()
    assert data is not None
    assert [scope.scope.name for of in data.resource_metrics for scope in of.scope_metrics] == ["pyspark_commitlog"]
    provider.shutdown()


def test_without_opentelemetry_an_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'pyspark-commitlog\[opentelemetry\]'"):
        metrics.register_opentelemetry()


def test_without_the_package_an_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'pyspark-commitlog\[metrics\]'"):
        metrics.register()
